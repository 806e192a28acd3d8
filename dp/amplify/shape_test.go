package amplify_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// quality returns the noise of steps, and noise·cost/4: 1 for trusted central noise.
func quality(eps0 float64, edges []float64) (noise, ratio float64) {
	noise, cost := amplify.StepLimit(math.Expm1(eps0)/float64(len(edges)), edges)
	return noise, noise * cost / 4
}

// bestAt returns the best steps of this much noise.
func bestAt(steps int, noise float64) (edges []float64, eps0, ratio float64) {
	low, high := 1e-3, 12.
	for range 60 {
		eps0 = (low + high) / 2
		edges = amplify.BestEdges(steps, eps0)
		if n, r := quality(eps0, edges); n > noise {
			low, ratio = eps0, r
		} else {
			high, ratio = eps0, r
		}
	}
	return edges, eps0, ratio
}

// The values were found by random search on the normal limit.
func TestBestEdgesReachTheSearchedOnes(t *testing.T) {
	for _, row := range []struct {
		noise float64
		ratio []float64 // for 1, 2, 3 and 6 steps
		eps0  []float64
		three []float64
	}{
		{1.05, []float64{3.62, 3.16, 3.03, 2.92}, []float64{2.55, 2.73, 2.83, 3.00}, []float64{0.95, 1.49, 2.02}},
		{1.24, []float64{3.24, 2.83, 2.72, 2.62}, []float64{2.35, 2.52, 2.63, 2.79}, []float64{0.89, 1.44, 1.98}},
		{2.00, []float64{2.53, 2.21, 2.12, 2.05}, []float64{1.86, 2.02, 2.12, 2.28}, []float64{0.74, 1.31, 1.88}},
		{3.55, []float64{2.05, 1.80, 1.73, 1.67}, []float64{1.41, 1.56, 1.65, 1.79}, []float64{0.62, 1.21, 1.81}},
	} {
		for i, steps := range []int{1, 2, 3, 6} {
			edges, eps0, ratio := bestAt(steps, row.noise)
			if math.Abs(ratio/row.ratio[i]-1) > .004 || math.Abs(eps0-row.eps0[i]) > .02 {
				t.Errorf("noise %v, %d steps: %.3f times the central noise at eps0 = %.3f, the search found %v at %v", row.noise, steps, ratio, eps0, row.ratio[i], row.eps0[i])
			}
			if steps == 3 {
				for j, z := range edges {
					if math.Abs(z-row.three[j]) > .015 {
						t.Errorf("noise %v: edges %v, the search found %v", row.noise, edges, row.three)
					}
				}
			}
		}
	}
	// PrivUnit's edge has the least noise at its eps0, at a higher cost.
	if noise, ratio := quality(2.5, []float64{.976}); math.Abs(noise-1.05) > .01 || math.Abs(ratio-3.81) > .01 {
		t.Errorf("PrivUnit's edge: noise %v, %v times the central noise", noise, ratio)
	}
}

// No steps have both less noise and less cost.
func TestBestEdgesAreBest(t *testing.T) {
	r := rand.New(rand.NewPCG(16, 1))
	for _, steps := range []int{1, 2, 3, 8, 16} {
		for _, eps0 := range []float64{.01, .5, 2, 4, 9} {
			edges := amplify.BestEdges(steps, eps0)
			if !slices.IsSorted(edges) || edges[0] <= 0 || edges[steps-1] >= 6 {
				t.Errorf("%d steps, eps0 = %v: edges %v", steps, eps0, edges)
			}
			height := math.Expm1(eps0) / float64(steps)
			noise, cost := amplify.StepLimit(height, edges)
			for range 500 {
				size := math.Pow(10, -3*r.Float64())
				other := slices.Clone(edges)
				for j := range other {
					other[j] = math.Abs(other[j] + size*r.NormFloat64())
				}
				slices.Sort(other)
				n, c := amplify.StepLimit(height*math.Exp(size*r.NormFloat64()), other)
				if n < noise && c < cost*(1-1e-5) || n < noise*(1-1e-5) && c < cost {
					t.Fatalf("%d steps, eps0 = %v, edges %v: noise %v at cost %v; edges %v: %v at %v", steps, eps0, edges, noise, cost, other, n, c)
				}
			}
		}
	}
}

// More privacy is more noise and fewer tries; more steps are better.
func TestBestEdgesInOrder(t *testing.T) {
	for _, steps := range []int{1, 3, 16} {
		lastNoise, lastCost := math.Inf(1), 0.
		for eps0 := .01; eps0 < 10; eps0 *= longtest.Pick(1.3, 1.1) {
			noise, cost := amplify.StepLimit(math.Expm1(eps0)/float64(steps), amplify.BestEdges(steps, eps0))
			if !(noise < lastNoise && cost > lastCost) {
				t.Errorf("%d steps, eps0 = %v: noise %v after %v, cost %v after %v", steps, eps0, noise, lastNoise, cost, lastCost)
			}
			lastNoise, lastCost = noise, cost
		}
	}
	last := math.Inf(1)
	for steps := 1; steps <= 16; steps++ {
		_, _, ratio := bestAt(steps, 1.05)
		if !(ratio < last && ratio > 2.85) { // 2.86 for a ramp
			t.Errorf("%d steps: %v times the central noise, %v for one less", steps, ratio, last)
		}
		last = ratio
	}
}

package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// StepLimit returns what reports in steps are worth if the score is standard normal and reports
// are many, n. Estimated from them, a coordinate of the mean of vectors of norm up to C has an
// error of noise·C²/n in mean square. A round of them costs what a Gaussian mechanism of
// μ² = cost/n does. For equal cost a trusted curator adds a share 4/(noise·cost) of the noise.
//
// noise is (E[h]/E[zh])² and cost E[(h(z)−h(−z))²]/E[h]. Edges must rise, from 0 at least. Both
// are limits, for choosing a shape: what reports cost is bounded by [Rising]. Source: rising.md,
// "Which steps".
func StepLimit(height float64, edges []float64) (noise, cost float64) {
	s := sumSteps(edges)
	mean := 1 + height*s.share
	noise = mean / (height * s.density)
	return noise * noise, 2 * height * height * s.square / mean
}

// BestEdges returns the edges with which a number of equal steps has the least noise for what a
// shuffle of many reports reveals, rounded to a thousandth. eps0, the log of the largest level to
// the smallest, decides how much is revealed: no other steps, as many, of any height, have both
// less noise and less cost in the sense of [StepLimit].
//
// steps must be at least 1 and eps0 above 0. Source: rising.md, "Which steps".
func BestEdges(steps int, eps0 float64) []float64 {
	height := math.Expm1(eps0) / float64(steps)
	z := make([]float64, steps)
	for j := range z {
		z[j] = .6 + .5*float64(j)
	}
	for range 1000 {
		s := sumSteps(z)
		unit := s.density / (2 + height*s.share)
		moved := 0.
		for j := range z {
			move := (unit*(height+float64(2*j+1)/s.square) - z[j]) / 2
			z[j] += move
			moved = math.Max(moved, math.Abs(move))
		}
		if moved < 1e-9 {
			break
		}
	}
	for j := range z {
		z[j] = math.Round(1000*z[j]) / 1000
	}
	return z
}

// stepSums are sums over edges z_j, q_j the share of standard normal scores above z_j.
type stepSums struct {
	share   float64 // Σ q_j
	density float64 // Σ φ(z_j)
	square  float64 // Σ (2j−1)q_j, the mean square of the number of edges below the score
}

func sumSteps(edges []float64) (s stepSums) {
	for j, z := range edges {
		q := tail.UpperNormal(z)
		s.share += q
		s.density += tail.NormalDensity(z)
		s.square += float64(2*j+1) * q
	}
	return s
}

package account

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// The search of a knob with branches finds what looking at every value finds, on curves that rise, fall and rise
// again, wherever their dips lie.
func TestLargestOnAllBranches(t *testing.T) {
	const hi, target = 3000, 1.
	src := rand.New(rand.NewPCG(1, 7))
	for range longtest.Pick(300, 10000) {
		// The valley's bottom is at low; beside it another branch may begin at 1.
		low, peak := math.Exp(src.Float64()*math.Log(hi)), 1+3*src.Float64()
		steep, deep := .3+2*src.Float64(), .5+src.Float64()
		curve := func(u float64) float64 {
			valley := deep * math.Exp(steep*math.Abs(math.Log(u/low))*math.Min(1, math.Abs(math.Log(u/low))))
			return min(valley, peak*math.Pow(u, .7))
		}
		want := 0.
		for u := 1.; u <= hi; u++ {
			if curve(u) <= target {
				want = u
			}
		}
		asked := 0
		k := knobs()["k"]
		s := search{knob: k, target: target, cost: func(u float64) (float64, error) {
			if asked++; u != math.Floor(u) || u < 1 || u > hi {
				t.Fatalf("asked for k = %v", u)
			}
			return curve(u), nil
		}}
		got, found, err := s.largest(1, hi)
		if err != nil || found != (want > 0) || got != want {
			t.Fatalf("valley %v at %v (steep %v), peak %v: %v, %v (%v), want %v", deep, low, steep, peak, got, found, err, want)
		}
		if asked > 80 {
			t.Errorf("%d values asked", asked)
		}
	}
}

// Whole numbers: the answer is the largest, also among the smallest numbers, where the geometric mean of two numbers
// rounds down to the lower one.
func TestLargestWholeNumber(t *testing.T) {
	for _, name := range []string{"k", "rounds"} {
		for want := 1.; want <= 40; want++ {
			s := search{knob: knobs()[name], target: want + .5, cost: func(u float64) (float64, error) { return u, nil }}
			for _, hi := range []float64{40, 1e9} {
				if got, found, err := s.largest(1, hi); got != want || !found || err != nil {
					t.Errorf("%s to %v: %v, %v (%v), want %v", name, hi, got, found, err, want)
				}
			}
		}
	}
}

// ε is not monotone in the number of reports and in the chance to report: few reports are rare, many hide each other.
func TestPlanFindsEveryBranch(t *testing.T) {
	sums := Query{Trust: dp.Distributed, Class: dp.Gaussian, Sigma: .5, Population: 10000, Rounds: 50, Delta: 1e-5}
	for _, c := range []struct {
		solve         string
		participation dp.Participation
		q             Query
		target, least float64 // least is a value that meets the target
		long          bool
	}{
		{"k", dp.Sampled, Query{Eps0: 4, Population: 60000, Rounds: 100, Delta: 1e-5}, .25, 1500, true},
		{"gamma", dp.CheckIn, sums, .1, .005, true},
		{"k", dp.Sampled, sums, .1, 30, false},
	} {
		if c.long && !longtest.On {
			continue
		}
		c.q.Participation = c.participation
		got, r, err := Plan(context.Background(), c.target, c.q, c.solve)
		if err != nil {
			t.Errorf("%s of %s: %v", c.solve, c.participation, err)
			continue
		}
		if value := max(float64(got.Reports), got.Gamma); value < c.least || r.Upper.Eps > c.target {
			t.Errorf("%s of %s: %v with epsilon = %v, want at least %v with %v", c.solve, c.participation, value, r.Upper.Eps, c.least, c.target)
		}
	}
}

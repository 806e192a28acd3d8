package optimize

import (
	"math"
	"testing"
)

// Noise that takes long to find is asked for seldom, chooses almost as if it
// had been asked for everything, and what the plan says of it is exact.
func TestCostlyNoise(t *testing.T) {
	// Much as a shuffler's: more clients hide more.
	mse := func(clients, uses int64) float64 {
		eps0 := math.Min(6, math.Log1p(math.Sqrt(float64(clients)/float64(uses))/8))
		return 50 * math.Pow((math.Exp(eps0)+1)/math.Expm1(eps0), 2)
	}
	asked := map[[2]int64]int{}
	p := logisticProblem(1e5)
	p.StrongConvexity, p.MaxRounds = .02, 500
	for _, m := range Methods() {
		slow, fast := p, p
		clear(asked)
		slow.Noise = NewCostlyNoise(50, func(clients, uses int64) float64 {
			asked[[2]int64{clients, uses}]++
			return mse(clients, uses)
		})
		fast.Noise = direct(mse)
		plan, best := must(NewPlan(m.Name, slow, Overrides{})), must(NewPlan(m.Name, fast, Overrides{}))
		if plan.Bound > 1.05*best.Bound {
			t.Errorf("%s: bound %v, %v where everything is asked", m.Name, plan.Bound, best.Bound)
		}
		for _, s := range plan.Stages {
			want := fast.Noise.deviation(s.Batch, plan.Batches.Uses)
			if m.Name == "pan-private" {
				want *= math.Sqrt2
			}
			if math.Abs(s.Sigma/want-1) > 1e-12 {
				t.Errorf("%s: sigma %v of a stage, want %v", m.Name, s.Sigma, want)
			}
		}
		fixed, err := NewPlan(m.Name, slow, Overrides{Given: true, Rounds: 7, Batch: 777})
		if err != nil {
			t.Fatal(err)
		}
		uses := int64(1)
		if m.Name == "gd" {
			uses = 7
		}
		if got, want := fixed.Stages[0].Sigma, fast.Noise.deviation(777, uses); m.Name != "pan-private" && math.Abs(got/want-1) > 1e-12 {
			t.Errorf("%s: sigma %v of given rounds, want %v", m.Name, got, want)
		}
		if len(asked) > 60 {
			t.Errorf("%s: asked %d times", m.Name, len(asked))
		}
		for key, times := range asked {
			if times > 1 {
				t.Errorf("%s: asked %d times for %v", m.Name, times, key)
			}
		}
	}
	never := NewCostlyNoise(3, func(clients, _ int64) float64 {
		if clients < 64 {
			return math.Inf(1)
		}
		return 1
	})
	if got := never.deviation(70, 1); !(got > 0 && got < 1) {
		t.Errorf("noise %v", got)
	}
	if got := never.deviation(30, 1); !math.IsInf(got, 1) {
		t.Errorf("noise %v next to sizes without any", got)
	}
}

type direct func(clients, uses int64) float64

func (d direct) deviation(clients, uses int64) float64 {
	return ReportNoise{MSE: d(clients, uses), Dim: 50}.deviation(clients, uses)
}

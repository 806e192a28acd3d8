package account

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Lower bounds of the design's settings, which an independent program computes
// without a grid; ours may lie a little below.
func TestLowerSettings(t *testing.T) {
	for _, c := range []struct {
		q          Query
		rr3, rr2   float64
		tolerance3 float64
	}{
		{settingA, .137353837, .108372472, .002},
		{settingM1, .384152647, .322029346, .001},
		{settingCI, .01302, .01207, .003},
	} {
		for id, want := range map[string]float64{"lower-rr3": c.rr3, "lower-rr2": c.rr2} {
			if !longtest.On && c.q != settingM1 && id == "lower-rr3" {
				continue // these take longest
			}
			r, err := Answer(context.Background(), c.q, id)
			if err != nil {
				t.Fatal(err)
			}
			if r.Lower == nil || r.Upper != nil || r.Lower.Method != id || r.Lower.Kind != dp.Lower {
				t.Fatalf("%s: %+v", id, r)
			}
			if got := r.Lower.Eps; !(got <= want*(1+1e-4)) || !(got >= want*(1-c.tolerance3)) {
				t.Errorf("%s %s: %v, want just below %v", c.q.Participation, id, got, want)
			}
		}
	}
}

// A lower bound above an upper one would refute one of them.
func TestLowerBelowUpper(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 4))
	count := longtest.Pick(5, 40)
	tight := 0.
	for range count {
		n := int64(math.Exp(r.Float64() * math.Log(3e4)))
		q := Query{Eps0: math.Exp(r.Float64()*5 - 2.5), Population: n, Rounds: int64(math.Exp(r.Float64() * 7)), Delta: math.Pow(10, -1-9*r.Float64())}
		switch r.IntN(4) {
		case 0:
			q.Participation = dp.All
		case 1:
			q.Participation, q.Reports = dp.Sampled, 1+r.Int64N(n)
		case 2:
			q.Participation, q.Gamma, q.Dropout = dp.CheckIn, r.Float64()*.9+.05, .5*r.Float64()
		case 3:
			q.Trust, q.Participation = dp.Local, dp.All
		}
		if r.IntN(3) == 0 {
			q.AskDelta, q.Eps, q.Delta = true, q.Eps0*r.Float64(), 0
		}
		a, err := Answer(context.Background(), q, "all")
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if a.Lower == nil {
			t.Errorf("%+v: no lower bound", q)
			continue
		}
		for _, b := range a.Bounds {
			if b.Applies && b.Kind == dp.Upper && (b.Eps < a.Lower.Eps*(1-1e-9) || b.Delta < a.Lower.Delta*(1-1e-9)-1e-290) {
				t.Errorf("%+v: %s says %v, %s %v", q, b.Method, b.Guarantee, a.Lower.Method, a.Lower.Guarantee)
			}
		}
		if !q.AskDelta && a.Upper.Eps > 0 {
			tight = math.Max(tight, a.Lower.Eps/a.Upper.Eps)
		}
	}
	if tight < .9 {
		t.Errorf("lower bounds reach %v of upper bounds at best", tight)
	}
}

// Without a shuffler binary randomized response is the worst case: upper and
// lower bound meet.
func TestLowerMeetsUpperLocally(t *testing.T) {
	for _, T := range []int64{1, 2, 30, 1000} {
		q := Query{Trust: dp.Local, Participation: dp.All, Population: 10, Eps0: .4, Rounds: T, Delta: 1e-6}
		r, err := Answer(context.Background(), q, "all")
		if err != nil {
			t.Fatal(err)
		}
		if !(r.Lower.Eps <= r.Upper.Eps) || !(r.Lower.Eps >= r.Upper.Eps*(1-2e-3)) {
			t.Errorf("T = %d: %v to %v", T, r.Lower.Eps, r.Upper.Eps)
		}
	}
}

func TestLowerNeedsTheMechanism(t *testing.T) {
	q := settingM1
	q.Class = dp.BinaryRR
	r, err := Answer(context.Background(), q, "all")
	if err != nil {
		t.Fatal(err)
	}
	if r.Lower == nil || r.Lower.Method != "lower-rr2" {
		t.Errorf("binary randomized response: lower bound %+v", r.Lower)
	}
	// Beyond ε₀ = 12 the mechanism of 12 stands in, and is said to.
	q = Query{Participation: dp.All, Eps0: 40, Population: 50, Rounds: 2, Delta: 1e-6}
	if r, err = Answer(context.Background(), q, "lower-rr2"); err != nil || r.Lower == nil || r.Lower.Note == "" {
		t.Errorf("eps0 = 40: %+v, %v", r, err)
	}
	q.Population, q.Eps0 = 1<<50, 1
	if r, err = Answer(context.Background(), q, "lower-rr2"); err != nil || r.Lower != nil || r.Bounds[0].Note == "" {
		t.Errorf("n = 2^50: %+v, %v", r, err)
	}
}

func BenchmarkLower(b *testing.B) {
	for name, q := range map[string]Query{"A": settingA, "M1": settingM1, "CI": settingCI} {
		for _, id := range []string{"lower-rr2", "lower-rr3"} {
			b.Run(name+"/"+id, func(b *testing.B) {
				for b.Loop() {
					if _, err := Answer(context.Background(), q, id); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

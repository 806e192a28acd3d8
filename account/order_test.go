package account

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

var (
	settingA  = Query{Participation: dp.Sampled, Eps0: 2, Population: 1e6, Reports: 1e3, Rounds: 1e5, Delta: 1e-8}
	settingM1 = Query{Participation: dp.Sampled, Eps0: 1.5, Population: 6e4, Reports: 1e4, Rounds: 1200, Delta: 1e-5}
	settingCI = Query{Participation: dp.CheckIn, Eps0: 1, Population: 1e7, Gamma: 1e-3, Rounds: 1e5, Delta: 1e-7}
)

func best(t testing.TB, q Query) float64 {
	t.Helper()
	r, err := Answer(context.Background(), q, "best")
	if err != nil || r.Upper == nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return r.Upper.Eps
}

// The figures of the design, to half a percent.
func TestSettings(t *testing.T) {
	for _, c := range []struct {
		q    Query
		want map[string]float64
	}{
		{settingA, map[string]float64{"blanket-pld": .1522, "blanket-rdp": .1623, "clones-pld": .2078, "clones-rdp": .2213, "girgis-thm1": 1.0402}},
		{settingM1, map[string]float64{"blanket-pld": .4241, "blanket-rdp": .4664, "clones-pld": .5557, "clones-rdp": .6097, "girgis-thm1": 3.0859}},
		{settingCI, map[string]float64{"blanket-pld": .01486, "blanket-rdp": .01620, "clones-pld": .01822, "clones-rdp": .01983}},
	} {
		which := "all"
		if c.q != settingM1 {
			which = longtest.Pick("blanket-pld", "all") // all take long
		}
		r, err := Answer(context.Background(), c.q, which)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]Listed{}
		for _, b := range r.Bounds {
			got[b.Method] = b
		}
		for id, want := range c.want {
			b, ok := got[id]
			if !ok && which == "blanket-pld" {
				continue
			}
			if !b.Applies || math.Abs(b.Eps-want) > .005*want || !(b.Seconds > 0) {
				t.Errorf("%s %s: %v in %v s (%s), want %v", c.q.Participation, id, b.Eps, b.Seconds, b.Note, want)
			}
		}
		if r.Upper == nil || r.Upper.Method != "blanket-pld" || which == "all" && (r.Lower == nil || r.Lower.Eps > r.Upper.Eps) {
			t.Errorf("tightest upper bound %+v, lower %+v", r.Upper, r.Lower)
		}
	}
}

// What costs more must not show as costing less. Grids differ from one
// question to the next, by up to .2 %.
func TestOrderOfQueries(t *testing.T) {
	base := Query{Participation: dp.Sampled, Eps0: 1, Population: 20000, Reports: 500, Rounds: 200, Delta: 1e-6}
	eps := best(t, base)
	for name, change := range map[string]func(*Query){
		"eps0":        func(q *Query) { q.Eps0 *= 1.3 },
		"rounds":      func(q *Query) { q.Rounds *= 2 },
		"delta":       func(q *Query) { q.Delta /= 100 },
		"k":           func(q *Query) { q.Reports *= 2 },
		"population":  func(q *Query) { q.Population /= 2 },
		"no shuffler": func(q *Query) { q.Trust = dp.Local },
	} {
		q := base
		change(&q)
		if more := best(t, q); !(more > eps*.998) {
			t.Errorf("%s: eps = %v, less than %v", name, more, eps)
		}
	}
	all := Query{Participation: dp.All, Eps0: 1, Population: 500, Rounds: 1, Delta: 1e-6}
	last := math.Inf(1)
	for _, n := range []int64{1, 2, 5, 30, 500, 1e4, 1e6, 1e9, 1e12} {
		q := all
		q.Population = n
		e := best(t, q)
		if e > last*1.0005 {
			t.Errorf("n = %d: eps = %v, more than %v with fewer clients", n, e, last)
		}
		last = e
	}
}

// Refined bounds are never worse than coarse ones.
func TestRefinedBelowCoarse(t *testing.T) {
	for _, q := range []Query{
		settingM1, {Participation: dp.All, Eps0: 4, Population: 1000, Rounds: 1, Delta: 1e-6},
		{Participation: dp.CheckIn, Eps0: .3, Population: 5000, Gamma: .1, Rounds: 10, Delta: 1e-4, Dropout: .3},
	} {
		got := map[string]float64{}
		for id, b := range askEach(t, q, "blanket-pld", "blanket-rdp", "clones-pld", "clones-rdp", "basic") {
			if b.Applies {
				got[id] = b.Eps
			}
		}
		for _, pair := range [][2]string{{"blanket-pld", "blanket-rdp"}, {"blanket-pld", "clones-pld"}, {"blanket-rdp", "clones-rdp"}, {"blanket-pld", "basic"}} {
			if !(got[pair[0]] <= got[pair[1]]*1.001) {
				t.Errorf("%+v: %s = %v above %s = %v", q, pair[0], got[pair[0]], pair[1], got[pair[1]])
			}
		}
	}
}

// A single client hides nowhere: ε is that of randomized response itself.
func TestOneClient(t *testing.T) {
	for _, eps0 := range []float64{1e-6, .1, 1, 8, 50} {
		q := Query{Participation: dp.All, Eps0: eps0, Population: 1, Rounds: 1, Delta: 1e-9}
		// (e^ε₀ − e^ε)/(e^ε₀ + 1) = δ at the exact ε.
		exact := math.Max(0, eps0+math.Log1p(-q.Delta*(1+math.Exp(-eps0))))
		if got := best(t, q); !(got >= exact*(1-1e-12)) || got > eps0*(1+1e-9) {
			t.Errorf("eps0 = %v: eps = %v, exactly %v", eps0, got, exact)
		}
	}
}

// One round composed is the closed form of one round.
func TestOneRoundIsTheCurve(t *testing.T) {
	for _, k := range []int64{2, 37, 1000, 1e6, 1e9} {
		for _, eps0 := range []float64{.5, 2, 6} {
			family, err := amplify.ClonesFamily(eps0, amplify.Blanket(eps0))
			if err != nil {
				t.Fatal(err)
			}
			curve, err := family.Curve(amplify.FamilyRound{Population: 3 * k, Reports: k})
			if err != nil {
				t.Fatal(err)
			}
			const delta = 1e-7
			want, err := curve.Epsilon(delta)
			if err != nil {
				t.Fatal(err)
			}
			e := new(engine)
			parts := []part{{shape{trust: dp.Shuffle, eps0: eps0, population: 3 * k, reports: k, included: k}, 1}}
			c, _, err := e.compose(parts, blanket, delta, func(func(float64) float64) float64 { return 5 / math.Max(want, 1e-7) })
			if err != nil {
				t.Fatal(err)
			}
			if c == nil {
				continue
			}
			if got := c.Epsilon(delta); !(got >= want*(1-1e-3)) || got > want*1.02+1e-12 {
				t.Errorf("k = %d, eps0 = %v: composed once %v, closed form %v", k, eps0, got, want)
			}
		}
	}
}

// A round of which nobody knows who is there costs more than one to which all come who are drawn, and less than one whose
// reports are of a certain client's and n-min less one others; the more the larger n-min is.
func TestOrderOfAttendance(t *testing.T) {
	for _, q := range []Query{
		{Participation: dp.Sampled, Eps0: 1.5, Population: 40000, Reports: 2000, Rounds: 60, Delta: 1e-6},
		{Participation: dp.CheckIn, Eps0: 1.5, Population: 40000, Gamma: .05, Rounds: 60, Delta: 1e-6},
	} {
		last := best(t, q)
		if q.Participation == dp.CheckIn {
			last *= .95 // with coins more may be there than n, and fewer reports then cost less
		}
		for _, least := range []int64{2000, 1800, 1000, 200} {
			q.Least = least
			got := best(t, q)
			all := best(t, Query{Participation: dp.All, Eps0: 1.5, Population: least, Rounds: 60, Delta: 1e-6})
			if !(got >= last*(1-1e-3) && got <= all*(1+1e-3)) {
				t.Errorf("%+v: epsilon = %v, with more reports %v, where a client is in for certain %v", q, got, last, all)
			}
			last = got
		}
	}
}

// The pure bound keeps its digits where e^−ε₀ is next to 1.
func TestBasicKeepsDigits(t *testing.T) {
	s := shape{trust: dp.Shuffle, eps0: 1e-8, population: 1e12, reports: 1, included: 1}
	if got, want := s.maxLoss(), 1e-20; math.Abs(got-want) > 1e-7*want {
		t.Errorf("largest loss %v, want %v", got, want)
	}
}

func TestPlanMeetsTarget(t *testing.T) {
	for solve, q := range map[string]Query{
		"eps0":   {Participation: dp.All, Population: longtest.Pick[int64](2000, 60000), Rounds: longtest.Pick[int64](8, 80), Delta: 1e-5},
		"k":      {Participation: dp.Sampled, Eps0: 2, Population: 60000, Rounds: 500, Delta: 1e-5},
		"gamma":  {Participation: dp.CheckIn, Eps0: 2, Population: 60000, Rounds: 500, Delta: 1e-5},
		"rounds": {Participation: dp.All, Eps0: 2, Population: 60000, Delta: 1e-5},
	} {
		const target = .5
		if !longtest.On && solve != "eps0" && solve != "rounds" {
			continue
		}
		got, r, err := Plan(context.Background(), target, q, solve)
		if err != nil {
			t.Fatalf("%s: %v", solve, err)
		}
		eps := best(t, got)
		if eps > target || r.Upper.Eps != eps || eps < .97*target {
			t.Errorf("%s: planned %+v costs %v, target %v", solve, got, eps, target)
		}
	}
	q := Query{Participation: dp.Once, Eps0: 3, Population: 60000, Reports: 5000, Delta: 1e-5}
	if got, _, err := Plan(context.Background(), 1, q, "rounds"); err != nil || got.Rounds != 12 {
		t.Errorf("disjoint batches: %d rounds (%v), want 12", got.Rounds, err)
	}
	if _, _, err := Plan(context.Background(), 1, q, "k"); err == nil {
		t.Error("k of disjoint batches solved for")
	}
	q = Query{Participation: dp.All, Population: 2, Rounds: 1000, Delta: 1e-9}
	if _, _, err := Plan(context.Background(), 1e-3, q, "eps0"); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("impossible target: %v", err)
	}
	for _, target := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, _, err := Plan(context.Background(), target, q, "eps0"); err == nil {
			t.Errorf("target %v accepted", target)
		}
	}
}

func TestQueryRefusals(t *testing.T) {
	good := Query{Participation: dp.Sampled, Eps0: 1, Population: 100, Reports: 10, Rounds: 5, Delta: 1e-6}
	for name, change := range map[string]func(*Query){
		"eps0 = 0":               func(q *Query) { q.Eps0 = 0 },
		"eps0 = NaN":             func(q *Query) { q.Eps0 = math.NaN() },
		"eps0 = +Inf":            func(q *Query) { q.Eps0 = math.Inf(1) },
		"eps0 = 50.0":            func(q *Query) { q.Eps0 = math.Nextafter(50, 51) },
		"delta = 0":              func(q *Query) { q.Delta = 0 },
		"delta = 1":              func(q *Query) { q.Delta = 1 },
		"delta = NaN":            func(q *Query) { q.Delta = math.NaN() },
		"k = 0":                  func(q *Query) { q.Reports = 0 },
		"k = 101":                func(q *Query) { q.Reports = 101 },
		"n = 0":                  func(q *Query) { q.Population = 0 },
		"rounds = 0":             func(q *Query) { q.Rounds = 0 },
		"rounds = 1000000000001": func(q *Query) { q.Rounds = 1e12 + 1 },
		"dropout = 1":            func(q *Query) { q.Dropout = 1 },
		"dropout = NaN":          func(q *Query) { q.Dropout = math.NaN() },
		"gamma = 0.5":            func(q *Query) { q.Gamma = .5 },
		"gamma = NaN":            func(q *Query) { q.Participation, q.Reports, q.Gamma = dp.CheckIn, 0, math.NaN() },
		"gamma = 1.0":            func(q *Query) { q.Participation, q.Reports, q.Gamma = dp.CheckIn, 0, math.Nextafter(1, 2) },
		"eps = 1":                func(q *Query) { q.Eps = 1 },
		"eps = -1":               func(q *Query) { q.AskDelta, q.Delta, q.Eps = true, 0, -1 },
		"11 rounds":              func(q *Query) { q.Participation, q.Rounds = dp.Once, 11 },
		"unknown trust":          func(q *Query) { q.Trust = "hope" },
		"unknown partici":        func(q *Query) { q.Participation = "some" },
	} {
		q := good
		change(&q)
		_, err := Answer(context.Background(), q, "best")
		if err == nil {
			t.Errorf("%s accepted", name)
		} else if !strings.Contains(err.Error(), name) {
			t.Errorf("%s: the error does not say so: %v", name, err)
		}
	}
	if _, err := Answer(context.Background(), good, "wish"); err == nil {
		t.Error("unknown method accepted")
	}
	a := new(Accountant)
	for _, ev := range []dp.Event{nil, dp.Repeat{}, dp.Sequence{dp.Round{}}, dp.Repeat{Event: dp.Sequence{}, Times: 1e13}} {
		if _, err := a.Eps(ev, 1e-6); err == nil {
			t.Errorf("%#v accepted", ev)
		}
	}
	if b, err := a.Eps(dp.Sequence{}, 1e-6); err != nil || b.Eps != 0 {
		t.Errorf("nothing happened: %+v, %v", b, err)
	}
}

// A client is in one of the disjoint batches and in every other round.
func TestDisjointBatches(t *testing.T) {
	a := new(Accountant)
	batch := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.Once, Population: 9000, Reports: 3000}
	eps := func(ev dp.Event) float64 {
		b, err := a.Eps(ev, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eps
	}
	one := eps(batch)
	if three := eps(dp.Repeat{Event: batch, Times: 3}); three != one {
		t.Errorf("three disjoint batches cost %v, one %v", three, one)
	}
	if _, err := a.Eps(dp.Repeat{Event: batch, Times: 4}, 1e-6); err == nil {
		t.Error("four batches of 3000 out of 9000 accepted")
	}
	small := batch
	small.Reports = 100
	if both := eps(dp.Sequence{batch, small}); both != eps(small) {
		t.Errorf("a batch of 3000 and one of 100 cost %v, the small one alone %v", both, eps(small))
	}
	whole := batch
	whole.Participation, whole.Reports = dp.All, 0
	if mixed := eps(dp.Sequence{batch, whole}); !(mixed > one) {
		t.Errorf("a batch and a round of all cost %v, the batch alone %v", mixed, one)
	}
}

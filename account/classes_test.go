package account

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func ask(t *testing.T, q Query, which string) map[string]Listed {
	t.Helper()
	r, err := Answer(context.Background(), q, which)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	out := map[string]Listed{}
	for _, b := range r.Bounds {
		out[b.Method] = b
	}
	return out
}

// askEach asks for these bounds alone.
func askEach(t *testing.T, q Query, ids ...string) map[string]Listed {
	t.Helper()
	out := map[string]Listed{}
	for _, id := range ids {
		out[id] = ask(t, q, id)[id]
	}
	return out
}

// At the settings of the design: between the lower bound and the blanket. All
// others equal, which is not a bound, gives .1145 and .3255.
func TestBinarySettings(t *testing.T) {
	for want, q := range map[float64]Query{.1147: settingA, .3259: settingM1} {
		if q == settingA && !longtest.On {
			continue // TestGoldenPairs has it
		}
		q.Class = dp.BinaryRR
		got := askEach(t, q, "rr2-pld", "lower-rr2", "blanket-pld", "krr-pld")
		eps := got["rr2-pld"].Eps
		if math.Abs(eps-want) > .003*want || !(eps > got["lower-rr2"].Eps) || !(eps < got["blanket-pld"].Eps) {
			t.Errorf("rr2-pld %v, want %v, between %v and %v", eps, want, got["lower-rr2"].Eps, got["blanket-pld"].Eps)
		}
		if a, b := got["krr-pld"].Eps, got["blanket-pld"].Eps; math.Abs(a-b) > 2e-3*b {
			t.Errorf("the 2-RR blanket %v is not the blanket %v", a, b)
		}
	}
}

// More symbols hide more, a larger total variation less; at its largest it is the
// blanket.
func TestClassesInOrder(t *testing.T) {
	base := Query{Participation: dp.Sampled, Eps0: 2, Population: 1e5, Reports: 2000, Rounds: 300, Delta: 1e-7}
	blanket := best(t, base)
	last := blanket * 1.003
	for _, k := range longtest.Pick([]int{2, 3, 100}, []int{2, 3, 4, 10, 100, 1e4}) {
		q := base
		q.Class, q.Symbols = dp.KRR, k
		eps := ask(t, q, "krr-pld")
		if k == 2 {
			continue // its own pair is rr2-pld
		}
		if e := eps["krr-pld"].Eps; !(e > 0) || e > last {
			t.Errorf("%d symbols: %v, fewer %v", k, e, last)
		} else {
			last = e * 1.001
		}
	}
	last = 0
	for _, share := range longtest.Pick([]float64{.1, .9, 1}, []float64{.01, .1, .5, .9, 1}) {
		q := base
		q.TV = share / (math.Exp(q.Eps0) + 1)
		eps := ask(t, q, "tv-pld")["tv-pld"].Eps
		if eps < last*.999 || share == 1 && math.Abs(eps-blanket) > 3e-3*blanket {
			t.Errorf("share %v: %v after %v, the blanket %v", share, eps, last, blanket)
		}
		last = eps
	}
}

// Who colludes is as if not there, but for the uniform sample.
func TestColluderQueries(t *testing.T) {
	all := Query{Participation: dp.All, Eps0: 2, Population: 5000, Rounds: 5, Delta: 1e-6}
	fewer := all
	all.Colluders, fewer.Population = 2000, 3000
	if a, b := best(t, all), best(t, fewer); a != b {
		t.Errorf("2000 of 5000 collude: %v; 3000 clients: %v", a, b)
	}
	n := longtest.Pick[int64](5000, 10000)
	sampled := Query{Participation: dp.Sampled, Eps0: 2, Population: n, Reports: n / 10, Rounds: 50, Delta: 1e-6}
	honest := best(t, sampled)
	third := sampled
	third.Colluders = n * 3 / 10
	// About a tenth of the honest.
	about := sampled
	about.Population, about.Reports = n*7/10, n*7/100
	if e := best(t, third); !(e > honest) || math.Abs(e/best(t, about)-1) > .01 {
		t.Errorf("three of ten collude: %v; none: %v; a tenth of the honest: %v", e, honest, best(t, about))
	}
	got := askEach(t, third, "girgis-thm1", "girgis-thm2", "lower-rr3", "blanket-pld")
	for _, id := range []string{"girgis-thm1", "girgis-thm2"} {
		if got[id].Applies {
			t.Errorf("%s answers with colluders in a sample", id)
		}
	}
	if l := got["lower-rr3"]; !l.Applies || l.Eps > got["blanket-pld"].Eps || l.Eps < .85*got["blanket-pld"].Eps {
		t.Errorf("lower bound %+v of %v: it does not know what colluders know", l, got["blanket-pld"].Eps)
	}
	// About nine in a hundred of the honest arrive if a tenth drops out.
	third.Dropout, about.Reports = .1, n*63/1000
	if e := best(t, third); !(e > honest*.9) || math.Abs(e/best(t, about)-1) > .01 {
		t.Errorf("three of ten collude, a tenth drops out: %v; so many honest: %v", e, best(t, about))
	}
	// Sums of Gaussian reports, whose colluders know their own noise; and such reports apart.
	for _, trust := range longtest.Pick([]dp.Trust{dp.Distributed}, []dp.Trust{dp.Distributed, dp.Shuffle}) {
		sums := Query{Trust: trust, Class: dp.Gaussian, Participation: dp.Sampled, Sigma: 2, Population: n, Reports: n / 10, Rounds: 50, Delta: 1e-6}
		honest := best(t, sums)
		about := sums
		sums.Colluders, sums.Dropout, about.Population, about.Reports = n*3/10, .1, n*7/10, n*63/1000
		got := askEach(t, sums, "gauss-pld", "lower-gauss", "gauss-strong", "sci-thm4", "sci-thm4-eq10")
		e, want := got["gauss-pld"], best(t, about)
		if !e.Applies || trust == dp.Distributed && !(e.Eps > honest) || math.Abs(e.Eps/want-1) > .01 {
			t.Errorf("%s: three of ten collude, a tenth drops out: %+v; none: %v; so many honest: %v", trust, e, honest, want)
		}
		l := got["lower-gauss"]
		if !l.Applies || l.Eps > e.Eps || trust == dp.Distributed && l.Eps < .9*e.Eps {
			t.Errorf("%s: lower bound %+v, upper %v", trust, l, e.Eps)
		}
		for _, id := range []string{"gauss-strong", "sci-thm4", "sci-thm4-eq10"} {
			if got[id].Applies {
				t.Errorf("%s answers with colluders in a sample", id)
			}
		}
	}
	once := Query{Participation: dp.Once, Eps0: 2, Population: 1e5, Reports: 1000, Rounds: 100, Delta: 1e-6, Colluders: 600}
	alone := once
	alone.Colluders, alone.Reports = 0, 400
	if a, b := best(t, once), best(t, alone); a != b {
		t.Errorf("600 of a batch of 1000 collude: %v; a batch of 400: %v", a, b)
	}
}

// Every method that answers for adaptive rounds is proved for them.
func TestAdaptiveAndHidden(t *testing.T) {
	longtest.Only(t, "every bound of rounds that see each other")
	q := Query{Participation: dp.CheckIn, Class: dp.KRR, Symbols: 8, Eps0: 1, Population: 5000, Gamma: .1, Rounds: 3, Delta: 1e-6, AdaptiveWithinRound: true}
	for id, b := range ask(t, q, "all") {
		ok := id == "basic" || id == "krr-pld" || strings.HasPrefix(id, "blanket") || strings.HasPrefix(id, "clones") || b.Kind == dp.Lower
		if b.Applies && !ok {
			t.Errorf("%s answers for adaptive rounds", id)
		}
	}
	r, err := Answer(context.Background(), q, "best")
	if err != nil || r.Upper == nil || r.Upper.Method != "krr-pld" {
		t.Errorf("best of an adaptive round: %+v, %v", r.Upper, err)
	}
	q.AdaptiveWithinRound, q.HiddenReports = false, true
	r, err = Answer(context.Background(), q, "all")
	if err != nil || r.Lower != nil || r.Upper == nil || r.Upper.Method != "krr-pld" {
		t.Errorf("k hidden: upper %+v, lower %+v, %v", r.Upper, r.Lower, err)
	}
	q.Participation, q.Gamma, q.Reports = dp.Sampled, 0, 500 // k is fixed: nothing to hide
	if r, err = Answer(context.Background(), q, "all"); err != nil || r.Lower == nil {
		t.Errorf("fixed k: lower %+v, %v", r.Lower, err)
	}
}

// Classes are counted by their own law for adaptive rounds too, but for binary randomized response, whose
// worst inputs are those of a fixed dataset.
func TestAdaptiveOwnLaw(t *testing.T) {
	q := Query{Participation: dp.All, Eps0: 2, Population: 500, Rounds: 3, Delta: 1e-6, AdaptiveWithinRound: true}
	steps := dp.NewSteps(math.Expm1(2)/2, []float64{.2, .05}, 1e-6)
	for _, c := range []struct {
		q    Query
		best string
	}{
		{Query{Class: dp.Cap, TV: .07}, "cap-pld"}, {Query{Class: dp.Rising, Steps: steps}, "rising-pld"},
		{Query{Class: dp.KRR, Symbols: 8}, "krr-pld"}, {Query{Class: dp.Generic, TV: .07}, "tv-pld"}, {Query{Class: dp.LaplaceL1}, "laplace-pld"}, {Query{Class: dp.BinaryRR}, "blanket-pld"},
	} {
		ask := q
		ask.Class, ask.TV, ask.Steps, ask.Symbols = c.q.Class, c.q.TV, c.q.Steps, c.q.Symbols
		r, err := Answer(t.Context(), ask, "best")
		if err != nil || r.Upper == nil || r.Upper.Method != c.best {
			t.Errorf("%s: %+v, %v, want %s", ask.Class, r.Upper, err, c.best)
		}
	}
}

// The Accountant takes each round's own class, in one composition.
func TestAccountantMixesClasses(t *testing.T) {
	round := func(r dp.Report) dp.Round {
		r.Eps0 = 2
		return dp.Round{Report: r, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 20000, Reports: 1000}
	}
	a := new(Accountant)
	eps := func(ev dp.Event) dp.Bound {
		b, err := a.Eps(ev, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	generic := dp.Repeat{Event: round(dp.Report{Class: dp.Generic}), Times: 60}
	krr := dp.Repeat{Event: round(dp.Report{Class: dp.KRR, Symbols: 10}), Times: 60}
	both := eps(dp.Sequence{generic, krr})
	g, k := eps(dp.Repeat{Event: generic, Times: 2}), eps(dp.Repeat{Event: krr, Times: 2})
	if !(k.Eps < both.Eps && both.Eps < g.Eps) || k.Method != "krr-pld" || both.Method != "blanket+krr-pld" {
		t.Errorf("krr %v %s, both %v %s, generic %v", k.Eps, k.Method, both.Eps, both.Method, g.Eps)
	}
	// Two symbols are binary, of any number of reports.
	if b := eps(round(dp.Report{Class: dp.KRR, Symbols: 2})); b.Method != "rr2-pld" {
		t.Errorf("two symbols: %s", b.Method)
	}
	huge := round(dp.Report{Class: dp.BinaryRR})
	huge.Population, huge.Reports = 1e12, 1e11
	if b, err := a.Eps(huge, 1e-12); err != nil || b.Method != "rr2-pld" || !(b.Eps > 0) {
		t.Errorf("1e11 binary reports: %+v, %v", b, err)
	}
	local := round(dp.Report{Class: dp.BinaryRR})
	local.Trust = dp.Local
	if b := eps(local); b.Eps < 1.99 {
		t.Errorf("without a shuffler: %+v", b)
	}
	for _, r := range []dp.Report{
		{Class: "hope"}, {Class: dp.Generic, TV: .2}, {Class: dp.Generic, TV: -.01}, {Class: dp.Generic, TV: math.NaN()},
		{Class: dp.KRR, Symbols: 3, TV: .01}, {Class: dp.LaplaceL1, Symbols: 3}, {Class: dp.KRR},
	} {
		if _, err := a.Eps(round(r), 1e-6); err == nil {
			t.Errorf("%+v accepted", r)
		}
	}
}

// A class that nobody listed gets no pair.
func TestUnknownClassHasNoPair(t *testing.T) {
	s := shape{trust: dp.Shuffle, eps0: 1, population: 100, reports: 100, included: 100, class: "hope"}
	for _, c := range append([]clones{blanket, fmt22, new(engine).narrowOf(s)}, classPairs...) {
		if _, err := s.pair(c); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

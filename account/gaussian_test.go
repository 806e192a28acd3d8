package account

import (
	"context"
	"errors"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// settingG is SCI's distributed check-in.
var settingG = Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 1, Population: 6e5, Gamma: 1e-3, Rounds: 1e5, Delta: 1e-8}

func listed(t *testing.T, q Query, which string) map[string]Listed {
	t.Helper()
	r, err := Answer(context.Background(), q, which)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	out := map[string]Listed{}
	for _, b := range r.Bounds {
		out[b.Method] = b
		if b.Applies && b.Kind == dp.Upper && (r.Upper == nil || better(b.Bound, *r.Upper)) {
			t.Errorf("%+v: %s is better than the tightest", q, b.Method)
		}
		if r.Lower != nil && b.Applies && b.Kind == dp.Upper && r.Lower.Eps > b.Eps {
			t.Errorf("%+v: %s = %v below the lower bound %v", q, b.Method, b.Eps, r.Lower.Eps)
		}
	}
	return out
}

// The figures of the design, to half a percent.
func TestGaussianSetting(t *testing.T) {
	got := listed(t, settingG, "all")
	for id, want := range map[string]float64{"gauss-pld": .1238, "sci-thm4-eq10": .842, "sci-thm4-eq11": 1.413, "sci-thm4": .7618, "gauss-rdp": .1321} {
		if b := got[id]; !b.Applies || math.Abs(b.Eps-want) > .005*want {
			t.Errorf("%s: %v (%s), want %v", id, b.Eps, b.Note, want)
		}
	}
	for _, id := range []string{"sci-thm4-eq10", "sci-thm4-eq11"} {
		if got[id].Kind != dp.Approximate {
			t.Errorf("%s is no bound: it prints gamma for k/n", id)
		}
	}
	if !(got["gauss-pld"].Eps < got["gauss-rdp"].Eps && got["gauss-rdp"].Eps < got["sci-thm4"].Eps && got["sci-thm4"].Eps < got["gauss-strong"].Eps) {
		t.Error("coarser methods are tighter")
	}
}

// Compositions against an independent program without a grid: never below, at
// most .3 % above.
func TestGoldenGaussianComposed(t *testing.T) {
	for _, c := range golden.Rows(t, "gaussian.tsv", 7) {
		v := golden.Numbers(t, c[3:])
		q := Query{Trust: dp.Trust(c[1]), Class: dp.Gaussian, Participation: dp.Participation(c[2]), Sigma: v[0], Population: int64(v[1]),
			Rounds: int64(v[3]), Delta: v[4]}
		if q.Participation == dp.Sampled {
			q.Reports = int64(v[2])
		} else {
			q.Gamma = v[2]
		}
		got, want := listed(t, q, "gauss-pld")["gauss-pld"], v[5]
		if !got.Applies || !(got.Eps >= want*(1-2e-6)) || got.Eps > want*1.003 {
			t.Errorf("%v: %v (%s)", c, got.Eps, got.Note)
		}
		if rdp := listed(t, q, "gauss-rdp")["gauss-rdp"]; !(rdp.Eps >= got.Eps) {
			t.Errorf("%s: Rényi %v below %v", c[0], rdp.Eps, got.Eps)
		}
	}
}

// The concrete mechanism lies below every upper bound (listed checks that) and,
// without a shuffler, close to the best one.
func TestGaussianLowerBound(t *testing.T) {
	base := Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 3, Population: 400, Gamma: .05, Rounds: 200, Delta: 1e-5}
	for least, change := range map[float64]func(*Query){
		.93: func(q *Query) {},
		.95: func(q *Query) { q.Population, q.Gamma = 3, .05 },
		.92: func(q *Query) { q.Participation, q.Gamma, q.Reports, q.Sigma, q.Delta = dp.Sampled, 0, 50, .5, 1e-10 },
		.99: func(q *Query) {
			q.Participation, q.Gamma, q.Population, q.Sigma, q.Rounds, q.Delta = dp.All, 0, 10, .1, 1, 1e-30
		},
		.995: func(q *Query) { q.Participation, q.Gamma = dp.All, 0 },
		.98:  func(q *Query) { q.Trust, q.Participation, q.Gamma, q.Sigma = dp.Local, dp.All, 0, 100 },
		.9:   func(q *Query) { q.Dropout = .5 },
	} {
		q := base
		change(&q)
		got := listed(t, q, "all")
		low, up := got["lower-gauss"], got["gauss-pld"]
		if !low.Applies || !(low.Eps <= up.Eps) || low.Eps < least*up.Eps {
			t.Errorf("%+v: lower %v (%s), upper %v", q, low.Eps, low.Note, up.Eps)
		}
	}
	// Equation 10 as printed is below what a real mechanism costs: no bound.
	q := base
	q.Population = 3
	if got := listed(t, q, "all"); !(got["sci-thm4-eq10"].Eps < got["lower-gauss"].Eps/2 && got["sci-thm4"].Eps > got["lower-gauss"].Eps) {
		t.Errorf("printed %v, mechanism %v, with k/n %v", got["sci-thm4-eq10"].Eps, got["lower-gauss"].Eps, got["sci-thm4"].Eps)
	}
}

// Gaussians compose in closed form: the grid's answer is never below it.
func TestGaussianCompositionAgainstClosedForm(t *testing.T) {
	for _, c := range []struct {
		sigma float64
		times int64
		delta float64
	}{{2000, 1e5, 1e-8}, {2000, 1e5, 1e-30}, {2000, 1e5, 1e-200}, {20, 100, 1e-5}, {5, 1, 1e-6}, {.5, 1, 1e-9}, {.3, 7, 1e-3}, {1e5, 1e6, 1e-3}} {
		e := new(engine)
		parts := []part{{shape{trust: dp.Distributed, sigma: c.sigma, population: 1, reports: 1, included: 1}, c.times}}
		exact := gdp.Mu(2 / c.sigma).Repeat(c.times)
		composed, _, err := e.compose(parts, blanket, c.delta, tiltFor(c.delta))
		if err != nil || composed == nil {
			t.Errorf("%+v: %v", c, err)
			continue
		}
		want := exact.Epsilon(c.delta)
		if got := composed.Epsilon(c.delta); !(got >= want*(1-1e-11)) || got > want*1.005 {
			t.Errorf("%+v: composed %v, closed form %v, %.3g above", c, got, want, got/want-1)
		}
		if got, err := e.pldEps(parts, blanket, c.delta); err != nil || math.Abs(got/want-1) > 2e-11 {
			t.Errorf("%+v: answer %v (%v), closed form %v", c, got, err, want)
		}
		for _, eps := range []float64{0, want / 2, want, want * 1.1} {
			if d := composed.Delta(eps); d < exact.Delta(eps)*(1-1e-11) {
				t.Errorf("%+v: delta(%v) = %v below %v", c, eps, d, exact.Delta(eps))
			}
		}
	}
}

// What costs more must not show as costing less.
func TestOrderOfGaussianQueries(t *testing.T) {
	for _, base := range []Query{
		{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.Sampled, Sigma: 2, Population: 20000, Reports: 500, Rounds: 200, Delta: 1e-6},
		{Trust: dp.Shuffle, Class: dp.Gaussian, Participation: dp.Sampled, Sigma: 4, Population: 20000, Reports: 5000, Rounds: 20, Delta: 1e-6},
	} {
		if base.Trust == dp.Shuffle && !longtest.On {
			continue
		}
		eps := best(t, base)
		for name, change := range map[string]func(*Query){
			"sigma":  func(q *Query) { q.Sigma *= .8 },
			"rounds": func(q *Query) { q.Rounds *= 2 },
			"delta":  func(q *Query) { q.Delta /= 100 },
			"population": func(q *Query) {
				q.Population /= 2
			},
			"no shuffler": func(q *Query) { q.Trust = dp.Local },
			"apart":       func(q *Query) { q.Trust = dp.Shuffle },
			"drop-outs": func(q *Query) { // of all 20000, so that 500 remain
				q.Dropout, q.Reports = 1-float64(q.Reports)/float64(q.Population), q.Population
			},
		} {
			q := base
			change(&q)
			if more := best(t, q); !(more > eps*.998) {
				t.Errorf("%s: eps = %v, less than %v", name, more, eps)
			}
		}
	}
}

// Gaussian reports through a shuffler: better than their own noise where many
// are shuffled, refused where that leaves nothing, and charged for δ.
func TestShuffledGaussians(t *testing.T) {
	q := Query{Class: dp.Gaussian, Participation: dp.All, Sigma: 4, Population: 60000, Rounds: 50, Delta: 1e-6}
	got := listed(t, q, "all")
	approx, own := got["shuffle-approx-ldp"], got["gauss-pld"]
	if !approx.Applies || !(approx.Eps < own.Eps/10) {
		t.Errorf("approx %v (%s), own noise %v", approx.Eps, approx.Note, own.Eps)
	}
	// The charge is paid: at the same ε₀ and no charge the bound would be lower.
	eps0, err := strconv.ParseFloat(strings.TrimPrefix(approx.Note, "eps0 = "), 64)
	if err != nil {
		t.Fatal(err)
	}
	charge := (1 + math.Exp(approx.Eps)) * 60000 * 50 * amplify.GaussianAsLDP(4, eps0*(1+1e-3))
	if !(charge > 0 && charge < q.Delta) {
		t.Errorf("charge %v of %v at eps0 = %v", charge, q.Delta, eps0)
	}
	pure := best(t, Query{Participation: dp.All, Eps0: eps0, Population: 60000, Rounds: 50, Delta: q.Delta - charge})
	if math.Abs(pure-approx.Eps) > .02*pure {
		t.Errorf("eps0 = %v with the charge taken off costs %v, answer %v", eps0, pure, approx.Eps)
	}
	q.AskDelta, q.Eps, q.Delta = true, approx.Eps, 0
	if back := listed(t, q, "shuffle-approx-ldp")["shuffle-approx-ldp"]; !back.Applies || back.Delta > 1.2e-6 || back.Delta < 1e-9 {
		t.Errorf("delta back %v (%s)", back.Delta, back.Note)
	}
	q = Query{Class: dp.Gaussian, Participation: dp.All, Sigma: .5, Population: 1000, Rounds: 1, Delta: 1e-6}
	if b := listed(t, q, "shuffle-approx-ldp")["shuffle-approx-ldp"]; b.Applies || !strings.Contains(b.Note, "no more than their own noise") {
		t.Errorf("sigma = .5: %+v", b)
	}
}

// A single Gaussian report: every upper bound is at least its exact δ(ε). No
// conversion of (ε₀, δ₀) into a Rényi curve could pass: δ has no floor.
func TestEveryGaussianBoundCoversOneReport(t *testing.T) {
	for _, sigma := range []float64{.5, 2, 10} {
		exact := gdp.Mu(2 / sigma)
		for _, trust := range []dp.Trust{dp.Local, dp.Shuffle, dp.Distributed} {
			for _, delta := range []float64{.1, 1e-3, 1e-9, 1e-60, 1e-150} {
				q := Query{Trust: trust, Class: dp.Gaussian, Participation: dp.All, Sigma: sigma, Population: 1, Rounds: 1, Delta: delta}
				for id, b := range listed(t, q, "all") {
					if b.Applies && b.Kind == dp.Upper && exact.Delta(b.Eps)*(1-1e-9) > delta {
						t.Errorf("%s %s, sigma = %v: eps = %v at delta = %v, exact delta %v", trust, id, sigma, b.Eps, delta, exact.Delta(b.Eps))
					}
				}
			}
		}
	}
}

func TestGaussianMethodsApplyToGaussiansOnly(t *testing.T) {
	for id, b := range listed(t, settingM1, "all") {
		if b.Applies && (strings.HasPrefix(id, "gauss") || strings.HasPrefix(id, "sci-thm4") || id == "shuffle-approx-ldp") {
			t.Errorf("%s applies to eps0-LDP reports", id)
		}
	}
	for _, trust := range []dp.Trust{dp.Local, dp.Shuffle, dp.Distributed} {
		q := Query{Trust: trust, Class: dp.Gaussian, Participation: dp.Sampled, Sigma: 3, Population: 1000, Reports: 100, Rounds: 10, Delta: 1e-6}
		for id, b := range listed(t, q, "all") {
			ours := strings.HasPrefix(id, "gauss") || strings.HasPrefix(id, "sci-thm4") || id == "shuffle-approx-ldp" || strings.HasPrefix(id, "lower-gauss")
			if b.Applies && !ours {
				t.Errorf("%s applies to Gaussian reports", id)
			}
			if !b.Applies && b.Note == "" {
				t.Errorf("%s is refused without a reason", id)
			}
			if strings.Contains(b.Source, "Lemma 3") {
				t.Errorf("%s: SCI's Lemma 3 is not a bound", id)
			}
		}
	}
	if _, err := Answer(context.Background(), settingG, "sci-lemma3"); err == nil {
		t.Error("SCI's Lemma 3 is offered")
	}
}

func TestGaussianRefusals(t *testing.T) {
	ok := Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.All, Sigma: 1, Population: 10, Rounds: 1, Delta: 1e-5}
	if err := ok.Validate(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Query){
		"eps0 = 1 given for class gaussian": func(q *Query) { q.Eps0 = 1 },
		"sigma = 0 must be above 0":         func(q *Query) { q.Sigma = 0 },
		"sigma = NaN must be above 0":       func(q *Query) { q.Sigma = math.NaN() },
		"sigma = -1 must be above 0":        func(q *Query) { q.Sigma = -1 },
		"sigma = +Inf must be":              func(q *Query) { q.Sigma = math.Inf(1) },
		"symbols = 3 given":                 func(q *Query) { q.Symbols = 3 },
		"sigma = 1 given for class":         func(q *Query) { q.Class = dp.Generic },
		"for class gaussian only":           func(q *Query) { q.Class, q.Sigma, q.Eps0 = dp.Generic, 0, 1 },
		"unknown trust":                     func(q *Query) { q.Trust = "none" },
	} {
		q := ok
		change(&q)
		if err := q.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", q, err, want)
		}
	}
	// δ below what float64 tells apart: refused, not guessed.
	q := ok
	q.Participation, q.Reports, q.Rounds, q.Delta = dp.Sampled, 3, 1000, 1e-300
	if b := listed(t, q, "gauss-pld")["gauss-pld"]; b.Applies {
		t.Errorf("delta = 1e-300: %v", b.Eps)
	}
}

// Largest budget a plan may use: calibrating and accounting again never
// exceeds the target.
func TestPlanSigma(t *testing.T) {
	for _, q := range []Query{
		{Trust: dp.Distributed, Participation: dp.Sampled, Population: 60000, Reports: 600, Rounds: 1000, Delta: 1e-6},
		{Trust: dp.Distributed, Participation: dp.All, Population: 1000, Rounds: 10, Delta: 1e-9},
		{Trust: dp.Shuffle, Participation: dp.All, Population: 60000, Rounds: 10, Delta: 1e-6},
	} {
		q.Class = dp.Gaussian
		if q.Trust == dp.Shuffle && !longtest.On {
			continue
		}
		done, r, err := Plan(context.Background(), 1, q, "sigma")
		if err != nil {
			t.Fatalf("%+v: %v", q, err)
		}
		if again := best(t, done); !(again <= 1) || r.Upper.Eps != again || !(again > .995) {
			t.Errorf("%+v: sigma = %v costs %v", q, done.Sigma, again)
		}
		less := done
		less.Sigma *= .99
		if e := best(t, less); e <= 1 {
			t.Errorf("%+v: sigma = %v costs %v: less noise would do", q, less.Sigma, e)
		}
	}
	if _, _, err := Plan(context.Background(), 1, Query{Participation: dp.All, Eps0: 1, Population: 10, Rounds: 1, Delta: 1e-6}, "sigma"); err == nil {
		t.Error("sigma of eps0-LDP reports is planned")
	}
}

// The ledger's accountant counts rounds of sums, also among others.
func TestAccountantCountsGaussians(t *testing.T) {
	gaussian := dp.Report{Class: dp.Gaussian, Sigma: 1}
	round := func(k int64) dp.Round {
		return dp.Round{Report: gaussian, Trust: dp.Distributed, Participation: dp.Sampled, Population: 6e5, Reports: k}
	}
	a := new(Accountant)
	var ev dp.Sequence
	for k := int64(590); k < 610; k++ {
		ev = append(ev, dp.Repeat{Event: round(k), Times: 5000})
	}
	b, err := a.Eps(ev, 1e-8)
	if err != nil || b.Method != "gauss-pld" || math.Abs(b.Eps-.1238) > .0012 {
		t.Errorf("%+v, %v", b, err)
	}
	// Among rounds of other kinds: more than either, less than the sum.
	other := dp.Repeat{Event: dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 1e6, Reports: 1000}, Times: 100000}
	sums := dp.Repeat{Event: round(600), Times: 100000}
	x, err1 := a.Eps(other, 1e-8)
	y, err2 := a.Eps(sums, 1e-8)
	both, err3 := a.Eps(dp.Sequence{other, sums}, 1e-8)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if want := math.Hypot(x.Eps, y.Eps); !(both.Eps > want*.98) || both.Eps > want*1.05 {
		t.Errorf("%v and %v compose to %v", x.Eps, y.Eps, both.Eps)
	}
	// Disjoint batches of both kinds: the worse of the two.
	once := func(r dp.Report, trust dp.Trust) dp.Round {
		return dp.Round{Report: r, Trust: trust, Participation: dp.Once, Population: 1000, Reports: 100}
	}
	p, err1 := a.Eps(once(gaussian, dp.Distributed), 1e-6)
	q, err2 := a.Eps(once(dp.Report{Class: dp.Gaussian, Sigma: 3}, dp.Distributed), 1e-6)
	worse, err3 := a.Eps(dp.Sequence{once(gaussian, dp.Distributed), once(dp.Report{Class: dp.Gaussian, Sigma: 3}, dp.Distributed)}, 1e-6)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	if worse.Eps != math.Max(p.Eps, q.Eps) || p.Eps == q.Eps {
		t.Errorf("batches of %v and %v cost %v", p.Eps, q.Eps, worse.Eps)
	}
	if _, err := a.Eps(dp.Round{Report: dp.Report{Class: dp.Gaussian, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.All, Population: 10}, 1e-6); err == nil {
		t.Error("an (eps0, delta0) Gaussian report is taken")
	}
}

// Removing a client: only the methods for it answer, at about the cost of
// replacing, for k shows a little; it is refused where a missing client would be seen.
func TestRemoveOneClient(t *testing.T) {
	q := settingG
	q.Adjacency = dp.AddRemoveOne
	got := listed(t, q, "all")
	b := got["sci-thm4-remove"]
	replace := listed(t, settingG, "gauss-rdp")["gauss-rdp"].Eps
	if !b.Applies || b.Adjacency != dp.AddRemoveOne || !(b.Eps > replace) || b.Eps > replace*1.12 {
		t.Errorf("removing costs %v (%s), replacing %v", b.Eps, b.Note, replace)
	}
	for id, l := range got {
		if l.Applies && id != "sci-thm4-remove" && id != "gauss-remove-pld" {
			t.Errorf("%s applies to a client removed", id)
		}
	}
	if composed := got["gauss-remove-pld"]; !composed.Applies || composed.Adjacency != dp.AddRemoveOne || !(composed.Eps > .134) || composed.Eps > .135 {
		t.Errorf("removing costs %v by composed losses (%s)", composed.Eps, composed.Note)
	}
	if listed(t, settingG, "sci-thm4-remove")["sci-thm4-remove"].Applies {
		t.Error("a client replaced is counted as one removed")
	}
	ask := q
	if !longtest.On {
		ask.Population, ask.Gamma, ask.Rounds, ask.Delta = 1000, .1, 10, 1e-8
	}
	eps := listed(t, ask, "sci-thm4-remove")["sci-thm4-remove"].Eps
	ask.AskDelta, ask.Eps, ask.Delta = true, eps, 0
	if d := listed(t, ask, "sci-thm4-remove")["sci-thm4-remove"]; !d.Applies || d.Delta > 1e-7 || d.Delta < 1e-9 {
		t.Errorf("delta back: %v (%s)", d.Delta, d.Note)
	}
	for _, change := range []func(*Query){
		func(q *Query) { q.Trust = dp.Shuffle },
		func(q *Query) { q.Participation, q.Gamma, q.Reports = dp.Sampled, 0, 600 },
		func(q *Query) { q.Trust, q.Class, q.Sigma, q.Eps0 = dp.Shuffle, dp.Generic, 0, 1 },
		func(q *Query) { q.Adjacency = "swap" },
	} {
		bad := q
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), "adjacency") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
}

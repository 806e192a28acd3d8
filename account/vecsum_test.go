package account

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account/certificate"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// sums asks for all bounds, by id; what has none is absent.
func sums(t *testing.T, q Query) map[string]Listed {
	t.Helper()
	return sumsOf(t, q, "all")
}

func sumsOf(t *testing.T, q Query, which string) map[string]Listed {
	t.Helper()
	r, err := Answer(context.Background(), q, which)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]Listed{}
	for _, l := range r.Bounds {
		if l.Applies {
			out[l.Method] = l
		} else if l.Note == "" {
			t.Errorf("%s has no bound and no reason", l.Method)
		}
		if l.Applies && r.Upper.Eps > l.Eps {
			t.Errorf("upper %v is above %s's %v", r.Upper.Eps, l.Method, l.Eps)
		}
	}
	return out
}

func sumOf(participation dp.Participation, n int64, bits int64) Query {
	return Query{Class: VectorSumClass, Participation: participation, Population: n, Rounds: 1, Delta: 1e-6, Sum: vecsum.Params{Dim: 10, Grid: 300, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: bits}}}
}

// Where everybody takes part the Gaussian of the same μ is the answer, whichever
// way it is counted.
func TestSumOfAllIsGaussian(t *testing.T) {
	for _, rounds := range []int64{1, 30} {
		q := sumOf(dp.All, 1000, 7000)
		q.Rounds = rounds
		got := sums(t, q)
		gdpEps, pld := got["vecsum-gdp"].Eps, got["gauss-pld"].Eps
		if math.Abs(pld/gdpEps-1) > 1e-3 {
			t.Errorf("%d rounds: gauss-pld %v, vecsum-gdp %v", rounds, pld, gdpEps)
		}
		// The real norm of the difference is at least g, the noise m/4.
		least := gdp.Mu(300 / math.Sqrt(7000*1000/4)).Repeat(rounds).Epsilon(1e-6)
		if !(gdpEps >= least && gdpEps < 1.1*least) {
			t.Errorf("%d rounds: %v, the central Gaussian costs %v", rounds, gdpEps, least)
		}
	}
}

// Of a single coordinate with known inputs the law is Bin(m, 1/2) against its
// shift by g: no bound may be below its exact δ.
func TestSumAboveExact(t *testing.T) {
	const n, bits, grid = 8, 50, 10
	q := sumOf(dp.All, n, bits)
	q.Sum.Dim, q.Sum.Grid = 1, grid
	m := float64(n * bits)
	log := func(k float64) float64 {
		a, _ := math.Lgamma(m + 1)
		b, _ := math.Lgamma(k + 1)
		c, _ := math.Lgamma(m - k + 1)
		return a - b - c - m*math.Ln2
	}
	for _, eps := range []float64{.5, 1, 2, 4} {
		exact := 0.
		for k := 0.; k <= m+grid; k++ {
			a, b := 0., 0.
			if k <= m {
				a = math.Exp(log(k))
			}
			if k >= grid {
				b = math.Exp(log(k - grid))
			}
			exact += math.Max(0, a-math.Exp(eps)*b)
		}
		q.Delta, q.Eps, q.AskDelta = 0, eps, true
		got := sums(t, q)
		for id, l := range got {
			if l.Delta < exact {
				t.Errorf("eps %v: %s has delta %v, exact %v", eps, id, l.Delta, exact)
			}
		}
		if got["vecsum-gdp"].Delta > 40*exact {
			t.Errorf("eps %v: vecsum-gdp has delta %v, exact %v", eps, got["vecsum-gdp"].Delta, exact)
		}
		if len(got) < 2 {
			t.Errorf("eps %v: only %d bounds", eps, len(got))
		}
	}
}

// Chance helps, fewer who must be there and fewer who are honest cost, and the
// answer at δ is the inverse of the answer at ε.
func TestSumOrder(t *testing.T) {
	sampled := sumOf(dp.Sampled, 10_000, 700)
	sampled.Reports, sampled.Rounds = 1000, 20
	coins := sumOf(dp.CheckIn, 2000, 700)
	coins.Gamma, coins.Rounds = .5, 5
	once := sumOf(dp.Once, 10_000, 700)
	once.Reports, once.Rounds = 1000, 10
	dropped := sumOf(dp.All, 1000, 700)
	dropped.Dropout, dropped.Rounds = .1, 3
	skellam := sampled
	skellam.Sum.Noise = vecsum.Noise{Kind: vecsum.Skellam, Variance: 175}
	for name, q := range map[string]Query{"sampled": sampled, "check-in": coins, "once": once, "dropout": dropped, "skellam": skellam} {
		got := sums(t, q)
		pld, full := got["gauss-pld"].Eps, got["vecsum-gdp"].Eps
		if !(pld > 0 && full > 0) {
			t.Fatalf("%s: gauss-pld %v, vecsum-gdp %v", name, pld, full)
		}
		if (name == "sampled" || name == "check-in" || name == "skellam") && pld > .9*full {
			t.Errorf("%s: sampling gains nothing: %v against %v", name, pld, full)
		}
		fewer, honest := q, q
		fewer.Sum.MinUsers, honest.Sum.Honest = 500, .5
		if e := sumsOf(t, fewer, "vecsum-gdp")["vecsum-gdp"].Eps; !(e > full) {
			t.Errorf("%s: n-min 500 costs %v, not above %v", name, e, full)
		}
		if e := sumsOf(t, honest, "gauss-pld")["gauss-pld"].Eps; !(e > pld) {
			t.Errorf("%s: honest .5 costs %v, not above %v", name, e, pld)
		}
		if !longtest.On && name != "sampled" && name != "dropout" {
			continue
		}
		back := q
		back.Delta, back.AskDelta = 0, true
		for id, l := range got {
			back.Eps = l.Eps
			if d := sumsOf(t, back, id)[id].Delta; !(d < 1.15e-6 && d > .8e-6) {
				t.Errorf("%s: %s at its own epsilon %v has delta %v", name, id, l.Eps, d)
			}
		}
	}
	// A round of n-min with no chance of more is what n-min is charged for.
	q := sampled
	q.Sum.MinUsers = 500
	half := sampled
	half.Sum.Noise.Bits /= 2
	if a, b := sumsOf(t, q, "gauss-pld")["gauss-pld"].Eps, sumsOf(t, half, "gauss-pld")["gauss-pld"].Eps; math.Abs(a/b-1) > .01 {
		t.Errorf("n-min of half of k costs %v, half the noise %v", a, b)
	}
}

// CJMP's own parameters are within its theorems and far above the tight answer;
// where a theorem says nothing the reason is given.
func TestSumPaper(t *testing.T) {
	longtest.Only(t, "the paper's bounds at many settings")
	// Theorem 3.2's parameters for eps = 1, delta = 1e-6 and 1000 clients.
	for dim, p := range map[int]vecsum.Params{
		1:  {Grid: 64, Norm: 4356, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 52686562, P: 0.4999999930363757}},
		10: {Grid: 64, Norm: 4945, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 65479717, P: 0.4999999926318197}},
	} {
		p.Users, p.MinUsers, p.Honest, p.Dim, p.Radius = 1000, 1000, 1, dim, 1
		q := Query{Class: VectorSumClass, Participation: dp.All, Population: 1000, Rounds: 1, Delta: 1e-6, Sum: p}
		got := sums(t, q)
		if e := got["cjmp-thm32"].Eps; !(e > .01 && e <= 1) {
			t.Errorf("dim %d: cjmp-thm32 %v", dim, e)
		}
		if got["cjmp-a9"].Eps != got["cjmp-thm32"].Eps || got["vecsum-gdp"].Eps > got["cjmp-thm32"].Eps/40 {
			t.Errorf("dim %d: %v, %v, %v", dim, got["cjmp-a9"].Eps, got["cjmp-thm32"].Eps, got["vecsum-gdp"].Eps)
		}
		if _, ok := got["cjmp-lemma31"]; ok != (dim == 1) {
			t.Errorf("dim %d: cjmp-lemma31 applies: %v", dim, ok)
		}
		back := q
		back.Delta, back.AskDelta, back.Eps = 0, true, got["cjmp-thm32"].Eps
		if d := sumsOf(t, back, "cjmp-thm32")["cjmp-thm32"].Delta; math.Abs(d/1e-6-1) > 1e-3 {
			t.Errorf("dim %d: delta %v at the epsilon for 1e-6", dim, d)
		}
		q.Sum.Honest = .5
		if half := sumsOf(t, q, "cjmp-a9")["cjmp-a9"].Eps; half <= got["cjmp-a9"].Eps {
			t.Errorf("dim %d, half honest: %v", dim, half)
		}
		for _, id := range []string{"cjmp-lemma31", "cjmp-thm32"} {
			if sumsOf(t, q, id)[id].Applies {
				t.Errorf("dim %d: %s with half the clients honest", dim, id)
			}
		}
		q.Sum.Honest, q.Rounds = 1, 2
		if two := sumsOf(t, q, "cjmp-a9"); two["cjmp-a9"].Applies {
			t.Error("two rounds by a theorem for one")
		}
	}
	// Noise with too little support has no bound at all.
	q := sumOf(dp.All, 2, 4)
	if got := sums(t, q); len(got) != 0 {
		t.Errorf("eight coins for a shift of 300: %v", got)
	}
	q = sumOf(dp.Sampled, 100, 0)
	q.Reports = 10
	q.Sum.Noise = vecsum.Noise{Kind: vecsum.DiscreteGaussian, Variance: 1e5}
	if got := sums(t, q); got["gauss-pld"].Applies && got["gauss-pld"].Eps == 0 || !got["vecsum-gdp"].Applies {
		t.Errorf("discrete Gaussian: %v", got)
	}
}

// What is for single reports only refuses a vector sum, and a Sum does not go with them.
func TestSumIsNoReport(t *testing.T) {
	ctx, q := context.Background(), sumOf(dp.All, 1000, 7000)
	for _, method := range []string{"", certificate.Basic, certificate.BlanketPLD} {
		if _, err := Certify(ctx, q, method); !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("a certificate by %q: %v", method, err)
		}
	}
	for _, method := range []string{"blanket-rdp", "gauss-rdp"} {
		if _, err := Divergence(q, method); err == nil {
			t.Errorf("a divergence by %s", method)
		}
	}
	for _, knob := range []string{"eps0", "sigma", "rounds"} {
		if _, _, err := Plan(ctx, 1, q, knob); err == nil {
			t.Errorf("planned %s", knob)
		}
	}
	for _, class := range []dp.Class{"", dp.Generic, dp.Gaussian} {
		one := Query{Class: class, Participation: dp.All, Population: 1000, Rounds: 1, Delta: 1e-6, Eps0: 1, Sum: q.Sum}
		if class == dp.Gaussian {
			one.Eps0, one.Sigma = 0, 1
		}
		if _, err := Answer(ctx, one, "all"); err == nil || !strings.Contains(err.Error(), "vector sum") {
			t.Errorf("class %q with a Sum: %v", class, err)
		}
	}
}

func TestSumRefuses(t *testing.T) {
	for want, change := range map[string]func(*Query){
		"eps0 = 1":                         func(q *Query) { q.Eps0 = 1 },
		"trust shuffle":                    func(q *Query) { q.Trust = dp.Shuffle },
		"adjacency \"remove\"":             func(q *Query) { q.Adjacency = dp.AddRemoveOne },
		"colluders = 1":                    func(q *Query) { q.Colluders = 1 },
		"number of clients":                func(q *Query) { q.HiddenReports = true },
		"delta = 0":                        func(q *Query) { q.Delta = 0 },
		"n = 0":                            func(q *Query) { q.Population = 0 },
		"rounds = 0":                       func(q *Query) { q.Rounds = 0 },
		"n-min = 101 must be at most":      func(q *Query) { q.Sum.MinUsers = 101 },
		"n-min = -1 must be at least 1":    func(q *Query) { q.Sum.MinUsers = -1 },
		"users = 99 are fewer":             func(q *Query) { q.Sum.Users = 99 },
		"leaves no client's noise":         func(q *Query) { q.Sum.Honest = .001 },
		"honest fraction = 2":              func(q *Query) { q.Sum.Honest = 2 },
		"honest fraction = NaN":            func(q *Query) { q.Sum.Honest = math.NaN() },
		"dim = 0":                          func(q *Query) { q.Sum.Dim = 0 },
		"grid = 0":                         func(q *Query) { q.Sum.Grid = 0 },
		"noise bits = 0":                   func(q *Query) { q.Sum.Noise.Bits = 0 },
		"variance = 1 given for binomial":  func(q *Query) { q.Sum.Noise.Variance = 1 },
		"unknown noise \"x\"":              func(q *Query) { q.Sum.Noise.Kind = "x" },
		"k = 7 must equal n = 100 when al": func(q *Query) { q.Reports = 7 },
	} {
		q := sumOf(dp.All, 100, 100)
		change(&q)
		if _, err := Answer(context.Background(), q, "all"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := Answer(context.Background(), sumOf(dp.All, 100, 100), "gauss-rdp"); err == nil {
		t.Error("answers an unknown method")
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Answer(done, sumOf(dp.All, 100, 100), "all"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// A plan's check is at most the target, and nearly all of it is used.
func TestPlanSum(t *testing.T) {
	sampled := sumOf(dp.Sampled, 10_000, 0)
	sampled.Reports, sampled.Rounds, sampled.Sum.MinUsers = 1000, 20, 700
	coins := sumOf(dp.CheckIn, longtest.Pick[int64](30, 300), 0)
	coins.Gamma, coins.Rounds = .7, 2
	once := sumOf(dp.Once, 10_000, 0)
	once.Reports, once.Rounds = 1000, 10
	dropped := once
	dropped.Dropout = .1
	all := sumOf(dp.All, 1000, 0)
	all.Rounds, all.Sum.Honest = 7, .5
	away, split := sampled, once
	away.Dropout, away.Sum.Honest = .01, .5
	split.Dropout, split.Sum.Honest = .01, .7
	for name, q := range map[string]Query{"all": all, "sampled": sampled, "check-in": coins, "once": once, "dropout": dropped,
		"sampled, not all honest": away, "once, not all honest": split} {
		for _, kind := range []vecsum.NoiseKind{vecsum.Binomial, vecsum.Skellam} {
			if name != "all" && name != "once, not all honest" && kind == vecsum.Skellam {
				continue
			}
			if (strings.Contains(name, "not all honest") || name == "dropout") && !longtest.On {
				continue
			}
			p, err := planSum(context.Background(), 1.5, q, kind)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			q.Sum = p
			r, err := Answer(context.Background(), q, "best")
			if err != nil {
				t.Fatal(err)
			}
			// Whole bits may be more than is needed.
			if r.Upper == nil || !(r.Upper.Eps <= 1.5 && r.Upper.Eps > 1.4) {
				t.Errorf("%s, %s: planned for 1.5, costs %+v", name, kind, r.Upper)
			}
		}
	}
	if _, err := planSum(context.Background(), math.NaN(), all, vecsum.Binomial); err == nil {
		t.Error("plans for NaN")
	}
	if _, err := planSum(context.Background(), 1e-9, all, vecsum.Binomial); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("plans for next to nothing: %v", err)
	}
}

// Noise is not looked at for more clients than chance brings: these took more than a
// thousand steps, and the answer is the one for all of them.
func TestSumOfManyByChance(t *testing.T) {
	q := Query{Class: VectorSumClass, Participation: dp.CheckIn, Population: 1e9, Gamma: 1e-5, Rounds: 100, Delta: 1e-6, Sum: vecsum.Params{Dim: 1000, Grid: 1000, MinUsers: 9000, Noise: vecsum.Noise{Kind: vecsum.Binomial, Bits: 100}}}
	users, chance := q.withSumDefaults().most(1e-12)
	if !(users > 10_500 && users < 11_500 && chance == 1e-12) {
		t.Errorf("looks at up to %d clients, of which more come with chance %v", users, chance)
	}
	if e := sumsOf(t, q, "gauss-pld")["gauss-pld"].Eps; !(e > .02225 && e < .02227) {
		t.Errorf("epsilon = %v, of all numbers of clients .02226", e)
	}
	half := q
	half.Sum.Honest = .5
	if users, _ := half.withSumDefaults().most(1e-12); !(users > 10_600 && users < 12_000) {
		t.Errorf("half honest: looks at up to %d clients", users)
	}
	all := q
	all.Gamma = 1
	if users, chance := all.withSumDefaults().most(1e-12); users != 1e9 || chance != 0 {
		t.Errorf("everybody comes: looks at up to %d clients, chance %v", users, chance)
	}
}

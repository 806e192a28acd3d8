package account_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func logUniform(r *rand.Rand, lo, hi float64) float64 {
	return math.Exp(math.Log(lo) + r.Float64()*(math.Log(hi)-math.Log(lo)))
}

// randomQuery draws a setting: ε₀ .05–8, n 2–1e9, γ 1e-6–1, T 1–1e6, δ
// 1e-30–.1, every participation, trust and class, drop-outs, colluders, hidden k, others' ε₀
// and adaptive rounds.
func randomQuery(r *rand.Rand) account.Query {
	q := account.Query{Trust: dp.Shuffle, Eps0: logUniform(r, 0.05, 8), Population: int64(logUniform(r, 2, 1e9)),
		Rounds: int64(logUniform(r, 1, 1e6)), Delta: logUniform(r, 1e-30, 0.1)}
	if r.IntN(20) == 0 {
		q.Trust = dp.Local
	}
	g := logUniform(r, 1e-6, 1)
	switch r.IntN(6) {
	case 0, 1:
		q.Participation = dp.All
	case 2, 3:
		q.Participation, q.Reports = dp.Sampled, max(1, int64(g*float64(q.Population)))
	case 4:
		q.Participation, q.Gamma = dp.CheckIn, g
	case 5:
		q.Participation, q.Reports = dp.Once, max(1, int64(g*float64(q.Population)))
		q.Rounds = max(1, min(q.Rounds, q.Population/q.Reports))
	}
	if r.IntN(4) == 0 {
		q.Dropout = r.Float64() * 0.9
	}
	switch r.IntN(8) {
	case 0:
		q.Class = dp.BinaryRR
	case 1:
		q.Class, q.Symbols = dp.KRR, int(logUniform(r, 2, 1e4))
	case 2:
		q.Class = dp.LaplaceL1
	case 3:
		q.TV = logUniform(r, .01, 1) / (math.Exp(q.Eps0) + 1)
	}
	switch r.IntN(12) {
	case 0:
		q.Colluders = int64(r.Float64() * .5 * float64(q.Population))
	case 1:
		q.HiddenReports = true
	case 2:
		q.AdaptiveWithinRound = true
	}
	if q.Class == "" && q.TV == 0 && q.Dropout == 0 && q.Trust == dp.Shuffle && (q.Participation == dp.All || q.Participation == dp.Once) && r.IntN(3) == 0 {
		q.CrossEps0 = logUniform(r, .05, 8)
		q.HiddenReports, q.AdaptiveWithinRound = false, false
	}
	return q
}

// fuzzed is what a setting showed.
type fuzzed struct {
	problems []string
	slowest  time.Duration
	// gap is upper/lower; 0 where there is no lower bound above 0.
	gap float64
}

// fuzzOne returns what is wrong with a setting. Grids differ between
// neighbouring settings, so ε may waver by a fraction loose.
func fuzzOne(q account.Query, loose float64) (out fuzzed) {
	say := func(format string, args ...any) { out.problems = append(out.problems, fmt.Sprintf(format, args...)) }
	defer func() {
		if p := recover(); p != nil {
			say("panic: %v", p)
		}
	}()
	ask := func(q account.Query, which string) (account.Reply, bool) {
		start := time.Now()
		r, err := account.Answer(context.Background(), q, which)
		out.slowest = max(out.slowest, time.Since(start))
		if err != nil {
			say("%+v: %v", q, err)
			return r, false
		}
		return r, true
	}
	all, ok := ask(q, "all")
	if !ok {
		return
	}
	if all.Upper == nil {
		say("no upper bound at all")
		return
	}
	eps := all.Upper.Eps
	pure := q.Eps0 * float64(q.Rounds) * (1 + 1e-9)
	if !(eps >= 0) || !(eps <= pure) {
		say("upper eps = %v outside [0, %v]", eps, pure)
	}
	basic := math.Inf(1)
	for _, b := range all.Bounds {
		if !b.Applies {
			continue
		}
		if b.Method == "basic" {
			basic = b.Eps
		}
		if math.IsNaN(b.Eps) || math.IsInf(b.Eps, 0) || b.Eps < 0 || math.IsNaN(b.Delta) || b.Delta < 0 {
			say("%s: eps %v delta %v", b.Method, b.Eps, b.Delta)
		}
		if b.Kind == dp.Lower && b.Eps > eps {
			say("lower %s = %v above upper %v", b.Method, b.Eps, eps)
		}
	}
	if all.Lower != nil && all.Lower.Eps > 0 {
		out.gap = eps / all.Lower.Eps
	}
	// More of what costs must not cost less.
	more := map[string]account.Query{}
	v := q
	v.Eps0 *= 1.1
	more["eps0"] = v
	if q.Participation != dp.Once {
		v = q
		v.Rounds += 1 + v.Rounds/3
		more["T"] = v
	}
	v = q
	v.Delta /= 3
	more["1/delta"] = v
	v = q
	v.Population = max(1, v.Population-1-v.Population/4)
	switch { // fewer clients, of the same number of reports or of all
	case q.Participation == dp.All && v.Population > q.Colluders, q.Participation == dp.Sampled && q.Reports <= v.Population && q.Colluders == 0:
		more["1/n"] = v
	}
	v = q
	v.Colluders += 1 + (q.Population-q.Colluders)/10
	if v.Colluders < v.Population && (q.Participation == dp.All || q.Participation == dp.Once) {
		more["colluders"] = v
	}
	if q.CrossEps0 > 0 {
		v = q
		v.CrossEps0 = min(1.1*v.CrossEps0, dp.MaxEps0)
		more["others' eps0"] = v
	}
	if q.TV > 0 {
		v = q
		v.TV = math.Min(1.2*v.TV, 1/(math.Exp(v.Eps0)+1))
		more["total variation"] = v
		v = more["eps0"]
		v.TV = math.Min(v.TV, 1/(math.Exp(v.Eps0)+1))
		more["eps0"] = v
		if v.TV < q.TV {
			delete(more, "eps0")
		}
	}
	for name, v := range more {
		r, ok := ask(v, "best")
		if !ok {
			continue
		}
		if r.Upper == nil || !(r.Upper.Eps >= eps*(1-loose)) {
			say("more %s lowers eps from %v (%s) to %+v", name, eps, all.Upper.Method, r.Upper)
		}
	}
	// δ at that ε: the same curve read the other way.
	v = q
	v.AskDelta, v.Delta, v.Eps = true, 0, eps
	if r, ok := ask(v, "all"); ok {
		if r.Upper == nil || !(r.Upper.Delta >= 0 && r.Upper.Delta <= 1) {
			say("delta at eps = %v is %+v", eps, r.Upper)
		} else if eps < 0.5*basic && r.Upper.Delta > 10*q.Delta {
			// Near the pure guarantee δ falls off a cliff; elsewhere not.
			say("delta at eps = %v is %v, asked %v", eps, r.Upper.Delta, q.Delta)
		}
	}
	return
}

// fuzzMany puts settings through fuzzOne and describes the gaps between the
// tightest upper and the largest lower bound.
func fuzzMany(t *testing.T, count int) {
	r := rand.New(rand.NewPCG(2026, 11))
	var gaps []float64
	none := 0
	for i := range count {
		q := randomQuery(r)
		if !longtest.On && count < 12 && i == 2 {
			continue // it takes longer than the others together
		}
		out := fuzzOne(q, 0.005)
		for _, p := range out.problems {
			t.Errorf("%d %+v: %s", i, q, p)
		}
		if out.slowest > 5*time.Second {
			t.Logf("%d %+v: slow, %v", i, q, out.slowest)
		}
		if out.gap > 0 {
			gaps = append(gaps, out.gap)
		} else {
			none++
		}
	}
	slices.Sort(gaps)
	at := func(p float64) float64 {
		if len(gaps) == 0 {
			return math.NaN()
		}
		return gaps[int(p*float64(len(gaps)-1))]
	}
	t.Logf("upper/lower over %d settings: 10 %% %.4f, 25 %% %.4f, median %.4f, 75 %% %.4f, 90 %% %.4f, 99 %% %.4f, largest %.4f; %d without a lower bound above 0",
		len(gaps), at(.1), at(.25), at(.5), at(.75), at(.9), at(.99), at(1), none)
}

// Two thousand of them under the tag soak.
func TestRandomSettings(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and one goroutine: nothing for the race detector")
	}
	fuzzMany(t, longtest.Pick(4, 12))
}

// Once means in one round only: more batches than clients must be refused.
func TestOnceNeedsEnoughClients(t *testing.T) {
	q := account.Query{Participation: dp.Once, Eps0: 1, Population: 1000, Reports: 500, Rounds: 3, Delta: 1e-6}
	if r, err := account.Answer(context.Background(), q, "best"); err == nil {
		t.Errorf("3 disjoint batches of 500 out of 1000 clients: got %+v, want an error", r.Upper)
	}
	q.Rounds = 2
	if _, err := account.Answer(context.Background(), q, "best"); err != nil {
		t.Errorf("2 disjoint batches of 500 out of 1000: %v", err)
	}
	one := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.Once, Population: 1000, Reports: 500}
	sampled := one
	sampled.Participation, sampled.Population = dp.All, 500
	sampled.Reports = 500
	acc := new(account.Accountant)
	single, err := acc.Eps(sampled, 1e-6)
	if err != nil {
		t.Fatal(err)
	}
	// Three batches cannot be disjoint: refused, or charged like a repetition.
	three, err := acc.Eps(dp.Repeat{Event: one, Times: 3}, 1e-6)
	if err == nil && three.Eps < single.Eps*1.2 {
		t.Errorf("accountant charges %v for three batches, one costs %v", three.Eps, single.Eps)
	}
	if errors.Is(err, dp.ErrNoBound) {
		t.Errorf("an impossible protocol is not a missing bound: %v", err)
	}
}

// Events that say the same must cost the same.
func TestEventsThatAreEqual(t *testing.T) {
	acc := new(account.Accountant)
	eps := func(ev dp.Event) float64 {
		b, err := acc.Eps(ev, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eps
	}
	base := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 20000, Reports: 300}
	if a, b := eps(dp.Sequence{base, dp.Repeat{Event: base, Times: 2}}), eps(dp.Repeat{Event: base, Times: 3}); math.Abs(a-b) > 1e-6*b {
		t.Errorf("1 + 2 rounds cost %v, 3 rounds %v", a, b)
	}
	certain, all := base, base
	certain.Participation, certain.Reports, certain.Gamma, certain.Least = dp.CheckIn, 0, 1, 300
	all.Participation, all.Population, all.Reports = dp.All, 300, 0
	if a, b := eps(certain), eps(all); math.Abs(a-b) > 5e-3*b {
		t.Errorf("300 whose coins always say yes cost %v, all of 300 %v", a, b)
	}
	// With the sender known nothing amplifies.
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
		local := base
		local.Trust, local.Participation = dp.Local, p
		switch p {
		case dp.All:
			local.Reports = 0
		case dp.CheckIn:
			local.Reports, local.Gamma = 0, 0.01
		}
		if e := eps(local); e < 1.99 {
			t.Errorf("local %s round at eps0 = 2 costs only %v", p, e)
		}
	}
}

package account_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

func logUniform(r *rand.Rand, lo, hi float64) float64 {
	return math.Exp(math.Log(lo) + r.Float64()*(math.Log(hi)-math.Log(lo)))
}

// randomQuery draws a setting: ε₀ .05–8, n 2–1e9, γ 1e-6–1, T 1–1e6, δ
// 1e-12–.1, every participation and trust, drop-outs.
func randomQuery(r *rand.Rand) account.Query {
	q := account.Query{Trust: dp.Shuffle, Eps0: logUniform(r, 0.05, 8), Population: int64(logUniform(r, 2, 1e9)),
		Rounds: int64(logUniform(r, 1, 1e6)), Delta: logUniform(r, 1e-12, 0.1)}
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
		q.Participation, q.Rate = dp.CheckIn, g
	case 5:
		q.Participation, q.Reports = dp.Once, max(1, int64(g*float64(q.Population)))
		q.Rounds = max(1, min(q.Rounds, q.Population/q.Reports))
	}
	if r.IntN(4) == 0 {
		q.Dropout = r.Float64() * 0.9
	}
	return q
}

// fuzzOne returns what is wrong with a setting. Grids differ between
// neighbouring settings, so ε may waver by a fraction loose.
func fuzzOne(q account.Query, loose float64) (problems []string, slowest time.Duration) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	defer func() {
		if p := recover(); p != nil {
			say("panic: %v", p)
		}
	}()
	ask := func(q account.Query, which string) (account.Reply, bool) {
		start := time.Now()
		r, err := account.Answer(context.Background(), q, which)
		slowest = max(slowest, time.Since(start))
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
	if r, ok := ask(v, "best"); ok {
		if r.Upper == nil || !(r.Upper.Delta >= 0 && r.Upper.Delta <= 1) {
			say("delta at eps = %v is %+v", eps, r.Upper)
		} else if eps < 0.5*basic && r.Upper.Delta > 10*q.Delta {
			// Near the pure guarantee δ falls off a cliff; elsewhere not.
			say("delta at eps = %v is %v, asked %v", eps, r.Upper.Delta, q.Delta)
		}
	}
	return
}

// RIFFLE_FUZZ=2000 go test -run TestRandomSettings ./account for the long run.
func TestRandomSettings(t *testing.T) {
	count := 25
	if testing.Short() {
		count = 8
	}
	if v := os.Getenv("RIFFLE_FUZZ"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			t.Fatal(err)
		}
		count = n
	}
	r := rand.New(rand.NewPCG(2026, 11))
	for i := range count {
		q := randomQuery(r)
		problems, slowest := fuzzOne(q, 0.005)
		for _, p := range problems {
			t.Errorf("%d %+v: %s", i, q, p)
		}
		if slowest > 3*time.Second {
			t.Logf("%d %+v: slow, %v", i, q, slowest)
		}
	}
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
	acc := account.New()
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

// Events that say the same must cost the same; nobody reporting is free.
func TestEventsThatAreEqual(t *testing.T) {
	acc := account.New()
	eps := func(ev dp.Event) float64 {
		b, err := acc.Eps(ev, 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eps
	}
	base := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2}, Trust: dp.Shuffle, Participation: dp.CheckIn, Population: 20000, Reports: 300, Rate: 0.9, Realised: true}
	sampled := base
	sampled.Participation, sampled.Rate, sampled.Realised = dp.Sampled, 0, false
	if a, b := eps(base), eps(sampled); math.Abs(a-b) > 1e-9*b {
		t.Errorf("a realised check-in of 300 costs %v, a sample of 300 costs %v", a, b)
	}
	none := base
	none.Reports = 0
	if e := eps(none); e != 0 {
		t.Errorf("a round nobody reported in costs %v", e)
	}
	if a, b := eps(dp.Sequence{base, none, dp.Repeat{Event: base, Times: 2}}), eps(dp.Repeat{Event: base, Times: 3}); math.Abs(a-b) > 1e-6*b {
		t.Errorf("1 + 0 + 2 rounds cost %v, 3 rounds %v", a, b)
	}
	// With the sender known nothing amplifies.
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn} {
		local := base
		local.Trust, local.Participation, local.Realised, local.Rate = dp.Local, p, false, 0
		switch p {
		case dp.All:
			local.Reports = 0
		case dp.CheckIn:
			local.Reports, local.Rate = 0, 0.01
		}
		if e := eps(local); e < 1.99 {
			t.Errorf("local %s round at eps0 = 2 costs only %v", p, e)
		}
	}
}

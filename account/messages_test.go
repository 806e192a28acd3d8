package account

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

func asked(t *testing.T, q Query) Reply {
	t.Helper()
	r, err := Answer(t.Context(), q, "best")
	if err != nil {
		t.Fatal(err)
	}
	if r.Upper == nil {
		t.Fatalf("no bound for %+v", q)
	}
	return r
}

// Messages of all clients are so many times more rounds. Where chance decides who takes part they
// cost no less than those rounds, and as much as a round of all that come.
func TestMessagesAreRoundsOfAll(t *testing.T) {
	base := Query{Participation: dp.All, Eps0: 2, Population: 1000, Rounds: 5, Delta: 1e-6, Messages: 4}
	more := base
	more.Messages, more.Rounds = 0, 20
	if a, b := asked(t, base), asked(t, more); a.Upper.Eps != b.Upper.Eps || a.Upper.Delta != 1e-6 || a.Lower == nil && b.Lower != nil || a.Query != base {
		t.Errorf("four messages cost %+v, four times the rounds %+v", a.Upper, b.Upper)
	}
	for name, change := range map[string]func(*Query){
		"sampled":   func(q *Query) { q.Participation, q.Reports = dp.Sampled, 200 },
		"check-in":  func(q *Query) { q.Participation, q.Gamma = dp.CheckIn, .3 },
		"drop-outs": func(q *Query) { q.Dropout = .2 },
		"sampled, drop-outs and colluders": func(q *Query) {
			q.Participation, q.Reports, q.Dropout, q.Colluders = dp.Sampled, 300, .1, 20
		},
		"once": func(q *Query) { q.Participation, q.Reports = dp.Once, 150 },
	} {
		several, single := base, base
		change(&several)
		change(&single)
		single.Messages, single.Rounds = 0, 20
		if single.Participation == dp.Once {
			single.Rounds = 5
		}
		a := asked(t, several)
		if b := asked(t, single); !(a.Upper.Eps >= b.Upper.Eps) && single.Colluders == 0 || a.Upper.Delta != 1e-6 {
			t.Errorf("%s: four messages cost %.4f at %v, %d rounds %.4f", name, a.Upper.Eps, a.Upper.Delta, single.Rounds, b.Upper.Eps)
		}
		if longtest.On || name == "check-in" {
			if all, err := Answer(t.Context(), several, "all"); err != nil || all.Lower != nil {
				t.Errorf("%s: a lower bound %+v of a mechanism that may reveal less, %v", name, all.Lower, err)
			}
		}
		// Against the charges of rounds that really happen: with the fewest reports that a thousand
		// rounds have, and chance decided once for all messages of a round.
		one, paid, _ := several.alone(missingShare * several.Delta)
		most, rate := several.cohort()
		least := max(1, most-several.Colluders)
		if low, _ := tail.Window(least, rate, 1-rate, 1e-3, 1); one.Population > low {
			t.Errorf("%s: counted among %d, a thousandth of rounds has fewer than %d", name, one.Population, low)
		}
		if over := tail.Survival(least, least-one.Population+1, 1-rate, rate) * float64(one.Rounds); over > paid*(1+1e-9) {
			t.Errorf("%s: fewer than %d come with probability %v, %v is paid for", name, one.Population, over, paid)
		}
		ask := several
		ask.Delta, ask.AskDelta, ask.Eps = 0, true, a.Upper.Eps
		if d := asked(t, ask).Upper.Delta; !(d <= 1e-6*1.05) {
			t.Errorf("%s: delta %v at the epsilon of 1e-6", name, d)
		}
	}
	local := base
	local.Trust = dp.Local
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.Once} {
		local.Participation = p
		want := 5 * 4 * 2.
		if local.Reports = 0; p != dp.All {
			local.Reports = 100
		}
		if p == dp.Once {
			want = 4 * 2
		}
		if r, err := Answer(t.Context(), local, "basic"); err != nil || math.Abs(r.Upper.Eps-want) > 1e-9 {
			t.Errorf("local, %s: %+v, %v, want %v", p, r.Upper, err, want)
		}
	}
}

// The bound holds for two messages of randomized response whose clients come with a chance that
// is decided once: all views are enumerated.
func TestMessagesAgainstEnumeration(t *testing.T) {
	const eps0, rate = 1.5, .7
	p := 1 / (math.Exp(eps0) + 1)
	ones := func(bits ...int) []float64 { // the law of the number of ones
		out := []float64{1}
		for _, b := range bits {
			one := p
			if b == 1 {
				one = 1 - p
			}
			next := make([]float64, len(out)+1)
			for i, q := range out {
				next[i] += q * (1 - one)
				next[i+1] += q * one
			}
			out = next
		}
		return out
	}
	// The view says who came but for the victim's data: what is seen of it is no more.
	delta := func(eps float64, others []int) (sum float64) {
		for set := range 1 << len(others) {
			chance := rate // the victim came
			var a, b = []int{0}, []int{1}
			for i, o := range others {
				if set>>i&1 == 1 {
					chance *= rate
					a, b = append(a, o), append(b, o)
				} else {
					chance *= 1 - rate
				}
			}
			x, y := ones(a...), ones(b...)
			for i := range x {
				for j := range x {
					sum += chance * max(0, x[i]*x[j]-math.Exp(eps)*y[i]*y[j])
				}
			}
		}
		return sum
	}
	for _, eps := range []float64{.2, .5, 1, 1.5, 2, 2.5} {
		var truth float64
		for _, o := range [][]int{{0, 0, 0}, {0, 0, 1}, {0, 1, 1}, {1, 1, 1}} {
			truth = max(truth, delta(eps, o))
		}
		q := Query{Participation: dp.CheckIn, Gamma: rate, Class: dp.BinaryRR, Eps0: eps0, Population: 4, Rounds: 1, Messages: 2, AskDelta: true, Eps: eps}
		if got := asked(t, q); !(got.Upper.Delta >= truth) {
			t.Errorf("delta %v at epsilon %v, the truth is %v", got.Upper.Delta, eps, truth)
		}
		q.AskDelta, q.Eps, q.Delta = false, 0, truth
		if got := asked(t, q); !(got.Upper.Eps >= eps) {
			t.Errorf("epsilon %v at delta %v, the truth is %v", got.Upper.Eps, truth, eps)
		}
	}
}

func TestMessagesAreRefused(t *testing.T) {
	good := Query{Participation: dp.All, Eps0: 1, Population: 100, Rounds: 10, Delta: 1e-5, Messages: 2}
	for want, change := range map[string]func(*Query){
		"messages = -1":      func(q *Query) { q.Messages = -1 },
		"messages = 4097":    func(q *Query) { q.Messages = 4097 },
		"locally private":    func(q *Query) { q.Class, q.Eps0, q.Sigma, q.Trust = dp.Gaussian, 0, 1, dp.Distributed },
		"must be at most 1e": func(q *Query) { q.Rounds, q.Messages = 1e12, 2 },
	} {
		q := good
		change(&q)
		if _, err := Answer(t.Context(), q, "best"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	sum := Query{Participation: dp.All, Class: VectorSumClass, Population: 100, Rounds: 1, Delta: 1e-5, Messages: 2}
	if err := sum.Validate(); err == nil {
		t.Error("messages of a vector sum are taken")
	}
	if _, _, err := Plan(t.Context(), 1, Query{Participation: dp.Sampled, Eps0: 1, Population: 1000, Rounds: 10, Delta: 1e-5, Messages: 2}, "k"); err == nil {
		t.Error("the most reports of several messages are solved for")
	}
	q, r, err := Plan(t.Context(), 1, Query{Participation: dp.Sampled, Reports: 900, Population: 1000, Rounds: 10, Delta: 1e-5, Messages: 2}, "eps0")
	if err != nil || !(r.Upper.Eps <= 1 && r.Upper.Eps > .99) || q.Messages != 2 {
		t.Errorf("planned %+v: %+v, %v", q, r.Upper, err)
	}
	// A certificate is of the rounds that are counted.
	d, err := Certify(t.Context(), good, "")
	if err != nil || d.Query.Rounds != 20 || d.Query.Participation != dp.All {
		t.Errorf("certified %+v, %v", d.Query, err)
	}
	good.Dropout = .1
	if _, err := Certify(t.Context(), good, ""); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("drop-outs: %v", err)
	}
}

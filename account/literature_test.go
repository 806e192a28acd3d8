package account

import (
	"context"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

func one(t *testing.T, q Query, id string) Listed {
	t.Helper()
	r, err := Answer(context.Background(), q, id)
	if err != nil || len(r.Bounds) != 1 {
		t.Fatalf("%s %+v: %v, %d bounds", id, q, err, len(r.Bounds))
	}
	return r.Bounds[0]
}

// The figures of the design, to half a percent, and those that it does not have,
// from the formulas in Python at 1e-3.
func TestPaperSettings(t *testing.T) {
	fixedCI := Query{Participation: dp.Sampled, Eps0: 1, Population: 1e7, Reports: 1e4, Rounds: 1e5, Delta: 1e-7}
	for _, c := range []struct {
		q    Query
		want map[string]float64
	}{
		{settingA, map[string]float64{"clones-closed-strong": 14.26, "clones-closed-kov": 12.86, "clones-numeric-strong": 2.523, "clones-numeric-kov": 2.21,
			"gddsk-wbk-plain": 2.656}}, // 2.5 times girgis-thm1, as Girgis et al. 2021 say
		{settingM1, map[string]float64{"clones-closed-strong": 16.3, "clones-closed-kov": 14.32, "clones-numeric-strong": 3.814, "clones-numeric-kov": 3.153}},
		{fixedCI, map[string]float64{"clones-closed-strong": .500, "clones-closed-kov": .4227, "clones-numeric-strong": .1314, "clones-numeric-kov": .1098}},
		{settingCI, map[string]float64{"sci-thm2": .0709, "sci-thm1": .06869}},
	} {
		for id, want := range c.want {
			if b := one(t, c.q, id); !b.Applies || math.Abs(b.Eps-want) > .005*want || b.Status != dp.Proved {
				t.Errorf("%s %s: %+v, want %v", c.q.Participation, id, b, want)
			}
		}
	}
	// The mixture lies above a fixed k, and check-in costs a little more.
	if a, b := one(t, fixedCI, "girgis-thm1").Eps, one(t, settingCI, "sci-thm1").Eps; !(b >= a && b < 1.01*a) {
		t.Errorf("Theorem 1 with fixed k %v, mixed over k %v", a, b)
	}
}

// Where a paper's theorem is silent its method says why; nothing else.
func TestPaperRefusals(t *testing.T) {
	all := Query{Participation: dp.All, Eps0: 1, Population: 1e4, Rounds: 10, Delta: 1e-6}
	local := settingA
	local.Trust = dp.Local
	dropped := settingA
	dropped.Dropout = .1
	small := all
	small.Eps0, small.Population = .3, 999
	for _, c := range []struct {
		q    Query
		id   string
		note string // "" means that it applies
	}{
		{settingA, "clones-closed-strong", ""}, {settingA, "gddsk-wbk", ""}, {settingA, "balle-hoeffding", ""},
		{settingA, "eab-thm1", "without sampling"}, {settingA, "gdp-approx", "without sampling"}, {settingA, "eab-thm3", "without sampling"},
		{settingA, "sci-thm1", "flip coins"}, {settingA, "checkin-strong", "flip coins"}, {settingA, "sci-thm3", "flip coins"},
		{settingA, "efmrtt", "below 1/2"}, {small, "efmrtt", "at least 1000"}, {settingA, "balle-blanket", "given randomizer"},
		{settingCI, "clones-numeric-strong", "up to chance"}, {settingCI, "gddsk-wbk", "up to chance"}, {settingCI, "fmt23", "up to chance"},
		{settingCI, "checkin-strong", ""}, {settingCI, "checkin-kov", ""}, {settingCI, "sci-thm3", ""},
		{settingCI, "balle-hoeffding", ""}, {dropped, "balle-bennett", ""}, {settingCI, "balle-blanket", "given randomizer"},
		{dropped, "clones-closed-kov", "up to chance"}, {dropped, "checkin-strong", ""}, {dropped, "sci-thm2", ""},
		{local, "clones-closed-strong", "shuffled reports"}, {local, "sci-thm2", "shuffled reports"}, {local, "eab-thm1", "shuffled reports"},
		{all, "eab-thm1", ""}, {all, "gdp-approx", ""}, {all, "eab-thm3", ""}, {all, "efmrtt-rdp", ""},
	} {
		b := one(t, c.q, c.id)
		if b.Applies != (c.note == "") || !strings.Contains(b.Note, c.note) {
			t.Errorf("%s at %+v: applies %v, %q; want %q", c.id, c.q, b.Applies, b.Note, c.note)
		}
	}
}

// What is no guarantee is never answered as one.
func TestPaperApproximationsAreNoGuarantees(t *testing.T) {
	q := Query{Participation: dp.All, Eps0: 4, Population: 1000, Rounds: 1, Delta: 1e-5}
	for _, id := range []string{"gdp-approx", "eab-thm3", "fmt23", "efmrtt-rdp"} {
		r, err := Answer(context.Background(), q, id)
		if err != nil || r.Upper != nil || r.Best != nil || r.Lower != nil || !r.Bounds[0].Applies || r.Bounds[0].Kind != dp.Approximate {
			t.Errorf("%s: %+v %v", id, r, err)
		}
	}
	if g, b := one(t, q, "gdp-approx"), one(t, q, "eab-thm1"); !(g.Eps < .6*b.Eps) {
		t.Errorf("the limit law has %v of %v", g.Eps, b.Eps)
	}
	for _, id := range []string{"sci-thm1-printed", "sci-thm2-printed", "sci-thm3"} {
		if r, err := Answer(context.Background(), settingCI, id); err != nil || r.Upper != nil || r.Lower != nil || !r.Bounds[0].Applies {
			t.Errorf("%s: %+v %v", id, r, err)
		}
	}
}

// ofLiterature lists the bounds of others on ε₀-LDP reports.
func ofLiterature() (out []Method) {
	for _, m := range Methods() {
		if m.Class == "" && strings.Contains(m.Calls, "literature.") && !m.OnlyDivergence {
			out = append(out, m)
		}
	}
	return out
}

// ε at the δ that was bounded at ε is ε again, or less; more rounds, a larger ε₀
// and a smaller δ cost more.
func TestPaperBoundsReadBothWays(t *testing.T) {
	longtest.Only(t, "every bound of six settings, four times")
	checks := 0
	for _, q := range []Query{
		{Participation: dp.Sampled, Eps0: .4, Population: 1e7, Reports: 1e5, Rounds: 1000, Delta: 1e-8},
		{Participation: dp.Sampled, Eps0: 2, Population: 1e5, Reports: 1e4, Rounds: 20, Delta: 1e-5},
		{Participation: dp.All, Class: dp.KRR, Symbols: 5, Eps0: 1, Population: 60, Rounds: 1, Delta: 1e-5},
		{Participation: dp.All, Class: dp.BinaryRR, Eps0: .3, Population: 1e5, Rounds: 3, Delta: 1e-10},
		{Participation: dp.All, Eps0: 1.5, Population: 60, Rounds: 2, Delta: 1e-4},
		{Participation: dp.CheckIn, Eps0: 1, Population: 1e6, Gamma: .01, Rounds: 200, Delta: 1e-7},
	} {
		for _, m := range ofLiterature() {
			b := one(t, q, m.ID)
			if !b.Applies || b.Eps == 0 {
				continue
			}
			checks++
			back := q
			back.Delta, back.AskDelta, back.Eps = 0, true, b.Eps*(1+1e-6)
			d := one(t, back, m.ID)
			pure := q.Eps0 * float64(q.Rounds)
			if d.Applies && !(d.Delta <= q.Delta*1.3) && b.Eps < .5*pure || d.Applies && !(d.Delta >= 0 && d.Delta <= 1) {
				t.Errorf("%s %+v: epsilon %v at delta %v, but delta %v (%s) at epsilon", m.ID, q, b.Eps, q.Delta, d.Delta, d.Note)
			}
			for name, change := range map[string]func(*Query){
				"rounds": func(q *Query) { q.Rounds *= 3 }, "delta": func(q *Query) { q.Delta /= 10 }, "eps0": func(q *Query) { q.Eps0 *= 1.1 },
			} {
				more := q
				change(&more)
				if c := one(t, more, m.ID); c.Applies && !(c.Eps >= b.Eps*(1-1e-3)) && m.ID != "sci-thm2-printed" {
					t.Errorf("%s %+v: more %s lowers epsilon from %v to %v", m.ID, q, name, b.Eps, c.Eps)
				}
			}
		}
	}
	if checks < 60 {
		t.Errorf("only %d bounds read both ways", checks)
	}
}

// No method hangs, fails or shows a NaN at the ends of what a query may hold.
func TestPaperExtremes(t *testing.T) {
	for i, q := range []Query{
		{Participation: dp.Sampled, Eps0: 50, Population: 1e12, Reports: 1e12, Rounds: 1e12, Delta: 1e-280},
		{Participation: dp.Sampled, Eps0: 1e-6, Population: 1e12, Reports: 1, Rounds: 1, Delta: .999},
		{Participation: dp.Sampled, Eps0: .2, Population: 1e12, Reports: 1e6, Rounds: 1e12, Delta: 1e-30},
		{Participation: dp.CheckIn, Eps0: 3, Population: 1e12, Gamma: 1e-12, Rounds: 1e6, Delta: 1e-6},
		{Participation: dp.CheckIn, Eps0: 50, Population: 1, Gamma: 1, Rounds: 1, Delta: 1e-6},
		{Participation: dp.CheckIn, Eps0: .01, Population: 1e12, Gamma: .9, Rounds: 1e12, Delta: 1e-12},
		{Participation: dp.All, Class: dp.KRR, Symbols: 1 << 20, Eps0: 9, Population: 256, Rounds: 1e12, Delta: 1e-9},
		{Participation: dp.All, Eps0: 1e-3, Population: 1, Rounds: 1e12, Delta: 1e-9},
	} {
		for _, ask := range []bool{false, true} {
			if !longtest.On && ask == (i%2 == 0) {
				continue
			}
			if ask {
				q.AskDelta, q.Eps, q.Delta = true, .3*q.Eps0*math.Sqrt(float64(q.Rounds)), 0
			}
			for j, m := range ofLiterature() {
				if !longtest.On && (i+j)%3 == 2 {
					continue
				}
				b := one(t, q, m.ID)
				if !b.Applies {
					if b.Note == "" || strings.Contains(b.Note, "not a number") {
						t.Errorf("%s %+v: refused with %q", m.ID, q, b.Note)
					}
					continue
				}
				if !(b.Eps >= 0) || math.IsInf(b.Eps, 0) || !(b.Delta >= 0 && b.Delta <= 1) {
					t.Errorf("%s %+v: %v, %v", m.ID, q, b.Eps, b.Delta)
				}
				if b.Seconds > .5 {
					t.Logf("%s %+v: slow, %v s", m.ID, q, b.Seconds)
				}
			}
		}
	}
}

// With check-in the blanket's bounds are those of a fixed k at the ends of a window around the
// mean: above a fixed k, and near it where k hardly varies.
func TestBalleWithCheckIn(t *testing.T) {
	for _, c := range []struct {
		id      string
		class   dp.Class
		symbols int
		n       int64
		more    float64
	}{
		{"balle-hoeffding", dp.Generic, 0, 1e7, 1.05}, {"balle-bennett", dp.Generic, 0, 1e7, 1.05},
		{"balle-bennett", dp.KRR, 5, 1e7, 1.05}, {"balle-blanket", dp.BinaryRR, 0, 1e7, 1.05}, {"balle-blanket", dp.KRR, 4, 500, 2.5},
	} {
		q := Query{Participation: dp.Sampled, Class: c.class, Symbols: c.symbols, Eps0: .5, Population: c.n, Reports: c.n / 5, Rounds: 5, Delta: 1e-6}
		fixed := one(t, q, c.id)
		q.Participation, q.Reports, q.Gamma = dp.CheckIn, 0, .2
		chance := one(t, q, c.id)
		if !fixed.Applies || !chance.Applies || !(chance.Eps > fixed.Eps) || !(chance.Eps < c.more*fixed.Eps) {
			t.Errorf("%s of %s: fixed k %+v, check-in %+v", c.id, c.class, fixed, chance)
		}
	}
	// So many reports of more than two symbols are not summed, for neither.
	q := Query{Participation: dp.CheckIn, Class: dp.KRR, Symbols: 4, Eps0: .5, Population: 1e7, Gamma: .2, Rounds: 5, Delta: 1e-6}
	if b := one(t, q, "balle-blanket"); b.Applies || !strings.Contains(b.Note, "takes too long") {
		t.Errorf("%+v", b)
	}
}

// Rounds outside check-in's window are charged: no δ below what a mechanism
// really has, also where every loss inside the window is smaller than ε.
func TestCheckInWindowIsCharged(t *testing.T) {
	said := 0
	for _, eps := range []float64{.2, .6, 1, 1.4, 1.8, 2.2, 2.6} {
		q := Query{Participation: dp.CheckIn, Eps0: 3, Population: 50, Gamma: .02, Rounds: 1, AskDelta: true, Eps: eps}
		least := math.Max(one(t, q, "lower-rr2").Delta, one(t, q, "lower-rr3").Delta)
		for _, id := range []string{"checkin-strong", "checkin-kov", "balle-hoeffding", "balle-bennett", "balle-blanket"} {
			q := q
			if id == "balle-blanket" {
				q.Class = dp.BinaryRR
				least = one(t, q, "lower-rr2").Delta
			}
			b := one(t, q, id)
			if b.Applies && !(b.Delta >= least) {
				t.Errorf("%s at epsilon %v: %v, a mechanism has %v", id, eps, b.Delta, least)
			}
			if b.Applies && least > 1e-12 {
				said++
			}
		}
	}
	if said < 10 {
		t.Errorf("only %d comparisons", said)
	}
}

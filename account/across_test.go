package account

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// Clients with different randomizers: with a ratio of eps0 the answer is that for one randomizer, it
// rises with the ratio, and no other bound, event or certificate takes it for granted.
func TestCrossEps0(t *testing.T) {
	q := Query{Participation: dp.All, Eps0: 1.5, Population: 2000, Rounds: 4, Delta: 1e-6}
	alike := best(t, q)
	last := 0.
	for _, cross := range []float64{.1, .8, 1.5, 2, 3, 6, 50} {
		q.CrossEps0 = cross
		got := ask(t, q, "all")
		for id, b := range got {
			ours := strings.HasPrefix(id, "blanket") || id == "basic" || cross >= q.Eps0 && (id == "lower-rr3" || id == "lower-rr2")
			if b.Applies != ours {
				t.Errorf("cross-eps0 = %v: %s applies: %v (%s)", cross, id, b.Applies, b.Note)
			}
		}
		b := got["blanket-pld"]
		if !strings.Contains(b.Note, "across clients r = ") {
			t.Errorf("cross-eps0 = %v: note %q", cross, b.Note)
		}
		if !(b.Eps >= last*(1-1e-9)) || cross == 1.5 && math.Abs(b.Eps/alike-1) > 1e-9 || got["blanket-rdp"].Eps < .999*b.Eps || got["basic"].Eps < 5.99 {
			t.Errorf("cross-eps0 = %v: %+v after %v; one randomizer %v", cross, b.Guarantee, last, alike)
		}
		if cross >= q.Eps0 && got["lower-rr3"].Eps > b.Eps {
			t.Errorf("cross-eps0 = %v: a mechanism loses %v, above %v", cross, got["lower-rr3"].Eps, b.Eps)
		}
		last = b.Eps
	}
	// Nearly all of a crowd that says nothing of what the victim says hides nobody.
	if pure := 6.; !(last > .999*pure) {
		t.Errorf("cross-eps0 = 50: %v", last)
	}
	q.CrossEps0 = 3
	within := q
	within.AdaptiveWithinRound = true
	if a, b := best(t, within), best(t, q); a != b {
		t.Errorf("adaptive within the round %v, else %v", a, b)
	}
	fewer := q
	q.Colluders, fewer.Population = 500, 1500
	if a, b := best(t, q), best(t, fewer); a != b {
		t.Errorf("500 collude: %v; 1500 clients: %v", a, b)
	}
	once := q
	once.Participation, once.Reports, once.Colluders = dp.Once, 500, 0
	single := fewer
	single.Population, single.Rounds = 500, 1
	if a, b := best(t, once), best(t, single); math.Abs(a/b-1) > 1e-3 {
		t.Errorf("batches of 500: %v; one round of 500: %v", a, b)
	}
	if _, err := Certify(context.Background(), fewer, ""); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("certified: %v", err)
	}
	// As a document, and back.
	d := Reply{Query: fewer}.Document().Query
	if r, err := new(Accountant).Ask(context.Background(), d, "best", nil); err != nil || d.CrossEps0 != 3 || r.Upper.Eps != best(t, fewer) {
		t.Errorf("%+v: %+v, %v", d, r.Upper, err)
	}
	for want, change := range map[string]func(q *Query){
		"must be above 0":    func(q *Query) { q.CrossEps0 = -1 },
		"cross-eps0 = NaN":   func(q *Query) { q.CrossEps0 = math.NaN() },
		"at most 50":         func(q *Query) { q.CrossEps0 = 51 },
		"class generic":      func(q *Query) { q.Class = dp.BinaryRR },
		"no total-variation": func(q *Query) { q.TV = .01 },
		"no drop-outs":       func(q *Query) { q.Dropout = .1 },
		"where chance":       func(q *Query) { q.Participation, q.Reports = dp.Sampled, 10 },
		"another client's":   func(q *Query) { q.Participation, q.Gamma = dp.CheckIn, .1 },
	} {
		bad := fewer
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", bad, err, want)
		}
	}
	// Without a shuffler nobody hides anybody.
	fewer.Trust = dp.Local
	if e := best(t, fewer); !(e > .99*6) {
		t.Errorf("trust local: %v", e)
	}
}

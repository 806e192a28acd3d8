package account

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// A question about correlated noise has the answer of one Gaussian sum of the strategy's sensitivity, from
// its weights alone: the squares of the rows of a client that comes as often and as early as it may.
func TestCorrelatedSumIsItsRows(t *testing.T) {
	for _, kind := range toeplitz.Kinds {
		for _, every := range []int64{2, 5, 40} {
			q := aggregatedQuery()
			q.Rounds, q.Every, q.Strategy, q.Sigma, q.Delta = 30, every, kind, 25, 1e-6
			s, err := toeplitz.New(kind, q.Rounds, every)
			if err != nil {
				t.Fatal(err)
			}
			var square float64
			for row := range q.Rounds {
				m := 0.
				for from := int64(0); from <= row; from += every {
					if row-from < int64(len(s.Weights)) {
						m += float64(s.Weights[row-from]) / float64(s.Weights[0])
					}
				}
				square += m * m
			}
			want := gdp.Mu(2 / q.Sigma * math.Sqrt(square)).Epsilon(q.Delta)
			if eps := epsOf(t, q); !(eps >= want*(1-1e-11) && eps <= want*(1+1e-4)) {
				t.Errorf("%s, one of %d: epsilon = %v, want %v", kind, every, eps, want)
			}
			r, err := Answer(context.Background(), q, "best")
			if err != nil {
				t.Fatal(err)
			}
			if d := r.Document().Design; d == nil || len(d.Weights) != len(s.Weights) || !(d.Gain > .5) || d.Released < math.Sqrt2*q.Sigma*(1-1e-6) || d.Released > math.Sqrt2*q.Sigma*1.01 {
				t.Errorf("%s, one of %d: design %+v", kind, every, d)
			}
			if every != 5 && !longtest.On {
				continue
			}
			planned, reply, err := Plan(context.Background(), 1, q, "sigma")
			if err != nil || !(reply.Upper.Eps <= 1 && reply.Upper.Eps > .999) || planned.Every != every {
				t.Errorf("%s, one of %d: planned %+v, %v", kind, every, reply.Upper, err)
			}
		}
	}
	// What is asked of correlated noise is not what independent noise costs.
	q := aggregatedQuery()
	q.Rounds, q.Sigma, q.Every = 30, 25, 5
	few := epsOf(t, q)
	if q.Every = 0; !(epsOf(t, q) > 1.5*few) || q.Participation != dp.All {
		t.Errorf("epsilon = %v in all rounds, %v in one of 5", epsOf(t, q), few)
	}
}

// Noise that clients send apart costs what aggregators' noise of the same sigma costs, if sigma is that of the honest
// clients together. By default these are all who surely come.
func TestCorrelatedNoiseOfClients(t *testing.T) {
	q := aggregatedQuery()
	q.Rounds, q.Every, q.Sigma, q.Delta, q.Population = 30, 5, 25, 1e-6, 10000
	want := epsOf(t, q)
	for _, c := range []struct {
		by     vecsum.NoiseBy
		min    int64
		honest float64
	}{{"", 0, 0}, {vecsum.ByClients, 0, 0}, {vecsum.ByClients, 1, 1}, {vecsum.ByClients, 1500, .5}, {vecsum.ByClients, 10000, 1}} {
		q.NoiseBy, q.Sum.MinUsers, q.Sum.Honest = c.by, c.min, c.honest
		r, err := Answer(context.Background(), q, "best")
		if err != nil {
			t.Fatal(err)
		}
		// The noise is rounded up, by less than a step of each client's.
		if eps := r.Upper.Eps; !(eps <= want*(1+1e-9) && eps >= want*(1-1e-4)) {
			t.Errorf("%+v: epsilon = %v, of aggregators %v", c, eps, want)
		}
		least, honest := max(c.min, 1), c.honest
		if c.min == 0 {
			least = Surely(10000, .2)
		}
		if honest == 0 {
			honest = 1
		}
		if s := r.Query.Sum; s.MinUsers != least || s.Honest != honest || r.Query.NoiseBy != vecsum.ByClients {
			t.Errorf("%+v: answered for n-min = %d, honest = %v, noise by %q", c, s.MinUsers, s.Honest, r.Query.NoiseBy)
		}
		// What is released has the noise of n-min clients, of which the share honest counts.
		d := r.Document().Design
		if want := q.Sigma / math.Sqrt(math.Floor(honest*float64(least))/float64(least)); d == nil || !(d.Released >= want*(1-1e-9) && d.Released <= want*1.01) || d.NoiseBound < 1 {
			t.Errorf("%+v: design %+v, want deviation %v", c, d, want)
		}
		// The document is the question again.
		text, err := json.Marshal(r.Document().Query)
		if err != nil {
			t.Fatal(err)
		}
		asked, err := ParseDocumentQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		again, err := new(Accountant).Ask(context.Background(), asked, "best", nil)
		if err != nil || again.Upper.Eps != r.Upper.Eps || again.Query.Sum != r.Query.Sum || again.Query.NoiseBy != vecsum.ByClients || again.Query.Every != 5 {
			t.Errorf("%s answers %+v, %v; was %+v", text, again.Query, err, r.Query)
		}
		planned, reply, err := Plan(context.Background(), 1, q, "sigma")
		if err != nil || !(reply.Upper.Eps <= 1 && reply.Upper.Eps > .999) || planned.Sum.MinUsers != c.min {
			t.Errorf("%+v: planned %+v, %v", c, planned.Sum, err)
		}
	}
	for want, change := range map[string]func(*Query){
		"every = 5: grid and noise": func(q *Query) { q.Sum.Grid = 10 },
		"n-min = 10001 must":        func(q *Query) { q.Sum.MinUsers = 10001 },
		"honest fraction = 2 must":  func(q *Query) { q.Sum.Honest = 2 },
		"leaves no noise":           func(q *Query) { q.Sum.MinUsers, q.Sum.Honest = 10, .05 },
		"colluders = 3":             func(q *Query) { q.Colluders = 3 },
		"sigma = 0 must":            func(q *Query) { q.Sigma = 0 },
		"strategy \"banded\" goes":  func(q *Query) { q.Every, q.Strategy = 0, toeplitz.Band },
		"noise-by \"nobody\" must":  func(q *Query) { q.NoiseBy = "nobody" },
		"every = 1 must":            func(q *Query) { q.Every = 1 },
		"participation all":         func(q *Query) { q.Participation, q.Gamma = dp.CheckIn, .2 },
	} {
		bad := q
		change(&bad)
		if err := bad.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

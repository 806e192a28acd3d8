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
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

func sumQuery(n int64) Query {
	return Query{Trust: dp.Distributed, Class: dp.GaussianSum, Participation: dp.All, Sigma: 8, Population: n, Rounds: 10, Delta: 1e-6}
}

func epsOf(t *testing.T, q Query) float64 {
	t.Helper()
	r, err := Answer(context.Background(), q, "best")
	if err != nil || r.Upper == nil {
		t.Fatalf("%+v: %v", q, err)
	}
	return r.Upper.Eps
}

// Noise that others add to a sum hides a client as much among two as among a million, and
// whoever else drops out or tells what they know.
func TestNoiseOfASumDoesNotDependOnTheOthers(t *testing.T) {
	want := gdp.Mu(2. / 8 * math.Sqrt(10)).Epsilon(1e-6)
	for _, n := range []int64{1, 2, 1000, 1e6} {
		q := sumQuery(n)
		if got := epsOf(t, q); math.Abs(got-want) > 1e-8*want {
			t.Errorf("n = %d: epsilon = %v, of the Gaussian mechanism %v", n, got, want)
		}
		if q.Colluders = n - 1; math.Abs(epsOf(t, q)-want) > 1e-8*want {
			t.Errorf("%d colluders: epsilon = %v, want %v", n-1, epsOf(t, q), want)
		}
	}
	// Each client's own noise of the same sigma is √n times as much in the sum.
	q := sumQuery(100)
	q.Class = dp.Gaussian
	if own := epsOf(t, q); !(own < want/5) {
		t.Errorf("own noise of each of 100: epsilon = %v, of the sum %v", own, want)
	}
}

// One round of the sampled mechanism: (1−q)N(0,1) + q·N(μ,1) against N(0,1), in both orders,
// q = k/(n − colluders).
func TestSampledNoiseOfASum(t *testing.T) {
	for _, c := range []struct{ n, k, colluders int64 }{{100, 10, 0}, {100, 10, 50}, {100, 60, 50}, {1000, 1, 0}} {
		q := sumQuery(c.n)
		q.Participation, q.Reports, q.Colluders, q.Rounds, q.Sigma = dp.Sampled, c.k, c.colluders, 1, 1
		rate := math.Min(1, float64(c.k)/float64(c.n-c.colluders))
		mu := 2.
		delta := func(eps float64) float64 {
			// The sampled law is the larger one above a threshold of the loss.
			x := math.Log((math.Exp(eps)-1+rate)/rate)/mu + mu/2
			return rate*tail.UpperNormal(x-mu) + (1-rate-math.Exp(eps))*tail.UpperNormal(x)
		}
		got := epsOf(t, q)
		if at := delta(got); !(at <= q.Delta*(1+1e-6)) || !(delta(got*.99) > q.Delta) {
			t.Errorf("%+v: epsilon = %v, where delta is %v", c, got, at)
		}
	}
}

// Check-in: each client comes by its own coin, and how many come is seen.
func TestCheckInToNoiseOfASum(t *testing.T) {
	q := sumQuery(10)
	q.Participation, q.Gamma, q.Rounds, q.Sigma = dp.CheckIn, .2, 1, 1
	got := epsOf(t, q)
	exact := 0.
	for k := 1.; k <= 10; k++ {
		rate, mu := k/10, 2.
		chance := math.Exp(lchoose(10, k)) * math.Pow(.2, k) * math.Pow(.8, 10-k)
		x := mu / 2
		if rate < 1 {
			x += math.Log((math.Exp(got)-1+rate)/rate) / mu
		} else {
			x += got / mu
		}
		exact += chance * (rate*tail.UpperNormal(x-mu) + (1-rate-math.Exp(got))*tail.UpperNormal(x))
	}
	if !(exact <= q.Delta) || !(exact > .9*q.Delta) {
		t.Errorf("epsilon = %v, where the exact delta is %v of %v", got, exact, q.Delta)
	}
	// Colluders come or not as they like: only the other clients' coins hide.
	q.Colluders = 5
	if with := epsOf(t, q); !(with >= got) {
		t.Errorf("with colluders epsilon = %v, without %v", with, got)
	}
}

func lchoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

func TestNoiseOfASumRefusals(t *testing.T) {
	for want, change := range map[string]func(*Query){
		"no noise of their own":    func(q *Query) { q.Trust = dp.Shuffle },
		"gaussian-sum have no":     func(q *Query) { q.Trust = dp.Local },
		"adjacency remove is not":  func(q *Query) { q.Adjacency, q.Participation, q.Gamma = dp.AddRemoveOne, dp.CheckIn, .1 },
		"eps0 = 1 given for class": func(q *Query) { q.Eps0 = 1 },
		"sigma = 0 must be above":  func(q *Query) { q.Sigma = 0 },
	} {
		q := sumQuery(100)
		change(&q)
		if _, err := Answer(context.Background(), q, "best"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	r, err := Answer(context.Background(), sumQuery(100), "all")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range r.Bounds {
		switch l.Method {
		case "gauss-pld", "gauss-rdp", "gauss-strong":
			if !l.Applies || l.Eps < r.Upper.Eps {
				t.Errorf("%s: %+v", l.Method, l)
			}
		default:
			if l.Applies {
				t.Errorf("%s answers, which is about other noise: %+v", l.Method, l.Bound)
			}
		}
	}
}

func aggregatedQuery() Query {
	q := sumQuery(1000)
	q.Trust, q.Class, q.NoiseBy, q.Sum.Dim, q.Sigma = "", VectorSumClass, vecsum.ByAggregators, 50, 20
	return q
}

// A vector sum with aggregators' noise costs what sums with that Gaussian noise cost, within what
// the rounding of the noise takes; the search for its noise keeps the target.
func TestVectorSumOfAggregators(t *testing.T) {
	for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
		q, g := aggregatedQuery(), sumQuery(1000)
		g.Sigma, g.Participation, q.Participation = q.Sigma, p, p
		switch p {
		case dp.Sampled:
			q.Reports, g.Reports, q.Colluders, g.Colluders = 100, 100, 20, 20
		case dp.Once:
			q.Reports, g.Reports = 100, 100
		case dp.CheckIn:
			q.Gamma, g.Gamma = .1, .1
		}
		want, got := epsOf(t, g), epsOf(t, q)
		if got < want*(1-1e-8) || got > want*1.0001 {
			t.Errorf("%s: epsilon = %v, of Gaussian noise %v", p, got, want)
		}
		back := q
		back.Delta, back.AskDelta, back.Eps = 0, true, got
		r, err := Answer(context.Background(), back, "best")
		if err != nil || r.Upper == nil || r.Upper.Delta < q.Delta*.98 || r.Upper.Delta > q.Delta*1.06 {
			t.Errorf("%s: delta at %v: %+v, %v", p, got, r.Upper, err)
		}
		if q.Participation == dp.Once || q.Participation == dp.CheckIn && !longtest.On {
			continue
		}
		q.Sigma = 0
		planned, reply, err := Plan(context.Background(), got, q, "sigma")
		if err != nil || reply.Upper.Eps > got || planned.Sigma < 20*.999 || planned.Sigma > 20*1.005 {
			t.Errorf("%s: planned %+v, %+v, %v", p, planned.Sigma, reply.Upper, err)
		}
	}
}

func TestVectorSumOfAggregatorsRefusals(t *testing.T) {
	for want, change := range map[string]func(*Query){
		"are of noise that clients add":       func(q *Query) { q.Sum.MinUsers = 10 },
		"with noise-by aggregators give":      func(q *Query) { q.Sum.Honest = .5 },
		"noise-by \"me\" must be":             func(q *Query) { q.NoiseBy = "me" },
		"dim = 0 must lie":                    func(q *Query) { q.Sum.Dim = 0 },
		"sigma = 0 must be":                   func(q *Query) { q.Sigma = 0 },
		"noise-by aggregators goes with clas": func(q *Query) { q.Class, q.Sum.Dim, q.Trust = dp.GaussianSum, 0, dp.Distributed },
		"trust shuffle: of a vector sum":      func(q *Query) { q.Trust = dp.Shuffle },
	} {
		q := aggregatedQuery()
		change(&q)
		if err := q.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// So little noise has no bound.
	q := aggregatedQuery()
	q.Sigma, q.Rounds = .5, 100
	if r, err := Answer(context.Background(), q, "all"); err != nil || r.Upper != nil {
		t.Errorf("%+v, %v", r.Upper, err)
	}
	if _, _, err := Plan(context.Background(), 1, aggregatedQuery(), "noise"); err == nil {
		t.Error("noise of clients was planned")
	}
	// The document of an answer asks the same again.
	r, err := Answer(context.Background(), aggregatedQuery(), "best")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(r.Document().Query)
	if err != nil {
		t.Fatal(err)
	}
	d, err := ParseDocumentQuery(text)
	if err != nil {
		t.Fatal(err)
	}
	again, err := new(Accountant).Ask(context.Background(), d, "best", nil)
	if err != nil || again.Upper.Eps != r.Upper.Eps {
		t.Errorf("%s: %+v, %v", text, again.Upper, err)
	}
}

// Rounds of different sizes cost what as many equal ones do; where nobody knows who is there a round costs more than where all
// who are drawn come, and less than one to which all come.
func TestRoundsOfASumInALedger(t *testing.T) {
	round := func(p dp.Participation, n, k, least int64) dp.Event {
		return dp.Round{Report: dp.Report{Class: dp.GaussianSum, Sigma: 8}, Trust: dp.Distributed, Participation: p, Population: n, Reports: k, Least: least}
	}
	eps := func(events ...dp.Event) float64 {
		t.Helper()
		b, err := new(Accountant).Eps(dp.Sequence(events), 1e-6)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eps
	}
	want := gdp.Mu(2. / 8 * math.Sqrt(3)).Epsilon(1e-6)
	if got := eps(round(dp.All, 3, 3, 0), round(dp.All, 1000, 1000, 0), round(dp.All, 5e6, 5e6, 0)); math.Abs(got-want) > 1e-8*want {
		t.Errorf("epsilon = %v, want %v", got, want)
	}
	one, last := gdp.Mu(2./8).Epsilon(1e-6), eps(round(dp.Sampled, 1000, 100, 0))
	for _, least := range []int64{100, 90, 50, 2, 1} {
		got := eps(round(dp.Sampled, 1000, 100, least))
		if !(got >= last*(1-1e-3) && got <= one*(1+1e-3)) {
			t.Errorf("n-min = %d: epsilon = %v, of more %v, of all who are there %v", least, got, last, one)
		}
		last = got
	}
}

package measure

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// askings are a question of each kind, and what is true of the table of people.
var askings = []struct {
	asked Asked
	of    func(statistic.Answer) statistic.Number
	truth float64
}{
	{Asked{Measure: "count", Where: "age<25"}, func(a statistic.Answer) statistic.Number { return *a.Count }, 1500},
	{Asked{Measure: "mean", Column: "age", Range: "0..100"}, func(a statistic.Answer) statistic.Number { return *a.Mean }, 49.5},
	{Asked{Measure: "variance", Column: "age", Range: "0..100", Everyone: true}, func(a statistic.Answer) statistic.Number { return *a.Variance }, 833.25},
	{Asked{Measure: "histogram", Column: "city", Categories: "berlin|*"}, func(a statistic.Answer) statistic.Number {
		return statistic.Number{Value: a.Bins[0].Count, Interval: a.Bins[0].Interval}
	}, 2000},
	{Asked{Measure: "quantiles", Column: "age", Range: "0..100", Ranks: "0.5", Levels: 6}, func(a statistic.Answer) statistic.Number {
		return statistic.Number{Value: a.Quantiles[0].Value, Interval: a.Quantiles[0].Interval}
	}, 50},
}

// Without sums: every mode that has a mechanism answers near the truth, within its budget and all
// but the whole of it.
func TestSingleMessagesAnswer(t *testing.T) {
	path := people(t, 6000)
	for _, ask := range askings {
		for _, c := range []Config{{Trust: dp.Shuffle}, {Trust: dp.Local, Epsilon: 3}, {Trust: dp.Central}, {Trust: dp.Shuffle, Sample: 4000, MinReports: 3000}} {
			if !longtest.On && c.Trust == dp.Shuffle && (c.Sample > 0 || ask.asked.Measure != "histogram") {
				continue // their plans take a second each
			}
			p, rows := plan(t, path, ask.asked, c)
			if !(p.Cost.Eps <= p.Epsilon && p.Cost.Eps > .98*p.Epsilon) {
				t.Errorf("%s, %+v: cost %v of %v", ask.asked.Measure, c, p.Cost.Eps, p.Epsilon)
			}
			r, err := p.Run(context.Background(), RunConfig{Rows: rows, Seed: 4})
			if err != nil {
				t.Fatalf("%s, %+v: %v", ask.asked.Measure, c, err)
			}
			n := ask.of(r.Answer)
			wide := n.High95 - n.Low95
			if !(math.Abs(n.Value-ask.truth) < 3*wide+2 && wide > 0 && wide < ask.truth) || r.Spent.Eps > p.Epsilon || r.Spent.Eps <= 0 {
				t.Errorf("%s, %+v: %+v, want %v; spent %v", ask.asked.Measure, c, n, ask.truth, r.Spent.Eps)
			}
			t.Logf("%s, %s: %v in %v..%v, %T, spent %v", ask.asked.Measure, c.Trust, n.Value, n.Low95, n.High95, p.Mechanism, r.Spent.Eps)
			task, err := p.Task("a", [16]byte{1})
			if local := c.Trust == dp.Central; local != (err != nil) {
				t.Errorf("%s, %s: a task %+v, %v", ask.asked.Measure, c.Trust, task, err)
			} else if err == nil && (task.Trust != c.Trust || task.Mechanism.Name != "krr") {
				t.Errorf("%s, %s: task %+v", ask.asked.Measure, c.Trust, task)
			}
		}
	}
}

// Modes without a mechanism are refused, and say what to use.
func TestSingleMessagesRefuse(t *testing.T) {
	q, err := (Asked{Measure: "count", Where: "age<25"}).Question()
	if err != nil {
		t.Fatal(err)
	}
	for _, asked := range []Asked{{Measure: "heavy-hitters", Column: "city", Longest: 4}, {Measure: "linear-regression", Column: "height", Features: "age=0..100", Range: "0..200"}} {
		q, err := asked.Question()
		if err != nil {
			t.Fatal(err)
		}
		for _, trust := range []dp.Trust{dp.Shuffle, dp.Local} {
			_, err := New(context.Background(), Config{Question: q, Trust: trust, Epsilon: 1, Delta: 1e-5, Clients: 1000})
			if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), "no mechanism answers "+asked.Measure) || !strings.HasSuffix(err.Error(), "use trust vector-sum") {
				t.Errorf("%s, trust %s: %v", asked.Measure, trust, err)
			}
		}
	}
	for want, c := range map[string]Config{
		"protects nobody":                   {Trust: dp.None},
		"nobody but each client adds noise": {Trust: dp.Shuffle, NoiseBy: vecsum.ByAggregators},
		"nobody but the curator adds noise": {Trust: dp.Central, NoiseBy: vecsum.ByClients},
		"cannot be planned for":             {Trust: dp.Shuffle, Epsilon: 1e-5},
	} {
		c.Question, c.Clients, c.Delta = q, 100, 1e-5
		if c.Epsilon == 0 {
			c.Epsilon = 1
		}
		if _, err := New(context.Background(), c); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
}

package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/statistic"
	roles "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// networked answers a task's question as a network does: each client has agreed to the terms,
// reads its own row and draws its own noise, two aggregators sum its shares, and the coordinator keeps
// what they add up to.
func networked(t *testing.T, p *Plan, w wire.Task, terms *roles.Terms, data string, seed uint64) statistic.Answer {
	t.Helper()
	id := wire.Digest(w)
	c, err := p.Coordinator()
	if err != nil {
		t.Fatal(err)
	}
	c.Task = id
	if c.Ledger, err = ledger.New(p.Limit); err != nil {
		t.Fatal(err)
	}
	co, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	digest := wire.Digest(co.Announce())
	shares, err := p.Mechanism.(*mechanism.VectorSum).Shares(digest)
	if err != nil {
		t.Fatal(err)
	}
	local := &Local{Data: data}
	reporter := terms.Reporter.ForRound(digest)
	one, err := shares.NewAggregator(0)
	if err != nil {
		t.Fatal(err)
	}
	two, err := shares.NewAggregator(1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range p.Clients {
		encode, err := LocalClient{local, i}.Open(w)
		if err != nil {
			t.Fatal(err)
		}
		src := rng.Replay(seed, uint64(i))
		x, report := make([]float32, w.Mechanism.Dim), reporter.NewReport()
		encode(co.Parameters, x)
		reporter.Report(src, x, report)
		part, share, err := mechanism.Contents(src, terms.Mechanism, digest, report)
		if err != nil {
			t.Fatal(err)
		}
		if err := one.Add(part); err != nil {
			t.Fatal(err)
		}
		if err := two.Add(share); err != nil {
			t.Fatal(err)
		}
	}
	first, err := one.Close()
	if err != nil {
		t.Fatal(err)
	}
	second, err := two.Close()
	if err != nil {
		t.Fatal(err)
	}
	counts, n, err := shares.Combine(first, second)
	if err != nil {
		t.Fatal(err)
	}
	if err := co.Receive(t.Context(), wire.RoundClosed{Announcement: digest, Round: 1, Reports: n, Digest: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	tally, err := co.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	if err := tally.AddSum(counts, n); err != nil {
		t.Fatal(err)
	}
	if _, _, err := co.End(tally); err != nil {
		t.Fatal(err)
	}
	a, err := p.AnswerOf(co.State().Optimizer)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// farthest is the largest difference of the empirical distributions of two samples.
func farthest(a, b []float64) (most float64) {
	all := slices.Concat(a, b)
	for _, x := range all {
		share := func(s []float64) float64 {
			n := 0
			for _, v := range s {
				if v <= x {
					n++
				}
			}
			return float64(n) / float64(len(s))
		}
		most = max(most, math.Abs(share(a)-share(b)))
	}
	return most
}

func variance(s []float64) (v float64) {
	mean := 0.
	for _, x := range s {
		mean += x / float64(len(s))
	}
	for _, x := range s {
		v += (x - mean) * (x - mean) / float64(len(s))
	}
	return v
}

// TestTasksHaveTheLawOfTheCommand: a question over a network has the mechanism, the estimator and the
// intervals of riffle measure, and its answers have the same distribution.
func TestTasksHaveTheLawOfTheCommand(t *testing.T) {
	const n = 30
	data := people(t, n)
	reps := longtest.Pick3(400, 800, 2000)
	for _, a := range []Asked{
		{Measure: "histogram", Column: "city", Categories: "berlin|paris|*"},
		{Measure: "mean", Column: "age", Range: "0..100", Everyone: true},
	} {
		asked := TaskConfig{Asked: a}
		asked.Fields().Reset()
		asked.Asked, asked.NMin = a, n
		p, err := asked.Plan(t.Context(), Enrolled{Clients: n, MinReports: 2})
		if err != nil {
			t.Fatal(err)
		}
		command, rows := plan(t, data, a, Config{})
		w, err := p.Task("ages", wire.ID{7})
		if err != nil {
			t.Fatal(err)
		}
		same, err := command.Task("ages", wire.ID{7})
		if err != nil || wire.Digest(w) != wire.Digest(same) || math.Abs(p.Cost.Eps-command.Cost.Eps) > 1e-9 {
			t.Errorf("%s: the task is %+v (%v), the command's %+v", a.Measure, w, err, same)
		}
		if p, err = OpenTask(w, p.Stored()); err != nil {
			t.Fatal(err)
		}
		terms, err := roles.Policy{MaxEps0: 20, MaxEps: 50, Delta: 1e-3, MinReports: 2}.Agree(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		var far, near []float64
		wide := func(a statistic.Answer) (x statistic.Interval, v float64) {
			if a.Mean != nil {
				return a.Mean.Interval, a.Mean.Value
			}
			return a.Bins[0].Interval, a.Bins[0].Count
		}
		var widths [2]float64
		for seed := range reps {
			x := networked(t, p, w, terms, data, uint64(seed)+1e6)
			y, err := command.Run(t.Context(), RunConfig{Rows: rows, Seed: uint64(seed)})
			if err != nil {
				t.Fatal(err)
			}
			i, v := wide(x)
			j, u := wide(y.Answer)
			far, near = append(far, v), append(near, u)
			widths[0], widths[1] = i.High95-i.Low95, j.High95-j.Low95
			if x.Reports != n || x.Clients != n {
				t.Fatalf("%d reports of %d", x.Reports, x.Clients)
			}
		}
		if math.Abs(widths[0]/widths[1]-1) > 1e-9 {
			t.Errorf("%s: intervals are %v wide, the command's %v", a.Measure, widths[0], widths[1])
		}
		// The logarithm of the ratio of two samples' variances is about normal.
		if r := math.Log(variance(far) / variance(near)); !(math.Abs(r) < 5*math.Sqrt(4/float64(reps))) {
			t.Errorf("%s: the variance is %v, the command's %v", a.Measure, variance(far), variance(near))
		}
		// Two samples of one law are farther apart than this with a chance of 1e-6 (Smirnov).
		limit := math.Sqrt(math.Log(2e6) / 2 * 2 / float64(reps))
		if d := farthest(far, near); d > limit {
			t.Errorf("%s: distributions differ by %.3f, at most %.3f are luck", a.Measure, d, limit)
		} else {
			t.Logf("%s: distributions differ by %.3f, limit %.3f", a.Measure, d, limit)
		}
	}
}

// TestOpenTaskTakesItsOwn: what is stored beside a task opens it to the same plan, and what contradicts
// it is refused.
func TestOpenTaskTakesItsOwn(t *testing.T) {
	var c TaskConfig
	c.Fields().Reset()
	c.Measure, c.Column, c.Bins = "histogram", "age", "0..100:4"
	p, err := c.Plan(t.Context(), Enrolled{Clients: 500, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	if want := account.Surely(500, .9); p.MinReports != want {
		t.Errorf("n-min %d, want %d, which surely come", p.MinReports, want)
	}
	w, err := p.Task("ages", wire.ID{7})
	if err != nil {
		t.Fatal(err)
	}
	again, err := OpenTask(w, p.Stored())
	if err != nil {
		t.Fatal(err)
	}
	cost, err := again.Planned(t.Context())
	if err != nil || cost.Eps > p.Epsilon || math.Abs(cost.Eps-p.Cost.Eps) > 1e-6 {
		t.Errorf("it costs %+v (%v), planned was %+v", cost, err, p.Cost)
	}
	if !reflect.DeepEqual(again.Mechanism.Event(), p.Mechanism.Event()) || again.MinReports != p.MinReports || again.Clients != 500 || again.Limit.Tail != p.Limit.Tail || again.Limit.MaxEps != 1 {
		t.Errorf("opened %+v, want %+v", again, p)
	}
	training := w
	training.Config = []byte("config: {}\n")
	other := w
	other.ModelDim = 3
	drawn := w
	drawn.Participation = "sampled"
	var s map[string]any
	if err := json.Unmarshal(p.Stored(), &s); err != nil {
		t.Fatal(err)
	}
	with := func(key string, v any) []byte {
		out := map[string]any{key: v}
		for k, v := range s {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	for name, bad := range map[string]struct {
		w      wire.Task
		beside []byte
	}{
		"a training": {training, p.Stored()}, "another state": {other, p.Stored()}, "a draw": {drawn, p.Stored()}, "nothing": {w, nil}, "two": {w, slices.Concat(p.Stored(), p.Stored())},
		"another trust": {w, with("trust", "shuffle")}, "no epsilon": {w, with("epsilon", 0)}, "no clients": {w, with("clients", 0)}, "more": {w, with("more", 1)}, "a sample": {w, with("sample", 20)},
	} {
		if _, err := OpenTask(bad.w, bad.beside); err == nil {
			t.Errorf("opened with %s", name)
		}
	}
	for trust, want := range map[string]string{"central": "choose shuffle, local or vector-sum", "none": "choose shuffle, local or vector-sum", "distributed": "use trust vector-sum",
		"hope": `"hope": tasks ask questions with shuffle, local or vector-sum`} {
		c := c
		err := c.Fields().Parse([]byte("trust: "+trust), nil)
		if err == nil {
			_, err = c.Plan(t.Context(), Enrolled{Clients: 500, MinReports: 2})
		}
		if !errors.Is(err, ErrInput) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("trust %s over a network: %v, want %q", trust, err, want)
		}
	}
	for text, want := range map[string]bool{"measure: mean\n": true, "model: linear\n": false, "": false, ":": false, "column: measure\n": false, fmt.Sprintf("%q", "measure: x"): false} {
		if Asks([]byte(text)) != want {
			t.Errorf("%q asks: %v", text, !want)
		}
	}
}

// Clients may decline a question, so those who stay away are no chance: fewer reports than were asked for
// are charged as if no others had been asked.
func TestDeclinedQuestionsAreCharged(t *testing.T) {
	q, err := Asked{Measure: "histogram", Column: "age", Bins: "0..100:4"}.Question()
	if err != nil {
		t.Fatal(err)
	}
	for _, trust := range []dp.Trust{dp.Shuffle, dp.VectorSum} {
		p, err := New(t.Context(), Config{Question: q, Trust: trust, Epsilon: 1, Delta: 1e-5, Clients: 1000, MinReports: 500})
		if err != nil {
			t.Fatal(err)
		}
		c, err := p.Coordinator()
		if err != nil {
			t.Fatal(err)
		}
		if c.Ledger, err = ledger.New(p.Limit); err != nil {
			t.Fatal(err)
		}
		co, err := coordinator.New(c)
		if err != nil {
			t.Fatal(err)
		}
		e, _, err := co.Planned()
		if want := (dp.Round{Report: c.Report, Trust: trust.Recorded(), Participation: dp.All, Population: 500}); err != nil || e.Event != want {
			t.Errorf("%s: 500 of 1000 are charged as %+v, %v; want %+v", trust, e.Event, err, want)
		}
		cost, err := p.Limit.Eps(dp.Sequence{e.Charged()})
		if err != nil || cost.Eps < .95*p.Cost.Eps || cost.Eps > 1 {
			t.Errorf("%s: they cost %v, %v, planned was %v", trust, cost.Eps, err, p.Cost.Eps)
		}
	}
}

package train

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// blobs writes a table of n rows of two classes that a line tells apart, but for one in ten.
func blobs(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("x,y,side\n")
	src := rng.Replay(3)
	for range n {
		v := src.Uint64()
		x, y := float64(v&1023)/1023, float64(v>>10&1023)/1023
		side := "no"
		if (x > y) != (v>>20%10 == 0) {
			side = "yes"
		}
		text, _ := json.Marshal([]float64{x, y})
		b.WriteString(strings.Trim(string(text), "[]") + "," + side + "\n")
	}
	path := filepath.Join(t.TempDir(), "blobs.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func measuring(t *testing.T, n int, settings string) Config {
	t.Helper()
	c := Default()
	if err := c.Parse([]byte("data: " + blobs(t, n) + "\nlabel: side\nclasses: no|yes\nrange: \"*=0..1\"\ntrust: vector-sum\nepsilon: 1\nevaluate: private\n" + settings)); err != nil {
		t.Fatal(err)
	}
	return c
}

// A task with private evaluation is charged what it is charged without: the same events, and as much
// in all. The intervals hold the truth, which is computed from the held-out rows; rows that are held out
// do not change the gradient; the model that is released last is the one that was measured last.
func TestPrivateEvaluationCostsNothingMore(t *testing.T) {
	ctx := context.Background()
	c := measuring(t, 8000, "rounds: 12\n")
	r, err := Prepare(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	s, err := r.Train(ctx, Observer{})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(r.Charged); n != 12 {
		t.Errorf("%d rounds are charged", n)
	}
	if !(s.Epsilon <= 1 && s.Epsilon > .99) {
		t.Errorf("epsilon %v", s.Epsilon)
	}
	m := s.Private
	if m == nil || m.Accuracy == nil || m.Held {
		t.Fatalf("measured %+v", m)
	}
	// The truth, over clients: each has one row.
	theta, answer, scratch := r.Theta(), answers(r.Data.Train), r.Model.NewScratch()
	var held, loss, right float64
	is := make([]bool, 1)
	for id := range r.clients.population.Clients {
		if r.clients.heldOut.of(id, is); is[0] {
			row := r.clients.population.Example(id, 0)
			l, ok := r.Model.Judge(theta, r.Data.Train.Row(row), answer(row), scratch)
			held, loss = held+1, loss+min(l, m.LossLimit)
			if ok {
				right++
			}
		}
	}
	inside := func(what string, low, high, truth float64) {
		if !(low <= truth && truth <= high && high-low < .5*math.Max(1, truth)*2) {
			t.Errorf("%s: %v … %v, truth %v", what, low, high, truth)
		}
	}
	inside("accuracy", m.Accuracy.JointLow95, m.Accuracy.JointHigh95, right/held)
	inside("loss", m.Loss.JointLow95, m.Loss.JointHigh95, loss/held)
	inside("clients", m.Clients.JointLow95, m.Clients.JointHigh95, held)
	t.Logf("accuracy %+v, truth %v", *m.Accuracy, right/held)
	// Without evaluation the same events are charged, of the same class, for as many reports.
	plain := c
	plain.Evaluate = ""
	p, err := Prepare(ctx, plain)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Create(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Train(ctx, Observer{}); err != nil {
		t.Fatal(err)
	}
	for i, e := range r.Charged {
		a, b := e.Event, p.Charged[i].Event
		if math.Abs(a.Report.Sigma/b.Report.Sigma-1) > 1e-3 {
			t.Errorf("round %d: sigma %v and %v", i, a.Report.Sigma, b.Report.Sigma)
		}
		if a.Report.Sigma, b.Report.Sigma = 0, 0; a != b {
			t.Errorf("round %d is charged %+v, without evaluation %+v", i, a, b)
		}
	}
}

// A client's report depends on nothing but its rows, and each part on its own rows only.
func TestHeldOutRowsAreNeverTrainedOn(t *testing.T) {
	c := measuring(t, 2000, "rounds: 5\nexamples-per-client: 5\nholdout: 0.4\n")
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	p, table := r.clients.population, r.Data.Train
	all := func(c clients) (all []bool) { // client after client
		for id := range p.Clients {
			own := make([]bool, p.PerClient)
			c.heldOut.of(id, own)
			all = append(all, own...)
		}
		return all
	}
	held := all(r.clients)
	count := func(held []bool) (n float64) {
		for _, is := range held {
			if is {
				n++
			}
		}
		return n
	}
	if share := count(held) / float64(len(held)); math.Abs(share-.4) > .08 {
		t.Errorf("%v of the rows are held out", share)
	}
	params := r.Model.Params
	report := func(id int64) []float32 {
		x := make([]float32, r.Config.width(r.Model))
		theta := make([]float32, params)
		for j := range theta {
			theta[j] = float32(j%3) / 2
		}
		r.clients.worker()(id, theta, x)
		return x
	}
	length := func(x []float32) (sum float64) {
		for _, v := range x {
			sum += float64(v) * float64(v)
		}
		return math.Sqrt(sum)
	}
	var nobody, nothing bool
	for id := range p.Clients {
		before := report(id)
		if l := length(before); l > r.Config.Clip*(1+1e-6) {
			t.Fatalf("client %d sends a report of length %v, the clip is %v", id, l, r.Config.Clip)
		}
		rows := map[bool][]int{}
		for i := range p.PerClient {
			is := held[int(id)*p.PerClient+i]
			rows[is] = append(rows[is], p.Example(id, i))
		}
		if len(rows[true]) == 0 {
			nobody = true
			if length(before[params:]) != 0 {
				t.Errorf("client %d measures %v without rows", id, before[params:])
			}
		}
		if len(rows[false]) == 0 {
			nothing = true
			if length(before[:params]) != 0 {
				t.Errorf("client %d has the gradient %v without rows", id, before[:params])
			}
		}
		for is, of := range rows {
			saved := slices.Clone(table.X)
			for _, row := range of { // other values in all rows of one part
				for j := range table.Row(row) {
					table.X[row*table.Dim+j] = 1 - table.X[row*table.Dim+j]
				}
			}
			after := report(id)
			copy(table.X, saved)
			if is && !slices.Equal(before[:params], after[:params]) || !is && !slices.Equal(before[params:], after[params:]) {
				t.Fatalf("client %d: held-out rows %v change the gradient, or others what is measured", id, is)
			}
		}
	}
	if !nobody || !nothing {
		t.Log("all clients have rows of both parts")
	}
	// The order of a client's rows changes nothing.
	again := *table
	again.X, again.Y = slices.Clone(table.X), slices.Clone(table.Y)
	put := func(at, row int) {
		copy(again.X[at*table.Dim:(at+1)*table.Dim], table.Row(row))
		again.Y[at] = table.Y[row]
	}
	for id := range p.Clients {
		for i := range p.PerClient {
			put(p.Example(id, i), p.Example(id, p.PerClient-1-i))
		}
	}
	other := r.clients
	other.heldOut = r.Config.heldOut(&again, p)
	turned := all(other)
	for id := range int(p.Clients) {
		a, b := held[id*p.PerClient:(id+1)*p.PerClient], slices.Clone(turned[id*p.PerClient:(id+1)*p.PerClient])
		if slices.Reverse(b); !slices.Equal(a, b) {
			t.Fatalf("client %d holds out %v, %v in another order", id, a, b)
		}
	}
	// Equal rows are held out one by one, not all or none. What other clients have changes nothing, also
	// if it is equal.
	n := table.Len()
	for i := range n {
		put(i, p.Example(0, 0))
	}
	other.heldOut = r.Config.heldOut(&again, p)
	equal := all(other)
	if k := count(equal); math.Abs(k/float64(n)-.4) > .08 {
		t.Errorf("%v of %d equal rows are held out", k, n)
	}
	for i := range p.PerClient {
		put(p.Example(0, i), p.Example(7, i))
	}
	other.heldOut = r.Config.heldOut(&again, p)
	if !slices.Equal(all(other)[p.PerClient:], equal[p.PerClient:]) {
		t.Error("the rows of client 0 decide which rows others hold out")
	}
}

// evaluatedLearner returns a learner of 30 rounds, and a function that gives it a round of 4,000
// reports in which clients have measured an accuracy, with noise if wanted.
func evaluatedLearner(t *testing.T, guard string) (*evaluated, func(e *evaluated, gradient, accuracy float64) error) {
	t.Helper()
	c := measuring(t, 5000, "rounds: 30\n")
	c.Guard = guard
	r, err := Prepare(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	e := r.learner.(*evaluated)
	n := r.Config.Population
	return e, func(e *evaluated, gradient, accuracy float64) error {
		mean := make([]float64, e.params+3)
		for j := range e.params {
			mean[j] = gradient
		}
		u := e.what.Length / math.Sqrt(3)
		mean[e.params], mean[e.params+1], mean[e.params+2] = .2*u, 0, .2*u*(2*accuracy-1)
		return e.StepOf(mean, n)
	}
}

func TestGuardOfPrivateEvaluation(t *testing.T) {
	e, round := evaluatedLearner(t, "accuracy:0.05")
	good := func(accuracy float64) {
		t.Helper()
		if err := round(e, .01, accuracy); err != nil || e.Held() != "" {
			t.Fatalf("%v %s", err, e.Held())
		}
	}
	good(.5)
	good(.9)
	before := e.State()
	v, err := e.answer(0)
	if err != nil {
		t.Fatal(err)
	}
	wide := v.Accuracy.High95 - v.Accuracy.Low95
	t.Logf("an interval is %v wide", wide)
	good(.9 - .05) // no more than allowed
	good(.9 - .05 - wide/2)
	point := slices.Clone(e.Point())
	if err := round(e, .01, .9-.05-3*wide); err != nil || e.Held() == "" {
		t.Fatalf("%v: a fall of more than the noise explains is not held back", err)
	}
	// The best measured model is back: the one that was published before the round that measured .9.
	again, _ := evaluatedLearner(t, "accuracy:0.05")
	if err := again.Restore(before); err != nil {
		t.Fatal(err)
	}
	if slices.Equal(e.Point(), point) || !slices.Equal(e.Point(), pointOf(t, again, *again.at)) {
		t.Error("the model is not the best measured one")
	}
	good(.9)
	// The last round takes no step: its model is released as it was measured.
	for e.taken < e.rounds-1 {
		good(.9)
	}
	last := slices.Clone(e.Point())
	good(.9)
	out := make([]float64, e.params)
	e.Model(out)
	if !slices.Equal(e.Point(), last) || !slices.Equal(out, last) {
		t.Error("the last round changed the model")
	}
}

func pointOf(t *testing.T, e *evaluated, s optimize.State) []float64 {
	t.Helper()
	if err := e.inner.Restore(s); err != nil {
		t.Fatal(err)
	}
	return slices.Clone(e.inner.Point())
}

// Noise alone takes no model back, but in few tasks: here each round's measure has the noise of the
// mechanism, at one truth.
func TestGuardWithNoise(t *testing.T) {
	e, round := evaluatedLearner(t, "accuracy:0.001")
	start := e.State()
	src, n := rng.Replay(11), e.clients
	if err := round(e, 0, .5); err != nil {
		t.Fatal(err)
	}
	v, err := e.answer(0)
	if err != nil {
		t.Fatal(err)
	}
	sd := (v.Clients.High95 - v.Clients.Low95) / 2 / 1.96 * e.what.Length / math.Sqrt(3)
	tasks, held := 200, 0
	for range tasks {
		if err := e.Restore(start); err != nil {
			t.Fatal(err)
		}
		for range 29 {
			mean := make([]float64, e.params+3)
			u := e.what.Length / math.Sqrt(3)
			for j, truth := range []float64{.2 * u, 0, .2 * u * .6} {
				mean[e.params+j] = truth + sd*normal(src)/float64(n)
			}
			if err := e.StepOf(mean, n); err != nil {
				t.Fatal(err)
			}
			if e.Held() != "" {
				held++
				break
			}
		}
	}
	// 5 % of tasks at most; the chance that more than 10 % of 200 fail is below 1e-3 at 5 %.
	t.Logf("%d of %d tasks", held, tasks)
	if held > tasks/10 {
		t.Errorf("noise alone takes back models in %d of %d tasks", held, tasks)
	}
}

func normal(src rng.Source) float64 {
	u, v := (float64(src.Uint64()>>11)+.5)/(1<<53), float64(src.Uint64()>>11)/(1<<53)
	return math.Sqrt(-2*math.Log(u)) * math.Cos(2*math.Pi*v)
}

// A restored learner is the same at every round, and takes no state that is not its own.
func TestEvaluatedRestores(t *testing.T) {
	e, round := evaluatedLearner(t, "accuracy:0.05")
	other, _ := evaluatedLearner(t, "accuracy:0.05")
	for i := range 30 {
		if err := round(e, .01, .9-.3*float64(i%4)); err != nil {
			t.Fatal(err)
		}
		if err := other.Restore(e.State()); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(other.State(), e.State()) || !slices.Equal(other.Point(), e.Point()) || other.Held() != e.Held() {
			t.Fatalf("round %d: a restored learner differs", i)
		}
		e, other = other, e
	}
	for name, change := range map[string]func(*optimize.State){
		"none":      func(s *optimize.State) { delete(s.Vectors, vectorEvaluation) },
		"short":     func(s *optimize.State) { s.Vectors[vectorEvaluation] = s.Vectors[vectorEvaluation][:5] },
		"half":      func(s *optimize.State) { s.Vectors[vectorEvaluation][0] = .5 },
		"no best":   func(s *optimize.State) { s.Vectors[vectorEvaluation] = s.Vectors[vectorEvaluation][:7] },
		"no rounds": func(s *optimize.State) { s.Steps = 0 },
	} {
		s := e.State()
		change(&s)
		if err := other.Restore(s); err == nil {
			t.Errorf("restored %s", name)
		}
	}
}

// A run that is stopped between any two rounds and resumed is bit-equal.
func TestEvaluatedRunResumes(t *testing.T) {
	ctx := context.Background()
	c := measuring(t, 1500, "rounds: 6\nguard: accuracy:0.2\ncheckpoint-every: 1\neval-every: 1\n")
	whole := t.TempDir()
	r, err := Prepare(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Create(whole); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Train(ctx, Observer{}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if r, err = Prepare(ctx, c); err != nil {
		t.Fatal(err)
	}
	if err := r.Create(dir); err != nil {
		t.Fatal(err)
	}
	for {
		stopped, stop := context.WithCancel(ctx)
		if _, err = r.Train(stopped, Observer{Evaluated: func(Metrics) { stop() }}); err == nil {
			break
		}
		stop()
		if r, err = Resume(ctx, dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	a, err := os.ReadFile(filepath.Join(whole, ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, ModelFile))
	if err != nil {
		t.Fatal(err)
	}
	if string(a) != string(b) {
		t.Error("the models differ")
	}
}

func TestEvaluateRefusals(t *testing.T) {
	for want, settings := range map[string]string{
		"trust":      "trust: shuffle\nepsilon: 0.5\n",
		"needs 2":    "rounds: 1\n",
		"adam":       "optimizer: sgd\n",
		"loss-limit": "loss: absolute\nmodel: linear\nlabel: x\nclasses: \"\"\n",
	} {
		c := measuring(t, 200, "rounds: 5\n")
		err := c.Parse([]byte(settings))
		if err == nil {
			_, err = Prepare(context.Background(), c)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", settings, err, want)
		}
	}
	c := measuring(t, 200, "rounds: 5\n")
	c.Evaluate, c.Holdout = "", .3
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), "go with evaluate") {
		t.Errorf("holdout without evaluate: %v", err)
	}
	c.Guard, c.Holdout = "accuracy:0.1", 0
	if _, err := Prepare(context.Background(), c); err == nil || !strings.Contains(err.Error(), "guard") {
		t.Errorf("guard without evaluate: %v", err)
	}
}

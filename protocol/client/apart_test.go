package client_test

import (
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// apartTask is a task whose clients send correlated noise apart, of which that of 7 of any 10 is relied on.
func apartTask(t testing.TB) (wire.Task, *mechanism.AggregatedSum) {
	t.Helper()
	s := toeplitz.Strategy{Bits: 2, Weights: []int64{4, 2}}
	p, err := vecsum.NewCorrelatedByClients(100, 10, .7, 1, 1, 9, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(50)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 20)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Task{Name: "sums", Trust: dp.Distributed, Participation: dp.CheckIn, Every: 5, MinReports: 10, Rounds: 50, Delta: 1e-5, Mechanism: m.Describe()}, m
}

// A client agrees to noise of others if rounds cannot be opened with fewer than those whose noise is counted, in spite
// of colluders, and what it is charged and keeps of δ is what the mechanism says. Nothing of the task is lost on the way.
func TestNoiseApartIsAgreedTo(t *testing.T) {
	task, m := apartTask(t)
	sent, err := wire.Decode[wire.Task](wire.Encode(task))
	if err != nil || !reflect.DeepEqual(sent, task) {
		t.Fatalf("%+v came as %+v: %v", task, sent, err)
	}
	good := client.Policy{MaxEps: 30, Delta: 1e-5, MinReports: 1, Colluders: 3, RequireProofs: true, NoiseBy: []vecsum.NoiseBy{vecsum.ByClients}}
	terms, err := good.Agree(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	tail, err := m.Tail(task.LastRound())
	if err != nil || terms.Tail != tail || !(tail > 0) {
		t.Errorf("tail %v, want %v: %v", terms.Tail, tail, err)
	}
	// Each report is in two rows: with 1 and with 1/2.
	if got, want := terms.Charge.Report.Sigma, m.Event().Sigma/math.Sqrt(1.25); !(got <= want && got >= want*(1-1e-12)) {
		t.Errorf("charged with sigma = %v, want %v", got, want)
	}
	for want, change := range map[string]func(*wire.Task, *client.Policy){
		"rounds are opened with 9": func(w *wire.Task, _ *client.Policy) { w.MinReports = 9 },
		"no room for 4 colluders":  func(_ *wire.Task, p *client.Policy) { p.Colluders = 4 },
		"no room for 3 colluders":  func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Honest = .75 },
		"noise by clients is not":  func(_ *wire.Task, p *client.Policy) { p.NoiseBy = []vecsum.NoiseBy{vecsum.ByAggregators} },
		"the task claims":          func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Honest = .6 },
		"worth sigma":              func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Sigma *= 1.001 },
		"a client in one of 0":     func(w *wire.Task, _ *client.Policy) { w.Every = 0 },
		"a client in one of 1":     func(w *wire.Task, _ *client.Policy) { w.Every = 1 },
		`noise by "aggregators"`:   func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.NoiseBy = wire.NoiseByAggregators },
		"noise of 0 clients":       func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.MinUsers = 0 },
		"fraction = 0 must":        func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Honest = 0 },
		"needs proofs":             func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Proofs = "" },
		"participation all":        func(w *wire.Task, _ *client.Policy) { w.Participation = dp.All },
	} {
		w, p := task, good
		change(&w, &p)
		if _, err := p.Agree(t.Context(), w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

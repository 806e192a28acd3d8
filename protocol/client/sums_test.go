package client_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// provedTask is a task of n clients with one parameter whose sums have noise of the aggregators.
func provedTask(t testing.TB, n int64) (wire.Task, *mechanism.AggregatedSum) {
	t.Helper()
	p := vecsum.Aggregated{Users: n, Dim: 1, Radius: 1, Steps: 1, Bound: 2, Variance: 400}
	sigma, _, err := p.Sigma(50)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(p, sigma, n)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Task{Name: "sums", Trust: dp.Distributed, Participation: dp.Sampled, MinReports: 1, Rounds: 50, Delta: 1e-5, Mechanism: m.Describe()}, m
}

// An aggregator's noise hides a client whoever else takes part, so no rule about others stands in
// the way, and the client is charged as if it were alone.
func TestSumsWithProofsAreAgreedTo(t *testing.T) {
	task, m := provedTask(t, 9)
	for name, p := range map[string]client.Policy{
		"any":                {MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1},
		"only aggregators":   {MaxEps: 30, Delta: 1e-5, MinReports: 1, NoiseBy: []vecsum.NoiseBy{vecsum.ByAggregators}, RequireProofs: true, Trusts: []dp.Trust{dp.Distributed}},
		"or clients":         {MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1, NoiseBy: []vecsum.NoiseBy{vecsum.ByClients, vecsum.ByAggregators}},
		"in spite of others": {MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 100, Colluders: 99},
	} {
		task := task
		task.MinReports = max(1, p.MinReports)
		terms, err := p.Agree(t.Context(), task)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := dp.Round{Report: dp.Report{Class: dp.GaussianSum, Sigma: m.Event().Sigma}, Trust: dp.Distributed, Participation: dp.All, Population: 1, Reports: 1}
		tail, err := m.Tail(task.LastRound())
		if err != nil || terms.Charge != want || terms.Tail != tail || !(tail > 0) || task.LastRound() != 110 {
			t.Errorf("%s: charged %+v with tail %v, want %+v with %v: %v", name, terms.Charge, terms.Tail, want, tail, err)
		}
	}
}

// What a coordinator could say to be charged less is refused.
func TestSumsWithProofsAreNotAgreedTo(t *testing.T) {
	good, m := provedTask(t, 9)
	clients, err := vecsum.Tight(vecsum.Target{Sigma: .05, Delta: 1e-5, Users: 400, MinUsers: 300, Dim: 1, Radius: 1, Rounds: 10})
	if err != nil {
		t.Fatal(err)
	}
	sum, err := mechanism.NewVectorSum(clients, .01)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*wire.Task, *client.Policy){
		"the task claims":       func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Sigma *= 1.001 },
		"worth sigma = 9.6":     func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Variance -= 2 },
		"norm bound 2 must":     func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Steps = 2 },
		"norm bound 1 must":     func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Bound = 1 },
		`proofs "pine"`:         func(w *wire.Task, _ *client.Policy) { w.Mechanism.Sum.Proofs = "" },
		"not for trust shuffle": func(w *wire.Task, _ *client.Policy) { w.Trust = dp.Shuffle },
		"2 messages":            func(w *wire.Task, _ *client.Policy) { w.Messages = 2 },
		"delta = 0":             func(w *wire.Task, _ *client.Policy) { w.Delta = 0 },
		"tails of":              func(w *wire.Task, _ *client.Policy) { w.Delta = 1e-60 },
		"n-min = 1 is below 5":  func(_ *wire.Task, p *client.Policy) { p.MinReports = 5 },
		"noise by aggregators":  func(_ *wire.Task, p *client.Policy) { p.NoiseBy = []vecsum.NoiseBy{vecsum.ByClients} },
		"noise by clients is not": func(w *wire.Task, p *client.Policy) {
			w.Mechanism, w.MinReports = sum.Describe(), 300
			p.NoiseBy = []vecsum.NoiseBy{vecsum.ByAggregators}
		},
		"of the sum carry no proo": func(w *wire.Task, p *client.Policy) {
			w.Mechanism, w.MinReports = sum.Describe(), 300
			p.RequireProofs = true
		},
	} {
		w, p := good, client.Policy{MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1}
		change(&w, &p)
		if _, err := p.Agree(t.Context(), w); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// The round is the task's: an announcement cannot say more for the noise.
	terms, err := (client.Policy{MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1}).Agree(t.Context(), good)
	if err != nil {
		t.Fatal(err)
	}
	if err := terms.Reporter.Check(wire.Announcement{Randomizer: m.Facts().Name, Sigma: m.Event().Sigma * 1.01, Clip: 1}); err == nil {
		t.Error("an announcement with more noise was taken")
	}
	for _, p := range []client.Policy{{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 1, NoiseBy: []vecsum.NoiseBy{"others"}}} {
		if _, err := p.Check(); err == nil || !strings.Contains(err.Error(), `"others" must be by clients or aggregators`) {
			t.Error(err)
		}
	}
}

// Beyond mechanism.MostEps what the proofs may show is not counted, so the next report is refused,
// however large the client's budget.
func TestSumsWithProofsAreCountedUpToAnEpsilon(t *testing.T) {
	task, _ := provedTask(t, 9)
	task.Rounds = 1e6
	terms, err := (client.Policy{MaxEps0: 1, MaxEps: 1e6, Delta: 1e-5, MinReports: 1}).Agree(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	h, c := &client.History{}, &client.Counter{Accountant: new(account.Accountant)}
	s := h.Decide(terms.ID, 1, [32]byte{})
	for _, n := range []int64{400, 1200} {
		s.Charges = []dp.Repeat{{Event: terms.Charge, Times: n}}
		want, err := c.Accountant.Eps(dp.Repeat{Event: terms.Charge, Times: n + 1}, 1e-5)
		if err != nil {
			t.Fatal(err)
		}
		r := terms.Afford(h, c)
		if above := want.Eps > mechanism.MostEps; above != (n == 1200) || above != (r != nil) {
			t.Errorf("%d reports cost %v: %v", n, want.Eps, r)
		}
	}
}

// discreteGaussian returns P(η = k − middle).
func discreteGaussian(variance float64, middle int) []float64 {
	p, sum := make([]float64, 2*middle+1), 0.
	for k := range p {
		z := float64(k - middle)
		p[k] = math.Exp(-z * z / (2 * variance))
		sum += p[k]
	}
	for k := range p {
		p[k] /= sum
	}
	return p
}

const middle = 160 // 8 deviations of the noise

// seen returns the law of what one round shows of a client with x that is in the sum with chance q:
// the sum with one aggregator's noise, less all that the observer knows.
func seen(noise []float64, x int, q float64) []float64 {
	out := make([]float64, len(noise)+4)
	for k, p := range noise {
		out[k+2] += (1 - q) * p
		out[k+2+x] += q * p
	}
	return out
}

// worst returns δ(ε) of two rounds for inputs 2 and −2, of an observer that picks each round's chance
// among its options, the second upon the first.
func worst(noise []float64, first, second []float64, eps float64) (delta float64) {
	e := math.Exp(eps)
	type pair struct{ p, q []float64 }
	var options []pair
	for _, q := range second {
		options = append(options, pair{seen(noise, 2, q), seen(noise, -2, q)})
	}
	for _, q := range first {
		p0, q0 := seen(noise, 2, q), seen(noise, -2, q)
		var sum float64
		for o := range p0 {
			best := 0.
			for _, next := range options {
				var s float64
				for i := range next.p {
					s += math.Max(0, p0[o]*next.p[i]-e*q0[o]*next.q[i])
				}
				best = math.Max(best, s)
			}
			sum += best
		}
		delta = math.Max(delta, sum)
	}
	return delta
}

// chances returns every chance with which a certain honest client can be in a round's sum: of n
// clients others have told all they know, and come as they like; k come; and who chooses the sum
// leaves out as many as it likes, without knowing whose reports they are.
func chances(n, others, k int64) (out []float64) {
	have := map[float64]bool{}
	for present := range min(others, k) + 1 {
		honest := k - present
		if honest > n-others {
			continue
		}
		for left := range honest + 1 {
			if q := float64(left) / float64(n-others); !have[q] {
				have[q], out = true, append(out, q)
			}
		}
	}
	return out
}

func charged(t *testing.T, task wire.Task, m *mechanism.AggregatedSum, n, others, k int64) dp.Round {
	t.Helper()
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: 1, Schedule: func(int64) float64 { return 1 }})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 50})
	if err != nil {
		t.Fatal(err)
	}
	c := coordinator.Config{Optimizer: o, Mechanism: m, Report: m.Event(), Ledger: book, Trust: task.Trust, Participation: task.Participation,
		Population: n, MinReports: others + 1, Clip: 1, Colluders: others, Sample: k, Gamma: float64(k) / float64(n)}
	if task.Participation == dp.Once {
		if c.Blocks, err = schedule.NewBlocks(n, k); err != nil {
			t.Fatal(err)
		}
	}
	pure, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	e, ok, err := pure.Planned()
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	return e.Event
}

// In every participation, whoever else tells what they know, comes, stays away, is excluded or
// lies, the exact loss is covered by what the client counts and by what the coordinator charges, and
// the client never counts less than the coordinator.
func TestChargesOfSumsWithProofsCoverWhatIsSeen(t *testing.T) {
	a := new(account.Accountant)
	noise := discreteGaussian(400, middle)
	const delta = 1e-3
	eps := func(ev dp.Event, rounds int64) float64 {
		b, err := a.Eps(dp.Repeat{Event: ev, Times: rounds}, delta)
		if err != nil {
			t.Fatal(err)
		}
		return b.Eps
	}
	for _, participation := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
		for n := int64(1); n <= 4; n++ {
			task, m := provedTask(t, n)
			task.Participation = participation
			terms, err := (client.Policy{MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1}).Agree(t.Context(), task)
			if err != nil {
				t.Fatal(err)
			}
			for others := range n {
				for k := others + 1; k <= n; k++ {
					name := fmt.Sprintf("%s, n = %d, %d others, k = %d", participation, n, others, k)
					event := charged(t, task, m, n, others, k)
					rounds, qs := int64(2), chances(n, others, k)
					if participation == dp.Once { // a client is in one round of an epoch, which is charged once
						rounds, qs = 1, []float64{0, 1}
					}
					theirs, own := eps(event, rounds), eps(terms.Charge, rounds)
					if !(own >= theirs*(1-1e-3)) { // the pair of rounds of which nobody knows who is there has some slack
						t.Errorf("%s: the client counts %v, the coordinator %v", name, own, theirs)
					}
					second := qs
					if rounds == 1 {
						second = []float64{0}
					}
					if got := worst(noise, qs, second, theirs); !(got <= delta) {
						t.Errorf("%s: delta is %v at the coordinator's epsilon = %v", name, got, theirs)
					}
				}
			}
			// The client knows that it was there; whether its report is in the sum is for others to choose.
			if got := worst(noise, []float64{0, 1}, []float64{0, 1}, eps(terms.Charge, 2)); !(got <= delta) {
				t.Errorf("%s, n = %d: delta is %v at the client's epsilon", participation, n, got)
			}
		}
	}
	// Were both aggregators' noise counted on, this test would see it.
	task, m := provedTask(t, 4)
	terms, err := (client.Policy{MaxEps0: 1, MaxEps: 30, Delta: 1e-5, MinReports: 1}).Agree(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	both := terms.Charge
	both.Report.Sigma *= math.Sqrt2
	if got := worst(noise, []float64{1}, []float64{1}, eps(both, 2)); got <= delta {
		t.Errorf("blind: delta %v", got)
	}
	task.Participation = dp.Sampled
	more := charged(t, task, m, 4, 0, 1) // as if a half came and were charged as a quarter that is surely there
	more.Least = 0
	if got := worst(noise, []float64{.5}, []float64{.5}, eps(more, 2)); got <= delta {
		t.Errorf("blind to sampling: delta %v", got)
	}
	if _, err := a.Eps(dp.Round{Report: m.Event(), Trust: dp.Shuffle, Participation: dp.All, Population: 4, Reports: 4}, delta); err == nil || errors.Is(err, ledger.ErrBudget) {
		t.Error("vectors without noise of their own were counted one by one")
	}
}

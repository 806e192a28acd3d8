package client_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// countTasks are a task with each noise, of n clients who have at most two ones in six places.
func countTasks(t *testing.T, n int64) map[string]wire.Task {
	t.Helper()
	const dim, ones, rounds, delta = 6, 2, 3, 1e-5
	p, err := vecsum.Tight(vecsum.Target{Sigma: .1, Delta: delta, Users: n, Dim: dim, Ones: ones, Rounds: rounds})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(t.Context(), delta, rounds)
	if err != nil {
		t.Fatal(err)
	}
	v, err := mechanism.NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	a, err := vecsum.NewAggregatedOnes(n, dim, ones, 2)
	if err != nil {
		t.Fatal(err)
	}
	if sigma, _, err = a.Sigma(rounds); err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(a, sigma, n)
	if err != nil {
		t.Fatal(err)
	}
	task := wire.Task{Name: "counts", Trust: dp.Distributed, Participation: dp.All, MinReports: n, Rounds: rounds, Delta: delta}
	out := map[string]wire.Task{}
	for name, w := range map[string]wire.Mechanism{"clients": v.Describe(), "aggregators": m.Describe()} {
		task.Mechanism = w
		out[name] = task
	}
	return out
}

// A client agrees to count, for what the noise is worth for counts, and sends nothing but zeros and at
// most as many ones as the task says, whatever its data gives.
func TestCountsAreAgreedTo(t *testing.T) {
	policy := client.Policy{MaxEps: 30, Delta: 1e-5, MinReports: 1}
	for name, task := range countTasks(t, 400) {
		terms, err := policy.Agree(t.Context(), task)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := terms.Charge.Report.Sigma; got != task.Mechanism.Sum.Sigma || got < .05 {
			t.Errorf("%s: charged by sigma = %v", name, got)
		}
		r := terms.Reporter.NewReport()
		largest := int64(0) // of a one, with noise
		switch m := terms.Mechanism.(type) {
		case *mechanism.VectorSum:
			largest = m.Grid + m.Params.Noise.Bits
		case *mechanism.AggregatedSum:
			largest = m.Steps
		}
		for _, x := range [][]float32{{1, 0, 0, 0, 1, 0}, {1, 1, 1, 0, 0, 0}, {0, 9, 0, 0, 0, 0}, {-1, 0, 0, 0, 0, 0}, {float32(math.Inf(1)), 0, 0, 0, 0, 0}, {1e-3, 0, 0, 0, 0, 0}} {
			valid := x[4] == 1
			terms.Reporter.Report(rng.Replay(7), slices.Clone(x), r)
			with := slices.Clone(r.Value)
			terms.Reporter.Report(rng.Replay(7), make([]float32, len(x)), r)
			for j, c := range with {
				if one := valid && x[j] == 1; one != (c != r.Value[j]) || int64(c) > largest {
					t.Errorf("%s: %v is sent as %v, zeros as %v", name, x, with, r.Value)
				}
			}
		}
	}
}

// What a coordinator could say to have ones counted with too little noise is refused.
func TestCountsAreNotAgreedTo(t *testing.T) {
	policy := client.Policy{MaxEps: 30, Delta: 1e-5, MinReports: 1}
	for name, good := range countTasks(t, 400) {
		for want, change := range map[string]func(*wire.Task){
			"the task claims": func(w *wire.Task) { w.Mechanism.Sum.Sigma *= 1.001 },
			"radius":          func(w *wire.Task) { w.Mechanism.Clip *= 2 },
			"task claims": func(w *wire.Task) {
				w.Mechanism.Sum.Ones, w.Mechanism.Clip, w.Mechanism.Sum.Bound = 3, math.Sqrt(3), 2*w.Mechanism.Sum.Bound
			},
			"ones = 7":      func(w *wire.Task) { w.Mechanism.Sum.Ones = 7 },
			"ones = -1":     func(w *wire.Task) { w.Mechanism.Sum.Ones = -1 },
			"not for trust": func(w *wire.Task) { w.Trust = dp.Shuffle },
		} {
			w := good
			if change(&w); w.Mechanism.Sum.NoiseBy == "" {
				w.Mechanism.Sum.Bound = 0
			}
			if _, err := policy.Agree(t.Context(), w); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q", name, err, want)
			}
		}
		if good.Mechanism.Sum.NoiseBy == "" {
			continue // a grid needs less noise for vectors
		}
		// Without ones, the same numbers would be of vectors of the ball.
		w := good
		w.Mechanism.Sum.Ones = 0
		w.Mechanism.Sum.Bound += 3
		if _, err := policy.Agree(t.Context(), w); err == nil || !strings.Contains(err.Error(), "the task claims") {
			t.Errorf("%s, vectors with noise for counts: %v", name, err)
		}
	}
}

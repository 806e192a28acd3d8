package client_test

import (
	"errors"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// TestPolicyNamesQuestions: a policy that says nothing of questions answers them at the ε of training
// tasks; one that does is kept, and refuses no training task.
func TestPolicyNamesQuestions(t *testing.T) {
	train := wire.Task{Trust: dp.Shuffle, Participation: dp.All, MinReports: 60, Rounds: 1, Delta: 1e-6, Config: []byte("config:\n  model: linear\n"),
		Mechanism: wire.Mechanism{Name: "privunit", Dim: 4, Clip: 1, ClipMode: "norm", Eps0: 2}}
	histogram, mean := train, train
	histogram.Config, mean.Config = []byte(`{"measure":"histogram","column":"age"}`), []byte(`{"measure":"mean"}`)
	mean.ModelDim = 1
	tasks := []wire.Task{train, histogram, mean}
	for _, c := range []struct {
		measure []string
		agreed  [3]bool
	}{
		{nil, [3]bool{true, true, true}},
		{[]string{"histogram"}, [3]bool{true, true, false}},
		{[]string{"mean", "heavy-hitters"}, [3]bool{true, false, true}},
		{[]string{client.NoQuestions}, [3]bool{true, false, false}},
	} {
		p := client.Policy{MaxEps0: 6, MaxEps: 100, Delta: 1e-6, MinReports: 50, Measure: c.measure}
		for i, task := range tasks {
			terms, err := p.Agree(t.Context(), task)
			var refused *client.Refused
			if (err == nil) != c.agreed[i] || err != nil && (!errors.As(err, &refused) || refused.Cause != client.CausePolicy) {
				t.Errorf("measure %v, task %d: %v", c.measure, i, err)
			} else if err == nil && terms.Charge.Report.Eps0 < 2 {
				t.Errorf("task %d is charged %+v", i, terms.Charge)
			}
		}
	}
	for _, bad := range [][]string{{""}, {client.NoQuestions, "mean"}, {"Mean"}, {"a b"}, {"mean", client.NoQuestions}} {
		if _, err := (client.Policy{MaxEps0: 6, MaxEps: 100, Delta: 1e-6, MinReports: 50, Measure: bad}).Check(); err == nil {
			t.Errorf("took measure %q", bad)
		}
	}
	for text, want := range map[string]string{`{"measure":"count"}`: "count", `{"measure":"count`: "", `{"measure":""}`: "", `{ "measure":"count"}`: "", `config: {"measure":"count"}`: "",
		`{"measure":"<script>"}`: ""} {
		if got := client.Question(wire.Task{Config: []byte(text)}); got != want {
			t.Errorf("%s is a question for a %q, want %q", text, got, want)
		}
	}
	big := mean
	big.ModelDim = 1 << 26
	if _, err := (client.Policy{MaxEps0: 6, MaxEps: 100, Delta: 1e-6, MinReports: 50}).Agree(t.Context(), big); err == nil {
		t.Error("agreed to download 256 MiB of parameters, the limit is 64")
	}
}

// TestSingleMessagesFitTheirQuestion: a client answers by single messages only where they are those of
// the question; the coordinator says in the task what they are.
func TestSingleMessagesFitTheirQuestion(t *testing.T) {
	histogram := []byte(`{"measure":"histogram","column":"age","edges":[0,10,20]}`)
	mean := []byte(`{"measure":"mean","column":"age","high":100}`)
	krr := func(dim, spread int64) wire.Mechanism {
		return wire.Mechanism{Name: "krr", Dim: dim, Bits: spread, Clip: 1, ClipMode: "norm", Eps0: 2}
	}
	for _, c := range []struct {
		config []byte
		m      wire.Mechanism
		dim    int // 0: refused
	}{
		{histogram, krr(3, 0), 3},
		{histogram, krr(2, 0), 0},   // no symbol for rows outside
		{histogram, krr(48, 16), 0}, // spread
		{mean, krr(48, 16), 48},
		{mean, krr(48, 8), 0},
		{mean, krr(47, 16), 0},
		{mean, krr(32, 16), 0}, // no levels beside those for rows outside
		{mean, krr(48, 0), 0},
		{mean, wire.Mechanism{Name: "privunit", Dim: 2, Clip: 1, ClipMode: "norm", Eps0: 2}, 0},
		{[]byte(`{"measure":"heavy-hitters","column":"a","longest":4}`), krr(3, 0), 0},
	} {
		e, err := client.NewEncoder(wire.Task{Trust: dp.Shuffle, Config: c.config, Mechanism: c.m, ModelDim: 1})
		if (err == nil) != (c.dim > 0) {
			t.Errorf("%s by %+v: %v", c.config, c.m, err)
		}
		if err != nil {
			continue
		}
		// A row that has no answer is a distribution of the same kind.
		for _, cell := range []string{"15", "", "old", "NaN"} {
			x := make([]float32, c.dim)
			e.Encode(func(string) string { return cell }, nil, x)
			var sum, most float32
			for _, v := range x {
				sum, most = sum+v, max(most, v)
			}
			if sum != 1 || c.m.Bits > 0 && most > 1./16 {
				t.Errorf("%s, cell %q: %v", c.config, cell, x)
			}
		}
	}
}

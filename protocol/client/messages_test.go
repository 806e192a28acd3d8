package client

import (
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Further reports are of the gradient that was clipped, with other randomness.
func TestAgainReportsTheClippedGradient(t *testing.T) {
	const dim = 8
	for _, kind := range randomizer.Kinds() {
		if kind.Trained == "" {
			continue
		}
		m, err := randomizer.New(kind.Name, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2})
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(Config{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: kind.Norm})
		if err != nil {
			t.Fatal(err)
		}
		grad := []float32{3, -4, .5, 0, 1, -1, 2, .25}
		src := rng.Replay(5)
		first, again := m.NewReport(), m.NewReport()
		c.Report(src, grad, first)
		clipped := slices.Clone(grad)
		different := 0
		for range 64 {
			c.Again(src, grad, again)
			if !slices.Equal(grad, clipped) {
				t.Fatalf("%s: a report changes the gradient that others are made of", kind.Name)
			}
			if err := m.Check(again); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(first.Value, again.Value) || !slices.Equal(first.Index, again.Index) {
				different++
			}
		}
		if different < 10 {
			t.Errorf("%s: %d of 64 reports differ from the first", kind.Name, different)
		}
		// The same as a report of the clipped gradient.
		want := m.NewReport()
		c.Again(rng.Replay(6), grad, again)
		c.Report(rng.Replay(6), slices.Clone(clipped), want)
		if sparse := len(first.Index) > 0; sparse && !slices.Equal(want.Value, again.Value) {
			t.Errorf("%s: another report than that of the clipped gradient", kind.Name)
		}
	}
}

// A simulated sum of reports is of the gradient that was clipped. Reports of a running system and mechanisms without such
// sums are made one by one.
func TestAddReportsClips(t *testing.T) {
	const dim = 8
	for _, kind := range randomizer.Kinds() {
		if kind.Trained == "" {
			continue
		}
		for _, encoding := range []string{"", randomizer.Seed} {
			if encoding != "" && !kind.Seeds {
				continue
			}
			m, err := randomizer.New(kind.Name, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: encoding})
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(Config{Mechanism: m, ClipMode: ClipNorm, Clip: 1, Norm: kind.Norm})
			if err != nil {
				t.Fatal(err)
			}
			grad := []float32{3, -4, .5, 0, 1, -1, 2, .25}
			round := c.ForRound([32]byte{1})
			keyed, err := New(Config{Mechanism: randomizer.ForRound(m, [32]byte{1}), ClipMode: ClipNorm, Clip: 1, Norm: kind.Norm})
			if err != nil {
				t.Fatal(err)
			}
			if round.Sums || encoding != "" && keyed.Sums {
				t.Errorf("%s: a round's reports are drawn as a sum", kind.Name)
			}
			for name, of := range map[string]*Client{"client": c, "round": round} {
				if of.Sums {
					continue
				}
				func() {
					defer func() {
						if recover() == nil {
							t.Errorf("%s, %s: drew a sum", kind.Name, name)
						}
					}()
					of.AddReports(rng.Replay(1), slices.Clone(grad), 3, make([]int64, dim))
				}()
			}
			if several := kind.Norm == 2; c.Sums != several {
				t.Errorf("%s: sums %v", kind.Name, c.Sums)
			}
			if !c.Sums {
				continue
			}
			clipped := slices.Clone(grad)
			randomizer.ClipNorm(clipped, 2, 1)
			got, want := make([]int64, dim), make([]int64, dim)
			c.AddReports(rng.Replay(2), grad, 3, got)
			m.(randomizer.Several).AddSeveral(rng.Replay(2), want, clipped, 3)
			if !slices.Equal(got, want) || !slices.Equal(grad, clipped) {
				t.Errorf("%s: not the sum of the clipped gradient's reports", kind.Name)
			}
		}
	}
}

// A report of m messages costs m times ε₀, and as many events.
func TestMessagesAreCounted(t *testing.T) {
	task := wire.Task{Trust: dp.Shuffle, Participation: dp.All, MinReports: 50, Rounds: 9, Delta: 1e-5, Messages: 3,
		Mechanism: wire.Mechanism{Name: "rinf", Dim: 4, Clip: 1, ClipMode: "norm", Eps0: 1.1}}
	policy := Policy{MaxEps0: 3.4, MaxEps: 10, Delta: 1e-5, MinReports: 50}
	terms, err := policy.Agree(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	each := terms.Mechanism.Event().Eps0
	low := policy
	low.MaxEps0 = 3*each - 1e-9
	if _, err := low.Agree(t.Context(), task); err == nil || !strings.Contains(err.Error(), "messages: 3") {
		t.Errorf("three messages of %v within %v: %v", each, low.MaxEps0, err)
	}
	var asked dp.Event
	c := &Counter{Accountant: &oracle{eps: func(ev dp.Event, _ float64) float64 { asked = ev; return 1 }}}
	h := &History{}
	for round := range int64(2) {
		if r := terms.Afford(h, c); r != nil {
			t.Fatal(r)
		}
		want := dp.Sequence{dp.Repeat{Event: terms.Charge, Times: 3 * (round + 1)}}
		if got := asked.(dp.Sequence); !slices.Equal(got, want) {
			t.Errorf("asked about %v, want %v", got, want)
		}
		h.Decide(terms.ID, round+1, [32]byte{}).Charge(terms.Charge, task.PerClient(), 0)
	}
	terms.Policy.MaxLocalEps = 8.9 * each
	if r := terms.Afford(h, c); r == nil || r.Cause != CauseBudget {
		t.Errorf("nine messages within 8.9 times eps0: %v", r)
	}
	terms.Policy.MaxLocalEps = 9.1 * each
	if r := terms.Afford(h, c); r != nil {
		t.Error(r)
	}
	for _, c := range []struct {
		x    float64
		m    int64
		want float64
	}{{3, 1, 3}, {3, 8, 24}, {.1, 3, .30000000000000004}, {.1, 1, .1}} {
		if got := dp.TimesUp(c.x, c.m); got < c.want || got > c.want*(1+1e-15) {
			t.Errorf("%d times %v is %v", c.m, c.x, got)
		}
	}
}

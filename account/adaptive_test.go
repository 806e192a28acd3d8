package account

import (
	"context"
	"iter"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// coin is a round of which nothing hides a report: binary randomized response
// is the worst there is.
func coin(eps0 float64) dp.Round {
	return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Local, Participation: dp.All, Population: 1}
}

// tightOnly counts as if rounds were never chosen upon releases.
type tightOnly struct{ *Accountant }

func (t tightOnly) EpsAdaptive(ev dp.Event, _, delta float64) (dp.Bound, error) {
	return t.Eps(ev, delta/0.01) // all of δ, as if there were one task
}

// charges are the entries of a log that nobody adds to, without a mark.
type charges []wire.Entry

func (c charges) Append(context.Context, int64, []byte) error { return ledger.ErrConflict }

func (c charges) Read(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, e := range c {
			if !yield(wire.Encode(e), nil) {
				return
			}
		}
	}
}

func (c charges) Load() (ledger.Mark, error) { return ledger.Mark{}, nil }
func (c charges) Save(ledger.Mark) error     { return nil }

// adversary returns the largest δ at eps over all ways to choose rounds of two tasks
// upon what was released, as long as a book affords them: the largest E(1 − e^(ε−L))⁺
// by going through every outcome of randomized response.
func adversary(t *testing.T, a dp.Accountant, events [2]dp.Round, eps, delta float64) float64 {
	t.Helper()
	free := ledger.Config{Accountant: new(Accountant), Delta: delta, MaxEps: math.Inf(1)}
	affords := map[[3]int]bool{}
	ask := func(n [2]int, task int) bool {
		key := [3]int{n[0], n[1], task}
		if ok, seen := affords[key]; seen {
			return ok
		}
		var charged charges
		for i := range 2 {
			for round := range n[i] {
				e := wire.Entry{Population: wire.ID{1}, Task: [32]byte{byte(i)}, Round: int64(round) + 1, Event: events[i]}
				if last := len(charged) - 1; last >= 0 {
					e.Before = wire.Digest(charged[last])
				}
				charged = append(charged, e)
			}
		}
		journal, err := ledger.OpenJournal(t.Context(), charged, charged, wire.ID{1}, ledger.Config{Accountant: a, Delta: delta, MaxEps: eps})
		if err != nil {
			t.Fatal(err)
		}
		l, err := journal.Task([32]byte{byte(task)}, free)
		if err != nil {
			t.Fatal(err)
		}
		affords[key] = l.Affords(ledger.Entry{Event: events[task]}) == nil
		return affords[key]
	}
	type state struct{ n, up [2]int }
	memo := map[state]float64{}
	var value func(s state) float64
	value = func(s state) float64 {
		if v, ok := memo[s]; ok {
			return v
		}
		var loss float64
		for i := range 2 {
			loss += float64(2*s.up[i]-s.n[i]) * events[i].Report.Eps0
		}
		v := math.Max(0, -math.Expm1(eps-loss))
		for i := range 2 {
			if !ask(s.n, i) {
				continue
			}
			up, down := s, s
			up.n[i]++
			down.n[i]++
			up.up[i]++
			p := 1 / (1 + math.Exp(-events[i].Report.Eps0))
			v = math.Max(v, p*value(up)+(1-p)*value(down))
		}
		memo[s] = v
		return v
	}
	v := value(state{})
	t.Logf("eps %v, delta %v: %d states, worst delta %.4g", eps, delta, len(memo), v)
	return v
}

// Whatever is chosen upon releases, a book of two tasks keeps its promise; the
// tightest composition does not, which is why it is not used for two.
func TestNoChoiceExceedsTheBudget(t *testing.T) {
	a := new(Accountant)
	broken := 0
	for _, c := range []struct{ first, second, eps, delta float64 }{
		{.5, 1, 2.2, .05}, {.3, 1.2, 1.9, .02}, {.4, .8, 2, .1}, {.2, 1.5, 1.6, .05},
	}[longtest.Pick(2, 0):] {
		events := [2]dp.Round{coin(c.first), coin(c.second)}
		if d := adversary(t, a, events, c.eps, c.delta); d > c.delta {
			t.Errorf("%+v: delta %v", c, d)
		}
		if adversary(t, tightOnly{a}, events, c.eps, c.delta) > c.delta {
			broken++
		}
	}
	if broken == 0 {
		t.Error("the tightest composition held: the adversary is too weak to show anything")
	}
}

func someEvents(n int, seed uint64) dp.Sequence {
	src := rng.Replay(seed)
	var out dp.Sequence
	for range n {
		u := src.Uint64()
		k := int64(200 + u>>8%800)
		pure := dp.Report{Class: dp.Generic, Eps0: .5 + float64(u>>20%8)/4}
		r := []dp.Round{
			{Report: pure, Trust: dp.Shuffle, Participation: dp.All, Population: k},
			{Report: pure, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 5000, Reports: k},
			{Report: pure, Trust: dp.Shuffle, Participation: dp.Sampled, Population: 5000, Reports: k, Least: k},
			{Report: pure, Trust: dp.Shuffle, Participation: dp.Once, Population: 1 << 40, Reports: k},
			{Report: dp.Report{Class: dp.KRR, Eps0: 1, Symbols: 4}, Trust: dp.Shuffle, Participation: dp.All, Population: k},
			{Report: dp.Report{Class: dp.BinaryRR, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: k},
			{Report: dp.Report{Class: dp.Gaussian, Sigma: 1}, Trust: dp.Distributed, Participation: dp.All, Population: k},
			{Report: dp.Report{Class: dp.Gaussian, Sigma: 2}, Trust: dp.Distributed, Participation: dp.Sampled, Population: 5000, Reports: k},
			{Report: dp.Report{Class: dp.Generic, Eps0: .02}, Trust: dp.Local, Participation: dp.All, Population: 1},
		}[u%9]
		out = append(out, dp.Repeat{Event: r, Times: int64(1 + u>>40%5)})
	}
	return out
}

// The count for adaptive choice is never below the tightest one, says the same for
// any order of entries, grows with every entry, and is the sum by hand.
func TestAdaptiveCountIsAboveTheTightest(t *testing.T) {
	a := new(Accountant)
	for seed := range longtest.Pick[uint64](1, 2) {
		const delta, maxEps = 1e-6, 4.
		seq := someEvents(7, seed)
		tight, err := a.Eps(seq, delta)
		if err != nil {
			t.Fatal(err)
		}
		b, err := a.EpsAdaptive(seq, maxEps, delta)
		if err != nil {
			t.Fatal(err)
		}
		if !(b.Eps >= tight.Eps) || b.Eps > 20*tight.Eps+maxEps || b.Method != "renyi-filter" || b.Order != filterOrder(maxEps, delta) || b.Status != dp.Proved {
			t.Errorf("seed %d: adaptive %+v, tight %v", seed, b, tight.Eps)
		}
		back := dp.Sequence{}
		for _, e := range seq {
			back = append(dp.Sequence{e}, back...)
		}
		if other, err := new(Accountant).EpsAdaptive(back, maxEps, delta); err != nil || math.Abs(other.Eps-b.Eps) > 1e-12*b.Eps {
			t.Errorf("in another order %v, %v, want %v", other.Eps, err, b.Eps)
		}
		less, err := a.EpsAdaptive(seq[:6], maxEps, delta)
		if err != nil || !(less.Eps < b.Eps) {
			t.Errorf("without the last entry %v, with it %v (%v)", less.Eps, b.Eps, err)
		}
		var sum float64
		for _, e := range seq {
			r := e.(dp.Repeat)
			s := shapeOf(r.Event.(dp.Round))
			pair, err := s.pair(a.engine.narrowOf(s))
			if err != nil {
				t.Fatal(err)
			}
			sum += float64(r.Times) * rdp.Divergence(pair, b.Order)
		}
		if hand := rdp.Epsilon(b.Order, sum, delta); math.Abs(hand-b.Eps) > 1e-3*hand {
			t.Errorf("by hand %v, not %v", hand, b.Eps)
		}
	}
	if b, err := a.EpsAdaptive(dp.Sequence{}, 1, 1e-6); err != nil || b.Eps != 0 {
		t.Errorf("nothing: %v, %v", b.Eps, err)
	}
	for _, bad := range []struct{ eps, delta float64 }{{0, .1}, {math.NaN(), .1}, {1, 0}, {1, 1}} {
		if _, err := a.EpsAdaptive(someEvents(1, 1), bad.eps, bad.delta); err == nil {
			t.Errorf("%+v accepted", bad)
		}
	}
	// What cannot be counted at that δ is no small number.
	far := dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: .01}, Trust: dp.Distributed, Participation: dp.Sampled, Population: 1353846, Reports: 1}
	if b, err := a.EpsAdaptive(far, 2.9, 7.4e-7); err != nil || !math.IsInf(b.Eps, 1) {
		t.Errorf("losses too far to be counted: %v, %v", b.Eps, err)
	}
}

// The order lets through nearly as much of a Gaussian mechanism as the best would.
func TestFilterOrderIsNearTheBest(t *testing.T) {
	for _, eps := range []float64{.1, 1, 4, 20} {
		for _, delta := range []float64{1e-3, 1e-7, 1e-12} {
			room := func(order float64) float64 { return (eps - (rdp.Epsilon(order, 1e3, delta) - 1e3)) / order }
			best := 0.
			for u := -8.; u < 12; u += .01 {
				best = math.Max(best, room(1+math.Exp(u)))
			}
			if got := room(filterOrder(eps, delta)); got < .99*best {
				t.Errorf("eps %v, delta %v: room %v at order %v, best %v", eps, delta, got, filterOrder(eps, delta), best)
			}
		}
	}
	if o := filterOrder(math.Inf(1), 1e-6); o != filterOrder(1, 1e-6) {
		t.Errorf("order %v without a limit", o)
	}
}

package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// At every operation of its store, ledger and peers a coordinator crashes, before
// or after it had its effect, and starts again. The model is the one without a
// crash, no round is charged twice or not at all, and none is released twice.
func TestCrashAnywhere(t *testing.T) {
	for _, c := range []struct {
		trust dp.Trust
		p     dp.Participation
		with  []option
	}{{dp.Shuffle, dp.All, nil}, {dp.Shuffle, dp.Once, nil}, {dp.Distributed, dp.All, nil}, {dp.Shuffle, dp.All, []option{receipts}}, {dp.Distributed, dp.All, []option{receipts}}, {dp.Shuffle, dp.All, []option{tells, receipts}},
		{dp.Distributed, dp.All, []option{receipts, withProofs, small}},
		{dp.Distributed, dp.CheckIn, []option{receipts, withCorrelated, void(2)}},
		{dp.Distributed, dp.CheckIn, []option{receipts, withCorrelated, void(2), byClients}},
		{dp.Shuffle, dp.All, []option{tokens}}, {dp.Distributed, dp.All, []option{tokens}}, {dp.Distributed, dp.All, []option{tokens, receipts, withProofs, small}}} {
		bubble(t, fmt.Sprintf("%s %s %d", c.trust, c.p, len(c.with)), func(t *testing.T) {
			total, step := 0, stride()
			switch {
			case c.p == dp.CheckIn || len(c.with) > 2 && c.trust == dp.Distributed: // proofs
				step *= longtest.Pick(3, 1)
			case c.trust == dp.Shuffle && c.p == dp.All && c.with == nil && !testing.Short():
				step = 1 // it is cheap, so none is skipped here
			}
			for _, after := range []bool{false, true} {
				for at := 1; ; at += step {
					w := newWorld(t, c.trust, c.p, append(c.with, small)...)
					crash := &stop{At: at, After: after}
					s := w.crashed(crash)
					w.check(s)
					if t.Failed() {
						t.Fatalf("crash at operation %d (%s), after: %t", at, crash.Name, after)
					}
					if !crash.hit() {
						total += at / step
						break
					}
				}
			}
			if total < 60/step {
				t.Errorf("only %d crashes", total)
			}
		})
	}
}

// Coordinator and aggregator crash again and again, wherever they are.
func TestManyCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range longtest.Pick3(uint64(8), 25, 400) {
			with := []option{small, receipts}
			if seed%4 == 3 {
				with = append(with, withProofs)
			}
			if seed%8 >= 4 {
				with = append(with, tokens)
			}
			manyCrashes(t, seed, newWorld(t, []dp.Trust{dp.Shuffle, dp.Distributed}[seed%2], dp.All, with...))
		}
	})
}

// The same where sums are held for later rounds.
func TestManyCrashesWithCorrelatedNoise(t *testing.T) {
	whoAdds(t, func(t *testing.T, by ...option) {
		for seed := range longtest.Pick3(uint64(3), 12, 200) {
			with := append([]option{receipts}, by...)
			if seed%3 == 1 {
				with = append(with, void(2))
			}
			if seed%3 == 2 {
				with = append(with, failing(3))
			}
			manyCrashes(t, seed, newWorld(t, dp.Distributed, dp.CheckIn, with...))
		}
	})
}

func manyCrashes(t *testing.T, seed uint64, w *world) {
	t.Helper()
	src := rng.Replay(seed)
	if w.aggDisk != nil {
		own := rng.Replay(seed, 1)
		var again func()
		again = func() {
			w.fsckCrashed(lagging)
			w.startAggregator(&stop{At: int(own.Uint64()%20) + 1, After: own.Uint64()%2 == 0, Died: again})
		}
		again()
	}
	for range 12 {
		crash := &stop{At: int(src.Uint64()%40) + 1, After: src.Uint64()%2 == 0}
		p, err := w.start(crash)
		if err != nil {
			continue
		}
		ended := false
		select {
		case err := <-p.done:
			if err != nil {
				t.Fatal(err)
			}
		case <-p.find(wire.Digest(w.task)).ended:
			w.end(p)
			ended = true
		}
		if ended {
			break
		}
	}
	if w.aggDisk != nil {
		w.startAggregator(nil)
	}
	w.check(w.run())
	if t.Failed() {
		t.Fatalf("seed %d", seed)
	}
}

func small(w *world) {
	if w.task.Every > 0 {
		w.task.Rounds = 3
		return
	}
	w.task.Rounds, w.n = 2, 4
	if w.task.Participation == dp.Once {
		w.task.Rounds, w.n = 3, 8 // an epoch and a half
	}
}

// crashed runs a task through a crash.
func (w *world) crashed(crash *stop) wire.Status {
	w.t.Helper()
	p, err := w.start(crash)
	if err != nil {
		return w.run() // it crashed on opening the ledger
	}
	select {
	case err := <-p.done:
		if err != nil {
			w.t.Fatal(err)
		}
		w.disk.Lock()
		begun := len(w.disk.Values) > 0
		w.disk.Unlock()
		if begun {
			w.fsck()
		}
		return w.run()
	case <-p.find(wire.Digest(w.task)).ended:
		return w.end(p)
	}
}

// The same, with operations that fail once while the process lives on.
func TestFailAnywhere(t *testing.T) {
	for i, trust := range []dp.Trust{dp.Shuffle, dp.Distributed, dp.Distributed, dp.Distributed, dp.Distributed} {
		with, participation := []option{small}, dp.All
		if i == 2 {
			with = append(with, withProofs)
		}
		if i >= 3 {
			with, participation = []option{withCorrelated, void(2), small}, dp.CheckIn
		}
		if i == 4 {
			with = append(with, byClients)
		}
		bubble(t, fmt.Sprintf("%s %d", trust, i), func(t *testing.T) {
			step := stride()
			if i >= 2 { // proofs are dear
				step *= longtest.Pick(3, 1)
			}
			for _, after := range []bool{false, true} {
				for at := 1; ; at += step {
					w := newWorld(t, trust, participation, with...)
					crash := &stop{At: at, After: after, Once: true}
					s := w.crashed(crash)
					w.check(s)
					if t.Failed() {
						t.Fatalf("failure at operation %d (%s), after: %t", at, crash.Name, after)
					}
					if !crash.hit() {
						break
					}
				}
			}
		})
	}
}

// The aggregator crashes at every operation, and a new one takes its place.
func TestAggregatorCrashes(t *testing.T) {
	aggregatorCrashes(t, false, dp.All, small, receipts)
}

func TestAggregatorCrashesWithTokens(t *testing.T) {
	aggregatorCrashes(t, false, dp.All, small, tokens)
}

func TestAggregatorCrashesWithProofs(t *testing.T) {
	aggregatorCrashes(t, false, dp.All, small, receipts, withProofs)
}

func TestAggregatorCrashesWithCorrelatedNoise(t *testing.T) {
	whoAdds(t, func(t *testing.T, by ...option) {
		aggregatorCrashes(t, false, dp.CheckIn, append([]option{receipts, void(2)}, append(by, small)...)...)
	})
}

// Operations of the aggregator fail once while it lives on.
func TestAggregatorFails(t *testing.T) {
	aggregatorCrashes(t, true, dp.All, small, withProofs)
	whoAdds(t, func(t *testing.T, by ...option) {
		aggregatorCrashes(t, true, dp.CheckIn, append([]option{void(2)}, append(by, small)...)...)
	})
}

// aggregatorCrashes has the aggregator stop at every operation, or fail once.
func aggregatorCrashes(t *testing.T, once bool, p dp.Participation, with ...option) {
	t.Helper()
	step := stride()
	if p == dp.CheckIn {
		step *= longtest.Pick(2, 1)
	}
	for _, after := range []bool{false, true} {
		for at := 1; ; at += step {
			w := newWorld(t, dp.Distributed, p, with...)
			crash := &stop{At: at, After: after, Once: once}
			crash.Died = func() {
				w.fsckCrashed(lagging)
				w.startAggregator(nil)
			}
			w.startAggregator(crash)
			w.check(w.run())
			if t.Failed() {
				t.Fatalf("crash at operation %d (%s), after: %t", at, crash.Name, after)
			}
			if !crash.hit() {
				break
			}
		}
	}
}

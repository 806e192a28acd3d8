package coordinator

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// The mark cannot be written, as on a disk that is full or read-only: no batch is fetched that it does not
// count, whatever is tried again. So a store that is restored from a copy of then has forgotten nothing that was
// released. With the disk mended the rounds go on.
func TestMarkThatCannotBeWritten(t *testing.T) {
	for _, c := range []struct {
		trust dp.Trust
		p     dp.Participation
		with  []option
	}{{dp.Shuffle, dp.All, nil}, {dp.Shuffle, dp.Once, nil}, {dp.Local, dp.All, nil}, {dp.Distributed, dp.All, []option{tells}}, {dp.Distributed, dp.All, []option{withProofs}}} {
		bubble(t, fmt.Sprint(c.trust, " ", c.p, " ", len(c.with)), func(t *testing.T) {
			w := newWorld(t, c.trust, c.p, append(c.with, small)...)
			if c.p == dp.Once {
				w.task.Rounds = 3
			}
			var failing atomic.Bool
			failing.Store(true)
			p, err := w.start(&stop{Fails: func(op string) bool { return failing.Load() && op == "write mark" }})
			if err != nil {
				t.Fatal(err)
			}
			s := w.await(p, func(s wire.Status) bool { return strings.Contains(s.Error, "high-water mark") })
			time.Sleep(20 * time.Minute)
			if s, _ = p.Show(wire.Digest(w.task)); s.Released+s.Failed != 0 || len(w.disk.Log) != 1 || w.disk.mark.Entries != 0 {
				t.Errorf("released %d, %d charged, the mark at %d", s.Released, len(w.disk.Log), w.disk.mark.Entries)
			}
			w.order()
			failing.Store(false)
			w.check(w.end(p))
		})
	}
}

// The promises of rounds with proofs cannot be written: nothing is asked of the second aggregator that another
// try might do otherwise.
func TestPromisesThatCannotBeWritten(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
		var failing atomic.Bool
		failing.Store(true)
		p, err := w.start(&stop{Fails: func(op string) bool { return failing.Load() && op == "save promises" }})
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return s.Error != "" })
		time.Sleep(time.Minute)
		if s, _ := p.Show(wire.Digest(w.task)); s.Released+s.Failed != 0 || len(w.disk.Log) != 1 || len(w.aggDisk.partials) != 0 {
			t.Errorf("released %d, failed %d, %d charged, %d partial sums", s.Released, s.Failed, len(w.disk.Log), len(w.aggDisk.partials))
		}
		failing.Store(false)
		w.check(w.end(p))
	})
}

// The mark cannot be written from a later round on, with a second task on the same ledger: neither is announced a round that could
// not be opened, and the mark lags by what was charged already.
func TestMarkThatCannotBeWrittenLater(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, small)
		var failing atomic.Bool
		failing.Store(true)
		p, err := w.start(&stop{Fails: func(op string) bool { return failing.Load() && op == "write mark" && w.disk.mark.Entries == 1 }})
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return strings.Contains(s.Error, "high-water mark") })
		rounds := len(w.sh.Opened)
		other := w.config
		next := w.task
		next.Name = "other"
		other.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(next))
		if err := p.Add(other); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Minute)
		if s, _ := p.Show(wire.Digest(next)); len(w.sh.Opened) != rounds || s.Round != 0 || !strings.Contains(s.Error, "high-water mark") {
			t.Errorf("%d further rounds were announced: %+v", len(w.sh.Opened)-rounds, s)
		}
		if len(w.disk.Log) != 2 || w.disk.mark.Entries != 1 {
			t.Errorf("%d charged, the mark at %d", len(w.disk.Log), w.disk.mark.Entries)
		}
		if err := p.Stop(t.Context(), wire.Digest(next), ""); err != nil {
			t.Fatal(err)
		}
		failing.Store(false)
		w.check(w.end(p))
	})
}

// The promises of rounds with proofs are lost, beside a store that is the newest or a copy. What is made again
// of the store lets a round be settled as its state says; of one whose state does not say all nobody
// knows what was settled, and it gives no step.
func TestRecoveredPromises(t *testing.T) {
	for name, c := range map[string]struct {
		forget func(*openRound)
		lost   int
	}{
		"nothing":    {func(*openRound) {}, 0},
		"noise":      {func(o *openRound) { o.Noise = hash{} }, 1},
		"everything": {func(o *openRound) { o.Noise, o.Agreed, o.Excluded, o.Key = hash{}, nil, hash{}, nil }, 1},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
			rec := w.untilNoise()
			c.forget(rec.Open)
			b, err := rec.encode()
			if err != nil {
				t.Fatal(err)
			}
			w.disk.Values[stateKey(wire.Digest(w.task))] = b
			book, err := ledger.Verify(t.Context(), onLedger{w.disk.store(nil)}, w.disk.mark, w.task.Population)
			if err != nil {
				t.Fatal(err)
			}
			f := PromiseFile(filepath.Join(t.TempDir(), "rounds"))
			lost, err := f.Create(t.Context(), w.disk.store(nil), book, []wire.Task{w.task})
			if err != nil || lost != c.lost {
				t.Errorf("%d rounds are lost, want %d: %v", lost, c.lost, err)
			}
			if _, err := f.Create(t.Context(), w.disk.store(nil), book, nil); !errors.Is(err, os.ErrExist) {
				t.Errorf("made twice: %v", err)
			}
			if w.disk.promised, err = f.Load(); err != nil {
				t.Fatal(err)
			}
			if s := w.run(); s.Released != 2-int64(c.lost) || s.FailedBy[FailedSecret] != int64(c.lost) {
				t.Errorf("released %d, failed %v", s.Released, s.FailedBy)
			}
		})
	}
}

// A task to which too few come pauses, says why, and goes on when it is resumed.
func TestVoidRoundsPause(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, small)
		var come atomic.Bool
		w.present = func(_, client int64) bool { return come.Load() || client < 2 }
		p, err := w.start(nil, func(c *Config) { c.PauseAfterVoid = 3 })
		if err != nil {
			t.Fatal(err)
		}
		for n := int64(1); n <= 2; n++ {
			s := w.await(p, func(s wire.Status) bool { return s.State == Paused })
			time.Sleep(10 * time.Minute)
			if again, _ := p.Show(wire.Digest(w.task)); again.Void != 3*n || again.Round != 3*n || len(w.disk.Log) != 0 || !strings.Contains(s.Why, fmt.Sprintf("3 rounds in a row were void, the last one, %d", 3*n)) {
				t.Errorf("%+v: %s", again, s.Why)
			}
			come.Store(n == 2)
			if err := p.Resume(t.Context(), wire.Digest(w.task)); err != nil {
				t.Fatal(err)
			}
		}
		if s := w.end(p); s.State != Done || s.Released != 2 || s.Void != 6 {
			t.Errorf("%+v", s)
		}
		w.fsck()
	})
}

// A task that has ended holds nothing of what only running needs: the data behind its job, its model.
func TestEndedTaskHoldsNothing(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, small)
		closed := 0
		held := func() weak.Pointer[[1 << 20]byte] {
			data := new([1 << 20]byte)
			w.config.Evaluate = func([]float32) any { return float64(data[0]) }
			w.config.Close = func() { closed += 1 + int(data[0]) }
			return weak.Make(data)
		}()
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		w.config.Evaluate, w.config.Close = nil, nil
		s := w.await(p, func(s wire.Status) bool { return s.State == Done })
		synctest.Wait()
		runtime.GC()
		if held.Value() != nil || closed != 1 || s.Evaluation == nil {
			t.Errorf("its data are held: %v; it was closed %d times, its evaluation is %v", held.Value() != nil, closed, s.Evaluation)
		}
		w.end(p)
	})
}

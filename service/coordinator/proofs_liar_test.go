package coordinator

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// Too few valid reports give no step, and nothing is signed or drawn.
func TestTooFewValidReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs)
		w.attack = func(place int, _ [32]byte, _ *proved.Round, _ [][]int64, part, share []byte) ([]byte, []byte) {
			if place < 6 {
				share[200] ^= 1
			}
			return part, share
		}
		s := w.run()
		if s.Released != 0 || s.Failed != 3 || s.FailedBy[FailedTooFew] != 3 || s.Rejected[wire.Unequal] != 18 {
			t.Errorf("released %d, failed %v, rejected %v", s.Released, s.FailedBy, s.Rejected)
		}
		if len(w.disk.named) != 0 || len(w.disk.drawn) != 0 || len(w.aggDisk.drawn) != 0 || w.agg.Load().Snapshot().Summed != 0 {
			t.Error("noise was drawn")
		}
		w.fsck()
	})
}

// An aggregator that lies can end rounds without a step, and no more: the coordinator takes no sum
// of another set, without its signature, or out of the range.
func TestAggregatorThatLies(t *testing.T) {
	for name, c := range map[string]struct {
		path   string
		change func(w *world, b []byte) []byte
		reason string
	}{
		"a signature of another": {"/sum", func(w *world, b []byte) []byte { b[10] ^= 1; return b }, FailedBatch},
		"no signature":           {"/sum", func(w *world, b []byte) []byte { return b[4+binary.LittleEndian.Uint32(b):] }, FailedBatch},
		"a word on another set": {"/sum", func(w *world, b []byte) []byte {
			n := binary.LittleEndian.Uint32(b)
			a, err := wire.Decode[wire.Agreed](b[4+64 : 4+n])
			if err != nil {
				t.Error(err)
			}
			a.Exclusion[0] ^= 1
			word := wire.Sign(w.aggKey, wire.LabelAgreed, wire.Encode(a))
			return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(word))), word...), b[4+n:]...)
		}, FailedBatch},
		"a sum of something else": {"/sum", func(w *world, b []byte) []byte { b[len(b)-1] ^= 0x20; return b }, FailedRange},
		"proofs of nothing":       {"/proofs", func(w *world, b []byte) []byte { return b[:40] }, FailedBatch},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
			w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
				if !strings.HasSuffix(q.URL.Path, c.path) {
					return false
				}
				r := httptest.NewRecorder()
				w.agg.Load().PeerHandler().ServeHTTP(r, q)
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				if r.Code == 200 {
					b = c.change(w, b)
				}
				out.WriteHeader(r.Code)
				_, _ = out.Write(b)
				return true
			}
			s := w.run()
			if s.Released != 0 || s.Failed != 2 || s.FailedBy[c.reason] != 2 {
				t.Errorf("released %d, failed %v: %s", s.Released, s.FailedBy, s.Failure)
			}
			if c.reason == FailedRange && !strings.Contains(s.Failure, "aggregator's share") {
				t.Errorf("it blames a client: %s", s.Failure)
			}
			w.fsck()
		})
	}
}

// Either aggregator can have reports refused; both then leave out the same.
func TestAggregatorThatRefusesReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs)
		w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
			if !strings.HasSuffix(q.URL.Path, "/proofs") {
				return false
			}
			r := httptest.NewRecorder()
			w.agg.Load().PeerHandler().ServeHTTP(r, q)
			b := r.Body.Bytes()
			b[len(b)-1] ^= 1 // in the last prep share of the message
			out.WriteHeader(r.Code)
			_, _ = out.Write(b)
			return true
		}
		s := w.run() // the true aggregator does not know of the lie, and has another set
		if s.Released != 0 || s.FailedBy[FailedUnequal] != 3 {
			t.Errorf("released %d, failed %v: %s", s.Released, s.FailedBy, s.Failure)
		}
		for _, r := range w.aggRecords() {
			if r.Summed != "" || r.Noise != "" {
				t.Errorf("the aggregator has agreed: %+v", r)
			}
		}
	})
}

// The set of a round is the first that was stored, also if the proofs leave another one after a
// restart.
func TestSetIsSettledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
		var mu sync.Mutex
		sums := map[string]int{}
		w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case strings.HasSuffix(q.URL.Path, "/sum"):
				sums[q.URL.Path]++
				if sums[q.URL.Path] == 1 { // as if it had lost its memory: the exchange begins anew
					out.WriteHeader(http.StatusServiceUnavailable)
					_, _ = out.Write([]byte("unavailable"))
					return true
				}
				return false
			case strings.HasSuffix(q.URL.Path, "/proofs") && sums[strings.TrimSuffix(q.URL.Path, "/proofs")+"/sum"] > 0:
				r := httptest.NewRecorder()
				w.agg.Load().PeerHandler().ServeHTTP(r, q)
				b := r.Body.Bytes()
				b[len(b)-1] ^= 1
				out.WriteHeader(r.Code)
				_, _ = out.Write(b)
				return true
			}
			return false
		}
		s := w.run()
		if s.Released != 0 || s.FailedBy[FailedUnequal] != 2 || !strings.Contains(s.Failure, "another set") {
			t.Errorf("released %d, failed %v: %s", s.Released, s.FailedBy, s.Failure)
		}
		if len(w.disk.named) != 0 {
			t.Error("noise was named")
		}
	})
}

// Two coordinators on one store, of which one leads: rounds are those of one, and each round has
// one noise.
func TestTwoCoordinatorsWithProofs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 5 {
			w := newWorld(t, dp.Distributed, dp.All, withProofs)
			hold := make(chan struct{})
			first, err := w.start(nil, func(c *Config) { c.Hold = hold })
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // it leads
			second, err := w.start(nil, func(c *Config) { c.Holder = "second" })
			if err != nil {
				t.Fatal(err)
			}
			var asked atomic.Int64
			w.sh.Asked = func(method, path string) {
				w.disk.event(method + " " + path)
				if asked.Add(1) == int64(3+4*i) { // in the middle of a round
					first.stop()
				}
			}
			close(hold)
			if err := <-first.done; err != nil {
				t.Fatal(err)
			}
			w.check(w.end(second))
		}
	})
}

// A store that was restored from after the charge has lost the key and the set. It makes the same key
// again, so that no report is prepared under two, and the round ends as it would have.
func TestRestoredCoordinatorMakesTheSameKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
		var held atomic.Bool
		held.Store(true)
		w.meddle = func(out http.ResponseWriter, q *http.Request) bool {
			if !held.Load() || !strings.HasSuffix(q.URL.Path, "/sum") {
				return false
			}
			out.WriteHeader(http.StatusServiceUnavailable)
			_, _ = out.Write([]byte("unavailable"))
			return true
		}
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		rec := w.stored(func(o *openRound) bool { return o.Excluded != hash{} })
		p.stop()
		<-p.done
		at := stateKey(wire.Digest(w.task))
		old := *rec.Open
		old.Key, old.Excluded = nil, hash{}
		rec.Open = &old
		if w.disk.Values[at], err = rec.encode(); err != nil {
			t.Fatal(err)
		}
		held.Store(false)
		w.check(w.run())

		a, err := keyOfProofs(w.key, [32]byte{1})
		b, err2 := keyOfProofs(w.key, [32]byte{2})
		c, err3 := keyOfProofs(signer(t), [32]byte{1})
		if err != nil || err2 != nil || err3 != nil || a == b || a == c || a == (proved.VerifyKey{}) {
			t.Errorf("keys of two rounds and of two coordinators: equal, or %v %v %v", err, err2, err3)
		}
	})
}

// A store that was restored from before a round named its noise would draw a second one, and from
// before its set was stored might sum another. What was promised lies outside the store, too.
func TestRestoredCoordinatorKeepsItsPromises(t *testing.T) {
	for name, forget := range map[string]func(*openRound){
		"noise":          func(o *openRound) { o.Noise = hash{} },
		"noise and word": func(o *openRound) { o.Noise, o.Agreed = hash{}, nil },
		"everything":     func(o *openRound) { o.Noise, o.Agreed, o.Excluded, o.Key = hash{}, nil, hash{}, nil },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
			rec := w.untilNoise()
			drawn := len(w.disk.drawn)
			forget(rec.Open)
			b, err := rec.encode()
			if err != nil {
				t.Fatal(err)
			}
			if found := w.found(); len(found) != 0 {
				t.Errorf("before: %q", found)
			}
			w.disk.Values[stateKey(wire.Digest(w.task))] = b
			if found := w.found(); len(found) != 1 || !strings.Contains(found[0], "old copy") {
				t.Errorf("fsck: %q", found)
			}
			s := w.run()
			if s.Released != 1 || s.FailedBy[FailedSecret] != 1 || len(w.disk.drawn) != drawn+1 || !strings.Contains(s.Failure, "old copy") {
				t.Errorf("released %d, failed %v (%s), %d draws", s.Released, s.FailedBy, s.Failure, len(w.disk.drawn)-drawn)
			}
		})
	}
}

func TestPromises(t *testing.T) {
	f := PromiseFile(filepath.Join(t.TempDir(), "rounds"))
	if _, err := f.Load(); !errors.Is(err, mark.ErrNone) { // it is not empty: it may have held some
		t.Errorf("a missing file: %v", err)
	}
	if _, err := f.Create(t.Context(), nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	all, err := f.Load()
	if err != nil || len(all) != 0 {
		t.Fatalf("a new file: %v, %v", all, err)
	}
	old := promise{Round: 4, Announcement: hash{1}, Excluded: hash{2}}
	named := old
	named.Noise = hash{3}
	all[hash{9}], all[hash{8}] = old, named
	if err := f.Save(all); err != nil {
		t.Fatal(err)
	}
	if got, err := f.Load(); err != nil || !maps.Equal(got, all) {
		t.Errorf("%v, want %v: %v", got, all, err)
	}
	for _, bad := range []string{"", "{}", `{"format": 2}`, `{"format": 1, "tasks": {"00": {}}}`, `{"format": 1, "task": {}}`} {
		if err := os.WriteFile(string(f), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := f.Load(); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	set, other, next, before := old, old, old, old
	set.Excluded[0]++
	other.Announcement[0]++
	next.Announcement[0]++
	next.Round++
	before.Round--
	renamed := named
	renamed.Noise[0]++
	for _, c := range []struct {
		old, now promise
		keeps    bool
	}{{old, old, true}, {old, named, true}, {named, named, true}, {old, next, true}, {named, next, true},
		{named, old, false}, {named, renamed, false}, {old, set, false}, {old, other, false}, {old, before, false}, {next, old, false}} {
		if c.now.keeps(c.old) != c.keeps {
			t.Errorf("%+v after %+v: keeps it: %v", c.now, c.old, !c.keeps)
		}
	}
}

// stored waits until the state of an open round is such, and returns it.
func (w *world) stored(f func(*openRound) bool) (rec record) {
	w.t.Helper()
	until(w.t, func() bool {
		var err error
		if rec, _, err = readRecord(context.Background(), w.disk.store(nil), wire.Digest(w.task)); err != nil && !errors.Is(err, store.ErrNotFound) {
			w.t.Fatal(err)
		}
		return rec.Open != nil && f(rec.Open)
	})
	return rec
}

// untilNoise runs a coordinator until its first round names a noise, and returns its state.
func (w *world) untilNoise() record {
	w.t.Helper()
	told := w.config.RecordSum
	w.config.RecordSum = func(int64, []int64, int64) error { return errors.New("the disk is full") }
	p, err := w.start(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	rec := w.stored(func(o *openRound) bool { return o.Noise != hash{} })
	p.stop()
	<-p.done
	w.config.RecordSum = told
	return rec
}

// Noise and keys that are stored and cannot be read end a round, and are not drawn again.
func TestLostSecrets(t *testing.T) {
	for name, spoil := range map[string]func(w *world, key string, rec *record){
		"noise gone": func(w *world, _ string, rec *record) {
			delete(w.disk.Objects, noiseName(wire.Digest(w.task), rec.Open.Noise))
		},
		"noise changed": func(w *world, _ string, rec *record) {
			w.disk.Objects[noiseName(wire.Digest(w.task), rec.Open.Noise)][80] ^= 1
		},
		"key changed": func(w *world, key string, rec *record) {
			rec.Open.Key[70] ^= 1
			b, err := rec.encode()
			if err != nil {
				w.t.Error(err)
			}
			w.disk.Values[key] = b
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Distributed, dp.All, withProofs, small)
			rec := w.untilNoise()
			spoil(w, stateKey(wire.Digest(w.task)), &rec)
			drawn := len(w.disk.drawn)
			s := w.run()
			if s.Released != 1 || s.FailedBy[FailedSecret] != 1 || len(w.disk.drawn) != drawn+1 && name != "key changed" {
				t.Errorf("released %d, failed %v, %d draws", s.Released, s.FailedBy, len(w.disk.drawn)-drawn)
			}
		})
	}
}

package aggregator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/mark"
)

// Two processes on one store draw at once: one noise is named, and both add that.
func TestTwoProcessesDrawOnce(t *testing.T) {
	raced := 0
	defer func() {
		if raced == 0 {
			t.Error("no two draws met")
		}
	}()
	for range 5 {
		w := newProved(t, 1)
		log := &noiseLog{storage: w.store, drawn: map[string][]byte{}}
		both := make(chan struct{})
		var n int
		log.put = func() { // each waits until both have stored a draw, and neither has named it
			log.mu.Lock()
			if n++; n == 2 {
				close(both)
			}
			log.mu.Unlock()
			select {
			case <-both:
			case <-time.After(5 * time.Second):
			}
		}
		a, b := w.start(log), w.start(log)
		var x *exchange.Exchange
		for _, s := range []*Service{a, b} {
			w.prepare(s)
			x = w.exchange(s)
		}
		// The word on the set is stored, so that both come to the noise.
		rec, revision, err := a.load(t.Context(), wire.Digest(w.a))
		if err != nil {
			t.Fatal(err)
		}
		rec.Summed = wire.Digest(wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Places: []int64{1}})
		rec.Agreed = wire.Sign(w.signs, wire.LabelAgreed, wire.Encode(wire.Agreed{Announcement: wire.Digest(w.a), Exclusion: rec.Summed}))
		if _, err := a.put(t.Context(), wire.Digest(w.a), rec, revision); err != nil {
			t.Fatal(err)
		}
		answers := make([][]byte, 2)
		for tries := 0; answers[0] == nil || answers[1] == nil; tries++ {
			if tries == 20 {
				t.Fatal("no answers")
			}
			var wg sync.WaitGroup
			for i, s := range []*Service{a, b} {
				wg.Go(func() {
					code, body := ask(s, w.path("sum"), w.exclude(1))
					switch code {
					case 200:
						answers[i] = body
					case 503: // it lost a race
					default:
						t.Errorf("%d %s", code, body)
					}
				})
			}
			wg.Wait()
			for i, s := range []*Service{a, b} {
				if answers[i] == nil {
					w.prepare(s)
					x = w.exchange(s)
				}
			}
		}
		if !bytes.Equal(answers[0], answers[1]) {
			t.Fatal("two processes answer otherwise")
		}
		w.combine(x, answers[0], log.drawn, 1)
		if len(log.drawn) > 1 {
			raced++
		}
		if left := listedObjects(w.store, noisePrefix); len(left) != 0 || len(listedObjects(w.store, "partial/")) != 1 {
			t.Errorf("noise %v, partial sums %v", left, listedObjects(w.store, "partial/"))
		}
	}
}

// A store that was restored from before the noise was named would draw a second one.
func TestRestoredStoreDrawsNoSecondNoise(t *testing.T) {
	w := newProved(t)
	log := &noiseLog{storage: w.store, drawn: map[string][]byte{}}
	fresh := w.store.copied()
	s := w.start(log)
	w.prepare(s)
	w.exchange(s)
	backup := w.store.copied()
	now := w.store
	w.store = fresh // it has forgotten the key
	if _, err := w.tryStart(); err == nil || !strings.Contains(err.Error(), "old copy") {
		t.Errorf("a store without the key: %v", err)
	}
	w.store = now
	if code, b := ask(s, w.path("sum"), w.exclude()); code != 200 {
		t.Fatalf("%d %s", code, b)
	}
	w.store = backup
	if _, err := w.tryStart(); err == nil || !strings.Contains(err.Error(), "old copy") {
		t.Errorf("a restored store: %v", err)
	}
	w.store = now
	w.change = func(c *Config) { c.Mark = nil }
	if code, b := ask(w.start(), "/v1/rounds", w.body(roundKey)); code != 403 {
		t.Errorf("an aggregator without a mark takes part: %d %s", code, b)
	}
	w.change = func(c *Config) { c.Key = nil }
	if code, b := ask(w.start(), "/v1/rounds", w.body(roundKey)); code != 403 {
		t.Errorf("an aggregator that cannot sign takes part: %d %s", code, b)
	}
}

// A store that was restored from before the key was stored would take a second one, and show each
// report at two points. The mark is written before any report is prepared.
func TestRestoredStoreTakesNoSecondKey(t *testing.T) {
	w := newProved(t)
	backup := w.store.copied()
	w.prepare(w.start())
	now := w.store
	w.store = backup
	if _, err := w.tryStart(); !errors.Is(err, mark.Err) {
		t.Errorf("a restored store: %v", err)
	}
	w.store = now
	w.prepare(w.start())

	w = newProved(t)
	broken := &brokenMark{}
	w.mark = broken
	s := w.start()
	broken.err = errors.New("no space")
	for range 2 { // the second finds the record
		if code, b := ask(s, "/v1/rounds", w.body(roundKey)); code != 503 {
			t.Errorf("prepared without a mark: %d %s", code, b)
		}
	}
	if code, b := ask(s, w.path("proofs"), []byte{}); code == 200 {
		t.Errorf("proofs without a mark: %d %s", code, b)
	}
	broken.err = nil
	w.prepare(s)
	if broken.m.Entries != 1 {
		t.Errorf("the mark is at %d", broken.m.Entries)
	}
}

// Noise that was named and is lost is not drawn again.
func TestLostNoiseIsNotDrawnAgain(t *testing.T) {
	w := newProved(t)
	broken := &brokenMark{}
	w.mark = broken
	s := w.start()
	w.prepare(s)
	w.exchange(s)
	broken.err = context.DeadlineExceeded // after the noise was named, before it is added
	if code, b := ask(s, w.path("sum"), w.exclude()); code != 503 {
		t.Fatalf("%d %s", code, b)
	}
	broken.err = nil
	named := w.record().Noise
	names := listedObjects(w.store, noisePrefix)
	if len(names) != 1 || named == (hash{}) || names[0] != noiseName(wire.Digest(w.a), named) {
		t.Fatalf("%v, %x", names, named)
	}
	whole := w.store.objects[names[0]]
	for what, b := range map[string][]byte{"gone": nil, "changed": append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1)} {
		if w.store.objects[names[0]] = b; b == nil {
			delete(w.store.objects, names[0])
		}
		if err := checkNoise(t.Context(), w.store, wire.Digest(w.a), w.record()); err == nil {
			t.Errorf("%s: fsck does not see it", what)
		}
		s := w.start()
		w.prepare(s)
		w.exchange(s)
		for range 2 {
			if code, body := ask(s, w.path("sum"), w.exclude()); code != 410 {
				t.Errorf("%s: %d %s", what, code, body)
			}
		}
		if w.record().Noise != named || w.record().Partial != (hash{}) {
			t.Errorf("%s: %+v", what, w.record())
		}
	}
	w.store.objects[names[0]] = whole
	if err := checkNoise(t.Context(), w.store, wire.Digest(w.a), w.record()); err != nil {
		t.Error(err)
	}
	s = w.start()
	w.prepare(s)
	x := w.exchange(s)
	code, b := ask(s, w.path("sum"), w.exclude())
	if code != 200 {
		t.Fatalf("with its noise: %d %s", code, b)
	}
	w.combine(x, b, map[string][]byte{names[0]: whole})
	delete(w.store.objects, names[0])
	if err := checkNoise(t.Context(), w.store, wire.Digest(w.a), w.record()); err != nil {
		t.Errorf("noise that has no further use is missed: %v", err)
	}
}

// Noise of a round that ended without a sum goes when the task's next round is prepared.
func TestNoiseOfAbandonedRounds(t *testing.T) {
	w := newProved(t)
	broken := &brokenMark{}
	w.mark = broken
	s := w.start()
	w.prepare(s)
	w.exchange(s)
	broken.err = errors.New("no space")
	if code, b := ask(s, w.path("sum"), w.exclude()); code != 503 {
		t.Fatalf("%d %s", code, b)
	}
	broken.err = nil
	if err := s.sweep(t.Context(), hash{1}, 9); err != nil || len(listedObjects(w.store, noisePrefix)) != 1 {
		t.Errorf("a round of another task deletes it: %v", err)
	}
	w.vector = nil
	w.a.Round, w.a.Opens = 2, w.a.Opens+1
	w.open(&w.a)
	w.closed = w.sh.Closed(wire.Digest(w.a))
	w.prepare(s)
	if left := listedObjects(w.store, noisePrefix); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// A start deletes noise that is never added, and no other.
func TestSweep(t *testing.T) {
	w := newProved(t)
	s := w.start()
	w.prepare(s)
	d := wire.Digest(w.a)
	put := func(name string) {
		if err := w.store.PutObject(t.Context(), name, []byte("noise")); err != nil {
			t.Fatal(err)
		}
	}
	put(noiseName(d, hash{1}))
	put(noisePrefix + "of nothing")
	w.start()
	if left := listedObjects(w.store, noisePrefix); len(left) != 2 {
		t.Errorf("a draw that may be named yet is gone: %v", left)
	}
	w.exchange(s)
	if code, _ := ask(s, w.path("sum"), w.exclude()); code != 200 {
		t.Fatal(code)
	}
	w.start()
	if left := listedObjects(w.store, noisePrefix); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

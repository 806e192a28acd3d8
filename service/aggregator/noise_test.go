package aggregator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/mark"
)

// Two processes on one store draw at once: one noise is named, and both add that.
func TestTwoProcessesDrawOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A store that was restored from before the noise was named would draw a second one.
// Where clients send it, it would release the round with other earlier rounds.
func TestRestoredStoreDrawsNoSecondNoise(t *testing.T) {
	eachProved(t, restoredStoreDrawsNoSecondNoise)
}

func restoredStoreDrawsNoSecondNoise(t *testing.T, w *provedWorld) {
	log := &noiseLog{storage: w.store, drawn: map[string][]byte{}}
	fresh := copied(w.store)
	s := w.start(log)
	w.prepare(s)
	w.exchange(s)
	backup := copied(w.store)
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

// holding has those who hold a sum wait for each other.
type holding struct {
	storage
	both  chan struct{}
	mu    sync.Mutex
	n     int
	named []string
}

func (h *holding) PutObject(ctx context.Context, name string, data []byte) error {
	err := h.storage.PutObject(ctx, name, data)
	if strings.HasPrefix(name, heldPrefix) {
		h.mu.Lock()
		h.named = append(h.named, name)
		if h.n++; h.n == 2 {
			close(h.both)
		}
		h.mu.Unlock()
		select {
		case <-h.both:
		case <-time.After(5 * time.Second):
		}
	}
	return err
}

// Two processes on one store sum a round with noise of clients at once, and have both mixed it before either has stored
// its sum: one answer is stored and given, with each client's noise once, and one share is held.
func TestTwoProcessesSumNoiseOfClientsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeld(t, true, 1)
		h := &holding{storage: w.log, both: make(chan struct{})}
		a, b := w.start(h), w.start(h)
		var x *exchange.Exchange
		for _, s := range []*Service{a, b} {
			w.prepare(s)
			x = w.exchange(s)
		}
		// The word on the set is stored, so that both come to the sum.
		rec, revision, err := a.load(t.Context(), wire.Digest(w.a))
		if err != nil {
			t.Fatal(err)
		}
		rec.Summed = wire.Digest(wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Places: []int64{1}})
		rec.Agreed = wire.Sign(w.signs, wire.LabelAgreed, wire.Encode(wire.Agreed{Announcement: wire.Digest(w.a), Exclusion: rec.Summed}))
		if _, err := a.put(t.Context(), wire.Digest(w.a), rec, revision); err != nil {
			t.Fatal(err)
		}
		codes := make(chan int, 2)
		for _, s := range []*Service{a, b} {
			go func() {
				code, _ := ask(s, w.path("sum"), w.exclude(1))
				codes <- code
			}()
		}
		if one, two := <-codes, <-codes; min(one, two) != 200 || max(one, two) != 503 {
			t.Errorf("answered %d and %d", one, two)
		}
		if h.n != 2 || h.named[0] == h.named[1] {
			t.Fatalf("the two did not meet: %q", h.named)
		}
		var answers [][]byte
		for _, s := range []*Service{a, b, w.start(h)} {
			code, body := ask(s, w.path("sum"), w.exclude(1))
			if code != 200 {
				t.Fatalf("asked again: %d %s", code, body)
			}
			answers = append(answers, body)
		}
		if !bytes.Equal(answers[0], answers[1]) || !bytes.Equal(answers[0], answers[2]) {
			t.Error("two processes answer otherwise")
		}
		w.combine(x, answers[0], nil, 1)
		w.drew(w.log, 0)
		if got := w.holds(); len(got) != 1 || len(listedObjects(w.store, "partial/")) != 1 {
			t.Errorf("held %v, partial sums %v", got, listedObjects(w.store, "partial/"))
		}
		if found := w.found(); len(found) != 0 {
			t.Errorf("fsck: %q", found)
		}
	})
}

// A record says either that noise was drawn or that clients sent it, of a round with proofs.
func TestRecordsOfNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newHeld(t, true)
		w.prepare(w.s)
		w.release()
		good := w.record()
		for what, c := range map[string]struct {
			change func(*record)
			valid  bool
		}{
			"sent":                         {func(*record) {}, true},
			"sent, not summed":             {func(r *record) { r.Summed, r.Agreed, r.Partial, r.Held = hash{}, nil, hash{}, hash{} }, true},
			"sent and drawn":               {func(r *record) { r.Noise = hash{1} }, false},
			"sent and drawn, no sum yet":   {func(r *record) { r.Noise, r.Partial, r.Held = hash{1}, hash{}, hash{} }, false},
			"drawn":                        {func(r *record) { r.Sent, r.Noise = false, hash{1} }, true},
			"neither":                      {func(r *record) { r.Sent = false }, false},
			"neither, no sum yet":          {func(r *record) { r.Sent, r.Partial, r.Held = false, hash{}, hash{} }, true},
			"sent, of a round of no proof": {func(r *record) { r.Key, r.Agreed, r.Own, r.Held = nil, nil, hash{1}, hash{} }, false},
		} {
			r := good
			c.change(&r)
			b, err := json.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeRecord(b); (err == nil) != c.valid {
				t.Errorf("%s: %v", what, err)
			}
		}
		// A list of rounds that has no sum of it is noticed, and one with noise.
		for what, change := range map[string]func(){
			"the sum is missing": func() { w.store.Log = w.store.Log[:len(w.store.Log)-1] },
			"noise is listed": func() {
				last := w.store.Log[len(w.store.Log)-1]
				w.store.Log[len(w.store.Log)-1] = bytes.Replace(last, []byte(`}`), []byte(`,"noise":"`+strings.Repeat("11", 32)+`"}`), 1)
			},
		} {
			entries := slices.Clone(w.store.Log)
			change()
			found := 0
			if _, err := Check(t.Context(), w.store, nil, func(string, string, ...any) { found++ }); err != nil || found != 1 {
				t.Errorf("%s: %d problems, %v", what, found, err)
			}
			w.store.Log = entries
		}
	})
}

// A store that was restored from before the key was stored would take a second one, and show each
// report at two points. The mark is written before any report is prepared.
func TestRestoredStoreTakesNoSecondKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProved(t)
		backup := copied(w.store)
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
	})
}

// Noise that was named and is lost is not drawn again.
func TestLostNoiseIsNotDrawnAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		whole := w.store.Objects[names[0]]
		for what, b := range map[string][]byte{"gone": nil, "changed": append(bytes.Clone(whole[:len(whole)-1]), whole[len(whole)-1]^1)} {
			if w.store.Objects[names[0]] = b; b == nil {
				delete(w.store.Objects, names[0])
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
		w.store.Objects[names[0]] = whole
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
		delete(w.store.Objects, names[0])
		if err := checkNoise(t.Context(), w.store, wire.Digest(w.a), w.record()); err != nil {
			t.Errorf("noise that has no further use is missed: %v", err)
		}
	})
}

// Noise of a round that ended without a sum goes when the task's next round is prepared.
func TestNoiseOfAbandonedRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// A start deletes noise that is never added, and no other.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
	})
}

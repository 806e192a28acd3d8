package aggregator

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
)

// marked returns a world with a mark, whose first round was summed.
func marked(t *testing.T) (w *world, file mark.File, before *memory.Store) {
	t.Helper()
	w = newWorld(t, 2)
	file = mark.File(filepath.Join(t.TempDir(), "rounds.json"))
	if err := file.Save(mark.Mark{}); err != nil {
		t.Fatal(err)
	}
	w.mark = file
	s := w.start()
	w.prepare(s)
	before = copied(w.store)
	if code, b := ask(s, w.sumPath(), w.exclude(2)); code != 200 {
		t.Fatalf("%d %s", code, b)
	}
	return w, file, before
}

// A store that was restored from before a round was summed could sum it again over other reports.
func TestRestoredStoreIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, file, before := marked(t)
		if m, err := file.Load(); err != nil || m.Entries != 1 {
			t.Fatalf("%+v, %v", m, err)
		}
		now := w.store
		w.store = before
		if _, err := w.tryStart(); !errors.Is(err, mark.Err) {
			t.Fatalf("a restored store was taken: %v", err)
		}
		w.mark = nil // without a mark nobody notices, and the round is summed over other reports
		s := w.start()
		w.prepare(s)
		if code, b := ask(s, w.sumPath(), w.exclude(2, 3)); code != 200 {
			t.Fatalf("%d %s: the test does not show what the mark prevents", code, b)
		}
		w.store, w.mark = now, file
		if code, _ := ask(w.start(), w.sumPath(), w.exclude(2)); code != 200 {
			t.Errorf("the true store: %d", code)
		}
	})
}

func TestMarkOfAnotherStoreIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, file, _ := marked(t)
		w.store.Log[0] = bytes.Replace(w.store.Log[0], []byte(`"summed":"`), []byte(`"summed": "`), 1)
		if _, err := w.tryStart(); !errors.Is(err, mark.Err) {
			t.Errorf("an entry was edited: %v", err)
		}
		w.mark = mark.File(string(file) + ".other")
		if _, err := w.tryStart(); !errors.Is(err, mark.ErrNone) {
			t.Errorf("without its mark: %v", err)
		}
	})
}

// Two processes on one store write one history.
func TestTwoProcessesWriteOneHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _ := marked(t)
		a, b := w.start(), w.start()
		for round := int64(2); round <= 5; round++ {
			w.seeds, w.counts = nil, nil
			w.a = w.announce(round)
			w.open(&w.a)
			w.closed = w.sh.Closed(wire.Digest(w.a))
			s := []*Service{a, b}[round%2]
			w.prepare(s)
			if code, body := ask(s, w.sumPath(), w.exclude(2)); code != 200 {
				t.Fatalf("round %d: %d %s", round, code, body)
			}
		}
		if len(w.store.Log) != 5 {
			t.Errorf("%d entries", len(w.store.Log))
		}
		if err := a.history.Open(t.Context()); err != nil || a.history.Len() != 5 {
			t.Errorf("%d rounds, %v", a.history.Len(), err)
		}
	})
}

// The mark is written before the answer: no round that was answered is missing in it, and the
// answer is the same when it is asked for again.
func TestMarkComesBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		broken := &brokenMark{}
		w.mark = broken
		s := w.start()
		w.prepare(s)
		broken.err = errors.New("no space")
		if code, _ := ask(s, w.sumPath(), w.exclude()); code != 503 {
			t.Fatalf("answered without a mark: %d", code)
		}
		if rec, _, err := s.load(t.Context(), wire.Digest(w.a)); err != nil || rec.Summed == (hash{}) || rec.Partial != (hash{}) {
			t.Errorf("%+v, %v", rec, err)
		}
		broken.err = nil
		code, first := ask(s, w.sumPath(), w.exclude())
		if code != 200 || broken.m.Entries != 1 {
			t.Fatalf("%d, mark %+v", code, broken.m)
		}
		w.combine(first)
		if code, b := ask(w.start(), w.sumPath(), w.exclude()); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("again: %d", code)
		}
	})
}

type brokenMark struct {
	m   mark.Mark
	err error
}

func (b *brokenMark) Load() (mark.Mark, error) { return b.m, nil }
func (b *brokenMark) Save(m mark.Mark) error {
	if b.err == nil {
		b.m = m
	}
	return b.err
}

// A round has one key and one sum, in this order, whoever notes them and however often.
func TestHistoryOfKeys(t *testing.T) {
	db, marks := newMemory(), &brokenMark{}
	open := func() *history {
		h := newHistory(db, marks)
		if err := h.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		return h
	}
	a, b := open(), open()
	first, second := [32]byte{1}, [32]byte{2}
	sum := record{Summed: hash{7}, Noise: hash{8}}
	for i, step := range []struct {
		entries int64
		good    bool
		do      func(*history) error
	}{
		{1, true, func(h *history) error { return h.fix(t.Context(), first, []byte("key")) }},
		{1, false, func(h *history) error { return h.fix(t.Context(), first, []byte("another")) }},
		{2, true, func(h *history) error { return h.add(t.Context(), first, sum) }},
		{2, true, func(h *history) error { return h.fix(t.Context(), first, []byte("key")) }},
		{2, false, func(h *history) error { return h.fix(t.Context(), first, []byte("another")) }},
		{2, false, func(h *history) error { return h.add(t.Context(), first, record{Summed: hash{7}, Noise: hash{9}}) }},
		{2, false, func(h *history) error { return h.add(t.Context(), first, record{Summed: hash{6}, Noise: hash{8}}) }},
		{3, true, func(h *history) error { return h.add(t.Context(), second, sum) }},
		{3, false, func(h *history) error { return h.fix(t.Context(), second, []byte("after its sum")) }},
	} {
		for _, h := range []*history{a, b, open(), a} {
			if err := step.do(h); (err == nil) != step.good || !step.good && !errors.Is(err, mark.Err) {
				t.Errorf("step %d: %v", i, err)
			}
		}
		if marks.m.Entries != step.entries || len(db.Log) != int(step.entries) {
			t.Fatalf("step %d: %d entries, the mark is at %d", i, len(db.Log), marks.m.Entries)
		}
	}
	whole := db.Log
	for n := range whole {
		db.Log = whole[:n]
		if err := newHistory(db, marks).Open(t.Context()); !errors.Is(err, mark.Err) {
			t.Errorf("the first %d entries: %v", n, err)
		}
	}
}

package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

var people = wire.ID{5}

// storage is a log and a mark that fail where they are told to.
type storage struct {
	entries [][]byte
	mark    Mark
	fail    func(what string, after bool) error
}

var errDown = errors.New("down")

func (s *storage) trouble(what string, after bool) error {
	if s.fail == nil {
		return nil
	}
	return s.fail(what, after)
}

func (s *storage) Append(_ context.Context, after int64, data []byte) error {
	if err := s.trouble("append", false); err != nil {
		return err
	}
	if int64(len(s.entries)) != after {
		return ErrConflict
	}
	s.entries = append(s.entries, bytes.Clone(data))
	return s.trouble("append", true)
}

func (s *storage) Read(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if err := s.trouble("read", false); err != nil {
			yield(nil, err)
			return
		}
		for _, e := range s.entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (s *storage) Load() (Mark, error) { return s.mark, s.trouble("load", false) }

func (s *storage) Save(m Mark) error {
	if err := s.trouble("save", false); err != nil {
		return err
	}
	s.mark = m
	return s.trouble("save", true)
}

func budget(eps float64) Config { return Config{Accountant: adder{}, Delta: 1e-6, MaxEps: eps} }

// adder counts ε₀ for every round.
type adder struct{}

func (a adder) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	b := dp.Bound{Guarantee: dp.Guarantee{Delta: delta}}
	for _, x := range ev.(dp.Sequence) {
		r := x.(dp.Repeat)
		e := r.Event.(dp.Round)
		if e.Participation == dp.Once {
			return b, dp.ErrNoBound
		}
		b.Eps += e.Report.Eps0 * float64(r.Times)
	}
	return b, nil
}

func (a adder) EpsAdaptive(ev dp.Event, _, delta float64) (dp.Bound, error) { return a.Eps(ev, delta) }

func event(eps0 float64) dp.Round {
	return dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: eps0}, Trust: dp.Shuffle, Participation: dp.All, Population: 9}
}

func charge(task byte, round int64, eps0 float64) Charge {
	return Charge{Task: [32]byte{task}, Round: round, Announcement: [32]byte{1, byte(round)}, Batch: [32]byte{2, byte(round)}, Event: event(eps0)}
}

func open(t *testing.T, s *storage, eps float64) *Journal {
	t.Helper()
	j, err := OpenJournal(t.Context(), s, s, people, budget(eps))
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []byte{1, 2} {
		if _, err := j.Task([32]byte{task}, budget(5)); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

func TestJournalKeepsBothBudgets(t *testing.T) {
	s := &storage{}
	j := open(t, s, 7)
	for _, c := range []struct {
		Charge
		want error
	}{
		{charge(1, 1, 2), nil}, {charge(1, 2, 2), nil},
		{charge(1, 3, 2), ErrBudget}, // the task's 5
		{charge(2, 1, 3), nil},
		{charge(2, 2, 1), ErrBudget}, // the population's 7
		{charge(2, 1, 3), nil},       // again
		{charge(3, 1, 1), ErrUncounted},
	} {
		if err := j.Charge(t.Context(), c.Charge); !errors.Is(err, c.want) {
			t.Errorf("task %d, round %d: %v, want %v", c.Task[0], c.Round, err, c.want)
		}
	}
	if len(s.entries) != 3 || s.mark.Entries != 3 || s.mark.Eps != 7 {
		t.Errorf("%d entries, mark %+v", len(s.entries), s.mark)
	}
	again := open(t, s, 7)
	if err := again.Charge(t.Context(), charge(1, 3, 2)); !errors.Is(err, ErrBudget) {
		t.Errorf("a fresh start is a fresh budget: %v", err)
	}
	again.View(func(b *Book) {
		if x, err := b.Spent(); err != nil || x.Eps != 7 {
			t.Errorf("spent %v, %v", x.Eps, err)
		}
		st, err := Show(b, budget(1), nil)
		if err != nil || st.Spent.Eps != 7 || len(st.Tasks) != 2 || st.Tasks[0].Spent.Eps != 4 || st.Tasks[0].Last != 2 || st.Tasks[1].Spent.Eps != 3 || st.Digest != s.mark.Digest {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

func TestAChargePaysForOneBatch(t *testing.T) {
	s := &storage{}
	j := open(t, s, 9)
	if err := j.Charge(t.Context(), charge(1, 4, 1)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Charge){
		"another batch":        func(c *Charge) { c.Batch[9] = 1 },
		"another announcement": func(c *Charge) { c.Announcement[9] = 1 },
		"another event":        func(c *Charge) { c.Event = event(.5) },
		"an earlier round":     func(c *Charge) { c.Round = 3 },
	} {
		c := charge(1, 4, 1)
		change(&c)
		if err := j.Charge(t.Context(), c); !errors.Is(err, ErrCharged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(s.entries) != 1 {
		t.Errorf("%d entries", len(s.entries))
	}
	c := charge(1, 5, 1)
	c.Event = dp.Round{Report: event(1).Report, Trust: dp.Shuffle, Participation: dp.Once, Population: 9, Reports: 3}
	if err := j.Charge(t.Context(), c); !errors.Is(err, ErrUncounted) || !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("a round that cannot be counted: %v", err)
	}
}

// A task's ledger writes down which batch is paid for, and charges no other task.
func TestTaskLedger(t *testing.T) {
	s := &storage{}
	j := open(t, s, 9)
	l, err := j.Task([32]byte{1}, budget(2))
	if err != nil {
		t.Fatal(err)
	}
	e := Entry{Round: 1, Event: event(1)}
	c := Charge{Task: [32]byte{2}, Round: 1, Announcement: [32]byte{3}, Batch: [32]byte{4}, Event: e.Event}
	if err := l.Charge(t.Context(), c); err == nil {
		t.Error("charged another task")
	}
	c.Task = [32]byte{1}
	if err := l.Charge(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	var last wire.Entry
	var ok bool
	j.View(func(b *Book) { last, ok = b.Last(c.Task) })
	if !ok || last.Announcement != [32]byte{3} || last.Batch != [32]byte{4} || last.Round != 1 {
		t.Errorf("%+v", last)
	}
	if b, err := l.Spent(); err != nil || b.Eps != 1 {
		t.Errorf("%v %v", b.Eps, err)
	}
	if err := l.Affords(Entry{Event: event(1)}); err != nil {
		t.Errorf("a second round: %v", err)
	}
	if err := l.Affords(Entry{Event: event(1.5)}); !errors.Is(err, ErrBudget) {
		t.Errorf("too dear a round: %v", err)
	}
	if err := l.Restore([]Entry{e}); err != nil {
		t.Error(err)
	}
	for _, other := range [][]Entry{nil, {{Round: 2, Event: event(1)}}, {e, e}} {
		if err := l.Restore(other); err == nil {
			t.Errorf("restored %v", other)
		}
	}
}

// Whatever fails when, a charge that returned nil is in the log, none is there
// twice, the mark is never ahead, and a retry succeeds.
func TestJournalSurvivesFailures(t *testing.T) {
	for at := 1; ; at++ {
		s := &storage{}
		n, hit := 0, false
		s.fail = func(string, bool) error {
			if n++; n == at {
				hit = true
				return errDown
			}
			return nil
		}
		j, err := OpenJournal(t.Context(), s, s, people, budget(100))
		if err != nil {
			j = nil
		}
		for round := int64(1); round <= 4; round++ {
			for try := 0; ; try++ {
				if try == 3 {
					t.Fatalf("failure %d: round %d is never charged", at, round)
				}
				if j == nil || try == 2 { // a new process
					if j, err = OpenJournal(t.Context(), s, s, people, budget(100)); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := j.Task([32]byte{1}, budget(100)); err != nil {
					t.Fatal(err)
				}
				err := j.Charge(t.Context(), charge(1, round, 1))
				if s.mark.Entries > int64(len(s.entries)) {
					t.Fatalf("failure %d: the mark is ahead", at)
				}
				if err == nil {
					break
				}
			}
			if int64(len(s.entries)) != round || s.mark.Entries != round {
				t.Fatalf("failure %d: %d entries, mark %d after round %d", at, len(s.entries), s.mark.Entries, round)
			}
		}
		if !hit {
			break
		}
	}
}

// Two processes over one log charge each round once, and both keep the budget.
func TestTwoWriters(t *testing.T) {
	s := &storage{}
	a, b := open(t, s, 4), open(t, s, 4)
	for _, step := range []struct {
		j    *Journal
		c    Charge
		want error
	}{
		{a, charge(1, 1, 1), nil}, {b, charge(1, 1, 1), nil}, {b, charge(2, 1, 1), nil}, {a, charge(1, 2, 1), nil},
		{b, charge(1, 2, 1), nil}, {b, charge(1, 3, 2), ErrBudget}, {a, charge(2, 2, 1), nil}, {b, charge(1, 3, 1), ErrBudget},
	} {
		if err := step.j.Charge(t.Context(), step.c); !errors.Is(err, step.want) {
			t.Errorf("task %d, round %d: %v, want %v", step.c.Task[0], step.c.Round, err, step.want)
		}
	}
	if len(s.entries) != 4 {
		t.Errorf("%d entries", len(s.entries))
	}
}

// Any entry that is changed, taken out, put in, moved or of another population is
// found, by the chain or by the mark.
func TestHarmIsFound(t *testing.T) {
	s := &storage{}
	j := open(t, s, 100)
	for round := int64(1); round <= 5; round++ {
		if err := j.Charge(t.Context(), charge(1, round, 1)); err != nil {
			t.Fatal(err)
		}
	}
	good := slices.Clone(s.entries)
	if b, err := Verify(t.Context(), s, s.mark, people); err != nil || len(b.Entries()) != 5 {
		t.Fatalf("a good book: %v", err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		e := make([][]byte, len(good))
		for i := range good {
			e[i] = bytes.Clone(good[i])
		}
		i := rapid.IntRange(0, 4).Draw(rt, "entry")
		switch rapid.SampledFrom([]string{"change", "out", "twice", "swap", "cut", "longer"}).Draw(rt, "harm") {
		case "change":
			at := rapid.IntRange(0, len(e[i])-1).Draw(rt, "byte")
			e[i][at] ^= byte(rapid.IntRange(1, 255).Draw(rt, "by"))
		case "out":
			e = slices.Delete(e, i, i+1)
		case "twice":
			e = slices.Insert(e, i, e[i])
		case "swap":
			k := (i + 1) % 5
			e[i], e[k] = e[k], e[i]
		case "cut":
			e = e[:i]
		case "longer":
			e[i] = append(e[i], 0)
		}
		harmed := &storage{entries: e, mark: s.mark}
		if _, err := Verify(context.Background(), harmed, s.mark, people); !errors.Is(err, ErrChain) && !errors.Is(err, ErrMark) {
			rt.Errorf("not found: %v", err)
		}
		if _, err := OpenJournal(context.Background(), harmed, harmed, people, budget(100)); err == nil {
			rt.Error("opened")
		}
	})
	if _, err := Verify(t.Context(), s, s.mark, wire.ID{6}); !errors.Is(err, ErrChain) {
		t.Errorf("another population: %v", err)
	}
	if b, err := Verify(t.Context(), s, Mark{Entries: 3, Digest: digestOf(good[2])}, people); err != nil || len(b.Entries()) != 5 {
		t.Errorf("a ledger ahead of its mark: %v", err)
	}
	s.entries = s.entries[:3]
	if err := j.Refresh(t.Context()); !errors.Is(err, ErrMark) {
		t.Errorf("a log that went back under a running process: %v", err)
	}
}

func digestOf(b []byte) [32]byte {
	e, err := wire.Decode[wire.Entry](b)
	if err != nil {
		panic(err)
	}
	return wire.Digest(e)
}

// The book counts what a Ledger counts.
func TestBookCountsLikeLedgers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &storage{}
		j, err := OpenJournal(context.Background(), s, s, people, budget(20))
		if err != nil {
			t.Fatal(err)
		}
		all, _ := New(budget(20))
		parts := map[byte]*Ledger{}
		for task := byte(1); task <= 3; task++ {
			if _, err := j.Task([32]byte{task}, budget(9)); err != nil {
				t.Fatal(err)
			}
			parts[task], _ = New(budget(9))
		}
		rounds := map[byte]int64{}
		for i := range int64(rapid.IntRange(1, 30).Draw(t, "charges")) {
			task := byte(rapid.IntRange(1, 3).Draw(t, "task"))
			eps0 := rapid.SampledFrom([]float64{.5, 1, 2}).Draw(t, "eps0")
			rounds[task]++
			err := j.Charge(context.Background(), charge(task, rounds[task], eps0))
			fits := parts[task].afford(Entry{Round: rounds[task], Event: event(eps0)}) == nil && all.afford(Entry{Round: i + 1, Event: event(eps0)}) == nil
			if fits != (err == nil) {
				t.Fatalf("charge %d: %v, fits: %t", i, err, fits)
			}
			if err != nil {
				rounds[task]--
				continue
			}
			parts[task].record(Entry{Round: rounds[task], Event: event(eps0)})
			all.record(Entry{Round: i + 1, Event: event(eps0)})
		}
		j.View(func(b *Book) {
			want, _ := all.Spent()
			if got, err := b.Spent(); err != nil || got != want {
				t.Errorf("spent %v, want %v (%v)", got.Eps, want.Eps, err)
			}
		})
	})
}

func TestJournalWithoutLimitMarksInfinity(t *testing.T) {
	s := &storage{}
	j, err := OpenJournal(t.Context(), s, s, people, Config{Accountant: broken{}, Delta: .1, MaxEps: math.Inf(1)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := j.Task([32]byte{1}, Config{Accountant: broken{}, Delta: .1, MaxEps: math.Inf(1)}); err != nil {
		t.Fatal(err)
	}
	if err := j.Charge(t.Context(), charge(1, 1, 1)); err != nil || !math.IsInf(s.mark.Eps, 1) {
		t.Errorf("mark %v, %v", s.mark.Eps, err)
	}
}

type broken struct{}

func (broken) Eps(dp.Event, float64) (dp.Bound, error) {
	return dp.Bound{}, fmt.Errorf("no: %w", dp.ErrNoBound)
}

// A charge of several messages is one entry, and costs as much as so many rounds: in the task's
// budget, in the population's, in a statement and after a restart.
func TestEntriesOfSeveralMessages(t *testing.T) {
	s := &storage{}
	j := open(t, s, 7)
	several := func(task byte, round int64, eps0 float64, times int64) Charge {
		c := charge(task, round, eps0)
		c.Times = times
		return c
	}
	l, err := j.Task([32]byte{1}, budget(5))
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Affords(Entry{Event: event(.5), Times: 11}); !errors.Is(err, ErrBudget) {
		t.Errorf("11 messages of .5 within 5: %v", err)
	}
	for _, c := range []struct {
		Charge
		want error
	}{
		{several(1, 1, .5, 8), nil}, {several(1, 1, .5, 8), nil}, // the same again
		{several(1, 1, .5, 7), ErrCharged}, {several(1, 1, .5, 0), ErrCharged},
		{several(1, 2, .5, 3), ErrBudget}, {several(1, 2, .5, 2), nil}, {several(2, 1, .5, 8), ErrBudget},
		{several(2, 1, .5, 4), nil},
	} {
		if err := j.Charge(t.Context(), c.Charge); !errors.Is(err, c.want) {
			t.Errorf("%d times %v in round %d: %v, want %v", c.Times, c.Event.Report.Eps0, c.Round, err, c.want)
		}
	}
	roomy := open(t, &storage{}, 7)
	for _, times := range []int64{-1, 1, wire.MaxTimes + 1} {
		if err := roomy.Charge(t.Context(), several(2, 2, 1e-9, times)); err == nil || errors.Is(err, ErrBudget) {
			t.Errorf("charged %d times: %v", times, err)
		}
	}
	again := open(t, s, 7)
	for _, k := range []*Journal{j, again} {
		if b := spent(t, k); b.Eps != 7 {
			t.Errorf("spent %v, want 7", b.Eps)
		}
	}
	var own []Entry
	again.View(func(b *Book) { own = b.TaskEntries([32]byte{1}) })
	if len(own) != 2 || own[0] != (Entry{Round: 1, Event: event(.5), Times: 8}) || own[1].Charged() != (dp.Repeat{Event: event(.5), Times: 2}) {
		t.Errorf("entries %+v", own)
	}
	book, err := Verify(t.Context(), s, s.mark, people)
	if err != nil {
		t.Fatal(err)
	}
	st, err := Show(book, budget(7), nil)
	if err != nil || st.Spent.Eps != 7 || st.Tasks[0].Spent.Eps != 5 || st.Entries != 3 {
		t.Errorf("statement %+v, %v", st, err)
	}
	m := newLedger(t, budget(5))
	if err := m.Restore(own); err != nil {
		t.Error(err)
	}
	if b, err := m.Spent(); err != nil || b.Eps != 5 {
		t.Errorf("restored at %v, %v", b.Eps, err)
	}
}

// What fits by several messages at a time is what can be charged.
func TestProspectOfSeveralMessages(t *testing.T) {
	b, err := newBook(people, budget(6))
	if err != nil {
		t.Fatal(err)
	}
	look, _, err := b.Prospect([32]byte{1}, budget(5))
	if err != nil {
		t.Fatal(err)
	}
	if n, next := look(Entry{Event: event(.25), Times: 4}, 100); n != 5 || !errors.Is(next, ErrBudget) {
		t.Errorf("%d rounds of four messages of .25 within 5: %v", n, next)
	}
}

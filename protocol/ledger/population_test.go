package ledger

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/dp"
)

// question is what an accountant was asked.
type question struct {
	adaptive      bool
	events        dp.Sequence
	maxEps, delta float64
}

// watched counts ε₀, three times over where rounds may have been chosen upon
// releases, and keeps what it was asked.
type watched struct{ asked *[]question }

func (w watched) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	*w.asked = append(*w.asked, question{false, slices.Clone(ev.(dp.Sequence)), 0, delta})
	b, err := adder{}.Eps(ev, delta)
	b.Method = "tight"
	return b, err
}

func (w watched) EpsAdaptive(ev dp.Event, maxEps, delta float64) (dp.Bound, error) {
	*w.asked = append(*w.asked, question{true, slices.Clone(ev.(dp.Sequence)), maxEps, delta})
	b, err := adder{}.Eps(ev, delta)
	b.Method, b.Eps = "adaptive", 3*b.Eps
	return b, err
}

func watch(s *storage, t *testing.T, eps float64, tasks ...byte) (*Journal, *[]question) {
	t.Helper()
	asked := &[]question{}
	j, err := OpenJournal(t.Context(), s, s, people, Config{Accountant: watched{asked}, Delta: 1e-5, Tail: .25, MaxEps: eps})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if _, err := j.Task([32]byte{task}, budget(100)); err != nil {
			t.Fatal(err)
		}
	}
	return j, asked
}

// spent is what the budget is compared with: of several tasks the filter's figure.
func spent(t *testing.T, j *Journal) (b dp.Bound) {
	t.Helper()
	j.View(func(k *Book) {
		var err error
		if b, err = k.total.spentEps(); err != nil {
			t.Fatal(err)
		}
	})
	return b
}

// One task is counted as tightly as can be; from a second one's first charge on
// everything is counted as chosen upon releases, at a δ of its own, in the order of
// the entries. What each is afforded at comes to δ less its tail.
func TestSeveralTasksAreCountedAsChosenUponReleases(t *testing.T) {
	s := &storage{}
	j, asked := watch(s, t, 20, 1, 2, 3)
	must := func(c Charge) {
		t.Helper()
		if err := j.Charge(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	must(charge(1, 1, 1))
	must(charge(1, 2, 1))
	if b := spent(t, j); b.Eps != 2 || b.Method != "tight" || b.Delta != 1e-5 {
		t.Errorf("one task: %+v", b)
	}
	counted := dp.Counted(1e-5, .25)
	if !(counted <= .75e-5) || counted < .7499999e-5 {
		t.Errorf("counted at %v", counted)
	}
	least, most := 1., 0.
	for _, q := range *asked {
		if q.adaptive {
			t.Fatalf("%+v of one task", q)
		}
		least, most = min(least, q.delta), max(most, q.delta)
	}
	if most != counted || least >= counted {
		t.Errorf("one task is shown at %v and afforded at %v, of %v", most, least, counted)
	}
	*asked = nil
	must(charge(2, 1, .5))
	must(charge(1, 3, 1))
	if b := spent(t, j); b.Eps != 3*3.5 || b.Method != "adaptive" || b.Delta != 1e-5 || math.Abs(s.mark.Eps-3.5) > 1e-9 {
		t.Errorf("two tasks: %+v, mark %v", b, s.mark.Eps)
	}
	*asked = slices.DeleteFunc(*asked, func(q question) bool { return !q.adaptive && q.delta < counted/15 }) // what each task costs by itself, to show
	for _, q := range *asked {
		if !q.adaptive || q.maxEps != 20 || !(q.delta+least <= counted) || q.delta < .009*counted {
			t.Errorf("%+v of two tasks", q)
		}
	}
	last := (*asked)[len(*asked)-1].events
	if want := (dp.Sequence{dp.Repeat{Event: event(1), Times: 2}, dp.Repeat{Event: event(.5), Times: 1}, dp.Repeat{Event: event(1), Times: 1}}); !slices.Equal(last, want) {
		t.Errorf("asked about %v", last)
	}
	// A restart, an offline count and a ledger without limit say the same.
	again, _ := watch(s, t, 20, 1, 2)
	if b := spent(t, again); b.Eps != 3*3.5 || b.Method != "adaptive" {
		t.Errorf("after a restart: %+v", b)
	}
	book, err := Verify(t.Context(), s, s.mark, people)
	if err != nil {
		t.Fatal(err)
	}
	st, err := Show(book, Config{Accountant: watched{asked}, Delta: 1e-5, Tail: .25, MaxEps: 20}, nil)
	if err != nil || math.Abs(st.Spent.Eps-3.5) > 1e-9 || st.Tasks[0].Spent.Eps != 3 || st.Tasks[0].Spent.Method != "tight" {
		t.Errorf("offline: %+v, %v", st, err)
	}
}

// A second task is refused before anything of it is opened; the first goes on as if
// it had not been asked for.
func TestASecondTaskIsRefusedBeforeItsFirstRound(t *testing.T) {
	s := &storage{}
	j, _ := watch(s, t, 5, 1, 2)
	for round := int64(1); round <= 3; round++ {
		if err := j.Charge(t.Context(), charge(1, round, 1)); err != nil {
			t.Fatal(err)
		}
		j.View(func(b *Book) {
			// 3·(ε of the first + 1): there is room beside no round at all.
			if err := b.affords([32]byte{2}, Entry{Event: event(1)}); !errors.Is(err, ErrBudget) {
				t.Errorf("a second task after %d rounds: %v", round, err)
			}
		})
		if err := j.Charge(t.Context(), charge(2, 1, 1)); !errors.Is(err, ErrBudget) {
			t.Errorf("a second task after %d rounds: %v", round, err)
		}
	}
	if len(s.entries) != 3 {
		t.Errorf("%d entries", len(s.entries))
	}
	if b := spent(t, j); b.Eps != 3 || b.Method != "tight" {
		t.Errorf("%+v", b)
	}
	if err := j.Charge(t.Context(), charge(1, 4, 2)); err != nil {
		t.Error(err)
	}
}

// What was charged beyond the budget is read, shown for what it costs, and stays; no
// more is charged to it.
func TestMoreThanTheBudgetIsShown(t *testing.T) {
	s := &storage{}
	j := open(t, s, 7) // counts tasks as if they had not been chosen
	for _, c := range []Charge{charge(1, 1, 3), charge(2, 1, 3)} {
		if err := j.Charge(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	k, _ := watch(s, t, 7, 1, 2)
	if b := spent(t, k); b.Eps != 18 {
		t.Errorf("%+v", b)
	}
	for _, c := range []Charge{charge(1, 2, .001), charge(2, 2, .001)} {
		if err := k.Charge(t.Context(), c); !errors.Is(err, ErrBudget) {
			t.Error(err)
		}
	}
	if len(s.entries) != 2 {
		t.Errorf("%d entries", len(s.entries))
	}
}

// An accountant that cannot count such rounds is asked for one task only.
func TestAPlainAccountantAllowsOneTask(t *testing.T) {
	s := &storage{}
	plain := Config{Accountant: struct{ dp.Accountant }{adder{}}, Delta: 1e-5, MaxEps: 9}
	j, err := OpenJournal(t.Context(), s, s, people, plain)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range []byte{1, 2} {
		if _, err := j.Task([32]byte{task}, plain); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Charge(t.Context(), charge(1, 1, 1)); err != nil {
		t.Fatal(err)
	}
	if err := j.Charge(t.Context(), charge(2, 1, 1)); !errors.Is(err, ErrUncounted) || len(s.entries) != 1 {
		t.Errorf("%v, %d entries", err, len(s.entries))
	}
}

// Tails of all charged tasks fit what the population keeps for them.
func TestTailsFit(t *testing.T) {
	s := &storage{}
	j, err := OpenJournal(t.Context(), s, s, people, Config{Accountant: adder{}, Delta: 1e-5, Tail: 1e-3, MaxEps: 100})
	if err != nil {
		t.Fatal(err)
	}
	task := func(id byte, delta, tail float64) {
		if _, err := j.Task([32]byte{id}, Config{Accountant: adder{}, Delta: delta, Tail: tail, MaxEps: 100}); err != nil {
			t.Fatal(err)
		}
	}
	task(1, 4e-6, 1e-3)
	task(2, 6e-6, 1e-3)
	task(3, 1e-9, 1e-3)
	task(4, .1, 0)
	check := func(id byte, delta, tail float64) (err error) {
		j.View(func(b *Book) { _, err = b.checkTail([32]byte{id}, Config{Delta: delta, Tail: tail}) })
		return err
	}
	for _, c := range []struct {
		Charge
		want error
	}{
		{charge(3, 1, 1), nil}, {charge(1, 1, 1), nil}, {charge(4, 1, 1), nil},
		{charge(2, 1, 1), ErrBudget}, // by 1e-9
		{charge(1, 2, 1), nil},
	} {
		if err := j.Charge(t.Context(), c.Charge); !errors.Is(err, c.want) {
			t.Errorf("task %d: %v, want %v", c.Task[0], err, c.want)
		}
	}
	if err := check(5, 1e-9, 1e-3); !errors.Is(err, ErrBudget) {
		t.Errorf("beside a task that may yet be charged: %v", err)
	}
	if err := errors.Join(check(5, .5, 0), check(2, 1e-9, 1e-3)); err != nil {
		t.Error(err)
	}
	for _, c := range []Config{{Tail: -.1}, {Tail: 1}, {Tail: math.NaN()}} {
		c.Accountant, c.Delta, c.MaxEps = adder{}, .1, 1
		if _, err := New(c); err == nil {
			t.Errorf("tail %v accepted", c.Tail)
		}
	}
	// A sum whose terms are not known any more leaves no room for another.
	sum := charge(6, 1, 0)
	sum.Event = dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: 1}, Trust: dp.Distributed, Participation: dp.All, Population: 9}
	task(6, 1e-9, 1e-3)
	if err := j.Charge(t.Context(), sum); err != nil {
		t.Fatal(err)
	}
	k, err := OpenJournal(t.Context(), s, s, people, Config{Accountant: adder{}, Delta: 1e-5, Tail: 1e-3, MaxEps: 100})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Task([32]byte{3}, Config{Accountant: adder{}, Delta: 1e-9, Tail: 1e-3, MaxEps: 100}); err != nil {
		t.Fatal(err)
	}
	if err := k.Charge(t.Context(), charge(3, 2, 1)); !errors.Is(err, ErrUncounted) {
		t.Errorf("beside a sum that nothing is known of: %v", err)
	}
}

// Whatever is charged in whatever order, and wherever a process ends, the figure
// is that of the entries, and none is above the budget.
func TestPopulationFigureFollowsFromEntries(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := &storage{}
		j, _ := watch(s, t, 12, 1, 2, 3)
		rounds := map[byte]int64{}
		for range rapid.IntRange(1, 12).Draw(rt, "charges") {
			if rapid.IntRange(0, 4).Draw(rt, "restart") == 0 {
				j, _ = watch(s, t, 12, 1, 2, 3)
			}
			task := byte(rapid.IntRange(1, 3).Draw(rt, "task"))
			if err := j.Charge(context.Background(), charge(task, rounds[task]+1, rapid.SampledFrom([]float64{.25, .5, 1}).Draw(rt, "eps0"))); err == nil {
				rounds[task]++
			} else if !errors.Is(err, ErrBudget) {
				rt.Fatal(err)
			}
			var sum float64
			tasks := map[[32]byte]bool{}
			j.View(func(b *Book) {
				for _, e := range b.Entries() {
					sum += e.Event.Report.Eps0
					tasks[e.Task] = true
				}
			})
			if len(tasks) > 1 {
				sum *= 3
			}
			if b := spent(t, j); b.Eps != sum || b.Eps > 12 {
				rt.Fatalf("%v of %d tasks, want %v", b.Eps, len(tasks), sum)
			}
		}
	})
}

// What another process has charged counts with what it keeps for tails, whether or not
// this one was told of the task before.
func TestTailsOfOthersTasks(t *testing.T) {
	limit := Config{Accountant: adder{}, Delta: 1e-5, Tail: 1e-3, MaxEps: 100}
	own := func(delta float64) Config { return Config{Accountant: adder{}, Delta: delta, Tail: 1e-3, MaxEps: 100} }
	sum := func(task byte, round int64) Charge {
		c := charge(task, round, 0)
		c.Event = dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: 1}, Trust: dp.Distributed, Participation: dp.All, Population: 9}
		return c
	}
	for _, c := range []struct {
		name   string
		others float64 // δ of the other's task
		lookup bool
		want   error
	}{
		{"fits", 4e-6, true, nil}, {"does not fit", 7e-6, true, ErrBudget}, {"not known", 4e-6, false, ErrUncounted},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &storage{}
			journal := func(task byte, delta float64) *Journal {
				j, err := OpenJournal(t.Context(), s, s, people, limit)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := j.Task([32]byte{task}, own(delta)); err != nil {
					t.Fatal(err)
				}
				return j
			}
			a, b := journal(1, 5e-6), journal(2, c.others)
			down := c.lookup
			a.Lookup = func(_ context.Context, task [32]byte) (Config, bool, error) {
				if task != [32]byte{2} {
					t.Errorf("asked for %x", task[:1])
				}
				if down {
					down = false
					return Config{}, false, errDown
				}
				return own(c.others), c.lookup, nil
			}
			if err := b.Charge(t.Context(), sum(2, 1)); err != nil {
				t.Fatal(err)
			}
			if c.lookup {
				if err := a.Charge(t.Context(), sum(1, 1)); !errors.Is(err, errDown) || errors.Is(err, ErrUncounted) {
					t.Errorf("while the lookup fails: %v, want what is tried again", err)
				}
			}
			if err := a.Charge(t.Context(), sum(1, 1)); !errors.Is(err, c.want) {
				t.Errorf("%v, want %v", err, c.want)
			}
			if n := len(s.entries); n != 1 && c.want != nil || n != 2 && c.want == nil {
				t.Errorf("%d entries", n)
			}
		})
	}
}

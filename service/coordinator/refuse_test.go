package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// A word that cannot be true is never acted on: nothing is charged, nothing
// fetched, and the round goes on once the truth is told.
func TestLiesAboutTheRound(t *testing.T) {
	for name, lie := range map[string]func(*wire.RoundClosed){
		"another announcement": func(c *wire.RoundClosed) { c.Announcement[3] ^= 1 },
		"another round":        func(c *wire.RoundClosed) { c.Round++ },
		"fewer than n-min":     func(c *wire.RoundClosed) { c.Reports = 2 },
		"more than n":          func(c *wire.RoundClosed) { c.Reports = 9 },
		"no chunks":            func(c *wire.RoundClosed) { c.Chunks = 0 },
		"more chunks":          func(c *wire.RoundClosed) { c.Chunks = 99 },
		"shares":               func(c *wire.RoundClosed) { c.Shares[0] = 1 },
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Shuffle, dp.All)
			told := make(chan struct{})
			lies := 0
			w.sh.Word = func(c *wire.RoundClosed) {
				select {
				case <-told:
				default:
					if lies++; lies == 3 {
						close(told)
					}
					lie(c)
					w.disk.Lock()
					defer w.disk.Unlock()
					if len(w.disk.Log) != 0 {
						t.Error("charged for a lie")
					}
				}
			}
			w.check(w.run())
		})
	}
}

// A batch that is not the one that was signed is charged and never summed.
func TestLiesAboutTheBatch(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All)
	start, _ := newOptimizer()
	first := digestOf(encodeModel(make([]float32, len(start.Point()))))
	lies := map[string]func(){
		"a chunk is changed":  func() { w.sh.Chunk = func(c *wire.Chunk) { c.Items[0] ^= 1 } },
		"a chunk is another":  func() { w.sh.Chunk = func(c *wire.Chunk) { c.Index++ } },
		"a report is missing": func() { w.sh.Chunk = func(c *wire.Chunk) { c.Items = c.Items[:c.Size] } },
		"other digests": func() {
			w.sh.Digests = func(b []byte) []byte { b = append([]byte(nil), b...); b[40] ^= 1; return b }
		},
		"too few digests": func() { w.sh.Digests = func(b []byte) []byte { return b[:32] } },
		"count and chunks differ": func() {
			w.sh.Word = func(c *wire.RoundClosed) { c.Reports-- }
		},
	}
	for name, lie := range lies {
		bubble(t, name, func(t *testing.T) {
			w = newWorld(t, dp.Shuffle, dp.All)
			lie()
			s := w.run()
			if s.State != Done || s.Failed != 3 || s.Released != 0 || s.Reports != 0 || s.Model != [32]byte(first) {
				t.Errorf("%+v", s)
			}
			if len(w.disk.Log) != 3 {
				t.Errorf("%d entries are charged, want 3: what was fetched was exposed", len(w.disk.Log))
			}
			w.order()
		})
	}
}

// A shuffler under another key is not listened to.
func TestAnotherOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		p, err := w.start(nil, func(c *Config) { c.Shuffler.Key = signer(t).Public().(publicKey) })
		if err != nil {
			t.Fatal(err)
		}
		w.await(p, func(s wire.Status) bool { return strings.Contains(s.Error, "enrolment") })
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		if len(w.sh.Opened) != 0 || len(w.disk.Log) != 0 {
			t.Errorf("%d rounds opened, %d charged", len(w.sh.Opened), len(w.disk.Log))
		}
	})
}

// What cannot be read is rejected and counted, and the rest is summed exactly.
func TestGarbageReports(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Distributed} {
		bubble(t, string(trust), func(t *testing.T) {
			w := newWorld(t, trust, dp.All, func(w *world) {
				w.garbage = map[int]int{1: 1, 6: 2}
				if trust == dp.Distributed {
					w.garbage = map[int]int{1: 1, 6: 3}
					w.config.Colluders, w.task.MinReports = 2, 5
				}
			})
			s := w.run()
			w.check(s, 1, 6)
			want := map[wire.Reason]int64{wire.OutOfRange: 3, wire.WrongKey: 3}
			if trust == dp.Distributed {
				want = map[wire.Reason]int64{wire.OutOfRange: 3, wire.Excluded: 3}
			}
			for reason, n := range want {
				if s.Rejected[reason] != n {
					t.Errorf("%d reports rejected as %s, want %d", s.Rejected[reason], reason, n)
				}
			}
			if s.Reports != 18 || s.Released != 3 {
				t.Errorf("%d reports in %d rounds", s.Reports, s.Released)
			}
		})
	}
}

// Reports that are left out of a vector sum take their noise along: with more of
// them than the charge allows for, the sum stays shut.
func TestSumWithTooLittleNoise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Distributed, dp.All, func(w *world) { w.garbage = map[int]int{1: 1} })
		s := w.run()
		if s.Failed != 3 || s.Released != 0 || len(w.disk.Log) != 3 {
			t.Errorf("%+v", s)
		}
		if n := w.agg.Load().Snapshot(); n.Summed != 0 || n.Prepared != 3 {
			t.Errorf("the aggregator has prepared %d and summed %d", n.Prepared, n.Summed)
		}
	})
}

func TestVoidRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.CheckIn)
		w.present = func(round, client int64) bool { return round != 2 || client < 2 }
		s := w.run()
		w.check(s)
		if s.Void != 1 || s.Released != 3 || s.Round != 4 || len(w.disk.Log) != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// With trust local nobody is trusted to forget the reports of a round to which too few
// came: it is charged, it is one of the task's rounds, and no client sends more reports
// than that. A crash anywhere changes nothing.
func TestVoidRoundsOfTrustLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		few := func(w *world) { w.present = func(round, client int64) bool { return round != 2 || client < 2 } }
		for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
			var want wire.Status
			for at := 0; ; at += 1 + stride()*8 {
				w := newWorld(t, dp.Local, p, few)
				crash := &stop{At: at, After: at%2 == 0}
				s := w.crashed(crash)
				charges := 3
				if p == dp.Once { // two blocks in an epoch
					charges = 2
				}
				if s.State != Done || s.Round != 3 || s.Released != 2 || s.Void != 0 || s.FailedBy[FailedTooFew] != 1 || len(w.disk.Log) != charges {
					t.Errorf("%s, crash at %d: %d entries, %+v", p, at, len(w.disk.Log), s)
				}
				if w.fsck(); at == 0 {
					want = s
				} else if s.Model != want.Model {
					t.Errorf("%s, crash at %d: model %x, want %x", p, at, s.Model[:4], want.Model[:4])
				}
				if at > 0 && !crash.hit() {
					break
				}
			}
		}
	})
}

// A void round is run again, but not for ever: a task to which nobody comes ends.
func TestVoidRoundsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		w.present = func(round, client int64) bool { return round == 5 || client < 2 }
		s := w.run()
		if last := w.task.LastRound(); s.State != Done || s.Round != last || s.Void != last-1 || s.Released != 1 || len(w.disk.Log) != 1 ||
			!strings.Contains(s.Why, "1 of 3 rounds were run") {
			t.Errorf("%+v", s)
		}
		if again := w.run(); again.State != Done || again.Why != s.Why {
			t.Errorf("started again: %+v", again)
		}
	})
}

// A block whose round was void has had its turn: it is not asked again.
func TestVoidBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.Once)
		w.present = func(round, client int64) bool { return round != 2 }
		s := w.run()
		w.check(s)
		if s.Void != 1 || s.Released != 2 || s.Round != 3 {
			t.Errorf("%+v", s)
		}
	})
}

// The task ends where its budget does, before anybody is asked; the model stays.
func TestBudgetEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		w.config.Budget = limit(2 * w.config.Report.Eps0)
		s := w.run()
		if s.State != Refused || s.Released != 2 || !strings.Contains(s.Why, ledger.ErrBudget.Error()) || len(w.sh.Opened) != 2 || len(w.disk.Log) != 2 {
			t.Errorf("%+v", s)
		}
		again := w.run()
		if again.State != Refused || again.Model != s.Model || again.Why != s.Why || len(w.disk.Log) != 2 {
			t.Errorf("started again: %+v", again)
		}
	})
}

// A batch that the ledger does not pay for is destroyed unread: another task has spent the population's budget since the round was
// announced.
func TestBudgetEndsAtTheCharge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.CheckIn)
		var p *process
		spent := false
		w.present = func(round, client int64) bool {
			if round == 2 && !spent {
				spent = true
				id, own := [32]byte{9}, limit(2e9)
				own.Tail = 0
				l, err := p.config.Journal.Task(id, own)
				if err != nil {
					t.Fatal(err)
				}
				event := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 1}, Trust: dp.Shuffle, Participation: dp.All, Population: 5}
				if err := l.Charge(t.Context(), ledger.Charge{Task: id, Round: 1, Batch: [32]byte{1}, Event: event, Times: 1e9 - 3}); err != nil {
					t.Fatal(err)
				}
			}
			return true
		}
		var err error
		if p, err = w.start(nil); err != nil {
			t.Fatal(err)
		}
		s, err := p.Wait(t.Context(), p.List()[0].ID)
		if err != nil || s.State != Refused || s.Released != 1 || len(w.sh.Opened) != 2 || len(w.disk.Log) != 2 || len(w.sh.Destroyed) != 2 {
			t.Errorf("%v, %+v, opened %d, destroyed %d", err, s, len(w.sh.Opened), len(w.sh.Destroyed))
		}
		w.end(p)
		w.order()
	})
}

// Where noise is correlated a void round is charged with the next. A task whose budget is made for its rounds then ends
// with fewer, and is done. One whose budget ends before is refused.
func TestBudgetEndsWithVoidRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		count := func(eps float64) ledger.Config {
			return ledger.Config{Accountant: new(account.Accountant), Delta: 1e-6, Tail: vecsum.TailShare, MaxEps: eps}
		}
		whole := newWorld(t, dp.Distributed, dp.CheckIn, withCorrelated)
		whole.config.Budget = count(mechanism.MostEps)
		cost := float64(whole.run().Eps)
		for _, c := range []struct {
			rounds   []int64
			share    float64 // of what all rounds cost
			state    string
			released int64
		}{
			{nil, 1, Done, 5},
			{[]int64{3}, 1, Done, 4},
			{[]int64{3, 4}, 1, Done, 3},
			{[]int64{3}, .9, Refused, 2},
		} {
			w := newWorld(t, dp.Distributed, dp.CheckIn, withCorrelated, void(c.rounds...))
			w.config.Budget = count(cost * c.share * (1 + 1e-9))
			s := w.run()
			w.fsck()
			if s.State != c.state || s.Released != c.released || s.Void != int64(len(c.rounds)) {
				t.Errorf("%+v: %+v", c, s)
			}
			if c.released < 5 && (!strings.Contains(s.Why, ledger.ErrBudget.Error()) || (c.state == Done) != strings.Contains(s.Why, fmt.Sprintf("%d of 5 rounds were run, and %d void;", c.released, len(c.rounds)))) {
				t.Errorf("%+v: ended because %q", c, s.Why)
			}
			if again := w.run(); again.State != s.State || again.Why != s.Why || again.Model != s.Model {
				t.Errorf("%+v: started again: %+v", c, again)
			}
		}
	})
}

// A ledger that is missing, older than its mark, or edited stops the start.
func TestLedgerThatCannotBeTrusted(t *testing.T) {
	for name, harm := range map[string]struct {
		do   func(d *disk)
		want error
	}{
		"missing":     {func(d *disk) { d.Log = nil }, ledger.ErrMark},
		"older":       {func(d *disk) { d.Log = d.Log[:2] }, ledger.ErrMark},
		"edited":      {func(d *disk) { d.Log[1][125] ^= 1 }, ledger.ErrChain},
		"last edited": {func(d *disk) { d.Log[2][125] ^= 1 }, ledger.ErrMark},
		"one out":     {func(d *disk) { d.Log = append(d.Log[:1:1], d.Log[2]) }, ledger.ErrChain},
		"no message":  {func(d *disk) { d.Log[2] = []byte("x") }, ledger.ErrChain},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Shuffle, dp.All)
			w.run()
			harm.do(w.disk)
			if _, err := w.start(nil); !errors.Is(err, harm.want) {
				t.Errorf("started with %v, want %v", err, harm.want)
			}
		})
	}
}

// A state that is older than the ledger would charge rounds twice, or open a second
// batch for one charge.
func TestStateOlderThanTheLedger(t *testing.T) {
	for name, harm := range map[string]func(w *world, d *disk){
		"gone": func(w *world, d *disk) { clear(d.Values); clear(d.Revision) },
		"older": func(w *world, d *disk) {
			key := "state." + hexTask(w)
			r, _ := decodeRecord(d.Values[key])
			r.Round, r.Open = 1, nil
			clear(d.releases)
			d.Values[key], _ = r.encode()
			task, _ := decodeTask(d.Values["task."+hexTask(w)])
			task.State = Running
			d.Values["task."+hexTask(w)] = encodeTask(task)
		},
	} {
		bubble(t, name, func(t *testing.T) {
			w := newWorld(t, dp.Shuffle, dp.All)
			w.run()
			harm(w, w.disk)
			p, err := w.start(nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := <-p.done; !errors.Is(err, ErrFatal) {
				t.Errorf("ended with %v", err)
			}
			if len(w.disk.Log) != 3 || len(w.sh.Opened) != 3 {
				t.Errorf("%d entries, %d rounds", len(w.disk.Log), len(w.sh.Opened))
			}
		})
	}
}

func hexTask(w *world) string { return strings.TrimPrefix(taskKey(wire.Digest(w.task)), "task.") }

// A leader that falls silent is followed by a standby, and what it still does has
// no effect on the task.
func TestStandbyTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) { w.task.Rounds = 6 })
		block, blocked := make(chan struct{}), make(chan struct{})
		slow := w.config
		slow.Evaluate = func([]float32) any { return "first" }
		first := true
		slow.Record = func(_ [32]byte, round, place int64, _ *randomizer.Report) error {
			if round == 3 && first {
				first = false
				close(blocked)
				<-block // and its lease is not renewed
			}
			return nil
		}
		stalled := &stall{until: blocked}
		one, err := w.start(nil, func(c *Config) {
			c.Tasks[0] = slow
			c.Store = stalledStore{c.Store, stalled}
		})
		if err != nil {
			t.Fatal(err)
		}
		<-blocked
		two, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := w.end(two)
		w.check(s)
		close(block)
		one.stop()
		if err := <-one.done; err != nil {
			t.Error(err)
		}
		// It has ended rounds 1 and 2, or has since read that the task has ended.
		if got, _ := one.Show(wire.Digest(w.task)); got.Round > 2 && got.Round != w.task.Rounds {
			t.Errorf("the first leader has released round %d", got.Round)
		}
		w.check(s)
	})
}

// stall loses a lease once its holder is silent.
type stall struct{ until chan struct{} }

type stalledStore struct {
	storage
	*stall
}

func (s stalledStore) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, uint64, error) {
	l, token, err := s.storage.Acquire(ctx, name, holder, ttl)
	return stalledLease{l, s.stall}, token, err
}

type stalledLease struct {
	store.Lease
	*stall
}

func (l stalledLease) Renew(ctx context.Context) error {
	select {
	case <-l.until:
		<-ctx.Done()
		return ctx.Err()
	default:
		return l.Lease.Renew(ctx)
	}
}

func TestTasksThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(*world, *Job, *Config){
			"another's signature": func(w *world, k *Job, _ *Config) {
				k.Signed = wire.Sign(signer(t), wire.LabelTask, wire.Encode(w.task))
			},
			"no optimizer":   func(_ *world, k *Job, _ *Config) { k.Optimizer = nil },
			"no duration":    func(_ *world, k *Job, _ *Config) { k.Round = 0 },
			"smaller charge": func(_ *world, k *Job, _ *Config) { k.Report.Eps0 /= 2 },
			"another delta":  func(_ *world, k *Job, _ *Config) { k.Budget.Delta = 1e-3 },
			"no budget":      func(_ *world, k *Job, _ *Config) { k.Budget = ledger.Config{} },
			"twice":          func(_ *world, k *Job, c *Config) { c.Tasks = append(c.Tasks, *k) },
			"no key":         func(_ *world, _ *Job, c *Config) { c.Key = nil },
			"no shuffler":    func(_ *world, _ *Job, c *Config) { c.Shuffler.URL = "nowhere" },
		} {
			w := newWorld(t, dp.Shuffle, dp.All)
			_, err := w.start(nil, func(c *Config) { change(w, &c.Tasks[0], c); _ = name })
			if err == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		w := newWorld(t, dp.Distributed, dp.All)
		if _, err := w.start(nil, func(c *Config) { c.Aggregator = nil }); err == nil {
			t.Error("a vector sum without an aggregator")
		}
		if _, err := w.start(nil, func(c *Config) { c.Tasks[0].Budget.Tail = 0 }); err == nil {
			t.Error("a vector sum whose tails are not kept")
		}
		w.task.Mechanism.Sum.Sigma *= 2
		w.config.Report.Sigma *= 2
		w.config.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task))
		if _, err := w.start(nil); err == nil {
			t.Error("a vector sum that claims more noise than it has")
		}
	})
}

// The tasks of a population share its budget.
func TestTwoTasksOneBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		w.config.Budget.Tail = 0 // they are no sums
		other := w.config
		task := w.task
		task.Name = "other"
		other.Signed = wire.Sign(w.key, wire.LabelTask, wire.Encode(task))
		j, err := w.disk.journal(t.Context(), nil, w.task.Population, limit(4*w.config.Report.Eps0))
		if err != nil {
			t.Fatal(err)
		}
		p, err := w.start(nil, func(c *Config) { c.Journal, c.Tasks = j, append(c.Tasks, other) })
		if err != nil {
			t.Fatal(err)
		}
		a, err := p.Wait(t.Context(), wire.Digest(w.task))
		if err != nil {
			t.Errorf("%v: %+v", err, a)
		}
		b, err := p.Wait(t.Context(), wire.Digest(task))
		if err != nil {
			t.Errorf("%v: %+v", err, b)
		}
		p.stop()
		if err := <-p.done; err != nil {
			t.Fatal(err)
		}
		if a.Released+b.Released != 4 || len(w.disk.Log) != 4 || a.State != Refused && b.State != Refused {
			t.Errorf("%d and %d rounds, %d entries, %s and %s", a.Released, b.Released, len(w.disk.Log), a.State, b.State)
		}
	})
}

// What is wrong in a store is found.
func TestCheckFindsHarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := func(f func(*record)) func(*world) {
			return func(w *world) {
				key := "state." + hexTask(w)
				r, err := decodeRecord(w.disk.Values[key])
				if err != nil {
					t.Fatal(err)
				}
				f(&r)
				w.disk.Values[key], _ = r.encode()
			}
		}
		for name, harm := range map[string]func(*world){
			"no task":        func(w *world) { delete(w.disk.Values, "task."+hexTask(w)) },
			"another task":   func(w *world) { w.disk.Objects["task/"+hexTask(w)][70] ^= 1 },
			"no state":       func(w *world) { delete(w.disk.Values, "state."+hexTask(w)) },
			"older state":    state(func(r *record) { r.Round = 1 }),
			"one back":       state(func(r *record) { r.Round = 2 }),
			"no model":       state(func(r *record) { r.Model[0]++ }),
			"no optimiser":   state(func(r *record) { r.Step[0]++ }),
			"a broken round": state(func(r *record) { r.Open = &openRound{Announcement: []byte("x")} }),
			"edited model": func(w *world) {
				for name, b := range w.disk.Objects {
					if strings.HasPrefix(name, "model/") {
						b[0] ^= 1
					}
				}
			},
		} {
			w := newWorld(t, dp.Shuffle, dp.All)
			w.check(w.run())
			harm(w)
			if len(w.found()) == 0 {
				t.Errorf("%s: not found", name)
			}
		}
	})
}

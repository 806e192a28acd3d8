package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/store"
)

// bench is a queue with workers for a world.
type bench struct {
	w      *world
	store  *store.Store
	queue  *store.Queue
	keys   []*envelope.Keyring
	cancel context.CancelFunc
	done   sync.WaitGroup
	at     []*opener.Worker
}

// newBench has n workers open the world's batches, each chunk a range of its own.
func newBench(w *world, n int, c store.QueueConfig) *bench {
	w.t.Helper()
	longtest.Only(w.t, "a queue is in a real store")
	at := store.Config{Domain: "coordinator", Dir: w.t.TempDir()}
	if err := store.Init(w.t.Context(), at); err != nil {
		w.t.Fatal(err)
	}
	s, err := store.Open(w.t.Context(), at)
	if err != nil {
		w.t.Fatal(err)
	}
	b := &bench{w: w, store: s}
	if b.queue, err = s.Queue(w.t.Context(), opener.Queue, c); err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	b.cancel = cancel
	for range n {
		b.keys = append(b.keys, ring(w.t))
		one := b.worker(len(b.keys) - 1)
		b.at = append(b.at, one)
		b.done.Go(func() {
			if err := one.Run(ctx, b.queue); err != nil {
				w.t.Error(err)
			}
		})
	}
	w.t.Cleanup(b.close)
	return b
}

func (b *bench) close() {
	b.cancel()
	b.done.Wait()
	if err := b.store.Close(); err != nil {
		b.w.t.Error(err)
	}
}

func (b *bench) worker(i int) *opener.Worker {
	return &opener.Worker{Keyring: b.keys[i], Coordinator: b.w.key.Public().(ed25519.PublicKey), Shuffler: b.w.server.URL, Client: b.w.client(nil), Ranges: 2}
}

// opening is what the coordinator is told of the workers.
func (b *bench) opening(q workQueue) func(*Config) {
	var keys []wire.Key
	for _, k := range b.keys {
		keys = append(keys, k.Keys[0])
	}
	if len(keys) == 0 {
		keys = []wire.Key{ring(b.w.t).Keys[0]}
	}
	return func(c *Config) {
		c.LeaseTTL, c.Backoff = 50*time.Millisecond, time.Millisecond // a real store takes real time
		c.Opening = &Opening{Queue: q, Keys: keys, Chunks: 1, Poll: 2 * time.Millisecond, Look: 50 * time.Millisecond}
	}
}

// opened stops the workers, and returns how many ranges they have opened.
func (b *bench) opened() (n int64) {
	b.cancel()
	b.done.Wait()
	for _, w := range b.at {
		n += w.Counts().Ranges
	}
	return n
}

// empty holds that nothing is left in the queue of a task that has ended.
func (b *bench) empty() {
	b.w.t.Helper()
	items, results, err := b.store.Queued(context.Background(), opener.Queue)
	if err != nil || items != 0 || results != 0 {
		b.w.t.Errorf("%d items and %d results are left: %v", items, results, err)
	}
}

// Two workers give the model of one process, its counts and its receipts, whatever is wrong with some
// of the messages.
func TestWorkersOpenAsOneProcess(t *testing.T) {
	longtest.Only(t, "a queue is in a real store")
	spoiled := func(w *world) { w.garbage = map[int]int{1: 1, 4: 2} }
	for name, with := range map[string][]option{"plain": nil, "receipts": {receipts}, "spoiled": {spoiled, receipts}, "once": {small},
		"messages": {receipts, func(w *world) { w.task.Messages = 2 }}} {
		t.Run(name, func(t *testing.T) {
			p := dp.All
			if name == "once" {
				p = dp.Once
			}
			w := newWorld(t, dp.Shuffle, p, with...)
			b := newBench(w, 2, store.QueueConfig{})
			var skip []int
			if name == "spoiled" {
				skip = []int{1, 4}
			}
			s := w.run(b.opening(b.queue))
			w.check(s, skip...)
			if name == "spoiled" && (s.Rejected[wire.WrongKey] != 3 || s.Rejected[wire.OutOfRange] != 3) {
				t.Errorf("rejected %v", s.Rejected)
			}
			if got := b.opened(); got < int64(s.Round) {
				t.Errorf("the workers have opened %d ranges in %d rounds", got, s.Round)
			}
			b.empty()
		})
	}
}

// seedAt is the seed at a place; places 0, 1 and 7 have the same.
func seedAt(place int64) []byte { return []byte{3: byte(max(1, place%7)), 15: 0} }

// A seed that two workers have opened counts once.
func TestWorkersOpenSeeds(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, func(w *world) {
		var err error
		if w.task.Mechanism, err = mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm"); err != nil {
			t.Fatal(err)
		}
		w.task.Rounds = 1
	})
	w.sh.Fill = func(a wire.Announcement) (parts, _ [][]byte) {
		for place := range w.n {
			part, err := envelope.SealPart(a.Coordinator, envelope.Coordinator, wire.Digest(a), seedAt(place))
			if err != nil {
				t.Error(err)
			}
			parts = append(parts, part)
		}
		return parts, nil
	}
	b := newBench(w, 2, store.QueueConfig{})
	s := w.run(b.opening(b.queue))
	// The same by the functions of one process.
	l, err := ledger.New(w.config.Budget)
	if err != nil {
		t.Fatal(err)
	}
	o, err := newOptimizer()
	if err != nil {
		t.Fatal(err)
	}
	co, err := pure.New(pure.Config{Task: wire.Digest(w.task), Optimizer: o, Mechanism: w.mech, Report: w.config.Report, Ledger: l, Trust: dp.Shuffle, Participation: dp.All,
		Population: w.n, MinReports: w.task.MinReports, Clip: 1})
	if err != nil {
		t.Fatal(err)
	}
	announcement := wire.Digest(w.sh.Opened[0])
	if err := co.Receive(t.Context(), wire.RoundClosed{Round: 1, Reports: w.n, Announcement: announcement}); err != nil {
		t.Fatal(err)
	}
	tally, err := co.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	of := randomizer.ForRound(w.mech, announcement)
	for place := range w.n {
		report := of.NewReport()
		if err := randomizer.DecodeReport(seedAt(place), of, report); err != nil {
			t.Fatal(err)
		}
		tally.Open(report)
	}
	if _, _, err := co.End(tally); err != nil {
		t.Fatal(err)
	}
	if want := co.Announce().ModelDigest; s.Model != want || s.Reports != w.n-2 || s.Rejected[wire.Duplicate] != 2 || b.opened() != 3 {
		t.Errorf("%d reports, rejected %v, %d ranges, model %x, want %x", s.Reports, s.Rejected, b.opened(), s.Model[:6], want[:6])
	}
}

// What the coordinator opens itself is as before: sums, tokens, and messages that are recorded.
func TestWorkersAreNotAsked(t *testing.T) {
	for name, with := range map[string][]option{"sum": {small}, "tokens": {small, tokens}, "record": {small, func(w *world) {
		w.config.Record = func([32]byte, int64, int64, *randomizer.Report) error { return nil }
	}}} {
		trust := dp.Shuffle
		if name == "sum" {
			trust = dp.Distributed
		}
		w := newWorld(t, trust, dp.All, with...)
		b := newBench(w, 1, store.QueueConfig{})
		w.check(w.run(b.opening(b.queue)))
		if b.opened() != 0 {
			t.Errorf("%s: workers have opened %d ranges", name, b.opened())
		}
	}
}

// crashing is a queue of which a coordinator's crash stops the use.
type crashing struct {
	workQueue
	crash *stop
}

func (q crashing) Put(ctx context.Context, item string, data []byte) error {
	return q.crash.do("queue put", func() error { return q.workQueue.Put(ctx, item, data) })
}

func (q crashing) Waits(ctx context.Context, item string) (there bool, err error) {
	err = q.crash.do("queue waits", func() error { there, err = q.workQueue.Waits(ctx, item); return err })
	return there, err
}

func (q crashing) Purge(ctx context.Context, group string) error {
	return q.crash.do("queue purge", func() error { return q.workQueue.Purge(ctx, group) })
}

func (q crashing) Results(group string) store.Results {
	return crashingResults{q.workQueue.Results(group), q.crash}
}

type crashingResults struct {
	store.Results
	crash *stop
}

func (r crashingResults) Next(ctx context.Context) (out []store.Result, err error) {
	// It is asked again and again, so only answers count.
	if out, err = r.Results.Next(ctx); len(out) == 0 {
		return out, err
	}
	err = r.crash.do("queue results", func() error { return nil })
	return out, err
}

// The coordinator crashes at every operation, of the queue too, and starts again while its workers go on:
// the model is the same, each round is charged once and opened after its charge only.
func TestCrashWhileWorkersOpen(t *testing.T) {
	crashes := 0
	for _, after := range []bool{false, true} {
		for at := 1; ; at += stride() {
			w := newWorld(t, dp.Shuffle, dp.All, small, receipts)
			b := newBench(w, 2, store.QueueConfig{})
			crash := &stop{At: at, After: after}
			s := w.crashedBy(crash, b.opening(crashing{b.queue, crash}), b.opening(b.queue))
			w.check(s)
			b.close()
			if t.Failed() {
				t.Fatalf("crash at operation %d (%s), after: %t", at, crash.Name, after)
			}
			if !crash.hit() {
				break
			}
			crashes++
		}
	}
	if crashes < 60/stride() {
		t.Errorf("only %d crashes", crashes)
	}
}

// crashedBy runs a task through a crash, with other changes of the configuration after it.
func (w *world) crashedBy(crash *stop, before, after func(*Config)) wire.Status {
	w.t.Helper()
	p, err := w.start(crash, before)
	if err != nil {
		return w.run(after)
	}
	select {
	case err := <-p.done:
		if err != nil {
			w.t.Fatal(err)
		}
		return w.run(after)
	case <-p.find(wire.Digest(w.task)).ended:
		return w.end(p)
	}
}

// Workers die at every step: with an item in hand, with a chunk read, with a tally that is not sent, with
// a tally that was sent for an item that goes to another. Others open their ranges, and none counts twice.
func TestWorkersDie(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, receipts)
	b := newBench(w, 0, store.QueueConfig{AckWait: 200 * time.Millisecond, Deliveries: 1000})
	b.keys = append(b.keys, ring(t), ring(t))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var died [4]atomic.Int64
	for seed := range 2 {
		wg.Go(func() {
			for n := seed; ctx.Err() == nil; n++ {
				i, err := b.queue.Pull(ctx)
				if err != nil {
					continue
				}
				worker := b.worker(n % 2)
				step := n % 6
				switch {
				case step == 1:
					dying, stop := context.WithCancel(ctx)
					stop()
					if _, _, err := worker.Open(dying, i.Data); err == nil {
						t.Error("a dead worker opens a range")
					}
				case step >= 2:
					sealed, _, err := worker.Open(ctx, i.Data)
					if err != nil {
						continue
					}
					if step >= 3 {
						err = i.Finish(ctx, sealed)
					}
					if step == 3 { // as if the acknowledgement was lost
						err = b.queue.Put(ctx, i.Name, i.Data)
					}
					if err != nil && ctx.Err() == nil {
						t.Error(err)
					}
				}
				died[min(step, 3)].Add(1)
			}
		})
	}
	s := w.run(b.opening(b.queue))
	cancel()
	wg.Wait()
	w.check(s)
	for step := range died {
		if died[step].Load() == 0 {
			t.Errorf("no worker died at step %d", step)
		}
	}
}

// Results that no worker of the coordinator has made change nothing: what is not sealed, has no ticket, or
// cannot be a tally of the range. Such ranges are opened by the coordinator.
func TestForgedTallies(t *testing.T) {
	longtest.Only(t, "a queue is in a real store")
	for name, forge := range map[string]func(d *wire.Opening, good *wire.Opened) any{
		"garbage":     func(*wire.Opening, *wire.Opened) any { return []byte("garbage") },
		"nothing":     func(*wire.Opening, *wire.Opened) any { return []byte{} },
		"no ticket":   func(_ *wire.Opening, p *wire.Opened) any { p.Ticket = [32]byte{}; return p },
		"more":        func(_ *wire.Opening, p *wire.Opened) any { p.Accepted += 100; return p },
		"fewer":       func(_ *wire.Opening, p *wire.Opened) any { p.Accepted--; return p },
		"one more":    func(_ *wire.Opening, p *wire.Opened) any { p.Accepted++; return p },
		"another sum": func(_ *wire.Opening, p *wire.Opened) any { p.Sum = append(p.Sum, 7); return p },
		"receipts":    func(_ *wire.Opening, p *wire.Opened) any { p.Receipts = make([]wire.ID, 1); return p },
		"its range":   func(_ *wire.Opening, p *wire.Opened) any { p.From++; p.To++; return p },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, dp.Shuffle, dp.All, small)
			b := newBench(w, 0, store.QueueConfig{})
			b.keys = append(b.keys, ring(t))
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			forged := 0
			wg.Go(func() {
				for ctx.Err() == nil {
					i, err := b.queue.Pull(ctx)
					if err != nil {
						continue
					}
					o, err := wire.Decode[wire.Opening](i.Data[ed25519.SignatureSize:])
					if err != nil {
						t.Error(err)
					}
					sealed, _, err := b.worker(0).Open(ctx, i.Data)
					if err != nil {
						continue
					}
					place := wire.Opened{Announcement: o.Announcement, From: o.From, To: o.To()}.Place()
					content, err := w.ring.OpenPart(envelope.Coordinator, place, sealed)
					if err != nil {
						t.Error(err)
					}
					p, err := wire.Decode[wire.Opened](content)
					if err != nil {
						t.Error(err)
					}
					switch x := forge(&o, &p).(type) {
					case []byte:
						sealed = x
					case *wire.Opened:
						if sealed, err = envelope.SealPart(w.ring.Keys[0], envelope.Coordinator, place, wire.Encode(*x)); err != nil {
							t.Error(err)
						}
					}
					if err := i.Finish(ctx, sealed); err != nil && ctx.Err() == nil {
						t.Error(err)
					}
					forged++
				}
			})
			s := w.run(b.opening(b.queue))
			cancel()
			wg.Wait()
			w.check(s)
			if forged == 0 {
				t.Error("nothing was forged")
			}
		})
	}
}

// Without any worker of its own the coordinator's round waits, strangers in the queue get no key, and an
// item that nobody finishes is opened by the coordinator.
func TestStrangersInTheQueue(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, small)
	b := newBench(w, 0, store.QueueConfig{AckWait: 50 * time.Millisecond, Deliveries: 3})
	listed := ring(t)
	stranger := b
	stranger.keys = append(stranger.keys, ring(t))
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	var tried atomic.Int64
	wg.Go(func() {
		for ctx.Err() == nil {
			i, err := b.queue.Pull(ctx)
			if err != nil {
				continue
			}
			sealed, _, err := b.worker(0).Open(ctx, i.Data)
			if !errors.Is(err, opener.ErrNotDealt) || sealed != nil {
				t.Errorf("a stranger opens %s: %v", i.Name, err)
			}
			if tried.Add(1) == 1 { // what a stranger changes is not the coordinator's any more
				for at := range len(i.Data) {
					bad := bytes.Clone(i.Data)
					bad[at] ^= 1
					mine := &opener.Worker{Keyring: listed, Coordinator: w.key.Public().(ed25519.PublicKey), Shuffler: w.server.URL, Client: w.client(nil)}
					if _, _, err := mine.Open(ctx, bad); !errors.Is(err, opener.ErrNotDealt) {
						t.Errorf("byte %d changed: %v", at, err)
					}
				}
				if bytes.Contains(i.Data, []byte("riffle-hpke-1")) {
					t.Error("the queue has a key in the clear")
				}
			}
		}
	})
	s := w.run(b.opening(b.queue), func(c *Config) { c.Opening.Keys = []wire.Key{listed.Keys[0]} })
	cancel()
	wg.Wait()
	w.check(s)
	if tried.Load() < 3 {
		t.Errorf("strangers tried %d times", tried.Load())
	}
}

// A range that somebody holds for ever, always at work, is opened by the coordinator.
func TestRangeIsHeld(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, small)
	b := newBench(w, 0, store.QueueConfig{AckWait: 100 * time.Millisecond, Deliveries: 3})
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	held := 0
	wg.Go(func() {
		for ctx.Err() == nil {
			if i, err := b.queue.Pull(ctx); err == nil {
				defer i.Keep()()
				held++
			}
		}
	})
	s := w.run(b.opening(b.queue), func(c *Config) { c.Opening.Alone = 200 * time.Millisecond })
	cancel()
	wg.Wait()
	if w.check(s); held == 0 {
		t.Error("nothing was held")
	}
}

// A worker finds that the shuffler has other chunks than were signed. The round is treated as without
// workers: it gives no step after some attempts.
func TestWorkersSeeLies(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All, small)
	w.sh.Chunk = func(c *wire.Chunk) { c.Items[0] ^= 1 }
	b := newBench(w, 2, store.QueueConfig{})
	s := w.run(b.opening(b.queue))
	if s.Failed != w.task.Rounds || s.Reports != 0 {
		t.Errorf("%+v", s)
	}
	b.empty()
}

func TestOpeningIsChecked(t *testing.T) {
	w := newWorld(t, dp.Shuffle, dp.All)
	b := newBench(w, 1, store.QueueConfig{})
	for want, change := range map[string]func(*Opening){
		"needs a queue":  func(o *Opening) { o.Queue = nil },
		"0 workers":      func(o *Opening) { o.Keys = nil },
		"listed twice":   func(o *Opening) { o.Keys = append(o.Keys, o.Keys[0]) },
		"17 workers":     func(o *Opening) { o.Keys = make([]wire.Key, 17) },
		"suite":          func(o *Opening) { o.Keys[0].Suite = 9 },
		"no limit below": func(o *Opening) { o.Chunks = -1 },
	} {
		_, err := w.start(nil, b.opening(b.queue), func(c *Config) { change(c.Opening) })
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	o := Opening{Keys: make([]wire.Key, 2)}
	for _, c := range []struct{ n, dim, want int64 }{{1, 10, 1}, {160, 10, 10}, {1 << 20, 10, 64}, {1 << 20, 1 << 17, 256}, {1 << 20, 1 << 24, 512}, {1, 1 << 24, 512}} {
		if got := o.chunksEach(c.n, c.dim); got != c.want {
			t.Errorf("%d chunks of %d values: %d each, want %d", c.n, c.dim, got, c.want)
		}
	}
	if got := fmt.Sprint(o.chunksEach(64, 1)); got != "4" {
		t.Error(got)
	}
}

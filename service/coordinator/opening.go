package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/store"
)

// Opening has workers open batches. Sums, messages with tokens and recorded reports the coordinator
// opens itself: they need the batch's order, or its second aggregator.
type Opening struct {
	Queue workQueue  // Required.
	Keys  []wire.Key // The workers' public keys; required.
	// Chunks is the number of chunks in a range. Default: as many as make a tally small beside its range,
	// 64 at least if the batch has enough for all workers.
	Chunks int64
	// Poll is how often the queue is asked for tallies. Default 100 ms.
	Poll time.Duration
	// Look is how often it is made sure that no range was lost. Default 10 s.
	Look time.Duration
	// Alone is how long no tally may come before the coordinator opens ranges itself, until one comes: a
	// worker may hold a range for ever. Default 10 min.
	Alone time.Duration
}

// workQueue holds the ranges that are to be opened, and their tallies; it is a *store.Queue, except in
// tests.
type workQueue interface {
	Put(ctx context.Context, item string, data []byte) error
	Waits(ctx context.Context, item string) (bool, error)
	Results(group string) store.Results
	Purge(ctx context.Context, group string) error
}

func (o *Opening) check() error {
	if o == nil {
		return nil
	}
	if o.Queue == nil || o.Chunks < 0 || o.Poll < 0 || o.Look < 0 || o.Alone < 0 {
		return errors.New("coordinator: opening by workers needs a queue, and no limit below 0")
	}
	if o.Poll == 0 {
		o.Poll = 100 * time.Millisecond
	}
	if o.Look == 0 {
		o.Look = 10 * time.Second
	}
	if o.Alone == 0 {
		o.Alone = 10 * time.Minute
	}
	return opener.CheckWorkers(o.Keys)
}

// Chunks in a range: mostChunks keeps an opening, with its digests, one message of the queue.
const (
	usualChunks = 64
	mostChunks  = 512
)

// chunksEach is the number of chunks in a range of a batch of n. It is the same after a restart.
func (o *Opening) chunksEach(n, dim int64) int64 {
	if o.Chunks > 0 {
		return min(o.Chunks, mostChunks)
	}
	// A tally of 8 bytes a value is to be a sixteenth of its range at most; and each worker is to have
	// several ranges, so that none waits long for the last one.
	small := (16*8*dim + chunkBytes - 1) / chunkBytes
	return min(mostChunks, max(1, small, min(usualChunks, n/int64(8*len(o.Keys)))))
}

// taskGroup names what the queue holds of a task, and roundGroup what it holds of a round.
func (r *runner) taskGroup() string { return fmt.Sprintf("%x", r.id[:16]) }

func (r *runner) roundGroup(announcement [32]byte) string {
	return fmt.Sprintf("%s.%x", r.taskGroup(), announcement[:16])
}

// sumByWorkers is sumUp by workers. Each range has one item in the queue until it has a tally. A range
// that the workers give up, and one with a tally that cannot be true, is opened here.
func (r *runner) sumByWorkers(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) ([]*coordinator.Tally, map[wire.Reason]int64, error) {
	total, err := r.pure.NewTotal(*c, c.Reports*a.PerClient(), r.task.Receipts)
	if err != nil {
		return nil, nil, err
	}
	digests, err := r.reader(a, c).Digests(ctx)
	if err != nil {
		return nil, nil, err
	}
	w := byWorkers{runner: r, Opening: r.s.config.Opening, a: a, c: c, total: total, waiting: map[string]*wire.Opening{},
		dealer: opener.Dealer{Signer: r.s.config.Key, Keyring: r.s.config.Keyring, Workers: r.s.config.Opening.Keys}}
	w.results = w.Queue.Results(r.roundGroup(c.Announcement))
	each := w.chunksEach(int64(len(digests)), int64(len(total.Tally.Sum)))
	task := wire.Encode(r.task)
	for from := int64(0); from < int64(len(digests)); from += each {
		o := &wire.Opening{Announcement: c.Announcement, Task: task, Size: a.ReportBytes, From: from, Digests: digests[from:min(from+each, int64(len(digests)))]}
		name := fmt.Sprintf("%s.%d-%d", r.roundGroup(c.Announcement), from, o.To())
		w.order, w.waiting[name] = append(w.order, name), o
	}
	if err := w.run(ctx); err != nil {
		return nil, nil, err
	}
	if err := total.Whole(); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", batch.ErrLie, err)
	}
	if r.detached != nil {
		for _, id := range total.Receipts {
			r.detached.Add(id)
		}
	}
	r.listReceipts(a, c, nil, false)
	by := map[wire.Reason]int64{}
	add(by, wire.WrongKey, total.WrongKey)
	add(by, wire.OutOfRange, total.Tally.Rejected-total.WrongKey)
	return []*coordinator.Tally{total.Tally}, by, nil
}

// byWorkers is a batch that workers open.
type byWorkers struct {
	*runner
	*Opening
	a       *wire.Announcement
	c       *wire.RoundClosed
	dealer  opener.Dealer
	total   *coordinator.Total
	results store.Results
	order   []string                 // names of all items
	waiting map[string]*wire.Opening // ranges without a tally, by item
}

func (w *byWorkers) run(ctx context.Context) error {
	// Tallies that came before a restart count.
	if err := w.collect(ctx); err != nil {
		return err
	}
	for _, name := range w.order {
		if err := w.hand(ctx, name); err != nil {
			return err
		}
	}
	looked, came := time.Now(), time.Now()
	for len(w.waiting) > 0 {
		left := len(w.waiting)
		if err := w.collect(ctx); err != nil {
			return err
		}
		if len(w.waiting) < left {
			came = time.Now()
			continue
		}
		if time.Since(looked) >= w.Look {
			if err := w.look(ctx); err != nil {
				return err
			}
			if looked = time.Now(); looked.Sub(came) > 6*w.Look {
				w.warn("waiting", fmt.Errorf("coordinator: no worker has opened a range of round %d for %v, %d of %d are left", w.c.Round, looked.Sub(came).Round(time.Second), left, len(w.order)))
			}
		}
		if waited := time.Since(came); waited >= w.Alone {
			w.openedHere(fmt.Errorf("coordinator: no tally has come for %v", waited.Round(time.Second)))
			if err := w.open(ctx, w.first(w.openers())...); err != nil {
				return err
			}
			continue
		}
		if !sleep(ctx, w.Poll) {
			return ctx.Err()
		}
	}
	return nil
}

// first returns the first n ranges that have no tally.
func (w *byWorkers) first(n int) (names []string) {
	for _, name := range w.order {
		if w.waiting[name] != nil && len(names) < n {
			names = append(names, name)
		}
	}
	return names
}

// hand puts a range into the queue, unless it has a tally or is there.
func (w *byWorkers) hand(ctx context.Context, name string) error {
	o := w.waiting[name]
	if o == nil {
		return nil
	}
	signed, err := w.dealer.Deal(w.a.Coordinator.ID(), *o)
	if err == nil {
		err = w.Queue.Put(ctx, name, signed)
	}
	if errors.Is(err, store.ErrTooLarge) || errors.Is(err, envelope.ErrKey) { // a task of a long text, or a key that is gone
		w.openedHere(err)
		return w.open(ctx, name)
	}
	return err
}

// collect adds the tallies that have come, and opens the ranges that workers gave up.
func (w *byWorkers) collect(ctx context.Context) error {
	for {
		got, err := w.results.Next(ctx)
		var bad []string
		for _, x := range got {
			o := w.waiting[x.Item]
			if o == nil || slices.Contains(bad, x.Item) {
				continue // it came before, or is of a range that is not dealt any more
			}
			why := error(nil)
			if x.Failed != "" {
				why = errors.New(x.Failed)
			} else if p, err := w.dealer.Read(o, x.Data); err != nil {
				why = err
			} else if _, err := w.total.AddPartial(p); err != nil {
				why = err
			}
			if why != nil {
				w.openedHere(why)
				bad = append(bad, x.Item)
				continue
			}
			w.settle(x.Item)
		}
		if err := w.open(ctx, bad...); err != nil {
			return err
		}
		if err != nil || len(got) == 0 {
			return err
		}
	}
}

func (w *byWorkers) settle(name string) {
	delete(w.waiting, name)
	w.results.Settle(name)
}

func (w *byWorkers) openedHere(why error) { w.warn("a range is opened here, not by a worker", why) }

// open opens ranges here, several at a time.
func (w *byWorkers) open(ctx context.Context, names ...string) error {
	for chunk := range slices.Chunk(names, w.openers()) {
		partials, errs := make([]wire.Opened, len(chunk)), make([]error, len(chunk))
		var wg sync.WaitGroup
		for i, name := range chunk {
			o := w.waiting[name]
			wg.Go(func() {
				partials[i], errs[i] = w.opening(w.a, w.c).Range(ctx, w.s.config.Shuffler, o.Size, o.Digests, wire.Opened{Announcement: o.Announcement, From: o.From, To: o.To()})
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		for i, name := range chunk {
			if _, err := w.total.AddPartial(&partials[i]); err != nil {
				return fmt.Errorf("%w: %w", batch.ErrLie, err)
			}
			w.settle(name)
		}
	}
	return nil
}

// look puts ranges into the queue again that are neither there nor have a tally. It asks for tallies
// after it has looked: a worker's tally is durable before its item goes.
func (w *byWorkers) look(ctx context.Context) error {
	var gone []string
	for _, name := range w.order {
		if w.waiting[name] == nil {
			continue
		}
		there, err := w.Queue.Waits(ctx, name)
		if err != nil {
			return err
		}
		if !there {
			gone = append(gone, name)
		}
	}
	if err := w.collect(ctx); err != nil {
		return err
	}
	for _, name := range gone {
		if err := w.hand(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// sweepOpenings removes what the queue holds of the task; no round of it needs any. What stays is removed
// later.
func (r *runner) sweepOpenings(ctx context.Context) {
	if r.s.config.Opening == nil {
		return
	}
	if err := r.s.config.Opening.Queue.Purge(ctx, r.taskGroup()); err != nil && ctx.Err() == nil {
		r.warn("openings that have no further use are not removed yet", err)
	}
}

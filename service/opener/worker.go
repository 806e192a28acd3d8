package opener

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// Worker opens ranges. All fields but Ranges, Drain and Log are required.
type Worker struct {
	Keyring     *envelope.Keyring // the worker's own keys
	Coordinator ed25519.PublicKey // verifies openings
	Shuffler    string            // its address for peers
	Client      *http.Client      // shows the worker's certificate and checks the shuffler's
	Ranges      int               // that are opened at a time; default 1
	// Drain is how long a range that is being opened may go on after the worker is told to end. Then
	// another worker gets it. Default 20 s.
	Drain time.Duration
	Log   *slog.Logger // default: none

	opened, messages, returned, failed atomic.Int64

	mu      sync.Mutex
	trouble error // why the last range could not be opened; nil if it could
}

// Pull is a queue that a worker takes openings from; *store.Queue is one.
type Pull interface {
	Pull(ctx context.Context) (*store.Item, error)
}

// Counts are what a worker has done since it began.
type Counts struct {
	Ranges   int64 // opened
	Messages int64 // in those
	Returned int64 // ranges that were left to another worker
	Failed   int64 // ranges that no worker can open
}

// Counts returns what the worker has done.
func (w *Worker) Counts() Counts {
	return Counts{w.opened.Load(), w.messages.Load(), w.returned.Load(), w.failed.Load()}
}

// Ready returns why the worker cannot open ranges; nil if it can, or was given none yet.
func (w *Worker) Ready(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}

// pause is how long a worker waits after a range that it could not open, or while there is no queue.
const pause = time.Second

// Run opens ranges until ctx ends, and then those that it has begun.
func (w *Worker) Run(ctx context.Context, q Pull) error {
	if w.Log == nil {
		w.Log = slog.New(slog.DiscardHandler)
	}
	if w.Drain == 0 {
		w.Drain = 20 * time.Second
	}
	// What is begun goes on for a while after ctx has ended.
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(w.Drain, cancel) })
	defer stop()
	var wg sync.WaitGroup
	for range max(1, w.Ranges) {
		wg.Go(func() {
			for ctx.Err() == nil {
				item, err := q.Pull(ctx)
				if err == nil {
					err = w.item(work, item)
				} else if ctx.Err() == nil && !errors.Is(err, store.ErrNotFound) { // without a queue there is nothing to open yet
					w.troubled(err)
				}
				switch {
				case errors.Is(err, ErrNotDealt): // it would be handed to this worker again and again
					sleep(ctx, 10*pause)
				case err != nil:
					sleep(ctx, pause)
				}
			}
		})
	}
	wg.Wait()
	return nil
}

// item opens an item of the queue. An error says that another worker may open it.
func (w *Worker) item(ctx context.Context, i *store.Item) error {
	stop := i.Keep()
	defer stop()
	result, n, err := w.Open(ctx, i.Data)
	switch {
	case err == nil:
		if err = i.Finish(ctx, result); err != nil {
			break
		}
		w.opened.Add(1)
		w.messages.Add(n)
		w.troubled(nil)
		return nil
	case hopeless(err):
		w.failed.Add(1)
		w.Log.Warn("a range cannot be opened", "item", i.Name, "error", err)
		return i.Fail(ctx, err.Error())
	}
	w.returned.Add(1)
	stop()
	if ctx.Err() == nil {
		// The item goes to another after the queue's AckWait. At once, five workers would use up its
		// deliveries within seconds, while the shuffler starts again.
		return w.troubled(err)
	}
	return errors.Join(w.troubled(err), i.Return())
}

// troubled keeps why ranges cannot be opened, and logs what is new.
func (w *Worker) troubled(err error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil && (w.trouble == nil || endpoint.Cause(err) != endpoint.Cause(w.trouble)) {
		w.Log.Warn("a range is left to another worker", "error", err)
	}
	w.trouble = err
	return err
}

// hopeless says whether no worker can open a range: the shuffler has not what the coordinator has
// signed, or has destroyed it.
func hopeless(err error) bool {
	if errors.Is(err, batch.ErrLie) || errors.Is(err, wire.ErrMalformed) {
		return true
	}
	r := batch.IsRefused(err)
	return r != nil && (r.Code == http.StatusNotFound || r.Code == http.StatusGone)
}

// Open opens the range of a signed opening, and returns the sealed tally and the number of its messages. It
// is a function of the opening, the worker's key and the shuffler's chunks.
func (w *Worker) Open(ctx context.Context, signed []byte) (sealed []byte, messages int64, err error) {
	d, err := receive(w.Coordinator, w.Keyring, signed)
	if err != nil {
		return nil, 0, err
	}
	m, err := mechanism.New(d.task.Mechanism)
	if err != nil {
		return nil, 0, fmt.Errorf("%w: %w", wire.ErrMalformed, err)
	}
	round := Round{Keyring: d.keyring, Announcement: d.Announcement, Mechanism: randomizer.ForRound(m, d.Announcement), Attached: d.task.Attachments()}
	p, err := round.Range(ctx, batch.Source{URL: w.Shuffler, Client: w.Client}, d.Size, d.Digests,
		wire.Opened{Announcement: d.Announcement, From: d.From, To: d.To(), Ticket: d.ticket})
	if err != nil {
		return nil, 0, err
	}
	sealed, err = envelope.SealPart(d.key.Public, envelope.Coordinator, p.Place(), wire.Encode(p))
	return sealed, p.Accepted + p.WrongKey + p.OutOfRange, err
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

package coordinator

import (
	"context"
	"crypto/ed25519"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/store"
)

// queue is a work queue in memory, with a worker. Those of opening_test.go are in a real store.
type queue struct {
	mu      sync.Mutex
	items   map[string][]byte
	results []store.Result
	more    chan struct{} // tells the worker of new items
	opened  int
}

func newQueue() *queue { return &queue{items: map[string][]byte{}, more: make(chan struct{}, 1)} }

func (q *queue) Put(_ context.Context, item string, data []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.items[item] == nil {
		q.items[item] = data
	}
	select {
	case q.more <- struct{}{}:
	default:
	}
	return nil
}

func (q *queue) Waits(_ context.Context, item string) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.items[item] != nil, nil
}

func (q *queue) Purge(_ context.Context, group string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.items, func(item string, _ []byte) bool { return strings.HasPrefix(item, group+".") })
	for i, r := range q.results {
		if strings.HasPrefix(r.Item, group+".") {
			q.results[i] = store.Result{} // others keep their places
		}
	}
	return nil
}

func (q *queue) Results(group string) store.Results {
	return &queueResults{q: q, group: group, past: map[string]bool{}}
}

type queueResults struct {
	q     *queue
	group string
	next  int
	past  map[string]bool
}

func (r *queueResults) Next(context.Context) (out []store.Result, err error) {
	r.q.mu.Lock()
	defer r.q.mu.Unlock()
	for ; r.next < len(r.q.results); r.next++ {
		if x := r.q.results[r.next]; strings.HasPrefix(x.Item, r.group+".") && !r.past[x.Item] {
			out = append(out, x)
		}
	}
	return out, nil
}

func (r *queueResults) Settle(item string) { r.past[item] = true }

// work opens items until ctx ends.
func (q *queue) work(ctx context.Context, w *opener.Worker) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-q.more:
		}
		q.mu.Lock()
		items := maps.Clone(q.items)
		q.mu.Unlock()
		for _, item := range slices.Sorted(maps.Keys(items)) {
			sealed, _, err := w.Open(ctx, items[item])
			r := store.Result{Item: item, Data: sealed}
			if err != nil {
				r = store.Result{Item: item, Failed: err.Error()}
			}
			q.mu.Lock()
			if q.items[item] != nil {
				delete(q.items, item)
				q.results = append(q.results, r)
				q.opened++
			}
			q.mu.Unlock()
		}
	}
}

// The coordinator crashes while a worker opens its batches: the model is that of one process, and each round is
// charged once and opened after its charge only.
func TestCrashWhileAWorkerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []bool{false, true} {
			for at := 1; ; at += stride() {
				w := newWorld(t, dp.Shuffle, dp.All, small, receipts, func(w *world) { w.garbage = map[int]int{3: 2} })
				q, keys := newQueue(), ring(t)
				ctx, cancel := context.WithCancel(t.Context())
				var done sync.WaitGroup
				done.Go(func() {
					q.work(ctx, &opener.Worker{Keyring: keys, Coordinator: w.key.Public().(ed25519.PublicKey), Shuffler: w.server.URL, Client: w.client(nil)})
				})
				opening := func(q workQueue) func(*Config) {
					return func(c *Config) { c.Opening = &Opening{Queue: q, Keys: []wire.Key{keys.Keys[0]}, Chunks: 1} }
				}
				crash := &stop{At: at, After: after}
				w.check(w.crashedBy(crash, opening(crashing{q, crash}), opening(q)), 3)
				cancel()
				done.Wait()
				if q.opened < int(w.task.Rounds) || len(q.items) != 0 {
					t.Errorf("the worker has opened %d ranges, %d are left", q.opened, len(q.items))
				}
				if t.Failed() {
					t.Fatalf("crash at operation %d (%s), after: %t", at, crash.Name, after)
				}
				if !crash.hit() {
					break
				}
			}
		}
	})
}

package shuffler

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// stale is a store one of whose servers does not know what others have written: once it is told
// to, it answers with records as they were.
type stale struct {
	*memory.Store
	lock sync.Mutex
	old  map[string]store.Entry
}

func (s *stale) Get(ctx context.Context, key string) (store.Entry, error) {
	s.lock.Lock()
	e, ok := s.old[key]
	s.lock.Unlock()
	if ok {
		return e, nil
	}
	return s.Store.Get(ctx, key)
}

func (s *stale) stop(t *testing.T) {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.old = map[string]store.Entry{}
	s.Lock()
	defer s.Unlock()
	for key, value := range s.Values {
		if strings.HasPrefix(key, keyRecord("")) {
			s.old[key] = store.Entry{Key: key, Value: value, Revision: s.Revision[key]}
		}
	}
	if len(s.old) == 0 {
		t.Error("no record is stale")
	}
}

// A frontend that is shown the round as open, long after it was cut, acknowledges nothing that is
// not in the batch.
func TestAStaleRecordAcknowledgesNothingBehindTheCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		worker := w.start(w.config())
		behind := &stale{Store: &memory.Store{Disk: w.disk}}
		c := w.config()
		c.FrontendOnly, c.Store = true, behind
		front := w.start(c)
		ann := front.announcement(1)
		front.open(ann)
		front.send(w.report(ann, 0, 0))
		behind.stop(t)
		front.send(w.report(ann, 1, 0)) // the round is open indeed
		d := wire.Digest(ann)
		if err := worker.close(t.Context(), encodeName(d[:]), ann); err != nil {
			t.Fatal(err)
		}
		front.refused(wire.Closed, "", "POST", "/v1/report", w.report(ann, 2, 0))
		word := worker.closed(ann)
		want, _ := w.expected(ann, [][2]int{{0, 0}, {1, 0}})
		if got := worker.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("the batch holds %d reports", len(got))
		}
	})
}

package shuffler

import (
	"context"
	"io"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestBytesInFlightAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeighted(10)
		ctx := context.Background()
		must := func(n int64) {
			t.Helper()
			if err := w.acquire(ctx, n); err != nil {
				t.Fatal(err)
			}
		}
		must(50) // more than there is waits for all of it, not for ever
		held, free := make(chan int64, 3), func(n int64) { w.release(n); synctest.Wait() }
		for _, n := range []int64{7, 2, 3} {
			go func() {
				if err := w.acquire(ctx, n); err == nil {
					held <- n
				}
			}()
			synctest.Wait()
		}
		given, cancel := context.WithCancel(ctx)
		cancel()
		if w.acquire(given, 1) == nil {
			t.Error("a request that is gone was served")
		}
		if len(held) != 0 {
			t.Fatal("more is held than allowed")
		}
		free(50)
		if len(held) != 2 { // 7 and 2; 3 does not fit
			t.Fatalf("%d of three are served", len(held))
		}
		free(7)
		free(2)
		free(3)
		if len(held) != 3 || w.free != 10 || len(w.next) != 0 {
			t.Errorf("%d served, %d free", len(held), w.free)
		}
	})
}

// A request that gives up makes room for those behind it.
func TestGivingUpLetsOthersPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWeighted(10)
		if err := w.acquire(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		first, cancel := context.WithCancel(t.Context())
		served := make(chan error, 2)
		go func() { served <- w.acquire(first, 9) }()
		synctest.Wait()
		go func() { served <- w.acquire(t.Context(), 4) }()
		synctest.Wait()
		if len(served) != 0 {
			t.Fatal("the queue was jumped")
		}
		cancel()
		synctest.Wait()
		if len(served) != 2 || <-served == nil || <-served != nil {
			t.Error("the one behind still waits")
		}
	})
}

// Strangers that announce large reports and send nothing do not keep out others'.
func TestAnnouncedSizesReserveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		c := w.config()
		c.InFlight = 4 << 10
		n := w.start(c)
		ann := n.announcement(1)
		n.open(ann)
		var wg sync.WaitGroup
		defer wg.Wait()
		for _, header := range [][]byte{nil, wire.Encode(wire.Header{Announcement: wire.Digest(ann)}), wire.Encode(wire.Header{Announcement: [32]byte{9}})} {
			from, to := io.Pipe()
			defer to.Close()
			wg.Go(func() {
				r := httptest.NewRequest("POST", "/v1/report", from)
				r.ContentLength = 4 << 10
				serve(n, httptest.NewRecorder(), r)
				_ = from.Close()
			})
			wg.Go(func() { _, _ = to.Write(header) })
		}
		began := time.Now()
		if n.must("", "POST", "/v1/report", w.report(ann, 0, 1)); time.Since(began) > 5*time.Second {
			t.Error("a report waits for what others only announce")
		}
	})
}

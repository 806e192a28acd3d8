package client_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// A client keeps the furthest head of the coordinator's ledger, over restarts. It takes no part in
// a round of an older ledger, another one, or one that is not told any more.
func TestCoordinatorsLedgerGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theta := []float32{1, 2, 3, 4, 5}
		w := newWorld(t, 3, shuffleTask())
		c := w.config()
		head := func(entries int64, digest byte) *wire.Head {
			return &wire.Head{Entries: entries, Digest: [32]byte{digest}}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		round := int64(0)
		later := -3 * time.Minute
		try := func(h *wire.Head, ok bool) {
			t.Helper()
			seen := newWatch()
			c.Watch = seen.tell
			f, err := client.NewFleet(c, w.members)
			if err != nil {
				t.Fatal(err)
			}
			round++
			a := w.announcement(round, theta)
			a.Opens += later.Milliseconds()
			a.Ledger = h
			// Before the fleet runs, so that it does not see the round before.
			w.publish(a, theta, nil)
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- f.Run(running) }()
			if ok {
				for range w.members {
					seen.next(ctx, t, client.Sent)
				}
			} else {
				var refused *pure.Refused
				if n := seen.next(ctx, t, client.Declined); !errors.As(n.Err, &refused) || refused.Cause != pure.CauseLedger {
					t.Errorf("round %d: declined for %v", round, n.Err)
				}
			}
			stop()
			if err := errors.Join(<-done, f.Close()); err != nil {
				t.Error(err)
			}
		}
		try(nil, true) // a coordinator that never told
		try(head(0, 0), true)
		try(head(4, 4), true)
		try(head(3, 3), true) // of a task whose round was announced before, seen late
		later = 0
		try(head(3, 3), false)
		try(head(4, 5), false)
		try(nil, false)
		try(head(4, 4), true)
		try(head(5, 5), true)

		if err := os.WriteFile(filepath.Join(c.Directory, "heads"), []byte("riffle-client-heads 1\nx\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := client.NewFleet(c, w.members); err == nil {
			t.Error("a broken file of heads was taken")
		}
	})
}

// Within one task a shorter ledger is refused at once, whatever the clocks say.
func TestLedgerOfOneTaskGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theta := []float32{1, 2, 3, 4, 5}
		w := newWorld(t, 3, shuffleTask())
		c := w.config()
		seen := newWatch()
		c.Watch = seen.tell
		f, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		for round, entries := range []int64{5, 4, 5} {
			a := w.announcement(int64(round)+1, theta)
			a.Ledger = &wire.Head{Entries: entries, Digest: [32]byte{byte(entries)}}
			w.publish(a, theta, nil)
			if round == 1 {
				seen.next(ctx, t, client.Declined)
			} else {
				for range w.members {
					seen.next(ctx, t, client.Sent)
				}
			}
		}
		w.end()
		if err := errors.Join(<-done, f.Close()); err != nil {
			t.Error(err)
		}
	})
}

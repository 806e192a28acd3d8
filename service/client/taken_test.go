package client_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/service/client"
)

// A client whose ledger was cut at a line's end, or restored from a copy, or whose credential is used
// with another ledger too, notices it by the shuffler's count, says so and reports no more. A ledger
// with more charges than the shuffler took messages is whole: reports get lost.
func TestCutLedger(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(ledger []byte) []byte
		taken int64 // what the shuffler says in addition
		stops bool
	}{
		"whole":                {func(b []byte) []byte { return b }, 0, false},
		"cut by a line":        {func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] }, 0, true},
		"all but the header":   {func(b []byte) []byte { return b[:bytes.IndexByte(b, '\n')+1] }, 0, true},
		"a lost report":        {func(b []byte) []byte { return b }, -1, false},
		"a shuffler that lies": {func(b []byte) []byte { return b }, 5, true},
		"a restored shuffler":  {func(b []byte) []byte { return b }, -3, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				theta := []float32{1, 2, 3, 4, 5}
				w := newWorld(t, 3, shuffleTask())
				w.members = w.members[:1]
				config := w.config()
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				round := int64(0)
				run := func(rounds int64, what string) (last client.Notice) {
					t.Helper()
					seen := newWatch()
					config.Watch = seen.tell
					f, err := client.NewFleet(config, w.members)
					if err != nil {
						t.Fatal(err)
					}
					running, stop := context.WithCancel(ctx)
					done := make(chan error, 1)
					for i := range rounds {
						round++
						w.publish(w.announcement(round, theta), theta, nil)
						if i == 0 { // after the round is there, so that the fleet does not see the one before
							go func() { done <- f.Run(running) }()
						}
						last = seen.next(ctx, t, what)
					}
					stop()
					if err := errors.Join(<-done, f.Close()); err != nil {
						t.Error(err)
					}
					return last
				}
				count := int64(0)
				w.taken = &count
				run(3, client.Sent)
				file := filepath.Join(config.Directory, "ledger")
				b, err := os.ReadFile(file)
				if err == nil {
					err = os.WriteFile(file, c.spoil(b), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
				count = 3 + c.taken
				if !c.stops {
					run(1, client.Sent)
					return
				}
				n := run(2, client.Declined) // it does not begin again in the next round
				if refused := (*pure.Refused)(nil); !errors.As(n.Err, &refused) || refused.Cause != pure.CauseLedger {
					t.Errorf("declined for %v", n.Err)
				}
				if got, asked := w.asked("POST report"), w.asked("POST session"); got != 3 || asked != 2 {
					t.Errorf("%d reports, %d sessions", got, asked)
				}
			})
		})
	}
}

// A shuffler that does not count is refused if the policy says so.
func TestCountIsDemanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theta := []float32{1, 2, 3, 4, 5}
		w := newWorld(t, 3, shuffleTask())
		config := w.config()
		config.Policy.Count = true
		seen := newWatch()
		config.Watch = seen.tell
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, stop := w.process(ctx, config)
		w.publish(w.announcement(1, theta), theta, nil)
		if n, refused := seen.next(ctx, t, client.Declined), (*pure.Refused)(nil); !errors.As(n.Err, &refused) || refused.Cause != pure.CauseSession {
			t.Errorf("declined for %v", n.Err)
		}
		stop()
	})
}

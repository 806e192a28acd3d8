package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// When a client comes back for the next round does not show whether it is in this
// one: the question goes out before its report does.
func TestNextRoundIsAskedForWhateverIsDecided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := newWorld(t, 4, shuffleTask())
		fleet, err := client.NewFleet(w.config(), w.members)
		if err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		fleet.BeforeSend(func() {
			select {
			case <-asked:
			case <-ctx.Done():
			}
		})
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		synctest.Wait()
		if n := w.asked("GET announcement"); n != 2 {
			t.Fatalf("clients with a report in hand ask %d times for a round", n)
		}
		if n := w.asked("POST report"); n != 0 {
			t.Fatalf("%d reports were sent before", n)
		}
		close(asked)
		w.wait(ctx, 4)
		w.end()
		if err := errors.Join(<-done, fleet.Close()); err != nil {
			t.Error(err)
		}
	})
}

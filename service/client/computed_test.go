package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/service/client"
)

// However long a client's own model computes, its report leaves at the same time, and a gradient that is late is
// reported as 0.
func TestOwnModelsDoNotShow(t *testing.T) {
	const rounds = 2
	type seen struct {
		after [rounds]time.Duration
		parts [rounds][]byte
	}
	see := func(t *testing.T, takes time.Duration, gradient client.Gradient) (out seen) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			w := newWorld(t, 3, shuffleTask())
			w.members = w.members[:1]
			var computing atomic.Int32
			w.members[0].Source = client.Func(dim, func(theta, grad []float32) {
				if computing.Add(1) > 1 {
					t.Error("two gradients of one client are computed at a time")
				}
				time.Sleep(takes) // in a bubble computing takes no time
				gradient(theta, grad)
				computing.Add(-1)
			})
			config := w.config()
			config.Spread = 1 // a nanosecond: what is drawn hides nothing
			f, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			f.Replay(w.coins, w.noise)
			done := make(chan error, 1)
			go func() { done <- f.Run(ctx) }()
			for round := range rounds {
				theta := []float32{30, -2, 3, float32(round), 20}
				published := time.Now()
				w.publish(w.announcement(int64(round)+1, theta), theta, nil)
				for _, r := range w.wait(ctx, 1) {
					out.after[round] = time.Since(published)
					if out.parts[round], err = w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, r.Part); err != nil {
						t.Error(err)
					}
				}
				// The next round is published at the same time after this one, whatever the client does.
				time.Sleep(time.Until(published.Add(roundTime / 2)))
			}
			w.end()
			if err := errors.Join(<-done, f.Close()); err != nil {
				t.Error(err)
			}
		})
		return out
	}
	constant := func(v float32) client.Gradient {
		return func(_, grad []float32) {
			for j := range grad {
				grad[j] = v
			}
		}
	}
	own, none := constant(-9), constant(0)
	want, zero := see(t, 0, own), see(t, 0, none)
	if fmt.Sprint(want.parts) == fmt.Sprint(zero.parts) {
		t.Fatal("the reports do not depend on the gradients: this test sees nothing")
	}
	const answer = 10 * time.Second
	for _, c := range []struct {
		takes time.Duration
		late  [rounds]bool
	}{
		{time.Second, [rounds]bool{}},
		{answer * 9 / 10, [rounds]bool{}},
		{answer * 11 / 10, [rounds]bool{true, true}},
		{roundTime * 3 / 5, [rounds]bool{true, true}}, // it is computing when the next round begins
		{time.Hour, [rounds]bool{true, true}},
	} {
		got := see(t, c.takes, own)
		for round := range rounds {
			part := want.parts[round]
			if c.late[round] {
				part = zero.parts[round]
			}
			if !bytes.Equal(got.parts[round], part) {
				t.Errorf("a gradient of %v, round %d: the report is of another one", c.takes, round+1)
			}
			if off := got.after[round] - want.after[round]; off < -time.Millisecond || off > time.Millisecond || got.after[round] < answer {
				t.Errorf("a gradient of %v, round %d: the report leaves after %v, others after %v", c.takes, round+1, got.after[round], want.after[round])
			}
		}
	}
}

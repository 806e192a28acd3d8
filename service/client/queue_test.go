package client_test

import (
	"context"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// coin is a source of one number.
type coin uint64

func (c coin) Uint64() uint64 { return uint64(c) }
func (c coin) Fill(b []uint64) {
	for i := range b {
		b[i] = uint64(c)
	}
}

// A coordinator that announces rounds faster than clients send does not learn from
// the time of the next question whether a client waits to send: there is no backoff
// where more rounds are open than can wait.
func TestNextQuestionDoesNotWaitForReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		task := shuffleTask()
		task.Participation = dp.CheckIn
		task.Rounds = 100
		w := newWorld(t, 4, task)
		w.members = w.members[:1]
		var mu sync.Mutex
		first := map[int64]time.Time{}
		w.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if text := r.URL.Query().Get("after"); text != "" {
				n, _ := strconv.ParseInt(text, 10, 64)
				mu.Lock()
				if _, ok := first[n]; !ok {
					first[n] = time.Now()
				}
				mu.Unlock()
			}
			return false
		}
		c := w.config()
		c.Spread = 20 * time.Second
		fleet, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		fleet.Replay(func(_ wire.ID, round int64) rng.Source {
			if round == 2 {
				return coin(0) // checks in, and waits to send
			}
			return coin(^uint64(0))
		}, func(wire.ID, int64) rng.Source { return rng.Secure() })
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		defer func() {
			cancel()
			<-done
			fleet.Close()
		}()
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		await(t, func() bool { return fleet.Snapshot().Reports[client.Passed] == 1 }) // with a session
		for r := int64(2); r <= 20; r++ {
			a := w.announcement(r, theta)
			begun := time.Now()
			w.publish(a, theta, nil)
			synctest.Wait()
			mu.Lock()
			if at, ok := first[r]; !ok || at != begun {
				t.Errorf("round %d is announced at %v, the next question comes at %v", r, begun, at)
			}
			mu.Unlock()
		}
	})
}

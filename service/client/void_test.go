package client_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// A report that the shuffler cannot take now is sent again until the deadline. Then
// it is charged all the same, and each client says it once.
func TestVoidRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients = 4
		w := newWorld(t, clients, shuffleTask())
		theta := make([]float32, dim)
		ann := w.announcement(1, theta)
		ann.Deadline = time.Now().Add(10 * time.Second).UnixMilli()
		deadline := time.UnixMilli(ann.Deadline)
		var mu sync.Mutex
		var tries []time.Time
		w.before = func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/report" {
				return false
			}
			mu.Lock()
			defer mu.Unlock()
			tries = append(tries, time.Now())
			if len(tries)%3 == 0 {
				panic(http.ErrAbortHandler) // a connection that was closed in another's favour
			}
			rw.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		w.publish(ann, theta, nil)
		config := w.config()
		lost, retrying := 0, 0
		config.Watch = func(n client.Notice) {
			mu.Lock()
			defer mu.Unlock()
			switch n.What {
			case client.Lost:
				lost++
				if !strings.Contains(n.Err.Error(), "was charged and is not known to be taken") || !strings.Contains(n.Err.Error(), "tries)") {
					t.Errorf("it says %v", n.Err)
				}
			case client.Retrying:
				retrying++
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		fleet, end := w.run(ctx, config)
		await(t, func() bool { return fleet.Snapshot().Reports[client.Lost] == clients })
		end()
		mu.Lock()
		defer mu.Unlock()
		if lost != clients || retrying > clients {
			t.Errorf("%d clients said %d times that it was for nothing, %d times that they try again", clients, lost, retrying)
		}
		if len(tries) < 4*clients || deadline.Sub(tries[len(tries)-1]) > 2*leastWait {
			t.Errorf("%d tries, the last %v before the deadline", len(tries), deadline.Sub(tries[len(tries)-1]))
		}
	})
}

// leastWait is the client's least bound of a wait.
const leastWait = time.Second

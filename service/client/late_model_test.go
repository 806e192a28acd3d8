package client_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A coordinator that sends a model slowly, longer than reports are held back, must not learn when
// each report was made: they are held back from the model's arrival on.
func TestLateModelsDoNotShowWhenReportsAreMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, late, spread = 20, 15 * time.Second, 12 * time.Second
		w := newWorld(t, clients, shuffleTask())
		var mu sync.Mutex
		came := map[string][]time.Time{}
		w.before = func(_ http.ResponseWriter, r *http.Request) bool {
			if strings.HasPrefix(r.URL.Path, "/v1/models/") {
				time.Sleep(late)
			}
			mu.Lock()
			defer mu.Unlock()
			came[r.URL.Path] = append(came[r.URL.Path], time.Now())
			return false
		}
		c := w.config()
		c.Spread = spread
		_, end := w.run(t.Context(), c)
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		w.wait(t.Context(), clients)
		end()
		for _, what := range []string{"/v1/report", "/v1/session"} {
			times := came[what]
			if len(times) != clients {
				t.Fatalf("%d requests for %s of %d clients", len(times), what, clients)
			}
			// All but within a quarter of the half of spread that they have: once in 1e10.
			if took := times[clients-1].Sub(times[0]); took < spread/8 {
				t.Errorf("all requests for %s come within %v: they are not spread over %v", what, took, spread/2)
			}
		}
	})
}

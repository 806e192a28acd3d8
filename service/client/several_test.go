package client_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/service/client"
)

// Clients find the coordinator that leads a task, whichever of their addresses it is
// at: of the others one cannot be reached, and one is a standby. When the leader goes,
// they find the next.
func TestSeveralCoordinators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := newWorld(t, 4, shuffleTask())
		gone := w.network.ServeTLS(t, http.NotFoundHandler())
		gone.Close()
		var leads, knows atomic.Int32 // the one that does
		coordinator := func(i int32) *httptest.Server {
			return w.network.ServeTLS(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				switch path := r.URL.Path; {
				case knows.Load() != i && leads.Load() != i && strings.HasPrefix(path, "/v1/tasks"):
					rw.WriteHeader(http.StatusNotFound)
				case leads.Load() != i && strings.HasSuffix(path, "/announcement"):
					rw.WriteHeader(http.StatusServiceUnavailable)
				default:
					w.serveCoordinator(rw, r)
				}
			}))
		}
		first, second := coordinator(1), coordinator(2)
		leads.Store(2)
		knows.Store(1)
		c := w.config()
		c.Coordinator, c.Coordinators = gone.URL, []string{first.URL, second.URL}
		_, end := w.run(ctx, c)
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		w.wait(ctx, 4)
		leads.Store(1)
		second.CloseClientConnections()
		second.Close()
		w.publish(w.announcement(2, theta), theta, nil)
		w.wait(ctx, 4)
		end()
		c.Coordinators = []string{"http://x"}
		if _, err := client.NewFleet(c, w.members); err == nil {
			t.Error("an address without TLS is taken")
		}
	})
}

package coordinator

import (
	"net/http"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
)

// The model of a task that was run over HTTP is, bit for bit, that of the pure
// functions on the same reports, and so is what the ledger holds.
func TestRoundsEqualPureFunctions(t *testing.T) {
	for _, trust := range []dp.Trust{dp.Shuffle, dp.Local, dp.Distributed} {
		for _, p := range []dp.Participation{dp.All, dp.Sampled, dp.CheckIn, dp.Once} {
			bubble(t, string(trust)+" "+string(p), func(t *testing.T) {
				w := newWorld(t, trust, p)
				s := w.run()
				w.check(s)
				if s.Released != 3 || s.Round != 3 || s.Failed+s.Void != 0 {
					t.Errorf("%+v", s)
				}
				if len(w.sh.Destroyed) != 3 {
					t.Errorf("the shuffler was told of %d rounds", len(w.sh.Destroyed))
				}
			})
		}
	}
}

// The shuffler is told of the end of each round, of a void one too. If it cannot take that, it is told again
// before the next round.
func TestEndsAreToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.CheckIn, void(2))
		h, refused := w.sh.Handler(w.key.Public().(publicKey), false), 0
		w.server = w.net.Serve(t, http.HandlerFunc(func(out http.ResponseWriter, q *http.Request) {
			if q.Method == http.MethodDelete && refused == 0 {
				refused++
				http.Error(out, "not now", http.StatusServiceUnavailable)
				return
			}
			h.ServeHTTP(out, q)
		}))
		w.check(w.run())
		if refused != 1 || len(w.sh.Opened) != 4 || len(w.sh.Destroyed) != 4 {
			t.Errorf("%d rounds were opened, the shuffler was told of the end of %d", len(w.sh.Opened), len(w.sh.Destroyed))
		}
	})
}

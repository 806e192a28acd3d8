package coordinator

import (
	"testing"

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

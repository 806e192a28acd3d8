package coordinator

import (
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Who of the clients does not answer a question may have declined: a round of fewer reports than were
// asked for is charged as one of all its clients, one of all that were asked as ever.
func TestDeclinedQuestionsAreNoChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []dp.Participation{dp.All, dp.Sampled} {
			w := newWorld(t, dp.Shuffle, p, func(w *world) { w.config.Declinable = true })
			w.present = func(round, client int64) bool { return round != 2 || client >= 2 }
			asked := w.n
			if p == dp.Sampled {
				asked = w.config.Sample
			}
			if s := w.run(); s.Released != 3 {
				t.Fatalf("%s: %+v", p, s)
			}
			for i, b := range w.disk.Log {
				e, err := wire.Decode[wire.Entry](b)
				if err != nil {
					t.Fatal(err)
				}
				want := dp.Round{Report: w.config.Report, Trust: dp.Shuffle, Participation: p, Population: w.n, Reports: asked, Realised: true}
				if i == 1 {
					want.Participation, want.Population, want.Reports = dp.All, asked-2, asked-2
				}
				if e.Event != want {
					t.Errorf("%s: round %d is charged as %+v, want %+v", p, i+1, e.Event, want)
				}
			}
			w.fsck()
		}
	})
}

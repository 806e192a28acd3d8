package coordinator

import (
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Who of the clients does not answer a question may have declined, upon being drawn even: no chance is credited, and each round is
// charged for n-min clients.
func TestDeclinedQuestionsAreNoChance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []dp.Participation{dp.All, dp.Sampled} {
			w := newWorld(t, dp.Shuffle, p, func(w *world) { w.config.Declinable = true })
			w.present = func(round, client int64) bool { return round != 2 || client >= 2 }
			if s := w.run(); s.Released != 3 {
				t.Fatalf("%s: %+v", p, s)
			}
			for i, b := range w.disk.Log {
				e, err := wire.Decode[wire.Entry](b)
				if err != nil {
					t.Fatal(err)
				}
				want := dp.Round{Report: w.config.Report, Trust: dp.Shuffle, Participation: dp.All, Population: w.task.MinReports}
				if e.Event != want {
					t.Errorf("%s: round %d is charged as %+v, want %+v", p, i+1, e.Event, want)
				}
			}
			w.fsck()
		}
	})
}

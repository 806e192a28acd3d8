package coordinator

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Seeds are opened in the round of their announcement, a seed that came twice counts once, and all
// are recorded.
func TestRoundOfSeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) {
			var err error
			if w.task.Mechanism, err = mechanism.Describe(randomizer.StepUnit, randomizer.Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm"); err != nil {
				t.Fatal(err)
			}
			w.task.Rounds = 1
		})
		var digest [32]byte
		w.sh.Fill = func(a wire.Announcement) (parts, _ [][]byte) {
			digest = wire.Digest(a)
			for place := range w.n {
				seed := make([]byte, 16)
				seed[3] = byte(max(1, place)) // places 0 and 1 have the same
				part, err := envelope.SealPart(a.Coordinator, envelope.Coordinator, digest, seed)
				if err != nil {
					t.Error(err)
				}
				parts = append(parts, part)
			}
			return parts, nil
		}
		var recorded [][]int32
		w.config.Record = func(announcement [32]byte, round, place int64, r *randomizer.Report) error {
			if announcement != digest || int(place) != len(recorded) {
				t.Errorf("place %d of round %d, announcement %x", place, round, announcement[:4])
			}
			recorded = append(recorded, slices.Clone(r.Value))
			return nil
		}
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := w.end(p)
		if s.Reports != w.n-1 || s.Rejected[wire.Duplicate] != 1 || s.Released != 1 {
			t.Errorf("%+v", s)
		}
		if len(recorded) != int(w.n) || !slices.Equal(recorded[0], []int32{1 << 24, 0, 0, 0}) || !slices.Equal(recorded[0], recorded[1]) {
			t.Errorf("recorded %v", recorded)
		}
	})
}

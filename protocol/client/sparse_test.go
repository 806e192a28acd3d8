package client

import (
	"math"
	"reflect"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// The short ways to a sparse report give the report of the long one: clip the
// whole gradient, then randomize it.
func TestSparseReportsAreTheSame(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	gradients := [][]float32{
		{1, -1, 2, .5, -3}, {0, 0, 0, 0, 0}, {.01, -.01, .005, 1e-40, -.02}, {nan, 1, -inf, inf, .001},
		{math.MaxFloat32, -math.MaxFloat32, 1, 1e-45, -1},
	}
	for _, mode := range []ClipMode{ClipNorm, ClipCoordinate} {
		for coordinates := 1; coordinates <= 2; coordinates++ {
			m, err := randomizer.New(randomizer.RInf, randomizer.Config{Dim: 5, Radius: .01, Eps0: 2, Bits: coordinates})
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(Config{Mechanism: m, ClipMode: mode, Clip: .01, Norm: math.Inf(1)})
			if err != nil {
				t.Fatal(err)
			}
			if want := map[ClipMode]int{ClipNorm: 0, ClipCoordinate: coordinates}[mode]; c.Sparse != want {
				t.Errorf("%s: report of %d coordinates, want %d", mode, c.Sparse, want)
			}
			if mode == ClipNorm { // a coordinate says nothing of the gradient's norm
				func() {
					defer func() {
						if recover() == nil {
							t.Error("a report by coordinate is made of a gradient that is clipped as a whole")
						}
					}()
					c.ReportAt(rng.Replay(1), func(int) float32 { return 1 }, m.NewReport())
				}()
			}
			for seed := range uint64(300) {
				g := gradients[seed%uint64(len(gradients))]
				whole := append([]float32(nil), g...)
				if mode == ClipNorm {
					randomizer.ClipNorm(whole, math.Inf(1), .01)
				} else {
					randomizer.ClipCoordinate(whole, .01)
				}
				want, got, at := m.NewReport(), m.NewReport(), m.NewReport()
				m.Randomize(rng.Replay(seed), whole, want)
				c.Report(rng.Replay(seed), append([]float32(nil), g...), got)
				if !reflect.DeepEqual(got, want) {
					t.Fatalf("%s, seed %d: report %+v of %v, want %+v", mode, seed, got, g, want)
				}
				if mode == ClipCoordinate {
					c.ReportAt(rng.Replay(seed), func(j int) float32 { return g[j] }, at)
					if !reflect.DeepEqual(at, want) {
						t.Fatalf("seed %d: report by coordinate %+v of %v, want %+v", seed, at, g, want)
					}
				}
			}
		}
	}
}

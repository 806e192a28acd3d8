package proved

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// TestOneLiarMovesTheMeanByOneClip has each attack, and a liar at the bound, among honest clients of a
// round whose noise the aggregators add: the mean moves by at most the clip norm over n, and rounding's
// √d/2 steps more.
func TestOneLiarMovesTheMeanByOneClip(t *testing.T) {
	const d, n, clip = 20, 12, 2.5
	p, err := vecsum.NewAggregated(100, d, clip, 1)
	if err != nil {
		t.Fatal(err)
	}
	slack := math.Sqrt(d) / 2 / float64(p.Steps)
	if float64(p.Bound) > float64(p.Steps)*(1+slack)+1 {
		t.Fatalf("norm bound %d for %d steps", p.Bound, p.Steps)
	}
	r, src := mustNew(t, Config{Dim: d, Bound: p.Bound, Users: p.Users, Announcement: [32]byte{3}}), rng.Replay(10)
	honest := make([]int64, d)
	var reports []report
	for range n - 1 {
		x, counts := make([]float32, d), make([]int32, d)
		for j := range x {
			x[j] = float32(int64(src.Uint64())) / (1 << 62) // some are clipped
		}
		p.Round(src, x, counts)
		wide := make([]int64, d)
		for j, c := range counts {
			wide[j] = int64(c)
			honest[j] += int64(c)
		}
		reports = append(reports, mustReport(t, r, src, wide))
	}
	moved := func(name string, lies []report) float64 {
		sums := newSums(t, r, key, n-1+len(lies))
		decide(t, sums, append(slices.Clone(lies), reports...), 8)
		noise := make([]int64, d)
		sum, clients := opened(t, sums, [2][]int64{noise, noise})
		if err := p.CheckSum(sum, clients); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var square float64
		for j := range sum {
			v := float64(sum[j]-honest[j]) * p.Radius / float64(p.Steps) / n
			square += v * v
		}
		return math.Sqrt(square)
	}
	most := clip / n * (1 + slack + 2/float64(p.Steps))
	x := make([]int64, d)
	x[d-1] = p.Bound
	if by := moved("at the bound", []report{mustReport(t, r, src, x)}); by > most || by < clip/n {
		t.Errorf("a liar at the bound moves the mean by %v clip norms over n", by*n/clip)
	}
	for name, a := range attacks(t, r, src, p.Bound+p.Bound/100) {
		if by := moved(name, a.reports); by != 0 {
			t.Errorf("%s: the mean moves by %v clip norms over n", name, by*n/clip)
		}
	}
}

package shuffler

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func clients(n int) []wire.ID {
	out := make([]wire.ID, n)
	for i := range out {
		out[i] = wire.ID{byte(i), byte(i >> 8), 3}
	}
	return out
}

// Over keys every subset of k of n is as likely as any other; 20 subsets, χ² with
// 19 degrees of freedom exceeds 75 with probability 1e-8.
func TestDrawnIsAUniformSubset(t *testing.T) {
	ann := wire.Announcement{Participation: dp.Sampled, Population: 6, Sample: 3, Round: 1}
	src := rng.Replay(8)
	counts := map[int]int{}
	const trials = 40_000
	roster := clients(6)
	for range trials {
		d, err := NewDrawn(ann, randomKey(src), roster)
		if err != nil {
			t.Fatal(err)
		}
		set, size := 0, 0
		for i, id := range roster {
			if d.Has(id) {
				set |= 1 << i
				size++
			}
		}
		if size != 3 || d.Size != 3 {
			t.Fatalf("drew %d, says %d", size, d.Size)
		}
		counts[set]++
	}
	var chi2 float64
	for _, c := range counts {
		chi2 += math.Pow(float64(c)-trials/20., 2) / (trials / 20.)
	}
	if len(counts) != 20 || chi2 > 75 {
		t.Errorf("%d subsets, chi-square %.1f", len(counts), chi2)
	}
}

// The blocks of an epoch divide the clients, with the sizes of schedule.Blocks.
func TestBlocksOfAnEpochAreDisjoint(t *testing.T) {
	roster := clients(23)
	ann := wire.Announcement{Participation: dp.Once, Population: 23, PerEpoch: 5}
	hits := map[wire.ID]int{}
	for round := range int64(5) {
		ann.Round = 5*3 + round + 1
		if e, err := Epoch(ann); err != nil || e != 4 {
			t.Fatalf("round %d in epoch %d, %v", ann.Round, e, err)
		}
		d, err := NewDrawn(ann, [16]byte{9}, roster)
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		for _, id := range roster {
			if d.Has(id) {
				hits[id]++
				n++
			}
		}
		if want := []int64{5, 5, 5, 4, 4}[round]; n != want || d.Size != want {
			t.Errorf("block %d has %d clients, says %d, want %d", round, n, d.Size, want)
		}
	}
	for id, n := range hits {
		if n != 1 {
			t.Errorf("client %v is in %d blocks", id, n)
		}
	}
	if len(hits) != 23 {
		t.Errorf("%d clients in all blocks", len(hits))
	}
}

func TestDrawRefuses(t *testing.T) {
	for name, ann := range map[string]wire.Announcement{
		"another n":       {Participation: dp.All, Population: 5},
		"no such thing":   {Participation: "some", Population: 4},
		"too many":        {Participation: dp.Sampled, Population: 4, Sample: 5},
		"nobody":          {Participation: dp.Sampled, Population: 4},
		"no blocks":       {Participation: dp.Once, Population: 4, Round: 1},
		"too many blocks": {Participation: dp.Once, Population: 4, PerEpoch: 5, Round: 1},
		"no division":     {Participation: dp.Once, Population: 4, PerEpoch: 3, Round: 1},
	} {
		if _, err := NewDrawn(ann, [16]byte{}, clients(4)); err == nil {
			t.Errorf("%s: drawn", name)
		}
	}
	d, err := NewDrawn(wire.Announcement{Participation: dp.CheckIn, Population: 4}, [16]byte{}, clients(4))
	if err != nil || !d.Has(wire.ID{}) || d.Size != 4 {
		t.Errorf("check-in: %v", err)
	}
}

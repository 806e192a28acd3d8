package amplify

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// Blocks say what Round and Arrival do: the starts rise from k = 1, and the
// blocks they cut are those of the arrivals.
func TestBlocksAreThoseOfThePair(t *testing.T) {
	for _, c := range []ArrivalConfig{
		{Eps0: 1, Population: 1000, Asked: 300, Gamma: .2, Rate: Blanket(1)},
		{Eps0: 1, Population: 1e7, Asked: 1e7, Gamma: 1e-3, Rate: Blanket(1)},
		{Eps0: 3, Population: 9, Asked: 9, Gamma: 1, Rate: Clones(3)},
	} {
		f, err := ClonesFamily(c.Eps0, c.Rate)
		if err != nil {
			t.Fatal(err)
		}
		b, err := f.ArrivalBlocks(c.family())
		if err != nil {
			t.Fatal(err)
		}
		starts := map[int64]bool{}
		for i, k := range b.Reports {
			if k < 1 || k > c.Asked || i > 0 && k <= b.Reports[i-1] {
				t.Fatalf("%+v: starts %v", c, b.Reports)
			}
			starts[k] = true
		}
		for _, k := range Arrivals(c.Asked, c.Gamma) {
			if k.Last > 0 && (!starts[max(1, k.First)] || k.Last < c.Asked && !starts[k.Last+1]) {
				t.Errorf("%+v: block %d … %d is not cut out", c, k.First, k.Last)
			}
		}
	}
	f, err := ClonesFamily(2, Blanket(2))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := f.RoundBlocks(FamilyRound{Population: 1e9, Reports: 1e9}); err != nil || b.Clones < 2 || b.Reports != nil {
		t.Errorf("%+v, %v", b, err)
	}
	if _, err := f.RoundBlocks(FamilyRound{Population: 10, Reports: 11}); err == nil {
		t.Error("k above n is accepted")
	}
	if _, err := f.ArrivalBlocks(FamilyArrival{Population: 10, Asked: 10, Gamma: 2}); err == nil {
		t.Error("gamma above 1 is accepted")
	}
}

// Coarse blocks are few, begin at 1, and cost little.
func TestCoarseArrival(t *testing.T) {
	f, err := KnownTV(1, .1)
	if err != nil {
		t.Fatal(err)
	}
	few := []FamilyArrival{
		{Population: 1000, Asked: 300, Gamma: 1, Colluders: 200},
		{Population: 7, Asked: 7, Gamma: .5},
	}
	all := append([]FamilyArrival{
		{Population: 60000, Asked: 60000, Gamma: .01},
		{Population: 5e5, Asked: 5e5, Gamma: 1.5e-3},
	}, few...)
	for _, a := range longtest.Pick(few, all) {
		fine, err := f.Arrival(a)
		if err != nil {
			t.Fatal(err)
		}
		coarse, b, err := f.CoarseArrival(a)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Reports) > 200 || b.Reports[0] != 1 {
			t.Errorf("%+v: %d blocks from %d", a, len(b.Reports), b.Reports[0])
		}
		delta := func(p dp.Pair, eps float64) (sum float64) {
			for _, x := range p.Atoms {
				sum += math.Max(0, x.Q*(math.Exp(x.Loss)-math.Exp(eps)))
			}
			return sum
		}
		for _, eps := range []float64{0, .003, .03} {
			x, y := delta(fine, eps), delta(coarse, eps)
			if y < x*.995 && x > 1e-100 || eps == 0 && y > x*1.03 {
				t.Errorf("%+v at %v: %v in coarse blocks, %v in fine ones", a, eps, y, x)
			}
		}
	}
}

package amplify

import "testing"

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

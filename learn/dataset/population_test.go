package dataset

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(2, 500).Draw(t, "n")
		v := rapid.IntRange(1, n-1).Draw(t, "validation")
		seed := rapid.Uint64().Draw(t, "seed")
		train, val, err := Split(n, v, seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(val) != v || !slices.IsSorted(train) || !slices.IsSorted(val) {
			t.Fatalf("parts of %d and %d, sorted %v, %v", len(train), len(val), slices.IsSorted(train), slices.IsSorted(val))
		}
		all := slices.Sorted(slices.Values(append(slices.Clone(train), val...)))
		for i, j := range all {
			if i != j {
				t.Fatalf("the parts do not cover 0 … %d exactly once", n-1)
			}
		}
		again, valAgain, err := Split(n, v, seed)
		if err != nil || !slices.Equal(train, again) || !slices.Equal(val, valAgain) {
			t.Fatal("the same seed gives another split")
		}
	})
}

// TestSplitGolden holds one split fixed: chosen hyper-parameters refer to it.
func TestSplitGolden(t *testing.T) {
	_, val, err := Split(60000, 10000, 1)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := val[:5], []int{3, 16, 21, 29, 35}; !slices.Equal(got, want) {
		t.Errorf("split of 60000 begins %v, want %v", got, want)
	}
	_, small, err := Split(60000, 100, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range small {
		if _, ok := slices.BinarySearch(val, i); !ok {
			t.Errorf("%d is in the smaller validation part only", i)
		}
	}
	_, other, err := Split(60000, 10000, 2)
	if err != nil {
		t.Fatal(err)
	}
	common := 0
	for _, i := range other {
		if _, ok := slices.BinarySearch(val, i); ok {
			common++
		}
	}
	// Hypergeometric, mean 1667, deviation 34: five deviations and a half,
	// false alarm below 1e-7 for a random function, and the seeds are fixed.
	if common < 1480 || common > 1854 {
		t.Errorf("two seeds share %d of 10000, want about 1667", common)
	}
}

func TestSplitRefuses(t *testing.T) {
	for _, c := range [][2]int{{0, 0}, {1, 1}, {1, 0}, {10, 0}, {10, 10}, {10, -1}, {10, 11}, {-3, -5}} {
		if _, _, err := Split(c[0], c[1], 1); err == nil {
			t.Errorf("Split(%d, %d) accepted", c[0], c[1])
		}
	}
}

func TestPopulationIdentity(t *testing.T) {
	p, err := NewPopulation(PopulationConfig{Clients: 1000, Examples: 1000, Seed: 9})
	if err != nil {
		t.Fatal(err)
	}
	if p.Bootstrapped || p.Clients != 1000 {
		t.Errorf("bootstrapped %v, clients %d", p.Bootstrapped, p.Clients)
	}
	for i := range int64(1000) {
		if p.Example(i, 0) != int(i) {
			t.Fatalf("client %d holds example %d", i, p.Example(i, 0))
		}
	}
}

// TestPopulationUniform: chi-square over 100 examples, and over consecutive
// pairs of 10. A random function fails one of the six checks with probability
// below 1e-6; the seeds are fixed.
func TestPopulationUniform(t *testing.T) {
	const clients = 1_000_000
	for _, seed := range []uint64{0, 1, math.MaxUint64} {
		p, err := NewPopulation(PopulationConfig{Clients: clients, Examples: 100, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		if !p.Bootstrapped {
			t.Fatal("not bootstrapped")
		}
		single := make([]float64, 100)
		pairs := make([]float64, 100)
		for i := range int64(clients) {
			e := p.Example(i, 0)
			single[e]++
			if i%2 == 1 {
				pairs[p.Example(i-1, 0)/10*10+e/10]++
			}
		}
		for what, counts := range map[string][]float64{"examples": single, "pairs": pairs} {
			total := 0.0
			for _, c := range counts {
				total += c
			}
			x2 := 0.0
			for _, c := range counts {
				want := total / 100
				x2 += (c - want) * (c - want) / want
			}
			// 99 degrees of freedom: P(χ² > 190) < 1.3e-7, P(χ² < 40) < 3e-8.
			if x2 < 40 || x2 > 190 {
				t.Errorf("seed %d: χ² of %s = %.1f with 99 degrees of freedom", seed, what, x2)
			}
		}
	}
}

func TestPopulationSmallerAndVast(t *testing.T) {
	for _, c := range []PopulationConfig{
		{Clients: 10, Examples: 60000, Seed: 3},
		{Clients: math.MaxInt64, Examples: 60000, Seed: 3},
		{Clients: 5, Examples: 1, Seed: 3},
		{Clients: 7, Examples: math.MaxInt, Seed: 3},
	} {
		p, err := NewPopulation(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, client := range []int64{0, c.Clients / 2, c.Clients - 1} {
			if e := p.Example(client, 0); e < 0 || e >= c.Examples {
				t.Errorf("%+v: client %d holds example %d", c, client, e)
			}
		}
	}
	a, _ := NewPopulation(PopulationConfig{Clients: 100, Examples: 1000, Seed: 3})
	b, _ := NewPopulation(PopulationConfig{Clients: 1e9, Examples: 1000, Seed: 3})
	for i := range int64(100) {
		if a.Example(i, 0) != b.Example(i, 0) {
			t.Fatalf("client %d holds another example in a larger population", i)
		}
	}
}

func TestPopulationRefuses(t *testing.T) {
	for _, c := range []PopulationConfig{{}, {Clients: 0, Examples: 5}, {Clients: -1, Examples: 5}, {Clients: 5}, {Clients: 5, Examples: -2}} {
		if _, err := NewPopulation(c); err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	p, err := NewPopulation(PopulationConfig{Clients: 5, Examples: 7})
	if err != nil {
		t.Fatal(err)
	}
	for _, client := range []int64{-1, 5} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("client %d accepted", client)
				}
			}()
			p.Example(client, 0)
		}()
	}
}

func BenchmarkPopulationExample(b *testing.B) {
	p, err := NewPopulation(PopulationConfig{Clients: math.MaxInt64, Examples: 60000})
	if err != nil {
		b.Fatal(err)
	}
	i, sum := int64(0), 0
	for b.Loop() {
		sum += p.Example(i, 0)
		i++
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}

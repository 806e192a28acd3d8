package dataset

import (
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestUsersDisjoint(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.IntRange(1, 12).Draw(t, "m")
		clients := rapid.IntRange(1, 40).Draw(t, "clients")
		spare := rapid.IntRange(0, 20).Draw(t, "spare")
		c := PopulationConfig{Clients: int64(clients), Examples: clients*m + spare, PerClient: m, Seed: rapid.Uint64().Draw(t, "seed"),
			Scattered: rapid.Bool().Draw(t, "scattered")}
		u, err := NewPopulation(c)
		if err != nil {
			t.Fatal(err)
		}
		if u.Bootstrapped || u.Clients != c.Clients || u.PerClient != m {
			t.Fatalf("bootstrapped %v, %d clients of %d", u.Bootstrapped, u.Clients, u.PerClient)
		}
		seen := make([]bool, c.Examples)
		for i := range c.Clients {
			for j := range m {
				e := u.Example(i, j)
				if e < 0 || e >= c.Examples || seen[e] {
					t.Fatalf("example %d of client %d is %d, held before or outside", j, i, e)
				}
				seen[e] = true
				if !c.Scattered && e != int(i)*m+j {
					t.Fatalf("contiguous example %d of client %d is %d", j, i, e)
				}
			}
		}
	})
}

func TestUsersScatteredBySeed(t *testing.T) {
	list := func(seed uint64) (out []int) {
		u, err := NewPopulation(PopulationConfig{Clients: 50, Examples: 1000, PerClient: 20, Scattered: true, Seed: seed})
		if err != nil {
			t.Fatal(err)
		}
		for i := range int64(50) {
			out = append(out, u.Example(i, 3))
		}
		return out
	}
	if !slices.Equal(list(1), list(1)) || slices.Equal(list(1), list(2)) || slices.IsSorted(list(1)) {
		t.Error("scattering does not follow the seed")
	}
}

// TestUsersBootstrapped: chi-square over examples, over a client's pairs and
// over neighbouring clients' pairs; 99 degrees of freedom, a random function
// fails one of the checks with probability below 1e-6. The seed is fixed.
func TestUsersBootstrapped(t *testing.T) {
	const clients, m = 200_000, 5
	u, err := NewPopulation(PopulationConfig{Clients: clients, Examples: 100, PerClient: m, Seed: 4})
	if err != nil {
		t.Fatal(err)
	}
	if !u.Bootstrapped {
		t.Fatal("not bootstrapped")
	}
	single, inside, between := make([]float64, 100), make([]float64, 100), make([]float64, 100)
	for i := range int64(clients) {
		for j := range m {
			single[u.Example(i, j)]++
		}
		inside[u.Example(i, 0)/10*10+u.Example(i, 1)/10]++
		if i%2 == 1 {
			between[u.Example(i-1, 1)/10*10+u.Example(i, 0)/10]++
		}
	}
	for what, counts := range map[string][]float64{"examples": single, "pairs of a client": inside, "pairs of neighbours": between} {
		total, x2 := 0.0, 0.0
		for _, c := range counts {
			total += c
		}
		for _, c := range counts {
			x2 += (c - total/100) * (c - total/100) / (total / 100)
		}
		if x2 < 40 || x2 > 190 {
			t.Errorf("χ² of %s = %.1f with 99 degrees of freedom", what, x2)
		}
	}
}

// TestTenMillionClients visits every client of both populations: each example
// stands for its share of them, and no table of clients is allocated.
func TestTenMillionClients(t *testing.T) {
	const clients, examples = 10_000_000, 60_000
	var before, after runtime.MemStats
	counts := make([]int32, examples)
	users := make([]int32, examples)
	runtime.ReadMemStats(&before)
	p, err := NewPopulation(PopulationConfig{Clients: clients, Examples: examples, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	u, err := NewPopulation(PopulationConfig{Clients: clients, Examples: examples, PerClient: 10, Seed: 2})
	if err != nil {
		t.Fatal(err)
	}
	step := int64(1)
	if testing.Short() {
		step = 10
	}
	for i := int64(0); i < clients; i += step {
		counts[p.Example(i, 0)]++
		users[u.Example(i, int(i/step%10))]++
	}
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 1<<20 {
		t.Errorf("allocated %d bytes for %d clients", grown, clients)
	}
	want := float64(clients/step) / examples
	for what, counts := range map[string][]int32{"one example": counts, "several": users} {
		x2 := 0.0
		for _, c := range counts {
			x2 += (float64(c) - want) * (float64(c) - want) / want
		}
		// 59,999 degrees of freedom: deviation √(2·59999) = 346, six of them are
		// exceeded with probability 2e-9; the seed is fixed.
		if math.Abs(x2-59_999) > 6*346 {
			t.Errorf("χ² of %s = %.0f with 59999 degrees of freedom", what, x2)
		}
	}
}

func TestUsersRefuses(t *testing.T) {
	for want, c := range map[string]PopulationConfig{
		"population of 0 clients":        {Examples: 5, PerClient: 1},
		"population over 0 examples":     {Clients: 5, PerClient: 1},
		"m = -1 examples per client":     {Clients: 5, Examples: 5, PerClient: -1},
		"m = 6 examples per client must": {Clients: 5, Examples: 5, PerClient: 6},
		// Never silently replaced by a bootstrap: 3·2 > 5.
		"scattering m = 2 examples": {Clients: 3, Examples: 5, PerClient: 2, Scattered: true},
	} {
		if _, err := NewPopulation(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// Products that would overflow.
	u, err := NewPopulation(PopulationConfig{Clients: math.MaxInt64, Examples: 1000, PerClient: 1000})
	if err != nil || !u.Bootstrapped {
		t.Fatalf("%v", err)
	}
	if e := u.Example(math.MaxInt64-1, 999); e < 0 || e >= 1000 {
		t.Errorf("example %d", e)
	}
	for _, c := range [][2]int64{{-1, 0}, {math.MaxInt64, 0}, {0, -1}, {0, 1000}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("example %v accepted", c)
				}
			}()
			u.Example(c[0], int(c[1]))
		}()
	}
}

func BenchmarkUsersExample(b *testing.B) {
	u, err := NewPopulation(PopulationConfig{Clients: 1e7, Examples: 60000, PerClient: 8})
	if err != nil {
		b.Fatal(err)
	}
	i, sum := int64(0), 0
	for b.Loop() {
		sum += u.Example(i%1e7, int(i%8))
		i++
	}
	if sum < 0 {
		b.Fatal(sum)
	}
}

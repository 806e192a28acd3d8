package dataset

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

func partition(t testing.TB, labels []int32, c SkewConfig) [][]int {
	t.Helper()
	parts, err := SkewPartition(labels, c)
	if err != nil {
		t.Fatal(err)
	}
	return parts
}

func TestSkewCoversOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.Int32Range(0, 6), 1, 200).Draw(t, "labels")
		c := SkewConfig{Clients: rapid.IntRange(1, min(20, len(labels))).Draw(t, "clients"), Seed: rapid.Uint64().Draw(t, "seed")}
		if rapid.Bool().Draw(t, "shards") {
			c.Shards = rapid.IntRange(1, len(labels)/c.Clients).Draw(t, "s")
		} else {
			c.Concentration = math.Pow(10, rapid.Float64Range(-6, 6).Draw(t, "log10 alpha"))
		}
		parts, err := SkewPartition(labels, c)
		if err != nil {
			t.Fatal(err)
		}
		var all []int
		for _, p := range parts {
			if !slices.IsSorted(p) || c.Shards > 0 && len(p) < len(labels)/(c.Clients*c.Shards)*c.Shards {
				t.Fatalf("part %v", p)
			}
			all = append(all, p...)
		}
		slices.Sort(all)
		for i, e := range all {
			if i != e {
				t.Fatalf("parts do not cover the examples once: %v", all)
			}
		}
		if len(all) != len(labels) || len(parts) != c.Clients {
			t.Fatalf("%d of %d examples in %d parts", len(all), len(labels), len(parts))
		}
		again, err := SkewPartition(labels, c)
		if err != nil || !reflect.DeepEqual(again, parts) {
			t.Fatal("the same seed gives another partition")
		}
	})
}

// mixed returns n labels of ten classes in turn.
func mixed(n int) []int32 {
	labels := make([]int32, n)
	for i := range labels {
		labels[i] = int32(i % 10)
	}
	return labels
}

// classesOf counts the classes of a part.
func classesOf(labels []int32, part []int) int {
	seen := map[int32]bool{}
	for _, i := range part {
		seen[labels[i]] = true
	}
	return len(seen)
}

func TestShardsBoundTheClasses(t *testing.T) {
	labels := mixed(1000)
	for seed := range uint64(5) {
		for i, p := range partition(t, labels, SkewConfig{Clients: 50, Shards: 2, Seed: seed}) {
			// 100 shards of 10 tile the classes of 100 exactly.
			if len(p) != 20 || classesOf(labels, p) > 2 {
				t.Errorf("seed %d: client %d has %d examples of %d classes", seed, i, len(p), classesOf(labels, p))
			}
		}
	}
	a := partition(t, labels, SkewConfig{Clients: 50, Shards: 2, Seed: 1})
	if reflect.DeepEqual(a, partition(t, labels, SkewConfig{Clients: 50, Shards: 2, Seed: 2})) {
		t.Error("two seeds give one partition")
	}
}

// TestConcentrationSkews: almost none gives each class to one client, much
// gives everyone the same.
func TestConcentrationSkews(t *testing.T) {
	labels := mixed(10_000)
	sharing := 0
	for _, p := range partition(t, labels, SkewConfig{Clients: 20, Concentration: 1e-5, Seed: 3}) {
		sharing += classesOf(labels, p)
	}
	// A class has a second holder if the two smallest of 20 Exp(1)/α are less
	// than log 2000 apart, probability .0015: five such classes below 1e-11.
	if sharing < 10 || sharing > 14 {
		t.Errorf("at α = 1e-5 the clients hold %d (class, client) pairs, want 10", sharing)
	}
	for i, p := range partition(t, labels, SkewConfig{Clients: 20, Concentration: 1e6, Seed: 3}) {
		if len(p) < 480 || len(p) > 520 || classesOf(labels, p) != 10 {
			t.Errorf("at α = 1e6 client %d holds %d examples of %d classes, want about 500 of 10", i, len(p), classesOf(labels, p))
		}
	}
}

// TestDirichletMoments: a share of Dirichlet(α, …, α) among K has mean 1/K and
// variance (1/K)(1 − 1/K)/(αK + 1).
func TestDirichletMoments(t *testing.T) {
	const k, size, draws = 5, 1000, 4000
	for _, alpha := range []float64{.1, 1, 4} {
		src := rng.Replay(8)
		class := make([]int, size)
		var sum, square float64
		for range draws {
			parts := make([][]int, k)
			dealDirichlet(src, class, parts, alpha)
			share := float64(len(parts[2])) / size
			sum += share
			square += (share - 1./k) * (share - 1./k)
		}
		variance := 1. / k * (1 - 1./k) / (alpha*k + 1)
		if d := sum/draws - 1./k; math.Abs(d) > 6*math.Sqrt(variance/draws) { // six deviations: 2e-9
			t.Errorf("α = %v: mean share off by %v", alpha, d)
		}
		// The squares' relative deviation is below √(κ/draws) with kurtosis
		// κ < 4, .03; six of them.
		if got := square / draws; math.Abs(got/variance-1) > .19 {
			t.Errorf("α = %v: variance %v, want %v", alpha, got, variance)
		}
	}
}

// TestLogGamma compares mean and variance with ψ and ψ′ (α = 1: −γ and π²/6;
// α = ½: −γ − 2 log 2 and π²/2; α = 2: 1 − γ and π²/6 − 1).
func TestLogGamma(t *testing.T) {
	const gamma, draws = 0.57721566490153286, 200_000
	for alpha, want := range map[float64][2]float64{
		.5: {-gamma - 2*math.Ln2, math.Pi * math.Pi / 2},
		1:  {-gamma, math.Pi * math.Pi / 6},
		2:  {1 - gamma, math.Pi*math.Pi/6 - 1},
	} {
		src := rng.Replay(9)
		var sum, square float64
		for range draws {
			x := logGamma(src, alpha) - want[0]
			sum += x
			square += x * x
		}
		// Six deviations; the kurtosis of log-gamma is at most 9.
		if math.Abs(sum/draws) > 6*math.Sqrt(want[1]/draws) || math.Abs(square/draws/want[1]-1) > 6*math.Sqrt(8./draws) {
			t.Errorf("α = %v: mean off by %v, variance %v, want %v", alpha, sum/draws, square/draws, want[1])
		}
	}
}

func TestSkewRefuses(t *testing.T) {
	four := []int32{0, 1, 0, 1}
	for _, c := range []struct {
		want   string
		labels []int32
		config SkewConfig
	}{
		{"no examples", nil, SkewConfig{Clients: 1, Shards: 1}},
		{"class -1 of example 1", []int32{0, -1}, SkewConfig{Clients: 1, Shards: 1}},
		{"among 0 clients", four, SkewConfig{Shards: 1}},
		{"exactly one", four, SkewConfig{Clients: 2}},
		{"exactly one", four, SkewConfig{Clients: 2, Shards: 1, Concentration: 1}},
		{"3 shards for each of 2", four, SkewConfig{Clients: 2, Shards: 3}},
		{"-1 shards", four, SkewConfig{Clients: 2, Shards: -1}},
		{"concentration = -1", four, SkewConfig{Clients: 2, Concentration: -1}},
		{"concentration = NaN", four, SkewConfig{Clients: 2, Concentration: math.NaN()}},
		{"concentration = +Inf", four, SkewConfig{Clients: 2, Concentration: math.Inf(1)}},
		{"1 shards for each of 5", four, SkewConfig{Clients: 5, Shards: 1}},
	} {
		if _, err := SkewPartition(c.labels, c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}

func BenchmarkSkewPartition(b *testing.B) {
	labels := make([]int32, 60_000)
	r := rand.New(rand.NewPCG(1, 1))
	for i := range labels {
		labels[i] = int32(r.IntN(10))
	}
	for b.Loop() {
		partition(b, labels, SkewConfig{Clients: 1000, Concentration: .5})
	}
}

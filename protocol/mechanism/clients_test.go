package mechanism

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// apartSum is a sum to which clients send their noise apart, of at least 4 of any 5.
func apartSum(t testing.TB, users int64, dim int) *AggregatedSum {
	t.Helper()
	p, err := vecsum.NewCorrelatedByClients(users, 5, .8, dim, 1.5, 2, threeWeights)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(10)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewCorrelatedSum(p, threeWeights, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The tail has what proofs may show of the client's own vector and of the noise of everybody who may be honest in a
// round: whoever chooses the reports of a sum could choose those whose noise was shown, so the h of which the noise
// counts are not enough.
func TestTailOfClientsNoise(t *testing.T) {
	strategy := toeplitz.Strategy{Bits: 0, Weights: []int64{1, 1}}
	for _, bound := range []int64{1<<15 + 2, 42_000} {
		for _, users := range []int64{9, 1000} {
			p := vecsum.Aggregated{Users: users, MinUsers: 5, Honest: .6, Dim: 6, Radius: 1, Steps: 1 << 15, Bound: bound, Variance: 1 << 31}.Weighted(strategy)
			m := must(NewCorrelatedSum(p, strategy, 1, 9))
			shown := must(m.Proved([32]byte{})).ZeroKnowledge()
			for _, rounds := range []int64{1, 1000} {
				_, smooth, err := p.Sigma(rounds)
				if err != nil {
					t.Fatal(err)
				}
				want := smooth + float64(rounds)*float64(users+1)*math.Exp2(shown)*(1+math.Exp(dp.MaxEps0))
				if got, err := m.Tail(rounds); err != nil || !(got >= want) || !(got <= want*(1+1e-10)) {
					t.Errorf("bound %d, %d users, %d rounds: tail %v, want %v: %v", bound, users, rounds, got, want, err)
				}
			}
		}
	}
}

// Both ends build the same sum from a description, and its reports add up to vectors and noise.
func TestSumsOfNoiseApartAreDescribed(t *testing.T) {
	m := apartSum(t, 9, 3)
	w := m.Describe()
	again := must(New(w)).(*AggregatedSum)
	if again.Aggregated != m.Aggregated || again.Event() != m.Event() || again.Facts().Name != m.Facts().Name || !reflect.DeepEqual(again.Describe(), w) {
		t.Errorf("%+v came back as %+v", m, again)
	}
	if err := CheckSigma(t.Context(), w, 1e-9, 1000); err != nil {
		t.Error(err)
	}
	if noise, err := m.Noise(rng.Replay(1)); noise != nil || err != nil {
		t.Errorf("an aggregator draws %v: %v", noise, err)
	}
	part, share, err := ContentSizes(m)
	if err != nil {
		t.Fatal(err)
	}
	const rounds, reports = 40, 5
	src, r := rng.Replay(1), again.NewReport()
	var square float64
	for i := range rounds {
		announcement := [32]byte{byte(i)}
		round := must(m.Proved(announcement))
		var sums []*proved.Sum
		for _, role := range []proved.Role{proved.Aggregator, proved.Coordinator} {
			sums = append(sums, must(round.NewSum(proved.SumConfig{Role: role, Key: proved.VerifyKey{1}, Reports: reports})))
		}
		want := make([]int64, 3)
		var at [2][]*proved.Prepared
		for i := range reports {
			again.Randomize(src, []float32{.5, float32(i) / 3, -1}, r)
			again.Add(want, r)
			a, b, err := Contents(src, again, announcement, r)
			if err != nil || int64(len(a)) != part || int64(len(b)) != share {
				t.Fatalf("%d and %d bytes, want %d and %d: %v", len(a), len(b), part, share, err)
			}
			at[0], at[1] = append(at[0], sums[0].Prepare(b)), append(at[1], sums[1].Prepare(a))
		}
		messages := [][]byte{must(sums[0].Begin(at[0])), must(sums[1].Begin(at[1]))}
		var partials []vecsum.Partial
		var held [2][]int64
		for k, s := range sums {
			if got := must(s.Finish(messages[1-k])); !slices.Equal(got, make([]proved.Reason, reports)) {
				t.Fatalf("aggregator %d: %q", k, got)
			}
			held[k] = must(s.Mix(16, nil))
			if _, err := s.Close(make([]int64, 3)); err == nil {
				t.Error("noise of an aggregator besides clients' was added")
			}
			partials = append(partials, must(s.Close(nil)))
		}
		sum, n, err := round.Combine(partials[0], partials[1])
		if err != nil || n != reports {
			t.Fatalf("%v of %d: %v", sum, n, err)
		}
		for j := range sum {
			d := float64(sum[j] - 16*want[j])
			square += d * d
			if got := shared(held[0][j], held[1][j]); got != want[j] {
				t.Errorf("sum %d is held as %d, that of the vectors is %d", j, got, want[j])
			}
		}
	}
	// Chi-squared with 120 degrees of freedom is within 60 and 200 but for 1e-5.
	if of := square / (reports * float64(m.Variance)); !(of > 60 && of < 200) {
		t.Errorf("noise of %v times what %d clients draw", of/(3*rounds), reports)
	}
}

// shared returns the number of which two elements of the field of 64 bits are shares.
func shared(a, b int64) int64 {
	order := new(big.Int).SetUint64(1<<64 - 1<<32 + 1)
	sum := new(big.Int).Add(new(big.Int).SetUint64(uint64(a)), new(big.Int).SetUint64(uint64(b)))
	if sum.Mod(sum, order).BitLen() == 64 {
		sum.Sub(sum, order)
	}
	return sum.Int64()
}

// Descriptions for which the theorem does not hold are refused, and those that claim more than it gives.
func TestSumsOfNoiseApartAreRefused(t *testing.T) {
	good := apartSum(t, 400, 6).Describe()
	for want, change := range map[string]func(*wire.Mechanism){
		"needs proofs":                func(m *wire.Mechanism) { m.Sum.Proofs = "" },
		`noise by "aggregators"`:      func(m *wire.Mechanism) { m.Sum.NoiseBy = wire.NoiseByAggregators },
		`noise by ""`:                 func(m *wire.Mechanism) { m.Sum.NoiseBy = "" },
		`noise by "clients"`:          func(m *wire.Mechanism) { m.Name = aggregatedName },
		"without the weights":         func(m *wire.Mechanism) { m.Weights, m.WeightBits = nil, 0 },
		"noise of 0 clients":          func(m *wire.Mechanism) { m.Sum.MinUsers = 0 },
		"noise of -5 clients":         func(m *wire.Mechanism) { m.Sum.MinUsers = -5 },
		"n-min = 401":                 func(m *wire.Mechanism) { m.Sum.MinUsers = 401 },
		"honest fraction = 0":         func(m *wire.Mechanism) { m.Sum.Honest = 0 },
		"honest fraction = 1.1":       func(m *wire.Mechanism) { m.Sum.Honest = 1.1 },
		"of clients in their vectors": func(m *wire.Mechanism) { m.Sum.Honest = math.NaN() },
		"leaves no noise":             func(m *wire.Mechanism) { m.Sum.Honest = .1 },
		"at least 50":                 func(m *wire.Mechanism) { m.Sum.Variance = 49 },
		"at most 2^54":                func(m *wire.Mechanism) { m.Sum.Variance = 1 << 53 },
		"at most 2^54 ":               func(m *wire.Mechanism) { m.Sum.Variance = math.MaxUint64 },
		"longer than 2^30":            func(m *wire.Mechanism) { m.Sum.Variance, m.Sum.MinUsers = 1<<52, 2 },
		"counts":                      func(m *wire.Mechanism) { m.Sum.Ones = 1 },
		"noise of clients in":         func(m *wire.Mechanism) { m.Sum.NoiseVariance = 5 },
	} {
		m := good
		change(&m)
		if _, err := New(m); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for name, change := range map[string]func(*wire.Mechanism){
		"more than it is worth": func(m *wire.Mechanism) { m.Sum.Sigma = math.Nextafter(m.Sum.Sigma, 9) },
		"less noise":            func(m *wire.Mechanism) { m.Sum.Variance -= m.Sum.Variance / 1000 },
		"fewer clients":         func(m *wire.Mechanism) { m.Sum.MinUsers = 4 },
		"fewer honest ones":     func(m *wire.Mechanism) { m.Sum.Honest = .79 },
		"longer vectors":        func(m *wire.Mechanism) { m.Sum.Bound += 9 },
		"heavier weights":       func(m *wire.Mechanism) { m.WeightBits, m.Weights = 5, []int64{32, 18, 10} },
	} {
		m := good
		change(&m)
		if err := CheckSigma(t.Context(), m, 1e-9, 10); err == nil || !strings.Contains(err.Error(), "the task claims") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := vecsum.NewCorrelatedByClients(9, 5, .1, 6, 1.5, 2, threeWeights); !errors.Is(err, dp.ErrNoBound) {
		t.Error(err)
	}
}

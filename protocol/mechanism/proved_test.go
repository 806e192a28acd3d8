package mechanism

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func provedSum(t testing.TB, users int64, dim int) *AggregatedSum {
	t.Helper()
	p, err := vecsum.NewAggregated(users, dim, 1.5, 2)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(10)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewAggregatedSum(p, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Both ends build the same sum with proofs from a description, and its reports add up to the
// vectors.
func TestSumsWithProofsAreDescribed(t *testing.T) {
	m := provedSum(t, 9, 6)
	w := m.Describe()
	again := must(New(w)).(*AggregatedSum)
	if again.Aggregated != m.Aggregated || again.Event() != m.Event() || again.Facts().Name != m.Facts().Name || !reflect.DeepEqual(again.Describe(), w) {
		t.Errorf("%+v came back as %+v", m, again)
	}
	part, share, err := ContentSizes(m)
	if err != nil {
		t.Fatal(err)
	}
	announcement := [32]byte{4}
	round := must(m.Proved(announcement))
	sums := []*proved.Sum{}
	for _, role := range []proved.Role{proved.Aggregator, proved.Coordinator} {
		sums = append(sums, must(round.NewSum(proved.SumConfig{Role: role, Key: proved.VerifyKey{1}, Reports: 3})))
	}
	src, r, want := rng.Replay(1), again.NewReport(), make([]int64, 6)
	var at [2][]*proved.Prepared
	for i := range 3 {
		again.Randomize(src, []float32{.5, float32(i) / 3, -1, .1, 0, .2}, r)
		again.Add(want, r)
		a, b, err := Contents(src, again, announcement, r)
		if err != nil || int64(len(a)) != part || int64(len(b)) != share {
			t.Fatalf("%d and %d bytes, want %d and %d: %v", len(a), len(b), part, share, err)
		}
		at[0], at[1] = append(at[0], sums[0].Prepare(b)), append(at[1], sums[1].Prepare(a))
	}
	messages := [][]byte{must(sums[0].Begin(at[0])), must(sums[1].Begin(at[1]))}
	var partials []vecsum.Partial
	for k, s := range sums {
		if got := must(s.Finish(messages[1-k])); !slices.Equal(got, make([]proved.Reason, 3)) {
			t.Fatalf("aggregator %d: %q", k, got)
		}
		partials = append(partials, must(s.Close(make([]int64, 6))))
	}
	if sum, n, err := round.Combine(partials[0], partials[1]); err != nil || n != 3 || !slices.Equal(sum, want) {
		t.Errorf("%v of %d, want %v: %v", sum, n, want, err)
	}
}

func TestSumsWithProofsAreRefused(t *testing.T) {
	good := provedSum(t, 400, 6).Describe()
	for want, change := range map[string]func(*wire.Mechanism){
		"needs proofs":                  func(m *wire.Mechanism) { m.Sum.Proofs = "" },
		`noise by ""`:                   func(m *wire.Mechanism) { m.Sum.NoiseBy = "" },
		"noise of clients":              func(m *wire.Mechanism) { m.Sum.MinUsers = 300 },
		"with the noise of clients":     func(m *wire.Mechanism) { m.Sum.NoiseVariance = 5 },
		"eps0 = 1":                      func(m *wire.Mechanism) { m.Eps0 = 1 },
		"bits = 1":                      func(m *wire.Mechanism) { m.Bits = 1 },
		`clip mode "coordinate"`:        func(m *wire.Mechanism) { m.ClipMode = "coordinate" },
		"users = 0":                     func(m *wire.Mechanism) { m.Sum.Users = 0 },
		"norm bound":                    func(m *wire.Mechanism) { m.Sum.Bound = m.Sum.Steps },
		"noise variance 25":             func(m *wire.Mechanism) { m.Sum.Variance = 25 },
		"sigma = 0":                     func(m *wire.Mechanism) { m.Sum.Sigma = 0 },
		"radius":                        func(m *wire.Mechanism) { m.Clip = 0 },
		"counts of":                     func(m *wire.Mechanism) { m.Sum.Users, m.Sum.Bound = 1<<40, 1<<24 },
		"2^-102 of a vector":            func(m *wire.Mechanism) { m.Sum.Steps, m.Sum.Bound = 60_000, 60_250 },
		"noise by clients, with":        func(m *wire.Mechanism) { m.Name = "vector-sum-binomial" },
		"is not a vector sum but has":   func(m *wire.Mechanism) { m.Name = "privunit" },
		`"seed"`:                        func(m *wire.Mechanism) { m.Encoding = wire.EncodingSeed },
		"users = 2199023255552 must":    func(m *wire.Mechanism) { m.Sum.Users = 1 << 41 },
		"rounded inputs need, and 2^24": func(m *wire.Mechanism) { m.Sum.Bound = 1<<24 + 1 },
	} {
		m := good
		change(&m)
		if _, err := New(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	// Nor has a sum with clients' noise anything of this.
	m := sum(t, vecsum.Binomial).Describe()
	m.Sum.NoiseBy, m.Sum.Proofs = wire.NoiseByAggregators, wire.ProofsPine
	if _, err := New(m); err == nil || !strings.Contains(err.Error(), "noise by clients, with") {
		t.Errorf("clients' noise with proofs: %v", err)
	}
}

// A task cannot claim more for the aggregators' noise than it is worth, nor for more clients' noise
// than one aggregator's.
func TestSigmaOfAggregatorsIsChecked(t *testing.T) {
	m := provedSum(t, 400, 6).Describe()
	if err := CheckSigma(t.Context(), m, 1e-9, 1<<30); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(*wire.Mechanism){
		"claims":                 func(m *wire.Mechanism) { m.Sum.Sigma = math.Nextafter(m.Sum.Sigma, 9) },
		"sigma = 1.99":           func(m *wire.Mechanism) { m.Sum.Variance -= m.Sum.Variance / 1000 },
		"worth":                  func(m *wire.Mechanism) { m.Sum.Bound += 9 },
		"worth sigma = 1.9998":   func(m *wire.Mechanism) { m.Sum.Bound += 2 },
		"the task claims 2.8284": func(m *wire.Mechanism) { m.Sum.Sigma *= math.Sqrt2 },
	} {
		bad := m
		change(&bad)
		if err := CheckSigma(t.Context(), bad, 1e-9, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := CheckSigma(t.Context(), m, 1e-40, 1<<30); err == nil || !strings.Contains(err.Error(), "tails of") {
		t.Errorf("a delta below the tails: %v", err)
	}
	if err := CheckSigma(t.Context(), m, 1e-9, 0); err == nil {
		t.Error("no rounds")
	}
}

// The tail has what rounding adds at its own largest ε, and what a proof may show at MostEps.
func TestTailOfSumsWithProofs(t *testing.T) {
	for _, bound := range []int64{1<<15 + 2, 42_000} {
		p := vecsum.Aggregated{Users: 9, Dim: 6, Radius: 1, Steps: 1 << 15, Bound: bound, Variance: 1 << 31}
		m := must(NewAggregatedSum(p, 1, 9))
		shown := must(m.Proved([32]byte{})).ZeroKnowledge()
		for _, rounds := range []int64{1, 1000} {
			_, smooth, err := p.Sigma(rounds)
			if err != nil {
				t.Fatal(err)
			}
			want := smooth + float64(rounds)*math.Exp2(shown)*(1+math.Exp(dp.MaxEps0))
			if got, err := m.Tail(rounds); err != nil || !(got >= want) || !(got <= want*(1+1e-10)) {
				t.Errorf("bound %d, %d rounds: tail %v, want %v: %v", bound, rounds, got, want, err)
			}
		}
	}
}

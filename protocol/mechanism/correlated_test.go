package mechanism

import (
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
)

var threeWeights = toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}

func correlatedSum(t testing.TB, users int64, dim int) *AggregatedSum {
	t.Helper()
	p, err := vecsum.NewCorrelated(users, dim, 1.5, 2, threeWeights)
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

// Both ends build the same sum with correlated noise from a description.
func TestCorrelatedSumsAreDescribed(t *testing.T) {
	m := correlatedSum(t, 9, 6)
	w := m.Describe()
	again := must(New(w)).(*AggregatedSum)
	if again.Aggregated != m.Aggregated || again.Event() != m.Event() || !reflect.DeepEqual(again.Strategy, m.Strategy) || !reflect.DeepEqual(again.Describe(), w) {
		t.Errorf("%+v came back as %+v", m, again)
	}
	if s, ok := again.Correlation(); !ok || !slices.Equal(s.Weights, threeWeights.Weights) || s.Bits != 4 {
		t.Errorf("%+v, %v", s, ok)
	}
	if err := CheckSigma(t.Context(), w, 1e-9, 1000); err != nil {
		t.Error(err)
	}
	// Noise of so many steps hides a release of weight 16, in units of the clip norm.
	if sigma := math.Sqrt(float64(m.Variance)) / float64(16*m.Bound); !(m.Event().Sigma <= sigma && m.Event().Sigma >= 2) {
		t.Errorf("sigma = %v of noise that is worth %v", m.Event().Sigma, sigma)
	}
	if _, ok := provedSum(t, 9, 6).Correlation(); ok {
		t.Error("noise that is not correlated is said to be")
	}
}

// Weights for which no bound is proved, or for which the noise was not made, are refused.
func TestWrongWeightsAreRefused(t *testing.T) {
	good := correlatedSum(t, 400, 6).Describe()
	many := slices.Repeat([]int64{16}, wire.MaxWeights+1)
	for want, change := range map[string]func(*wire.Mechanism){
		"bits = 17 must":       func(m *wire.Mechanism) { m.WeightBits, m.Weights = 17, []int64{1 << 17} },
		"bits = 17 must ":      func(m *wire.Mechanism) { m.WeightBits = 1<<62 + 4 },
		"bits = -1":            func(m *wire.Mechanism) { m.WeightBits = -1 },
		"weight 2 is 10":       func(m *wire.Mechanism) { m.Weights = []int64{16, 9, 10} },
		"weight 1 is 17":       func(m *wire.Mechanism) { m.Weights = []int64{16, 17, 5} },
		"weight 2 is -1":       func(m *wire.Mechanism) { m.Weights = []int64{16, 9, -1} },
		"weight 0 is 15":       func(m *wire.Mechanism) { m.Weights = []int64{15, 9, 5} },
		"weight 0 is 16":       func(m *wire.Mechanism) { m.WeightBits = 5 },
		"0 weights of 4 bits":  func(m *wire.Mechanism) { m.Weights = nil },
		"1025 weights":         func(m *wire.Mechanism) { m.Weights = many },
		"counts with":          func(m *wire.Mechanism) { m.Sum.Ones = 1 },
		"counts of 1099511627": func(m *wire.Mechanism) { m.Sum.Users, m.Weights = 1<<40, many[:64] },
		"which aggregators add": func(m *wire.Mechanism) {
			c := sum(t, vecsum.Binomial).Describe()
			c.Weights, c.WeightBits = m.Weights, m.WeightBits
			*m = c
		},
		"which aggregators add ": func(m *wire.Mechanism) {
			*m = wire.Mechanism{Name: "privunit", Dim: 4, Clip: 1, ClipMode: "norm", Eps0: 1, WeightBits: 4}
		},
	} {
		m := good
		m.Weights = slices.Clone(good.Weights)
		change(&m)
		if _, err := New(m); err == nil || !strings.Contains(err.Error(), strings.TrimSpace(want)) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	for want, change := range map[string]func(*wire.Mechanism){
		"the task claims":      func(m *wire.Mechanism) { m.Sum.Sigma = math.Nextafter(m.Sum.Sigma, 9) },
		"worth sigma = 0.12":   func(m *wire.Mechanism) { m.Sum.Variance /= 256 }, // the weight of the own vectors forgotten
		"worth sigma = 1.0":    func(m *wire.Mechanism) { m.WeightBits, m.Weights = 5, []int64{32, 18, 10} },
		"worth sigma = 1.99":   func(m *wire.Mechanism) { m.Sum.Variance -= m.Sum.Variance / 1000 },
		"the task claims 2.4":  func(m *wire.Mechanism) { m.Sum.Sigma *= 1.2 },
		"worth sigma = 1.000 ": func(m *wire.Mechanism) { m.Sum.Steps, m.Sum.Bound = 2*m.Sum.Steps, 2*m.Sum.Bound },
	} {
		m := good
		change(&m)
		if err := CheckSigma(t.Context(), m, 1e-9, 10); err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(want, "0 ")) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	m := correlatedSum(t, 9, 6)
	for _, other := range []toeplitz.Strategy{{Bits: 4, Weights: []int64{16, 9}}, {Bits: 4, Weights: []int64{16, 10, 5}}, {Bits: 3, Weights: []int64{8, 8, 8, 6}}, {Bits: 4, Weights: []int64{16, 5, 9}}, {}} {
		if _, err := NewCorrelatedSum(m.Aggregated, other, 2, 9); err == nil {
			t.Errorf("noise of weights %v is taken for those of %v", threeWeights, other)
		}
	}
}

// What rounds are charged together is what the strategy says, with the noise of one release, rounded up; and
// whatever was charged before, all together no less than the whole.
func TestChargedRounds(t *testing.T) {
	m := correlatedSum(t, 9, 6)
	for _, every := range []int64{2, 3, 4, 7} {
		for to := int64(1); to < 20; to++ {
			var parts float64
			for from := int64(0); from < to; from++ {
				r, err := m.Charged(from, from+1, every)
				if err != nil || r.Class != dp.GaussianSum {
					t.Fatal(err)
				}
				parts += 1 / (r.Sigma * r.Sigma)
			}
			whole, err := m.Charged(0, to, every)
			if err != nil {
				t.Fatal(err)
			}
			want := threeWeights.Squared(to, every) / (m.Event().Sigma * m.Event().Sigma)
			if got := 1 / (whole.Sigma * whole.Sigma); !(got >= want && got <= want*(1+1e-12)) || !(parts >= want*(1-1e-15) && parts <= want*(1+1e-12)) {
				t.Errorf("%d rounds, every %d: charged %v together and %v one by one, want %v", to, every, got, parts, want)
			}
		}
	}
	for _, c := range [][3]int64{{0, 0, 3}, {5, 5, 3}, {6, 5, 3}, {-1, 5, 3}, {0, 5, 0}} {
		if r, err := m.Charged(c[0], c[1], c[2]); err == nil {
			t.Errorf("rounds %v are charged as %+v", c, r)
		}
	}
}

// Sums are taken up to what clients of all rounds in the band can add, and not beyond.
func TestCorrelatedSumsAreInRange(t *testing.T) {
	m := correlatedSum(t, 9, 2)
	r := m.NewReport()
	m.Randomize(rng.Replay(1), []float32{1.5, 0}, r)
	most := int64(r.Value[0]) * 9 * (16 + 9 + 5)
	if err := m.CheckSum([]int64{most, -most}, 3); err != nil {
		t.Errorf("a sum of 9 clients a round: %v", err)
	}
	if err := m.CheckSum([]int64{4 * most, 0}, 3); err == nil {
		t.Error("a sum of more")
	}
}

package mechanism

import (
	"errors"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func sum(t testing.TB, kind vecsum.NoiseKind) *VectorSum {
	t.Helper()
	p, err := vecsum.Tight(vecsum.Target{Sigma: .05, Delta: 1e-5, Users: 400, MinUsers: 300, Dim: 6, Radius: 1.5, Rounds: 10, Kind: kind})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(t.Context(), 1e-5, 10)
	if err != nil {
		t.Fatal(err)
	}
	m, err := NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Both ends build the same from a description.
func TestDescriptionsBuild(t *testing.T) {
	for _, kind := range []vecsum.NoiseKind{vecsum.Binomial, vecsum.Skellam} {
		m := sum(t, kind)
		w := m.Describe()
		again, err := New(w)
		if err != nil {
			t.Fatal(err)
		}
		v := again.(*VectorSum)
		if !reflect.DeepEqual(v.Params, m.Params) || v.Event() != m.Event() || !reflect.DeepEqual(v.Describe(), w) {
			t.Errorf("%s: %+v came back as %+v", kind, m.Params, v.Params)
		}
		x := []float32{.1, .2, -.3, .4, 0, .5}
		a, b := m.NewReport(), again.NewReport()
		m.Randomize(rng.Replay(1), x, a)
		again.Randomize(rng.Replay(1), x, b)
		if !slices.Equal(a.Value, b.Value) {
			t.Errorf("%s: %v and %v", kind, a.Value, b.Value)
		}
	}
	for _, kind := range randomizer.Kinds() {
		name := kind.Name
		c := randomizer.Config{Dim: 12, Radius: 1, Eps0: 2}
		if kind.Seeds {
			c.Encoding = randomizer.Seed
			w, err := Describe(name, c, "norm")
			if err != nil || len(w.Edges) == 0 || w.Encoding != wire.EncodingSeed {
				t.Fatalf("%s: %+v, %v", name, w, err)
			}
			m, err := New(w)
			if err != nil || m.Event() != must(randomizer.New(name, c)).Event() {
				t.Fatal(name, err)
			}
			testSeeds(t, m)
			c.Encoding = randomizer.Values
		}
		w, err := Describe(name, c, "norm")
		if err != nil || !kind.Steps && !reflect.DeepEqual(w, wire.Mechanism{Name: name, Dim: 12, Clip: 1, ClipMode: "norm", Eps0: 2}) {
			t.Fatalf("%s: %+v, %v", name, w, err)
		}
		m, err := New(w)
		if err != nil {
			t.Fatal(name, err)
		}
		if e := m.Event(); m.Facts().Dim != 12 || e.Eps0 < 2 || e.Eps0 > 2.01 {
			t.Errorf("%s: dim %d promises %+v", name, m.Facts().Dim, e)
		}
		if p, err := Norm(wire.Mechanism{Name: name}); err != nil || p < 1 {
			t.Errorf("%s: norm %v, %v", name, p, err)
		}
	}
	if p, err := Norm(sum(t, vecsum.Binomial).Describe()); err != nil || p != 2 {
		t.Errorf("norm of a vector sum %v, %v", p, err)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// testSeeds sends a seed through the contents of a report, whose size the randomizer tells.
func testSeeds(t *testing.T, m randomizer.Randomizer) {
	t.Helper()
	announcement := [32]byte{4}
	of := randomizer.ForRound(m, announcement)
	r := of.NewReport()
	of.Randomize(rng.Replay(1), make([]float32, 12), r)
	part, share, err := Contents(rng.Replay(2), m, announcement, r)
	size, other, sizeErr := ContentSizes(m)
	if err != nil || sizeErr != nil || len(part) != 16 || size != 16 || share != nil || other != 0 {
		t.Errorf("%s: %d bytes of %d, %d of %d: %v, %v", m.Facts().Name, len(part), size, len(share), other, err, sizeErr)
	}
}

// A description says the edges and the height, and they agree with ε₀.
func TestStepsAreChecked(t *testing.T) {
	good := must(Describe(randomizer.StepUnit, randomizer.Config{Dim: 30, Radius: 1, Eps0: 2, Encoding: randomizer.Seed}, "norm"))
	for want, change := range map[string]func(*wire.Mechanism){
		"0 edges, want 3":          func(m *wire.Mechanism) { m.Edges = nil },
		"height":                   func(m *wire.Mechanism) { m.Height *= 1.001 },
		"steps of height":          func(m *wire.Mechanism) { m.Edges = m.Edges[:2] },
		"rise":                     func(m *wire.Mechanism) { m.Edges = []float64{1, 1, 2} },
		"3 edges, want 0":          func(m *wire.Mechanism) { m.Name = "r2"; m.Encoding = "" },
		`encoding "other"`:         func(m *wire.Mechanism) { m.Encoding = "other" },
		"must be at most 1, not 3": func(m *wire.Mechanism) { m.Name = "privunit" },
	} {
		m := good
		change(&m)
		if _, err := New(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

func TestDescriptionsAreRefused(t *testing.T) {
	good := sum(t, vecsum.Binomial).Describe()
	for want, change := range map[string]func(*wire.Mechanism){
		`encoding "seed"`:           func(m *wire.Mechanism) { m.Encoding = wire.EncodingSeed },
		"1 edges":                   func(m *wire.Mechanism) { m.Edges, m.Height = []float64{1}, 2 },
		"dim = 0":                   func(m *wire.Mechanism) { m.Dim = 0 },
		"dim = 1099511627776":       func(m *wire.Mechanism) { m.Dim = 1 << 40 },
		"bits = 9 must":             func(m *wire.Mechanism) { m.Bits = 9 },
		"is not a vector sum":       func(m *wire.Mechanism) { m.Name = "privunit" },
		`noise "skellam"`:           func(m *wire.Mechanism) { m.Sum.Noise = "skellam" },
		"with eps0 = 1":             func(m *wire.Mechanism) { m.Eps0 = 1 },
		"vecsum":                    func(m *wire.Mechanism) { m.Sum.Grid = 0 },
		"exceed a report's 32 bits": func(m *wire.Mechanism) { m.Sum.NoiseBits = 1 << 31 },
		`must be one of`:            func(m *wire.Mechanism) { *m = wire.Mechanism{Name: "other", Dim: 3, Clip: 1, Eps0: 1} },
	} {
		m := good
		change(&m)
		if _, err := New(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// A task cannot claim more for its noise than it is worth.
func TestSigmaIsChecked(t *testing.T) {
	m := sum(t, vecsum.Binomial).Describe()
	if err := CheckSigma(t.Context(), m, 1e-5, 10); err != nil {
		t.Error(err)
	}
	m.Sum.Sigma *= 1.02
	if err := CheckSigma(t.Context(), m, 1e-5, 10); err == nil || !strings.Contains(err.Error(), "claims") {
		t.Errorf("claimed too much: %v", err)
	}
	m.Sum.Sigma /= 1.02
	m.Sum.NoiseBits = m.Sum.NoiseBits * 9 / 10
	if err := CheckSigma(t.Context(), m, 1e-5, 10); err == nil {
		t.Error("less noise than claimed")
	}
	// Many clients' little noise adds up, but what is cut off each is not counted.
	m = sum(t, vecsum.Skellam).Describe()
	if err := CheckSigma(t.Context(), m, 1e-5, 10); err != nil {
		t.Error(err)
	}
	m.Sum.NoiseVariance, m.Sum.Sigma = .01, m.Sum.Sigma*math.Sqrt(.01/m.Sum.NoiseVariance)/2
	if err := CheckSigma(t.Context(), m, 1e-5, 10); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("noise that is cut where it is likely: %v", err)
	}
	if err := CheckSigma(t.Context(), wire.Mechanism{Name: "privunit", Dim: 3, Clip: 1, Eps0: 1}, 1e-5, 10); err != nil {
		t.Error(err)
	}
	if e := sum(t, vecsum.Skellam).Event(); e.Class != dp.Gaussian {
		t.Errorf("event %+v", e)
	}
}

// An input that is not finite counts as zero; one of the wrong length is a bug, with noise and
// without.
func TestInputsOfTheWrongLengthPanic(t *testing.T) {
	m := sum(t, vecsum.Binomial)
	for name, of := range map[string]randomizer.Mechanism{"with noise": m, "rounding": Rounding{m}} {
		r := of.NewReport()
		bad := make([]float32, m.Dim)
		bad[0] = float32(math.NaN())
		if of.Randomize(rng.Replay(1), bad, r); of.Check(r) != nil {
			t.Errorf("%s: a report of NaN is refused", name)
		}
		for _, length := range []int{0, m.Dim - 1, m.Dim + 1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: an input of %d coordinates was taken for %d", name, length, m.Dim)
					}
				}()
				of.Randomize(rng.Replay(1), make([]float32, length), r)
			}()
		}
	}
}

// Both kinds of sums count ones, and are described with them.
func TestOnesAreDescribed(t *testing.T) {
	const n, d, m = 40, 12, 3
	p, err := vecsum.Tight(vecsum.Target{Sigma: .05, Delta: 1e-5, Users: n, Dim: d, Ones: m, Rounds: 10})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(t.Context(), 1e-5, 10)
	if err != nil {
		t.Fatal(err)
	}
	clients, err := NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	a, err := vecsum.NewAggregatedOnes(n, d, m, 2)
	if err != nil {
		t.Fatal(err)
	}
	if sigma, _, err = a.Sigma(10); err != nil {
		t.Fatal(err)
	}
	aggregators, err := NewAggregatedSum(a, sigma, n)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range []wire.Mechanism{clients.Describe(), aggregators.Describe()} {
		if err := CheckSigma(t.Context(), w, 1e-5, 10); err != nil || w.Sum.Ones != m || w.Clip != math.Sqrt(m) {
			t.Errorf("%+v: %v", w, err)
		}
		built, err := New(w)
		if err != nil {
			t.Fatal(err)
		}
		if d, ok := built.(interface{ Describe() wire.Mechanism }); !ok || !reflect.DeepEqual(d.Describe(), w) {
			t.Errorf("%+v came back as %+v", w, d.Describe())
		}
		// Inputs that are not zeros and ones are sent as zeros, and reports are valid all the same.
		exact, ok := built.(randomizer.Mechanism), false
		if v, is := built.(*VectorSum); is {
			exact = Rounding{v}
		}
		r := exact.NewReport()
		for _, x := range [][]float32{{11: .5}, {11: float32(math.NaN())}, {1, 1, 1, 1, 11: 0}, {11: 1}} {
			exact.Randomize(rng.Replay(1), x, r)
			if ok = r.Value[11] != 0; exact.Check(r) != nil || ok != (x[11] == 1) {
				t.Errorf("%v is sent as %v: %v", x, r.Value, exact.Check(r))
			}
			for j, c := range r.Value[:11] {
				if c != 0 {
					t.Errorf("%v is sent with %d at %d", x, c, j)
				}
			}
		}
		for want, change := range map[string]func(*wire.Mechanism){
			"ones = 13":              func(m *wire.Mechanism) { m.Sum.Ones = 13 },
			"ones = -1":              func(m *wire.Mechanism) { m.Sum.Ones = -1 },
			"radius":                 func(m *wire.Mechanism) { m.Clip = 1 },
			"is not a vector sum bu": func(m *wire.Mechanism) { m.Name = "privunit" },
		} {
			bad := w
			change(&bad)
			if _, err := New(bad); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q", err, want)
			}
		}
		// More ones need more noise. So do vectors of the ball where a one is not the whole grid.
		for ones := int64(0); ones <= d; ones++ {
			bad := w
			if bad.Sum.Ones, bad.Clip = ones, math.Sqrt(float64(ones)); ones == 0 {
				bad.Clip = math.Sqrt(m)
				if bad.Sum.NoiseBy == "" {
					bad.Sum.Norm = vecsum.Norm(d, bad.Sum.Grid, vecsum.NormBeta)
				} else {
					bad.Sum.Bound += 2 // √d/2
				}
			} else if bad.Sum.NoiseBy != "" {
				bad.Sum.Bound *= 4
			}
			err := CheckSigma(t.Context(), bad, 1e-5, 10)
			if good := ones > 0 && ones <= m || ones == 0 && bad.Sum.NoiseBy == ""; good != (err == nil) {
				t.Errorf("%d ones, noise for %d: %v", ones, m, err)
			}
			if ones == 0 && bad.Sum.NoiseBy != "" && (err == nil || !strings.Contains(err.Error(), "the task claims")) {
				t.Errorf("vectors with noise for counts: %v", err)
			}
		}
	}
}

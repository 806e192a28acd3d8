package vecsum

import (
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

func someStrategy(t testing.TB) toeplitz.Strategy {
	t.Helper()
	s, err := toeplitz.New(toeplitz.Band, 40, 5)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// What is asked for is what honest clients have together, and little more.
func TestNoiseOfClientsIsWorthWhatIsAsked(t *testing.T) {
	s := someStrategy(t)
	for _, c := range []struct {
		users, min int64
		honest     float64
		dim        int
		sigma      float64
	}{
		{100, 80, 1, 10, 1}, {100, 80, .5, 10, 30}, {1e6, 4e4, .9, 1930, 61.5}, {2, 1, 1, 1, .01}, {1 << 30, 1 << 20, .25, 50, 1000}, {5000, 3, 1, 1 << 16, 4},
	} {
		p, err := NewCorrelatedByClients(c.users, c.min, c.honest, c.dim, 2, c.sigma, s)
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		sigma, tail, err := p.Sigma(1000)
		if err != nil {
			t.Fatal(err)
		}
		h := math.Floor(c.honest * float64(c.min))
		if exact := math.Sqrt(h*float64(p.Variance)-spread) / (float64(p.Bound) * math.Ldexp(1, s.Bits)); !(sigma <= exact) || sigma < exact*(1-1e-12) {
			t.Errorf("%+v: sigma %v, the definition has %v", c, sigma, exact)
		}
		if !(sigma >= c.sigma) || p.Variance > leastEach && sigma > c.sigma*(1+2/math.Sqrt(float64(p.Variance))) {
			t.Errorf("%+v: sigma %v of %d clients with variance %d", c, sigma, int64(h), p.Variance)
		}
		if !(tail > 0 && tail < 1e-20) {
			t.Errorf("%+v: tail %v", c, tail)
		}
		if one := smoothing(spread, c.dim) * 1000 * math.Exp(MostEps); !(tail >= one*(1+3*(h-1))) {
			t.Errorf("%+v: tail %v is less than the formula has", c, tail)
		}
		// Not more than a step of the grid is lost where there is room.
		if p.Steps < leastSteps {
			t.Errorf("%+v: %d steps", c, p.Steps)
		}
	}
}

// NoiseBound is the least power of two that is at least the length of section 12, and no drawn noise is longer.
func TestNoiseBound(t *testing.T) {
	if b := (Aggregated{Dim: 5, Variance: 100}).NoiseBound(); b != 0 {
		t.Errorf("noise of aggregators has bound %d", b)
	}
	for _, dim := range []int{1, 2, 3, 10, 100, 1930, 1 << 20} {
		for _, variance := range []uint64{50, 51, 1000, 1 << 20, 1<<30 + 7, 1 << 36} {
			p := Aggregated{Dim: dim, Variance: variance, MinUsers: 1}
			bound := p.NoiseBound()
			length := new(big.Float).SetPrec(200).SetInt64(int64(dim) * farNoise)
			length.Sqrt(length).Mul(length, big.NewFloat(2))
			length.Add(length, big.NewFloat(float64(dim)+2*farNoise))
			length.Mul(length, new(big.Float).SetUint64(variance))
			length.Sqrt(length)
			if b := big.NewFloat(float64(bound)); bound&(bound-1) != 0 || b.Cmp(length) < 0 {
				t.Errorf("dim %d, variance %d: %d for length %v", dim, variance, bound, length)
			}
			if half, _ := length.Float64(); float64(bound/2) > half*1.03 { // the square root was rounded up
				t.Errorf("dim %d, variance %d: %d for length %v is too much", dim, variance, bound, length)
			}
		}
	}
	p := Aggregated{Dim: 500, Variance: 1 << 20, MinUsers: 1}
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: p.Variance, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	x := make([]int64, p.Dim)
	for range 200 {
		g.Fill(rng.Secure(), x)
		var square float64
		for _, v := range x {
			square += float64(v) * float64(v)
		}
		if !(math.Sqrt(square) <= float64(p.NoiseBound())) {
			t.Errorf("noise of length %v, bound %d", math.Sqrt(square), p.NoiseBound())
		}
	}
}

// A simulated round has the noise of all clients who came, drawn in parts where one draw cannot be as large.
func TestNoiseOfClientsInSimulation(t *testing.T) {
	p, err := NewCorrelatedByClients(300, 100, .8, 4000, 1, 3, someStrategy(t))
	if err != nil {
		t.Fatal(err)
	}
	large := p
	large.Variance = 1 << 48 // 80 honest clients have less than 2^54 + 2^53
	for _, c := range []struct {
		p       Aggregated
		clients int64
		parts   int
	}{{p, 1, 1}, {p, 100, 1}, {p, 300, 1}, {large, 64, 1}, {large, 300, 5}} {
		parts := c.p.together(c.clients)
		var all uint64
		for _, v := range parts {
			all += v
			if v < 1 || v > mostDeviation*mostDeviation {
				t.Errorf("a draw of parameter %d", v)
			}
		}
		if len(parts) != c.parts || all != c.p.Variance*uint64(c.clients) {
			t.Errorf("%d clients: %v, together %d", c.clients, parts, all)
		}
	}
	for _, clients := range []int64{1, 100, 300} {
		sum := make([]int64, p.Dim)
		if err := p.AddNoise(rng.Replay(7), sum, clients); err != nil {
			t.Fatal(err)
		}
		var square float64
		for _, v := range sum {
			square += float64(v) * float64(v)
		}
		want := float64(clients) * float64(p.Variance)
		if got := square / float64(p.Dim); math.Abs(got/want-1) > .11 { // 5 deviations of √(2/4000)
			t.Errorf("%d clients: variance %v, want %v", clients, got, want)
		}
		if err := p.CheckSum(sum, clients); err != nil {
			t.Error(err)
		}
	}
}

func TestNoiseOfClientsRefuses(t *testing.T) {
	s := someStrategy(t)
	good, err := NewCorrelatedByClients(100, 50, .9, 10, 1, 2, s)
	if err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Aggregated){
		"n-min = 101 must lie":            func(p *Aggregated) { p.MinUsers = 101 },
		"n-min = -1 must lie":             func(p *Aggregated) { p.MinUsers = -1 },
		"n-min = 0 must lie":              func(p *Aggregated) { p.MinUsers = 0 },
		"honest fraction = 0 must":        func(p *Aggregated) { p.Honest = 0 },
		"honest fraction = 1.1 must":      func(p *Aggregated) { p.Honest = 1.1 },
		"honest fraction = NaN must":      func(p *Aggregated) { p.Honest = math.NaN() },
		"honest fraction 0.01 of 50":      func(p *Aggregated) { p.Honest = .01 },
		"there are no weights":            func(p *Aggregated) { p.Bits, p.Weight = 0, 0 },
		"must be at least 50":             func(p *Aggregated) { p.Variance = 49 },
		"at most 2^54 for 45 clients":     func(p *Aggregated) { p.Variance = 1 << 50 },
		"may be longer than 2^30":         func(p *Aggregated) { p.Variance, p.Dim, p.Bound, p.Users = 1<<48, 1<<20, 1<<20, 50 },
		"noise variance 25 must be above": func(p *Aggregated) { p.Variance = 25 },
		"counts have no weights":          func(p *Aggregated) { p.Ones, p.Radius, p.Steps, p.Bound = 1, 1, 10, 16 },
		"exceed 2^61":                     func(p *Aggregated) { p.Users, p.Weight = 1<<40, 1<<30 },
	} {
		bad := good
		change(&bad)
		if _, _, err := bad.Sigma(1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if bad.AddNoise(rng.Replay(1), make([]int64, bad.Dim), 50) == nil {
			t.Errorf("%s: noise is drawn", want)
		}
	}
	for want, make := range map[string]func() (Aggregated, error){
		"n-min = 0 must lie": func() (Aggregated, error) { return NewCorrelatedByClients(100, 0, 1, 10, 1, 2, s) },
		"honest fraction = 2 must": func() (Aggregated, error) {
			return NewCorrelatedByClients(100, 50, 2, 10, 1, 2, s)
		},
		"sigma":        func() (Aggregated, error) { return NewCorrelatedByClients(100, 50, 1, 10, 1, math.NaN(), s) },
		"dim = 0 must": func() (Aggregated, error) { return NewCorrelatedByClients(100, 50, 1, 0, 1, 1, s) },
		"more noise than clients can draw": func() (Aggregated, error) {
			return NewCorrelatedByClients(100, 50, 1, 3, 1, 1e6, s)
		},
		"weight": func() (Aggregated, error) {
			return NewCorrelatedByClients(100, 50, 1, 3, 1, 1, toeplitz.Strategy{Bits: 1, Weights: []int64{1}})
		},
	} {
		if _, err := make(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

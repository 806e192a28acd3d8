package vecsum

import (
	"errors"
	"math"
	"slices"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// falseAlarm is the probability with which one statistical check fails although
// the code is right; there are fewer than 1000 such checks in this package and
// their seeds are fixed.
const falseAlarm = 1e-9

// source gives each test its own stream.
func source(path ...uint64) rng.Source { return rng.Replay(20261121, path...) }

// small is a mechanism for tests: few bits, both halves of the norm check at work.
func small() Params {
	return Params{Users: 40, Dim: 3, Radius: 2, Grid: 10, Norm: Norm(3, 10, .1), Noise: Noise{Kind: Binomial, Bits: 9}}
}

func mustEncoder(t testing.TB, p Params) *Encoder {
	t.Helper()
	e, err := NewEncoder(p)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// chiSquare checks counts of n against probabilities that sum to 1.
func chiSquare(t *testing.T, name string, counts []int64, probs []float64, n int64) {
	t.Helper()
	var stat, pooledP float64
	var pooled int64
	cells := 0
	for i, c := range counts {
		e := probs[i] * float64(n)
		if e < 20 {
			pooled += c
			pooledP += probs[i]
			continue
		}
		stat += (float64(c) - e) * (float64(c) - e) / e
		cells++
	}
	if e := pooledP * float64(n); e >= 5 {
		stat += (float64(pooled) - e) * (float64(pooled) - e) / e
		cells++
	} else if float64(pooled) > 60 {
		t.Errorf("%s: %d values where %v are expected", name, pooled, e)
	}
	if p := mathext.GammaIncRegComp(float64(cells-1)/2, stat/2); p < falseAlarm {
		t.Errorf("%s: chi-square %.1f with %d degrees of freedom, p = %.2g", name, stat, cells-1, p)
	}
}

// Inputs on the grid are not rounded: counts minus them are the noise, whose sum
// over clients is Bin(nb, p) exactly, by the clients' path and by the
// simulation's. Oracle 1.
func TestCountLaw(t *testing.T) {
	const clients = 5
	for _, noise := range []Noise{{Kind: Binomial, Bits: 9}, {Kind: Binomial, Bits: 100}, {Kind: Binomial, Bits: 40, P: .1},
		{Kind: Skellam, Variance: 1.5}, {Kind: DiscreteGaussian, Variance: 2.5}} {
		p := small()
		p.Users, p.MinUsers, p.Noise = clients, clients, noise
		var probs []float64
		offset := int64(0)
		if noise.Kind == Binomial {
			probs = binomialPMF(noise.Bits*clients, noise.p())
		} else {
			make := skellamHalf
			if noise.Kind == DiscreteGaussian {
				make = gaussianHalf // the sum's law but for 4e-11
			}
			h, err := make(noise.variance()*clients, 1e-30, 1)
			if err != nil {
				t.Fatal(err)
			}
			offset = 60
			for k := -offset; k <= offset; k++ {
				probs = append(probs, math.Exp(h.log(max(k, -k))))
			}
		}
		x := []float32{0, .4 * 2, -.8} // on the grid: steps of .4
		exact := []int64{5, 7, 3}
		for path := range 2 {
			if path == 1 && noise.Kind == DiscreteGaussian {
				continue
			}
			reps := int64(20_000)
			if path == 1 {
				reps = longtest.Pick[int64](1500, 3000) // each makes a table
			}
			e := mustEncoder(t, p)
			src := source(1, uint64(path), uint64(noise.Bits))
			hist := [3][]int64{}
			for j := range hist {
				hist[j] = make([]int64, len(probs))
			}
			row, rounded, sums := make([]int64, 3), make([]int32, 3), make([]int64, 3)
			for range reps {
				clear(sums)
				if path == 0 {
					for range clients {
						if err := e.Encode(src, x, row); err != nil {
							t.Fatal(err)
						}
						for j, c := range row {
							sums[j] += c
						}
					}
				} else {
					for range clients {
						if err := e.Round(src, x, rounded); err != nil {
							t.Fatal(err)
						}
						for j, c := range rounded {
							sums[j] += int64(c)
						}
					}
					if err := p.AddNoise(src, sums, clients); err != nil {
						t.Fatal(err)
					}
				}
				for j := range sums {
					hist[j][sums[j]-clients*exact[j]+offset]++
				}
			}
			for j := range hist {
				chiSquare(t, noiseName(noise), hist[j], probs, reps)
			}
		}
	}
}

func noiseName(n Noise) string {
	if n.P == .1 {
		return "skewed"
	}
	return string(n.Kind)
}

// Mean and variance of the estimate of the sum, for corners, the middle, half
// steps and a third of a step, which rounding down would miss. Oracles 2 and 3.
func TestUnbiasedWithVariance(t *testing.T) {
	const clients = 4
	reps := 40_000
	for _, split := range []bool{false, true} {
		p := small()
		p.Users, p.Split = clients, split
		p.Norm = Norm(p.Dim, p.Grid, 0) // without conditioning there is no bias at all
		e := mustEncoder(t, p)
		step := 2 * p.Radius / float64(p.Grid)
		inputs := [][]float32{{2, 0, 0}, {0, -2, 0}, {.2, .2, -.2}, {float32(.3 * step), float32(-.3 * step), 1}}
		want, rounding := make([]float64, 3), make([]float64, 3)
		for _, x := range inputs {
			for j, v := range x {
				want[j] += float64(v)
				f := math.Abs(float64(v))/step - math.Floor(math.Abs(float64(v))/step)
				rounding[j] += f * (1 - f)
			}
		}
		src := source(2, uint64(len(inputs)))
		m1, m2 := make([]float64, 3), make([]float64, 3)
		row, counts, sum := make([]int64, p.Streams()), make([]int64, p.Streams()), make([]float64, 3)
		for range reps {
			clear(counts)
			for _, x := range inputs {
				if err := e.Encode(src, x, row); err != nil {
					t.Fatal(err)
				}
				for j, c := range row {
					counts[j] += c
				}
			}
			if err := p.Estimate(sum, counts, clients); err != nil {
				t.Fatal(err)
			}
			for j, s := range sum {
				m1[j] += s - want[j]
				m2[j] += (s - want[j]) * (s - want[j])
			}
		}
		noise := p.Noise.variance()
		if split {
			noise *= 2
		}
		R := float64(reps)
		for j := range 3 {
			variance := step * step * (rounding[j] + clients*noise)
			if z := m1[j] / math.Sqrt(R*variance); math.Abs(z) > 6.2 { // 6e-10 two-sided
				t.Errorf("split %v: coordinate %d is off by %.1f standard errors", split, j, z)
			}
			if r := m2[j] / R / variance; math.Abs(r-1) > 6.2*math.Sqrt(2/R) {
				t.Errorf("split %v: coordinate %d has %.4f of its variance", split, j, r)
			}
			if bound := p.Variance(clients); variance > bound*(1+1e-12) {
				t.Errorf("split %v: variance %v above the stated %v", split, variance, bound)
			}
		}
	}
}

// What privacy rests on: no rounded vector ever exceeds the norm, whatever the
// input, and the check is at work (unconditional rounding would exceed it).
func TestNormHoldsAfterRounding(t *testing.T) {
	src := source(3)
	for _, split := range []bool{false, true} {
		for _, grid := range []int64{2, 3, 7, 20} {
			p := Params{Users: 2, Dim: 9, Radius: .7, Grid: grid, Noise: Noise{Kind: Binomial, Bits: 1}, Split: split}
			p.Norm = Norm(p.Dim, grid, .5)
			loose := p
			loose.Norm = Norm(p.Dim, grid, 0)
			e, free := mustEncoder(t, p), mustEncoder(t, loose)
			counts := make([]int32, p.Streams())
			exceeded := 0
			for i := range 4000 {
				x := make([]float32, 9)
				for j := range x {
					switch i % 4 {
					case 0:
						x[j] = float32(int64(src.Uint64())) / (1 << 63)
					case 1:
						x[j] = .7 / 3
					case 2:
						x[j] = 1e30 * float32(j-4)
					default:
						x[j] = math.SmallestNonzeroFloat32
					}
				}
				size := func() (n int64) {
					for j, count := range counts {
						k := int64(count)
						if k < 0 || k > p.Grid {
							t.Fatalf("rounded to %d of %d", k, p.Grid)
						}
						c := 2*k - grid
						if split {
							c = 2 * k
							if j >= 9 && k != 0 && counts[j-9] != 0 {
								t.Fatal("both signs at once")
							}
						}
						n += c * c
					}
					return n
				}
				if err := free.Round(src, x, counts); err != nil {
					t.Fatal(err)
				}
				if size() > p.Norm {
					exceeded++
				}
				if err := e.Round(src, x, counts); err != nil {
					t.Fatal(err)
				}
				if n := size(); n > p.Norm {
					t.Fatalf("grid %d: norm %d above %d", grid, n, p.Norm)
				}
				// The last resort passes as well.
				for j, v := range x {
					inwards(&p, j, float64(v)*float64(grid)/2/math.Max(p.Radius, norm2(x)), counts)
				}
				if n := size(); n > p.Norm {
					t.Fatalf("grid %d: rounded inwards to norm %d above %d", grid, n, p.Norm)
				}
			}
			if p.Norm < loose.Norm && exceeded == 0 && grid > 2 {
				t.Errorf("grid %d, split %v: free rounding never exceeded %d: the check is not tested", grid, split, p.Norm)
			}
		}
	}
}

// The rounding in fixed point against its definition: y rises if its fraction is above r/2^32,
// cut to 32 bits; and Encode rounds as Round does.
func TestRoundAt(t *testing.T) {
	src := source(4)
	for i := range 200_000 {
		y := math.Ldexp(float64(src.Uint64()>>11), -29-int(src.Uint64()%30)) // below 2^24
		r := src.Uint64()
		switch i % 4 {
		case 0: // the random bits beside the fraction
			r = uint64((y-math.Floor(y))*(1<<32)) + src.Uint64()%3 - 1
		case 1:
			y = math.Floor(y)
		case 2:
			y = float64(maxGrid)
		}
		want := int64(y)
		if uint64((y-math.Floor(y))*(1<<32)) > r&math.MaxUint32 {
			want++
		}
		if got := roundAt(y, r); got != want {
			t.Fatalf("%v with %x: %d, want %d", y, r, got, want)
		}
	}
	for _, split := range []bool{false, true} {
		p := Params{Users: 2, Dim: 9, Radius: .7, Grid: 1000, Norm: 1 << 40, Noise: Noise{Kind: Binomial, Bits: 1}, Split: split}
		e := mustEncoder(t, p)
		x, wide, narrow := make([]float32, 9), make([]int64, p.Streams()), make([]int32, p.Streams())
		for range 1000 {
			for j := range x {
				x[j] = float32(int64(src.Uint64())) / (1 << 62)
			}
			key := src.Uint64()
			if err := errors.Join(round(e, source(5, key), x, wide), e.Round(source(5, key), x, narrow)); err != nil {
				t.Fatal(err)
			}
			for j := range wide {
				if wide[j] != int64(narrow[j]) {
					t.Fatalf("split %v: %v and %v", split, wide, narrow)
				}
			}
		}
	}
}

func norm2(x []float32) float64 {
	var s float64
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return math.Sqrt(s)
}

// Norm's second form is exceeded with probability at most beta: exact, over all
// ways to round.
func TestNormProbability(t *testing.T) {
	for _, x := range [][]float64{{.5, .5, .5, .5, .5, .5, .5, .5, .5, .5}, {3.3, .4, -.4, .5, .5, .5, -2.5, .1}, {4.9, .3}, {.2, .2, .2, -.2, 3.9, 2.5}} {
		d := len(x)
		var square float64
		for _, v := range x {
			square += v * v
		}
		grid := 2 * math.Ceil(math.Sqrt(square))
		for _, beta := range []float64{.5, .1, .01, 1e-3} {
			bound := Norm(d, int64(grid), beta)
			var exceed float64
			for up := range 1 << d {
				p, n := 1., 0.
				for j, v := range x {
					f := v - math.Floor(v)
					k := math.Floor(v)
					if up>>j&1 == 1 {
						p *= f
						k++
					} else {
						p *= 1 - f
					}
					n += k * k
				}
				if 4*n > float64(bound) {
					exceed += p
				}
			}
			if exceed > beta {
				t.Errorf("%v, beta %v: exceeded with probability %v", x, beta, exceed)
			}
		}
	}
}

// Scaling changes nothing, permuting coordinates permutes. Oracle 12 (clients
// commute because integers do: TestTransportsAgree shuffles them).
func TestMetamorphic(t *testing.T) {
	p := small()
	e := mustEncoder(t, p)
	x := []float32{.7, -.25, 1.1}
	a, b := make([]int64, 3), make([]int64, 3)
	for i := range uint64(50) {
		if err := e.Encode(source(4, i), x, a); err != nil {
			t.Fatal(err)
		}
		scaled := p
		scaled.Radius *= 8
		if err := mustEncoder(t, scaled).Encode(source(4, i), []float32{8 * .7, 8 * -.25, 8 * 1.1}, b); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(a, b) {
			t.Fatalf("scaled by 8: %v, not %v", b, a)
		}
	}
	// The mean of many encodings of a permuted input is the permuted mean.
	sums := [2][3]int64{}
	src := source(5)
	const reps = 20_000
	for range reps {
		for i, v := range [2][]float32{{.7, -.25, 1.1}, {1.1, .7, -.25}} {
			if err := e.Encode(src, v, a); err != nil {
				t.Fatal(err)
			}
			for j, c := range a {
				sums[i][j] += c
			}
		}
	}
	for j := range 3 {
		sd := math.Sqrt(2 * reps * (p.Noise.variance() + .25))
		if d := float64(sums[0][j] - sums[1][(j+1)%3]); math.Abs(d) > 6.2*sd {
			t.Errorf("coordinate %d: permuted sums differ by %v, sd %v", j, d, sd)
		}
	}
}

func TestEncoderRefuses(t *testing.T) {
	p := small()
	e := mustEncoder(t, p)
	counts := make([]int64, 3)
	for _, x := range [][]float32{nil, {1}, {1, 2, 3, 4}, {0, float32(math.NaN()), 0}, {float32(math.Inf(1)), 0, 0}, {0, 0, float32(math.Inf(-1))}} {
		counts[0] = 77
		if err := e.Encode(source(6), x, counts); !errors.Is(err, ErrInput) {
			t.Errorf("%v: %v", x, err)
		}
		if counts[0] != 0 {
			t.Errorf("%v: counts left as %v", x, counts)
		}
	}
	if err := e.Encode(source(6), []float32{1, 2, 3}, counts[:2]); err == nil {
		t.Error("two counts for three streams were accepted")
	}
	if err := e.Encode(source(6), make([]float32, 3), counts); err != nil {
		t.Error(err)
	}
	if err := p.AddNoise(source(7), counts, p.Users+1); err == nil {
		t.Error("more than Users clients were accepted")
	}
	if err := p.AddNoise(source(7), counts, 1); err == nil {
		t.Error("a cohort below MinUsers was opened")
	}
	dg := p
	dg.Noise = Noise{Kind: DiscreteGaussian, Variance: 3}
	if err := dg.AddNoise(source(7), counts, p.Users); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("a sum of discrete Gaussian noise: %v", err)
	}
	sum := make([]float64, 3)
	for _, c := range []struct {
		counts  []int64
		clients int64
	}{{[]int64{1, 2, 3}, 39}, {[]int64{1, 2, 3}, 41}, {[]int64{1, 2}, 40}, {[]int64{-1, 2, 3}, 40}, {[]int64{1, 2, 40*19 + 1}, 40}} {
		if err := p.Estimate(sum, c.counts, c.clients); err == nil {
			t.Errorf("counts %v of %d clients were accepted", c.counts, c.clients)
		}
	}
}

func TestParamsRefuse(t *testing.T) {
	for name, change := range map[string]func(*Params){
		"no users":           func(p *Params) { p.Users = 0 },
		"min above users":    func(p *Params) { p.MinUsers = 41 },
		"honest above 1":     func(p *Params) { p.Honest = 1.5 },
		"honest NaN":         func(p *Params) { p.Honest = math.NaN() },
		"no dim":             func(p *Params) { p.Dim = 0 },
		"radius NaN":         func(p *Params) { p.Radius = math.NaN() },
		"radius Inf":         func(p *Params) { p.Radius = math.Inf(1) },
		"no grid":            func(p *Params) { p.Grid = 0 },
		"norm below ball":    func(p *Params) { p.Norm = p.Grid*p.Grid - 1 },
		"squares overflow":   func(p *Params) { p.Dim, p.Grid = 1<<24, 1<<24 },
		"no noise":           func(p *Params) { p.Noise = Noise{} },
		"counts overflow":    func(p *Params) { p.Users, p.Noise.Bits = 1<<40, 1<<40 },
		"negative bits":      func(p *Params) { p.Noise.Bits = -1 },
		"probability over 1": func(p *Params) { p.Noise.P = 1.01 },
	} {
		p := small()
		change(&p)
		if err := p.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
		if _, err := NewEncoder(p); err == nil {
			t.Errorf("%s: accepted by the encoder", name)
		}
		if _, err := p.curve(1e-9); err == nil {
			t.Errorf("%s: accepted by the accountant", name)
		}
	}
	// Honest clients below one leave no noise to rely on.
	p := small()
	p.Honest = .01
	if _, err := p.curve(1e-9); !errors.Is(err, dp.ErrNoBound) {
		t.Errorf("no honest client: %v", err)
	}
}

package randomizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tail"
)

// convolve returns the exact law of the sum of dim independent variables with law
// one on 0, 1, 2, …, as far as their table goes.
func convolve(one []float64, dim, size int) []float64 {
	law := make([]float64, size)
	law[0] = 1
	for range dim {
		next := make([]float64, size)
		for i, p := range law {
			if p == 0 {
				continue
			}
			for k, q := range one {
				if q != 0 && i+k < size {
					next[i+k] += p * q
				}
			}
		}
		law = next
	}
	return law
}

// beyond returns the mass above an edge, what fell out of the table included.
func beyond(law []float64, edge float64) float64 {
	mass := 1.
	for i, p := range law {
		if float64(i) <= edge {
			mass -= p
		}
	}
	return mass
}

func normalized(law []float64) []float64 {
	var total float64
	for _, p := range law {
		total += p
	}
	for i := range law {
		law[i] /= total
	}
	return law
}

// Brute force: exact tails of Σ|Z_i| for discrete Laplace and of ΣZ_i² for
// discrete Gaussian variables against the bounds that Check rests on.
func TestTailsOfWholeReports(t *testing.T) {
	for _, x := range []float64{.1, 1, 5, 12} {
		for _, dim := range []int{1, 2, 5, 20} {
			for _, s := range []float64{.3, 1, 6} {
				if dim == 20 && s == 6 && !longtest.On {
					continue // some thousand cells
				}
				one := make([]float64, int(40*s)+2)
				for k := range one {
					one[k] = 2 * math.Exp(-float64(k)/s)
				}
				one[0] = 1
				edge := s * laplaceSize(dim, x)
				got := beyond(convolve(normalized(one), dim, int(edge)+2), edge)
				if !(got <= math.Exp(-x)) {
					t.Errorf("laplace, d = %d, s = %v, x = %v: %v beyond %v", dim, s, x, got, edge)
				}
				v := s * s
				one = make([]float64, int(81*v)+2)
				for k := 0; k*k < len(one); k++ {
					one[k*k] = 2 * math.Exp(-float64(k*k)/(2*v))
				}
				one[0] = 1
				edge = v * math.Pow(tail.Length(dim, x), 2)
				got = beyond(convolve(normalized(one), dim, int(edge)+2), edge)
				if !(got <= math.Exp(-x)) {
					t.Errorf("gaussian, d = %d, sigma = %v, x = %v: %v beyond %v", dim, s, x, got, edge)
				}
			}
		}
	}
}

// A report may be as long as the bound and no longer, however it is spread,
// and no value may exceed the limit.
func TestCheckBoundsWholeReports(t *testing.T) {
	for _, dim := range []int{1, 30, 4420} {
		for _, scale := range []float64{0x1p-10, .3, 1, 30, 0x1p10} {
			g := must(NewDiscreteGaussian(DiscreteGaussianConfig{dim, 2, scale}))
			l := as[*laplace](newLaplace(Config{Dim: dim, Radius: 2, Eps0: math.Min(50, 2/scale)}))
			for _, c := range []struct {
				m           Mechanism
				limit, each float64
			}{
				{g, float64(g.limit), g.longest / math.Sqrt(float64(dim))},
				{l, float64(l.limit), float64(l.size) / float64(dim)},
			} {
				name := fmt.Sprintf("%s, d = %d, scale %v", c.m.Facts().Name, dim, scale)
				if least := map[bool]float64{true: 31.9 * math.Sqrt(float64(g.variance)), false: 127 * float64(l.spread.Num) / float64(l.spread.Den)}[c.m == Mechanism(g)]; c.limit < least || c.limit > math.MaxInt32 {
					t.Errorf("%s: limit %v", name, c.limit)
				}
				fill := func(v float64) *Report {
					r := c.m.NewReport()
					for i := range r.Value {
						r.Value[i] = int32(v) * int32(1-2*(i&1))
					}
					return r
				}
				if v := c.each * (1 - 1e-5); v < c.limit {
					if err := c.m.Check(fill(v)); err != nil {
						t.Errorf("%s: ±%v everywhere: %v", name, v, err)
					}
				}
				if v := math.Min(c.each*(1+1e-5)+1, c.limit+1); v <= math.MaxInt32 && c.m.Check(fill(v)) == nil {
					t.Errorf("%s: accepted ±%v everywhere", name, v)
				}
				// One coordinate at the limit is refused only where the length is
				// the tighter of the two.
				one := c.m.NewReport()
				one.Value[0] = int32(c.limit)
				if err := c.m.Check(one); dim == 4420 && err != nil {
					t.Errorf("%s: one value at the limit: %v", name, err)
				}
				if want := dim * (int(math.Floor(math.Log2(c.limit))) + 2); c.m.Facts().Bits != want {
					t.Errorf("%s: %d bits, want %d", name, c.m.Facts().Bits, want)
				}
			}
		}
	}
}

// What one dishonest client can add to one coordinate stays near what its noise
// may be: not 2^15 radii, whatever sigma.
func TestLimitFollowsSigma(t *testing.T) {
	for _, sigma := range []float64{0x1p-10, .1, 1, 100} {
		m := must(NewDiscreteGaussian(DiscreteGaussianConfig{3, 1, sigma}))
		if radii := float64(m.limit) / gaussianUnit; radii > 1.001+40.001*sigma {
			t.Errorf("sigma = %v: a value may stand for %v radii", sigma, radii)
		}
	}
}

// Honest reports pass: inputs at the edge of the ball, the widest spread of
// parameters. Fails with probability below e^-80.
func TestHonestReportsPass(t *testing.T) {
	for _, dim := range []int{1, 30, 1000} {
		for i, scale := range []float64{0x1p-10, 1, 0x1p10} {
			for _, m := range []Mechanism{
				must(NewDiscreteGaussian(DiscreteGaussianConfig{dim, 2, scale})),
				must(newLaplace(Config{Dim: dim, Radius: 2, Eps0: math.Min(50, 2/scale)})),
			} {
				r, src := m.NewReport(), source(80, uint64(dim), uint64(i))
				for range 20_000 / dim {
					m.Randomize(src, legal(m, 2), r)
					if err := m.Check(r); err != nil {
						t.Fatalf("%s, d = %d, scale %v: %v", m.Facts().Name, dim, scale, err)
					}
				}
			}
		}
	}
}

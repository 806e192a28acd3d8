package randomizer

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
)

// The slack is the one that privunit.md derives, term by term in numbers
// worked out there: a smaller one would promise too much.
func TestPrivUnitSlackIsTheDerivedOne(t *testing.T) {
	const u, h = 0x1p-53, 0x1p-16
	for _, c := range []struct{ dim, chain int }{
		{1, 71}, {2, 71}, {100, 71}, {128, 71}, {4420, 88}, {13706, 124}, {1_000_000, 195},
	} {
		d := float64(c.dim)
		alpha := 1.125 * (20*float64(c.chain) + 200) * u
		want := 1.01*(4*math.Sqrt(d)*alpha/h+4*(d+4096)*alpha+2e-12*d+6e-12*math.Min(d, 128)) + 1e-10
		if got := privUnitSlack(c.dim); math.Abs(got/want-1) > 1e-9 {
			t.Errorf("d = %d: slack %.6g, derived %.6g", c.dim, got, want)
		}
	}
}

// The edge of a cap is where the mass was computed for, to 1e-12 of its angle,
// also for caps whose cosine is 1 in a float64.
func TestCapContains(t *testing.T) {
	for _, dim := range []int{2, 3, 10, 127, 4420} {
		for _, eps0 := range []float64{.01, 1, 3, 10, 25, 36, 49.9} {
			c := bestCap(dim, eps0)
			for _, f := range []float64{0, .5, 1 - 1e-12, 1 + 1e-12, 1.5} {
				angle := f * c.angle
				sin, cos := math.Sincos(angle)
				if got := c.contains(cos, sin); got != (f < 1) {
					t.Errorf("d = %d, eps0 = %v: angle %v times the cap's: inside is %v", dim, eps0, f, got)
				}
			}
			if sin, cos := math.Sincos(math.Pi - c.angle/2); c.contains(cos, sin) {
				t.Errorf("d = %d, eps0 = %v: the opposite cap is inside", dim, eps0)
			}
		}
	}
}

// The part of α that rests on an error analysis, measured: the coordinates that
// are rounded, against 250-bit arithmetic on the same normal values and height.
// Inputs: benign, nearly parallel to the normal vector (as far as the condition
// on it allows), spread over many magnitudes, all of one sign.
func TestErrorOfReports(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 9))
	wide := func(v float64) *big.Float { return new(big.Float).SetPrec(250).SetFloat64(v) }
	empty := func() *big.Float { return new(big.Float).SetPrec(250) }
	product := func(a, b *big.Float) *big.Float { return empty().Mul(a, b) }
	worst, near := 0., 1.
	for _, dim := range []int{2, 3, 10, 100, 4420} {
		repetitions := 20
		if dim > 1000 {
			repetitions = 3
		}
		for kind, eps0 := range []float64{.5, 3, 10, 40} {
			m := unitOf(dim, eps0)
			for done := 0; done < repetitions; {
				x, z := make([]float32, dim), make([]float64, dim)
				seed := r.Uint64()
				gaussianSums(source(55, seed), z, x)
				for i := range x {
					g := r.NormFloat64()
					switch kind {
					case 1:
						g += z[i]
					case 2:
						g *= math.Exp(5 * r.NormFloat64())
					case 3:
						g = math.Abs(g)
					}
					x[i] = float32(g)
				}
				s := gaussianSums(source(55, seed), z, x)
				w2 := s.zz - s.xz*s.xz/s.xx
				if !(w2 >= s.zz/2) {
					continue
				}
				near = math.Min(near, w2/s.zz)
				done++
				height, sin := m.height(source(56, seed))
				along, across := combine(dim, s, height, sin, privUnitUnit)

				xx, xz, zz := empty(), empty(), empty()
				for i := range x {
					a, b := wide(float64(x[i])), wide(z[i])
					xx.Add(xx, product(a, a))
					xz.Add(xz, product(a, b))
					zz.Add(zz, product(b, b))
				}
				size := empty().Sqrt(xx)
				component := empty().Quo(xz, size)
				w := empty().Sqrt(empty().Sub(zz, product(component, component)))
				b := empty().Quo(wide(privUnitUnit*sin), w)
				a := empty().Sub(wide(privUnitUnit*height), product(b, component))
				a.Quo(a, size)
				var off float64
				for i := range x {
					y := float64(along*float64(x[i])) + float64(across*z[i])
					exact := empty().Add(product(a, wide(float64(x[i]))), product(b, wide(z[i])))
					e, _ := exact.Sub(exact, wide(y)).Float64()
					off += e * e
				}
				alpha := (20*float64(sumChain(dim)) + 200) * 0x1p-53
				share := math.Sqrt(off) / privUnitUnit / alpha
				worst = math.Max(worst, share)
				if !(share < .05) { // worst cases add up in no real sum; more is a mistake
					t.Errorf("d = %d, kind %d: error %.3g of alpha", dim, kind, share)
				}
			}
		}
	}
	t.Logf("largest share of alpha %.4f; smallest part across %.3f", worst, near)
	if near > .6 {
		t.Errorf("no input came near the edge of the condition: %v", near)
	}
}

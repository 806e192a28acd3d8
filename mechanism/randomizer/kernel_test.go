package randomizer

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"
)

// round is rounding to the nearest, ties to even, for every length, so that
// both the unrolled part and the rest are met.
func TestRoundIsNearest(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 2))
	for n := range 40 {
		x, z, got := make([]float32, n), make([]float64, n), make([]int32, n)
		for i := range x {
			x[i], z[i] = float32(r.IntN(4000)-2000)/2, r.NormFloat64()*1e4
			if r.IntN(3) == 0 {
				z[i] = 0 // a tie or an integer
			}
		}
		round(got, x, z, 1, 1)
		for i := range x {
			if want := int32(math.RoundToEven(float64(x[i]) + z[i])); got[i] != want {
				t.Fatalf("length %d: %v became %d, want %d", n, float64(x[i])+z[i], got[i], want)
			}
		}
	}
	got := make([]int32, 5)
	round(got, make([]float32, 5), []float64{.5, -.5, 1.5, 73728.4999, -73728.5001}, 0, 1)
	if want := [5]int32{0, 0, 2, 73728, -73729}; [5]int32(got) != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

// privunit.md uses: Σx² within L·u, Σz² within (L+1)·u relative, Σxz within
// (L+1)·u·‖x‖‖z‖. Compared with sums in 300 bits, also for vectors that cancel.
func TestSumsWithinBound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 3))
	worst := 0.
	for _, dim := range []int{1, 2, 3, 4, 5, 255, 256, 257, 511, 512, 513, 4420, sumBlock*sumGroup + 3, 3*sumBlock*sumGroup + 77} {
		for kind := range 3 {
			x, z := make([]float32, dim), make([]float64, dim)
			s := gaussianSums(source(30, uint64(dim)), z, x) // fills z
			if s.xx != 0 || s.xz != 0 {
				t.Fatalf("sums over a zero vector: %+v", s)
			}
			for i := range x {
				switch kind {
				case 0:
					x[i] = float32(r.NormFloat64())
				case 1: // products of one sign
					x[i] = float32(z[i])
				case 2: // sums that cancel
					x[i] = float32(math.Abs(r.NormFloat64()) * (1 - 2*float64(i&1)) / (z[i] + math.Copysign(1e-9, z[i])))
				}
			}
			again := make([]float64, dim)
			s = gaussianSums(source(30, uint64(dim)), again, x)
			xx, xz := products(x, z)
			if xx != s.xx || xz != s.xz {
				t.Fatalf("d = %d: products and gaussianSums differ", dim)
			}
			exact := func(a, b func(i int) float64) float64 { // minus the float sum, below
				sum := new(big.Float).SetPrec(300)
				for i := range x {
					p := new(big.Float).SetPrec(300).SetFloat64(a(i))
					sum.Add(sum, p.Mul(p, new(big.Float).SetFloat64(b(i))))
				}
				v, _ := sum.Float64()
				return v
			}
			fx := func(i int) float64 { return float64(x[i]) }
			fz := func(i int) float64 { return z[i] }
			const u = 0x1p-53
			l := float64(sumChain(dim))
			ex, ez, exz := exact(fx, fx), exact(fz, fz), exact(fx, fz)
			// Rounding the exact value to a double costs one more u.
			for _, c := range []struct{ got, want, limit float64 }{
				{s.xx, ex, (l + 1) * u * ex},
				{s.zz, ez, (l + 2) * u * ez},
				{s.xz, exz, (l + 2) * u * math.Sqrt(ex*ez)},
			} {
				worst = math.Max(worst, math.Abs(c.got-c.want)/c.limit)
				if math.Abs(c.got-c.want) > c.limit {
					t.Errorf("d = %d, kind %d: sum %v, exact %v, limit %.2g", dim, kind, c.got, c.want, c.limit)
				}
			}
		}
	}
	t.Logf("largest share of the bound: %.3f", worst)
}

func TestSumChain(t *testing.T) {
	for _, c := range []struct{ dim, want int }{
		{1, 64 + 5 + 1 + 1}, {4420, 64 + 5 + 18 + 1}, {1 << 20, 64 + 5 + 64 + 64},
	} {
		if got := sumChain(c.dim); got != c.want {
			t.Errorf("sumChain(%d) = %d, want %d", c.dim, got, c.want)
		}
	}
}

// Values are rounded to the nearest, and those that do not fit are cut, wherever they are.
func TestRoundWide(t *testing.T) {
	for _, dim := range []int{1, 3, 4, 5, 11} {
		for at := -1; at < dim; at++ {
			for _, far := range []float64{9, -9, 8, -8 - 1./seedUnit} {
				x, z := direction(dim, 1), make([]float64, dim)
				want, got := make([]int32, dim), make([]int32, dim)
				for i := range z {
					z[i] = math.Sin(float64(i)) / 3
					want[i] = int32(math.RoundToEven((float64(2*float64(x[i])) + z[i]) * seedUnit))
				}
				if at >= 0 {
					x[at], z[at] = 0, far
					want[at] = math.MaxInt32
					if far < 0 {
						want[at] = -math.MaxInt32
					}
				}
				roundWide(got, x, z, 2)
				if !slices.Equal(got, want) {
					t.Errorf("d = %d, %v at %d: %v, want %v", dim, far, at, got, want)
				}
			}
		}
	}
}

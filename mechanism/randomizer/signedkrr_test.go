package randomizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// cornerLaw returns the law of SignedKRR's report on x, symbol by symbol, from
// KRR's two probabilities as they are and the law of the client's symbol.
func cornerLaw(m *signedKRR, x []float64) []float64 {
	truth, lie := m.corner.law()
	k := 2 * len(x)
	size := 0.
	for _, v := range x {
		size += math.Abs(v)
	}
	scale := math.Max(size, m.radius)
	law := make([]float64, k)
	for j, v := range x {
		law[2*j] += math.Max(0, v) / scale
		law[2*j+1] += math.Max(0, -v) / scale
	}
	for s := range law {
		law[s] = lie + (truth-lie)*(law[s]+(1-size/scale)/float64(k))
	}
	return law
}

// signedInputs are inputs of the ball of radius 2 and outside it.
func signedInputs(dim int) [][]float64 {
	list := [][]float64{make([]float64, dim)}
	for j := range dim {
		for _, v := range []float64{2, -2, .7, -9} {
			x := make([]float64, dim)
			x[j] = v
			list = append(list, x)
		}
	}
	spread, mixed := make([]float64, dim), make([]float64, dim)
	for j := range dim {
		spread[j] = 2 / float64(dim)
		mixed[j] = .9 / float64(dim) * float64(1-2*(j&1))
	}
	return append(list, spread, mixed)
}

// Enumerated at small d: the ratio of the laws of any two inputs is at most E
// and reaches it; the mean of the estimate is the input and its squared error
// the formula's.
func TestSignedKRREnumerated(t *testing.T) {
	for _, dim := range []int{1, 2, 3, 5} {
		for _, eps0 := range []float64{0x1p-20, .3, 1, 4, 12} {
			m := as[*signedKRR](newSignedKRR(Config{Dim: dim, Radius: 2, Eps0: eps0}))
			var most, worst float64
			for _, x := range signedInputs(dim) {
				p := cornerLaw(m, x)
				for _, y := range signedInputs(dim) {
					for s, q := range cornerLaw(m, y) {
						most = math.Max(most, math.Log(p[s]/q))
					}
				}
				size := 0.
				for _, v := range x {
					size += math.Abs(v)
				}
				var total, square, want float64
				for j, v := range x {
					v *= math.Min(1, 2/size)
					if size == 0 {
						v = 0
					}
					total += p[2*j] + p[2*j+1]
					if got := m.scale * (p[2*j] - p[2*j+1]); math.Abs(got-v) > 1e-8 {
						t.Errorf("d = %d, eps0 = %v, x = %v: mean %v at %d", dim, eps0, x, got, j)
					}
					for side := range 2 {
						for i, w := range x {
							w *= math.Min(1, 2/math.Max(2, size))
							e := -w
							if i == j {
								e += m.scale * float64(1-2*side)
							}
							square += p[2*j+side] * e * e
						}
					}
					want -= v * v
				}
				if math.Abs(total-1) > 1e-14 {
					t.Errorf("the law sums to %v", total)
				}
				want += m.Facts().MSE
				if math.Abs(square/want-1) > 1e-7 {
					t.Errorf("d = %d, eps0 = %v, x = %v: squared error %v, want %v", dim, eps0, x, square, want)
				}
				worst = math.Max(worst, square)
			}
			if most > eps0+1e-14*(1+eps0) || most < eps0-1e-13*(1+eps0) {
				t.Errorf("d = %d, eps0 = %v: log-ratio %.17g", dim, eps0, most)
			}
			e := math.Exp(eps0)
			want := 4 * math.Pow((e+float64(2*dim-1))/math.Expm1(eps0), 2)
			if math.Abs(m.Facts().MSE/want-1) > 1e-8 || math.Abs(worst/want-1) > 1e-7 {
				t.Errorf("d = %d, eps0 = %v: error %v, worst case %v, want %v", dim, eps0, m.Facts().MSE, worst, want)
			}
		}
	}
}

// Sampled frequencies of every symbol against the enumerated law.
func TestSignedKRRLaw(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(30_000, 100_000)
	if testing.Short() {
		n = 12_500
	}
	for _, dim := range []int{1, 2, 4} {
		m := as[*signedKRR](newSignedKRR(Config{Dim: dim, Radius: 2, Eps0: 1.5}))
		for i, wide := range signedInputs(dim) {
			x := make([]float32, dim)
			for j, v := range wide {
				x[j] = float32(v)
			}
			counts := make([]int64, 2*dim)
			r, src := m.NewReport(), source(81, uint64(dim), uint64(i))
			for range n {
				m.Randomize(src, x, r)
				counts[2*int(r.Index[0])+int(1-r.Value[0])/2]++
			}
			chiSquare(t, fmt.Sprintf("x = %v", x), counts, cornerLaw(m, wide))
		}
	}
}

// Where it says that it is better than R1 with one bit, and where not.
func TestSignedKRRAgainstR1(t *testing.T) {
	for _, dim := range []int{100, 4420, 1 << 20} {
		edge := math.Log(2 * math.Sqrt(float64(dim)))
		for _, c := range []struct {
			eps0   float64
			better bool
		}{{1, false}, {edge - .1, false}, {edge + .1, true}, {edge + 4, true}} {
			signed, r1 := must(newSignedKRR(Config{Dim: dim, Radius: 1, Eps0: c.eps0})).Facts().MSE, must(newR1(Config{Dim: dim, Radius: 1, Eps0: c.eps0, Bits: 1})).Facts().MSE
			if (signed < r1) != c.better {
				t.Errorf("d = %d, eps0 = %v: error %v, of R1 %v", dim, c.eps0, signed, r1)
			}
		}
	}
}

func TestSignedKRREvent(t *testing.T) {
	for dim, want := range map[int]dp.Report{
		1: {Class: dp.BinaryRR, Eps0: 2},
		2: {Class: dp.KRR, Eps0: 2, Symbols: 4},
		9: {Class: dp.KRR, Eps0: 2, Symbols: 18},
	} {
		m := must(newSignedKRR(Config{Dim: dim, Radius: 1, Eps0: 2}))
		if m.Event() != want {
			t.Errorf("d = %d: %+v, want %+v", dim, m.Event(), want)
		}
		if least := math.Log2(float64(2 * dim)); m.Facts().Bits != int(math.Ceil(least)) {
			t.Errorf("d = %d: %d bits", dim, m.Facts().Bits)
		}
	}
	if _, err := newSignedKRR(Config{Dim: 1<<29 + 1, Radius: 1, Eps0: 2}); err == nil {
		t.Error("accepted more symbols than 2^30")
	}
	m := must(newSignedKRR(Config{Dim: 3, Radius: 1, Eps0: 2}))
	if m.Check(&Report{Index: []uint32{1}, Value: []int32{0}}) == nil {
		t.Error("accepted a symbol without a sign")
	}
}

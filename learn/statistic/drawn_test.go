package statistic

import (
	"math"
	"math/big"
	"testing"
)

// table is noise of few values, from low on.
type table struct {
	low    float64
	chance []float64
}

func (t table) below(x float64) (less, most float64) {
	for i, p := range t.chance {
		v := t.low + float64(i)
		if v < x {
			less += p
		}
		if v <= x {
			most += p
		}
	}
	return less, most
}

func (t table) variance() (v float64) {
	mean := 0.
	for i, p := range t.chance {
		mean += p * (t.low + float64(i))
	}
	for i, p := range t.chance {
		v += p * (t.low + float64(i) - mean) * (t.low + float64(i) - mean)
	}
	return v
}

// bell is a discrete Gaussian table of variance about v.
func bell(v float64) table {
	reach := math.Ceil(12 * math.Sqrt(v))
	t, sum := table{low: -reach}, 0.
	for x := -reach; x <= reach; x++ {
		t.chance = append(t.chance, math.Exp(-x*x/(2*v)))
		sum += t.chance[len(t.chance)-1]
	}
	for i := range t.chance {
		t.chance[i] /= sum
	}
	return t
}

var none = table{0, []float64{1}}

// The law is compared with whole numbers: C(N,h)·C(n−N,m−h)/C(n,m).
func TestSampleByEnumeration(t *testing.T) {
	for n := int64(1); n <= 30; n++ {
		for m := int64(1); m <= n; m++ {
			all := new(big.Int).Binomial(n, m)
			for have := range n + 1 {
				got := map[int64]float64{}
				for _, h := range (drawn{n, m, none}).sample(have) {
					got[h.count] += h.chance
				}
				for h := range m + 1 {
					ways := new(big.Int).Mul(new(big.Int).Binomial(have, h), new(big.Int).Binomial(n-have, m-h))
					want, _ := new(big.Rat).SetFrac(ways, all).Float64()
					if math.Abs(got[h]-want) > 1e-13 {
						t.Fatalf("n %d, m %d, have %d, h %d: %v, want %v", n, m, have, h, got[h], want)
					}
				}
			}
		}
	}
}

// Very large rounds are put together from stretches: their moments are those of the law.
func TestSampleMoments(t *testing.T) {
	for _, d := range []drawn{{1e6, 58823, none}, {1e12, 1e11, none}, {1 << 40, 1 << 39, none}} {
		for _, have := range []int64{1, d.clients / 100, d.clients / 2, d.clients} {
			var mean, square float64
			want := float64(d.reports) * float64(have) / float64(d.clients)
			for _, h := range d.sample(have) {
				mean += h.chance * (float64(h.count) - want)
				square += h.chance * (float64(h.count) - want) * (float64(h.count) - want)
			}
			p := float64(have) / float64(d.clients)
			v := float64(d.reports) * p * (1 - p) * float64(d.clients-d.reports) / float64(d.clients-1)
			if math.Abs(mean) > 1e-6*math.Sqrt(v)+1e-9+1e-15*want || math.Abs(square-v) > 1e-6*v+1e-9 {
				t.Errorf("n %d, m %d, have %d: mean off by %v, variance %v, want %v", d.clients, d.reports, have, mean, square, v)
			}
		}
	}
}

// The coverage of an interval at each truth is computed, not drawn. Mid-p covers 95 % on the average
// over truths, and is near it at each; with noise of few values and no sampling it can be off by half a
// value's chance at both ends. With atLeast it is never below 95 %.
func TestBetweenCovers(t *testing.T) {
	// The least and the largest coverage, of mid-p and with atLeast.
	covers := map[bool][2]float64{false: {.93, .965}, true: {.95 - 1e-9, .98}}
	for _, atLeast := range []bool{false, true} {
		for _, d := range []drawn{{200, 50, bell(4)}, {200, 200, bell(9)}, {300, 100, none}, {150, 75, bell(30)}} {
			type ends struct{ low, high float64 }
			of := map[float64]ends{}
			sum, worst := 0., 1.
			for have := range d.clients + 1 {
				covered := 0.
				for _, h := range d.sample(have) {
					for i, p := range d.noise.(table).chance {
						y := float64(h.count) + d.noise.(table).low + float64(i)
						e, ok := of[y]
						if !ok {
							e.low, e.high = d.between(y, .025, atLeast)
							of[y] = e
						}
						if e.low <= float64(have) && float64(have) <= e.high {
							covered += h.chance * p
						}
					}
				}
				sum += covered
				worst = min(worst, covered)
			}
			mean := sum / float64(d.clients+1)
			t.Logf("n %d, m %d: mean coverage %.4f, worst %.4f", d.clients, d.reports, mean, worst)
			if c := covers[atLeast]; mean < c[0] || mean > c[1] || worst < c[0] {
				t.Errorf("n %d, m %d: mean coverage %.4f, worst %.4f", d.clients, d.reports, mean, worst)
			}
		}
	}
}

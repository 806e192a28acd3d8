package randomizer

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// several lists the mechanisms that draw sums, with radius 1.
func several(dim int) []Several {
	var out []Several
	for _, m := range []Randomizer{
		must(newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2.834, Encoding: Seed})),
		must(newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 2, Encoding: Seed})),
		must(newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2.834})),
		must(newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 2})),
		must(newR2(Config{Dim: dim, Radius: 1, Eps0: 2})),
	} {
		out = append(out, m.(Several))
	}
	return out
}

// totals are n sums of reports: the part along x, the squared length across it, and the part
// along one direction across it. Units are those of the mean's estimate.
type totals struct{ along, across, part []float64 }

// drawTotals draws n sums of count reports of x; draw adds one to sum.
func drawTotals(m Mechanism, x []float32, n int, draw func(sum []int64)) (out totals) {
	dim := len(x)
	size := norm(x, 2)
	axis := 0
	for i, v := range x {
		if math.Abs(float64(v)) < math.Abs(float64(x[axis])) {
			axis = i
		}
	}
	side := math.Sqrt(1 - math.Pow(float64(x[axis])/size, 2))
	sum, mean := make([]int64, dim), make([]float64, dim)
	for range n {
		clear(sum)
		draw(sum)
		m.Estimate(mean, sum, 1)
		var a, square float64
		for i, v := range mean {
			a += v * float64(x[i]) / size
			square += v * v
		}
		part := 0.
		if dim > 1 {
			part = (mean[axis] - a*float64(x[axis])/size) / side
		}
		out.along = append(out.along, a)
		out.across = append(out.across, math.Max(0, square-a*a))
		out.part = append(out.part, part)
	}
	return out
}

// differ returns the least p-value of what tells two samples apart: a chi-square of the parts along x
// together with the lengths across it, cut at quantiles of both samples together, one of the parts along a direction
// across x together with the lengths, and the means and mean squares of each.
func differ(a, b totals) (least float64) {
	least = 1
	cuts := func(x, y []float64, n int) (out []float64) {
		all := slices.Sorted(slices.Values(append(slices.Clone(x), y...)))
		for i := 1; i < n; i++ {
			out = append(out, all[i*len(all)/n])
		}
		return out
	}
	table := func(x1, x2, y1, y2 []float64) {
		cx, cy := cuts(x1, y1, 12), cuts(x2, y2, 4)
		cells := map[[2]int]*[2]float64{}
		for k, s := range [2][2][]float64{{x1, x2}, {y1, y2}} {
			for i, v := range s[0] {
				p, _ := slices.BinarySearch(cx, v)
				q, _ := slices.BinarySearch(cy, s[1][i])
				if cells[[2]int{p, q}] == nil {
					cells[[2]int{p, q}] = &[2]float64{}
				}
				cells[[2]int{p, q}][k]++
			}
		}
		var stat float64
		used := 0
		for _, c := range cells {
			if c[0]+c[1] < 40 { // too few for the limit law
				continue
			}
			used++
			stat += (c[0] - c[1]) * (c[0] - c[1]) / (c[0] + c[1]) // samples of one size
		}
		if used > 1 {
			least = math.Min(least, chiTail(used, stat))
		}
	}
	table(a.along, a.across, b.along, b.across)
	table(a.part, a.across, b.part, b.across)
	for _, pair := range [][2][]float64{{a.along, b.along}, {a.across, b.across}, {a.part, b.part}} {
		for _, power := range []float64{1, 2} {
			var mean, spread [2]float64
			for k, s := range pair {
				for _, v := range s {
					mean[k] += math.Pow(v, power) / float64(len(s))
				}
				for _, v := range s {
					spread[k] += math.Pow(math.Pow(v, power)-mean[k], 2) / math.Pow(float64(len(s)), 2)
				}
			}
			if far := math.Sqrt(spread[0] + spread[1]); far > 1e-6*math.Abs(mean[0]) {
				least = math.Min(least, math.Erfc(math.Abs(mean[0]-mean[1])/far/math.Sqrt2))
			} else if math.Abs(mean[0]-mean[1]) > 1e-5*math.Abs(mean[0])+1e-4 {
				least = 0
			}
		}
	}
	return least
}

// The sum that is drawn at once has the law of the sum of single reports: for full and short inputs,
// zero and hostile ones. The same test refutes sums that share a score, a noise or a length, or are
// so many times one report. Some 2,500 p-values, so the false alarm of all is below 1e-9.
func TestSeveralHaveTheLawOfSingles(t *testing.T) {
	n := 24_000 / longtest.Pick3(3, 2, 1)
	for i, dim := range []int{1, 2, 3, 20, 150} {
		if !longtest.On && dim != 20 {
			continue
		}
		for k, m := range several(dim) {
			for j, size := range []float64{1, .4} {
				for _, count := range []int64{1, 2, 8} {
					if dim == 150 && count != 8 || !longtest.On && (count != 8 || size < 1) {
						continue
					}
					name := fmt.Sprintf("%s, |x| = %v, %d reports", label(m), size, count)
					x := direction(dim, size)
					path := []uint64{96, uint64(i), uint64(k), uint64(j), uint64(count)}
					src, r := source(path...), m.NewReport()
					singles := func(sum []int64) {
						for range count {
							m.Randomize(src, x, r)
							m.Add(sum, r)
						}
					}
					want := drawTotals(m, x, n, singles)
					got := drawTotals(m, x, n, func(sum []int64) { m.AddSeveral(src, sum, x, count) })
					if p := differ(want, got); p < 1e-13 {
						t.Errorf("%s: p = %.2g", name, p)
					}
					if count != 8 || dim != 20 || size != 1 || !longtest.On && k != 0 && k != 4 {
						continue // by default, faults of one with seeds and of one with a few values
					}
					again := drawTotals(m, x, n, singles)
					if p := differ(want, again); p < 1e-13 {
						t.Errorf("%s: the test refutes single reports, p = %.2g", name, p)
					}
					for fault, draw := range faults(m, src, x, count) {
						if p := differ(want, drawTotals(m, x, n, draw)); p >= 1e-13 {
							t.Errorf("%s: %s is not noticed, p = %.2g", name, fault, p)
						}
					}
				}
			}
		}
	}
}

// faults are wrong sums of count reports, put together from parts of single ones.
func faults(m Several, src rng.Source, x []float32, count int64) map[string]func(sum []int64) {
	r := m.NewReport()
	u, size := make([]float64, len(x)), norm(x, 2)
	for i, v := range x {
		u[i] = float64(v) / size
	}
	single := func() (values []float64, along float64) {
		m.Randomize(src, x, r)
		for i, v := range r.Value {
			values = append(values, float64(v))
			along += float64(v) * u[i]
		}
		return values, along
	}
	add := func(sum []int64, values []float64, times, shift float64) {
		for i, v := range values {
			sum[i] += int64(math.Round(times*v + shift*u[i]))
		}
	}
	c := float64(count)
	return map[string]func(sum []int64){
		"one score for all reports": func(sum []int64) {
			_, first := single()
			for range count {
				values, along := single()
				add(sum, values, 1, first-along)
			}
		},
		"one noise for all reports": func(sum []int64) {
			values, along := single()
			for range count - 1 {
				_, next := single()
				along += next
			}
			var own float64
			for i, v := range values {
				own += v * u[i]
			}
			add(sum, values, 1, along-own)
		},
		"one report, so many times": func(sum []int64) {
			values, _ := single()
			add(sum, values, c, 0)
		},
		"a length across x that does not vary": func(sum []int64) {
			var along, square float64
			var last []float64
			for range count {
				values, next := single()
				along += next
				for i, v := range values {
					square += (v - next*u[i]) * (v - next*u[i])
				}
				last = values
			}
			var own, rest float64
			for i, v := range last {
				own += v * u[i]
			}
			for i, v := range last {
				rest += (v - own*u[i]) * (v - own*u[i])
			}
			times := math.Sqrt(square / rest)
			add(sum, last, times, along-times*own)
		},
	}
}

// Inputs that are zero, not finite or too long are treated as for a single report; a report of a round is never
// drawn in a sum.
func TestSeveralOfHostileInputs(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for _, m := range several(4) {
		for _, c := range [][2][]float32{
			{{nan, 1, 0, 0}, {0, 1, 0, 0}},
			{{nan, nan, nan, nan}, {0, 0, 0, 0}},
			{{inf, 0, 0, 0}, {1, 0, 0, 0}},
			{{3, 4, 0, 0}, {.6, .8, 0, 0}},
		} {
			a, b := make([]int64, 4), make([]int64, 4)
			before := slices.Clone(c[0])
			m.AddSeveral(source(97), a, c[0], 5)
			m.AddSeveral(source(97), b, c[1], 5)
			for i := range a {
				if math.Abs(float64(a[i]-b[i])) > 64 { // the input's rounding
					t.Errorf("%s: %v gives %v, %v gives %v", label(m), c[0], a, c[1], b)
					break
				}
			}
			for i := range before {
				if math.Float32bits(before[i]) != math.Float32bits(c[0][i]) {
					t.Errorf("%s: the input was changed", label(m))
				}
			}
		}
		for _, count := range []int64{0, mostSeveral + 1} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%s: drew %d reports", label(m), count)
					}
				}()
				m.AddSeveral(source(98), make([]int64, 4), make([]float32, 4), count)
			}()
		}
	}
}

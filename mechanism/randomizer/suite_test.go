package randomizer

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
	"testing"

	"gonum.org/v1/gonum/mathext"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// falseAlarm is the probability with which one statistical check fails although
// the code is right; there are fewer than 1000 of them and the seeds are fixed.
const falseAlarm = 1e-9

// proportion checks hits of n against probability p by Bernstein's inequality.
func proportion(t *testing.T, name string, hits, n int64, p float64) {
	t.Helper()
	mean, l := p*float64(n), math.Log(2/falseAlarm)
	if s := l/3 + math.Sqrt(l*l/9+2*l*mean*(1-p)); math.Abs(float64(hits)-mean) > s {
		t.Errorf("%s: %d hits of %d, want %.1f ± %.1f", name, hits, n, mean, s)
	}
}

// chiSquare checks counts against probabilities that sum to 1.
func chiSquare(t *testing.T, name string, counts []int64, probs []float64) {
	t.Helper()
	var n int64
	var stat, total float64
	for i, c := range counts {
		n += c
		total += probs[i]
	}
	if math.Abs(total-1) > 1e-9 {
		t.Fatalf("%s: probabilities sum to %v", name, total)
	}
	for i, c := range counts {
		e := probs[i] * float64(n)
		if e < 10 {
			t.Fatalf("%s: cell %d expects only %.3g", name, i, e)
		}
		stat += (float64(c) - e) * (float64(c) - e) / e
	}
	if p := chiTail(len(counts)-1, stat); p < falseAlarm {
		t.Errorf("%s: chi-square %.1f with %d degrees of freedom, p = %.2g", name, stat, len(counts)-1, p)
	}
}

// chiTail returns the probability that a chi-square variable exceeds stat.
func chiTail(degrees int, stat float64) float64 {
	return mathext.GammaIncRegComp(float64(degrees)/2, stat/2)
}

func source(path ...uint64) rng.Source { return rng.Replay(20240612, path...) }

// direction returns a fixed vector of length size.
func direction(dim int, size float64) []float32 {
	z := make([]float64, dim)
	sample.Gaussian(rng.Replay(7), z)
	x := make([]float32, dim)
	var sum float64
	for _, v := range z {
		sum += v * v
	}
	for i, v := range z {
		x[i] = float32(v * size / math.Sqrt(sum))
	}
	return x
}

func must[T any](m T, err error) T {
	if err != nil {
		panic(err)
	}
	return m
}

// as makes a randomizer of this package and gives its type back.
func as[M Mechanism](m Randomizer, err error) M { return any(must(m, err)).(M) }

// mechanisms is the suite's list; all have radius 2.
func mechanisms() []Mechanism {
	list := []Mechanism{}
	dims := []int{1, 2, 5, 130, 700}
	if testing.Short() {
		dims = dims[:4]
	}
	for _, dim := range dims {
		list = append(list,
			must(newRInf(Config{Dim: dim, Radius: 2, Eps0: 1.5})),
			must(newRR(Config{Dim: dim, Radius: 2, Eps0: 1.25 * float64(min(dim, 8))})),
			must(newPrivUnit(Config{Dim: dim, Radius: 2, Eps0: 1})),
			must(newPrivUnit(Config{Dim: dim, Radius: 2, Eps0: 6})),
			must(NewDiscreteGaussian(DiscreteGaussianConfig{Dim: dim, Radius: 2, Sigma: .75})),
			must(newRInf(Config{Dim: dim, Radius: 2, Eps0: 6, Bits: min(dim, 3)})),
			must(newR1(Config{Dim: dim, Radius: 2, Eps0: 1.5})),
			must(newR1(Config{Dim: dim, Radius: 2, Eps0: 6, Bits: min(dim, 3)})),
			must(newR2(Config{Dim: dim, Radius: 2, Eps0: 2})),
			must(newStepUnit(Config{Dim: dim, Radius: 2, Eps0: 2.8})),
			must(newStepUnit(Config{Dim: dim, Radius: 2, Eps0: 2.8, Encoding: Seed})),
			must(newPrivUnit(Config{Dim: dim, Radius: 2, Eps0: 1, Encoding: Seed})),
			must(newLaplace(Config{Dim: dim, Radius: 2, Eps0: 3})),
			must(newSignedKRR(Config{Dim: dim, Radius: 2, Eps0: 1.5})),
			must(newSignedKRR(Config{Dim: dim, Radius: 2, Eps0: 8})),
		)
		if dim > 1 {
			list = append(list, must(newKRR(Config{Dim: dim, Eps0: .8})), must(newKRR(Config{Dim: dim, Eps0: 7})))
		}
		if dim > 5 {
			list = append(list, must(newKRR(Config{Dim: dim, Eps0: 1, Bits: 16})))
		}
	}
	return list
}

// legal returns an input of the mechanism's domain: on its boundary for size 2,
// inside for less, zero or the uniform distribution for 0.
func legal(m Mechanism, size float64) []float32 {
	dim := m.Facts().Dim
	x := direction(dim, size)
	switch m.Facts().Name {
	case "rr", "rinf":
		if size == 2 {
			for j := range x { // a corner of the cube
				x[j] = 2 * float32(1-2*(j&1))
			}
		}
	case "r1", "laplace", "signed-krr":
		if n := norm(x, 1); n > 0 {
			for j := range x {
				x[j] *= float32(size / n * (1 - 0x1p-20))
			}
		}
	case "krr":
		for j := range x {
			x[j] = float32(math.Abs(float64(x[j])))
			if size == 0 {
				x[j] = 1
			}
		}
		n := norm(x, 1)
		for j := range x {
			x[j] = float32(float64(x[j]) / n)
		}
		if k, ok := m.(*krr); ok && k.spread > 1 && size > 0 {
			clear(x)
			for j := range k.spread {
				x[(j+int(size))%dim] = 1 / float32(k.spread)
			}
		}
	}
	return x
}

// squaredError returns E‖R(x)−x‖² by the mechanism's formula for an x of this
// squared length.
func squaredError(m Mechanism, square float64) float64 {
	switch m := m.(type) {
	case *DiscreteGaussian, *laplace: // noise that is the same for all inputs
		return m.Facts().MSE
	case *krr:
		return m.facts.MSE + 1/float64(m.facts.Dim) - square
	case *r1:
		k, d, padded := float64(m.count), float64(m.Facts().Dim), float64(m.among)
		if k == 1 {
			return m.Facts().MSE - square
		}
		return m.Facts().MSE - square*(1-(k-1)*(padded-d)/(k*(padded-1)))
	}
	return m.Facts().MSE - square
}

func label(m Mechanism) string {
	s := fmt.Sprintf("%s d=%d", m.Facts().Name, m.Facts().Dim)
	if _, ok := m.(Keyed); ok {
		s += " seed"
	}
	if r, ok := m.(Randomizer); ok {
		s += fmt.Sprintf(" eps0=%.4g", r.Event().Eps0)
	}
	return s
}

func forEach(t *testing.T, f func(t *testing.T, m Mechanism)) {
	for _, m := range mechanisms() {
		t.Run(label(m), func(t *testing.T) {
			t.Parallel()
			f(t, m)
		})
	}
}

// The mean of many estimates is the input, for inputs on the boundary of the
// ball, inside it and zero, in one random projection and on coordinate 0; and
// the mean squared error is the formula's. Limits are 7 standard errors, from
// the measured spread: below 3e-12 two-sided for means of this many terms.
func TestUnbiasedWithStatedError(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		dim := m.Facts().Dim
		n := 4_000_000 / (dim + 40) / longtest.Pick(2, 1) // any number, as all coordinates vary
		switch m.Facts().Name {
		case "rinf", "signed-krr":
			n = 60_000
		case "krr": // slow to choose a symbol; 60,000 up to d = 160
			n = min(60_000, 12_000_000/(dim+40))
		case "discrete-gaussian", "laplace":
			// The noise does not depend on the input and has tests of its own law.
			n /= 2
		}
		n /= longtest.Pick(4, 1)
		along := direction(dim, 1)
		slices.Reverse(along)
		for i, size := range []float64{2, 1.1, 0} {
			x := legal(m, size)
			r, mean, one := m.NewReport(), make([]float64, dim), make([]int64, dim)
			src := source(1, uint64(dim), uint64(i))
			var p1, p2, c1, c2, e1, e2, square, want float64
			for j, v := range x {
				square += float64(v) * float64(v)
				want += float64(along[j]) * float64(v)
			}
			evaluate := func() (p, c, e float64) {
				clear(one)
				m.Add(one, r)
				m.Estimate(mean, one, 1)
				for j, v := range mean {
					p += float64(along[j]) * v
					d := v - float64(x[j])
					e += d * d
				}
				return p, mean[0], e
			}
			// Of reports of one symbol there are few: each is evaluated once.
			type symbol struct {
				index uint32
				value int32
			}
			seen := map[symbol][3]float64{}
			for range n {
				m.Randomize(src, x, r)
				var p, c, e float64
				if len(r.Index) == 1 {
					s := symbol{r.Index[0], r.Value[0]}
					v, ok := seen[s]
					if !ok {
						v[0], v[1], v[2] = evaluate()
						seen[s] = v
					}
					p, c, e = v[0], v[1], v[2]
				} else {
					p, c, e = evaluate()
				}
				p1, p2, c1, c2, e1, e2 = p1+p, p2+p*p, c1+c, c2+c*c, e1+e, e2+e*e
			}
			check := func(what string, s1, s2, want, tolerance float64) {
				t.Helper()
				k := float64(n)
				got := s1 / k
				limit := 7*math.Sqrt(math.Max(0, s2/k-got*got)/k) + tolerance
				if !(math.Abs(got-want) <= limit) {
					t.Errorf("|x| = %v: %s %.6g, want %.6g ± %.2g", size, what, got, want, limit)
				}
			}
			check("mean of a projection", p1, p2, want, 1e-9)
			check("mean of coordinate 0", c1, c2, float64(x[0]), 1e-9)
			check("squared error", e1, e2, squaredError(m, square), 1e-6*m.Facts().MSE)
		}
	})
}

// Inputs that are not numbers or outside the ball are replaced by the stated
// rule and nothing else happens: the report is that of the replaced input for
// the same randomness.
func TestHostileInputs(t *testing.T) {
	nan, inf, top := float32(math.NaN()), float32(math.Inf(1)), float32(math.MaxFloat32)
	forEach(t, func(t *testing.T, m Mechanism) {
		dim := m.Facts().Dim
		vector := func(first ...float32) []float32 {
			x := direction(dim, 1)
			copy(x, first)
			return x
		}
		constant := func(v float32) []float32 { return slices.Repeat([]float32{v}, dim) }
		for i, c := range []struct{ x, as []float32 }{
			{vector(nan), vector(0)},
			{constant(nan), constant(0)},
			{vector(inf), vector(top)},
			{vector(-inf), vector(-top)},
			{vector(-inf, nan), vector(-top, 0)},
			{constant(inf), constant(top)},
			{constant(top), constant(top / 4)}, // only the direction, or the corner, counts
			{constant(-1e20), constant(-1e10)},
			{constant(float32(math.SmallestNonzeroFloat32)), nil},
			{constant(float32(math.Copysign(0, -1))), constant(0)},
		} {
			for k := range uint64(20) {
				r := m.NewReport()
				before := slices.Clone(c.x)
				m.Randomize(source(2, k), c.x, r)
				for j := range before {
					if math.Float32bits(before[j]) != math.Float32bits(c.x[j]) {
						t.Fatalf("input %d was changed", i)
					}
				}
				if err := m.Check(r); err != nil {
					t.Fatalf("input %d: %v", i, err)
				}
				if c.as == nil {
					continue
				}
				want := m.NewReport()
				m.Randomize(source(2, k), c.as, want)
				if !slices.Equal(r.Index, want.Index) || !slices.Equal(r.Value, want.Value) {
					t.Fatalf("input %d is not treated as its replacement", i)
				}
			}
		}
	})
}

func TestReportsAreReusable(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		x := direction(m.Facts().Dim, 1.5)
		fresh, used := m.NewReport(), m.NewReport()
		m.Randomize(source(3, 1), direction(m.Facts().Dim, .3), used)
		m.Randomize(source(3, 2), x, used)
		m.Randomize(source(3, 2), x, fresh)
		if !slices.Equal(fresh.Index, used.Index) || !slices.Equal(fresh.Value, used.Value) {
			t.Error("a reused report keeps something of its past")
		}
	})
}

// Sums are exact integers: any order, any grouping.
func TestAddIsExact(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		const n = 40
		reports := make([]*Report, n)
		want := make([]int64, m.Facts().Dim)
		for i := range reports {
			reports[i] = m.NewReport()
			m.Randomize(source(4, uint64(i)), direction(m.Facts().Dim, 1), reports[i])
			for j, v := range reports[i].Value {
				if m.Facts().Name == "r1" { // a row of signs for each value
					for k := range want {
						want[k] += int64(v) * int64(1-2*(bits.OnesCount32(reports[i].Index[j]&uint32(k))&1))
					}
					continue
				}
				at := j
				if reports[i].Index != nil {
					at = int(reports[i].Index[j])
				}
				want[at] += int64(v)
			}
		}
		got := make([]int64, m.Facts().Dim)
		for i := n - 1; i >= 0; i-- {
			m.Add(got, reports[i])
		}
		if !slices.Equal(got, want) {
			t.Error("the sum is not the sum of the values")
		}
		mean := slices.Repeat([]float64{7}, m.Facts().Dim)
		m.Estimate(mean, got, 0)
		if slices.Max(mean) != 0 || slices.Min(mean) != 0 {
			t.Error("the estimate from no reports is not zero")
		}
	})
}

// Several goroutines may share a randomizer; meant for the race detector.
func TestConcurrentUse(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		x := direction(m.Facts().Dim, 1)
		want := m.NewReport()
		m.Randomize(source(5), x, want)
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for range 20 {
					r := m.NewReport()
					m.Randomize(source(5), x, r)
					if !slices.Equal(r.Value, want.Value) || !slices.Equal(r.Index, want.Index) {
						t.Error("the report depends on other goroutines")
					}
				}
			})
		}
		wg.Wait()
	})
}

func TestCheckRefuses(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		good := func() *Report {
			r := m.NewReport()
			m.Randomize(source(6), direction(m.Facts().Dim, 1), r)
			return r
		}
		if err := m.Check(good()); err != nil {
			t.Fatal(err)
		}
		for name, spoil := range map[string]func(r *Report){
			"empty":          func(r *Report) { *r = Report{} },
			"a value more":   func(r *Report) { r.Value = append(r.Value, 1) },
			"a value less":   func(r *Report) { r.Value = r.Value[1:] },
			"an index more":  func(r *Report) { r.Index = append(r.Index, 0) },
			"smallest int32": func(r *Report) { r.Value[len(r.Value)-1] = math.MinInt32 },
			"index d":        func(r *Report) { lastIndex(r, indices(m)) },
			"index max":      func(r *Report) { lastIndex(r, math.MaxUint32) },
			"index twice": func(r *Report) {
				if r.Index = append(r.Index, 0, 0); len(r.Index) > 3 {
					r.Index = r.Index[:len(r.Index)-2]
					r.Index[1] = r.Index[0]
				}
			},
		} {
			r := good()
			spoil(r)
			if m.Check(r) == nil {
				t.Errorf("%s: accepted", name)
			}
		}
		limit := int32(privUnitLimit)
		switch m := m.(type) {
		case *laplace:
			limit = int32(m.limit)
		case *DiscreteGaussian:
			limit = int32(m.limit)
		}
		beyond := []int32{math.MaxInt32, limit + 1, -limit - 1}
		if _, ok := m.(*seeded); ok {
			beyond = []int32{math.MinInt32} // all others may be honest
		}
		for _, v := range beyond {
			r := good()
			r.Value[0] = v
			if m.Check(r) == nil {
				t.Errorf("value %d: accepted", v)
			}
		}
	})
}

func lastIndex(r *Report, j uint32) {
	if r.Index == nil {
		r.Index = make([]uint32, 1)
	}
	r.Index[len(r.Index)-1] = j
}

// indices returns the first index that no report of m has.
func indices(m Mechanism) uint32 {
	if r, ok := m.(*r1); ok {
		return uint32(r.among)
	}
	return uint32(m.Facts().Dim)
}

// What a dishonest client can add is bounded by the length of honest reports,
// not only by each value's range: values of at most 1.125·2^16, a length of at
// most √d more.
func TestCheckBoundsTheLength(t *testing.T) {
	const dim, top = 700, 1.125 * (1 << 16)
	m := must(newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 1}))
	long := top + math.Sqrt(dim)
	for _, c := range []struct {
		each int32
		good bool
	}{{int32(long / math.Sqrt(dim)), true}, {int32(long/math.Sqrt(dim)) + 1, false}} {
		r := m.NewReport()
		for i := range r.Value {
			r.Value[i] = c.each * int32(1-2*(i&1))
		}
		if err := m.Check(r); (err == nil) != c.good {
			t.Errorf("a report of %d coordinates ±%d: %v", dim, c.each, err)
		}
	}
	for value, good := range map[int32]bool{top: true, -top: true, top + 1: false, -top - 1: false} {
		r := m.NewReport()
		r.Value[3] = value
		if err := m.Check(r); (err == nil) != good {
			t.Errorf("a report with value %d: %v", value, err)
		}
	}
}

func TestWrongLengthPanics(t *testing.T) {
	forEach(t, func(t *testing.T, m Mechanism) {
		panics := func(what string, dim int, change func(r *Report)) {
			t.Helper()
			r := m.NewReport()
			change(r)
			defer func() {
				if recover() == nil {
					t.Errorf("accepted %s", what)
				}
			}()
			m.Randomize(source(7), make([]float32, dim), r)
		}
		dim := m.Facts().Dim
		panics("an input one too long", dim+1, func(*Report) {})
		panics("an input one too short", dim-1, func(*Report) {})
		panics("a value more", dim, func(r *Report) { r.Value = append(r.Value, 0) })
		panics("a value less", dim, func(r *Report) { r.Value = r.Value[1:] })
		panics("an index more", dim, func(r *Report) { r.Index = append(r.Index, 0) })
		panics("an empty report", dim, func(r *Report) { *r = Report{} })
	})
}

package randomizer

import (
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

func unitOf(dim int, eps0 float64) *privUnit {
	return as[*privUnit](newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: eps0}))
}

// densities returns the density inside and outside the cap against the uniform
// law on the sphere, from the coin as it is thrown.
func (m *privUnit) densities() (inside, outside float64) {
	p := m.rare
	if !m.rareCap {
		p = 1 - p
	}
	return p / m.cap.mass, (1 - p) / (1 - m.cap.mass)
}

// The closed-form density: it integrates to 1, its ratio is E to rounding, and
// the event covers ratio and slack, with the slack small and growing with d.
func TestPrivUnitDensityRatio(t *testing.T) {
	for _, dim := range []int{1, 2, 3, 10, 100, 4420, 13706, 1_000_000} {
		for _, eps0 := range []float64{.01, .5, 1, 2, 3, 6, 12, 30, 49.9} {
			m := unitOf(dim, eps0)
			in, out := m.densities()
			if m.rareCap || m.rare > 1e-3 { // else 1−p has lost its digits
				if total := in*m.cap.mass + out*(1-m.cap.mass); math.Abs(total-1) > 1e-12 {
					t.Errorf("d = %d, eps0 = %v: density integrates to %v", dim, eps0, total)
				}
			}
			if !m.rareCap {
				out = m.rare / (1 - m.cap.mass)
				in = (1 - m.rare) / m.cap.mass
			}
			ratio := math.Log(in) - math.Log(out)
			if math.Abs(ratio-eps0) > 1e-13*math.Max(1, eps0) {
				t.Errorf("d = %d, eps0 = %v: log-ratio %.17g", dim, eps0, ratio)
			}
			got := m.Event()
			// The part in common is the density outside, less the slack.
			common := out * math.Exp(-privUnitSlack(dim))
			switch most := 1 / (math.Exp(got.Eps0) + 1); got.Class {
			case dp.Cap:
				if a := got.TV * math.Expm1(got.Eps0); a < 1-common-1e-15 || a > 1-common+2e-10 || got.TV >= most {
					t.Errorf("d = %d, eps0 = %v: event %+v, the inputs have %v in common", dim, eps0, got, common)
				}
			default:
				if got.Class != dp.Generic || got.TV != 0 || 1-common < .999*most*math.Expm1(got.Eps0) {
					t.Errorf("d = %d, eps0 = %v: event %+v, the inputs have %v in common", dim, eps0, got, common)
				}
			}
			if got.Eps0 < ratio-1e-13+privUnitSlack(dim) || got.Eps0 < eps0+privUnitSlack(dim) {
				t.Errorf("d = %d, eps0 = %v: event %+v does not cover %.17g", dim, eps0, got, ratio)
			}
			if got.Eps0 > eps0+1.000001*privUnitSlack(dim)+1e-13*eps0 {
				t.Errorf("d = %d, eps0 = %v: event %+v wastes", dim, eps0, got)
			}
		}
		if dim > 1 && privUnitSlack(dim) <= privUnitSlack(dim-1) {
			t.Errorf("the slack does not grow at d = %d", dim)
		}
	}
	for dim, limit := range map[int]float64{1: 1e-7, 100: 1e-6, 4420: 5e-6, 13706: 1.2e-5, 1_000_000: 3e-4} {
		if s := privUnitSlack(dim); !(s > 0 && s < limit) {
			t.Errorf("slack %.3g at d = %d, want below %v", s, dim, limit)
		}
	}
}

func TestPrivUnitRefusesEps0ThatSlackLiftsOver(t *testing.T) {
	if _, err := newPrivUnit(Config{Dim: 10, Radius: 1, Eps0: dp.MaxEps0}); err == nil {
		t.Error("a report of more than MaxEps0 was promised")
	}
}

// heightCDF returns P[⟨v,u⟩ ≤ t] for a uniform v.
func heightCDF(dim int, t float64) float64 {
	switch {
	case t >= 1:
		return 1
	case t <= -1:
		return 0
	case t > 0:
		return 1 - newSphereCap(dim, math.Acos(t)).mass
	}
	return newSphereCap(dim, math.Acos(-t)).mass
}

// heightQuantile inverts heightCDF: by bisection, then by secants that keep the bracket.
func heightQuantile(dim int, p float64) float64 {
	lo, hi, below, above := -1., 1., -p, 1-p
	for i := 0; hi-lo > 1e-14; i++ {
		at := (lo + hi) / 2
		if i > 10 && i%3 > 0 {
			at = (lo*above - hi*below) / (above - below)
		}
		switch f := heightCDF(dim, at) - p; {
		case math.Abs(f) < 1e-13*math.Min(p, 1-p):
			return at
		case f < 0:
			lo, below = at, f
		default:
			hi, above = at, f
		}
	}
	return (lo + hi) / 2
}

// edges returns cells for ⟨v,u⟩: k below the cap and k inside, each part cut
// into pieces of equal mass, so that the exact law gives every cell of a part
// the same probability.
func (m *privUnit) edges(k int) (edges, probs []float64) {
	quantile := func(p float64) float64 { return heightQuantile(m.facts.Dim, p) }
	in, out := m.densities()
	q := m.cap.mass
	for i := range k {
		edges = append(edges, quantile((1-q)*float64(i+1)/float64(k)))
		probs = append(probs, out*(1-q)/float64(k))
	}
	edges[k-1] = m.cap.cos
	for i := range k {
		if i < k-1 {
			edges = append(edges, quantile(1-q+q*float64(i+1)/float64(k)))
		}
		probs = append(probs, in*q/float64(k))
	}
	return edges, probs
}

func cell(edges []float64, t float64) int {
	lo := 0
	for lo < len(edges) && t >= edges[lo] {
		lo++
	}
	return lo
}

// The scalar part: t has the exact law, piecewise, on both ways of drawing a
// cap (q above and below 1/4) and of a uniform height (d below and above 128),
// and the sine belongs to it.
func TestPrivUnitHeightLaw(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(25_000, 300_000)
	for i, c := range []struct {
		dim  int
		eps0 float64
	}{{2, .5}, {2, 3}, {3, 4}, {10, 1}, {10, 8}, {127, 3}, {128, .5}, {128, 3}, {300, 6}, {4420, .5}, {4420, 3}, {4420, 10}, {1_000_000, 3}} {
		m := unitOf(c.dim, c.eps0)
		k := 20
		edges, probs := m.edges(k)
		counts := make([]int64, 2*k)
		runs := n
		if c.dim < 128 {
			runs /= 4
		}
		if testing.Short() {
			runs /= 16
		}
		src := source(50, uint64(i))
		inside := int64(0)
		for range runs {
			h, sin := m.height(src)
			if math.Abs(h*h+sin*sin-1) > 1e-14 || sin < 0 {
				t.Fatalf("cosine %v, sine %v", h, sin)
			}
			if h >= m.cap.cos {
				inside++
			}
			counts[cell(edges, h)]++
		}
		// A coin that is nearly always the same leaves too little for the cells
		// of its rare side.
		if probs[0]*float64(runs) < 10 {
			counts, probs = append(counts[k:], int64(runs)-inside), append(probs[k:], probs[0]*float64(k))
		}
		name := fmt.Sprintf("d = %d, eps0 = %v", c.dim, c.eps0)
		chiSquare(t, name, counts, probs)
		in, _ := m.densities()
		proportion(t, name+": inside", inside, int64(runs), in*m.cap.mass)
	}
}

// The whole report: ⟨v,u⟩ of the quantised vector has the exact law, and what
// is left is uniform across u: its coordinate along a fixed axis across u is
// one coordinate of a uniform point in one dimension less.
func TestPrivUnitReportLaw(t *testing.T) {
	for i, c := range []struct {
		dim  int
		eps0 float64
		n    int
	}{{2, 1, 100_000}, {2, 3, 100_000}, {3, 2, 100_000}, {10, 3, 100_000}, {200, 3, 60_000}, {4420, 3, 12_000}} {
		c.n /= longtest.Pick(4, 1) // of any number
		if testing.Short() {
			c.n /= 3
			if c.dim > 1000 {
				continue // the law of t alone is tested above
			}
		}
		name := fmt.Sprintf("d = %d, eps0 = %v", c.dim, c.eps0)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m := unitOf(c.dim, c.eps0)
			x := direction(c.dim, 1)
			// An axis across u: swap two coordinates with signs, the rest 0.
			axis := math.Hypot(float64(x[0]), float64(x[1]))
			k := 10
			edges, probs := m.edges(k)
			counts := make([]int64, 2*k)
			across, acrossProbs := make([]int64, 16), make([]float64, 16)
			acrossEdges := make([]float64, 15) // all 0 in two dimensions, where w is ±1
			for b := range acrossProbs {
				acrossProbs[b] = 1. / 16
				if b < 15 && c.dim > 2 {
					acrossEdges[b] = heightQuantile(c.dim-1, float64(b+1)/16)
				}
			}
			r, src := m.NewReport(), source(51, uint64(i))
			var size float64
			for _, v := range x {
				size += float64(v) * float64(v)
			}
			size = math.Sqrt(size)
			for range c.n {
				m.Randomize(src, x, r)
				var dot, square float64
				for j, v := range r.Value {
					dot += float64(v) * float64(x[j])
					square += float64(v) * float64(v)
				}
				long := math.Sqrt(square)
				h := dot / size / long
				counts[cell(edges, h)]++
				w := (float64(r.Value[0])*float64(x[1]) - float64(r.Value[1])*float64(x[0])) / axis / long / math.Sqrt(1-h*h)
				across[cell(acrossEdges, w)]++
			}
			chiSquare(t, name, counts, probs)
			if c.dim == 2 {
				across, acrossProbs = []int64{across[0], across[15]}, []float64{.5, .5}
			}
			chiSquare(t, name+", across", across, acrossProbs)
		})
	}
}

// refuted says whether the frequencies of cells under two inputs show, beyond
// chance, a likelihood ratio above e^eps0: if all ratios are at most E, the
// first input's share of a cell has probability at most E/(1+E).
func refuted(a, b []int64, eps0 float64) bool {
	p := 1 / (1 + math.Exp(-eps0))
	l := math.Log(1 / falseAlarm)
	over := func(hits, n int64) bool { // one-sided Bernstein
		return float64(hits) > p*float64(n)+l/3+math.Sqrt(l*l/9+2*l*p*(1-p)*float64(n))
	}
	for i := range a {
		if over(a[i], a[i]+b[i]) || over(b[i], a[i]+b[i]) {
			return true
		}
	}
	return false
}

// Frequencies of whole reports under opposite and other inputs do not refute
// ε₀; in one and two dimensions they do refute the same mechanism with a coin that
// is off by a fifth.
func TestPrivUnitRatioOfFrequencies(t *testing.T) {
	t.Parallel()
	n := longtest.Pick(80_000, 200_000)
	if testing.Short() {
		n /= 4
	}
	for i, dim := range []int{1, 2, 3} {
		const eps0 = 1.5
		x, y := direction(dim, 1), direction(dim, 1)
		for j := range y {
			y[j] = -y[j]
		}
		count := func(m *privUnit, x []float32, run uint64) []int64 {
			counts := make([]int64, 16)
			r, src := m.NewReport(), source(52, uint64(i), run)
			for range n {
				m.Randomize(src, x, r)
				// The angle in the plane of the first two coordinates.
				a := 0.
				if dim > 1 {
					a = float64(r.Value[1])
				}
				at := math.Atan2(a, float64(r.Value[0])) / (2 * math.Pi)
				counts[min(15, int(16*(at+.5)))]++
			}
			return counts
		}
		m := unitOf(dim, eps0)
		if refuted(count(m, x, 1), count(m, y, 2), m.Event().Eps0) {
			t.Errorf("d = %d: the frequencies refute eps0 = %v", dim, eps0)
		}
		if dim == 3 {
			continue // the projection blurs the ratio: no power
		}
		broken := *m
		broken.law = &broken
		broken.rare *= .8
		if !refuted(count(&broken, x, 3), count(&broken, y, 4), m.Event().Eps0) {
			t.Errorf("d = %d: a coin off by a fifth is not noticed", dim)
		}
	}
}

// ln R has the Laplace law that the slack relies on, seen in the reports of
// d = 1, where |value| is R in grid units, and directly.
func TestPrivUnitLengthLaw(t *testing.T) {
	n := 200_000
	src := source(53)
	counts, probs := make([]int64, 20), make([]float64, 20)
	var sum, square float64
	for range n {
		r := length(src)
		sum += r
		square += r * r
		x := math.Log(r) * lengthRate
		u := 1 - math.Exp(-x)/2
		if x < 0 {
			u = math.Exp(x) / 2
		}
		counts[min(19, int(20*u))]++
	}
	for b := range probs {
		probs[b] = .05
	}
	chiSquare(t, "length", counts, probs)
	// The moments that scale and MSE use: within 7 standard errors.
	k := float64(n)
	s := 1. / lengthRate
	if d := math.Abs(sum/k - 1/(1-s*s)); d > 7*math.Sqrt2*s/math.Sqrt(k) {
		t.Errorf("mean length off by %.3g", d)
	}
	if d := math.Abs(square/k - 1/(1-4*s*s)); d > 15*math.Sqrt2*s/math.Sqrt(k) {
		t.Errorf("mean squared length off by %.3g", d)
	}
	m := unitOf(1, 2)
	r := m.NewReport()
	for range 1000 {
		m.Randomize(src, []float32{.5}, r)
		if v := math.Abs(float64(r.Value[0])); v < privUnitUnit*.99 || v > privUnitUnit*1.01 {
			t.Fatalf("a report of d = 1 has value %v", r.Value[0])
		}
	}
}

// No memory per report beyond what re-keying the source takes.
func TestPrivUnitDoesNotAllocate(t *testing.T) {
	m := unitOf(100, 3)
	x, r, sum := direction(100, 1), m.NewReport(), make([]int64, 100)
	src := rng.Replay(1)
	m.Randomize(src, x, r)
	if n := testing.AllocsPerRun(200, func() {
		m.Randomize(src, x, r)
		m.Add(sum, r)
	}); n >= 1 { // the pool may be emptied by a collection
		t.Errorf("%v allocations per report", n)
	}
}

// The second and fourth moments of one coordinate, 1/d and 3/(d(d+2)), on both
// sides of the change of method, to 7 standard errors: fine enough to tell the
// exponent (d−3)/2 from its neighbours.
func TestUniformHeightMoments(t *testing.T) {
	t.Parallel()
	for i, dim := range []int{2, 3, 20, 127, 128, 200} {
		n := 2_000_000
		if dim < 128 {
			n = 8_000_000 / (dim + 8)
		}
		n /= longtest.Pick(5, 1) // whatever it is, 7 standard errors
		if testing.Short() {
			n /= 8
		}
		src := source(54, uint64(i))
		var m2, m4, m8 float64
		for range n {
			h, _ := uniformHeight(src, dim)
			s := h * h
			m2, m4, m8 = m2+s, m4+s*s, m8+s*s*s*s
		}
		k, d := float64(n), float64(dim)
		m2, m4, m8 = m2/k, m4/k, m8/k
		if want := 1 / d; math.Abs(m2-want) > 7*math.Sqrt((m4-m2*m2)/k) {
			t.Errorf("d = %d: second moment %.6g, want %.6g", dim, m2, want)
		}
		if want := 3 / (d * (d + 2)); math.Abs(m4-want) > 7*math.Sqrt((m8-m4*m4)/k) {
			t.Errorf("d = %d: fourth moment %.6g, want %.6g", dim, m4, want)
		}
	}
}

package randomizer

import (
	"fmt"
	"math"
	"testing"
)

// density returns the densities of StepUnit's levels with respect to the uniform law, from the
// probabilities that its coins have.
func (m *stepUnit) density() []float64 {
	whole := m.rare
	left := 1 - m.rare
	if m.rareCap {
		whole, left = left, whole
	}
	out := []float64{whole}
	for i, k := range m.caps {
		part := left
		if i < len(m.caps)-1 {
			part *= m.first[i]
			left *= 1 - m.first[i]
		}
		out = append(out, out[i]+part/k.mass)
	}
	return out
}

// The levels are 1 + w·j and add up to 1, and the promise is the ratio of the largest to the
// smallest.
func TestStepUnitLevels(t *testing.T) {
	for _, dim := range []int{1, 2, 5, 130, 4420} {
		for _, eps0 := range []float64{0x1p-20, .5, 2.834, 8} {
			for _, steps := range []int{1, 3, 16} {
				m := as[*stepUnit](newStepUnit(Config{Dim: dim, Radius: 1, Eps0: eps0, Steps: steps}))
				d := m.density()
				total, share := 0., 1.
				for j, k := range m.caps {
					total += d[j] * (share - k.mass)
					share = k.mass
				}
				last := len(m.caps)
				if total += d[last] * share; math.Abs(total-1) > 1e-12 {
					t.Errorf("d = %d, eps0 = %v: mass %v", dim, eps0, total)
				}
				for j := range d {
					if want := 1 + math.Expm1(eps0)/float64(last)*float64(j); math.Abs(d[j]/d[0]/want-1) > 1e-9 {
						t.Errorf("d = %d, eps0 = %v: level %d is %v, want %v", dim, eps0, j, d[j]/d[0], want)
					}
				}
				if got := m.Event().Eps0 - privUnitSlack(dim); !(got >= eps0 && got >= math.Log(d[last]/d[0])-1e-15 && got <= eps0+1e-9) {
					t.Errorf("d = %d: promises %v for %v", dim, got, eps0)
				}
			}
		}
	}
}

// Heights have the densities of the levels: chi-square over parts between the edges.
func TestStepUnitHeights(t *testing.T) {
	for i, dim := range []int{1, 2, 3, 40, 700} {
		m := as[*stepUnit](newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 2.834}))
		d := m.density()
		counts, probs := make([]int64, len(d)), make([]float64, len(d))
		if dim == 1 {
			counts, probs = make([]int64, 2), []float64{d[0] / 2, d[len(d)-1] / 2}
		} else {
			share := 1.
			for j := range d {
				next := 0.
				if j < len(m.caps) {
					next = m.caps[j].mass
				}
				probs[j] = d[j] * (share - next)
				share = next
			}
		}
		src := source(95, uint64(i))
		const n = 200_000
		var sum, squares float64
		for range n {
			h, sin := m.height(src)
			if math.Abs(h*h+sin*sin-1) > 1e-12 {
				t.Fatalf("height %v with sine %v", h, sin)
			}
			level := 0
			for level < len(counts)-1 && m.caps[min(level, len(m.caps)-1)].contains(h, sin) {
				level++
			}
			counts[level]++
			sum += h
			squares += h * h
		}
		chiSquare(t, fmt.Sprintf("d = %d", dim), counts, probs)
		if mean := sum / n; math.Abs(mean-m.mean) > 7*math.Sqrt(squares)/n {
			t.Errorf("d = %d: mean height %v, want %v", dim, mean, m.mean)
		}
	}
}

// With one edge at PrivUnit's cap it has PrivUnit's law.
func TestStepUnitOfOneStepIsPrivUnit(t *testing.T) {
	for _, dim := range []int{3, 40, 4420} {
		p := as[*privUnit](newPrivUnit(Config{Dim: dim, Radius: 1, Eps0: 3}))
		m := as[*stepUnit](newStepUnit(Config{Dim: dim, Radius: 1, Eps0: 3, Edges: []float64{p.cap.cos * math.Sqrt(float64(dim))}}))
		if f, g := m.Facts(), p.Facts(); math.Abs(f.MSE/g.MSE-1) > 1e-9 || f.Bits != g.Bits {
			t.Errorf("d = %d: %+v, want %+v", dim, f, g)
		}
		if a, b := m.MeanBound(100), p.MeanBound(100); !(a <= b*(1+1e-9) && a > .99*b) { // PrivUnit allows for a little more
			t.Errorf("d = %d: means of at most %v, PrivUnit's %v", dim, a, b)
		}
	}
}

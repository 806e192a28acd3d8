package amplify_test

import (
	"math"
	"math/rand/v2"
	"testing"
)

// simplex maximises c·x over Ax = b, x ≥ 0 with b ≥ 0 by the two-phase tableau
// with Bland's rule (which cannot cycle). Sizes here are a few by a few dozen.
func simplex(A [][]float64, b, c []float64) ([]float64, bool) {
	m, n := len(A), len(c)
	tab := make([][]float64, m+1)
	basis := make([]int, m)
	for i := range m {
		tab[i] = make([]float64, n+m+1)
		copy(tab[i], A[i])
		tab[i][n+i] = 1
		tab[i][n+m] = b[i]
		basis[i] = n + i
	}
	tab[m] = make([]float64, n+m+1)
	run := func(limit int) {
		for {
			col := -1
			for j := range limit {
				if tab[m][j] > 1e-12 {
					col = j
					break
				}
			}
			if col < 0 {
				return
			}
			row := -1
			for i := range m {
				if tab[i][col] > 1e-11 {
					if row < 0 {
						row = i
						continue
					}
					d := tab[i][n+m]/tab[i][col] - tab[row][n+m]/tab[row][col]
					if d < -1e-15 || d <= 1e-15 && basis[i] < basis[row] {
						row = i
					}
				}
			}
			if row < 0 {
				return // unbounded: cannot happen on a polytope
			}
			pivot(tab, row, col)
			basis[row] = col
		}
	}
	// Phase 1: maximise minus the sum of the artificials.
	for i := range m {
		for j := range n + m + 1 {
			if j < n || j == n+m {
				tab[m][j] += tab[i][j]
			}
		}
	}
	run(n)
	if math.Abs(tab[m][n+m]) > 1e-9 {
		return nil, false
	}
	clear(tab[m])
	copy(tab[m], c)
	for i, v := range basis {
		if v < n && tab[m][v] != 0 {
			f := tab[m][v]
			for j := range tab[m] {
				tab[m][j] -= f * tab[i][j]
			}
		}
	}
	run(n)
	x := make([]float64, n)
	for i, v := range basis {
		if v < n {
			x[v] = tab[i][n+m]
		}
	}
	return x, true
}

func pivot(tab [][]float64, row, col int) {
	f := tab[row][col]
	for j := range tab[row] {
		tab[row][j] /= f
	}
	for i := range tab {
		if i == row {
			continue
		}
		if f := tab[i][col]; f != 0 {
			for j := range tab[i] {
				tab[i][j] -= f * tab[row][j]
			}
		}
	}
}

// lpMechanism maximises a linear functional of the weights on rays over the
// whole ε₀-LDP polytope.
func lpMechanism(rs [][]float64, gain []float64) []float64 {
	inputs := len(rs[0])
	A, b := make([][]float64, inputs), make([]float64, inputs)
	for x := range A {
		b[x] = 1
		for _, v := range rs {
			A[x] = append(A[x], v[x])
		}
	}
	c, ok := simplex(A, b, gain)
	if !ok {
		panic("the LDP polytope is never empty")
	}
	return c
}

func weighted(rs [][]float64, c []float64) mechanism {
	m := make(mechanism, len(rs[0]))
	for x := range m {
		for s, v := range rs {
			m[x] = append(m[x], c[s]*v[x])
		}
	}
	return m
}

// climb searches for the mechanism that hurts most for these inputs, sampling
// (k of n) and ε: the divergence is a polynomial in the ray weights once the
// best event is fixed, so each step maximises its gradient by LP over the
// polytope and takes the best point on the way there. Every point visited is a
// true mechanism, so what it returns is an exact value, not an estimate.
func climb(r *rand.Rand, inputs, k int, eps0, eps float64, x0, x1 int, others []int) (float64, mechanism) {
	return climbOn(r, rays(inputs, math.Exp(eps0)), k, eps, x0, x1, others)
}

// climbOn is climb over all mechanisms that are made of the given rays.
func climbOn(r *rand.Rand, rs [][]float64, k int, eps float64, x0, x1 int, others []int) (float64, mechanism) {
	start := make([]float64, len(rs))
	for i := range start {
		start[i] = r.NormFloat64()
	}
	c := lpMechanism(rs, start)
	for i := range start { // not exactly at a vertex, so that gradients see all rays
		start[i] = r.NormFloat64()
	}
	for i, v := range lpMechanism(rs, start) {
		c[i] = 0.7*c[i] + 0.3*v
	}
	value := func(c []float64) float64 {
		a, b := weighted(rs, c).neighbours(x0, x1, others)
		return sampledPair(a, b, k).hockey(eps)
	}
	best := value(c)
	for range 25 {
		grad := gradient(rs, c, k, eps, x0, x1, others)
		to := lpMechanism(rs, grad)
		var bestC []float64
		for _, t := range []float64{1, .6, .3, .1, .03} {
			cand := make([]float64, len(c))
			for i := range c {
				cand[i] = (1-t)*c[i] + t*to[i]
			}
			if v := value(cand); v > best+1e-13 {
				best, bestC = v, cand
			}
		}
		if bestC == nil {
			break
		}
		c = bestC
	}
	return best, weighted(rs, c)
}

// gradient of Σ_{h in S}(P(h) − e^ε Q(h)) in the ray weights, S the best event
// at c: each client's row is linear in c, so its part is the value with that
// client's report fixed at one symbol.
func gradient(rs [][]float64, c []float64, k int, eps float64, x0, x1 int, others []int) []float64 {
	m := weighted(rs, c)
	a, b := m.neighbours(x0, x1, others)
	d := sampledPair(a, b, k)
	e := math.Exp(eps)
	in := make([]bool, len(d.p))
	for i := range in {
		in[i] = d.p[i] > e*d.q[i]
	}
	g := make([]float64, len(rs))
	side := func(rows [][]float64, first int, sign float64) {
		for i := range rows {
			x := first
			if i > 0 {
				x = others[i-1]
			}
			keep := rows[i]
			for y := range rs {
				unit := make([]float64, len(rs))
				unit[y] = 1
				rows[i] = unit
				for h, w := range sampledLaw(rows, k) {
					if in[h] {
						g[y] += sign * w * rs[y][x]
					}
				}
			}
			rows[i] = keep
		}
	}
	side(a, x0, 1)
	side(b, x1, -e)
	return g
}

// The LP and the vertex enumeration are two routes to the same optimum.
func TestSimplexAgainstVertices(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for inputs := 2; inputs <= 4; inputs++ {
		for range 20 {
			eps0 := 0.1 + 4*r.Float64()
			E := math.Exp(eps0)
			rs := rays(inputs, E)
			eps := (2*r.Float64() - 1) * eps0
			gain := make([]float64, len(rs))
			for s, v := range rs {
				gain[s] = max(v[0]-math.Exp(eps)*v[1], 0)
			}
			c := lpMechanism(rs, gain)
			got := 0.0
			for s := range c {
				got += c[s] * gain[s]
			}
			m := weighted(rs, c)
			if d := m.ldp(); d > eps0+1e-9 {
				t.Fatalf("eps0 = %v: LP mechanism has loss %v", eps0, d)
			}
			best := 0.0
			for _, v := range vertices(inputs, E) {
				best = max(best, pair{v[0], v[1]}.hockey(eps))
			}
			if math.Abs(got-best) > 1e-10 {
				t.Errorf("inputs %d eps0 %v eps %v: simplex %v, vertices %v", inputs, eps0, eps, got, best)
			}
			// One client: no ε₀-LDP mechanism beats binary randomized response.
			want := max((E-math.Exp(eps))/(E+1), 0)
			if eps < -eps0 {
				want = 1 - math.Exp(eps)
			}
			if math.Abs(got-want) > 1e-10 {
				t.Errorf("inputs %d eps0 %v eps %v: LP %v, randomized response %v", inputs, eps0, eps, got, want)
			}
		}
	}
}

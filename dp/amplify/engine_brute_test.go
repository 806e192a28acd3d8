package amplify_test

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// A mechanism is one ε₀-LDP randomizer as a matrix: row = input, column =
// output symbol, entry = probability.
type mechanism [][]float64

// A pair lists the outcomes' probabilities under the two neighbours.
type pair struct{ p, q []float64 }

// hockey is sup over events of P(S) − e^ε Q(S), by summing every outcome.
func (d pair) hockey(eps float64) float64 {
	e, sum, comp := math.Exp(eps), 0.0, 0.0
	for i, p := range d.p {
		if v := p - e*d.q[i]; v > 0 {
			y := v - comp // Kahan
			t := sum + y
			comp = t - sum - y
			sum = t
		}
	}
	return sum
}

func (d pair) swap() pair { return pair{d.q, d.p} }

// times is the product of two independent rounds.
func (d pair) times(o pair) pair {
	var out pair
	for i := range d.p {
		for j := range o.p {
			out.p = append(out.p, d.p[i]*o.p[j])
			out.q = append(out.q, d.q[i]*o.q[j])
		}
	}
	return out
}

// merged joins outcomes of equal likelihood ratio; nothing is lost by it.
func (d pair) merged() pair {
	idx := make([]int, 0, len(d.p))
	for i := range d.p {
		if d.p[i]+d.q[i] > 0 {
			idx = append(idx, i)
		}
	}
	share := func(i int) float64 { return d.p[i] / (d.p[i] + d.q[i]) }
	slices.SortFunc(idx, func(a, b int) int {
		if share(a) < share(b) {
			return -1
		} else if share(a) > share(b) {
			return 1
		}
		return 0
	})
	var out pair
	last := math.Inf(-1)
	for _, i := range idx {
		if s := share(i); s-last < 1e-14 {
			out.p[len(out.p)-1] += d.p[i]
			out.q[len(out.q)-1] += d.q[i]
		} else {
			out.p, out.q, last = append(out.p, d.p[i]), append(out.q, d.q[i]), s
		}
	}
	return out
}

// histogram is the exact law of the shuffled reports of these rows. The index
// is the mixed-radix number of the counts of all symbols but the last.
func histogram(rows [][]float64) []float64 {
	if len(rows) == 0 {
		return []float64{1}
	}
	base, symbols := len(rows)+1, len(rows[0])
	size := 1
	step := make([]int, symbols) // the last symbol moves the index by 0
	for y := 0; y < symbols-1; y++ {
		step[y] = size
		size *= base
	}
	cur, next := make([]float64, size), make([]float64, size)
	cur[0] = 1
	for _, row := range rows {
		clear(next)
		for h, w := range cur {
			if w == 0 {
				continue
			}
			for y, r := range row {
				next[h+step[y]] += w * r
			}
		}
		cur, next = next, cur
	}
	return cur
}

// subsets lists all k-subsets of 0..n-1.
func subsets(n, k int) [][]int {
	var out [][]int
	for mask := range uint(1) << n {
		if bits.OnesCount(mask) != k {
			continue
		}
		s := make([]int, 0, k)
		for i := range n {
			if mask>>i&1 == 1 {
				s = append(s, i)
			}
		}
		out = append(out, s)
	}
	return out
}

// sampledLaw shuffles the reports of a uniform k-subset of these clients.
func sampledLaw(rows [][]float64, k int) []float64 {
	var out []float64
	all := subsets(len(rows), k)
	for _, s := range all {
		var chosen [][]float64
		for _, i := range s {
			chosen = append(chosen, rows[i])
		}
		h := histogram(chosen)
		if out == nil {
			out = make([]float64, len(h))
		}
		for i, w := range h {
			out[i] += w / float64(len(all))
		}
	}
	return out
}

// neighbours are the rows of two datasets that differ in client 0.
func (m mechanism) neighbours(x0, x1 int, others []int) (a, b [][]float64) {
	a, b = [][]float64{m[x0]}, [][]float64{m[x1]}
	for _, x := range others {
		a, b = append(a, m[x]), append(b, m[x])
	}
	return a, b
}

func sampledPair(a, b [][]float64, k int) pair { return pair{sampledLaw(a, k), sampledLaw(b, k)} }

// checkInPair: each client joins with probability gamma; k is public.
func checkInPair(a, b [][]float64, gamma float64) pair {
	var out pair
	n := len(a)
	for k := 0; k <= n; k++ {
		w := float64(len(subsets(n, k))) * math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(n-k))
		d := sampledPair(a, b, k)
		for i := range d.p {
			out.p, out.q = append(out.p, w*d.p[i]), append(out.q, w*d.q[i])
		}
	}
	return out
}

// orderedPair shuffles the data and lets the randomizer depend on the ordered
// transcript so far (adaptive inside the round). next gives the mechanism
// after a history; all its mechanisms are ε₀-LDP on the same inputs.
func orderedPair(n, symbols int, x0, x1 int, others []int, next func(history []int) mechanism) pair {
	law := func(x []int) []float64 {
		perms := permutations(n)
		total := int(math.Pow(float64(symbols), float64(n)))
		out := make([]float64, total)
		hist := make([]int, n)
		for z := range out {
			for i, v := 0, z; i < n; i++ {
				hist[i] = v % symbols
				v /= symbols
			}
			ms := make([]mechanism, n)
			for i := range n {
				ms[i] = next(hist[:i])
			}
			for _, p := range perms {
				w := 1.0
				for i := range n {
					w *= ms[i][x[p[i]]][hist[i]]
				}
				out[z] += w / float64(len(perms))
			}
		}
		return out
	}
	return pair{law(append([]int{x0}, others...)), law(append([]int{x1}, others...))}
}

func permutations(n int) [][]int {
	if n == 0 {
		return [][]int{{}}
	}
	var out [][]int
	for _, p := range permutations(n - 1) {
		for i := 0; i <= len(p); i++ {
			out = append(out, slices.Insert(slices.Clone(p), i, n-1))
		}
	}
	return out
}

// krr is randomized response on K symbols.
func krr(K int, eps0 float64) mechanism {
	E := math.Exp(eps0)
	m := make(mechanism, K)
	for x := range m {
		m[x] = make([]float64, K)
		for y := range m[x] {
			m[x][y] = 1 / (E + float64(K) - 1)
		}
		m[x][x] *= E
	}
	return m
}

// rays are the extreme directions of the cone {v : v_x ≤ E v_x'}.
func rays(inputs int, E float64) [][]float64 {
	var out [][]float64
	for mask := 1; mask < 1<<inputs; mask++ { // mask 0 is parallel to full
		v := make([]float64, inputs)
		for x := range v {
			v[x] = 1
			if mask>>x&1 == 1 {
				v[x] = E
			}
		}
		out = append(out, v)
	}
	return out
}

// vertices are the extreme points of the ε₀-LDP polytope (outputs named by
// rays): nonnegative weights c on linearly independent rays with Σ c_s v_s = 1.
func vertices(inputs int, E float64) []mechanism {
	rs := rays(inputs, E)
	var out []mechanism
	for _, s := range subsets(len(rs), inputs) {
		A := make([][]float64, inputs)
		for x := range A {
			for _, j := range s {
				A[x] = append(A[x], rs[j][x])
			}
			A[x] = append(A[x], 1)
		}
		c, ok := gauss(A)
		if !ok || slices.Min(c) < -1e-12 {
			continue
		}
		m := make(mechanism, inputs)
		for i, j := range s {
			if c[i] > 1e-12 {
				for x := range m {
					m[x] = append(m[x], c[i]*rs[j][x])
				}
			}
		}
		out = append(out, m)
	}
	return out
}

// gauss solves the augmented square system by elimination with pivoting.
func gauss(A [][]float64) ([]float64, bool) {
	n := len(A)
	for c := range n {
		best := c
		for r := c + 1; r < n; r++ {
			if math.Abs(A[r][c]) > math.Abs(A[best][c]) {
				best = r
			}
		}
		A[c], A[best] = A[best], A[c]
		if math.Abs(A[c][c]) < 1e-10 {
			return nil, false
		}
		for r := range n {
			if r != c {
				f := A[r][c] / A[c][c]
				for j := c; j <= n; j++ {
					A[r][j] -= f * A[c][j]
				}
			}
		}
	}
	x := make([]float64, n)
	for i := range x {
		x[i] = A[i][n] / A[i][i]
	}
	return x, true
}

// randomMechanism draws a vertex, a mixture of vertices with public choice, or
// an interior point (a mixture sent through a random channel), with at most
// symbols outputs.
func randomMechanism(r *rand.Rand, verts []mechanism, symbols int) mechanism {
	m := verts[r.IntN(len(verts))]
	kind := r.IntN(3)
	if kind > 0 {
		o, t := verts[r.IntN(len(verts))], r.Float64()
		mix := make(mechanism, len(m))
		for x := range m {
			for _, v := range m[x] {
				mix[x] = append(mix[x], t*v)
			}
			for _, v := range o[x] {
				mix[x] = append(mix[x], (1-t)*v)
			}
		}
		m = mix
	}
	in := len(m[0])
	if kind < 2 && in <= symbols {
		return m
	}
	channel := make([][]float64, in)
	for y := range channel {
		channel[y] = make([]float64, symbols)
		if kind < 2 {
			channel[y][r.IntN(symbols)] = 1 // merge columns
			continue
		}
		var s float64
		for z := range channel[y] {
			channel[y][z] = math.Pow(r.Float64(), 8)
			s += channel[y][z]
		}
		for z := range channel[y] {
			channel[y][z] /= s
		}
	}
	out := make(mechanism, len(m))
	for x := range m {
		out[x] = make([]float64, symbols)
		for y, v := range m[x] {
			for z, c := range channel[y] {
				out[x][z] += v * c
			}
		}
	}
	return out
}

// ldp is the largest log-ratio of the mechanism; must not exceed ε₀.
func (m mechanism) ldp() float64 {
	worst := 0.0
	for _, a := range m {
		for _, b := range m {
			for y := range a {
				if a[y] > 0 {
					worst = max(worst, math.Log(a[y]/b[y]))
				}
			}
		}
	}
	return worst
}

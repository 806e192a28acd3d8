package account_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sort"
)

// Truth for tiny worlds, by listing every ordered output of every client and
// forgetting the order. Deliberately naive, and other than the engine of
// package amplify's tests.

type table [][]float64 // input × output

// tinyLaws are a round's exact laws under the two neighbours, keyed by outcome.
type tinyLaws struct{ p, q []float64 }

func tinyShuffle(m table, inputs []int) map[string]float64 {
	out := map[string]float64{}
	symbols := len(m[0])
	var walk func(i int, w float64, got []int)
	walk = func(i int, w float64, got []int) {
		if i == len(inputs) {
			s := slices.Clone(got)
			sort.Ints(s)
			out[fmt.Sprint(s)] += w
			return
		}
		for y := range symbols {
			walk(i+1, w*m[inputs[i]][y], append(got, y))
		}
	}
	walk(0, 1, nil)
	return out
}

// tinyRound: weight(k) is the chance that k clients report, a uniform k-subset.
func tinyRound(m table, first, second int, others []int, weight func(k int) float64) tinyLaws {
	n := len(others) + 1
	law := func(x int) map[string]float64 {
		data := append([]int{x}, others...)
		out := map[string]float64{}
		number := make([]float64, n+1)
		for mask := range 1 << n {
			number[bits.OnesCount(uint(mask))]++
		}
		for mask := range 1 << n {
			k := bits.OnesCount(uint(mask))
			w := weight(k) / number[k]
			if w == 0 {
				continue
			}
			var in []int
			for i := range n {
				if mask>>i&1 == 1 {
					in = append(in, data[i])
				}
			}
			for h, v := range tinyShuffle(m, in) {
				out[fmt.Sprint(k, h)] += w * v
			}
		}
		return out
	}
	a, b := law(first), law(second)
	var l tinyLaws
	keys := make([]string, 0, len(a))
	for h := range a {
		keys = append(keys, h)
	}
	sort.Strings(keys) // every output has positive mass under both
	for _, h := range keys {
		l.p, l.q = append(l.p, a[h]), append(l.q, b[h])
	}
	return l
}

func (l tinyLaws) then(o tinyLaws) tinyLaws {
	type bin struct{ p, q float64 }
	bins := map[int64]*bin{}
	var order []int64
	for i := range l.p {
		for j := range o.p {
			p, q := l.p[i]*o.p[j], l.q[i]*o.q[j]
			key := int64(math.Round(math.Log(p/q) * 1e11)) // equal losses join
			if bins[key] == nil {
				bins[key] = &bin{}
				order = append(order, key)
			}
			bins[key].p += p
			bins[key].q += q
		}
	}
	slices.Sort(order)
	var out tinyLaws
	for _, k := range order {
		out.p, out.q = append(out.p, bins[k].p), append(out.q, bins[k].q)
	}
	return out
}

// delta is the larger hockey-stick of the two orders.
func (l tinyLaws) delta(eps float64) float64 {
	e := math.Exp(eps)
	var a, b float64
	for i, p := range l.p {
		a += max(p-e*l.q[i], 0)
		b += max(l.q[i]-e*p, 0)
	}
	return max(a, b)
}

// tinyMechanism is randomized response on K symbols (K ≥ 2) or, for K = 0, a
// random vertex-like mechanism with three inputs and outputs, made ε₀-LDP by
// mixing two-valued columns until the rows sum to one.
func tinyMechanism(r *rand.Rand, K int, eps0 float64) table {
	E := math.Exp(eps0)
	if K > 0 {
		m := make(table, max(K, 3)) // inputs beyond K repeat the last symbol
		for x := range m {
			m[x] = make([]float64, K)
			for y := range m[x] {
				m[x][y] = 1 / (E + float64(K) - 1)
			}
			m[x][min(x, K-1)] *= E
		}
		return m
	}
	// Output y is "high" for a subset of the inputs; the complement subset gets
	// the matching column, so each pair of columns sums to a constant.
	m := table{nil, nil, nil}
	left := 1.0
	for i := range 2 {
		w := left
		if i == 0 {
			w = r.Float64()
			left -= w
		}
		mask := 1 + r.IntN(6)
		for x := range m {
			hi, lo := w*E/(E+1), w/(E+1)
			if mask>>x&1 == 1 {
				m[x] = append(m[x], hi, lo)
			} else {
				m[x] = append(m[x], lo, hi)
			}
		}
	}
	return m
}

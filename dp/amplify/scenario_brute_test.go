package amplify_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

// A curve is a claimed upper bound on δ at every real ε.
type curve func(eps float64) float64

// tolerance allows for rounding in the exact side; nothing else.
const tolerance = 1e-12

// excess is how far the truth rises above the claim, over a grid of ε of both
// signs and both orders of the neighbours. Positive means: not a bound.
func excess(d pair, eps0 float64, claim curve) (gap, at float64) {
	gap = math.Inf(-1)
	d = d.merged()
	other := d.swap()
	for i := -14; i <= 14; i++ {
		// Dense near 0, where sampled rounds live.
		eps := 1.05 * eps0 * math.Copysign(math.Pow(math.Abs(float64(i))/14, 1.7), float64(i))
		most := claim(eps)
		for _, o := range []pair{d, other} {
			if g := o.hockey(eps) - most; g > gap || math.IsNaN(g) {
				gap, at = g, eps
				if math.IsNaN(g) {
					return math.Inf(1), at
				}
			}
		}
	}
	return gap, at
}

// A scenario is one concrete shuffled round with its exact pair of laws.
type scenario struct {
	name  string
	n, k  int     // k = n: everybody reports; k = 0: check-in
	gamma float64 // check-in only
	eps0  float64
	exact pair
	tv    float64 // total-variation parameter; 0: not known
	rr    int     // symbols, if it is randomized response
}

// variation is the total-variation parameter of a mechanism.
func (m mechanism) variation(eps0 float64) float64 {
	var tv float64
	for _, x := range m {
		for _, y := range m {
			tv = max(tv, pair{x, y}.hockey(0))
		}
	}
	return min(tv/math.Expm1(eps0)*(1+1e-12), 1/(math.Exp(eps0)+1))
}

// scenarios enumerates all k ≤ n ≤ 5 with random mechanisms, neighbours and
// other clients (third inputs included), plus the mechanisms known to be bad,
// plus check-in and transcripts that are adaptive inside the round.
func scenarios(seed uint64, perSize int, visit func(scenario)) { scenariosTo(5, seed, perSize, visit) }

func scenariosTo(most int, seed uint64, perSize int, visit func(scenario)) {
	r := rand.New(rand.NewPCG(seed, 7))
	verts := map[int]map[float64][]mechanism{2: {}, 3: {}, 4: {}}
	levels := []float64{0.2, 1, 3}
	for in := range verts {
		for _, e0 := range levels {
			verts[in][e0] = vertices(in, math.Exp(e0))
		}
	}
	emit := func(label string, m mechanism, rr int, eps0 float64, x0, x1 int, others []int) {
		tv := m.variation(eps0)
		a, b := m.neighbours(x0, x1, others)
		n := len(a)
		for k := 1; k <= n; k++ {
			visit(scenario{fmt.Sprintf("%s k=%d x=%d/%d others=%v", label, k, x0, x1, others), n, k, 0, eps0, sampledPair(a, b, k), tv, rr})
		}
		for _, g := range []float64{0.2, 0.7} {
			visit(scenario{fmt.Sprintf("%s check-in x=%d/%d others=%v", label, x0, x1, others), n, 0, g, eps0, checkInPair(a, b, g), tv, rr})
		}
	}
	for n := 1; n <= most; n++ {
		for _, e0 := range levels {
			for range perSize {
				in := 2 + r.IntN(3)
				m := randomMechanism(r, verts[in][e0], 3+r.IntN(2))
				x0 := r.IntN(in)
				x1 := (x0 + 1 + r.IntN(in-1)) % in
				others := make([]int, n-1)
				same := r.IntN(2) == 0
				for i := range others {
					others[i] = r.IntN(in)
					if same {
						others[i] = others[0]
					}
				}
				emit(fmt.Sprintf("random %d-input n=%d", in, n), m, 0, e0, x0, x1, others)
			}
			for K := 2; K <= 4; K++ {
				for x := range K {
					others := make([]int, n-1)
					for i := range others {
						others[i] = x
					}
					emit(fmt.Sprintf("%d-RR n=%d", K, n), krr(K, e0), K, e0, 0, 1, others)
				}
			}
		}
	}
	for range 4 * perSize {
		e0, n := levels[r.IntN(3)], 2+r.IntN(2)
		in := 2 + r.IntN(2)
		others := make([]int, n-1)
		for i := range others {
			others[i] = r.IntN(in)
		}
		table := map[string]mechanism{}
		next := func(h []int) mechanism {
			key := fmt.Sprint(h)
			if table[key] == nil {
				m := randomMechanism(r, verts[in][e0], 3)
				for x := range m { // a fixed number of symbols
					for len(m[x]) < 3 {
						m[x] = append(m[x][:len(m[x]):len(m[x])], 0)
					}
				}
				table[key] = m
			}
			return table[key]
		}
		visit(scenario{fmt.Sprintf("adaptive n=%d others=%v", n, others), n, n, 0, e0, orderedPair(n, 3, 0, 1, others, next), 0, 0})
	}
}

// The reference below is written from the design text with plain loops. It
// serves as the sound starting point that the mutants break.

// refShuffle is the clones pair with clone rate rate.
func refShuffle(k int, eps0, rate float64) pair {
	E := math.Exp(eps0)
	hi, lo := E/(E+1), 1/(E+1)
	var out pair
	for c := range k {
		pc := choose(k-1, c) * math.Pow(rate, float64(c)) * math.Pow(1-rate, float64(k-1-c))
		for a := 0; a <= c+1; a++ {
			// First side holds a: either a of the c clones and the victim on
			// the second side, or a-1 and the victim on the first.
			second, first := choose(c, a)*math.Pow(.5, float64(c)), choose(c, a-1)*math.Pow(.5, float64(c))
			out.p = append(out.p, pc*(first*hi+second*lo))
			out.q = append(out.q, pc*(first*lo+second*hi))
		}
	}
	return out
}

func choose(n, k int) float64 {
	if k < 0 || k > n {
		return 0
	}
	v := 1.0
	for i := 1; i <= k; i++ {
		v = v * float64(n-k+i) / float64(i)
	}
	return v
}

// refSampled is the two-sided hybrid as atoms.
func refSampled(d pair, g float64) pair {
	rest := 1.0
	var out pair
	for i, p := range d.p {
		if q := d.q[i]; p > q {
			u := (1-g)*q + g*p
			out.p, out.q = append(out.p, u, q), append(out.q, q, u)
			rest -= u + q
		}
	}
	out.p, out.q = append(out.p, rest), append(out.q, rest)
	return out
}

// oneSided is the hybrid without its mirror image: the classical mistake.
func oneSided(d pair, g float64) pair {
	var out pair
	for i, p := range d.p {
		out.p, out.q = append(out.p, (1-g)*d.q[i]+g*p), append(out.q, d.q[i])
	}
	return out
}

func blanketRate(eps0 float64) float64 { return 2 / (math.Exp(eps0) + 1) }

// refCheckIn mixes over k with the given inclusion probability.
func refCheckIn(n int, gamma, eps0 float64, inclusion func(k int) float64) pair {
	var out pair
	for k := 0; k <= n; k++ {
		w := choose(n, k) * math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(n-k))
		d := pair{[]float64{1}, []float64{1}}
		if k > 0 {
			d = refSampled(refShuffle(k, eps0, blanketRate(eps0)), inclusion(k))
		}
		for i := range d.p {
			out.p, out.q = append(out.p, w*d.p[i]), append(out.q, w*d.q[i])
		}
	}
	return out
}

// refClaim is the sound bound for a scenario.
func refClaim(s scenario) curve {
	if s.k == 0 {
		return refCheckIn(s.n, s.gamma, s.eps0, func(k int) float64 { return float64(k) / float64(s.n) }).merged().hockey
	}
	d := refShuffle(s.k, s.eps0, blanketRate(s.eps0))
	return refSampled(d, float64(s.k)/float64(s.n)).merged().hockey
}

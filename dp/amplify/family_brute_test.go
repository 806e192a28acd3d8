package amplify_test

import (
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// refThree lists the three-part pair of k reports by its multinomials: a victim
// with (Ea, a, w) against (a, Ea, w) and others with (a, a, w/c), told apart.
func refThree(k int, eps0, a, c float64) pair {
	E := math.Exp(eps0)
	w := 1 - a*(E+1)
	var out pair
	for n0 := 0; n0 <= k; n0++ {
		for n1 := 0; n0+n1 <= k; n1++ {
			for nb := 0; n0+n1+nb <= k; nb++ {
				rest := k - n0 - n1 - nb
				if rest == k {
					continue
				}
				// Others' multinomial with the victim in each place.
				multi := func(x, y, z int) float64 {
					if x < 0 || y < 0 || z < 0 {
						return 0
					}
					return choose(k-1, x) * choose(k-1-x, y) * choose(k-1-x-y, z) *
						math.Pow(a, float64(x+y)) * math.Pow(w/c, float64(z)) * math.Pow(1-2*a-w/c, float64(rest))
				}
				first, second, third := multi(n0-1, n1, nb), multi(n0, n1-1, nb), multi(n0, n1, nb-1)
				out.p = append(out.p, E*a*first+a*second+w*third)
				out.q = append(out.q, a*first+E*a*second+w*third)
			}
		}
	}
	return out
}

func familyRound(t *testing.T, f amplify.Family, n, k int) curve {
	t.Helper()
	p, err := f.Round(amplify.FamilyRound{Population: int64(n), Reports: int64(k)})
	if err != nil {
		t.Fatal(err)
	}
	return pairCurve(p)
}

func must(f amplify.Family, err error) amplify.Family {
	if err != nil {
		panic(err)
	}
	return f
}

// The merged laws lose next to nothing against the multinomials, and never gain.
func TestThreePartAgainstMultinomials(t *testing.T) {
	for _, eps0 := range longtest.Pick([]float64{.05, 2, 9}, []float64{.05, .7, 2, 4, 9}) {
		E := math.Exp(eps0)
		for _, k := range []int{1, 2, 3, 8, 25} {
			type variant struct {
				name string
				f    amplify.Family
				a, c float64
			}
			var all []variant
			for _, K := range []int{2, 3, 5, 40} {
				all = append(all, variant{fmt.Sprint("krr ", K), must(amplify.KRR(eps0, K)), 1 / (E + float64(K) - 1), 1})
			}
			for _, share := range []float64{1e-3, .3, .8, 1} {
				a := share / (E + 1)
				all = append(all, variant{fmt.Sprint("tv ", share), must(amplify.KnownTV(eps0, a)), a, E})
			}
			for _, v := range all {
				exact := refThree(k, eps0, v.a, v.c).merged()
				for _, n := range []int{k, 4 * k} {
					ref := refSampled(exact, float64(k)/float64(n)).merged().hockey
					if n == k {
						ref = exact.hockey
					}
					got := familyRound(t, v.f, n, k)
					top := math.Log1p(float64(k) / float64(n) * (E - 1))
					for _, s := range []float64{-.7, -.1, 0, .01, .1, .3, .6, .9} {
						x, want, back := got(s*top), ref(s*top), ref(s*top*(1-math.Copysign(4e-3, s)))
						if !(x >= want-tolerance) {
							t.Errorf("%s eps0=%v k=%d n=%d eps=%v: %.15g below exact %.15g", v.name, eps0, k, n, s*top, x, want)
						}
						if !(x <= back*1.003+1e-13) {
							t.Errorf("%s eps0=%v k=%d n=%d eps=%v: %.15g costs more than .2 %% of eps: %.15g, there %.15g", v.name, eps0, k, n, s*top, x, want, back)
						}
					}
				}
			}
		}
	}
}

// K-RR itself, K = 2 … 6, others on any inputs, all of them and k of n.
func TestKRRAgainstExact(t *testing.T) {
	r := rand.New(rand.NewPCG(41, 1))
	worst, near := math.Inf(-1), 0.
	for K := 2; K <= 6; K++ {
		for _, eps0 := range []float64{.2, 1, 3} {
			m := krr(K, eps0)
			f := must(amplify.KRR(eps0, K))
			for n := 1; n <= 6; n++ {
				if K >= 5 && n == 6 {
					continue
				}
				claims := make([]curve, n+1)
				for k := 1; k <= n; k++ {
					claims[k] = familyRound(t, f, n, k)
				}
				for rep := range 3 {
					others := make([]int, n-1)
					for i := range others {
						others[i] = K - 1
						if rep > 0 {
							others[i] = r.IntN(K)
						}
					}
					a, b := m.neighbours(0, 1, others)
					for k := 1; k <= n; k++ {
						claim := claims[k]
						d := sampledPair(a, b, k)
						gap, at := excess(d, eps0, claim)
						worst = max(worst, gap)
						if gap > tolerance {
							t.Errorf("K=%d eps0=%v n=%d k=%d others=%v eps=%v: truth exceeds by %v", K, eps0, n, k, others, at, gap)
						}
						if k > 2 {
							near = max(near, d.hockey(.2*eps0)/claim(.2*eps0))
						}
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; truth reaches %.3f of the bound", worst, near)
	if near < .8 {
		t.Errorf("the exact shuffles reach only %v of the bound: a weak comparison", near)
	}
}

// Published variation-ratio code takes for K-RR what holds for fewer symbols:
// n = 200, ε₀ = 3, K = 20, where the ε it gives at δ = 1e-9 has a true δ of 3.9e-9.
func TestKRRTwentySymbols(t *testing.T) {
	const n, eps0, K, delta = 200, 3, 20, 1e-9
	got := familyRound(t, must(amplify.KRR(eps0, K)), n, n)
	// The exact pair given (n′, b), with nothing merged.
	E := math.Exp(float64(eps0))
	exact := func(eps float64) float64 {
		var sum float64
		g, a := math.Exp(eps), 1/(E+K-1)
		visit := func(weight float64, pairs, third int) {
			for n0 := 0; n0 <= pairs; n0++ {
				d, c := float64(2*n0-pairs), float64(pairs)+2/(E+1)*float64(third)
				v := (E - 1) / (E + 1) * d / c // P and Q are 1 ± v
				if x := (1 + v) - g*(1-v); x > 0 {
					sum += weight * choose(pairs, n0) * math.Pow(.5, float64(pairs)) * x
				}
			}
		}
		for i := 0; i < n; i++ {
			wi := choose(n-1, i) * math.Pow(2*a, float64(i)) * math.Pow(1-2*a, float64(n-1-i))
			for j := 0; i+j < n; j++ {
				q := (K - 2) * a / (1 - 2*a)
				w := wi * choose(n-1-i, j) * math.Pow(q, float64(j)) * math.Pow(1-q, float64(n-1-i-j))
				if w < 1e-16 {
					continue
				}
				visit(w*a*(E+1), i+1, j)
				visit(w*(K-2)*a, i, j+1)
			}
		}
		return sum
	}
	lo, hi := 0., float64(eps0)
	for range 50 {
		if mid := (lo + hi) / 2; got(mid) <= delta {
			hi = mid
		} else {
			lo = mid
		}
	}
	at := exact(hi)
	t.Logf("eps = %.6f at delta = %v; exact delta there %.4g", hi, delta, at)
	if !(at <= delta) || at < .95*delta {
		t.Errorf("eps = %v at delta = %v, but the blanket's delta there is %v", hi, delta, at)
	}
}

// A randomizer whose total variation is known: random mechanisms.
func TestKnownTVAgainstRandomMechanisms(t *testing.T) {
	r := rand.New(rand.NewPCG(42, 1))
	levels := []float64{.2, 1, 3}
	verts := map[[2]int][]mechanism{}
	for in := 2; in <= 4; in++ {
		for l, e0 := range levels {
			verts[[2]int{in, l}] = vertices(in, math.Exp(e0))
		}
	}
	reps := longtest.Pick(25, 60)
	if testing.Short() {
		reps = 20
	}
	worst, wrong := math.Inf(-1), 0
	for range reps {
		for l, eps0 := range levels {
			in, n := 2+r.IntN(3), 1+r.IntN(5)
			m := randomMechanism(r, verts[[2]int{in, l}], 3+r.IntN(2))
			var tv float64
			for _, x := range m {
				for _, y := range m {
					tv = max(tv, pair{x, y}.hockey(0))
				}
			}
			a := math.Min(tv/math.Expm1(eps0), 1/(math.Exp(eps0)+1)) * (1 - 1e-13)
			if a < 1e-3/(math.Exp(eps0)+1) {
				continue
			}
			f, low := must(amplify.KnownTV(eps0, a)), must(amplify.KnownTV(eps0, .8*a))
			others := make([]int, n-1)
			for i := range others {
				others[i] = r.IntN(in)
			}
			rowsA, rowsB := m.neighbours(0, 1+r.IntN(in-1), others)
			for k := 1; k <= n; k++ {
				d := sampledPair(rowsA, rowsB, k)
				gap, at := excess(d, eps0, familyRound(t, f, n, k))
				worst = max(worst, gap)
				if gap > tolerance {
					t.Errorf("eps0=%v a=%v n=%d k=%d eps=%v: truth exceeds by %v", eps0, a, n, k, at, gap)
				}
				if gap, _ := excess(d, eps0, familyRound(t, low, n, k)); gap > 1e-6 {
					wrong++
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; four fifths of the parameter is refuted %d times", worst, wrong)
	if wrong == 0 {
		t.Error("a parameter too small is never refuted: the comparison is blind")
	}
}

// Rounds whose number of reports is up to chance.
func TestFamiliesCheckIn(t *testing.T) {
	for _, eps0 := range []float64{.4, 2} {
		E := math.Exp(eps0)
		for n := 1; n <= 6; n++ {
			for _, gamma := range []float64{.15, .6, 1} {
				for name, v := range map[string]struct {
					f    amplify.Family
					a, c float64
				}{
					"krr": {must(amplify.KRR(eps0, 5)), 1 / (E + 4), 1},
					"tv":  {must(amplify.KnownTV(eps0, .4/(E+1))), .4 / (E + 1), E},
				} {
					var ref pair
					for k := 0; k <= n; k++ {
						w := choose(n, k) * math.Pow(gamma, float64(k)) * math.Pow(1-gamma, float64(n-k))
						d := pair{[]float64{1}, []float64{1}}
						if k > 0 {
							d = refSampled(refThree(k, eps0, v.a, v.c).merged(), float64(k)/float64(n))
						}
						for i := range d.p {
							ref.p, ref.q = append(ref.p, w*d.p[i]), append(ref.q, w*d.q[i])
						}
					}
					p, err := v.f.Arrival(amplify.FamilyArrival{Population: int64(n), Asked: int64(n), Gamma: gamma})
					if err != nil {
						t.Fatal(err)
					}
					if gap, at := excess(ref, eps0, pairCurve(p)); gap > tolerance || gap < -.01 {
						t.Errorf("%s eps0=%v n=%d gamma=%v eps=%v: exact - bound = %v", name, eps0, n, gamma, at, gap)
					}
				}
			}
		}
	}
}

// Colluders tell which of them were drawn and what they sent. Exact mixtures over
// the colluders drawn; and ignoring them is refuted.
func TestColludersAgainstExact(t *testing.T) {
	worst, ignored := math.Inf(-1), 0.
	for _, eps0 := range []float64{.5, 2} {
		f := must(amplify.ClonesFamily(eps0, amplify.Blanket(eps0)))
		for _, K := range []int{2, 3} {
			m := krr(K, eps0)
			for n := 2; n <= 6; n++ {
				for c := 0; c < n; c++ {
					for k := 1; k <= n; k++ {
						// Client 0 is the victim, the last c collude.
						others := make([]int, n-1)
						for i := range others {
							others[i] = K - 1
						}
						a, b := m.neighbours(0, 1, others)
						law := func(rows [][]float64) []float64 {
							parts := map[int][]float64{}
							all := 0.
							for mask := range 1 << n {
								if bits.OnesCount(uint(mask)) != k {
									continue
								}
								all++
								var in [][]float64
								for i := range n - c {
									if mask>>i&1 == 1 {
										in = append(in, rows[i])
									}
								}
								key := mask >> (n - c)
								h := histogram(in)
								if parts[key] == nil {
									parts[key] = make([]float64, len(h))
								}
								for i, w := range h {
									parts[key][i] += w
								}
							}
							var out []float64
							for key := range 1 << c {
								for _, w := range parts[key] {
									out = append(out, w/all)
								}
							}
							return out
						}
						d := pair{law(a), law(b)}
						var p dp.Pair
						var err error
						if c == 0 {
							p, err = f.Round(amplify.FamilyRound{Population: int64(n), Reports: int64(k)})
						} else {
							p, err = f.Arrival(amplify.FamilyArrival{Population: int64(n), Asked: int64(k), Gamma: 1, Colluders: int64(c)})
						}
						if err != nil {
							t.Fatal(err)
						}
						gap, at := excess(d, eps0, pairCurve(p))
						worst = max(worst, gap)
						if gap > tolerance {
							t.Errorf("%d-RR eps0=%v n=%d k=%d c=%d eps=%v: truth exceeds by %v", K, eps0, n, k, c, at, gap)
						}
						gap, _ = excess(d, eps0, familyRound(t, f, n, k))
						ignored = max(ignored, gap)
					}
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; above the bound that ignores colluders by %.3g", worst, ignored)
	if ignored < 1e-2 {
		t.Errorf("colluders never matter (%v): the comparison is blind", ignored)
	}
}

// Colluders among sampled clients of whom each drops out with the same chance: all draws and all
// arrivals; and ignoring colluders is refuted.
func TestColludersAndDropoutsAgainstExact(t *testing.T) {
	worst, ignored := math.Inf(-1), 0.
	for _, gamma := range []float64{.3, .8} {
		const eps0, K = 1.5, 3
		f := must(amplify.ClonesFamily(eps0, amplify.Blanket(eps0)))
		m := krr(K, eps0)
		for n := 2; n <= 5; n++ {
			for c := 1; c < n; c++ {
				for k := 1; k <= n; k++ {
					others := make([]int, n-1)
					for i := range others {
						others[i] = K - 1
					}
					a, b := m.neighbours(0, 1, others)
					law := func(rows [][]float64) (out []float64) {
						parts := map[int][]float64{}
						all := choose(n, k)
						for mask := range 1 << n {
							if bits.OnesCount(uint(mask)) != k {
								continue
							}
							honest := mask & (1<<(n-c) - 1)
							for came := range 1 << (n - c) {
								if came&^honest != 0 {
									continue
								}
								lost := bits.OnesCount(uint(honest &^ came))
								w := math.Pow(gamma, float64(bits.OnesCount(uint(came)))) * math.Pow(1-gamma, float64(lost)) / all
								var in [][]float64
								for i := range n - c {
									if came>>i&1 == 1 {
										in = append(in, rows[i])
									}
								}
								// Seen: which colluders were drawn, and the reports that came.
								key := mask>>(n-c)*8 + len(in)
								h := histogram(in)
								if parts[key] == nil {
									parts[key] = make([]float64, len(h))
								}
								for i, x := range h {
									parts[key][i] += w * x
								}
							}
						}
						for key := range 8 << c {
							out = append(out, parts[key]...)
						}
						return out
					}
					d := pair{law(a), law(b)}
					arrival := func(c int, gamma float64) curve {
						p, err := f.Arrival(amplify.FamilyArrival{Population: int64(n), Asked: int64(k), Gamma: gamma, Colluders: int64(c)})
						if err != nil {
							t.Fatal(err)
						}
						return pairCurve(p)
					}
					gap, at := excess(d, eps0, arrival(c, gamma))
					if worst = max(worst, gap); gap > tolerance {
						t.Errorf("gamma=%v n=%d k=%d c=%d eps=%v: truth exceeds by %v", gamma, n, k, c, at, gap)
					}
					gap, _ = excess(d, eps0, arrival(0, gamma))
					ignored = max(ignored, gap)
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; above the bound that ignores colluders by %.3g", worst, ignored)
	if ignored < 1e-3 || worst < -1e-3 {
		t.Errorf("colluders never matter (%v), or the bound is far (%v): the comparison is blind", ignored, worst)
	}
}

// Laplace noise: the total variation of products of discrete laws is at most what
// the class claims, and shuffles of binned reports stay below the bound.
func TestLaplaceClass(t *testing.T) {
	overlap := func(t float64, s int) float64 { // one coordinate shifted by s steps, by summing
		alpha := math.Exp(-1 / t)
		var sum float64
		for k := -int(60 * t); k <= s+int(60*t); k++ {
			sum += (1 - alpha) / (1 + alpha) * math.Min(math.Pow(alpha, math.Abs(float64(k))), math.Pow(alpha, math.Abs(float64(k-s))))
		}
		return sum
	}
	for _, scale := range []float64{.7, 3, 40} {
		for s := 1; s <= 9; s++ {
			want := math.Exp(-float64(s)/(2*scale)) / math.Pow(math.Cosh(1/(2*scale)), float64(s%2))
			if got := overlap(scale, s); math.Abs(got-want) > 1e-12 {
				t.Errorf("scale %v, shift %d: overlap %v, by the note %v", scale, s, got, want)
			}
		}
	}
	// Two coordinates share what is one shift of the sum at most.
	law := func(scale float64, s, k int) float64 {
		alpha := math.Exp(-1 / scale)
		return (1 - alpha) / (1 + alpha) * math.Pow(alpha, math.Abs(float64(k-s)))
	}
	for _, s := range [][2]int{{1, 1}, {2, 1}, {3, 4}} {
		const scale = 3.
		var both float64
		for x := -150; x <= 150; x++ {
			for y := -150; y <= 150; y++ {
				both += math.Min(law(scale, 0, x)*law(scale, 0, y), law(scale, s[0], x)*law(scale, s[1], y))
			}
		}
		if least := overlap(scale, s[0]) * overlap(scale, s[1]); both < least-1e-12 {
			t.Errorf("shifts %v: overlap %v below the product %v", s, both, least)
		}
	}
	worst, near := math.Inf(-1), 0.
	for _, eps0 := range []float64{.3, 1, 3} {
		f := must(amplify.Laplace(eps0))
		below := func(x, at float64) float64 { // scale 2/ε₀, inputs in [−1, 1]
			d := (at - x) * eps0 / 2
			if d < 0 {
				return math.Exp(d) / 2
			}
			return 1 - math.Exp(-d)/2
		}
		cuts := []float64{-1, 0, 1}
		var m mechanism
		for _, x := range []float64{-1, 1, 0, .5} {
			row, last := []float64{}, 0.
			for _, at := range cuts {
				row = append(row, below(x, at)-last)
				last = below(x, at)
			}
			m = append(m, append(row, 1-last))
		}
		for n := 1; n <= 6; n++ {
			for x := range m {
				others := make([]int, n-1)
				for i := range others {
					others[i] = x
				}
				a, b := m.neighbours(0, 1, others)
				for k := 1; k <= n; k++ {
					d := sampledPair(a, b, k)
					claim := familyRound(t, f, n, k)
					gap, at := excess(d, eps0, claim)
					worst = max(worst, gap)
					if gap > tolerance {
						t.Errorf("eps0=%v n=%d k=%d others=%d eps=%v: truth exceeds by %v", eps0, n, k, x, at, gap)
					}
					near = max(near, d.hockey(0)/claim(0))
				}
			}
		}
	}
	t.Logf("largest truth - bound %.3g; truth reaches %.4f of the bound at eps = 0", worst, near)
	if near < .99 { // one report alone attains it
		t.Errorf("truth reaches only %v of the bound", near)
	}
}

package amplify_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// stepMechanism is a randomizer of the class: input x reports output v with probability
// proportional to mu[v]·(1 + height·level[x][v]).
func stepMechanism(level [][]int, mu []float64, height float64) mechanism {
	var m mechanism
	for _, of := range level {
		row := make([]float64, len(mu))
		var sum float64
		for v, j := range of {
			row[v] = mu[v] * (1 + height*float64(j))
			sum += row[v]
		}
		for v := range row {
			row[v] /= sum
		}
		m = append(m, row)
	}
	return m
}

// stepsOf describes a mechanism of the class: the middle of each share, and the smallest η
// that covers all inputs.
func stepsOf(level [][]int, mu []float64, height float64) amplify.Steps {
	s := amplify.Steps{Height: height}
	top := 0
	for _, of := range level {
		for _, j := range of {
			top = max(top, j)
		}
	}
	for j := 1; j <= top; j++ {
		least, most := math.Inf(1), 0.
		for _, of := range level {
			var share float64
			for v, at := range of {
				if at >= j {
					share += mu[v]
				}
			}
			least, most = math.Min(least, share), math.Max(most, share)
		}
		s.Tails = append(s.Tails, (least+most)/2)
		s.Eta = math.Max(s.Eta, (most-least)/(most+least)*(1+1e-12))
	}
	return s
}

// multisets calls yield with every rising list of n numbers below m.
func multisets(n, m int, yield func([]int)) {
	list := make([]int, n)
	var from func(i, low int)
	from = func(i, low int) {
		if i == n {
			yield(list)
			return
		}
		for x := low; x < m; x++ {
			list[i] = x
			from(i+1, x)
		}
	}
	from(0, 0)
}

// againstDatasets compares a claim with the exact pairs of all datasets of n clients of whom
// k report, both orders, ε of both signs. It returns the largest truth − claim.
func againstDatasets(m mechanism, n, k int, eps0 float64, claim curve) (worst float64) {
	worst = math.Inf(-1)
	multisets(n-1, len(m), func(others []int) {
		for x0 := range m {
			for x1 := range x0 {
				a, b := m.neighbours(x0, x1, others)
				gap, _ := excess(sampledPair(a, b, k), eps0, claim)
				worst = math.Max(worst, gap)
			}
		}
	})
	return worst
}

// Random mechanisms of the class, with shares that are equal for all inputs or differ within
// η, all datasets, everybody or k of n.
func TestRisingAgainstExact(t *testing.T) {
	r := rand.New(rand.NewPCG(77, 1))
	worst, cases, refused := math.Inf(-1), 0, 0
	for range longtest.Pick(60, 2000) {
		outputs, inputs, top := 4+r.IntN(3), 2+r.IntN(2), 1+r.IntN(3)
		mu := make([]float64, outputs)
		var sum float64
		spread := []float64{0, .02, .2}[r.IntN(3)]
		for v := range mu {
			mu[v] = 1 + spread*(2*r.Float64()-1)
			sum += mu[v]
		}
		for v := range mu {
			mu[v] /= sum
		}
		// All inputs have the same levels, in different orders.
		levels := make([]int, outputs)
		for j := range top {
			levels[j] = j + 1
		}
		for v := top; v < outputs-1; v++ {
			levels[v] = r.IntN(top + 1)
		}
		level := make([][]int, inputs)
		for x := range level {
			for _, v := range r.Perm(outputs) {
				level[x] = append(level[x], levels[v])
			}
		}
		height := math.Expm1([]float64{.2, 1, 2.5, 4}[r.IntN(4)]) / float64(top)
		m, s := stepMechanism(level, mu, height), stepsOf(level, mu, height)
		f, err := amplify.Rising(s)
		if err != nil {
			refused++
			continue
		}
		if got := m.ldp(); got > s.Eps0() {
			t.Fatalf("%+v: reports are %v-LDP, claimed %v", s, got, s.Eps0())
		}
		n := 1 + r.IntN(longtest.Pick(5, 6))
		for k := 1; k <= n; k++ {
			gap := againstDatasets(m, n, k, s.Eps0(), familyRound(t, f, n, k))
			if worst = math.Max(worst, gap); gap > tolerance {
				t.Errorf("%+v n=%d k=%d: truth exceeds by %v", s, n, k, gap)
			}
			cases++
		}
		gamma := .1 + .8*r.Float64()
		p, err := f.Arrival(amplify.FamilyArrival{Population: int64(n), Asked: int64(n), Gamma: gamma})
		if err != nil {
			t.Fatal(err)
		}
		others := make([]int, n-1)
		for i := range others {
			others[i] = r.IntN(inputs)
		}
		a, b := m.neighbours(0, 1, others)
		if gap, _ := excess(checkInPair(a, b, gamma), s.Eps0(), pairCurve(p)); gap > tolerance {
			t.Errorf("%+v n=%d gamma=%v: truth exceeds by %v", s, n, gamma, gap)
		}
	}
	t.Logf("%d rounds, %d mechanisms refused; largest truth - bound %.3g", cases, refused, worst)
	if cases < 50 {
		t.Errorf("only %d rounds", cases)
	}
}

// opposite is Theorem 1's mechanism: the victim's two inputs are opposite, all others report
// from the common part or something useless. coupled gives the share of each pair of levels.
func opposite(tails []float64, height float64, coupled func(i, j int) float64) mechanism {
	top := len(tails)
	mean := 1.
	for _, q := range tails {
		mean += height * q
	}
	var p, q, rest []float64
	for i := 0; i <= top; i++ {
		for j := 0; j <= top; j++ {
			if c := coupled(i, j); c > 0 {
				p, q, rest = append(p, c*(1+height*float64(i))/mean), append(q, c*(1+height*float64(j))/mean), append(rest, c/mean)
			}
		}
	}
	return mechanism{append(p, 0), append(q, 0), append(rest, 1-1/mean)}
}

// shareOf returns the share of each level.
func shareOf(tails []float64) []float64 {
	share := []float64{1 - tails[0]}
	for j, q := range tails {
		if j+1 < len(tails) {
			q -= tails[j+1]
		}
		share = append(share, q)
	}
	return share
}

// facing is the coupling of opposite inputs if fewer than half of the outputs lie above the
// first edge.
func facing(tails []float64) func(i, j int) float64 {
	share := shareOf(tails)
	return func(i, j int) float64 {
		switch {
		case i == 0 && j == 0:
			return 1 - 2*tails[0]
		case i == 0:
			return share[j]
		case j == 0:
			return share[i]
		}
		return 0
	}
}

// The bound is attained, for every ε; a pair whose inputs meet at random instead of oppositely
// is too small.
func TestRisingIsAttained(t *testing.T) {
	for _, tails := range [][]float64{{.3}, {.35, .1}, {.3, .2, .05}} {
		for _, eps0 := range []float64{.3, 1.5, 3} {
			height := math.Expm1(eps0) / float64(len(tails))
			f := must(amplify.Rising(amplify.Steps{Height: height, Tails: tails}))
			m := opposite(tails, height, facing(tails))
			share := shareOf(tails)
			random := opposite(tails, height, func(i, j int) float64 { return share[i] * share[j] })
			for n := 1; n <= 4; n++ {
				others := make([]int, n-1)
				for i := range others {
					others[i] = 2
				}
				a, b := m.neighbours(0, 1, others)
				truth, claim := sampledPair(a, b, n).merged(), familyRound(t, f, n, n)
				if gap, _ := excess(truth, eps0, claim); gap > tolerance {
					t.Errorf("%v eps0=%v n=%d: truth exceeds by %v", tails, eps0, n, gap)
				}
				small := len(tails) < 3 && n < 3
				mutant := truth
				if small {
					a, b = random.neighbours(0, 1, others)
					mutant = sampledPair(a, b, n)
				}
				for _, eps := range []float64{0, .2 * eps0, .6 * eps0} {
					// Nodes cost up to .2 % of ε.
					if got, want := claim(eps*1.003), truth.hockey(eps); got > want*1.002 {
						t.Errorf("%v eps0=%v n=%d eps=%v: %v far above the truth %v", tails, eps0, n, eps, got, want)
					}
					if got := mutant.hockey(eps); small && got > truth.hockey(eps)*.999 {
						t.Errorf("%v eps0=%v n=%d eps=%v: inputs that meet at random give %v, the opposite ones %v", tails, eps0, n, eps, got, truth.hockey(eps))
					}
				}
			}
		}
	}
}

// Inputs with the same mean level and other shares: the pair of the nominal shares is too
// small, by Theorem 2 it must not be used.
func TestEqualMeansAreNotEnough(t *testing.T) {
	nominal := amplify.Steps{Height: 4, Tails: []float64{.3, .1}} // levels 1, 5, 9
	f := must(amplify.Rising(nominal))
	other := []float64{.25, .15}
	m := opposite(other, 4, facing(other))
	truth := pair{m[0], m[1]}.hockey(1.5)
	claim := familyRound(t, f, 1, 1)(1.5)
	if math.Abs(truth-.2806) > 1e-4 || math.Abs(claim-.2136) > 1e-4 {
		t.Errorf("truth %v and nominal pair %v, want .2806 and .2136", truth, claim)
	}
	// Shares within a half of the nominal ones are too unequal for Theorem 2.
	nominal.Eta = .5
	if _, err := amplify.Rising(nominal); err == nil {
		t.Error("shares that differ by a half were admitted")
	}
	// Described by the middle of the shares the mechanism is covered.
	middle := amplify.Steps{Height: 4, Tails: []float64{.275, .125}, Eta: .2}
	if f, err := amplify.Rising(middle); err == nil {
		if got := familyRound(t, f, 1, 1)(1.5); got < truth {
			t.Errorf("the bound %v for both shares is below %v", got, truth)
		}
	}
	// Shares that differ little, charged as equal, are refuted too.
	caught := 0
	for _, by := range []float64{.02, .05} {
		shifted := []float64{.3 - .1*by, .1 + .1*by}
		for n := 1; n <= 5; n++ {
			m := opposite(shifted, 4, facing(shifted))
			others := make([]int, n-1)
			for i := range others {
				others[i] = 2
			}
			a, b := m.neighbours(0, 1, others)
			truth := sampledPair(a, b, n)
			if gap, _ := excess(truth, math.Log(9), familyRound(t, f, n, n)); gap > 1e-6 {
				caught++
			}
			covered := must(amplify.Rising(amplify.Steps{Height: 4, Tails: []float64{.3, .1}, Eta: by * 1.001}))
			if gap, at := excess(truth, math.Log(9), familyRound(t, covered, n, n)); gap > tolerance {
				t.Errorf("shares off by %v, n=%d, eps=%v: truth exceeds by %v", by, n, at, gap)
			}
		}
	}
	if caught == 0 {
		t.Error("unequal shares charged as equal were never refuted: the comparison is blind")
	}
}

// Caps: J = 1 needs no more than the two densities. Integer 1/share is randomized response.
func TestCapIsRandomizedResponse(t *testing.T) {
	for _, eps0 := range []float64{.1, 1, 2.5, 6} {
		for _, symbols := range longtest.Pick([]int{2, 40}, []int{2, 3, 40}) {
			f, krr := must(amplify.Cap(eps0, 1/(math.Exp(eps0)+float64(symbols)-1))), must(amplify.KRR(eps0, symbols))
			for _, k := range longtest.Pick([]int{1, 3, 20, 130}, []int{1, 3, 20, 130, 3000, 50000}) {
				got, want := familyRound(t, f, 2*k, k), familyRound(t, krr, 2*k, k)
				for _, share := range []float64{-.5, -.1, 0, .03, .1, .3, .6} {
					eps := share * eps0
					a, b := got(eps), want(eps*(1+4e-3))
					back := got(eps * (1 + 4e-3))
					if share < 0 {
						a, b, back = got(eps*(1+4e-3)), want(eps), got(eps)
					}
					if b > a*1.003+1e-12 && b > 1e-12 || back > want(eps)*1.003+1e-12 && share >= 0 {
						t.Errorf("eps0=%v K=%d k=%d eps=%v: cap %v, randomized response %v", eps0, symbols, k, eps, a, b)
					}
				}
			}
		}
	}
	// Two symbols are the blanket.
	f, blanket := must(amplify.Cap(2, 1/(math.Exp(2)+1))), must(amplify.ClonesFamily(2, amplify.Blanket(2)))
	for _, k := range []int{1, 5, 500} {
		for _, eps := range []float64{0, .1, .7} {
			if got, want := familyRound(t, f, k, k)(eps), familyRound(t, blanket, k, k)(eps); math.Abs(got-want) > 2e-3*want+1e-13 {
				t.Errorf("k=%d eps=%v: cap of half the outputs %v, blanket %v", k, eps, got, want)
			}
		}
	}
}

// Everybody else on one orthogonal input is a lower bound; it comes close.
func TestRisingAboveOrthogonalOthers(t *testing.T) {
	for _, tails := range [][]float64{{.1}, {.3}, {.2, .07}} {
		for _, eps0 := range []float64{.5, 2, 3} {
			height := math.Expm1(eps0) / float64(len(tails))
			f := must(amplify.Rising(amplify.Steps{Height: height, Tails: tails}))
			mean := 1.
			for _, q := range tails {
				mean += height * q
			}
			// An output is a pair of levels for the victim's inputs and a level for the others'.
			m := make(mechanism, 3)
			share, meet := shareOf(tails), facing(tails)
			for i := range share {
				for j := range share {
					for b := range share {
						if c := meet(i, j) * share[b] / mean; c > 0 {
							for x, level := range []int{i, j, b} {
								m[x] = append(m[x], c*(1+height*float64(level)))
							}
						}
					}
				}
			}
			if len(m[0]) > 8 && !longtest.On {
				continue
			}
			nearest := 0.
			for n := 1; n <= longtest.Pick(4, 5); n++ {
				if len(m[0]) > 8 && n > 2 {
					break
				}
				others := make([]int, n-1)
				for i := range others {
					others[i] = 2
				}
				a, b := m.neighbours(0, 1, others)
				truth, claim := sampledPair(a, b, n), familyRound(t, f, n, n)
				if gap, at := excess(truth, eps0, claim); gap > tolerance {
					t.Errorf("%v eps0=%v n=%d eps=%v: truth exceeds by %v", tails, eps0, n, at, gap)
				}
				if n > 1 {
					nearest = math.Max(nearest, truth.hockey(.2*eps0)/claim(.2*eps0))
				}
			}
			t.Logf("tails %v eps0=%v: truth reaches %.3f of the bound", tails, eps0, nearest)
		}
	}
}

// Colluders among sampled clients: the mixture over how many honest reports there are.
func TestRisingWithColluders(t *testing.T) {
	tails, height := []float64{.3, .1}, 3.
	f := must(amplify.Rising(amplify.Steps{Height: height, Tails: tails}))
	m := opposite(tails, height, facing(tails))
	const n, k, c = 5, 3, 2
	p, err := f.Arrival(amplify.FamilyArrival{Population: n, Asked: k, Gamma: 1, Colluders: c})
	if err != nil {
		t.Fatal(err)
	}
	a, b := m.neighbours(0, 1, []int{2, 2})
	var truth pair
	for h := k - c; h <= k; h++ {
		w := choose(n-c, h) * choose(c, k-h) / choose(n, k)
		d := sampledPair(a, b, h)
		for i := range d.p {
			truth.p, truth.q = append(truth.p, w*d.p[i]), append(truth.q, w*d.q[i])
		}
	}
	if gap, at := excess(truth, math.Log(7), pairCurve(p)); gap > tolerance {
		t.Errorf("eps=%v: truth exceeds by %v", at, gap)
	}
}

func TestRisingRefused(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(1)
	good := amplify.Steps{Height: 2, Tails: []float64{.3, .1}, Eta: 1e-3}
	must(amplify.Rising(good))
	for _, s := range []amplify.Steps{
		{}, {Height: 2}, {Tails: []float64{.3}}, {Height: nan, Tails: []float64{.3}}, {Height: inf, Tails: []float64{.3}}, {Height: -1, Tails: []float64{.3}},
		{Height: 2, Tails: []float64{.3, .3}}, {Height: 2, Tails: []float64{.1, .3}}, {Height: 2, Tails: []float64{1}}, {Height: 2, Tails: []float64{.3, 0}}, {Height: 2, Tails: []float64{nan}},
		{Height: 2, Tails: []float64{.3}, Eta: nan}, {Height: 2, Tails: []float64{.3}, Eta: -1e-9}, {Height: 2, Tails: []float64{.3}, Eta: 1},
		{Height: 2, Tails: []float64{.9}, Eta: .1}, {Height: 1e30, Tails: []float64{.3}}, {Height: 2, Tails: make([]float64, 40)}, {Height: 2, Tails: []float64{1e-300}},
	} {
		if _, err := amplify.Rising(s); err == nil {
			t.Errorf("%+v was admitted", s)
		}
	}
	for _, c := range [][2]float64{{2, 0}, {2, nan}, {2, .1193}, {2, -1}, {0, .2}, {nan, .2}, {51, .2}} {
		if _, err := amplify.Cap(c[0], c[1]); err == nil {
			t.Errorf("cap %v was admitted", c)
		}
	}
}

// At the largest ε₀ rounding may lift a law over what is taken: then other bounds must answer.
func TestRisingAtTheLargestEps0(t *testing.T) {
	for _, eps0 := range []float64{49.9999, dp.MaxEps0} {
		if _, err := amplify.Cap(eps0, 1e-23); err != nil && !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("cap of eps0 = %v: %v", eps0, err)
		}
		if _, err := amplify.Rising(amplify.Steps{Height: math.Expm1(eps0) / 2, Tails: []float64{1e-9, 1e-10}, Eta: 1e-6}); err != nil && !errors.Is(err, dp.ErrNoBound) {
			t.Errorf("steps of eps0 = %v: %v", eps0, err)
		}
	}
}

func FuzzRising(f *testing.F) {
	if longtest.On {
		f.Add(2.5, .2, .5, .5, 1e-6, int64(60000), int64(1))
		f.Add(40., 1e-9, .1, .99, 0., int64(200), int64(3))
		f.Add(.01, .49, .9, .9, .01, int64(1e12), int64(1e6))
	}
	f.Add(6.6667, 1.43e-10, .0111, .99, 0., int64(164), int64(3)) // hardly any report counts
	f.Fuzz(func(t *testing.T, eps0, q, second, third, eta float64, k, more int64) {
		if !(eps0 > 0 && eps0 < 60) || k < 1 || k > 1e13 || more < 1 || more > 1e6 {
			return
		}
		family, err := amplify.Rising(amplify.Steps{Height: math.Expm1(eps0) / 3, Tails: []float64{q, q * second, q * second * third}, Eta: eta})
		if err != nil {
			return
		}
		p, err := family.Round(amplify.FamilyRound{Population: k * more, Reports: k})
		if err != nil {
			return
		}
		var mass float64
		for _, a := range p.Atoms {
			if !(a.Q >= 0 && a.Loss > 0 && a.Loss <= eps0+1 || a.Loss < 100) || math.IsNaN(a.Q) {
				t.Fatalf("atom %+v", a)
			}
			mass += a.Q * (1 + math.Exp(a.Loss))
		}
		if !(mass <= 1+1e-6) {
			t.Fatalf("mass %v", mass)
		}
	})
}

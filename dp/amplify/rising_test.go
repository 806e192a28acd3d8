package amplify

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/pld"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// deltaOf is δ of a pair at ε ≥ 0.
func deltaOf(p dp.Pair, eps float64) float64 {
	var d float64
	for _, a := range p.Atoms {
		if a.Loss > eps {
			d += a.Q * math.Exp(eps) * math.Expm1(a.Loss-eps)
		}
	}
	return d
}

// normalSteps are the steps of a standard normal score.
func normalSteps(eps0, eta float64, edges ...float64) Steps {
	s := Steps{Height: math.Expm1(eps0) / float64(len(edges)), Eta: eta}
	for _, z := range edges {
		s.Tails = append(s.Tails, math.Erfc(z/math.Sqrt2)/2)
	}
	return s
}

func wholeRound(t testing.TB, s Steps, k int64) dp.Pair {
	t.Helper()
	f, err := Rising(s)
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Round(FamilyRound{Population: k, Reports: k})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// goldenSteps reads w and the tails of a row of rising.tsv.
func goldenSteps(t *testing.T, row []string) (k int64, s Steps) {
	t.Helper()
	s.Tails = golden.Numbers(t, strings.Fields(row[3]))
	v := golden.Numbers(t, row[1:3])
	s.Height = v[1]
	return int64(v[0]), s
}

// TestRisingGolden compares with values of testdata/rising.py.
func TestRisingGolden(t *testing.T) {
	pairs := map[string]dp.Pair{}
	most := map[string]float64{}
	seen, last := 0, ""
	for _, row := range golden.Rows(t, "rising.tsv", 150) {
		k, s := goldenSteps(t, row)
		where := strings.Join(row, " ")
		key := strings.Join(row[1:4], " ")
		if key != last {
			seen, last = seen+1, key
		}
		if !longtest.On && seen/12%2 != seen%2 {
			continue // of four laws at twelve k each, half
		}
		p, ok := pairs[key]
		if !ok {
			p = wholeRound(t, s, k)
			pairs[key] = p
		}
		v := golden.Numbers(t, []string{row[4], row[6]})
		want := v[1]
		var got, ratio float64
		if row[0] == "renyi" {
			got = rdp.Divergence(p, v[0])
			ratio = got / want
			most["renyi"] = math.Max(most["renyi"], ratio-1)
			if ratio > 1.002 && k > 2 || ratio > 1.01 {
				t.Errorf("%s: %v is above the truth by %.3g", where, got, ratio-1)
			}
		} else {
			d, err := strconv.ParseFloat(row[5], 64)
			if err != nil {
				t.Fatal(err)
			}
			over := v[0] / d
			got = deltaOf(p, math.Log1p(over))
			// The nodes of large losses are 1 % apart: compare at a slightly larger loss.
			ratio = deltaOf(p, math.Log1p(over)*1.003) / want
			most["delta"] = math.Max(most["delta"], ratio-1)
			if ratio > 1.003 && want > 1e-30 {
				t.Errorf("%s: %v at a loss .3 %% larger, %v times the truth", where, got, ratio)
			}
			// The integral itself, also where few reports are counted otherwise.
			law := must(Rising(s)).rising
			line := newLine(law.rays, over, float64(k), float64(k), fineSmoothing)
			if line == nil {
				if want > farMass {
					t.Errorf("%s: no line", where)
				}
				continue
			}
			direct := line.above(k)
			most["line"] = math.Max(most["line"], direct/want-1)
			if !(direct >= want*(1-1e-9)) {
				t.Errorf("%s: the integral gives %v, below the truth", where, direct)
			}
			if direct > want*1.02 && k >= 40 && want > 1e-20 || direct > want*1.1 && k >= 40 && want > 1e-30 {
				t.Errorf("%s: the integral gives %v, %v times the truth", where, direct, direct/want)
			}
		}
		if !(got >= want*(1-2e-9)) {
			t.Errorf("%s: %v is below the truth by %.3g", where, got, 1-got/want)
		}
	}
	t.Logf("largest excess %v", most)
}

func must(f Family, err error) Family {
	if err != nil {
		panic(err)
	}
	return f
}

// Both ways of counting agree where both can be used; the integral never gives less.
func TestRisingCountsAgree(t *testing.T) {
	for i, s := range []Steps{normalSteps(2.5, 0, 1.36), normalSteps(2.834, 1e-6, .95, 1.49, 2.02), normalSteps(.1, 0, 0.1), normalSteps(1, 1e-3, -.2, .4, 1.3),
		normalSteps(5, 0, 1.5, 1.9, 2.2, 2.6, 3, 3.5)} {
		law := must(Rising(s)).rising
		for _, k := range longtest.Pick([]int64{2, 9}, []int64{1, 2, 3, 7, 25, 60}) {
			if len(s.Tails) > 3 && k > longtest.Pick[int64](2, 25) {
				continue
			}
			if !longtest.On && ((i == 4) != (k == 2) || i == 0) {
				continue // each other law with one k
			}
			few, many := newRising(law, k, true), newRising(law, k, true)
			few.few, many.few = math.MaxInt64, 0
			a := roundOf(few, k, 1)
			b := roundOf(many, k, 1)
			var at []float64
			for _, share := range []float64{0, .02, .1, .3, .6, .9} {
				at = append(at, share*law.eps0)
			}
			for i, exact := range bruteRising(law, k, at) {
				eps := at[i]
				// The enumeration is exact but for moving outcomes to nodes.
				for name, p := range map[string]dp.Pair{"enumerated": a, "inverted": b} {
					got := deltaOf(p, eps)
					if !(got >= exact*(1-1e-10)-1e-18) {
						t.Errorf("%+v k=%d eps=%v: %s %v below %v", s, k, eps, name, got, exact)
					}
					if back := deltaOf(p, eps*1.004); name == "enumerated" && back > exact*1.003+1e-15 {
						t.Errorf("%+v k=%d eps=%v: %s %v far above %v", s, k, eps, name, back, exact)
					}
				}
			}
		}
	}
}

// bruteRising is δ of the pair at each ε: E(m(1−g) + w(A − gB))₊/k over all m, A and B.
func bruteRising(law *risingLaw, k int64, eps []float64) []float64 {
	type sums struct{ a, b int }
	at := map[sums]float64{{}: 1} // after m reports of the common part
	choose, out := 1., make([]float64, len(eps))
	for m := int64(1); m <= k; m++ {
		next := map[sums]float64{}
		for s, p := range at {
			for i, row := range law.joint {
				for j, c := range row {
					if c > 0 {
						next[sums{s.a + i, s.b + j}] += p * c
					}
				}
			}
		}
		at = next
		choose *= float64(k-m+1) / float64(m)
		weight := choose * math.Pow(law.common, float64(m)) * math.Pow(1-law.common, float64(k-m)) / float64(k)
		for i, e := range eps {
			over := math.Expm1(e)
			for s, p := range at {
				out[i] += weight * p * math.Max(0, law.height*float64(s.a-s.b)-over*(float64(m)+law.height*float64(s.b)))
			}
		}
	}
	return out
}

// For many reports the round is nearly Gaussian, of μ² = χ/k: Rényi divergences at real orders
// are χ·order/2k to first order in 1/k, from the second cumulants of the sums.
func TestRisingOfManyReports(t *testing.T) {
	for _, s := range []Steps{normalSteps(2.5, 0, .976), normalSteps(2.834, 0, .95, 1.49, 2.02), normalSteps(.2, 0, 1)} {
		law := must(Rising(s)).rising
		var chi float64
		for _, r := range law.rays {
			chi += r.mass * (r.p - r.q) * (r.p - r.q)
		}
		for _, k := range []int64{1e9, 1e12} {
			p := wholeRound(t, s, k)
			for _, order := range []float64{1.3, 2, 7.7, 60} {
				got, want := rdp.Divergence(p, order), chi*order/2/float64(k)
				if got < want*(1-1e-4) || got > want*(1+5e-4) {
					t.Errorf("%+v k=%d order %v: divergence %v, by the cumulants %v", s, k, order, got, want)
				}
			}
		}
	}
}

// The values that the design of these reports reached by independent composition, about 1 %
// above the truth.
func TestRisingReachesDesign(t *testing.T) {
	for _, c := range []struct {
		eps0  float64
		edges []float64
		want  float64
	}{
		{2.5, []float64{.976}, .718}, {2.5, []float64{1.36}, .619},
		{2.834, []float64{.95, 1.49, 2.02}, .632}, {2.627, []float64{.89, 1.44, 1.98}, .546},
	} {
		got := composedEpsilon(t, wholeRound(t, normalSteps(c.eps0, 1e-6, c.edges...), 60000), 160, 1e-5)
		t.Logf("eps0 = %v, edges %v: %.4f", c.eps0, c.edges, got)
		if got > c.want || got < c.want*.98 {
			t.Errorf("eps0 = %v, edges %v: %v, want at most %v", c.eps0, c.edges, got, c.want)
		}
	}
}

// composedEpsilon is ε of a round repeated times times.
func composedEpsilon(t testing.TB, p dp.Pair, times int64, delta float64) float64 {
	t.Helper()
	_, order := rdp.Minimize(func(order float64) float64 { return float64(times) * rdp.Divergence(p, order) }, delta)
	l, err := pld.Discretize(pld.Truncate(p, 1e-4*delta/float64(times)), 2e-4)
	if err != nil {
		t.Fatal(err)
	}
	c, err := pld.Compose([]pld.Part{{Loss: l, Times: times}}, order-1)
	if err != nil {
		t.Fatal(err)
	}
	return c.Epsilon(delta)
}

// The truth if everybody else holds one input that is orthogonal to the victim's opposite two:
// everything is known of its law but for the counting, which errs by .1 % of ε at most. It is
// below the bound, by little.
func TestRisingAboveOrthogonalMany(t *testing.T) {
	for _, c := range []struct {
		eps0  float64
		edges []float64
		least float64
	}{{2.5, []float64{.976}, .9}, {2.5, []float64{1.36}, .94}, {2.834, []float64{.95, 1.49, 2.02}, .9}, {1, []float64{.9}, .9}} {
		s := normalSteps(c.eps0, 0, c.edges...)
		law := must(Rising(s)).rising
		share := []float64{1 - s.Tails[0]}
		for j, q := range s.Tails {
			if j+1 < len(s.Tails) {
				q -= s.Tails[j+1]
			}
			share = append(share, q)
		}
		truth := &risingLaw{eps0: law.eps0, joint: law.joint}
		for _, r := range law.rays {
			for b, q := range share {
				level := 1 + law.height*float64(b)
				truth.rays = append(truth.rays, ray{r.mass * q * level, r.p / level, r.q / level})
			}
		}
		others := newRising(truth, 60000, true)
		others.few = 0
		got, most := composedEpsilon(t, roundOf(others, 60000, 1), 160, 1e-5), composedEpsilon(t, wholeRound(t, s, 60000), 160, 1e-5)
		t.Logf("eps0 = %v, edges %v: truth %.4f, bound %.4f, ratio %.3f", c.eps0, c.edges, got, most, got/most)
		if got > most || got < c.least*most {
			t.Errorf("eps0 = %v, edges %v: truth %v, bound %v", c.eps0, c.edges, got, most)
		}
	}
}

// ε grows with ε₀, η and the share of a cap, and falls with k.
func TestRisingOrder(t *testing.T) {
	at := func(s Steps, k int64) float64 {
		p := wholeRound(t, s, k)
		return deltaOf(p, .5*s.Eps0()/math.Sqrt(float64(k)/100))
	}
	base := at(normalSteps(2, 1e-6, 1, 2), 3000)
	for name, more := range map[string]float64{
		"eta": at(Steps{math.Expm1(2) / 2, normalSteps(2, 0, 1, 2).Tails, 1e-3}, 3000),
	} {
		if !(more > base) {
			t.Errorf("%s: %v, not above %v", name, more, base)
		}
	}
	for _, k := range longtest.Pick([]int64{3, 99999}, []int64{3, 30, 123, 125, 1000, 99999}) {
		a, b := wholeRound(t, normalSteps(2, 0, 1, 2), k), wholeRound(t, normalSteps(2, 0, 1, 2), 2*k)
		c := wholeRound(t, normalSteps(2.1, 0, 1, 2), k)
		for _, eps := range []float64{.01, .1, .5} {
			x, y, z := deltaOf(a, eps), deltaOf(b, eps), deltaOf(c, eps)
			if y > x*1.001+1e-20 || z < x*.999-1e-20 && x > 1e-50 {
				t.Errorf("k=%d eps=%v: %v, for 2k %v, for a larger eps0 %v", k, eps, x, y, z)
			}
		}
	}
	// All k agree with their neighbours where the way of counting changes.
	law := must(Rising(normalSteps(2, 0, 1, 2))).rising
	k := newRising(law, 100, true).few
	a, b := wholeRound(t, normalSteps(2, 0, 1, 2), k), wholeRound(t, normalSteps(2, 0, 1, 2), k+1)
	for _, eps := range []float64{.01, .1, .5, 1} {
		if x, y := deltaOf(a, eps), deltaOf(b, eps); y > x*1.01 || y < x*.7 {
			t.Errorf("k=%d eps=%v: %v, for k+1 %v", k, eps, x, y)
		}
	}
}

// The largest loss keeps some mass where its probability underflows: Rényi divergences of very
// high order depend on it.
func TestRisingKeepsLargestLoss(t *testing.T) {
	s, k := Steps{Height: 1, Tails: []float64{1e-6}}, int64(60)
	law := must(Rising(s)).rising
	// The victim's report has the levels 2 and 1, every other one the same or is useless.
	const share = 1e-6
	logQ := float64(k-1)*math.Log(1-law.common+law.common*share) + math.Log(law.common*share)
	for _, order := range []float64{1e3, 1e4, 1e6} {
		got, least := rdp.Divergence(wholeRound(t, s, k), order), (logQ+order*math.Ln2)/(order-1)
		if got < least {
			t.Errorf("order %v: divergence %v, below %v", order, got, least)
		}
	}
}

// High scores so rare that most rounds have none: δ is at most E X₊, and no mass exceeds 1.
func TestRisingOfRareScores(t *testing.T) {
	type rare struct {
		q, height float64
		k         int64
	}
	few := []rare{{1e-9, 1e6, 350}, {1e-15, 1, 1e12}}
	for _, c := range append(few, longtest.Pick(nil, []rare{{1e-3, 1e6, 60000}, {1e-6, 1e4, 350}, {1e-9, 1, 60000}})...) {
		p := wholeRound(t, Steps{Height: c.height, Tails: []float64{c.q}}, c.k)
		if got, most := deltaOf(p, 0), c.q*c.height/(1+c.q*c.height); got > most*(1+1e-6) {
			t.Errorf("%+v: δ(0) = %v, above %v", c, got, most)
		}
		if _, err := pld.Discretize(p, .01); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for _, k := range longtest.Pick([]int64{5}, []int64{1, 5, 1e3, 1e12}) {
		p, err := must(Cap(1, 1e-300)).Round(FamilyRound{Population: k, Reports: k})
		if err != nil || deltaOf(p, 0) > 1e-14 {
			t.Errorf("k=%d: δ(0) = %v, %v", k, deltaOf(p, 0), err)
		}
	}
}

// Rounding must not lower δ, however near U is to 1 and however near the common part is to 1.
func TestRisingRoundsUp(t *testing.T) {
	atLeast := func(what string, eps, bound, truth float64) {
		t.Helper()
		if !(bound >= truth) {
			t.Errorf("%s: δ(%v) = %.17g is %.3g of itself below %.17g", what, eps, bound, 1-bound/truth, truth)
		}
	}
	// One report of two steps: E X₊ over three outcomes.
	for _, eps0 := range []float64{5, 15, 20, 24, 28, 31} {
		w, q1, q2 := math.Expm1(eps0)/2, 1e-6, 3e-7
		p := wholeRound(t, Steps{Height: w, Tails: []float64{q1, q2}}, 1)
		for i := range 400 {
			eps := eps0 * float64(i+1) / 401
			over := math.Expm1(eps)
			truth := ((q1-q2)*math.Max(0, w-over) + q2*math.Max(0, 2*w-over)) / (1 + w*(q1+q2))
			atLeast("two steps", eps, deltaOf(p, eps), truth*(1-1e-13))
		}
	}
	// Two reports of one step, beyond ε = ln((E+1)/2): the victim's alone is useful, or both are
	// above the edge.
	for _, q := range []float64{1e-3, 1e-9, 1e-13, 1e-15} {
		const eps0 = 1.
		rise := math.Expm1(eps0) * q
		p := wholeRound(t, Steps{Height: math.Expm1(eps0), Tails: []float64{q}}, 2)
		for _, eps := range []float64{.65, .8, .95} {
			common, useless := 1/(1+rise), rise/(1+rise)
			truth := common * q * (useless + common*q) * (math.Expm1(eps0) - math.Expm1(eps))
			atLeast("two reports", eps, deltaOf(p, eps), truth*(1-1e-13))
		}
	}
}

func BenchmarkRising(b *testing.B) {
	for _, k := range []int64{50, 200, 1e4, 1e6, 1e12} {
		b.Run(fmt.Sprintf("%.0e", float64(k)), func(b *testing.B) {
			f := must(Rising(normalSteps(2.834, 1e-6, .95, 1.49, 2.02)))
			for b.Loop() {
				if _, err := f.Round(FamilyRound{Population: 10 * k, Reports: k}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, n := range []int64{1e3, 1e7} {
		b.Run(fmt.Sprintf("check-in/%.0e", float64(n)), func(b *testing.B) {
			f := must(Rising(normalSteps(2.834, 1e-6, .95, 1.49, 2.02)))
			for b.Loop() {
				if _, err := f.Arrival(FamilyArrival{Population: n, Asked: n, Gamma: math.Sqrt(100 / float64(n))}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

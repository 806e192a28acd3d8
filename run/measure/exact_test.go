package measure

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// losses is the law of the loss of one count under the first input: chances of multiples of a step,
// rounded down, from a lowest one on. Losses without bound have the chance never.
type losses struct {
	lowest int
	chance []float64
	never  float64
}

// lossStep costs the test some per cent of δ where it is long.
var lossStep = longtest.Pick(2e-3, 1e-4)

// binomialLosses is the law for Bin(m, 1/2), moved by k.
func binomialLosses(m, k int64) losses {
	at := func(i int64) float64 {
		if i < 0 || i > m {
			return math.Inf(-1)
		}
		a, _ := math.Lgamma(float64(m) + 1)
		b, _ := math.Lgamma(float64(i) + 1)
		c, _ := math.Lgamma(float64(m-i) + 1)
		return a - b - c - float64(m)*math.Ln2
	}
	l := losses{lowest: math.MaxInt}
	by := map[int]float64{}
	mean, sd := float64(m)/2, math.Sqrt(float64(m))/2
	for i := max(0, int64(mean-12*sd)); i <= min(m, int64(mean+12*sd)); i++ {
		p, q := at(i), at(i+k) // what is seen is i + k under the first input
		if math.IsInf(q, -1) {
			l.never += math.Exp(p)
			continue
		}
		v := int(math.Floor((p - q) / lossStep))
		by[v] += math.Exp(p)
		l.lowest = min(l.lowest, v)
	}
	for v, c := range by {
		for len(l.chance) <= v-l.lowest {
			l.chance = append(l.chance, 0)
		}
		l.chance[v-l.lowest] += c
	}
	return l
}

// delta is δ at eps, but for what rounding takes off.
func (l losses) delta(eps float64) float64 {
	d := l.never
	for i, c := range l.chance {
		if v := float64(l.lowest+i) * lossStep; v > eps {
			d += c * -math.Expm1(eps-v)
		}
	}
	return d
}

// exactly returns δ at eps of d counts with these losses, from the definition.
func exactly(one losses, d int, eps float64) float64 {
	all := losses{0, []float64{1}, 0}
	for range d {
		next := losses{all.lowest + one.lowest, make([]float64, len(all.chance)+len(one.chance)-1), 0}
		for i, a := range all.chance {
			if a < 1e-17 {
				continue
			}
			for j, b := range one.chance {
				next.chance[i+j] += a * b
			}
		}
		next.never = 1 - (1-all.never)*(1-one.never)
		all = next
	}
	return all.delta(eps)
}

// What is planned costs no more than it says: δ is computed from the laws of what is seen, as the
// definition has it, by none of the accountant's ways. It is at most the planned one, and not far below.
func TestPlansCostWhatTheySay(t *testing.T) {
	const delta = 1e-5
	where := []statistic.Condition{{Column: "a", Is: "=", Value: "1"}}
	count := statistic.Question{Measure: "count", Where: where}
	bins := statistic.Question{Measure: "histogram", Column: "a", Edges: []float64{0, 1, 2, 3, 4}}
	tree := statistic.Question{Measure: "quantiles", Column: "a", High: 1, Levels: 2, Ranks: []float64{.5}}
	for _, c := range []struct {
		question statistic.Question
		trust    dp.Trust
		by       vecsum.NoiseBy
		changed  int // counts that change most with one client's row
	}{
		{count, dp.VectorSum, "", 1},
		{bins, dp.VectorSum, "", 2},
		{tree, dp.VectorSum, "", 4},
		{count, dp.VectorSum, vecsum.ByAggregators, 1},
		{tree, dp.VectorSum, vecsum.ByAggregators, 4},
		{count, dp.Central, "", 1},
		{bins, dp.Central, "", 2},
		{count, dp.Local, "", 0},
		{bins, dp.Local, "", 0},
		{count, dp.Shuffle, "", 0},
	} {
		for _, n := range longtest.Pick([]int64{100}, []int64{20, 1000}) {
			for _, eps := range longtest.Pick([]float64{2}, []float64{.5, 2}) {
				name := fmt.Sprintf("%s, %s %s, n = %d, eps = %v", c.question.Measure, c.trust, c.by, n, eps)
				p, err := New(context.Background(), Config{Question: c.question, Trust: c.trust, NoiseBy: c.by, Epsilon: eps, Delta: delta, Clients: n})
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				e, exact := p.Cost.Eps, 0.
				if !(e <= eps) {
					t.Errorf("%s: planned for %v", name, e)
				}
				changed := float64(c.changed)
				switch m := p.Mechanism.(type) {
				case *mechanism.VectorSum:
					if m.Params.Noise.Kind != vecsum.Binomial {
						t.Fatalf("%s: noise %+v", name, m.Params.Noise)
					}
					exact = exactly(binomialLosses(n*m.Params.Noise.Bits, m.Grid), c.changed, e)
				case *mechanism.AggregatedSum:
					// One aggregator's noise alone. On so fine a grid it is the normal law.
					exact = normalDelta(float64(m.Steps)*math.Sqrt(changed)/math.Sqrt(float64(m.Variance)), e)
				default:
					exact = responseDelta(t, p, n, e)
				}
				if !(exact <= delta) {
					t.Errorf("%s: at epsilon %v delta is %v", name, e, exact)
				}
				if c.trust != dp.Local && !(exact > delta/20) {
					t.Errorf("%s: at epsilon %v delta is %v: the noise is far too much, or the test is wrong", name, e, exact)
				}
			}
		}
	}
}

// normalDelta is δ at eps of a normal law moved by mu deviations.
func normalDelta(mu, eps float64) float64 {
	upper := func(z float64) float64 { return math.Erfc(z/math.Sqrt2) / 2 }
	return upper(eps/mu-mu/2) - math.Exp(eps)*upper(eps/mu+mu/2)
}

// responseDelta is δ of randomized response on the first two symbols, all others' clients having the
// last one: of a report, or of the number of reports of a symbol among shuffled ones of two.
func responseDelta(t *testing.T, p *Plan, n int64, eps float64) float64 {
	t.Helper()
	m := p.Mechanism
	k := m.Facts().Dim
	// What one report stands for tells its chances.
	one, sum := make([]float64, k), make([]int64, k)
	sum[0] = 1
	m.Estimate(one, sum, 1)
	gap := 1 / (one[0] - one[1])
	lie := -one[1] * gap
	truth := lie + gap
	if p.Trust == dp.Local {
		return math.Max(0, truth-math.Exp(eps)*lie)
	}
	if k != 2 {
		t.Fatalf("%d symbols", k)
	}
	// The number of reports of the first symbol: n − 1 lies and one report.
	law := func(i int64) float64 {
		if i < 0 || i > n-1 {
			return 0
		}
		a, _ := math.Lgamma(float64(n))
		b, _ := math.Lgamma(float64(i) + 1)
		c, _ := math.Lgamma(float64(n - i))
		return math.Exp(a - b - c + float64(i)*math.Log(lie) + float64(n-1-i)*math.Log1p(-lie))
	}
	var there, back float64
	for i := range n + 1 {
		p, q := truth*law(i-1)+lie*law(i), lie*law(i-1)+truth*law(i)
		there += math.Max(0, p-math.Exp(eps)*q)
		back += math.Max(0, q-math.Exp(eps)*p)
	}
	return math.Max(there, back)
}

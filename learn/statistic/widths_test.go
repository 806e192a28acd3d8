package statistic

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// widths computes the expected half-widths of intervals for single numbers at one n.
type widths struct {
	t     *testing.T
	n     float64
	mu    float64 // of a curator
	eps   float64
	delta float64
	known map[int]float64
}

// eps0 plans reports on so many symbols by their own law.
func (w *widths) eps0(class dp.Class, symbols int) float64 {
	key := symbols
	if class == dp.BinaryRR {
		key = -2
	}
	if e, ok := w.known[key]; ok {
		return e
	}
	q := account.Query{Class: class, Participation: dp.All, Population: int64(w.n), Rounds: 1, Delta: w.delta}
	if class == dp.KRR {
		q.Symbols = symbols
	}
	found, _, err := account.Plan(context.Background(), w.eps, q, "eps0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.known[key] = found.Eps0
	return found.Eps0
}

// krr returns the law of one symbol's count among so many symbols.
func (w *widths) krr(symbols int, eps0 float64) response {
	e, k := math.Exp(eps0), float64(symbols)
	return response{n: int64(w.n), truth: e / (e + k - 1), untruth: (k - 1) / (e + k - 1), lie: 1 / (e + k - 1), unlie: (e + k - 2) / (e + k - 1)}
}

// closed returns the law of Balle, Bell, Gascón and Nissim's Theorem 3.1: the share γ of uniform
// symbols that suffices.
func (w *widths) closed(symbols int) (response, bool) {
	k, n := float64(symbols), w.n
	gamma := math.Max(14*k*math.Log(2/w.delta)/((n-1)*w.eps*w.eps), 27*k/((n-1)*w.eps))
	lie := gamma / k
	return response{n: int64(n), truth: 1 - gamma + lie, untruth: gamma - lie, lie: lie, unlie: 1 - lie}, gamma < 1
}

// levelsError is the squared error of the published mean of numbers that fill −1 … 1 evenly: rounded
// at random to one of so many levels, which is reported.
func (w *widths) levelsError(r response, symbols int) float64 {
	h := 2 / float64(symbols-1)
	var all float64
	for j := range symbols {
		y := -1 + h*float64(j)
		all += y * y
	}
	gap := r.truth - r.lie
	return (gap*(1./3+h*h/6) + r.lie*all - gap*gap/3) / (gap * gap) / w.n
}

// bestLevels minimises levelsError over the number of levels.
func (w *widths) bestLevels(law func(symbols int) (response, bool)) float64 {
	best := math.Inf(1)
	for k := 2; k <= 1024; k = max(k+1, k*5/4) {
		r, ok := law(k)
		if !ok {
			break
		}
		v := w.levelsError(r, k)
		if v > 1.5*best {
			break
		}
		best = math.Min(best, v)
	}
	return math.Sqrt(best)
}

// sums returns the standard deviation of a vector sum's errors: noise by clients at distance 2·radius
// of two inputs, or of counts.
func (w *widths) sums(dim, ones int) float64 {
	q := account.Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.All, Population: int64(w.n), Rounds: 1, Delta: w.delta * .98}
	found, _, err := account.Plan(context.Background(), w.eps, q, "sigma")
	if err != nil {
		w.t.Fatal(err)
	}
	target := vecsum.Target{Sigma: found.Sigma, Delta: w.delta, Users: int64(w.n), Dim: dim, Ones: ones}
	if ones == 0 {
		target.Radius = 1
	}
	p, err := vecsum.Tight(target)
	if err != nil {
		w.t.Fatal(err)
	}
	law, err := OfClients(p, int64(w.n))
	if err != nil {
		w.t.Fatal(err)
	}
	return math.Sqrt(law.variance(0))
}

// TestWidths writes the table of EXPERIMENTS.md, and holds the document to it: what intervals of 95 % are
// expected to be, from the laws: its rows of 1e5 clients, and with the tag soak all. Nothing is drawn.
func TestWidths(t *testing.T) {
	longtest.Only(t, "plans ε₀ some hundred times")
	var rows []string
	const eps, delta = 1, 1e-5
	for _, n := range longtest.Pick3([]float64{1e5}, []float64{1e5}, []float64{1e4, 1e5, 1e6}) {
		mu, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: delta})
		if err != nil {
			t.Fatal(err)
		}
		w := &widths{t: t, n: n, mu: float64(mu), eps: eps, delta: delta, known: map[int]float64{}}
		row := func(what string, scale float64, unit string, central, sum, single, published, closed float64) {
			z := 1.96 * scale
			show := func(v float64) string {
				if math.IsNaN(v) || math.IsInf(v, 0) {
					return "–"
				}
				return fmt.Sprintf("%.3g", v)
			}
			rows = append(rows, fmt.Sprintf("| %s | %.0e | ±%s%s | ×%s | ×%s | ×%s | ×%s |", what, n, show(z*central), unit,
				show(sum/central), show(single/central), show(single/published), show(single/closed)))
			if single > 1.5*published {
				t.Errorf("%s, n = %g: %.3g times the published error", what, n, single/published)
			}
			if sum > 1.1*central {
				t.Logf("%s, n = %g: sums are at %.3g of a curator's", what, n, sum/central)
			}
		}
		of := func(r response, truth float64) float64 { return math.Sqrt(r.variance(truth)) }
		orNot := func(r response, ok bool, truth float64) float64 {
			if !ok {
				return math.NaN()
			}
			return of(r, truth)
		}
		binary := w.krr(2, w.eps0(dp.BinaryRR, 0))
		two, ok := w.closed(2)
		row("count, 30 % of all", 1, "", 1/w.mu, w.sums(1, 1), of(binary, .3*n), of(w.krr(2, w.eps0(dp.KRR, 2)), .3*n), orNot(two, ok, .3*n))
		for _, bins := range []int{20, 1024} {
			k := bins + 1
			r, ok := w.closed(bins)
			each := n / float64(bins)
			row(fmt.Sprintf("histogram, %d bins", bins), 1, "", math.Sqrt2/w.mu, w.sums(bins, 1), of(w.krr(k, w.eps0(dp.KRR, k)), each),
				of(w.krr(bins, w.eps0(dp.KRR, bins)), each), orNot(r, ok, each))
		}
		plan := func(symbols int) (float64, error) { return w.eps0(dp.KRR, symbols), nil }
		mean := Question{Measure: "mean", Column: "a", Low: -1, High: 1, Everyone: true}
		k, e, err := mean.Choose(int64(n), plan)
		if err != nil {
			t.Fatal(err)
		}
		row("mean, in % of the range", 50, " %", 2/w.mu/n, w.sums(mean.Dim(), 0)/n, math.Sqrt(mean.messageError(k, e, n)),
			w.bestLevels(func(k int) (response, bool) { return w.krr(k, w.eps0(dp.KRR, k)), true }), w.bestLevels(w.closed))
		median := Question{Measure: "quantiles", Column: "a", Low: -1, High: 1, Everyone: true, Ranks: []float64{.5}, Levels: 10}
		if k, e, err = median.Choose(int64(n), plan); err != nil {
			t.Fatal(err)
		}
		levels := 10
		noise := 2 * float64(levels) / (w.mu * w.mu)
		zeros := make([]float64, 2<<levels-2)
		tree := consistent(zeros, levels, n, 1)
		at := (1<<levels)/2 + 1 // the middle edge itself is a root's child: the next one is the usual case
		unit := math.Sqrt(tree.variance(at, .5))
		bins := float64(k - 1)
		s := &Messages{bins: k - 1, outside: 1}
		r := w.krr(k, e)
		s.truth, s.lie = r.truth, r.lie
		row(fmt.Sprintf("rank of the median, %d parts, in %%", k-1), 100, " %", math.Sqrt(noise)*unit/n, w.sums(2<<levels-2, levels)*unit/n,
			math.Sqrt(s.covariance(n, n/4, n/4, 0, 0, 0, 0, bins/4))/n, math.NaN(), math.NaN())
	}
	text, err := os.ReadFile("../../docs/EXPERIMENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		t.Log(r)
		if !strings.Contains(string(text), r) {
			t.Errorf("EXPERIMENTS.md lacks the row %s", r)
		}
	}
}

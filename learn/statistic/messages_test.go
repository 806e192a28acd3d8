package statistic

import (
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

func single1(t testing.TB, q Question, symbols int, eps0 float64) *Messages {
	t.Helper()
	c, err := q.Single(symbols, eps0)
	if err != nil {
		t.Fatal(err)
	}
	m, err := randomizer.New(randomizer.KRR, c)
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewMessages(q, m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// crowd draws what many clients' reports of one question add up to, by the law of the randomizer but
// faster.
type crowd struct {
	s      *Messages
	chosen [][]int     // of each client, the symbols that may be drawn
	weight [][]float64 // and their weights
	order  []int
}

func newCrowd(s *Messages, cells []string) *crowd {
	c := &crowd{s: s}
	x, e := make([]float32, s.bins+s.outside), s.Encoder()
	for i, cell := range cells {
		e.Encode(func(string) string { return cell }, nil, x)
		var chosen []int
		var weight []float64
		for j, v := range x {
			if v > 0 {
				chosen, weight = append(chosen, j), append(weight, float64(v))
			}
		}
		c.chosen, c.weight, c.order = append(c.chosen, chosen), append(c.weight, weight), append(c.order, i)
	}
	return c
}

func uniform(src rng.Source) float64 { return float64(src.Uint64()>>11) * 0x1p-53 }

// sums returns the estimated sums of so many reports.
func (c *crowd) sums(src rng.Source, reports int) []float64 {
	k := c.s.bins + c.s.outside
	counts := make([]float64, k)
	gap := c.s.truth - c.s.lie
	if reports < len(c.order) {
		sample.Shuffle(src, c.order)
	}
	for _, i := range c.order[:reports] {
		if uniform(src) >= gap {
			counts[sample.Uniform(src, uint64(k))]++
			continue
		}
		u, at := uniform(src), 0
		for w := c.weight[i]; at < len(w)-1; at++ {
			if u -= w[at]; u < 0 {
				break
			}
		}
		counts[c.chosen[i][at]]++
	}
	for j := range counts {
		counts[j] = (counts[j] - float64(reports)*c.s.lie) / gap
	}
	return counts
}

// cover counts how often intervals hold a number.
type cover struct {
	single, joint, times  int
	bias, square, claimed float64
}

func (c *cover) add(n Number, truth float64) bool {
	c.times++
	c.bias += n.Value - truth
	c.square += (n.Value - truth) * (n.Value - truth)
	c.claimed += (n.High95 - n.Low95) / 2 / 1.96
	if n.Low95 <= truth && truth <= n.High95 {
		c.single++
	}
	if n.JointLow95 <= truth && truth <= n.JointHigh95 {
		c.joint++
		return true
	}
	return false
}

// report holds c to a coverage between low and .97 and to no bias. slack for .95 ± is 5 standard
// deviations.
func (c *cover) report(t *testing.T, what string, low float64, biased float64) {
	t.Helper()
	n := float64(c.times)
	share, deviation := float64(c.single)/n, math.Sqrt(c.square/n)
	slack := 5 * math.Sqrt(.05*.95/n)
	t.Logf("%s: %.4f covered, joint %.4f; bias %.3g of %.3g (claimed %.3g)", what, share, float64(c.joint)/n, c.bias/n, deviation, c.claimed/n)
	if joint := float64(c.joint) / n; joint < .95-slack {
		t.Errorf("%s: %.4f of the joint intervals hold the truth", what, joint)
	}
	if share < low-slack+.01 || share > .96+slack {
		t.Errorf("%s: %.4f of the intervals hold the truth", what, share)
	}
	if math.Abs(c.bias/n) > 5*deviation/math.Sqrt(n)+biased {
		t.Errorf("%s: bias %.4g, deviation %.4g", what, c.bias/n, deviation)
	}
}

// TestMessagesCoverLevels repeats means and variances. The chance of a false alarm is below 1e-5.
func TestMessagesCoverLevels(t *testing.T) {
	times := longtest.Pick3(400, 500, 2000)
	populations := map[string]func(i int) string{
		"even":    func(i int) string { return strconv.Itoa(i % 101) },
		"one end": func(i int) string { return strconv.Itoa(i % 101 * (i % 3 / 2)) },
		"ends":    func(i int) string { return strconv.Itoa(i % 2 * 100) },
		"a point": func(int) string { return "37.3" },
		"missing": func(i int) string {
			if i%4 == 0 {
				return ""
			}
			return strconv.Itoa(i % 61)
		},
	}
	for name, cell := range populations {
		for _, c := range []struct {
			n, of, symbols int
			eps0           float64
		}{{1000, 3000, 8, 4}, {1000, 1000, 7, 3.6}, {4000, 4000, 12, 5}, {3000, 3000, 3, 1}}[:longtest.Pick(1, 4)] {
			for _, measure := range []string{"mean", "variance"} {
				for _, everyone := range []bool{true, false} {
					if everyone == (name == "missing") {
						continue
					}
					cells := make([]string, c.of)
					var n, sum, squares float64
					for i := range cells {
						cells[i] = cell(i)
						if v, ok := number(cells[i]); ok {
							n, sum, squares = n+1, sum+v, squares+v*v
						}
					}
					q := Question{Measure: measure, Column: "age", Low: 0, High: 100, Everyone: everyone}
					s := single1(t, q, c.symbols, c.eps0)
					crowd := newCrowd(s, cells)
					mean := sum / n
					variance := squares/n - mean*mean
					src := rng.Replay(5, uint64(c.n), uint64(c.symbols), uint64(len(name)), uint64(len(measure)))
					var ofMean, ofVariance, ofCount cover
					for range times {
						a, err := s.Answer(crowd.sums(src, c.n), int64(c.n), int64(c.of))
						if err != nil {
							t.Fatal(err)
						}
						ofMean.add(*a.Mean, mean)
						if a.Variance != nil {
							ofVariance.add(*a.Variance, variance)
						}
						if a.Count != nil {
							ofCount.add(*a.Count, n)
						}
					}
					what := fmt.Sprintf("%s of %d of %d %s, K = %d, eps0 = %g, everyone %v", measure, c.n, c.of, name, c.symbols, c.eps0, everyone)
					ofMean.report(t, what+": mean", .93, 1)
					if measure == "variance" {
						ofVariance.report(t, what+": variance", .93, 20)
					}
					if !everyone {
						ofCount.report(t, what+": count", .93, 0)
					}
				}
			}
		}
	}
}

// TestMessagesCoverCounts repeats counts, histograms and quantiles, of all clients and of some.
// The chance of a false alarm is below 1e-5.
func TestMessagesCoverCounts(t *testing.T) {
	times := longtest.Pick3(200, 500, 2000)
	for _, c := range []struct {
		n, of, symbols int
		eps0           float64
	}{{1500, 4000, 17, 4.3}, {1000, 1000, 17, 4}, {5000, 5000, 65, 5.6}, {3000, 3000, 9, 1.5}}[:longtest.Pick(1, 4)] {
		for _, everyone := range []bool{true, false} {
			cells := make([]string, c.of)
			var values []float64
			for i := range cells {
				if everyone || i%5 > 0 {
					values = append(values, float64(i*i%997)/10)
					cells[i] = strconv.FormatFloat(values[len(values)-1], 'g', -1, 64)
				}
			}
			edges := make([]float64, c.symbols)
			for i := range edges {
				edges[i] = 100 * float64(i) / float64(len(edges)-1)
			}
			ranks := []float64{.1, .5, .9}
			count := single1(t, Question{Measure: "count", Where: []Condition{{"age", "<", "30"}}}, 2, c.eps0)
			histogram := single1(t, Question{Measure: "histogram", Column: "age", Edges: edges}, c.symbols, c.eps0)
			quantiles := single1(t, Question{Measure: "quantiles", Column: "age", Low: 0, High: 100, Ranks: ranks, Levels: 8, Everyone: everyone}, c.symbols, c.eps0)
			below := func(v float64) (n float64) {
				for _, x := range values {
					if x < v {
						n++
					}
				}
				return n
			}
			of := map[*Messages]*crowd{}
			for _, s := range []*Messages{count, histogram, quantiles} {
				of[s] = newCrowd(s, cells)
			}
			src := rng.Replay(6, uint64(c.n), uint64(c.of), uint64(c.symbols))
			var ofCount, ofBins, ofRanks cover
			ofValues := make([]cover, len(ranks))
			var together int
			ask := func(s *Messages) Answer {
				a, err := s.Answer(of[s].sums(src, c.n), int64(c.n), int64(c.of))
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
			for range times {
				ofCount.add(*ask(count).Count, below(30))
				all := true
				for i, bin := range ask(histogram).Bins {
					all = ofBins.add(Number{bin.Count, bin.Interval}, below(edges[i+1])-below(edges[i])) && all
				}
				if all {
					together++
				}
				for i, q := range ask(quantiles).Quantiles {
					// The true value at the rank, as finely as the parts show it.
					truth := edges[0]
					for _, e := range edges[1:] {
						if below(e) <= ranks[i]*float64(len(values)) {
							truth = e
						}
					}
					n := Number{q.Value, q.Interval}
					if n.Low95 <= truth+1e-9 && truth <= n.High95+1e-9 {
						truth = math.Max(n.Low95, math.Min(n.High95, truth))
					}
					ofValues[i].add(n, truth)
					// The interval is of the ranks in the part that begins with the value.
					width := 100 / float64(c.symbols-1)
					low, high := below(math.Min(q.Value, 100-width))/float64(len(values)), below(q.Value+width)/float64(len(values))
					if q.RankLow95 <= low && high <= q.RankHigh95 {
						ofRanks.single++
					}
					ofRanks.times++
				}
			}
			what := fmt.Sprintf("%d of %d, K = %d, eps0 = %g, everyone %v", c.n, c.of, c.symbols, c.eps0, everyone)
			ofCount.report(t, what+": count", .93, 0)
			ofBins.times, ofBins.single = times, ofBins.single*times/ofBins.times
			ofBins.report(t, what+": bins", .93, 1e9)
			if share := float64(together) / float64(times); share < .94-5*math.Sqrt(.05*.95/float64(times)) {
				t.Errorf("%s: all bins in %.4f", what, share)
			}
			for i := range ranks {
				t.Logf("%s: value at %g: %.4f covered, width %.4g", what, ranks[i], float64(ofValues[i].single)/float64(times), ofValues[i].claimed/float64(times)*2*1.96)
				if share := float64(ofValues[i].single) / float64(times); share < .93-5*math.Sqrt(.05*.95/float64(times)) {
					t.Errorf("%s: the value at %g is in %.4f of the intervals", what, ranks[i], share)
				}
			}
			// Each end fails with 2.5 % at most, and they hardly ever hold both.
			if share := float64(ofRanks.single) / float64(ofRanks.times); share < .93-5*math.Sqrt(.05*.95/float64(times)) {
				t.Errorf("%s: ranks are in %.4f of the intervals", what, share)
			}
		}
	}
}

// The answers to reports that the randomizer makes are near the truth, at a large ε₀; clients that
// have nothing to say send a report of the same shape.
func TestMessagesEndToEnd(t *testing.T) {
	cells := make([]string, 3000)
	for i := range cells {
		if i%3 > 0 {
			cells[i] = strconv.Itoa(i % 60)
		}
	}
	for _, q := range []Question{
		{Measure: "count", Column: "age"},
		{Measure: "mean", Column: "age", Low: -10, High: 90},
		{Measure: "variance", Column: "age", Low: -10, High: 90},
		{Measure: "histogram", Column: "age", Edges: []float64{0, 20, 40, 60}},
		{Measure: "quantiles", Column: "age", Low: -10, High: 90, Ranks: []float64{.5}, Levels: 7},
	} {
		k, eps0, err := q.Choose(int64(len(cells)), func(int) (float64, error) { return 7, nil })
		if err != nil {
			t.Fatal(err)
		}
		c, err := q.Single(k, eps0)
		if err != nil {
			t.Fatal(err)
		}
		m, err := randomizer.New(randomizer.KRR, c)
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewMessages(q, m)
		if err != nil {
			t.Fatal(err)
		}
		x, sum, r, src := make([]float32, c.Dim), make([]int64, c.Dim), m.NewReport(), rng.Replay(8)
		for _, cell := range cells {
			s.Encoder().Encode(func(string) string { return cell }, nil, x)
			m.Randomize(src, x, r)
			m.Add(sum, r)
		}
		mean := make([]float64, c.Dim)
		m.Estimate(mean, sum, int64(len(cells)))
		for j := range mean {
			mean[j] *= float64(len(cells))
		}
		a, err := s.Answer(mean, int64(len(cells)), 0)
		if err != nil {
			t.Fatal(err)
		}
		var n Number
		var want float64
		switch q.Measure {
		case "count":
			n, want = *a.Count, 2000
		case "mean":
			n, want = *a.Mean, 30
		case "variance":
			n, want = *a.Variance, 300
		case "histogram":
			n, want = Number{a.Bins[1].Count, a.Bins[1].Interval}, 650
		case "quantiles":
			n, want = Number{a.Quantiles[0].Value, a.Quantiles[0].Interval}, 30
		}
		if math.Abs(n.Value-want) > .04*want || !(n.JointLow95 <= n.Low95 && n.Low95 <= n.Value && n.Value <= n.High95 && n.High95 <= n.JointHigh95) {
			t.Errorf("%s, K = %d: %+v, want %v", q.Measure, k, n, want)
		}
		if len(a.Errors) != 1 || a.Errors[0] != "noise" || a.Clients != 3000 || a.Reports != 3000 {
			t.Errorf("%s: %+v", q.Measure, a)
		}
	}
}

// Choose finds the best of all choices, and other questions than these are refused.
func TestMessagesChoose(t *testing.T) {
	for _, n := range []int64{20, 1000, 100_000, 10_000_000} {
		for _, q := range []Question{
			{Measure: "mean", Column: "age", Low: 0, High: 1, Everyone: true},
			{Measure: "variance", Column: "age", Low: 0, High: 1},
			{Measure: "quantiles", Column: "age", Low: 0, High: 1, Ranks: []float64{.5}, Levels: 10},
		} {
			for _, local := range []bool{true, false} {
				var plans int
				plan := func(k int) (float64, error) {
					plans++
					if local {
						return 1, nil
					}
					return math.Log1p(math.Max(.5, float64(n)/30-float64(k))), nil
				}
				k, eps0, err := q.Choose(n, plan)
				if err != nil {
					t.Fatal(err)
				}
				made := plans
				best, least := 0, math.Inf(1)
				for _, other := range q.choices() {
					e, _ := plan(other)
					if v := q.messageError(other, e, float64(n)); v < least {
						best, least = other, v
					}
				}
				if k != best {
					t.Errorf("%s, n = %d, local %v: K = %d at eps0 = %.4g, best %d", q.Measure, n, local, k, eps0, best)
				}
				t.Logf("%s, n = %d, local %v: K = %d at eps0 = %.4g after %d plans", q.Measure, n, local, k, eps0, made)
			}
		}
	}
	m := single1(t, Question{Measure: "count", Column: "age"}, 2, 1)
	if _, err := m.Answer([]float64{1}, 10, 0); err == nil {
		t.Error("one sum of two")
	}
	if _, err := (Question{Measure: "histogram", Column: "a", Edges: []float64{0, 1}}).Single(3, 1); err == nil {
		t.Error("three symbols for one bin")
	}
	r, err := randomizer.New(randomizer.RR, randomizer.Config{Dim: 2, Radius: 1, Eps0: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewMessages(Question{Measure: "count", Column: "age"}, r); err == nil {
		t.Error("bits are no symbols")
	}
}

// TestCodes: two codes share half of their symbols; the counts that they give have no bias and their
// law, with rows outside and on some of the clients; and Choose takes codes where they are better.
func TestCodes(t *testing.T) {
	for bins := 3; bins < 40; bins++ {
		n := codeLength(bins)
		for a := range bins {
			for b := range a + 1 {
				shared := 0
				for v := range n {
					if inCode(a, v) && inCode(b, v) {
						shared++
					}
				}
				if want := map[bool]int{true: n / 2, false: n / 4}[a == b]; shared != want {
					t.Fatalf("%d bins: codes %d and %d share %d of %d", bins, a, b, shared, n)
				}
			}
		}
	}
	edges := make([]float64, 31)
	for i := range edges {
		edges[i] = float64(i)
	}
	q := Question{Measure: "histogram", Column: "a", Edges: edges}
	cells := make([]string, 3000)
	truth := make([]float64, 30)
	for i := range cells {
		if i%6 > 0 {
			v := i * i % 30
			truth[v]++
			cells[i] = strconv.Itoa(v)
		}
	}
	s := single1(t, q, codedSymbols, 1.2)
	c := newCrowd(s, cells)
	times := longtest.Pick3(200, 500, 2000)
	for _, reports := range []int{3000, 1500} {
		src := rng.Replay(9, uint64(reports))
		var of cover
		all := 0
		for range times {
			a, err := s.Answer(c.sums(src, reports), int64(reports), 3000)
			if err != nil {
				t.Fatal(err)
			}
			together := true
			for i, b := range a.Bins {
				together = of.add(Number{b.Count, b.Interval}, truth[i]) && together
			}
			if together {
				all++
			}
		}
		if share := float64(all) / float64(times); share < .94-5*math.Sqrt(.05*.95/float64(times)) {
			t.Errorf("%d reports: all bins in %.4f", reports, share)
		}
		n := float64(of.times)
		if bias, deviation := of.bias/n, math.Sqrt(of.square/n); math.Abs(bias) > 5*deviation/math.Sqrt(n) {
			t.Errorf("%d reports: bias %v, deviation %v", reports, bias, deviation)
		}
		of.times, of.single, of.bias = times, of.single*times/of.times, 0
		of.report(t, fmt.Sprintf("codes, %d reports", reports), .93, 1e9)
	}
	for eps0, want := range map[float64]int{.5: codedSymbols, 1: codedSymbols, 6: 31, 9: 31} {
		k, _, err := q.Choose(1000, func(int) (float64, error) { return eps0, nil })
		if err != nil || k != want {
			t.Errorf("at eps0 = %g %d symbols are chosen, want %d: %v", eps0, k, want, err)
		}
	}
}

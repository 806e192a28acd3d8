package statistic

import (
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// A heap of a few megabytes is collected a hundred times a second. Five times as large it costs a tenth less.
var _ = debug.SetGCPercent(400)

// population is a number of rows with one column, "t", and what is true of them.
type population []string

func normalRows(n int, mean, sd float64, missing int) population {
	src := rng.Replay(19, 7, uint64(n))
	x := make([]float64, n)
	sample.Gaussian(src, x)
	rows := make(population, n)
	for i, v := range x {
		if i%10 < missing {
			continue
		}
		rows[i] = strconv.FormatFloat(mean+sd*v, 'g', -1, 64)
	}
	return rows
}

func (p population) values() (out []float64) {
	for _, cell := range p {
		if v, ok := number(cell); ok {
			out = append(out, v)
		}
	}
	return out
}

// releases returns a function that draws what a round releases: of all rows, or of so many drawn at
// random. Noise is clients' Skellam noise of the given variance on each sum, in squares of the
// unit.
func (p population) releases(t *testing.T, q Question, reports int, noise float64) func(src rng.Source) Release {
	t.Helper()
	n := int64(reports)
	params := vecsum.Params{Users: n, Dim: q.Dim(), Radius: q.Radius(), Grid: 256, Norm: vecsum.Norm(q.Dim(), 256, 0), Ones: q.Ones()}
	if q.Ones() > 0 {
		params.Grid, params.Norm = 1, 0
	} else {
		noise *= 128 * 128
	}
	params.Noise = vecsum.Noise{Kind: vecsum.Skellam, Variance: noise / float64(n)}
	law, err := OfClients(params, n)
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewEncoder(q)
	if err != nil {
		t.Fatal(err)
	}
	v, err := vecsum.NewEncoder(params)
	if err != nil {
		t.Fatal(err)
	}
	order := make([]int, len(p))
	for i := range order {
		order[i] = i
	}
	counts := make([]int32, q.Dim())
	encoded, places := make([][]float32, len(p)), make([][]int, len(p))
	for i, cell := range p {
		row := func(string) string { return cell }
		if q.Ones() > 0 {
			places[i] = e.Places(row, nil, nil)
			continue
		}
		encoded[i] = make([]float32, q.Dim())
		e.Encode(row, nil, encoded[i])
	}
	var all []int64 // of all rows, where nothing is random but the noise
	total := func(src rng.Source) []int64 {
		sum := make([]int64, q.Dim())
		for _, i := range order[:reports] {
			for _, j := range places[i] {
				sum[j]++
			}
			if q.Ones() > 0 {
				continue
			}
			if err := v.Round(src, encoded[i], counts); err != nil {
				t.Fatal(err)
			}
			for j, c := range counts {
				sum[j] += int64(c)
			}
		}
		return sum
	}
	return func(src rng.Source) Release {
		if reports < len(p) {
			sample.Shuffle(src, order)
		}
		if all == nil || q.Ones() == 0 || reports < len(p) {
			all = total(src)
		}
		sum := slices.Clone(all)
		if err := params.AddNoise(src, sum, n); err != nil {
			t.Fatal(err)
		}
		r := Release{Sums: make([]float64, q.Dim()), Reports: n, Clients: int64(len(p)), Law: law}
		if err := params.Estimate(r.Sums, sum, n); err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// tally counts how often intervals miss.
type tally struct {
	low, high    int
	bias, square float64
}

func (m *tally) add(n Number, truth float64) (joint bool) {
	if truth < n.Low95 {
		m.low++
	}
	if truth > n.High95 {
		m.high++
	}
	m.bias += n.Value - truth
	m.square += (n.Value - truth) * (n.Value - truth)
	return n.JointLow95 <= truth && truth <= n.JointHigh95
}

// Intervals of single numbers hold in 93 to 97 % of 2,000 rounds, and joint ones in at least 95 %,
// but for three standard errors of that many rounds.
func TestCoverage(t *testing.T) {
	clipped := func(q Question, p population) (x []float64) {
		for _, v := range p.values() {
			x = append(x, math.Min(q.High, math.Max(q.Low, v)))
		}
		return x
	}
	meanOf := func(x []float64) (m, v float64) {
		for _, a := range x {
			m += a / float64(len(x))
		}
		for _, a := range x {
			v += (a - m) * (a - m) / float64(len(x))
		}
		return m, v
	}
	type numbers func(Answer) ([]Number, []float64)
	complete, holes := normalRows(1000, 30, 12, 0), normalRows(1000, 30, 12, 3)
	high := normalRows(1000, 95, 3, 1)
	moments := func(q Question, p population) numbers {
		m, v := meanOf(clipped(q, p))
		count := float64(len(p.values()))
		return func(a Answer) (n []Number, truth []float64) {
			n, truth = append(n, *a.Mean), append(truth, m)
			if a.Variance != nil {
				n, truth = append(n, *a.Variance), append(truth, v)
			}
			if a.Count != nil {
				n, truth = append(n, *a.Count), append(truth, count)
			}
			return n, truth
		}
	}
	bins := func(p population) numbers {
		values := p.values()
		return func(a Answer) (n []Number, truth []float64) {
			for i, b := range a.Bins {
				n = append(n, Number{b.Count, b.Interval})
				c := 0
				for _, v := range values {
					if (v >= *b.Lower || i == 0) && (v < *b.Upper || i == len(a.Bins)-1) {
						c++
					}
				}
				truth = append(truth, float64(c))
			}
			return n, truth
		}
	}
	edges := []float64{0, 10, 20, 30, 40, 50, 60}
	count := Question{Measure: "count", Where: []Condition{{"t", ">=", "40"}}}
	mean := Question{Measure: "mean", Column: "t", High: 100}
	variance := Question{Measure: "variance", Column: "t", High: 100}
	everyone := func(q Question) Question { q.Everyone = true; return q }
	older := func(p population) numbers {
		c := 0.
		for _, v := range p.values() {
			if v >= 40 {
				c++
			}
		}
		return func(a Answer) ([]Number, []float64) {
			return []Number{*a.Count, *a.Share}, []float64{c, c / float64(len(p))}
		}
	}
	for _, c := range []struct {
		name    string
		q       Question
		p       population
		reports int
		noise   float64
		numbers numbers
		wide    bool // intervals use a bound and may hold more often
	}{
		{"count", count, holes, 1000, 28, older(holes), false},
		{"count with little noise", count, holes, 1000, 5, older(holes), false},
		{"count, sampled", count, holes, 300, 28, older(holes), false},
		{"mean", mean, holes, 1000, 28, moments(mean, holes), false},
		{"mean, much noise", mean, holes, 1000, 14000, moments(mean, holes), false},
		{"mean near the end", mean, high, 1000, 28, moments(mean, high), false},
		{"mean of everyone", everyone(mean), complete, 1000, 28, moments(everyone(mean), complete), false},
		{"mean, sampled", mean, holes, 300, 28, moments(mean, holes), false},
		{"variance", variance, holes, 1000, 28, moments(variance, holes), false},
		{"variance, more noise", variance, holes, 1000, 2000, moments(variance, holes), false},
		{"variance near the end", variance, high, 1000, 28, moments(variance, high), false},
		{"variance of everyone", everyone(variance), complete, 1000, 28, moments(everyone(variance), complete), false},
		{"variance, sampled", variance, holes, 300, 28, moments(variance, holes), true},
		{"histogram", Question{Measure: "histogram", Column: "t", Edges: edges}, holes, 1000, 28, bins(holes), false},
		{"histogram, sampled", Question{Measure: "histogram", Column: "t", Edges: edges}, holes, 300, 28, bins(holes), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if strings.Contains(c.name, "near the end") || strings.Contains(c.name, "ore noise") {
				longtest.Only(t, "others are of its kind")
			}
			reps := longtest.Pick3(200, 500, 2000)
			// Five standard errors of few rounds; of many, what is wanted.
			slack, slackJoint := longtest.Pick3(.077, .049, .02), longtest.Pick3(.077, .049, .015)
			draw := c.p.releases(t, c.q, c.reports, c.noise)
			src := rng.Replay(19, 11)
			var tallies []tally
			joint := 0
			for range reps {
				a, err := c.q.Answer(draw(src))
				if err != nil {
					t.Fatal(err)
				}
				n, truth := c.numbers(a)
				tallies = append(tallies, make([]tally, len(n)-len(tallies))...)
				all := true
				for i := range n {
					all = tallies[i].add(n[i], truth[i]) && all
				}
				if !all {
					joint++
				}
			}
			report := ""
			for i, m := range tallies {
				share := 1 - float64(m.low+m.high)/float64(reps)
				sd := math.Sqrt(m.square / float64(reps))
				report += fmt.Sprintf(" %d: %.1f%% bias %+.3f of sd %.4g;", i, 100*share, m.bias/float64(reps)/sd, sd)
				if share < .95-slack || share > .95+slack && !c.wide {
					t.Errorf("number %d: intervals hold in %.1f %% of rounds, missed below %d, above %d", i, 100*share, m.low, m.high)
				}
				if z := m.bias / sd / math.Sqrt(float64(reps)); math.Abs(z) > 5 {
					t.Errorf("number %d: bias of %v standard errors", i, z)
				}
			}
			if share := 1 - float64(joint)/float64(reps); share < .95-slackJoint {
				t.Errorf("joint intervals hold in %.1f %% of rounds", 100*share)
			}
			t.Logf("%s joint %.1f%%", report, 100*(1-float64(joint)/float64(reps)))
		})
	}
}

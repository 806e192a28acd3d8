package statistic

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Each value is in the leaf between its edges, and each level has one node above it.
func TestLeaves(t *testing.T) {
	src := rng.Replay(19, 21)
	for _, q := range []Question{
		{Measure: "quantiles", Column: "t", Low: 0, High: 100, Ranks: []float64{.5}, Levels: 8},
		{Measure: "quantiles", Column: "t", Low: -7.3, High: 1e9, Ranks: []float64{.5}, Levels: 12},
		{Measure: "quantiles", Column: "t", Low: -mostValue, High: mostValue, Ranks: []float64{.5}, Levels: 3},
		{Measure: "quantiles", Column: "t", Low: 1, High: 1.0001, Ranks: []float64{.5}, Levels: 1},
	} {
		e, err := NewEncoder(q)
		if err != nil {
			t.Fatal(err)
		}
		n := 1 << q.Levels
		if q.edge(0, n) != q.Low || q.edge(n, n) != q.High {
			t.Errorf("%v..%v: edges end at %v and %v", q.Low, q.High, q.edge(0, n), q.edge(n, n))
		}
		for range 2000 {
			v := q.Low + (q.High-q.Low)*float64(sample.Uniform(src, 1<<40))/(1<<40)
			places := e.Places(func(string) string { return strconv.FormatFloat(v, 'g', -1, 64) }, nil, nil)
			leaf := places[len(places)-1] - (n - 2)
			// Edges and values are rounded.
			if slack := 1e-12 * (q.High/2 - q.Low/2); v < q.edge(leaf, n)-slack || v > q.edge(leaf+1, n)+slack {
				t.Fatalf("%v is in leaf %d, %v..%v", v, leaf, q.edge(leaf, n), q.edge(leaf+1, n))
			}
			for l, at := range places {
				if want := 2<<l - 2 + leaf>>(q.Levels-1-l); at != want {
					t.Fatalf("level %d: place %d, want %d", l+1, at, want)
				}
			}
		}
		for cell, want := range map[string]int{"-1e300": 0, "1e300": n - 1} {
			if got := q.part(func() float64 { v, _ := number(cell); return v }(), n); got != want {
				t.Errorf("%s is in leaf %d of %d", cell, got, n)
			}
		}
	}
}

// Without noise, quantiles are the edges nearest in rank.
func TestQuantilesWithoutNoise(t *testing.T) {
	q := Question{Measure: "quantiles", Column: "t", High: 128, Ranks: []float64{.1, .5, .99}, Levels: 7}
	p := make(population, 0, 128)
	for i := range 128 {
		p = append(p, strconv.Itoa(i))
	}
	e, err := NewEncoder(q)
	if err != nil {
		t.Fatal(err)
	}
	sums := make([]float64, q.Dim())
	for i := range p {
		for _, j := range e.Places(func(string) string { return p[i] }, nil, nil) {
			sums[j]++
		}
	}
	law, err := OfCurator(1, 0x1p-20, 1, true)
	if err != nil {
		t.Fatal(err)
	}
	a, err := q.Answer(Release{Sums: sums, Reports: 128, Law: law})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float64{12, 64, 126} { // 12.8, 64 and 126.72 values are below
		got := a.Quantiles[i]
		if got.Value != want || got.Low95 > want || got.High95 < want || got.High95-got.Low95 > 2 || math.Abs(got.RankLow95-want/128) > 1e-3 || math.Abs(got.RankHigh95-(want+1)/128) > 1e-3 {
			t.Errorf("rank %v: %+v, want %v", q.Ranks[i], got, want)
		}
	}
}

// Values at ranks are within their intervals, and so are the ranks of the values that are given.
func TestQuantileCoverage(t *testing.T) {
	ranks := []float64{.05, .25, .5, .9}
	q := Question{Measure: "quantiles", Column: "t", High: 64, Ranks: ranks, Levels: 8}
	known := q
	known.Everyone = true
	holes, complete := normalRows(1000, 30, 12, 2), normalRows(1000, 30, 12, 0)
	leaf := 64 / math.Exp2(float64(q.Levels))
	for _, c := range []struct {
		name    string
		q       Question
		p       population
		reports int
		noise   float64
	}{{"some outside", q, holes, 1000, 224}, {"everyone", known, complete, 1000, 224}, {"sampled", q, holes, 400, 4}} {
		t.Run(c.name, func(t *testing.T) {
			reps := longtest.Pick3(200, 500, 2000)
			slack, slackJoint := longtest.Pick3(.077, .049, .02), longtest.Pick3(.077, .049, .015)
			values := c.p.values()
			slices.Sort(values)
			// rank returns the share of values below x.
			rank := func(x float64) float64 {
				i, _ := slices.BinarySearch(values, x)
				return float64(i) / float64(len(values))
			}
			draw, src := c.p.releases(t, c.q, c.reports, c.noise), rng.Replay(19, 12)
			missed, missedRank, joint, off := make([]int, len(ranks)), make([]int, len(ranks)), 0, 0.
			for range reps {
				a, err := c.q.Answer(draw(src))
				if err != nil {
					t.Fatal(err)
				}
				all := true
				for i, got := range a.Quantiles {
					truth := math.Min(64, math.Max(0, values[int(math.Ceil(ranks[i]*float64(len(values))))-1]))
					if truth < got.Low95 || truth > got.High95 {
						missed[i]++
					}
					all = all && got.JointLow95 <= truth && truth <= got.JointHigh95
					r, to := rank(got.Value), rank(got.Value+leaf)
					if got.Value == 64 {
						r, to = rank(64-leaf), 1
					}
					if r < got.RankLow95 || to > got.RankHigh95 {
						missedRank[i]++
					}
					off += math.Max(0, math.Max(r-ranks[i], ranks[i]-to)) / float64(len(ranks))
				}
				if !all {
					joint++
				}
			}
			report := ""
			for i := range ranks {
				v, r := 1-float64(missed[i])/float64(reps), 1-float64(missedRank[i])/float64(reps)
				report += fmt.Sprintf(" %v: values %.1f %%, ranks %.1f %%;", ranks[i], 100*v, 100*r)
				if v < .95-slack { // leaves are not divided, so more is possible
					t.Errorf("rank %v: the interval holds the value in %.1f %%", ranks[i], 100*v)
				}
				if r < .95-slack { // and noise of small parts is counted whole
					t.Errorf("rank %v: the interval holds the rank in %.1f %%", ranks[i], 100*r)
				}
			}
			if share := 1 - float64(joint)/float64(reps); share < .95-slackJoint {
				t.Errorf("joint intervals hold in %.1f %%", 100*share)
			}
			t.Logf("%s joint %.1f %%, mean rank error %.2g", report, 100*(1-float64(joint)/float64(reps)), off/float64(reps))
		})
	}
}

// At n = 1e5 and ε = 1 all ranks from 1 to 99 % are met within .5 %.
func TestQuantileRanks(t *testing.T) {
	for _, levels := range []int{10, 12} {
		testQuantileRanks(t, levels)
	}
}

func testQuantileRanks(t *testing.T, levels int) {
	q := Question{Measure: "quantiles", Column: "t", High: 120, Levels: levels}
	for i := range 99 {
		q.Ranks = append(q.Ranks, float64(i+1)/100)
	}
	const n = 100_000
	params, err := vecsum.Tight(vecsum.Target{Eps: 1, Delta: 1e-5, Users: n, Dim: q.Dim(), Ones: q.Ones(), Kind: vecsum.Binomial, Rounds: 1})
	if err != nil {
		t.Fatal(err)
	}
	src := rng.Replay(19, 31)
	x := make([]float64, n)
	sample.Gaussian(src, x)
	e, err := NewEncoder(q)
	if err != nil {
		t.Fatal(err)
	}
	counts := make([]int64, q.Dim())
	var places []int
	for i, v := range x {
		x[i] = math.Min(120, math.Max(0, 38+22*v))
		cell := strconv.FormatFloat(x[i], 'g', -1, 64)
		places = e.Places(func(string) string { return cell }, nil, places[:0])
		for _, j := range places {
			counts[j] += params.Grid
		}
	}
	slices.Sort(x)
	if err := params.AddNoise(src, counts, n); err != nil {
		t.Fatal(err)
	}
	law, err := OfClients(params, n)
	if err != nil {
		t.Fatal(err)
	}
	r := Release{Sums: make([]float64, q.Dim()), Reports: n, Law: law}
	if err := params.Estimate(r.Sums, counts, n); err != nil {
		t.Fatal(err)
	}
	a, err := q.Answer(r)
	if err != nil {
		t.Fatal(err)
	}
	worst, before := 0., math.Inf(-1)
	for _, got := range a.Quantiles {
		if got.Value < before {
			t.Errorf("rank %v: %v after %v", got.Rank, got.Value, before)
		}
		before = got.Value
		i, _ := slices.BinarySearch(x, got.Value)
		// Values at one point, as the clipped ones, have all ranks from the first to the last.
		j, _ := slices.BinarySearch(x, math.Nextafter(got.Value, 1e9))
		off := math.Max(0, math.Max(float64(i)/n-got.Rank, got.Rank-float64(j)/n))
		worst = math.Max(worst, off)
	}
	t.Logf("%d levels: largest rank error %.4f, noise %v of a node", levels, worst, math.Sqrt(law.variance(0)))
	if worst > .005 {
		t.Errorf("%d levels: rank error %v", levels, worst)
	}
}

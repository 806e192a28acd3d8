package figures

import (
	"context"
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

func lawNamed(t *testing.T, name string) law {
	t.Helper()
	i := slices.IndexFunc(laws, func(l law) bool { return l.name == name })
	if i < 0 {
		t.Fatalf("no law %s", name)
	}
	return laws[i]
}

// The limit of many reports, in closed form, has the same noise and nearly the same ratio; and
// δ of the curator's rounds, by the normal integral, is the figure's.
func TestNoiseIsThatOfTheLimit(t *testing.T) {
	d := shared
	for i, c := range []struct {
		law      string
		eps0     float64
		messages int64
		// ratio is by composing the laws' characteristic functions, from an independent
		// program; 0: not computed.
		ratio float64
	}{
		{"privunit", .5, 1, 1.75}, {"privunit", 1, 8, 2.03}, {"privunit", 2, 1, 2.99}, {"privunit", 2.5, 4, 3.81}, {"privunit", 3, 2, 4.97}, {"privunit", 4, 1, 9.06},
		{"privunit-shuffled", 1.41, 1, 2.05}, {"privunit-shuffled", 2.35, 2, 3.24}, {"privunit-shuffled", 2.55, 8, 3.62}, {"privunit-shuffled", .5, 1, 0},
		{"stepunit-3", 1.65, 4, 1.73}, {"stepunit-3", 2.12, 1, 2.12}, {"stepunit-3", 2.63, 8, 2.72}, {"stepunit-3", 2.83, 1, 3.03}, {"stepunit-3", 4, 2, 0},
	} {
		if i%3 != 1 && !longtest.On {
			continue
		}
		l := lawNamed(t, c.law)
		r, err := d.run(context.Background(), l, c.eps0, c.messages)
		if err != nil {
			t.Fatal(err)
		}
		off := func(what string, got, want, tolerance float64) {
			if !(math.Abs(got/want-1) <= tolerance) {
				t.Errorf("%s, eps0 = %v, m = %d: %s is %.6g, want %.6g", c.law, c.eps0, c.messages, what, got, want)
			}
		}
		// The edge of least noise, as a seed has it.
		edges, err := randomizer.Edges(l.randomizer, randomizer.Config{Dim: singleDim, Radius: 1, Eps0: c.eps0, Steps: l.steps, Encoding: randomizer.Seed})
		if err != nil {
			t.Fatal(err)
		}
		noise, cost := amplify.StepLimit(math.Expm1(c.eps0)/float64(len(edges)), edges)
		off("noise", r.noise, noise/float64(c.messages), 3e-3)
		off("ratio", r.ratio, noise*cost/4, 5e-3)
		if c.ratio > 0 {
			off("ratio", r.ratio, c.ratio, 5e-3)
		}
		mu := math.Sqrt(4 * singleRounds / (singleClients * r.noise / r.ratio))
		normal := func(x float64) float64 { return math.Erfc(-x/math.Sqrt2) / 2 }
		off("delta of the curator", normal(mu/2-r.eps/mu)-math.Exp(r.eps)*normal(-mu/2-r.eps/mu), singleDelta, 1e-4)
	}
}

// The accountant gives sums of Gaussian noise of the curator's size the same ε.
func TestCuratorIsTheAccountants(t *testing.T) {
	for _, eps := range []float64{.1, .6135, 3} {
		noise, err := centralNoise(eps)
		if err != nil {
			t.Fatal(err)
		}
		// Each of n clients adds the n-th part of the sum's noise, in units of the clip.
		sigma := math.Sqrt(noise)
		r, err := account.Answer(context.Background(), account.Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.All,
			Sigma: sigma, Population: singleClients, Rounds: singleRounds, Delta: singleDelta}, "best")
		if err != nil || r.Upper == nil || math.Abs(r.Upper.Eps/eps-1) > 1e-3 {
			t.Errorf("rounds with noise %v cost %+v, want %v: %v", noise, r.Upper, eps, err)
		}
	}
}

// three remembers the bounds of tests that draw three points.
var three = &desk{points: 3}

// fewMessages leaves one message and eight, and for curves the table's ε₀, for the time of a test.
func fewMessages(t *testing.T) {
	if all, eps0 := messageCounts, singleEps0; !longtest.On {
		messageCounts, singleEps0 = []int64{1, 8}, tableEps0
		t.Cleanup(func() { messageCounts, singleEps0 = all, eps0 })
	}
}

// Less noise relative to a curator's with each message more, at equal ε, and never less than his.
func TestNoiseFalls(t *testing.T) {
	fewMessages(t)
	d := three
	by, err := noiseByEps0(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range by.Series {
		for j, y := range s.Y {
			switch {
			case !(y > 1 && y < 20):
				t.Errorf("%s at eps0 = %v: %v", s.Name, s.X[j], y)
			case j > 0 && !(y > s.Y[j-1]):
				t.Errorf("%s falls to %v", s.Name, y)
			case i%len(messageCounts) > 0 && math.Abs(y/by.Series[i-1].Y[j]-1) > 1e-4:
				t.Errorf("%s: %v, where fewer messages have %v", s.Name, y, by.Series[i-1].Y[j])
			}
		}
	}
	over, err := noiseByEps(context.Background(), d)
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range over.Series {
		if i%len(messageCounts) > 0 {
			for j, x := range s.X {
				if !(x > over.Series[i-1].X[j]) {
					t.Errorf("%s costs %v", s.Name, x)
				}
			}
		}
	}
}

func TestNoiseTable(t *testing.T) {
	fewMessages(t)
	table, err := noiseTable(context.Background(), three)
	if err != nil || len(table.Table.Rows) != 3*len(messageCounts) {
		t.Fatalf("%d rows: %v", len(table.Table.Rows), err)
	}
	// riffle eps --participation all --randomizer privunit|stepunit --dim 1930 --eps0 2 --messages M --n 60000 --rounds 160 --delta 1e-5
	for _, want := range [][]string{{"2", "1", "2", "0.4937", "0.329"}, {"2", "8", "16", "1.545", "1.025"}} {
		found := slices.ContainsFunc(table.Table.Rows, func(r []string) bool {
			return slices.Equal([]string{r[0], r[1], r[2], r[4], r[10]}, want)
		})
		if !found {
			t.Errorf("no row with %v in %v", want, table.Table.Rows)
		}
	}
}

// What a shuffler's messages add is the limit's noise at the ε₀ that riffle plan finds, and sums
// have a twentieth more than the curator, or twice as much if the aggregators add the noise.
func TestTrustTable(t *testing.T) {
	fewMessages(t)
	rows, err := trustedAt(context.Background(), .5)
	if err != nil {
		t.Fatal(err)
	}
	// riffle plan --solve eps0 --target-eps 0.5 --randomizer stepunit --dim 1930 --messages M --participation all --n 60000 --rounds 160 --delta 1e-5,
	// with --randomizer vecsum --solve noise-bits the variance 33230.8 of a coordinate of the sum, and
	// with --noise-by aggregators --solve sigma the sigma = 177.9123 of each of two, in norms of 2^15 steps and 22 more.
	want := []trusted{{messages: 0}, {noise: 33230.8 / singleClients}, {noise: 2 * 177.9123 * 177.9123 * (1 + 22./(1<<15)) * (1 + 22./(1<<15)) / singleClients}, {messages: 1, eps0: 2.5206}, {messages: 2, eps0: 2.0479}, {messages: 4, eps0: 1.6356}, {messages: 8, eps0: 1.2853}}
	want = slices.DeleteFunc(want, func(w trusted) bool { return w.messages > 0 && !slices.Contains(messageCounts, w.messages) })
	if len(rows) != len(want) {
		t.Fatalf("%d rows", len(rows))
	}
	for i, w := range want {
		r := rows[i]
		if r.messages != w.messages || math.Abs(r.eps0-w.eps0) > 1e-3 {
			t.Errorf("row %d: %+v, want %+v", i, r, w)
		}
		if w.messages > 0 {
			edges := amplify.BestEdges(3, r.eps0)
			noise, _ := amplify.StepLimit(math.Expm1(r.eps0)/3, edges)
			w.noise = noise / float64(r.messages)
		}
		if w.noise > 0 && math.Abs(r.noise/w.noise-1) > 2e-3 {
			t.Errorf("row %d: noise %v, want %v", i, r.noise, w.noise)
		}
		if ratio := r.noise / rows[0].noise; i == 1 && math.Abs(ratio-1.05) > .002 || i > 3 && !(r.noise < rows[i-1].noise) {
			t.Errorf("row %d: %v times a curator's noise", i, ratio)
		}
	}
}

package schedule

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

func blocks(t testing.TB, clients, size int64) Blocks {
	t.Helper()
	b, err := NewBlocks(clients, size)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEveryClientReportsOnceAnEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 300).Draw(t, "n")
		size := rapid.Int64Range(1, n).Draw(t, "size")
		b, err := NewBlocks(n, size)
		if err != nil {
			t.Fatal(err)
		}
		o := b.Draw(rng.Replay(rapid.Uint64().Draw(t, "seed")), nil)
		var all []uint32
		smallest, largest := int64(math.MaxInt64), int64(0)
		for block := range b.PerEpoch {
			from, to := b.Range(block)
			if from != int64(len(all)) {
				t.Fatalf("block %d begins at %d, want %d", block, from, len(all))
			}
			m := o[from:to]
			smallest, largest = min(smallest, int64(len(m))), max(largest, int64(len(m)))
			all = append(all, m...)
		}
		slices.Sort(all)
		for i, c := range all {
			if int(c) != i {
				t.Fatalf("clients %v, want 0 … %d once each", all, n-1)
			}
		}
		if int64(len(all)) != n || smallest != b.Smallest || smallest < size || largest > smallest+1 {
			t.Fatalf("n = %d, B = %d: %d clients, blocks of %d to %d, Smallest %d", n, size, len(all), smallest, largest, b.Smallest)
		}
	})
}

func TestRoundsOfEpochs(t *testing.T) {
	b := blocks(t, 10, 3) // 3 blocks of 4, 3, 3
	for round, want := range map[int64][2]int64{1: {1, 0}, 3: {1, 2}, 4: {2, 0}, 9: {3, 2}} {
		if e, k := b.Of(round); e != want[0] || k != want[1] {
			t.Errorf("round %d is block %d of epoch %d, want %v", round, k, e, want)
		}
	}
	if b.Smallest != 3 || b.Clients != 10 {
		t.Errorf("%d clients, smallest %d", b.Clients, b.Smallest)
	}
}

func TestEpochs(t *testing.T) {
	b := blocks(t, 10, 3) // 3 rounds an epoch
	for rounds, want := range map[int64]int64{
		math.MinInt64: 0, -1: 0, 0: 0, 1: 1, 3: 1, 4: 2, 6: 2, 7: 3, math.MaxInt64: math.MaxInt64/3 + 1,
	} {
		if got := b.Epochs(rounds); got != want {
			t.Errorf("%d rounds are %d epochs, want %d", rounds, got, want)
		}
	}
	if got := blocks(t, 10, 10).Epochs(math.MaxInt64); got != math.MaxInt64 {
		t.Errorf("%d epochs of one round", got)
	}
}

func TestDrawIsReproducibleAndReuses(t *testing.T) {
	b := blocks(t, 1000, 100)
	first := b.Draw(rng.Replay(1, 7), nil)
	want := slices.Clone(first)
	other := b.Draw(rng.Replay(1, 8), first)
	if &other[0] != &first[0] || slices.Equal(other, want) {
		t.Error("another epoch has the same order, or new memory")
	}
	if again := b.Draw(rng.Replay(1, 7), other); !slices.Equal(again, want) {
		t.Error("the order depends on the memory it takes over")
	}
}

// TestDrawIsUniform counts all 24 orders of 4 clients.
func TestDrawIsUniform(t *testing.T) {
	b := blocks(t, 4, 1)
	counts := map[[4]uint32]float64{}
	src := rng.Replay(3)
	const draws = 48_000
	var o []uint32
	for range draws {
		o = b.Draw(src, o)
		counts[[4]uint32(o)]++
	}
	x2 := 0.0
	for _, c := range counts {
		x2 += (c - draws/24) * (c - draws/24) / (draws / 24)
	}
	// 23 degrees of freedom: P(χ² > 75) < 3e-7; the seed is fixed.
	if len(counts) != 24 || x2 > 75 {
		t.Errorf("%d orders, χ² = %.1f", len(counts), x2)
	}
}

func TestEvents(t *testing.T) {
	b := blocks(t, 60_000, 1000)
	report := dp.Report{Class: dp.BinaryRR, Eps0: 1}
	public, err := b.Epoch(report, 1000)
	if err != nil {
		t.Fatal(err)
	}
	if want := (dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: 1000}); public != want {
		t.Errorf("epoch %+v, want %+v", public, want)
	}
	secret, err := b.secretEpoch(report)
	if err != nil {
		t.Fatal(err)
	}
	if secret.Report.Class != dp.Generic || secret.Participation != dp.All || secret.Population != 60_000 {
		t.Errorf("secret epoch %+v", secret)
	}
	// The class is widened to Generic, which has no symbols.
	secret, err = b.secretEpoch(dp.Report{Class: dp.KRR, Eps0: 1, Symbols: 3})
	if err != nil || secret.Report != (dp.Report{Class: dp.Generic, Eps0: 1}) {
		t.Errorf("secret epoch of 3 symbols: %+v, %v", secret, err)
	}
	for _, k := range []int64{0, -1, 1001} {
		if _, err := b.Epoch(report, k); err == nil {
			t.Errorf("accepted k = %d of blocks of 1000", k)
		}
	}
	if _, err := b.Epoch(dp.Report{Class: dp.Generic, Eps0: math.NaN()}, 1); err == nil {
		t.Error("accepted eps0 = NaN")
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range [][2]int64{{0, 0}, {5, 0}, {5, 6}, {5, -1}, {-5, 1}, {1<<32 + 1, 1}, {0, 1}, {3, 4}} {
		if _, err := NewBlocks(c[0], c[1]); err == nil {
			t.Errorf("accepted %v", c)
		}
	}
	b := blocks(t, 5, 2)
	for name, call := range map[string]func(){
		"block -1": func() { b.Range(-1) }, "block 2": func() { b.Range(2) }, "round 0": func() { b.Of(0) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s accepted", name)
				}
			}()
			call()
		}()
	}
}

func BenchmarkDraw(b *testing.B) {
	s := blocks(b, 1_000_000, 1000)
	src := rng.Replay(1)
	var o []uint32
	for b.Loop() {
		o = s.Draw(src, o)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1e6, "ns/client")
}

// TestAccounting: a public epoch costs what one shuffle of its block costs,
// whatever n is; a secret one costs less, as it hides among all.
func TestAccounting(t *testing.T) {
	b := blocks(t, 20_000, 500)
	report := dp.Report{Class: dp.Generic, Eps0: 1}
	public, err := b.Epoch(report, 500)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := b.secretEpoch(report)
	if err != nil {
		t.Fatal(err)
	}
	alone := dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: 500}
	a := new(account.Accountant)
	eps := func(r dp.Round) float64 {
		bound, err := a.Eps(dp.Repeat{Event: r, Times: 3}, 1e-5)
		if err != nil {
			t.Fatal(err)
		}
		return bound.Eps
	}
	p, s, o := eps(public), eps(secret), eps(alone)
	if p != o || !(s < p/3) || !(p < 3) {
		t.Errorf("3 epochs: public %v, one block alone %v, secret %v", p, o, s)
	}
}

// secretEpoch returns what one whole epoch costs if its order is secret: as much as one
// shuffle of all n reports. The released sequence is a shuffled adaptive process of n
// reports, each ε₀-LDP given those before it.
// Source: dp/amplify/blanket.md, "Adaptive inside a round", for the bound that an accountant
// charges, r = 2/(E+1). The reduction is that of Feldman, McMillan, Talwar 2022, Theorem 3.1,
// whose r = e^−ε₀ is weaker; it is what Chen, Cao and Ge build on (Proposition 1).
//
// The event says Generic and not that its reports are adaptive. A bound for Generic that is
// proved only for reports drawn independently of each other must not be used for it.
//
// It needs all of these: Draw draws the order from a secure source, anew for every epoch;
// only the shuffler knows it; nobody who sees the reports sees who is asked when; every
// client reports. A client that can only report at certain times gives its place away: with
// any drop-out, even one that does not depend on the data, charge Epoch instead. The class is
// Generic, because the bounds of narrower classes are not proved for adaptive reports.
func (b Blocks) secretEpoch(report dp.Report) (dp.Round, error) {
	report = dp.Report{Class: dp.Generic, Eps0: report.Eps0}
	r := dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: b.Clients}
	return r, r.Validate()
}

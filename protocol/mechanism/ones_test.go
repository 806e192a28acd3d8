package mechanism

import (
	"math"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
)

// Counts travel as sealed parts, of clients' noise as shares and of aggregators' with proofs, and are
// the number of ones in the end. A proof shows that there are not too many ones, but not that
// there is nothing but ones.
func TestOnesTravel(t *testing.T) {
	const n, d, m = 20, 5, 2
	input := func(i int) []float32 {
		x := make([]float32, d)
		for j := range i % (m + 2) { // m + 1 ones are sent as zeros
			x[(i+2*j)%d] = 1
		}
		return x
	}
	want := make([]float64, d)
	for i := range n {
		if i%(m+2) <= m {
			for j, v := range input(i) {
				want[j] += float64(v)
			}
		}
	}
	src, announcement := rng.Replay(5), [32]byte{6}

	p, err := vecsum.Tight(vecsum.Target{Eps: 20, Delta: 1e-5, Users: n, Dim: d, Ones: m})
	if err != nil {
		t.Fatal(err)
	}
	clients := must(New(must(NewVectorSum(p, 1)).Describe()))
	shares := must(clients.(*VectorSum).Shares(announcement))
	var messages [][]byte
	r := clients.NewReport()
	for i := range n {
		clients.Randomize(src, input(i), r)
		part, share, err := Contents(src, clients, announcement, r)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, part, share)
	}
	sum, reports, err := shares.Sum(messages)
	if err != nil || reports != n {
		t.Fatal(reports, err)
	}
	mean := make([]float64, d)
	clients.Estimate(mean, sum, n)
	for j, v := range mean { // 7 deviations
		if math.Abs(n*v-want[j]) > 7*math.Sqrt(p.Variance(n)) {
			t.Errorf("clients' noise: %v ones at %d, want %v", n*v, j, want[j])
		}
	}

	aggregators := must(New(must(NewAggregatedSum(must(vecsum.NewAggregatedOnes(n+1, d, m, 1)), 1, n)).Describe())).(*AggregatedSum)
	round := must(aggregators.Proved(announcement))
	var sums [2]*proved.Sum
	for k := range sums {
		sums[k] = must(round.NewSum(proved.SumConfig{Role: proved.Role(k), Key: proved.VerifyKey{1}, Reports: n + 1}))
	}
	var at [2][]*proved.Prepared
	add := func(part, share []byte) {
		at[proved.Aggregator] = append(at[proved.Aggregator], sums[proved.Aggregator].Prepare(share))
		at[proved.Coordinator] = append(at[proved.Coordinator], sums[proved.Coordinator].Prepare(part))
	}
	for i := range n {
		aggregators.Randomize(src, input(i), r)
		part, share, err := Contents(src, aggregators, announcement, r)
		if err != nil {
			t.Fatal(err)
		}
		add(part, share)
	}
	// A liar with m + 1 ones, and one that takes the length of m ones off one place.
	many := []int64{aggregators.Steps, aggregators.Steps, aggregators.Steps, 0, 0}
	if _, _, err := round.Report(src, many); err == nil {
		t.Error("m + 1 ones have a proof")
	}
	far := []int64{-int64(float64(aggregators.Steps) * math.Sqrt(m)), 0, 0, 0, 0}
	share, part, err := round.Report(src, far)
	if err != nil {
		t.Fatal(err)
	}
	add(part, share)
	begun := [2][]byte{must(sums[0].Begin(at[0])), must(sums[1].Begin(at[1]))}
	var partials []vecsum.Partial
	for k, s := range sums {
		if got := must(s.Finish(begun[1-k])); slices.ContainsFunc(got, func(r proved.Reason) bool { return r != proved.Accepted }) {
			t.Fatalf("aggregator %d: %q", k, got)
		}
		partials = append(partials, must(s.Close(make([]int64, d))))
	}
	sum, reports, err = round.Combine(partials[0], partials[1])
	if err != nil || reports != n+1 {
		t.Fatal(reports, err)
	}
	for j := range sum {
		if sum[j] -= far[j]; float64(sum[j])*aggregators.Step() != want[j] {
			t.Errorf("aggregators' noise: %v ones at %d, want %v", float64(sum[j])*aggregators.Step(), j, want[j])
		}
	}
}

package tail

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/internal/golden"
)

// TestSurvivalGolden compares with 60-digit sums (testdata/golden.py).
func TestSurvivalGolden(t *testing.T) {
	worst, count := 0.0, 0
	for _, v := range golden.Table(t, "binomial.tsv", 100) {
		n, p, x, want := int64(v[0]), v[1], int64(v[2]), v[4]
		if want < -680 {
			continue
		}
		count++
		z := (v[2] - v[0]*p) / math.Sqrt(v[0]*p*(1-p))
		got := Survival(n, x, p, 1-p)
		rel := math.Abs(math.Log(got) - want)
		worst = math.Max(worst, rel)
		if !(rel <= 1e-12+4e-16*math.Abs(want)+3e-16*z*z) {
			t.Errorf("n=%d p=%v x=%d: log tail %.17g, true %.17g (off %.3g)", n, p, x, math.Log(got), want, rel)
		}
	}
	if count < 100 {
		t.Fatalf("%d rows", count)
	}
	t.Logf("largest log error %.3g over %d rows", worst, count)
}

// TestSurvivalSums holds the tail against the sum of its terms, for every x.
func TestSurvivalSums(t *testing.T) {
	for _, n := range []int64{1, 2, 3, 7, 33, 65, 200, 3000} {
		for _, p := range []float64{1e-9, .003, .1, .5, .77, .999} {
			lo := int64(0)
			sum := 0.0
			for x := n; x >= lo; x-- {
				sum += math.Exp(LogPMF(n, x, p, 1-p))
				got := Survival(n, x, p, 1-p)
				if sum < 1e-290 {
					continue
				}
				if math.Abs(got-sum) > 3e-12*sum {
					t.Errorf("n=%d p=%v x=%d: %.17g, sum %.17g (relative %.2g)", n, p, x, got, sum, got/sum-1)
					break
				}
			}
		}
	}
	if Survival(5, 0, .3, .7) != 1 || Survival(5, 6, .3, .7) != 0 || Survival(5, 2, 0, 1) != 0 || Survival(5, 2, 1, 0) != 1 {
		t.Error("edges")
	}
}

func BenchmarkSurvival(b *testing.B) {
	n := int64(1e12)
	for i := 0; b.Loop(); i++ {
		Survival(n, n/2+int64(i%2000000), .5, .5)
	}
}

// Probabilities whose square underflows.
func TestSurvivalOfTheRarest(t *testing.T) {
	for _, p := range []float64{1e-160, 1e-200, 1e-300, 5e-324} {
		for _, n := range []int64{1, 2, 36, 1 << 40} {
			want := float64(n) * p // of one or more, but for n²p²
			if got := Survival(n, 1, p, 1); !(math.Abs(got-want) <= 1e-12*want) && !(got == 0 && want < 1e-300) {
				t.Errorf("P(Bin(%d, %v) >= 1) = %v, want %v", n, p, got, want)
			}
			if got := Survival(n, n, 1, p); n > 1 && !(math.Abs(got-1) <= 1e-12) {
				t.Errorf("P(Bin(%d, 1) >= %d) = %v, want 1", n, n, got)
			}
		}
	}
}

package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// mixDistance bounds the total variation distance between what an analyzer sees of n honest
// clients who each split one number modulo q = 2^log2q into k shares, shuffled together, and
// a view that depends on the sum only.
//
// Upper bound, proved (mix.md, theorem), evaluated numerically upwards, with at most 1e-4
// relative slack for rounding; whatever the inputs. Needs 3 ≤ k ≤ maxShares, n ≥ 1, 1 ≤ log2q
// ≤ 64 and n·k up to 2^50. Otherwise, and if the induction of mix.md does not start, the
// error wraps dp.ErrNoBound; more shares may then help.
func mixDistance(n int64, k, log2q int) (float64, error) {
	if k < 3 || k > maxShares || n < 1 || log2q < 1 || log2q > 64 || float64(n)*float64(k) > 1<<50 {
		return 0, fmt.Errorf("vecsum: split-and-mix of %d clients with %d shares modulo 2^%d: %w", n, k, log2q, dp.ErrNoBound)
	}
	c, logQ := k-1, float64(log2q)*math.Ln2
	for h := 16; h <= 512; h *= 2 {
		small := smallRounds(2*h+1, c, logQ)
		if n < int64(len(small)) {
			return math.Min(1, .5*math.Exp(small[n]/2)*(1+1e-6)), nil
		}
		// starts says whether the induction starts, with ã ≤ 2 from h+1 on.
		starts := largeRound(int64(len(small)), c, logQ, h, small) <= 0
		for _, s := range small[h+1:] {
			starts = starts && s <= 0
		}
		if starts {
			return math.Min(1, .5*math.Exp(largeRound(n, c, logQ, h, small)/2)*(1+1e-6)), nil
		}
	}
	return 0, fmt.Errorf("vecsum: split-and-mix with %d shares modulo 2^%d: too few: %w", k, log2q, dp.ErrNoBound)
}

// logSlack covers the rounding of each logarithm of a binomial coefficient that
// is a sum of three log-gammas below 2^22; sums of many terms get sumSlack on top.
const logSlack = 1e-7

// sumSlack bounds the rounding error of a sum of that many terms of one sign, in any rounding
// mode.
func sumSlack(terms int, sum float64) float64 {
	return float64(terms) * math.Abs(sum) * 0x1p-51
}

// smallRounds returns log(ã_n − 1) for 1 ≤ n ≤ most, ã_n ≥ E[q^(C−1)] by the
// recursion of mix.md, lemma 3.
func smallRounds(most, c int, logQ float64) []float64 {
	fact := make([]float64, c*most+1) // log i!
	for i := range fact {
		fact[i], _ = math.Lgamma(float64(i) + 1)
	}
	binom := func(n, m int) float64 { return fact[n] - fact[m] - fact[n-m] }
	out, logA := make([]float64, most+1), make([]float64, most+1)
	out[0], out[1] = math.NaN(), math.Inf(-1)
	terms := make([]float64, 0, most)
	for n := 2; n <= most; n++ {
		terms = terms[:0]
		for m := 1; m < n; m++ {
			terms = append(terms, logQ+binom(n-1, m)-binom(c*n, c*m)+logA[m]+logSlack)
		}
		out[n] = logSumExp(terms)
		logA[n] = math.Max(0, out[n]) + math.Log1p(math.Exp(-math.Abs(out[n])))
	}
	return out
}

// largeRound returns log B̂(n) of mix.md, lemma 4, for n ≥ 2h+2.
func largeRound(n int64, c int, logQ float64, h int, small []float64) float64 {
	terms := make([]float64, 0, 2*h+1)
	f, cn := float64(n), float64(n)*float64(c)
	var below, all, closed float64 // log of binom(n−1,m), binom(n,m), binom(cn,cm)
	for m := 1; m <= h; m++ {
		x := float64(m)
		below += math.Log((f - x) / x)
		all += math.Log((f - x + 1) / x)
		for i := range c {
			at := float64((m-1)*c + i)
			closed += math.Log((cn - at) / (at + 1))
		}
		a := math.Max(0, small[m]) + math.Log1p(math.Exp(-math.Abs(small[m])))
		slack := logSlack + sumSlack(m*c, closed) + sumSlack(m, all)
		terms = append(terms, logQ+below-closed+a+slack, // the term of m clients apart from the others
			logQ+math.Ln2+math.Log(x/f)+all-closed+slack) // the term of all but m clients apart
	}
	terms = append(terms, logQ+math.Ln2+math.Log(f)-float64(c-1)*all+float64(c)*(logSlack+sumSlack(h, all)))
	return logSumExp(terms)
}

func logSumExp(terms []float64) float64 {
	top := math.Inf(-1)
	for _, t := range terms {
		top = math.Max(top, t)
	}
	if math.IsInf(top, -1) {
		return top
	}
	var sum float64
	for _, t := range terms {
		sum += math.Exp(t - top)
	}
	return top + math.Log(sum)
}

// maxShares bounds k. Two clients need 176 shares for a distance of 2^−145 at q = 2^56; more
// clients need fewer.
const maxShares = 200

// mixShares returns the smallest k for which the bound of n honest clients is at
// most 2^−sigma.
func mixShares(n int64, log2q int, sigma float64) (int, error) {
	for k := 3; k <= maxShares; k++ {
		// The term of one client apart is the largest and cheap to compute, so it is tried
		// first.
		c := float64(k - 1)
		lead := float64(log2q)*math.Ln2 + math.Log(float64(n-1))
		for i := range k - 1 {
			lead -= math.Log((c*float64(n) - float64(i)) / float64(i+1))
		}
		if n > 1 && lead/2-math.Ln2 > -sigma*math.Ln2 {
			continue
		}
		if d, err := mixDistance(n, k, log2q); err == nil && d <= math.Exp2(-sigma) {
			return k, nil
		}
	}
	return 0, fmt.Errorf("vecsum: split-and-mix of %d honest clients needs more than %d shares: %w", n, maxShares, dp.ErrNoBound)
}

package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Blanket returns the blanket's rate of clones, r = 2/(E+1) with E = e^ε₀.
// Proved for every ε₀-LDP randomizer, also adaptive inside the round, in
// blanket.md.
func Blanket(eps0 float64) float64 { return 2 / (math.Exp(eps0) + 1) }

// Clones returns the rate of clones of Feldman, McMillan and Talwar 2022,
// Theorem 3.1: r = e^−ε₀.
func Clones(eps0 float64) float64 { return math.Exp(-eps0) }

// ShuffleConfig describes one shuffle. All fields are required.
type ShuffleConfig struct {
	Eps0    float64
	Reports int64   // k ≥ 1, honest reports, the victim's included
	Rate    float64 // r, Blanket(Eps0) or Clones(Eps0)
	Tail    float64 // mass that may be dropped, in (0, 1e-3]
	// Blocks is how many values of the clones' number are told apart; 0: all.
	Blocks int
}

// maxAtoms bounds the memory of a pair.
const maxAtoms = 1 << 25

// Shuffle returns the clones pair: C ~ Bin(k−1, r) is public, A ~ Bin(C, ½)
// clones fall on the first symbol, and the victim adds one to the first symbol
// with probability E/(E+1) under P, 1/(E+1) under Q. It dominates the shuffle
// of k reports of one ε₀-LDP randomizer.
//
// A block of values of C is represented by its smallest: fewer clones hide
// less, so the block's pair dominates. The lower tail of C and both tails of A
// are dropped and bounded by Tail in all; the upper tail of C counts as its
// last block.
func Shuffle(c ShuffleConfig) (dp.Pair, error) {
	if err := dp.CheckEps0(c.Eps0); err != nil {
		return dp.Pair{}, err
	}
	if c.Reports < 1 || c.Reports > 1<<52 {
		return dp.Pair{}, fmt.Errorf("amplify: k = %d must lie between 1 and 2^52", c.Reports)
	}
	if !(c.Rate > 0 && c.Rate <= 1) || !(c.Tail > 0 && c.Tail <= 1e-3) {
		return dp.Pair{}, fmt.Errorf("amplify: rate = %v must lie in (0, 1] and tail = %v in (0, 1e-3]", c.Rate, c.Tail)
	}
	pair := dp.Pair{Remainders: []dp.Remainder{{Mass: c.Tail, MaxLoss: c.Eps0}}}
	// A third of the budget each for the lower tail of C and the tails of A.
	third := c.Tail / 3
	lo, hi := tail.Window(c.Reports-1, c.Rate, 1-c.Rate, third, third)
	width := int64(1)
	if c.Blocks > 0 {
		width = max(1, (hi-lo+int64(c.Blocks))/int64(c.Blocks))
	}
	var weight float64
	first := lo
	var err error
	total := 0.0
	flush := func(next int64, mass float64) {
		if err == nil && mass > 0 {
			err = appendGiven(&pair, c.Eps0, first+1, mass, third)
		}
		first = next
	}
	tail.PMF(c.Reports-1, c.Rate, 1-c.Rate, lo, hi, func(k int64, mass float64) {
		weight += mass
		total += mass
		if (k-lo+1)%width == 0 && k != hi {
			flush(k+1, weight)
			weight = 0
		}
	})
	// Mass above hi counts as the last block; rounding may not lose any.
	flush(hi+1, weight+math.Max(0, 1-total))
	return pair, err
}

// appendGiven adds the atoms with P > Q of the pair given m = C+1, times mass.
func appendGiven(pair *dp.Pair, eps0 float64, m int64, mass, drop float64) error {
	// P is at most twice Bin(m, ½), so a quarter each side drops at most drop.
	_, hi := tail.Window(m, .5, .5, drop/4, drop/4)
	from := m/2 + 1
	if int64(len(pair.Atoms))+hi-from+1 > maxAtoms {
		return fmt.Errorf("amplify: the pair of k reports at eps0 = %v has more than %d atoms: %w", eps0, maxAtoms, dp.ErrNoBound)
	}
	e, e1 := math.Exp(eps0), math.Expm1(eps0)
	// Q = Bin(m,½)(a) · 2(a + Eb)/(m(E+1)) and P swaps a and b = m − a, so
	// P/Q − 1 = (E−1)(a−b)/(a + Eb).
	scale := mass * 2 / (float64(m) * (e + 1))
	tail.PMF(m, .5, .5, from, hi, func(a int64, bin float64) {
		under := float64(a) + e*float64(m-a)
		pair.Atoms = append(pair.Atoms, dp.Atom{Q: scale * bin * under, Loss: math.Log1p(e1 * float64(2*a-m) / under)})
	})
	return nil
}

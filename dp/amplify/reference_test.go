package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// The slow reference: the clones pair outcome by outcome, sampled and mixed over k,
// against which the merged pairs of Family.Round and Family.Arrival are held.

// RoundConfig describes a FamilyRound of clones of a rate.
type RoundConfig = roundConfig

// NewCurve is Family.Curve of clones of a rate.
func NewCurve(c RoundConfig) (Curve, error) {
	f, err := ClonesFamily(c.Eps0, c.Rate)
	if err != nil {
		return Curve{}, err
	}
	return f.Curve(FamilyRound{c.Population, c.Reports, c.Included})
}

// Round is Family.Round of clones of a rate.
func Round(c RoundConfig) (dp.Pair, error) {
	f, err := ClonesFamily(c.Eps0, c.Rate)
	if err != nil {
		return dp.Pair{}, err
	}
	return f.Round(FamilyRound{c.Population, c.Reports, c.Included})
}

// ArrivalConfig describes a FamilyArrival of clones of a rate.
type ArrivalConfig struct {
	Eps0              float64
	Population, Asked int64
	Gamma, Rate       float64
}

// Arrival is Family.Arrival of clones of a rate.
func Arrival(c ArrivalConfig) (dp.Pair, error) {
	f, err := ClonesFamily(c.Eps0, c.Rate)
	if err != nil {
		return dp.Pair{}, err
	}
	return f.Arrival(c.family())
}

func (c ArrivalConfig) family() FamilyArrival {
	return FamilyArrival{Population: c.Population, Asked: c.Asked, Gamma: c.Gamma}
}

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
	if need := len(pair.Atoms) + int(hi-from) + 1; need > cap(pair.Atoms) {
		pair.Atoms = append(make([]dp.Atom, 0, 2*need), pair.Atoms...)
	}
	tail.PMF(m, .5, .5, from, hi, func(a int64, bin float64) {
		under := float64(a) + e*float64(m-a)
		pair.Atoms = append(pair.Atoms, dp.Atom{Q: scale * bin * under, Loss: math.Log1p(e1 * float64(2*a-m) / under)})
	})
	return nil
}

// Subsample returns the pair of a mechanism that runs on k of n clients drawn
// uniformly without replacement, from the mechanism's own dominating pair; γ =
// k/n. An outcome with loss L > 0 gets loss log1p(γ(e^L − 1)) with the same
// mass under Q; the mirror image follows, and the rest of the mass has loss 0.
//
// Needs a symmetric pair, which dp.Pair is. Valid for every real ε: Balle,
// Barthe and Gaboardi 2018, Theorem 2, for ε ≥ 0, and hybrid.md for ε < 0.
func Subsample(pair dp.Pair, gamma float64) (dp.Pair, error) {
	if !(gamma > 0 && gamma <= 1) {
		return dp.Pair{}, fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", gamma)
	}
	if gamma == 1 {
		return pair, nil
	}
	out := dp.Pair{Atoms: make([]dp.Atom, len(pair.Atoms))}
	for i, a := range pair.Atoms {
		out.Atoms[i] = dp.Atom{Q: a.Q, Loss: SampledLoss(a.Loss, gamma)}
	}
	for _, r := range pair.Remainders {
		out.Remainders = append(out.Remainders, dp.Remainder{Mass: r.Mass, MaxLoss: SampledLoss(r.MaxLoss, gamma)})
	}
	return out, nil
}

// CheckInConfig describes a round of self check-in. Eps0, Population, Gamma,
// Rate and Tail are required.
type CheckInConfig struct {
	Eps0       float64
	Population int64   // n
	Asked      int64   // clients who are asked, a uniform subset; 0: all n
	Gamma      float64 // the report of each of them arrives with this probability, on its own
	Rate       float64 // of clones: Blanket(Eps0) or Clones(Eps0)
	Tail       float64 // mass that may be dropped, in (0, 1e-3]
	Blocks     int     // blocks of k, and of clones within each; 0: 64
}

// CheckIn returns the pair of a round in which k ~ Bin(asked, γ) clients report
// and k is public: self check-in, and samples or whole populations of which
// some drop out. Given k the participants are a uniform k-subset, so inclusion is
// k/n, not γ: with γ the bound would be too small (SCI's proof of its Theorem 1
// writes γ; at n = 2, γ = .2, ε₀ = 3 that is wrong by .114 in δ).
//
// A block of values of k takes the shuffle of its smallest and the inclusion of
// its largest: both only lose. The tails of k are remainders.
func CheckIn(c CheckInConfig) (dp.Pair, error) {
	if err := dp.CheckEps0(c.Eps0); err != nil {
		return dp.Pair{}, err
	}
	if c.Population < 1 || c.Population > 1<<52 {
		return dp.Pair{}, fmt.Errorf("amplify: n = %d must lie between 1 and 2^52", c.Population)
	}
	if !(c.Gamma > 0 && c.Gamma <= 1) || !(c.Tail > 0 && c.Tail <= 1e-3) {
		return dp.Pair{}, fmt.Errorf("amplify: gamma = %v must lie in (0, 1] and tail = %v in (0, 1e-3]", c.Gamma, c.Tail)
	}
	blocks := c.Blocks
	if blocks == 0 {
		blocks = 64
	}
	if c.Asked == 0 {
		c.Asked = c.Population
	}
	if c.Asked < 1 || c.Asked > c.Population {
		return dp.Pair{}, fmt.Errorf("amplify: k = %d must lie between 1 and n = %d", c.Asked, c.Population)
	}
	n, q := c.Population, 1-c.Gamma
	lo, hi := tail.Window(c.Asked, c.Gamma, q, c.Tail/4, c.Tail/4)
	width := max(1, (hi-lo+int64(blocks))/int64(blocks))
	pair := dp.Pair{Remainders: checkInRemainders(c, lo, hi)}
	var err error
	add := func(first, last int64, mass float64) {
		if err != nil || last == 0 || mass == 0 {
			return // nobody reports: loss 0
		}
		var part dp.Pair
		part, err = Shuffle(ShuffleConfig{Eps0: c.Eps0, Reports: max(1, first), Rate: c.Rate, Tail: c.Tail / 4, Blocks: blocks})
		if err != nil {
			return
		}
		gamma := float64(last) / float64(n)
		for _, a := range part.Atoms {
			pair.Atoms = append(pair.Atoms, dp.Atom{Q: mass * a.Q, Loss: SampledLoss(a.Loss, gamma)})
		}
		for _, r := range part.Remainders {
			pair.Remainders = append(pair.Remainders, dp.Remainder{Mass: mass * r.Mass, MaxLoss: SampledLoss(r.MaxLoss, gamma)})
		}
	}
	// k = 0 is a block of its own: it must not lend its shuffle size to others.
	first, mass := lo, 0.0
	tail.PMF(c.Asked, c.Gamma, q, lo, hi, func(k int64, m float64) {
		mass += m
		if k == 0 || k == hi || k-first+1 >= width {
			// Rounding of the masses may not lose any: 1e-10 covers it.
			add(first, k, mass*(1+1e-10))
			first, mass = k+1, 0
		}
	})
	return pair, err
}

// checkInRemainders bounds what lies outside lo … hi. Inclusion grows with k,
// so the upper tail is cut where k doubles.
func checkInRemainders(c CheckInConfig, lo, hi int64) []dp.Remainder {
	n := c.Population
	var out []dp.Remainder
	if lo > 0 {
		out = append(out, dp.Remainder{Mass: c.Tail / 4, MaxLoss: SampledLoss(c.Eps0, float64(lo)/float64(n))})
	}
	mass := c.Tail / 4
	for k := hi; k < c.Asked; {
		next := min(c.Asked, 2*max(k, 1))
		out = append(out, dp.Remainder{Mass: mass, MaxLoss: SampledLoss(c.Eps0, float64(next)/float64(n))})
		mass = math.Min(mass, tail.UpperTail(c.Asked, next+1, c.Gamma, 1-c.Gamma))
		k = next
	}
	return out
}

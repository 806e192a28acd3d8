// Package amplify bounds what a round of reports reveals after the reports were shuffled,
// sampled or summed. For a round it returns a pair of laws that dominates it, a [dp.Pair],
// which packages pld and rdp compose over rounds; for a single round a [Curve] is
// δ(ε) in closed form; [Response] and [GaussianOutcomes] are concrete mechanisms, from which
// lower bounds come.
//
// A [Family] says what is known about the reports' randomizer: only ε₀ ([ClonesFamily]), or
// also its class. [Gaussian] is for sums of Gaussian reports.
//
// Here are the project's own theorems, each with its proof in a note beside the code; bounds of
// the literature are in package literature. ε₀ and losses are in nats, E = e^ε₀; of n clients k
// report, and γ is a client's inclusion, its chance to be in the round. Neighbours differ in
// one client's data (replace-one; [Removal] is the exception); that client is the victim. If a
// bound's precondition is missing, the error wraps [dp.ErrNoBound].
//
// A clone is another client's report that looks, with equal chances, like the victim's under
// the one dataset or under the other. Every report of an ε₀-LDP randomizer can be taken to be a
// clone with some probability, the rate, whatever its data. With C clones m = C + 1 reports
// hide each other. A block is a range of numbers (of reports or of clones) that is counted as
// if it were a single one, and a node is a value to which outcomes are moved; both only raise
// the loss. An outcome's mirror image is the outcome with both datasets exchanged.
package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Blanket returns the blanket's rate of clones, r = 2/(E+1) with E = e^ε₀. It is proved in
// blanket.md for every ε₀-LDP randomizer, also if reports are adaptive inside the round.
func Blanket(eps0 float64) float64 { return 2 / (math.Exp(eps0) + 1) }

// BlanketAcross is Blanket where clients' randomizers differ: the victim's report is ε₀-LDP, and has
// at no outcome more than e^cross times the chance that any other client's has, whatever they hold. It
// returns 2E/(E₁(E+1)), E₁ = e^cross, at most 1; with cross = ε₀ it is Blanket. It is for rounds in
// which all clients report: chance would put another client's report in the victim's place. Proved, also if
// reports are adaptive inside the round, and attained: across.md.
func BlanketAcross(eps0, cross float64) float64 {
	return math.Min(1, 2/((1+math.Exp(-eps0))*math.Exp(cross)))
}

// Clones returns the rate of clones of Feldman, McMillan and Talwar 2022,
// Theorem 3.1: r = e^−ε₀.
func Clones(eps0 float64) float64 { return math.Exp(-eps0) }

// Family is a class of local randomizers with a dominating pair for the shuffle
// of k of its reports. Make one with ClonesFamily, KRR, KnownTV, Laplace, RR2,
// Cap or Rising.
type Family struct {
	kind familyKind
	eps0 float64
	rate float64 // rate of clones
	// rough makes its pairs coarser; see grain.
	rough bool
	// These belong to a pair of three parts; see threePart.
	kappa, pair, single, victim, beside, other, useless float64
	rising                                              *risingLaw // of reports whose density rises with a score
}

type familyKind int

const (
	clonesKind familyKind = iota + 1
	threePartKind
	binaryKind
	risingKind
)

// ClonesFamily is the family of every eps0-LDP randomizer. It uses clones at the rate
// Blanket(eps0) or Clones(eps0), and holds also if reports are adaptive inside the round.
func ClonesFamily(eps0, rate float64) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	if !(rate > 0 && rate <= 1) {
		return Family{}, fmt.Errorf("amplify: rate = %v must be above 0 and at most 1", rate)
	}
	return Family{kind: clonesKind, eps0: eps0, rate: rate}, nil
}

// KRR is the family of randomized response on K symbols, for arbitrary inputs of the other
// clients, by its privacy blanket. A report is uniform on the symbols with probability
// K/(E+K−1). For m such reports, N₀ and N₁ of them on the victim's two symbols, the
// likelihood ratio is (m + (E−1)N₀)/(m + (E−1)N₁). K = 2 is the blanket of any randomizer.
//
// Result: upper bound, proved, replace-one, also if reports are adaptive inside the round.
// Source: Balle, Bell, Gascón, Nissim 2019, Lemma 5.3 and the identity of blanket.md;
// threepart.md. Needs symbols ≥ 2.
func KRR(eps0 float64, symbols int) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	if symbols < 2 {
		return Family{}, fmt.Errorf("amplify: symbols = %d must be at least 2", symbols)
	}
	s := math.Exp(-eps0)
	more := float64(symbols - 2)
	all := 1 + (more+1)*s // (E+K−1)/E
	return Family{kind: threePartKind, eps0: eps0,
		kappa: 2 * s / (1 + s), pair: 2 * s / all, single: (-math.Expm1(-eps0) + more*s) / all,
		victim: (1 + s) / all, beside: more * s / all, other: more * s / all, useless: -math.Expm1(-eps0) / all}, nil
}

// KnownTV is the family of every eps0-LDP randomizer for which the laws of any two inputs
// differ by at most a·(E−1) in total variation, a ≤ 1/(E+1). a = 1/(E+1) is the blanket of
// any randomizer.
//
// Result: upper bound, proved, replace-one, also if reports are adaptive inside the round. Source:
// threepart.md.
func KnownTV(eps0, a float64) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	if err := dp.CheckTV(eps0, a); err != nil {
		return Family{}, err
	}
	e := math.Exp(eps0)
	a = math.Min(a, 1/(e+1))
	victim := math.Min(1, a*(e+1))
	beside := 1 - victim
	if beside < 1e-12 {
		// Only rounding is left: use the two-part pair, which is the larger one.
		a, victim, beside = 1/(e+1), 1, 0
	}
	return Family{kind: threePartKind, eps0: eps0,
		kappa: 2 / (1 + math.Exp(-eps0)), pair: 2 * a, single: math.Expm1(eps0)/(e+1) + 2*(1/(e+1)-a),
		victim: victim, beside: beside, other: beside / e, useless: -math.Expm1(-eps0) * (1 - a)}, nil
}

// Laplace is the family of Laplace noise of scale 2C/ε₀ on every coordinate of vectors of the
// ball ‖x‖₁ ≤ C. The noise is real, or integer in steps of at most C·2^−16 (below ε₀ = 1/128:
// C·2^−22/ε₀). Up to the steps, the laws of two inputs differ by at most 1 − e^(−ε₀/2) in
// total variation.
//
// Result: upper bound, proved, replace-one, also if reports are adaptive inside the round. Source:
// threepart.md.
func Laplace(eps0 float64) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	steps := eps0 * math.Max(eps0*0x1p-20, 0x1p-26)
	a := -math.Expm1(-eps0/2-steps) / math.Expm1(eps0) * (1 + 1e-14)
	return KnownTV(eps0, math.Min(a, 1/(math.Exp(eps0)+1)))
}

// crowd returns the family's crowd for rounds of k reports; err is the relative error of ε that
// blocks may cause.
func (f Family) crowd(k int64, err float64) (crowd, error) {
	switch f.kind {
	case clonesKind:
		return newBuilder(f.eps0, f.rate, k, coreDeviations, err, f.grain()), nil
	case threePartKind:
		return newThreePart(f, k, err), nil
	case binaryKind:
		if f.rough {
			return newRoughBinary(f.eps0, k, 2e5), nil
		}
		return newBinary(f.eps0, k, 2e7, 512), nil
	case risingKind:
		return newRising(f.rising, k, true), nil
	default:
		return nil, errNoFamily
	}
}

// crowds returns the family's crowd for rounds of many different numbers of reports near k.
func (f Family) crowds(k int64) (crowd, error) {
	switch f.kind {
	case clonesKind:
		b := newBuilder(f.eps0, f.rate, k, wideDeviations, arrivalError/5, f.grain())
		if f.rough {
			return roughBuilder{b}, nil
		}
		return b, nil
	case threePartKind:
		return newThreePart(f, k, 2*arrivalError), nil // it takes longer to compute
	case binaryKind:
		if f.rough {
			return &rounded{newRoughBinary(f.eps0, k, 2e4), f.grain().bits, map[int64][]float64{}}, nil
		}
		return &rounded{newBinary(f.eps0, k, 5e5, 128), fine.bits, map[int64][]float64{}}, nil
	case risingKind:
		return &rounded{newRising(f.rising, k, false), fine.bits, map[int64][]float64{}}, nil
	default:
		return nil, errNoFamily
	}
}

var errNoFamily = fmt.Errorf("amplify: not a family of randomizers: %w", dp.ErrNoBound)

// rounded is a crowd that rounds numbers of reports down to so many bits and caches their laws.
// With eleven bits the rounding costs at most a two-thousandth of ε.
type rounded struct {
	crowd
	bits int
	kept map[int64][]float64
}

func (r *rounded) given(k int64) []float64 {
	k = bitsOf(k, r.bits)
	mass, ok := r.kept[k]
	if !ok {
		mass = r.crowd.given(k)
		r.kept[k] = mass
	}
	return mass
}

// FamilyRound describes a round of k of n clients. Population and Reports are
// required.
type FamilyRound struct {
	Population, Reports int64
	// Included, from k to n, makes the clients' chance to be in the round Included/n, which
	// may be larger than k/n; only k of the reports hide each other. Optional; 0 means k.
	Included int64
}

func (r FamilyRound) config(f Family) roundConfig {
	return roundConfig{Eps0: f.eps0, Rate: 1, Population: r.Population, Reports: r.Reports, Included: r.Included}
}

// Round returns the pair of a round of k of n clients: the pair of the shuffle, sampled, and
// merged to some hundred outcomes by splits that only raise the loss, by 5e-5 of ε. It drops
// no mass: tails lie in ever wider blocks at the end with the larger loss. So remainders are
// empty, and the pair serves every δ and every Rényi order. For clones the time is nearly
// independent of k: some ms up to k = 1e12.
//
// Source: hybrid.md; for ε ≥ 0 Balle, Barthe, Gaboardi 2018, Theorem 2.
func (f Family) Round(r FamilyRound) (dp.Pair, error) {
	c := r.config(f)
	if err := c.validate(); err != nil {
		return dp.Pair{}, err
	}
	blockError := cloneError
	if f.kind != clonesKind {
		blockError *= 5
	}
	crowd, err := f.crowd(c.Reports, blockError)
	if err != nil {
		return dp.Pair{}, err
	}
	return roundOf(crowd, c.Reports, c.gamma()), nil
}

// FamilyArrival describes a round whose number of honest reports is random and public: each
// of Asked clients, a uniform subset of the n, reports with probability Gamma, on its own
// coin. All fields but Colluders are required.
type FamilyArrival struct {
	Population, Asked int64
	Gamma             float64
	// Colluders of the n clients share all they know with the observer. Their number among the
	// asked clients is random.
	Colluders int64
}

func (a FamilyArrival) check(f Family) error {
	if err := (roundConfig{Eps0: f.eps0, Rate: 1, Population: a.Population, Reports: a.Asked}).validate(); err != nil {
		return err
	}
	return a.checkChance()
}

// checkChance returns an error for a gamma or a number of colluders out of range.
func (a FamilyArrival) checkChance() error {
	switch {
	case !(a.Gamma > 0 && a.Gamma <= 1):
		return fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", a.Gamma)
	case a.Colluders < 0 || a.Colluders >= a.Population:
		return fmt.Errorf("amplify: colluders = %d must be at least 0 and fewer than n = %d", a.Colluders, a.Population)
	}
	return nil
}

// Arrival returns the pair of such a round, merged like Round's. Blocks of k take the shuffle
// of their smallest value and the inclusion k/n of their largest. Given k the participants
// are a uniform k-subset, so inclusion is k/n and not γ; with γ the bound would be too small.
// (SCI's proof of its Theorem 1 writes γ; at n = 2, γ = .2, ε₀ = 3 that is wrong by .114 in
// δ.) See hybrid.md and colluders.md.
func (f Family) Arrival(a FamilyArrival) (dp.Pair, error) {
	if err := a.check(f); err != nil {
		return dp.Pair{}, err
	}
	crowd, err := f.crowds(max(1, int64(a.mean())))
	if err != nil {
		return dp.Pair{}, err
	}
	width := blockWidth(arrivalError * f.grain().blocks)
	if f.kind != clonesKind && f.kind != threePartKind && !f.rough {
		width = blockWidth(3 * arrivalError)
	}
	return arrivalOf(crowd, a.spans(width), a.Population-a.Colluders, a.mean()), nil
}

// mean returns the mean number of honest reports.
func (a FamilyArrival) mean() float64 {
	return a.Gamma * float64(a.Asked) * float64(a.Population-a.Colluders) / float64(a.Population)
}

// spans covers the number of honest reports.
func (a FamilyArrival) spans(width func(mean, deviation, z float64) int64) []spanned {
	if a.Colluders > 0 {
		drawn := honestReports(a.Population, a.Asked, a.Colluders, width)
		if a.Gamma == 1 {
			return drawn
		}
		return thinned(drawn, a.mean(), width, func(n int64) []spanned {
			arrived := spans(n, a.Gamma, 1-a.Gamma, width)
			for i := range arrived {
				arrived[i].Weight *= 1 + 1e-11
			}
			return arrived
		})
	}
	return spans(a.Asked, a.Gamma, 1-a.Gamma, width)
}

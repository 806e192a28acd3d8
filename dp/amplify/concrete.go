package amplify

import (
	"fmt"
	"math"
	"sort"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Concrete mechanisms for lower bounds: every bound for eps0-LDP reports must allow what they
// leak. Their outcomes are listed or merged, and tails are left out; both only leak less. So
// the listed outcomes are a part of the true pair of laws. See concrete.md.

// ConcreteConfig describes a round of a concrete mechanism. k ~ Bin(Asked, Gamma) reports
// arrive from a uniform subset of n clients; k is public. All fields but Colluders are required;
// Gamma = 1 means a fixed k = Asked.
type ConcreteConfig struct {
	Eps0       float64
	Population int64 // n
	Asked      int64 // ≤ n
	Gamma      float64
	Symbols    int // K, at least 2
	// Colluders of the n clients tell which of them were asked, and what they sent. k then counts
	// the reports of the others.
	Colluders int64
}

// arrival describes who reports.
func (c ConcreteConfig) arrival() FamilyArrival {
	return FamilyArrival{Population: c.Population, Asked: c.Asked, Gamma: c.Gamma, Colluders: c.Colluders}
}

// left is the probability that may be left out on each side of each count.
const left = 1e-20

// maxOutcomes bounds the number of visited outcomes: about half a second of work.
const maxOutcomes = 3e7

// cells is the number of losses that the outcomes are merged into.
const cells = 1 << 14

// Response lists outcomes of randomized response on K symbols; losses rise. It returns
// ErrNoBound if there are too many outcomes.
//
// For K = 2 the victim holds 1 under P and 0 under Q, and everybody else holds 0. The outcomes
// are the number of ones among k reports, and k. It is the mechanism of Girgis et al. 2021,
// Theorem 2.
//
// For K ≥ 3 the victim holds the first symbol under P and the second under Q, and everybody
// else holds the third. The outcomes are the counts of the first two symbols among k reports,
// and k; the list is symmetric.
func Response(c ConcreteConfig) ([]dp.Atom, error) {
	switch {
	case c.Symbols < 2:
		return nil, fmt.Errorf("amplify: symbols = %d must be at least 2", c.Symbols)
	case c.Symbols == 2:
		return response2(c)
	}
	return responseK(c)
}

// response2 is Response for K = 2.
func response2(c ConcreteConfig) ([]dp.Atom, error) {
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	e := math.Exp(c.Eps0)
	p := 1 / (e + 1)
	var work float64
	for _, b := range sizes {
		work += 20*math.Sqrt(float64(b.Last)*p) + 100
	}
	if err := affordable("2-RR", 4*work); err != nil {
		return nil, err
	}
	visit := func(b spanned, gamma float64, yield func(p, q, over float64)) {
		k := float64(b.Last)
		lo, hi := tail.Window(b.Last, p, e*p, left, left)
		tail.PMF(b.Last, p, e*p, lo, hi, func(m int64, mass float64) {
			// P/Q = 1 − γ + γ((m/k)E + (1 − m/k)/E).
			share, w := float64(m)/k, b.Weight*mass
			yield(w*(1-gamma+gamma*(share*e+(1-share)/e)), w,
				w*gamma*(share*math.Expm1(c.Eps0)+(1-share)*math.Expm1(-c.Eps0)))
		})
	}
	extremes := func(b spanned, gamma float64) (low, high float64) {
		lo, hi := tail.Window(b.Last, p, e*p, left, left)
		at := func(m int64) float64 {
			share := float64(m) / float64(b.Last)
			return math.Log(1 - gamma + gamma*(share*e+(1-share)/e))
		}
		return at(lo), at(hi)
	}
	return c.list(sizes, visit, extremes, false)
}

// responseK is Response for K ≥ 3.
func responseK(c ConcreteConfig) ([]dp.Atom, error) {
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	e := math.Exp(c.Eps0)
	// A report on neither of the first two symbols has the likelihood ratio rest.
	more := float64(c.Symbols - 3)
	both, neither, rest := 2/(e+2+more), (e+more)/(e+2+more), (1+more)/(e+more)
	var work float64
	for _, b := range sizes {
		s := math.Sqrt(float64(b.Last) * both)
		work += (20*s + 100) * (5*s + 50)
	}
	if err := affordable(fmt.Sprintf("%d-RR", c.Symbols), work); err != nil {
		return nil, err
	}
	visit := func(b spanned, gamma float64, yield func(p, q, over float64)) {
		k := float64(b.Last)
		lo, hi := tail.Window(b.Last, both, neither, left, left)
		tail.PMF(b.Last, both, neither, lo, hi, func(n int64, mass float64) {
			_, top := tail.Window(n, .5, .5, left, left)
			tail.PMF(n, .5, .5, (n+1)/2, top, func(first int64, half float64) {
				second := n - first
				// These are factors of the law without the victim: P has 1 − γ + γ(E·first +
				// second + rest·(k−n))/k, and Q has first and second exchanged.
				w := b.Weight * mass * half
				if first == second {
					w /= 2 // its mirror image is itself
				}
				x, y, z := float64(first)/k, float64(second)/k, float64(b.Last-n)/k
				yield(w*(1-gamma+gamma*(e*x+y+z*rest)), w*(1-gamma+gamma*(e*y+x+z*rest)),
					w*gamma*math.Expm1(c.Eps0)*(x-y))
			})
		})
	}
	// The loss grows with first − second, which grows with the counts.
	extremes := func(b spanned, gamma float64) (low, high float64) {
		lo, hi := tail.Window(b.Last, both, neither, left, left)
		for _, n := range []int64{lo, hi} {
			_, first := tail.Window(n, .5, .5, left, left)
			x, y, z := float64(first), float64(n-first), float64(b.Last-n)
			k := float64(b.Last)
			high = math.Max(high, math.Log((1-gamma+gamma*(e*x+y+z*rest)/k)/(1-gamma+gamma*(e*y+x+z*rest)/k)))
		}
		return 0, high
	}
	return c.list(sizes, visit, extremes, true)
}

func affordable(name string, work float64) error {
	if work > maxOutcomes {
		return fmt.Errorf("amplify: %s has about %.1g outcomes: %w", name, work, dp.ErrNoBound)
	}
	return nil
}

// sizes covers k by blocks. For a lower bound a block takes the shuffle of its largest value
// and the inclusion of its smallest, because more reports, less often the victim's, leak
// less. The tails of k are left out.
func (c ConcreteConfig) sizes() ([]spanned, error) {
	if err := (roundConfig{Eps0: c.Eps0, Population: c.Population, Reports: c.Asked, Rate: 1}).validate(); err != nil {
		return nil, err
	}
	a := c.arrival()
	if err := a.checkChance(); err != nil {
		return nil, err
	}
	if c.Colluders == 0 || c.Asked == c.Population {
		return partOf(c.Asked-c.Colluders, c.Gamma), nil
	}
	drawn := drawnBulk(c.Population, c.Asked, c.Colluders, left, blockWidth(arrivalError))
	for i := range drawn {
		drawn[i].Weight *= 1 - drawnError
	}
	if c.Gamma == 1 {
		return drawn, nil
	}
	return thinned(drawn, a.mean(), partWidth, func(n int64) []spanned { return partOf(n, c.Gamma) }), nil
}

// partWidth is the width of a block of k for a lower bound: a relative width w costs about ¾w of
// ε, and blocks grow away from the mean.
func partWidth(mean, deviation, z float64) int64 {
	return max(1, int64(math.Min(2e-3*mean*math.Exp(z*z/4), deviation/2)))
}

// partOf lists blocks of Bin(n, gamma) with no more than their probability.
func partOf(n int64, gamma float64) []spanned {
	if gamma == 1 {
		return []spanned{{n, n, 1}}
	}
	lo, hi := tail.Window(n, gamma, 1-gamma, left, left)
	mean := float64(n) * gamma
	deviation := math.Max(1, math.Sqrt(mean*(1-gamma)))
	var out []spanned
	for from := max(lo, 0); from <= hi; {
		width := partWidth(mean, deviation, math.Abs(float64(from)-mean)/deviation)
		if from == 0 {
			width = 1 // no reports: loss 0, not a small shuffle
		}
		to := min(hi, from+width-1)
		var w float64
		if width <= 64 {
			tail.PMF(n, gamma, 1-gamma, from, to, func(_ int64, mass float64) { w += mass })
		} else {
			w = math.Max(0, between(n, gamma, 1-gamma, from, to+1))
		}
		out = append(out, spanned{from, to, w * (1 - 1e-11)})
		from = to + 1
	}
	return out
}

// list merges outcomes into cells of equal width in loss. visit gives it each outcome as the
// masses P and Q and their difference; with mirror set, list adds the mirror images. extremes
// returns roughly the range of a block's losses; losses outside go to the outermost cells.
func (c ConcreteConfig) list(sizes []spanned, visit func(spanned, float64, func(p, q, over float64)),
	extremes func(spanned, float64) (low, high float64), mirror bool) ([]dp.Atom, error) {
	inclusion := func(b spanned) float64 { return float64(b.First) / float64(c.Population-c.Colluders) }
	each := func(yield func(p, q, over float64)) {
		for _, b := range sizes {
			if b.Last == 0 {
				w := b.Weight
				if mirror {
					w /= 2
				}
				yield(w, w, 0)
				continue
			}
			visit(b, inclusion(b), yield)
		}
	}
	// The difference keeps the digits of small losses, the quotient those of large ones.
	loss := func(p, q, over float64) float64 {
		if r := over / q; math.Abs(r) < .5 {
			return math.Log1p(r)
		}
		return math.Log(p / q)
	}
	var low, high float64
	for _, b := range sizes {
		if b.Last > 0 {
			l, h := extremes(b, inclusion(b))
			low, high = math.Min(low, l), math.Max(high, h)
		}
	}
	if !(high > low) {
		return nil, fmt.Errorf("amplify: no losses: %w", dp.ErrNoBound)
	}
	scale := cells / (high - low)
	var sum [cells + 1][3]float64
	each(func(p, q, over float64) {
		if p > 1e-290 && q > 1e-290 {
			i := min(cells, max(0, int((loss(p, q, over)-low)*scale)))
			sum[i][0] += p
			sum[i][1] += q
			sum[i][2] += over
		}
	})
	var out []dp.Atom
	for _, v := range sum {
		if v[1] > 0 {
			a := dp.Atom{Q: v[1], Loss: loss(v[0], v[1], v[2])}
			out = append(out, a)
			if mirror {
				out = append(out, dp.Atom{Q: v[0], Loss: -a.Loss})
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("amplify: no outcome within float64's range: %w", dp.ErrNoBound)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Loss < out[j].Loss })
	return out, nil
}

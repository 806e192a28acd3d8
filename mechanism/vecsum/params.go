package vecsum

import (
	"fmt"
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/dp"
)

// Params describes one round of vector summation. Clients, transport, analyzer and accountant
// must agree on all of it.
type Params struct {
	Users    int64   // n, the most clients that may take part; required
	MinUsers int64   // the fewest clients a round may be opened with; 0 means Users
	Honest   float64 // γ, the fraction of MinUsers that add their noise; 0 means 1
	Dim      int     // d, the length of an input; required
	Radius   float64 // Δ₂, the bound on ‖x‖₂ that clients clip to; required, of counts √Ones
	Grid     int64   // g, grid steps in the interval −Radius … Radius, of counts in a one; required
	// Norm bounds the squared ℓ₂ norm of a rounded input in half grid steps,
	// counted from the middle of the grid: ‖2x̂ − g‖². Required; [Norm] gives it. Of counts 0.
	Norm  int64
	Noise Noise // of one client on one coordinate; required
	// Split sends positive and negative parts as two streams of counts, each
	// with its own noise of half the variance for the same privacy.
	Split bool
	// Ones, if not 0, makes this a round of counts: an input has zeros and at most so many ones,
	// nothing is rounded, and the sum is the number of ones of each coordinate. Any other input
	// counts as the zero vector.
	Ones int
}

const (
	maxDim   = 1 << 24
	maxGrid  = 1 << 24
	maxUsers = 1 << 40
)

func (p Params) withDefaults() Params {
	if p.MinUsers == 0 {
		p.MinUsers = p.Users
	}
	if p.Honest == 0 {
		p.Honest = 1
	}
	return p
}

// Validate returns an error that names the first value out of range.
func (p Params) Validate() error {
	p = p.withDefaults()
	switch {
	case p.Users < 1 || p.Users > maxUsers:
		return fmt.Errorf("vecsum: users = %d must lie between 1 and 2^40", p.Users)
	case p.MinUsers < 1 || p.MinUsers > p.Users:
		return fmt.Errorf("vecsum: min users = %d must lie between 1 and users = %d", p.MinUsers, p.Users)
	case !(p.Honest > 0 && p.Honest <= 1):
		return fmt.Errorf("vecsum: honest fraction = %v must be above 0 and at most 1", p.Honest)
	case p.Dim < 1 || p.Dim > maxDim:
		return fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", p.Dim)
	case !(p.Radius >= 1e-30 && p.Radius <= 1e30):
		return fmt.Errorf("vecsum: radius = %v must lie between 1e-30 and 1e30", p.Radius)
	case p.Grid < 1 || p.Grid > maxGrid:
		return fmt.Errorf("vecsum: grid = %d must lie between 1 and 2^24", p.Grid)
	case float64(p.Dim)*float64(p.Grid)*float64(p.Grid) > 1<<60:
		return fmt.Errorf("vecsum: dim = %d with grid = %d: squared norms exceed 2^60", p.Dim, p.Grid)
	case p.Ones != 0:
		if err := p.validateOnes(); err != nil {
			return err
		}
	case p.Norm < p.smallestNorm():
		return fmt.Errorf("vecsum: norm = %d must be at least %d, what rounding towards the middle needs", p.Norm, p.smallestNorm())
	case p.Norm >= 1<<61:
		return fmt.Errorf("vecsum: norm = %d must be below 2^61", p.Norm)
	}
	if err := p.Noise.validate(); err != nil {
		return err
	}
	if below, above := p.Noise.reach(p.Users); below+above+float64(p.Users)*float64(p.top()) >= 1<<61 {
		return fmt.Errorf("vecsum: counts of %d users exceed 2^61", p.Users)
	}
	return nil
}

// smallestNorm is the smallest Norm that inputs rounded towards the middle of the grid always
// meet. It covers the ball, and half a step a coordinate if the middle is not on the grid.
func (p Params) smallestNorm() int64 { return p.Grid*p.Grid + int64(p.Dim) }

// Streams returns the number of counts: d, or 2d if signs are split.
func (p Params) Streams() int {
	if p.Split {
		return 2 * p.Dim
	}
	return p.Dim
}

// top returns the largest rounded value of a coordinate.
func (p Params) top() int64 {
	if p.Split {
		return isqrt(p.Norm) / 2
	}
	return p.Grid
}

// MaxCount returns the largest noisy count of one client; the smallest is 0. The error wraps
// dp.ErrNoBound if the noise is not bounded.
func (p Params) MaxCount() (int64, error) {
	if p.Noise.Kind != Binomial {
		return 0, fmt.Errorf("vecsum: %s noise has no largest value: %w", p.Noise.Kind, dp.ErrNoBound)
	}
	return p.top() + p.Noise.Bits, nil
}

// guaranteed returns the number of clients whose noise is in every round that is opened: the
// honest ones of MinUsers, rounded down. Honest is exact to the rounding of a float64.
func (p Params) guaranteed() int64 {
	p = p.withDefaults()
	return guaranteed(p.Honest, p.MinUsers)
}

func guaranteed(honest float64, minUsers int64) int64 {
	return int64(math.Floor(honest * float64(minUsers)))
}

// Modulus returns log₂ of the modulus q, the smallest power of two above every sum of Users
// clients' counts (except with probability e^−60 if noise is unbounded).
func (p Params) Modulus() int {
	below, above := p.Noise.reach(p.Users)
	return bits.Len64(uint64(below + above + float64(p.Users)*float64(p.top())))
}

// offset is the size of the most negative sum.
func (p Params) offset() int64 {
	below, _ := p.Noise.reach(p.Users)
	return int64(below)
}

// sensitivity returns the largest change of one count, of the ℓ₂ norm of all
// counts (rounded up), and how many counts can change, when one client's data
// is replaced; vecsum.md, sections 4 and 10.
func (p Params) sensitivity() (shift int64, norm float64, counts int64) {
	if p.Ones != 0 {
		counts = differing(p.Ones, p.Dim)
		return p.Grid, float64(p.Grid) * math.Sqrt(float64(counts)) * (1 + 0x1p-51), counts
	}
	square := p.Norm
	if p.Split {
		square = p.Norm/2 + p.Norm&1
	}
	shift, counts = min(p.top(), isqrt(square)), min(int64(p.Streams()), square)
	if all := float64(shift) * float64(shift) * float64(counts); all < float64(square) {
		square = shift * shift * counts
	}
	return shift, math.Sqrt(float64(square)) * (1 + 0x1p-52), counts
}

// curve returns the privacy of one round, with mass tau given up on each coordinate; see
// Noise.increment. Mu is +Inf if the noise has too little support; δ is then 1.
//
// Upper bound, proved, replace-one. It holds for any transport that reveals the counts and
// nothing else. Precondition: at least the fraction Honest of the clients is honest, and
// rounds with fewer than MinUsers clients are not opened.
func (p Params) curve(tau float64) (Curve, error) {
	if err := p.Validate(); err != nil {
		return Curve{}, err
	}
	shift, norm, counts := p.sensitivity()
	mu1, ratio, err := p.Noise.increment(p.guaranteed(), max(1, shift), tau)
	if err != nil {
		return Curve{}, err
	}
	c := float64(counts)
	return Curve{
		Mu:    mu1 * norm * (1 + 0x1p-52),
		Tail:  -math.Expm1(c*math.Log1p(-tau)) * (1 + 0x1p-50),
		Ratio: ratio * c,
	}, nil
}

// Epsilon returns ε at delta of the given number of rounds, by [MethodGDP].
func (p Params) Epsilon(delta float64, rounds int64) (float64, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return 0, err
	}
	if rounds < 1 {
		return 0, fmt.Errorf("vecsum: rounds = %d must be at least 1", rounds)
	}
	c, err := p.Curve(delta, rounds)
	if err != nil {
		return 0, err
	}
	return c.times(rounds).epsilon(delta)
}

// Curve returns the privacy of one of the given number of rounds, with the windows that Epsilon
// uses: all rounds together spend TailShare of delta on them. See the method curve.
func (p Params) Curve(delta float64, rounds int64) (Curve, error) {
	return p.curve(p.tau(delta, rounds))
}

// Delta returns δ at eps of the given number of rounds, by [MethodGDP]. The error
// wraps dp.ErrNoBound if there is none below 1.
func (p Params) Delta(eps float64, rounds int64) (float64, error) {
	if !(eps >= 0 && eps <= math.MaxFloat64) {
		return 0, fmt.Errorf("vecsum: eps = %v must be at least 0 and finite", eps)
	}
	if rounds < 1 {
		return 0, fmt.Errorf("vecsum: rounds = %d must be at least 1", rounds)
	}
	// Any window gives a bound, and the best window depends on the answer.
	best, guess, back := 1., 1e-6, false
	for range 8 {
		c, err := p.Curve(math.Max(guess, 1e-200), rounds)
		if err != nil && best == 1 {
			return 0, err
		}
		all := c.times(rounds)
		d := all.delta(eps)
		if err != nil || !(d < best) {
			// This window is so wide that it leaves the support: try again with the best so
			// far.
			if back {
				break
			}
			guess, back = best, true
			continue
		}
		best = d
		all.Tail = 0
		next := all.delta(eps)
		if next > guess/10 && next < 2*guess {
			break
		}
		guess = next
	}
	if !(best < 1) {
		return 0, fmt.Errorf("vecsum: no delta below 1 at eps = %v: %w", eps, dp.ErrNoBound)
	}
	return best, nil
}

// TailShare is the share of δ that is spent on the mass beyond the windows of the noise.
const TailShare = 1e-3

func (p Params) tau(delta float64, rounds int64) float64 {
	_, _, counts := p.sensitivity()
	return TailShare * delta / (2 * float64(rounds) * float64(counts))
}

// Variance bounds the variance of one coordinate of the estimate of the sum of
// n inputs, in squared units of the input: noise and, at most, rounding.
func (p Params) Variance(n int64) float64 {
	noise := p.Noise.variance()
	if p.Split {
		noise *= 2
	}
	if p.Ones == 0 {
		noise += .25
	}
	return p.step() * p.step() * float64(n) * noise
}

// step returns the size of a grid step in the units of the inputs.
func (p Params) step() float64 {
	if p.Ones != 0 {
		return 1 / float64(p.Grid)
	}
	return 2 * p.Radius / float64(p.Grid)
}

// Norm returns a bound that the rounded norm exceeds with probability at most beta, for
// inputs of dim coordinates on a grid of g steps, in squared half steps: four times the
// smaller of (g/2+√d)², which it never exceeds, and g²/4 + d/4 + √(2·ln(1/β))·(g/2+√d/2).
//
// Source: Kairouz, Liu, Steinke 2021, Proposition 22 (recalled; re-proved in vecsum.md,
// section 4). Privacy rests on the check against the bound, not on beta.
func Norm(dim int, grid int64, beta float64) int64 {
	g, d := float64(grid), float64(dim)
	bound := (g/2 + math.Sqrt(d)) * (g/2 + math.Sqrt(d))
	if beta > 0 {
		bound = math.Min(bound, g*g/4+d/4+math.Sqrt(2*math.Log(1/beta))*(g/2+math.Sqrt(d)/2))
	}
	return max(int64(4*bound), grid*grid+int64(dim))
}

// isqrt returns ⌊√n⌋ for 0 ≤ n < 2^62.
func isqrt(n int64) int64 {
	r := int64(math.Sqrt(float64(n)))
	for r*r > n {
		r--
	}
	for (r+1)*(r+1) <= n {
		r++
	}
	return r
}

package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// Steps is the law of reports whose density rises in steps with a score. A client with input
// x reports an output v with density proportional to 1 + Height·j against a law μ of all
// outputs, where j is the number of edges that the score of v for x exceeds. μ is the same for
// every client; the score need not be.
type Steps struct {
	// Height is w above 0: what each step adds to the density below the first edge.
	Height float64
	// Tails are q_1 > q_2 > … > q_J: the share of μ above each edge, J at most 16.
	Tails []float64
	// Eta bounds how much shares may differ between inputs: for every input the share above
	// edge j lies between Tails[j](1−Eta) and Tails[j](1+Eta).
	Eta float64
}

// maxSteps bounds the number of steps. With six steps the noise of a report is within 2 % of
// the least that any number of steps can reach.
const maxSteps = 16

// leastTail bounds the share above the first edge: with less, the nodes of U are so close that
// their number overflows.
const leastTail = 1e-15

// sumRounding is added to Eta. It covers the rounding of shares and their sums.
const sumRounding = 1e-12

// Eps0 returns the local guarantee of one report, rounded up: the log of the ratio of the
// largest level to the smallest, 1 + J·Height, plus what unequal shares add.
func (s Steps) Eps0() float64 {
	least, most, _ := s.means()
	return (math.Log1p(s.Height*float64(len(s.Tails))) + math.Log1p((most-least)/least)) * (1 + 1e-15)
}

// means returns bounds M⁻ and M⁺ on the mean level under μ of every input, and their
// difference.
func (s Steps) means() (least, most, gap float64) {
	var sum float64
	for _, q := range s.Tails {
		sum += q
	}
	eta := s.Eta + sumRounding
	return 1 + s.Height*sum*(1-eta), 1 + s.Height*sum*(1+eta), 2 * s.Height * sum * eta
}

func (s Steps) check() error {
	if !(s.Height > 0 && s.Height <= math.MaxFloat64) {
		return fmt.Errorf("amplify: height = %v must be above 0 and finite", s.Height)
	}
	if len(s.Tails) < 1 || len(s.Tails) > maxSteps {
		return fmt.Errorf("amplify: %d steps must be at least 1 and at most %d", len(s.Tails), maxSteps)
	}
	last := 1.
	for _, q := range s.Tails {
		if !(q > 0 && q < last) {
			return fmt.Errorf("amplify: tails %v must fall, below 1 and above 0", s.Tails)
		}
		last = q
	}
	if s.Tails[0] < leastTail {
		return fmt.Errorf("amplify: the share %v above the first edge must be at least %v", s.Tails[0], leastTail)
	}
	if !(s.Eta >= 0 && s.Eta < 1) {
		return fmt.Errorf("amplify: eta = %v must be at least 0 and below 1", s.Eta)
	}
	return checkTop(s.Eps0())
}

// checkTop refuses laws whose largest loss is beyond what the accountant takes. That may be so
// because of rounding or unequal shares alone, so the blanket may still have a bound.
func checkTop(eps0 float64) error {
	if !(eps0 <= dp.MaxEps0) {
		return fmt.Errorf("amplify: largest loss %v of a report is above %d: %w", eps0, dp.MaxEps0, dp.ErrNoBound)
	}
	return dp.CheckEps0(eps0)
}

// Rising is the family of reports whose density rises in steps with a score.
//
// Result: upper bound, proved, replace-one, also adaptive inside the round. Source: Theorem 2
// of rising.md. Needs: shares whose means differ by less than the share below the first edge.
// Slack: below .1 % of ε. Time: some 20 ms a round from
// 10⁴ reports on, up to .15 s below; check-in up to 1 s.
func Rising(s Steps) (Family, error) {
	if err := s.check(); err != nil {
		return Family{}, err
	}
	law, err := s.law()
	if err != nil {
		return Family{}, err
	}
	return Family{kind: risingKind, eps0: law.eps0, rising: law}, nil
}

// Cap is the family of eps0-LDP randomizers for which the laws of all inputs have a part of
// mass 1 − a(E−1) in common, a ≤ 1/(E+1), E = e^eps0. Such is a density between L and E·L
// against a common law, of which a share q lies above a cap's edge: a = Lq, L = 1/(1 + q(E−1)).
// It has the pair of randomized response on 1/q symbols, a number that need not be whole;
// a = 1/(E+1) is the blanket of any randomizer.
//
// Result: upper bound, proved, replace-one, also adaptive inside the round. Source: Corollary 1
// of rising.md. An a above the true one only raises the bound.
func Cap(eps0, a float64) (Family, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return Family{}, err
	}
	if err := dp.CheckTV(eps0, a); err != nil {
		return Family{}, err
	}
	less := math.Expm1(eps0) * (1 + 4e-16)
	share := .5
	// The common part is rounded down. If rounding leaves nothing of it, the blanket is left.
	if common := 1 - a*less - 4e-16; common > 2*a {
		share = math.Max(leastTail, a/common)
	}
	law, err := pairOf(less, []float64{1 - share, share})
	if err != nil {
		return Family{}, err
	}
	return Family{kind: risingKind, eps0: law.eps0, rising: law}, nil
}

// ray is an outcome of one report: its probability in the law of all other reports, and its
// densities p and q against it for the victim's two inputs.
type ray struct{ mass, p, q float64 }

// risingLaw is the pair of Theorem 2 of rising.md. A report comes with probability L from the
// common part, the law μ, whatever its input. On an output of the common part the density has
// level 1 + w·i for the victim's first input and 1 + w·j for its second.
type risingLaw struct {
	eps0   float64 // log of the largest level
	height float64 // w
	common float64 // L
	// useless is 1 − L, with its own digits.
	useless float64
	// joint[i][j] is the share of μ where the victim's first input has level i and the second
	// level j.
	joint [][]float64
	rays  []ray
}

// law returns the pair of steps: H* of Theorem 2, spread to levels of equal distance, with
// opposite inputs.
func (s Steps) law() (*risingLaw, error) {
	_, most, gap := s.means()
	steps := len(s.Tails)
	over := 1 + s.Eta + sumRounding
	below := 1 - s.Tails[0]*over // share below the first edge
	if !(gap < below) {
		return nil, fmt.Errorf("amplify: eta = %v: mean levels may differ by %v, not less than the share %v below the first edge: %w", s.Eta, gap, below, dp.ErrNoBound)
	}
	// rho is ρ − 1. The second term outweighs the rounding of the levels.
	rho := (gap*(1+1e-9) + 1e-14*most) / (below - gap)
	at := func(j int) float64 { return s.Height*float64(j) + rho*(1+s.Height*float64(j)) } // level − 1
	unit := at(steps) / float64(steps) * (1 + 4e-16)
	mass := make([]float64, steps+2)
	mass[0] = below
	for j := 1; j <= steps; j++ {
		share := s.Tails[j-1] * over
		if j < steps {
			share -= s.Tails[j] * over
		}
		// Split the level between its neighbours of equal distance so that the mean is kept.
		x := at(j) / unit
		i := math.Min(math.Floor(x), float64(steps-1))
		up := math.Min(1, x-i+1e-14)
		mass[int(i)] += share * (1 - up)
		mass[int(i)+1] += share * up
	}
	return pairOf(unit, mass[:steps+1])
}

// pairOf returns the pair of Theorem 2 for an H* with masses at the levels 1 + unit·j.
func pairOf(unit float64, mass []float64) (*risingLaw, error) {
	steps := len(mass) - 1
	l := &risingLaw{height: unit, eps0: math.Log1p(unit*float64(steps)) * (1 + 4e-15), joint: make([][]float64, steps+1)}
	rise := 0. // the mean level is 1 + rise
	for i, m := range mass {
		l.joint[i] = make([]float64, steps+1)
		rise += m * unit * float64(i)
	}
	l.common, l.useless = 1/(1+rise), rise/(1+rise)
	// The i-th largest levels of one input meet the i-th smallest of the other.
	up, down := append([]float64(nil), mass...), append([]float64(nil), mass...)
	for i, j := steps, 0; i >= 0 && j <= steps; {
		m := math.Min(up[i], down[j])
		l.joint[i][j] += m
		up[i] -= m
		down[j] -= m
		if up[i] <= down[j] {
			i--
		} else {
			j++
		}
	}
	for i, row := range l.joint {
		for j := range row {
			// The two inputs are alike; only rounding distinguishes them.
			m := math.Max(l.joint[i][j], l.joint[j][i])
			if l.joint[i][j], l.joint[j][i] = m, m; m > 0 {
				l.rays = append(l.rays, ray{l.common * m, 1 + unit*float64(i), 1 + unit*float64(j)})
			}
		}
	}
	return l, checkTop(l.eps0)
}

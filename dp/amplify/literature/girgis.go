package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// fixed returns an error unless the round has a fixed number of reports, and order is whole
// and large enough.
func (c Round) fixed(order int) error {
	if c.Gamma != 0 {
		return fmt.Errorf("amplify: gamma = %v in a round of a fixed number of reports", c.Gamma)
	}
	if err := checkRound(c.Eps0, c.Population, c.Reports); err != nil {
		return err
	}
	if order < 2 {
		return fmt.Errorf("amplify: order = %d must be a whole number of at least 2: %w", order, dp.ErrNoBound)
	}
	return nil
}

// checkRound returns an error unless k of n ε₀-LDP reports make a round.
func checkRound(eps0 float64, population, reports int64) error {
	if err := dp.CheckEps0(eps0); err != nil {
		return err
	}
	if population < 1 || population > maxReports {
		return fmt.Errorf("amplify: n = %d must lie between 1 and 2^52", population)
	}
	if reports < 1 || reports > population {
		return fmt.Errorf("amplify: k = %d must lie between 1 and n = %d", reports, population)
	}
	return nil
}

// GirgisUpper returns an upper bound on the Rényi divergence (nats, replace-one
// adjacency) of order λ ≥ 2, an integer, of one round of k reports, drawn without replacement.
//
// Source: Girgis et al. 2021, NeurIPS version, Theorem 1:
//
//	1/(λ−1)·log(1 + 4·C(λ,2)·γ²(E−1)²/(k̄E)
//	  + Σ_{j=3..λ} C(λ,j)·γ^j·j·Γ(j/2)·(2(E²−1)²/(k̄E²))^{j/2} + Υ),
//	k̄ = ⌊(k−1)/(2E)⌋ + 1,  x = γ(E²−1)/E,
//	Υ = ((1+x)^λ − 1 − λx)·e^{−(k−1)/(8E)}.
//
// Summed in the log domain, relative error 1e-9 added. Time O(λ).
func GirgisUpper(c Round, order int) (float64, error) {
	if err := c.fixed(order); err != nil {
		return 0, err
	}
	e := math.Exp(c.Eps0)
	gamma := float64(c.Reports) / float64(c.Population)
	kbar := math.Floor(float64(c.Reports-1)/(2*e)) + 1
	lambda := float64(order)
	var sum logSum
	for j := 2; j <= order; j++ {
		x := float64(j)
		sum.add(logChoose(lambda, x) + x*math.Log(gamma) + ternarySame(c.Eps0, x) - x/2*math.Log(kbar))
	}
	x := gamma * math.Expm1(2*c.Eps0) / e
	sum.add(logUpsilon(x, lambda) - float64(c.Reports-1)/(8*e))
	total := sum.value() // log of everything except the 1
	return log1pExp(total) * (1 + 1e-9) / (lambda - 1), nil
}

// GirgisLower returns a lower bound on the Rényi divergence of order λ ≥ 2, an integer: the
// divergence of one concrete mechanism, binary randomized response with all other clients
// equal.
//
// Source: Girgis et al. 2021, NeurIPS version, Theorem 2. It is evaluated as the expectation
// E[(1 + γ(E²−1)/(kE)·(m − k/(E+1)))^λ] with m ~ Bin(k, 1/(E+1)), because the paper's
// expansion in central moments cancels. A relative error of 1e-9 is taken off. Time O(√k),
// for the bulk of m only.
func GirgisLower(c Round, order int) (float64, error) {
	if err := c.fixed(order); err != nil {
		return 0, err
	}
	e := math.Exp(c.Eps0)
	gamma := float64(c.Reports) / float64(c.Population)
	scale := gamma * math.Expm1(2*c.Eps0) / (float64(c.Reports) * e)
	mean := float64(c.Reports) / (e + 1)
	lambda := float64(order)
	p, q := 1/(e+1), e/(e+1)
	term := func(m int64) float64 { // logarithm of mass times ratio^λ
		return tail.LogPMF(c.Reports, m, p, q) + lambda*math.Log1p(scale*(float64(m)-mean))
	}
	// Terms are at least 0, so leaving some out keeps a lower bound. The sum takes the bulk
	// of m, and further terms until the weighted terms, which are log-concave, have died
	// away.
	lo, hi := tail.Window(c.Reports, p, q, 1e-25, 1e-25)
	a, b := int64(mean), c.Reports
	for a < b {
		if mid := a + (b-a)/2; term(mid) < term(mid+1) {
			a = mid + 1
		} else {
			b = mid
		}
	}
	peak := term(a)
	// Beyond the peak, terms fall ever faster.
	stride := int64(math.Sqrt(float64(c.Reports))/4) + 1
	end := a
	for end < c.Reports && term(end) > peak-45 {
		end = min(c.Reports, end+stride)
	}
	hi = max(hi, end)
	// The largest ratio to the power λ may overflow, so e^shift is taken out.
	top := math.Log1p(math.Max(0, scale*(float64(hi)-mean)))
	shift := math.Max(0, lambda*top-600)
	var excess float64
	tail.PMF(c.Reports, p, q, lo, hi, func(m int64, mass float64) {
		d := scale * (float64(m) - mean)
		if shift > 0 {
			excess += mass * math.Exp(lambda*math.Log1p(d)-shift)
			return
		}
		// (1+d)^λ − 1 − λd is at least 0 for d ≥ −1. Its sum is the excess, because E d = 0.
		excess += mass * rdp.PowerExcess(d, lambda)
	})
	if shift > 0 {
		return math.Max(0, (shift+math.Log(excess*(1-1e-9)))/(lambda-1)*(1-1e-14)), nil
	}
	return math.Log1p(math.Max(0, excess)*(1-1e-9)) / (lambda - 1), nil
}

// logUpsilon returns log((1+x)^λ − 1 − λx) for x > 0.
func logUpsilon(x, lambda float64) float64 {
	if l := lambda * math.Log1p(x); l > 500 {
		return l // leaving out −1 − λx only makes it larger
	}
	return math.Log(rdp.PowerExcess(x, lambda))
}

func logChoose(n, k float64) float64 {
	a, _ := math.Lgamma(n + 1)
	b, _ := math.Lgamma(k + 1)
	c, _ := math.Lgamma(n - k + 1)
	return a - b - c
}

// logSum adds numbers given by their logarithms.
type logSum struct {
	top, rest float64
	any       bool
}

func (s *logSum) add(l float64) {
	switch {
	case !s.any:
		s.top, s.rest, s.any = l, 1, true
	case l <= s.top:
		s.rest += math.Exp(l - s.top)
	default:
		s.rest = s.rest*math.Exp(s.top-l) + 1
		s.top = l
	}
}

func (s *logSum) value() float64 { return s.top + math.Log(s.rest) }

// log1pExp returns log(1 + e^l).
func log1pExp(l float64) float64 {
	if l > 40 {
		return l + math.Exp(-l)
	}
	return math.Log1p(math.Exp(l))
}

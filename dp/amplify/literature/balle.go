package literature

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// Blanketed is one shuffle of reports bounded by its privacy blanket, Balle, Bell, Gascón,
// Nissim 2019: with M ~ Bin(k, γ) and i.i.d. L_i,
//
//	δ(ε) ≤ E[(L_1 + … + L_M)₊]/(γk), L = (R(x₀) − e^ε R(x₁))/ω at a draw of ω,
//
// the paper's section 5; γω ≤ R(x) for all x. Replace-one adjacency. balle.md has the
// derivations.
type Blanketed struct {
	eps0    float64
	reports int64
	symbols int
	gamma   float64 // at most the blanket's mass
}

// NewBlanketed prepares k reports of K-ary randomized response (symbols = K ≥ 2), or of any
// ε₀-LDP randomizer (symbols = 0).
func NewBlanketed(eps0 float64, reports int64, symbols int) (*Blanketed, error) {
	if err := dp.CheckEps0(eps0); err != nil {
		return nil, err
	}
	if reports < 1 || reports > maxReports {
		return nil, fmt.Errorf("amplify: k = %d must lie between 1 and 2^52", reports)
	}
	if symbols != 0 && symbols < 2 {
		return nil, fmt.Errorf("amplify: symbols = %d must be at least 2, or 0 for any randomizer", symbols)
	}
	b := &Blanketed{eps0: eps0, reports: reports, symbols: symbols, gamma: math.Exp(-eps0)}
	if symbols > 0 {
		b.gamma = float64(symbols) / (math.Expm1(eps0) + float64(symbols))
	}
	return b, nil
}

// scores are bounds on L: its mean is −a, its range has width, it is at most top, and E[L²]
// is at most square.
type scores struct{ a, width, top, square float64 }

// scores returns the bounds for the randomizer. For any ε₀-LDP one, 1/E ≤ γ ≤ 1 and the
// ratios R(x)/(γω) lie in [1, E]; the paper's constants, used here, are wider. Factors of E
// cannot overflow, because ε₀ ≤ 50.
func (b *Blanketed) scores(eps float64) scores {
	// Differences of exponentials are written with Expm1: at small ε₀ others lose all digits.
	e := b.eps0
	out := scores{a: math.Expm1(eps)}
	if b.symbols == 0 {
		out.width = (1 + math.Exp(eps)) * 2 * math.Sinh(e)
		out.top = math.Expm1(e) - math.Expm1(eps-e)
		out.square = math.Expm1(e) + math.Expm1(e+2*eps) - 2*math.Expm1(eps-3*e)
		return out
	}
	k := float64(b.symbols)
	one, two, rest := b.gamma*math.Exp(eps)*math.Expm1(e-eps), -b.gamma*math.Expm1(e+eps), -b.gamma*math.Expm1(eps)
	out.width, out.top = one-two, one
	out.square = (one*one + two*two + (k-2)*rest*rest) / k
	return out
}

// absent returns log E[e^{−Mx}; M ≥ 1] for x ≥ 0.
func (b *Blanketed) absent(x float64) float64 {
	k := float64(b.reports)
	all := k * math.Log1p(b.gamma*math.Expm1(-x))
	none := k * math.Log1p(-b.gamma)
	if none >= all {
		return all
	}
	return all + math.Log1p(-math.Exp(none-all)*(1-1e-9))
}

// Delta bounds δ at eps ≥ 0; 1 if it shows nothing smaller. Upper, proved. Source: Balle et
// al. 2019, section 5; balle.md. Time O(1). It uses Hoeffding's inequality,
//
//	E[(ΣL)₊] ≤ width²/(4a)·e^{−2ma²/width²},
//
// or, if bennett is set, Bennett's, with u = a·top/square and φ(u) = (1+u)log(1+u) − u:
//
//	E[(ΣL)₊] ≤ top/log(1+u)·e^{−m(square/top²)φ(u)}.
func (b *Blanketed) Delta(eps float64, bennett bool) float64 {
	s := b.scores(eps)
	if bennett {
		return b.bennett(eps, s)
	}
	x := 2 * s.a * s.a / (s.width * s.width) * (1 - 1e-13)
	return b.delta(eps, 2*math.Log(s.width)-math.Log(4*s.a)+b.absent(x))
}

func (b *Blanketed) bennett(eps float64, s scores) float64 {
	if !(s.top > 0) {
		return b.delta(eps, math.Inf(-1))
	}
	u := s.a * s.top / s.square
	// phi is φ(u), computed as u² times a function without cancellation.
	phi := (1+u)*math.Log1p(u) - u
	if u < 1e-3 {
		phi = u * u * (.5 - u*(1./6-u*(1./12-u/20))) * (1 - 1e-12)
	}
	x := s.square / (s.top * s.top) * phi * (1 - 1e-12)
	return b.delta(eps, math.Log(s.top)-math.Log(math.Log1p(u))+b.absent(x))
}

// delta turns the log of E[(ΣL)₊] into δ, rounded up.
func (b *Blanketed) delta(eps, log float64) float64 {
	switch {
	case math.IsNaN(eps) || !(eps > 0):
		return 1
	case eps >= b.eps0:
		return 0
	}
	d := math.Exp(log-math.Log(b.gamma*float64(b.reports)))*(1+1e-9) + 1e-300
	if d < 1 {
		return d
	}
	return 1 // NaN too
}

// exactReports bounds the work of ExactDelta.
const exactReports = 1 << 12

// ExactDelta is δ at eps ≥ 0 by the expectation itself, summed over the number of reports in
// the blanket and their symbols; K-ary randomized response only, at most 4096 reports. Upper,
// proved; outcomes of mass 1e-25 in total count with the largest score. Time O(k).
func (b *Blanketed) ExactDelta(eps float64) (float64, error) {
	if b.symbols == 0 {
		return 0, fmt.Errorf("amplify: the exact blanket needs a given randomizer: %w", dp.ErrNoBound)
	}
	if b.reports > exactReports {
		return 0, fmt.Errorf("amplify: k = %d must be at most %d for the exact blanket: %w", b.reports, exactReports, dp.ErrNoBound)
	}
	switch {
	case math.IsNaN(eps) || eps < 0:
		return 1, nil
	case eps >= b.eps0:
		return 0, nil
	}
	k := float64(b.symbols)
	// These are scores times γ: U at x₀, V at x₁, W at each other symbol. Of the reports, c
	// fall on x₀ or x₁ of the blanket, w on its other symbols.
	U, V, W := math.Exp(eps)*math.Expm1(b.eps0-eps), -math.Expm1(b.eps0+eps), -math.Expm1(eps)
	share := 2 * b.gamma / k
	const drop = 1e-25
	lo, hi := tail.Window(b.reports, share, 1-share, drop/4, drop/4)
	others := (b.gamma - share) / (1 - share)
	if b.symbols == 2 {
		others = 0
	}
	var sum, size float64
	var above []float64 // Pr[Bin(c, ½) ≥ i] for i from the window's start
	tail.PMF(b.reports, share, 1-share, lo, hi, func(c int64, mass float64) {
		from, to := tail.Window(c, .5, .5, drop/8, drop/8)
		above = above[:0]
		for range to - from + 2 {
			above = append(above, 0)
		}
		tail.PMF(c, .5, .5, from, to, func(i int64, p float64) { above[i-from] = p })
		for i := len(above) - 2; i >= 0; i-- {
			above[i] += above[i+1]
		}
		at := func(x int64) float64 { // Pr[Bin(c, ½) ≥ x]
			switch {
			case x <= from:
				return 1
			case x > to:
				return 0
			}
			return above[x-from]
		}
		wlo, whi := tail.Window(b.reports-c, others, 1-others, drop/8, drop/8)
		tail.PMF(b.reports-c, others, 1-others, wlo, whi, func(w int64, p float64) {
			base := float64(c)*V + float64(w)*W
			// Scores are positive from the first a with a(U−V) > −base on.
			first := max(0, int64(math.Floor(-base/(U-V)))+1)
			if first > c {
				return
			}
			// E[a; a ≥ x] = (c/2)·Pr[Bin(c−1, ½) ≥ x−1], and that tail is the mean
			// of two of c's: Pr[Bin(c−1) ≥ x−1] = Pr[Bin(c) ≥ x] + ½Pr[Bin(c−1) = x−1].
			tailAt := at(first)
			point := tailAt - at(first+1) // Pr[Bin(c, ½) = x] = C(c,x)/2^c
			mean := float64(c)/2*tailAt + float64(first)/2*point
			gain, cost := mean*(U-V), base*tailAt
			sum += mass * p * math.Max(0, gain+cost)
			size += mass * p * (math.Abs(gain) + math.Abs(cost))
		})
	})
	// L/γ is at most U: the dropped outcomes add at most U·drop to δ.
	d := (sum+1e-11*size)/float64(b.reports) + U*drop
	return math.Min(1, d), nil
}

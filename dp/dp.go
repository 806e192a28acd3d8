// Package dp is riffle's vocabulary: what happened (Event), what it promises (Guarantee,
// Bound), between which datasets (Adjacency), the pairs of laws that bounds are computed from
// (Pair), and what computes bounds (Accountant).
//
// It holds no formulas. The packages of accounting (rdp, pld) and of amplification (amplify)
// share only this package and never import each other's numerics.
package dp

import (
	"errors"
	"fmt"
	"math"
)

// Adjacency says which datasets are neighbours.
type Adjacency string

const (
	// ReplaceOne: one client's data is replaced; n is public and fixed.
	ReplaceOne Adjacency = "replace"
	// AddRemoveOne: one client is added or removed.
	AddRemoveOne Adjacency = "remove"
)

// Guarantee is an (ε, δ) statement in nats under an adjacency.
type Guarantee struct {
	Eps       float64
	Delta     float64
	Adjacency Adjacency
}

func (g Guarantee) String() string {
	return fmt.Sprintf("(%.4g, %.3g)-DP, %s one client", g.Eps, g.Delta, g.Adjacency)
}

// Kind says whether a bound is an upper or a lower one.
type Kind string

const (
	Upper       Kind = "upper"
	Lower       Kind = "lower"
	Approximate Kind = "approximate"
)

// Status says what a bound rests on.
type Status string

const (
	// Proved means a theorem with a proof that we have checked; see BOUNDS.md.
	Proved Status = "proved"
	// Numeric means verified on grids, not proved.
	Numeric Status = "numeric"
	// Approximation means unproved; such a figure is never a guarantee.
	Approximation Status = "approximate"
)

// NoMethod stands for a bound's method, or its kind, where nothing is bounded.
const NoMethod = "none"

// Bound is one method's answer to a question about an Event.
type Bound struct {
	Method string // method id, such as "blanket-pld"
	Kind   Kind
	Status Status
	Guarantee
	Source string  // theorem and version
	Order  float64 // Rényi order that gave the bound; 0 if none
	Note   string
	// Seconds is the time the computation took; 0 if it was not measured.
	Seconds float64
}

// ErrNoBound is wrapped by every error that means "this method has no bound for this
// question"; an error without it means "this question makes no sense".
var ErrNoBound = errors.New("no bound")

// CheckDelta returns an error unless 0 < delta < 1.
func CheckDelta(delta float64) error {
	if math.IsNaN(delta) || delta <= 0 || delta >= 1 {
		return fmt.Errorf("dp: delta = %v must lie strictly between 0 and 1", delta)
	}
	return nil
}

// MaxEps0 is the largest local privacy parameter riffle accepts. Above it
// e^ε₀ leaves no amplification and nothing a client would call private.
const MaxEps0 = 50

// CheckEps0 returns an error unless 0 < eps0 ≤ MaxEps0.
func CheckEps0(eps0 float64) error {
	if math.IsNaN(eps0) || eps0 <= 0 || eps0 > MaxEps0 {
		return fmt.Errorf("dp: eps0 = %v must be above 0 and at most %d", eps0, MaxEps0)
	}
	return nil
}

// CheckTV returns an error unless a is a total-variation parameter of some ε₀-LDP randomizer:
// 0 < a ≤ 1/(e^ε₀+1), where the last inequality allows for rounding. The parameter means that
// any two inputs' laws differ by at most a(e^ε₀−1) in total variation.
func CheckTV(eps0, a float64) error {
	if most := 1 / (math.Exp(eps0) + 1); math.IsNaN(a) || a <= 0 || a > most*(1+1e-12) {
		return fmt.Errorf("dp: total-variation parameter a = %v must be above 0 and at most 1/(e^eps0+1) = %v", a, most)
	}
	return nil
}

// MaxSigma bounds the noise of one report in units of the clip norm.
const MaxSigma = 1e9

// CheckSigma returns an error unless 0 < sigma ≤ MaxSigma.
func CheckSigma(sigma float64) error {
	if math.IsNaN(sigma) || sigma <= 0 || sigma > MaxSigma {
		return fmt.Errorf("dp: sigma = %v must be above 0 and at most %g", sigma, MaxSigma)
	}
	return nil
}

// Counted returns delta less tail, rounded down: the part of delta that is left for an
// accountant. tail pays for losses outside events: the tails of vector sums' noise, or what a
// transport reveals.
func Counted(delta, tail float64) float64 {
	if tail == 0 {
		return delta
	}
	const slack = 1 + 0x1p-40 // covers the rounding of sums of tails
	return delta * (1 - tail*slack) * (1 - 0x1p-50)
}

package dp

import "fmt"

// Class is the widest family of local randomizers that a bound covers.
type Class string

const (
	// Generic is the class of all ε₀-LDP randomizers.
	Generic Class = "generic"
	// BinaryRR is binary randomized response on one bit, with nothing else released.
	BinaryRR Class = "rr2"
	// KRR is k-ary randomized response on one of Report.Symbols symbols, with nothing else
	// released. Any bound for Generic covers it.
	KRR Class = "krr"
	// LaplaceL1 is Laplace noise, continuous or discrete, of scale 2C/ε₀ per coordinate on
	// vectors of the ball ‖x‖₁ ≤ C, with nothing else released.
	LaplaceL1 Class = "laplace"
	// Cap is a randomizer such as PrivUnit with two densities: the laws of all inputs, not only
	// of any two, have a part of mass 1 − a(e^ε₀−1) in common, a = Report.TV.
	Cap Class = "cap"
	// Rising is a randomizer whose density rises in steps with a score, such as StepUnit.
	// Report.Steps describes it.
	Rising Class = "rising"
	// Gaussian is a vector clipped to ℓ2 norm 1 plus N(0, σ²) on each coordinate. It is not
	// ε₀-LDP for any ε₀.
	Gaussian Class = "gaussian"
	// GaussianSum is a vector clipped to ℓ2 norm 1, without noise of its own: N(0, σ²) is added
	// once to each coordinate of the round's sum, however many reports it has, by somebody who
	// keeps the noise to themselves. It is counted for sums only.
	GaussianSum Class = "gaussian-sum"
)

// promises lists, for each class, whether its reports are ε₀-LDP, whether they are symbols, and
// whether they need a total-variation parameter or steps.
var promises = map[Class]struct{ ldp, symbols, tv, steps bool }{
	Generic:   {ldp: true},
	BinaryRR:  {ldp: true},
	KRR:       {ldp: true, symbols: true},
	LaplaceL1: {ldp: true},
	Cap:       {ldp: true, tv: true},
	Rising:    {ldp: true, steps: true},
	Gaussian:  {},

	GaussianSum: {},
}

// LDP says whether reports of the class are ε₀-LDP. If so, every bound for Generic covers
// them.
func (c Class) LDP() bool { return promises[c].ldp }

// check returns an error unless the report has what its class needs and nothing else.
func (r Report) check() error {
	p, known := promises[r.Class]
	if p.ldp || !known {
		if r.Sigma != 0 {
			return fmt.Errorf("dp: sigma = %v given for class %q, which has eps0", r.Sigma, r.Class)
		}
		if err := CheckEps0(r.Eps0); err != nil {
			return err
		}
	} else {
		if r.Eps0 != 0 {
			return fmt.Errorf("dp: eps0 = %v given for class %s, which has sigma", r.Eps0, r.Class)
		}
		if err := CheckSigma(r.Sigma); err != nil {
			return err
		}
	}
	if known && p.steps {
		if err := r.Steps.check(); err != nil {
			return err
		}
	}
	switch {
	case !known:
		return fmt.Errorf("dp: unknown randomizer class %q", r.Class)
	case !p.steps && r.Steps != Steps{}:
		return fmt.Errorf("dp: steps given for class %q, which has none", r.Class)
	case p.symbols && r.Symbols < 2:
		return fmt.Errorf("dp: symbols = %d must be at least 2 for class %q", r.Symbols, r.Class)
	case !p.symbols && r.Symbols != 0:
		return fmt.Errorf("dp: symbols = %d given for class %q, which has none", r.Symbols, r.Class)
	case r.TV == 0 && p.tv:
		return fmt.Errorf("dp: class %q needs a total-variation parameter", r.Class)
	case r.TV == 0:
		return nil
	case r.Class != Generic && !p.tv:
		return fmt.Errorf("dp: total-variation parameter a = %v given for class %q, whose own is known", r.TV, r.Class)
	}
	return CheckTV(r.Eps0, r.TV)
}

package randomizer

import (
	"fmt"
	"math"
	"strings"
)

// Config describes a pure randomizer chosen by name; see [New].
type Config struct {
	Dim    int     // Required: length of the input; for "krr" the number of symbols
	Radius float64 // Required, but for "krr": bound on the input's norm, see [Norm]
	Eps0   float64 // Required: ε₀ in nats
	// Bits is the number of coordinates ("rinf") or bits ("r1") in a report; 0 means 1. All
	// other randomizers take 0 only. [BestBits] returns the best number.
	Bits int
}

// Names lists what [New] takes.
func Names() []string {
	return []string{"rr", "krr", "signed-krr", "rinf", "r1", "r2", "privunit", "laplace"}
}

// New returns the randomizer of that name.
func New(name string, c Config) (Randomizer, error) {
	if c.Bits != 0 && name != "rinf" && name != "r1" {
		return nil, fmt.Errorf("randomizer: %d coordinates or bits given to %q; only rinf and r1 take them", c.Bits, name)
	}
	switch name {
	case "rr":
		return made(NewRR(RRConfig{c.Dim, c.Radius, c.Eps0}))
	case "krr":
		return made(NewKRR(KRRConfig{c.Dim, c.Eps0}))
	case "signed-krr":
		return made(NewSignedKRR(SignedKRRConfig{c.Dim, c.Radius, c.Eps0}))
	case "rinf":
		return made(NewRInf(RInfConfig{c.Dim, c.Radius, c.Eps0, c.Bits}))
	case "r1":
		return made(NewR1(R1Config{c.Dim, c.Radius, c.Eps0, c.Bits}))
	case "r2":
		return made(NewR2(R2Config{c.Dim, c.Radius, c.Eps0}))
	case "privunit":
		return made(NewPrivUnit(PrivUnitConfig{c.Dim, c.Radius, c.Eps0}))
	case "laplace":
		return made(NewLaplace(LaplaceConfig{c.Dim, c.Radius, c.Eps0}))
	}
	return nil, fmt.Errorf("randomizer: name %q must be one of %s", name, strings.Join(Names(), ", "))
}

// made returns a nil interface, not one that holds a nil pointer, if the constructor failed.
func made[R Randomizer](m R, err error) (Randomizer, error) {
	if err != nil {
		return nil, err
	}
	return m, nil
}

// Norm returns the p of the ball ‖x‖_p ≤ Radius that a randomizer of [Names]
// takes, for [ClipNorm]; 1 for "krr", whose inputs are distributions.
func Norm(name string) (float64, error) {
	switch name {
	case "rr", "rinf":
		return math.Inf(1), nil
	case "krr", "signed-krr", "r1", "laplace":
		return 1, nil
	case "r2", "privunit":
		return 2, nil
	}
	return 0, fmt.Errorf("randomizer: name %q must be one of %s", name, strings.Join(Names(), ", "))
}

package randomizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config describes a pure randomizer chosen by name; see [New].
type Config struct {
	Dim    int     // Required: length of the input; for "krr" the number of symbols
	Radius float64 // Required, but for "krr": bound on the input's norm, see [Kind]
	Eps0   float64 // Required: ε₀ in nats
	// Bits is the number of coordinates ("rinf") or bits ("r1") in a report; 0 means 1. All
	// other randomizers take 0 only. [BestBits] returns the best number.
	Bits int
}

// Kind is a row of Kinds: a pure randomizer, as tasks and the command line name it.
type Kind struct {
	Name string
	// Norm is the p of the ball ‖x‖_p ≤ Radius that it takes, for [ClipNorm]; 1 for
	// "krr", whose inputs are distributions.
	Norm float64
	// Trained is the randomizer's name in a run's configuration: its own name, except for
	// signed-krr, which is stored as "krr". "" if its inputs are not gradients.
	Trained string
	Bits    bool // takes Config.Bits
	make    func(Config) (Randomizer, error)
}

// kinds lists the randomizers in the order of Names.
var kinds = []Kind{
	{"rr", math.Inf(1), "rr", false, func(c Config) (Randomizer, error) { return NewRR(RRConfig{c.Dim, c.Radius, c.Eps0}) }},
	{"krr", 1, "", false, func(c Config) (Randomizer, error) { return NewKRR(KRRConfig{c.Dim, c.Eps0}) }},
	{"signed-krr", 1, "krr", false, func(c Config) (Randomizer, error) { return NewSignedKRR(SignedKRRConfig{c.Dim, c.Radius, c.Eps0}) }},
	{"rinf", math.Inf(1), "rinf", true, func(c Config) (Randomizer, error) { return NewRInf(RInfConfig{c.Dim, c.Radius, c.Eps0, c.Bits}) }},
	{"r1", 1, "r1", true, func(c Config) (Randomizer, error) { return NewR1(R1Config{c.Dim, c.Radius, c.Eps0, c.Bits}) }},
	{"r2", 2, "r2", false, func(c Config) (Randomizer, error) { return NewR2(R2Config{c.Dim, c.Radius, c.Eps0}) }},
	{"privunit", 2, "privunit", false, func(c Config) (Randomizer, error) { return NewPrivUnit(PrivUnitConfig{c.Dim, c.Radius, c.Eps0}) }},
	{"laplace", 1, "laplace", false, func(c Config) (Randomizer, error) { return NewLaplace(LaplaceConfig{c.Dim, c.Radius, c.Eps0}) }},
}

// Kinds lists all pure randomizers.
func Kinds() []Kind { return slices.Clone(kinds) }

// KindOf returns the row of a name.
func KindOf(name string) (Kind, error) {
	for _, k := range kinds {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("randomizer: name %q must be one of %s", name, strings.Join(Names(), ", "))
}

// Names lists what [New] takes.
func Names() []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = k.Name
	}
	return out
}

// New returns the randomizer of that name.
func New(name string, c Config) (Randomizer, error) {
	k, err := KindOf(name)
	if err != nil {
		return nil, err
	}
	if c.Bits != 0 && !k.Bits {
		return nil, fmt.Errorf("randomizer: %d coordinates or bits given to %q; only %s take them", c.Bits, name, withBits())
	}
	m, err := k.make(c)
	if err != nil {
		return nil, err // and no interface that holds a nil pointer
	}
	return m, nil
}

// withBits names the kinds that take Config.Bits.
func withBits() string {
	var out []string
	for _, k := range kinds {
		if k.Bits {
			out = append(out, k.Name)
		}
	}
	return strings.Join(out, " and ")
}

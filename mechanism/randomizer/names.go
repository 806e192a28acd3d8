package randomizer

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Config describes a pure randomizer.
type Config struct {
	// Dim is the length of the input, at most 2^30; for "krr" the number of symbols. Required.
	Dim int
	// Radius is the bound on the input's norm, a or C where a randomizer is described, between
	// 1e-30 and 1e30. Required, but for "krr". [Kind] has the norm.
	Radius float64
	// Eps0 is ε₀ in nats of the whole report, between 2^-20 and dp.MaxEps0. Required.
	Eps0 float64
	// Bits is m, the number of coordinates ("rinf") or bits ("r1") in a report, at most Dim and
	// 1024; 0 means 1, the mechanisms as published. [BestBits] returns the best number. For "krr" it
	// is w, the number of symbols over which inputs are spread, see [KRR]; 0 means 1. All other
	// randomizers take 0 only.
	Bits int
	// Encoding says what a report of "privunit" or "stepunit" holds: [Values], or [Seed]; "" means
	// Values. All other randomizers take "" only.
	Encoding string
	// Edges are the scores at which the density of "stepunit" rises, ascending from 0 at least;
	// "privunit" takes one with encoding seed. Empty means [Edges].
	Edges []float64
	// Steps is the number of edges, at most [MaxSteps]; 0 means as many as Edges has, or 3.
	Steps int
}

// Encodings of a report.
const (
	Values = "values" // a vector in fixed point
	Seed   = "seed"   // 16 bytes, of which package seed makes the vector
)

// Kind is a row of Kinds: a pure randomizer, as tasks and the command line name it.
type Kind struct {
	Name string
	// Norm is the p of the ball ‖x‖_p ≤ Radius that it takes, for [ClipNorm]; 1 for
	// "krr", whose inputs are distributions.
	Norm float64
	// Trained is the randomizer's name in a run's configuration: its own name, except for
	// signed-krr, which is stored as "krr". "" if its inputs are not gradients.
	Trained string
	Bits    bool // takes Config.Bits as the number of a report's coordinates or bits
	Seeds   bool // takes Config.Encoding
	Steps   bool // takes Config.Steps and Config.Edges
	make    func(Config) (Randomizer, error)
}

// kinds lists the randomizers in the order in which they are shown.
var kinds = []Kind{
	{RR, math.Inf(1), RR, false, false, false, newRR},
	{KRR, 1, "", false, false, false, func(c Config) (Randomizer, error) { return newKRR(c) }},
	{SignedKRR, 1, KRR, false, false, false, newSignedKRR},
	{RInf, math.Inf(1), RInf, true, false, false, newRInf},
	{R1, 1, R1, true, false, false, newR1},
	{R2, 2, R2, false, false, false, newR2},
	{PrivUnit, 2, PrivUnit, false, true, false, newPrivUnit},
	{StepUnit, 2, StepUnit, false, true, true, newStepUnit},
	{Laplace, 1, Laplace, false, false, false, newLaplace},
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
	return Kind{}, fmt.Errorf("randomizer: name %q must be one of %s", name, strings.Join(names(), ", "))
}

// names lists what [New] takes.
func names() []string {
	out := make([]string, len(kinds))
	for i, k := range kinds {
		out[i] = k.Name
	}
	return out
}

// New returns the randomizer of that name: [RR], [KRR], [SignedKRR], [RInf], [R1], [R2],
// [PrivUnit], [StepUnit] or [Laplace].
func New(name string, c Config) (Randomizer, error) {
	k, err := KindOf(name)
	if err != nil {
		return nil, err
	}
	if c.Bits != 0 && !k.Bits && name != KRR {
		return nil, fmt.Errorf("randomizer: %d coordinates or bits given to %q; only %s take them", c.Bits, name, withBits())
	}
	if c.Encoding != "" && !k.Seeds {
		return nil, fmt.Errorf("randomizer: encoding %q given to %q; only %s and %s take one", c.Encoding, name, PrivUnit, StepUnit)
	}
	if (c.Steps != 0 || len(c.Edges) != 0) && !k.Seeds {
		return nil, fmt.Errorf("randomizer: steps or edges given to %q; only %s and %s take them", name, PrivUnit, StepUnit)
	}
	m, err := k.make(c)
	if err != nil {
		return nil, err // a nil interface, not an interface that holds a nil pointer
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

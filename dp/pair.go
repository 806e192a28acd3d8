package dp

// Atom is an outcome of a pair of laws (P, Q), given by its probability under Q and its
// privacy loss log(P/Q). The loss is stored, not computed, so that it keeps its digits if it
// is tiny.
type Atom struct{ Q, Loss float64 }

// Remainder bounds outcomes that are not listed: their mass under either law is at most Mass,
// and their |log(P/Q)| is at most MaxLoss.
type Remainder struct{ Mass, MaxLoss float64 }

// Pair is a symmetric pair of laws (P, Q) that dominates a mechanism: for every real ε and
// both orders of the neighbours, the mechanism's hockey-stick divergence is at most the
// pair's.
//
// Atoms lists outcomes with Loss > 0 only; each has a mirror image with P and Q exchanged.
// Remainders must be charged, either as mass of infinite loss or at their MaxLoss. All other
// mass has P = Q.
type Pair struct {
	Atoms      []Atom
	Remainders []Remainder
}

// Dropped returns the mass of all remainders.
func (p Pair) Dropped() float64 {
	var sum float64
	for _, r := range p.Remainders {
		sum += r.Mass
	}
	return sum
}

// Directed is a pair of laws (P, Q) that dominates a mechanism in one order of the neighbours: for every real
// ε the hockey-stick divergence of the first from the second is at most that of P from Q. Where the
// neighbours are not alike, as when a client is added or removed, each order has a pair of its own.
//
// Atoms lists outcomes, of losses of either sign. Dropped is the mass under P that is not listed; it counts as
// infinite loss. Missing is the mass under Q that is not listed; it weighs nothing.
type Directed struct {
	Atoms            []Atom
	Dropped, Missing float64
}

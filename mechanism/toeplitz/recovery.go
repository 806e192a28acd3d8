package toeplitz

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Vector is what was recovered of a round.
type Vector struct {
	Round  int64
	Values []float64
}

// State is what a Recovery keeps: enough to go on from, in a process or another one.
type State struct {
	Next int64    // the first round number that may come
	Kept []Vector // of the last len(Weights)−1 rounds those that released, in order
}

// Recovery undoes a strategy as rounds are released: X̂_t = (Y_t − Σ_{s≥1} w_s·X̂_{t−s})/2^Bits. It
// keeps at most len(Weights)−1 vectors. It is deterministic, the same on every platform.
type Recovery struct {
	strategy Strategy
	dim      int
	state    State
	before   State // the last Recover
}

// NewRecovery begins before round 0, for vectors of length dim.
func NewRecovery(s Strategy, dim int) (*Recovery, error) {
	return RestoreRecovery(s, dim, State{})
}

// RestoreRecovery goes on from the State of a Recovery of the same strategy. It copies the state.
func RestoreRecovery(s Strategy, dim int, from State) (*Recovery, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if dim < 1 {
		return nil, fmt.Errorf("toeplitz: dim = %d must be at least 1", dim)
	}
	if from.Next < 0 {
		return nil, fmt.Errorf("toeplitz: next round %d must be at least 0", from.Next)
	}
	r := &Recovery{strategy: s, dim: dim, state: State{Next: from.Next}}
	r.strategy.Weights = slices.Clone(s.Weights)
	least := max(0, from.Next-int64(len(s.Weights))+1)
	for _, v := range from.Kept {
		if v.Round < least || v.Round >= from.Next {
			return nil, fmt.Errorf("toeplitz: kept round %d must lie between %d and %d, in order", v.Round, least, from.Next-1)
		}
		if len(v.Values) != dim || slices.ContainsFunc(v.Values, notFinite) {
			return nil, fmt.Errorf("toeplitz: kept round %d must have %d finite values", v.Round, dim)
		}
		r.state.Kept = append(r.state.Kept, Vector{v.Round, slices.Clone(v.Values)})
		least = v.Round + 1
	}
	r.before = r.state
	return r, nil
}

func notFinite(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) }

// State returns a copy of what is kept.
func (r *Recovery) State() State {
	out := State{Next: r.state.Next}
	for _, v := range r.state.Kept {
		out.Kept = append(out.Kept, Vector{v.Round, slices.Clone(v.Values)})
	}
	return out
}

// Rounds returns the rounds that are kept, in order.
func (r *Recovery) Rounds() (rounds []int64) {
	for _, v := range r.state.Kept {
		rounds = append(rounds, v.Round)
	}
	return rounds
}

// Recover returns X̂ of a round from what it released. Rounds come in increasing order; those left out
// were void, and have X = X̂ = 0. With Z = 0 the result is exact as long as all sums are below
// 2^53. After an error nothing has changed.
func (r *Recovery) Recover(round int64, y []int64) ([]float64, error) {
	if round < r.state.Next || round == math.MaxInt64 {
		return nil, fmt.Errorf("toeplitz: round %d, the next is %d", round, r.state.Next)
	}
	if len(y) != r.dim {
		return nil, fmt.Errorf("toeplitz: %d values for %d coordinates", len(y), r.dim)
	}
	w := r.strategy.Weights
	x := make([]float64, r.dim)
	for i, v := range y {
		x[i] = float64(v)
	}
	for _, v := range r.state.Kept {
		if s := round - v.Round; s < int64(len(w)) {
			subtract(x, float64(w[s]), v.Values)
		}
	}
	unit := math.Ldexp(1, -r.strategy.Bits)
	for i := range x {
		x[i] *= unit
	}
	if slices.ContainsFunc(x, notFinite) {
		return nil, errors.New("toeplitz: recovered values are not finite")
	}
	r.keep(round, x)
	return x, nil
}

// Undo takes back the last Recover, so that its round may come again. It may be called once after it.
func (r *Recovery) Undo() { r.state = r.before }

// keep notes a round's vector and forgets those that no later round needs.
func (r *Recovery) keep(round int64, x []float64) {
	r.before = r.state
	least := round + 2 - int64(len(r.strategy.Weights))
	kept := slices.DeleteFunc(slices.Clone(r.state.Kept), func(v Vector) bool { return v.Round < least })
	if round >= least {
		kept = append(kept, Vector{round, slices.Clone(x)})
	}
	r.state = State{Next: round + 1, Kept: kept}
}

// subtract takes w·v from x. The conversion keeps compilers from fusing the two steps.
func subtract(x []float64, w float64, v []float64) {
	v = v[:len(x)]
	for i := range x {
		x[i] -= float64(w * v[i])
	}
}

package toeplitz

import (
	"fmt"
	"slices"
)

// Sum is the sum of the vectors of a round, which is private only with noise.
type Sum struct {
	Round  int64
	Values []int64
}

// Window holds the sums of the last rounds, which later ones are released with. Whoever has it has
// sums without noise.
type Window struct {
	strategy Strategy
	dim      int
	held     []Sum // in the order of rounds
	before   []Sum // what was held before the last Mix
}

// NewWindow goes on from the sums that another Window held; nil: it begins. It copies them.
func NewWindow(s Strategy, dim int, held []Sum) (*Window, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	w := &Window{strategy: s, dim: dim}
	for i, h := range held {
		if len(h.Values) != dim || i > 0 && h.Round <= held[i-1].Round {
			return nil, fmt.Errorf("toeplitz: held round %d of %d values must come in order and have %d", h.Round, len(h.Values), dim)
		}
		w.held = append(w.held, Sum{h.Round, slices.Clone(h.Values)})
	}
	w.before = w.held
	return w, nil
}

// Held returns a copy of what is held.
func (w *Window) Held() []Sum {
	var out []Sum
	for _, h := range w.held {
		out = append(out, Sum{h.Round, slices.Clone(h.Values)})
	}
	return out
}

// Mix makes Σ_s w_s·X_{t−s}, what round t releases but for the noise, of its sum X_t, in place, and
// keeps X_t. What later rounds do not need is overwritten by the next Mix. Rounds come in increasing order; those left out count as X = 0. The caller sees to it
// that the result is within 2^63. After an error nothing has changed.
func (w *Window) Mix(round int64, sum []int64) error {
	if n := len(w.held); round < 0 || n > 0 && round <= w.held[n-1].Round {
		return fmt.Errorf("toeplitz: round %d is not after those before", round)
	}
	if len(sum) != w.dim {
		return fmt.Errorf("toeplitz: %d values for %d coordinates", len(sum), w.dim)
	}
	own := slices.Clone(sum)
	for j := range sum {
		sum[j] *= w.strategy.Weights[0]
	}
	w.forget()
	w.before = w.held
	oldest := round + 1 - int64(len(w.strategy.Weights)) // what later rounds need no more lies before
	var kept []Sum
	for _, h := range w.held {
		if s := round - h.Round; s < int64(len(w.strategy.Weights)) {
			weight := w.strategy.Weights[s]
			for j, v := range h.Values {
				sum[j] += weight * v
			}
		}
		if h.Round > oldest {
			kept = append(kept, h)
		}
	}
	if len(w.strategy.Weights) > 1 {
		kept = append(kept, Sum{round, own})
	}
	w.held = kept
	return nil
}

// Undo takes back the last Mix, so that its round may come again. It may be called once after it.
func (w *Window) Undo() { w.held = w.before }

// forget overwrites what the last Mix left out.
func (w *Window) forget() {
	for _, h := range w.before {
		if len(w.held) == 0 || h.Round < w.held[0].Round {
			clear(h.Values)
		}
	}
}

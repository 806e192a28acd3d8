package toeplitz

import (
	"fmt"
	"math"
)

// mostSteps bounds the multiplications of Errors, if each round's overhead is so many.
const (
	mostSteps = 1 << 30
	overhead  = 64
)

// settled is how close the last values of a renewal sequence lie where all later ones
// are taken for the last.
const settled = 1e-14

// errorsBy returns the standard deviation of a coordinate of the estimates of X_0 + … + X_t, t <
// rounds: the root of its mean square over rounds (rms), and the largest (most). The unit is one
// coordinate of Z_t, times 2^-Bits. Both are norms of rows of A·C⁻¹, A the matrix of prefix sums.
// No round is void. Relative error 1e-9.
//
// It is refused if it is too much work: rounds times weights are above 2^30 or so, and the rows do
// not settle before (toeplitz.md, section 4).
func (s Strategy) errorsBy(rounds int64) (rms, most float64, err error) {
	if err := s.Validate(); err != nil {
		return 0, 0, err
	}
	if rounds < 1 || rounds > 1<<52 {
		return 0, 0, fmt.Errorf("toeplitz: rounds = %d must lie between 1 and 2^52", rounds)
	}
	n := len(s.Weights)
	p := gaps(s.Weights)
	var all, weighted float64 // Σ b_t², Σ (rounds−t)·b_t²
	var work int64
	unit := math.Ldexp(1, -s.Bits)
	recent := make([]float64, 0, 2*n) // the last n of b and some before
	for t := range rounds {
		if len(recent) == 2*n {
			recent = append(recent[:0], recent[n:]...)
		}
		b := 1.
		if t > 0 {
			b = 0
			for j, v := range p[:min(n, len(recent))] {
				b += float64(v * recent[len(recent)-1-j])
			}
			b *= unit
		}
		recent = append(recent, b)
		all += float64(b * b)
		weighted += float64(float64(rounds-t) * float64(b*b))
		if len(recent) == 2*n && spread(recent[n:]) <= settled {
			left := float64(rounds - 1 - t)
			all += float64(left * float64(b*b))
			weighted += float64(left * (left + 1) / 2 * float64(b*b))
			break
		}
		if work += overhead + int64(min(n, len(recent))); work > mostSteps {
			return 0, 0, fmt.Errorf("toeplitz: errors of %d rounds with %d weights are too much work", rounds, n)
		}
	}
	return math.Sqrt(weighted / float64(rounds)), math.Sqrt(all), nil
}

// gaps returns p_j = w_{j−1} − w_j for j = 1 … n, w_n = 0: 2^Bits times the law of the gaps of
// the renewal process whose probabilities are the entries of A·C⁻¹.
func gaps(w []int64) []float64 {
	p := make([]float64, len(w))
	for j := range w {
		p[j] = float64(w[j])
		if j+1 < len(w) {
			p[j] -= float64(w[j+1])
		}
	}
	return p
}

// spread returns the largest minus the smallest of some values.
func spread(v []float64) float64 {
	lo, hi := v[0], v[0]
	for _, x := range v {
		lo, hi = min(lo, x), max(hi, x)
	}
	return hi - lo
}

// Gain returns by how much the errors are smaller than with Identity at the same sensitivity, for
// clients that take part in one of any `every` rounds: √(k(T+1)/2) over the rms error, and √(kT) over
// the largest, k = ⌈T/every⌉ for T = rounds.
func (s Strategy) Gain(rounds, every int64) (rms, most float64, err error) {
	rms, most, err = s.errorsBy(rounds)
	if err != nil {
		return 0, 0, err
	}
	if every < 1 {
		return 0, 0, fmt.Errorf("toeplitz: every = %d must be at least 1", every)
	}
	t, k := float64(rounds), float64((rounds-1)/every+1)
	sensitivity := math.Sqrt(s.Squared(rounds, every))
	return math.Sqrt(k*(t+1)/2) / (rms * sensitivity), math.Sqrt(k*t) / (most * sensitivity), nil
}

package statistic

import (
	"math"
	"math/bits"
)

// Codes answer a histogram of many bins where ε₀ is small, as with trust local, by Hadamard response:
// a bin's code is the half of all symbols at which its row of the Hadamard matrix is 1, and a client's
// symbol is drawn evenly from the code of its bin. The codes of two bins share half their symbols, so
// the reports within a bin's code are a count as of randomized response on a bit: messages.md, section
// 2.
//
// Source: Acharya, Sun, Zhang, "Hadamard Response: Estimating Distributions Privately, Efficiently, and
// with Little Communication", AISTATS 2019, for small ε₀.

// codedSymbols is K of reports with codes: they are as private as randomized response on a bit.
const codedSymbols = 2

// mostCode is the longest code: reports may be spread over 2^10 symbols.
const mostCode = 1 << 11

// coded says whether a question has codes with so many symbols.
func (q Question) coded(symbols int) bool {
	return q.Measure == "histogram" && symbols == codedSymbols && q.Dim() >= 3 && codeLength(q.Dim()) <= mostCode
}

// codeLength returns the number of symbols of codes for so many bins: a power of two above it.
func codeLength(bins int) int { return 1 << bits.Len(uint(bins)) }

// inCode says whether a symbol is in a bin's code.
func inCode(bin, symbol int) bool { return bits.OnesCount(uint((bin+1)&symbol))%2 == 0 }

// encodeCode overwrites x with the even distribution on a bin's code.
func encodeCode(bin int, x []float32) {
	each := 2 / float32(len(x))
	for j := range x {
		if x[j] = 0; inCode(bin, j) {
			x[j] = each
		}
	}
}

// encodeNoCode overwrites x with the even distribution on all symbols, half of which are in every code.
func encodeNoCode(x []float32) {
	for j := range x {
		x[j] = 1 / float32(len(x))
	}
}

// decode returns the estimated counts of the bins, with the law of one, from the sums of the symbols.
func (s *Messages) decode(sums []float64, reports int64) ([]float64, Law) {
	// Hadamard's transform: the sum over a code less that over the rest, for every code.
	t := append([]float64(nil), sums...)
	for h := 1; h < len(t); h *= 2 {
		for i := 0; i < len(t); i += 2 * h {
			for j := i; j < i+h; j++ {
				t[j], t[j+h] = t[j]+t[j+h], t[j]-t[j+h]
			}
		}
	}
	gap := s.truth - s.lie
	return t[1 : 1+s.q.Dim()], response{n: reports, truth: (1 + gap) / 2, untruth: (1 - gap) / 2, lie: .5, unlie: .5}
}

// codesError is messageError with codes.
func codesError(eps0, n float64) float64 {
	t := 1 / math.Tanh(eps0/2) // (E+1)/(E−1)
	return t * t / n
}

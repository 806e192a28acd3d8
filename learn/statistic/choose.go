package statistic

import (
	"fmt"
	"math"
)

// Choose returns K and ε₀ of the single messages that answer the question: they are as private as
// randomized response on K symbols. [Question.Single] makes them. plan returns the largest ε₀ that
// randomized response on so many symbols may have.
//
// A count has K = 2. A histogram has its bins and one more, or 2 where codes have less error. Otherwise
// Choose tries numbers that grow by a quarter, for quantiles those that double, and returns the one
// with the least error for so many reports. It reads public numbers only.
func (q Question) Choose(reports int64, plan func(symbols int) (eps0 float64, err error)) (symbols int, eps0 float64, err error) {
	if k := q.Symbols(); k != 0 {
		if eps0, err = plan(k); err != nil {
			return 0, 0, err
		}
		if simple := q.messageError(k, eps0, float64(reports)); q.coded(codedSymbols) && simple > 1/float64(reports) { // codes err by that at least
			if with, err := plan(codedSymbols); err == nil && codesError(with, float64(reports)) < simple {
				return codedSymbols, with, nil
			}
		}
		return k, eps0, nil
	}
	if _, err := q.Single(leastKnown+1, 1); err != nil {
		return 0, 0, err
	}
	choices, guess := q.choices(), 2*math.Cbrt(float64(reports)/240)
	if q.Measure == "quantiles" {
		guess = math.Pow(float64(reports)/8, 2./3)
	}
	type found struct{ eps0, errs float64 }
	known := map[int]found{}
	try := func(i int) (float64, error) {
		if i < 0 || i >= len(choices) {
			return math.Inf(1), nil
		}
		k := choices[i]
		if _, ok := known[k]; !ok {
			eps0, err := plan(k)
			if err != nil {
				return 0, fmt.Errorf("statistic: %d symbols: %w", k, err)
			}
			known[k] = found{eps0, q.messageError(k, eps0, float64(reports))}
		}
		return known[k].errs, nil
	}
	at := 0
	for at+1 < len(choices) && float64(choices[at+1]) <= guess {
		at++
	}
	// Downhill from the guess; the error has one minimum.
	for step := 1; ; {
		here, err := try(at)
		if err != nil {
			return 0, 0, err
		}
		next, err := try(at + step)
		if err != nil {
			return 0, 0, err
		}
		if next < here {
			at += step
			continue
		}
		if step < 0 || at > 0 && known[choices[at-1]] != (found{}) {
			break
		}
		step = -1
	}
	k := choices[at]
	return k, known[k].eps0, nil
}

// choices lists the numbers of symbols that Choose tries.
func (q Question) choices() (out []int) {
	if q.Measure == "quantiles" {
		for l := 1; l <= q.Levels && 1<<l < mostKnown; l++ {
			out = append(out, 1<<l+1)
		}
		return out
	}
	least := leastKnown
	if !q.Everyone {
		least++
	}
	for k := least; k <= 1024; k = max(k+1, k*5/4) {
		out = append(out, k)
	}
	return out
}

// messageError returns the squared error that Choose makes small. Of a histogram it is the error of a
// bin's share, of a mean that of numbers that fill the range evenly, in squares of half the range. Of
// quantiles it is the error of the rank of a middle edge, and of the parts' width, for values that
// fill the range evenly.
func (q Question) messageError(symbols int, eps0, n float64) float64 {
	e := math.Expm1(eps0)
	s := &Messages{q: q}
	if k := q.Symbols(); k != 0 { // of one of equally full bins, as a share
		each, d := n/float64(max(1, k-1)), e+float64(k)
		return (n*(d-1) + each*e*(float64(k)-2)) / (e * e) / (n * n)
	}
	if q.Measure == "quantiles" {
		s.bins, s.outside = symbols-1, 1
		s.lie = 1 / (e + float64(symbols))
		s.truth = (e + 1) * s.lie
		bins := float64(s.bins)
		noise := s.covariance(n, n/4, n/4, 0, 0, 0, 0, bins/4)
		return noise/(n*n) + 1/(12*bins*bins)
	}
	if s.outside = wave; q.Everyone {
		s.outside = 0
	}
	s.bins = symbols*wave - s.outside
	s.lie = 1 / (wave*e + float64(symbols*wave))
	s.truth = (wave*e + 1) * s.lie
	var all float64
	for j := range s.bins {
		all += s.level(j) * s.level(j)
	}
	return s.covariance(n, n/3+n*s.blur(), n/3, 0, 0, 0, 0, all) / (n * n)
}

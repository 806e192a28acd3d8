package statistic

import "math"

// mean asks for the mean of a column's values, clipped to the public range. Its rows have squares
// too: what drawing some of the clients adds to the error depends on how far values are apart.
type mean struct{ Question }

func (mean) uses() []string { return []string{"column", "where", "low", "high", "everyone"} }
func (mean) ones() int      { return 0 }
func (m mean) dim() int     { return m.powers().dim() }
func (m mean) check() error { return m.checkRanged() }
func (m mean) coder() coder { return m.powers().coder(m.Question) }

func (m mean) powers() powers {
	if m.Everyone {
		return everyone
	}
	return powers{weight: .5, square: .45, inside: .9, radius: math.Sqrt(1.0125)}
}

func (m mean) answer(r Release) (Answer, error) {
	a, _ := m.powers().answer(m.Question, r, m.joint(1))
	return a, nil
}

// ratio is an estimate of the mean of values in −1 … 1: of their sum and number.
type ratio struct {
	sum, inside float64
	everyone    bool    // inside is known
	square      float64 // the mean of the values' squares, about
}

func (s ratio) number(r Release, joint float64) Number {
	n := Number{Value: s.sum / s.inside}
	n.Low95, n.High95 = s.interval(r, single)
	n.JointLow95, n.JointHigh95 = s.interval(r.surely(), joint)
	return n.orNothing()
}

// orNothing returns an estimate of a mean of values in −1 … 1, or 0 if nothing is known of it.
func (n Number) orNothing() Number {
	if !(math.Abs(n.Value) <= 1) && n.Low95 == -1 && n.High95 == 1 {
		n.Value = 0
	}
	return n
}

// interval returns Fieller's interval: the means ρ for which sum − ρ·inside is as near to 0 as its
// error may be. It is −1 … 1 where the number inside may be 0.
func (s ratio) interval(r Release, chance float64) (low, high float64) {
	if s.everyone && r.Clients == r.Reports {
		low, high = r.Law.interval(s.sum, chance)
		return low / s.inside, high / s.inside
	}
	z := normalQuantile((1 + chance) / 2)
	// The variances of the sum and of the number.
	v := r.Law.variance(s.sum)
	w := r.Law.variance(s.inside)
	if s.everyone {
		w = 0
	}
	// Sampling's variance is that of t − ρ: the mean of t² − 2ρt + ρ².
	draw := r.finite() * math.Max(s.inside, 0)
	middle := math.Min(1, math.Max(-1, s.sum/s.inside))
	square := math.Min(1, math.Max(middle*middle, s.square))
	a := s.inside*s.inside - z*z*(w+draw)
	b := 2 * (s.sum*s.inside - z*z*draw*middle)
	c := s.sum*s.sum - z*z*(v+draw*square)
	return fieller(s.inside, a, b, c)
}

// fieller returns the interval in which aρ² − bρ + c ≤ 0, and −1 … 1 if there is none or the number
// inside may be 0.
func fieller(inside, a, b, c float64) (low, high float64) {
	if !(inside > 0 && a > 0) {
		return -1, 1
	}
	low, high = roots(a, b, c)
	if math.IsNaN(low) || math.IsNaN(high) {
		return -1, 1
	}
	return low, high
}

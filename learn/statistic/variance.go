package statistic

import "math"

// variance asks for the variance of a column's values, clipped to the public range: the mean
// squared distance from their mean.
type variance struct{ Question }

func (variance) uses() []string { return []string{"column", "where", "low", "high", "everyone"} }
func (variance) ones() int      { return 0 }
func (v variance) dim() int     { return v.powers().dim() }
func (v variance) check() error { return v.checkRanged() }
func (v variance) coder() coder { return v.powers().coder(v.Question) }

func (v variance) powers() powers {
	if v.Everyone {
		return everyone
	}
	return powers{weight: 1, square: .75, inside: .75, radius: math.Sqrt(1.125)}
}

func (v variance) answer(r Release) (Answer, error) {
	joint := v.joint(2)
	a, m := v.powers().answer(v.Question, r, joint)
	spread := m.number(joint).scaled(v.half() * v.half())
	a.Variance = &spread
	return a, nil
}

// unknownVariance is the variance of values in −1 … 1 of which nothing is known.
var unknownVariance = Number{Value: .5, Interval: Interval{0, 1, 0, 1}}

// moments are estimates of the sums of t and t² and of the number of values t in −1 … 1.
type moments struct {
	sum, squares, inside float64
	law                  Law
	finite               float64 // Release.finite
	everyone             bool    // inside is known
}

func (m moments) number(joint float64) Number {
	if _, _, known := m.interval(single, 0); !known {
		return unknownVariance
	}
	mean := m.sum / m.inside
	// The square of the sum's error would make the result smaller.
	n := Number{Value: m.squares/m.inside - mean*mean + m.law.variance(m.sum)/(m.inside*m.inside)}
	n.Low95, n.High95, _ = m.interval(single, n.Value)
	n.JointLow95, n.JointHigh95, _ = m.interval(joint, n.Value)
	return n
}

// interval returns the interval around value by the errors' first powers, and the variance of the
// sum's squared error beside it. known is whether the number inside is surely above 0.
func (m moments) interval(chance, value float64) (low, high float64, known bool) {
	z := normalQuantile((1 + chance) / 2)
	a, b, c := m.law.variance(m.sum), m.law.variance(m.squares), m.law.variance(m.inside)
	if m.everyone {
		c = 0
	}
	if !(m.inside > 0 && m.inside*m.inside > z*z*c) {
		return 0, 1, false
	}
	mean := math.Min(1, math.Max(-1, m.sum/m.inside))
	square := math.Min(1, math.Max(0, m.squares/m.inside))
	error2 := 4*mean*mean*a + b + (square-2*mean*mean)*(square-2*mean*mean)*c + 2*a*a/(m.inside*m.inside)
	// (t − mean)² lies in 0 … (1+|mean|)² and has the mean v, so its variance is at most this.
	v := math.Min(1, math.Max(0, value))
	error2 += m.finite * m.inside * math.Max(0, v*((1+math.Abs(mean))*(1+math.Abs(mean))-v))
	e := z * math.Sqrt(error2) / m.inside
	return value - e, value + e, true
}

package statistic

import "math"

// spread overwrites x with the distribution of a number's symbols: the evenly spread places of an
// interval of wave symbols around the number's place.
func (s *Messages) spread(row Row, ok bool, x []float32) {
	t, ok := s.q.unit(row, ok)
	if !ok && !s.q.Everyone {
		for j := range wave {
			x[s.bins+j] = 1. / wave
		}
		return
	}
	steps := float64(s.bins - wave) // from one end of the range to the other
	at := math.Min(steps, math.Max(0, (t+1)/2*steps))
	first := math.Floor(at)
	f := float32(at - first)
	j := int(first)
	x[j] = (1 - f) / wave
	for i := 1; i < wave; i++ {
		x[j+i] = 1. / wave
	}
	if f > 0 {
		x[j+wave] = f / wave
	}
}

// level returns the number, from −1 to 1 and beyond, that symbol j stands for, and 0 for those of
// rows outside.
func (s *Messages) level(j int) float64 {
	if j >= s.bins {
		return 0
	}
	return (2*float64(j) + 1 - float64(s.bins)) / float64(s.bins-wave)
}

// blur returns the variance of the level that is drawn for a number: that of an interval of wave
// steps, and of the choice of steps at its ends, which depends a little on the number and is taken
// at its mean.
func (s *Messages) blur() float64 {
	step := 2 / float64(s.bins-wave)
	return step * step * (wave*wave + 1) / 12
}

// covariance estimates the covariance of two sums over n reports: Σ aᵥŝᵥ and Σ bᵥŝᵥ, where a and b
// weigh the symbols. E is the mean over the distribution from which a client's symbol is drawn. Over
// the clients both is ΣE(ab), product ΣE(a)E(b), a ΣE(a) and b ΣE(b). Over the symbols sab is Σab, sa
// Σa and sb Σb. messages.md, section 3.
func (s *Messages) covariance(n, both, product, a, b, sa, sb, sab float64) float64 {
	gap := s.truth - s.lie
	v := gap*both + n*s.lie*sab - gap*gap*product - gap*s.lie*(a*sb+b*sa) - n*s.lie*s.lie*sa*sb
	return v / (gap * gap)
}

// levels are what the reports tell of numbers from −1 to 1.
type levels struct {
	inside, sum, squares float64 // estimates: of clients inside, of t and of t²
	// Variances and the covariance of the estimates inside and sum.
	ofSum, ofInside, both float64
	everyone              bool
	// likely holds the estimates within what is possible, for variances.
	likely struct{ inside, sum, squares float64 }
}

func (s *Messages) levels(r Release) levels {
	n := float64(r.Reports)
	l := levels{everyone: s.q.Everyone}
	var squares, all float64 // of levels: among the drawn ones, and over all symbols
	for j, v := range r.Sums[:s.bins] {
		y := s.level(j)
		l.inside += v
		l.sum += y * v
		squares += y * y * v
		all += y * y
	}
	if s.q.Everyone {
		l.inside = n
	}
	l.squares = squares - l.inside*s.blur()
	in := math.Max(0, math.Min(n, l.inside))
	sum := math.Max(-in, math.Min(in, l.sum))
	sq := math.Max(0, math.Min(in, l.squares))
	if in > 0 {
		sq = math.Max(sum*sum/in, sq)
	}
	l.likely.inside, l.likely.sum, l.likely.squares = in, sum, sq
	l.ofSum = s.covariance(n, sq+in*s.blur(), sq, sum, sum, 0, 0, all)
	if !s.q.Everyone {
		some := float64(s.bins)
		l.ofInside = s.covariance(n, in, in, in, in, some, some, some)
		l.both = s.covariance(n, sum, sum, sum, in, 0, some, 0)
	}
	return l
}

// numbers answers a question whose number of symbols is chosen.
func (s *Messages) numbers(r Release) Answer {
	if s.q.Measure == "quantiles" {
		return s.quantiles(r)
	}
	l := s.levels(r)
	numbers := 1
	if s.q.Measure == "variance" {
		numbers++
	}
	joint := s.q.joint(numbers)
	a := Answer{Count: s.inside(r, joint)}
	mean := Number{Value: l.sum / l.inside}
	mean.Low95, mean.High95 = l.mean(r, single)
	mean.JointLow95, mean.JointHigh95 = l.mean(r, joint)
	mean = mean.orNothing().moved(s.q.middle(), s.q.half())
	a.Mean = &mean
	if s.q.Measure == "variance" {
		spread := s.variance(r, l, joint).scaled(s.q.half() * s.q.half())
		a.Variance = &spread
	}
	return a
}

// inside returns the number of clients inside, nil if that is everyone: all but those whose drawn
// symbol is one of those for rows outside.
func (s *Messages) inside(r Release, joint float64) *Number {
	if s.q.Everyone {
		return nil
	}
	var out float64
	for _, v := range r.Sums[s.bins:] {
		out += v
	}
	about := r
	about.Law = s.law(r.Reports, s.outside)
	n := about.count(out, joint)
	all := float64(r.Clients)
	return &Number{all - n.Value, Interval{all - n.High95, all - n.Low95, all - n.JointHigh95, all - n.JointLow95}}
}

// mean returns Fieller's interval of the mean: the ρ for which sum − ρ·inside is as near to 0 as its
// error may be. It is −1 … 1 where the number inside may be 0.
func (l levels) mean(r Release, chance float64) (low, high float64) {
	z := normalQuantile((1 + chance) / 2)
	// What is drawn moves sum − ρ·inside by the numbers' distances from ρ.
	zz, draw := z*z, r.finite()
	if l.everyone {
		e := z * math.Sqrt(l.ofSum+draw*math.Max(0, l.likely.squares-l.likely.sum*l.likely.sum/l.inside))
		return (l.sum - e) / l.inside, (l.sum + e) / l.inside
	}
	a := l.inside*l.inside - zz*(l.ofInside+draw*l.likely.inside)
	b := 2 * (l.sum*l.inside - zz*(l.both+draw*l.likely.sum))
	c := l.sum*l.sum - zz*(l.ofSum+draw*l.likely.squares)
	return fieller(l.inside, a, b, c)
}

// variance returns the variance of the numbers inside, in squares of half the range. messages.md,
// section 4.
func (s *Messages) variance(r Release, l levels, joint float64) Number {
	z := normalQuantile((1 + joint) / 2)
	if !(l.inside > z*math.Sqrt(l.ofInside)) {
		return unknownVariance
	}
	mean, square := l.sum/l.inside, l.squares/l.inside
	n := Number{Value: square - mean*mean}
	// The square of the mean's error is not of the variance.
	n.Value += math.Max(0, l.ofSum-2*mean*l.both+mean*mean*l.ofInside) / (l.inside * l.inside)
	mean = math.Max(-1, math.Min(1, mean))
	square = math.Max(mean*mean, math.Min(1, square))
	spread := math.Max(0, math.Min(1-mean*mean, n.Value))
	// The estimate moves with the reports as the sum of these weights does.
	var some, weights, squares float64
	blur := s.blur()
	for j, v := range r.Sums[:s.bins] {
		y := s.level(j)
		w := y*y - blur - 2*mean*y - (square - 2*mean*mean)
		some += w * w * v
		weights += w
		squares += w * w
	}
	in := l.likely.inside
	some = math.Max(0, some)
	// Of the square of what is expected the part of the blur is taken off.
	product := math.Max(0, some-in*(4*blur*spread+.8*blur*blur))
	expected := 0. // the weights' sum over all numbers is 0 by the choice of mean and square
	v := s.covariance(float64(r.Reports), some, product, expected, expected, weights, weights, squares)
	v += r.finite() * product
	v += 2 * l.ofSum * l.ofSum / (l.inside * l.inside)
	e := math.Sqrt(math.Max(0, v)) / l.inside
	z1 := normalQuantile((1 + single) / 2)
	n.Low95, n.High95, n.JointLow95, n.JointHigh95 = n.Value-z1*e, n.Value+z1*e, n.Value-z*e, n.Value+z*e
	return n
}

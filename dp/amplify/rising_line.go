package amplify

import "math"

// A line computes δ at one g = e^ε for k reports, all of which but the victim's have the same
// law. With X = p − gq on each report,
//
//	k·δ = E(X_1 + … + X_k)₊ = (1/2πi)∫ M(z)^k z^−2 dz on any line Re z = s > 0, M(z) = E e^{zX}.
//
// The trapezoidal rule on the line adds e^{st}·E(X_1 + … + X_k − t)₊ at the multiples t ≠ 0 of
// 2π/step, which are at least 0. A normal variable of variance smooth·Var X is added to each
// X, which only raises δ and makes the integrand end. See rising.md.
type line struct {
	tilt, step float64
	smoothed   float64     // variance added to each X
	top        float64     // log M(s), smoothed
	points     []linePoint // those that may matter, other than z = s
	rest       float64     // bound on the sum over all others, relative to M(s)^k
	rounding   float64     // bound on the error of log M, as a multiple of the relative error of masses and values
	most       float64     // E X₊, which δ never exceeds
}

// linePoint is a point z of the line: log M(z) − log M(s) and 2·Re and 2·Im of z^−2.
type linePoint struct {
	re, im   float64 // of log M(z) − log M(s)
	wre, wim float64
}

const (
	// fineSmoothing and coarseSmoothing are the variances that are added to X, relative to its
	// own: the first if k is always the same, the second if not. They raise ε by half as much.
	fineSmoothing   = 1e-4
	coarseSmoothing = 5e-4
	// negligible is a logarithm: points of the line that add a smaller share of M(s)^k are
	// bounded, not computed.
	negligible = -30
)

// newLine returns the line for g = 1 + over and all numbers of reports between least and most;
// nil if δ is below farMass for all of them.
func newLine(rays []ray, over, least, most, smooth float64) *line {
	f := newTransform(rays, over)
	s := f.saddle(least)
	if s == 0 {
		return nil // no X is above 0
	}
	v, _, variance := f.moments(s)
	// x₊ ≤ e^{sx−1}/s bounds δ by M(s)^k/(sk).
	if v < 0 && least*math.Log1p(v)-math.Log(s*least) < math.Log(farMass) {
		return nil
	}
	// These are the standard deviations of the tilted sum: wide for the largest number of
	// reports, most, and narrow for the smallest, least.
	wide := math.Sqrt(most * variance)
	s = math.Max(s, 2/wide)
	v, _, variance = f.moments(s)
	wide, narrow := math.Sqrt(most*variance), math.Sqrt(least*variance)
	l := &line{tilt: s, step: 2 * math.Pi / math.Max(20/s, 10*wide), smoothed: smooth * variance, most: f.positive()}
	l.top = math.Log1p(v) + l.smoothed*s*s/2
	// Beyond end the normal factor alone is negligible.
	end := math.Sqrt(-2 * (negligible - 4) / (least * l.smoothed))
	if !(variance > 0 && end/l.step < 1e5) {
		return &line{most: l.most} // too many points; its integral is not a number
	}
	reach := l.cover(f, end, narrow, least, variance)
	l.rounding = f.size(s) * (s + reach)
	return l
}

// cover finds the points of the line that matter, in cells in which M varies little. Between
// two points at a distance η, |M(z)/M(s)|² exceeds the larger of its two values by at most
// η²·Var/4, because its second derivative is at most 2·Var, Var the variance of X under the
// tilted law.
//
// Points beyond end do not matter. It returns the largest imaginary part of one that does.
func (l *line) cover(f transform, end, narrow, least, variance float64) (reach float64) {
	per := math.Max(1, math.Floor(12/narrow/l.step)) // points in a cell
	last := f.at(l.tilt, 0)
	for first := 0.; first*l.step < end; first += per {
		// The cell holds the points after first up to first + per.
		from, to := first*l.step, (first+per)*l.step
		next := f.at(l.tilt, to)
		square := math.Exp(2*math.Max(last.re, next.re)) + (to-from)*(to-from)*variance/4
		bound := least * (math.Log(math.Min(1, square))/2 - l.smoothed*from*from/2)
		if last = next; bound < negligible {
			l.rest += 2 * per * math.Exp(bound) / (l.tilt*l.tilt + from*from)
			continue
		}
		for n := first + 1; n <= first+per; n++ {
			y := n * l.step
			p := f.at(l.tilt, y)
			p.re -= l.smoothed * y * y / 2
			p.im += l.smoothed * y * l.tilt
			// z^−2 = conj(z)²/|z|⁴.
			norm := l.tilt*l.tilt + y*y
			p.wre = 2 * (l.tilt*l.tilt - y*y) / (norm * norm)
			p.wim = -4 * l.tilt * y / (norm * norm)
			l.points = append(l.points, p)
			reach = y
		}
	}
	// Σ 1/y² beyond end is at most 1/((end − step)·step).
	l.rest += 2 * math.Exp(negligible-4) / (l.step * math.Max(l.step, end-l.step))
	return reach
}

// above returns an upper bound on δ for k reports.
func (l *line) above(k int64) float64 {
	n := float64(k)
	sum := 1/(l.tilt*l.tilt) + l.rest
	for _, p := range l.points {
		size := n * p.re
		if size < negligible-4 {
			sum += math.Exp(negligible-4) * math.Hypot(p.wre, p.wim)
			continue
		}
		sin, cos := math.Sincos(n * p.im)
		sum += math.Exp(size) * (p.wre*cos - p.wim*sin)
	}
	// The last factor covers rounding.
	delta := l.step / (2 * math.Pi * n) * sum * math.Exp(n*l.top) * (1 + 1e-9) * math.Exp(1e-14*n*l.rounding)
	if !(delta < l.most) { // also if it is not a number
		return l.most
	}
	return delta
}

// transform is E e^{zX} − 1 of a report, with X = p − gq = (p − q) − (g−1)q.
type transform struct {
	x, mass []float64
	terms   []float64 // |p − q| + (g−1)q, at least |x|
}

func newTransform(rays []ray, over float64) transform {
	var f transform
	for _, r := range rays {
		f.x = append(f.x, (r.p-r.q)-over*r.q)
		f.mass = append(f.mass, r.mass)
		f.terms = append(f.terms, math.Abs(r.p-r.q)+over*r.q)
	}
	return f
}

// moments returns v = E e^{sX} − 1, and mean and variance of X under the law tilted by e^{sX}.
func (f transform) moments(s float64) (v, mean, variance float64) {
	var m1, m2 float64
	for i, x := range f.x {
		w := f.mass[i] * math.Exp(s*x)
		v += f.mass[i] * math.Expm1(s*x)
		m1 += w * x
		m2 += w * x * x
	}
	m1, m2 = m1/(1+v), m2/(1+v)
	return v, m1, math.Max(0, m2-m1*m1)
}

// positive returns E X₊, rounded up; it is at least E(X_1 + … + X_k)₊/k.
func (f transform) positive() float64 {
	var sum float64
	for i, x := range f.x {
		sum += f.mass[i] * (math.Max(0, x) + 1e-14*f.terms[i])
	}
	return math.Min(1, sum*(1+1e-9))
}

// size bounds E|e^{zX} − 1|/|z| and what rounding of X does to it, relative to M(s).
func (f transform) size(s float64) float64 {
	var sum, norm float64
	for i, x := range f.x {
		sum += f.mass[i] * f.terms[i] * math.Max(1, math.Exp(s*x))
		norm += f.mass[i] * math.Expm1(s*x)
	}
	return sum / (1 + norm)
}

// saddle returns roughly the s at which M(s)^k/s² is least, 0 if no X is above 0.
func (f transform) saddle(k float64) float64 {
	var top float64
	for _, x := range f.x {
		top = math.Max(top, x)
	}
	if top <= 0 {
		return 0
	}
	slope := func(s float64) float64 { // rises
		_, mean, _ := f.moments(s)
		return k*mean - 2/s
	}
	lo, hi := 0., 1/top
	for slope(hi) < 0 && hi*top < 250 {
		lo, hi = hi, 2*hi
	}
	if lo == 0 {
		for lo = hi / 2; slope(lo) > 0 && lo > 1e-12*hi; lo /= 4 {
		}
	}
	for range 40 {
		mid := math.Sqrt(lo * hi)
		if slope(mid) < 0 {
			lo = mid
		} else {
			hi = mid
		}
		if hi < lo*1.001 {
			break
		}
	}
	return hi
}

// at returns log M(s + iy) − log M(s), without smoothing.
func (f transform) at(s, y float64) linePoint {
	var drop, im, base float64
	for i, x := range f.x {
		sin, cos := math.Sincos(y * x / 2)
		less := math.Expm1(s * x)
		// e^{(s+iy)x} = e^{sx}(1 − 2 sin² + 2i sin cos).
		w := f.mass[i] * (1 + less)
		drop += w * 2 * sin * sin
		im += w * 2 * sin * cos
		base += f.mass[i] * less
	}
	norm := 1 + base
	square := (im*im - drop*(2*norm-drop)) / (norm * norm) // |M(z)/M(s)|² − 1
	return linePoint{re: math.Log1p(math.Max(-1, square)) / 2, im: math.Atan2(im, norm-drop)}
}

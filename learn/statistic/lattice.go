package statistic

import (
	"math"
	"sort"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// lattice is a law on the values from, from+1, …, in steps: from need not be an integer, because
// means are taken off. What lies outside has a chance below 1e-20.
type lattice struct {
	from float64
	mass []float64
}

// tails are the chances of what lies beyond each value of a lattice, on either side, and of a part of
// the value itself: one half for mid-p, or the whole.
type tails struct {
	from         float64
	lower, upper []float64
}

// source is one variable of integer noise, without its mean.
type source struct {
	cumulants [3]float64 // the second to the fourth
	// sum returns the law of the sum of so many variables.
	sum func(times int64) lattice
}

// set gives l the noise of so many variables, or of their difference to as many others.
func (l *noise) set(one source, times int64, split bool) {
	for i, c := range one.cumulants {
		l.cumulants[i] = c * float64(times)
	}
	if split {
		l.cumulants = [3]float64{2 * l.cumulants[0], 0, 2 * l.cumulants[2]}
	}
	if v := l.cumulants[0]; v > exactBelow || l.rounding > 0 && v+l.rounding > roundedBelow {
		return
	}
	l.exact = one.sum(times)
	if split {
		l.exact = l.exact.plus(l.exact.mirrored())
	}
	l.mid, l.whole = l.exact.tails(.5), l.exact.tails(1)
}

// clientNoise returns the noise of one client on one coordinate.
func clientNoise(n vecsum.Noise) source {
	switch n.Kind {
	case vecsum.Binomial:
		p := n.P
		if p == 0 {
			p = .5
		}
		return binomialNoise(n.Bits, p)
	case vecsum.Skellam:
		return skellamNoise(n.Variance)
	}
	// As vecsum, the parameter is rounded up to a multiple of 2^−20.
	return gaussianNoise(math.Ceil(n.Variance*(1<<20)) / (1 << 20))
}

func binomialNoise(bits int64, p float64) source {
	q := 1 - p
	v := float64(bits) * p * q
	return source{[3]float64{v, v * (q - p), v * (1 - 6*p*q)}, func(times int64) lattice {
		m := bits * times
		sd := math.Sqrt(float64(m) * p * q)
		lo, hi := tail.Window(m, p, q, 1e-21, 1e-21)
		// The mean may be far from 0 and not an integer; what is kept is small.
		l := lattice{from: float64(lo) - float64(m)*p, mass: make([]float64, 0, int(14*sd)+64)}
		tail.PMF(m, p, q, lo, hi, func(_ int64, mass float64) { l.mass = append(l.mass, mass) })
		return l
	}}
}

func skellamNoise(variance float64) source {
	return source{[3]float64{variance, 0, variance}, func(times int64) lattice {
		v := variance * float64(times)
		// The chance of k is e^−v·I_k(v). Bessel's functions follow from one another downwards
		// from far in the tail, up to a factor: Miller's recurrence.
		top := int(14*math.Sqrt(v)) + 64
		mass := make([]float64, 2*top+1)
		next, here := 0., 1e-280
		var sum float64
		for k := top; k >= 0; k-- {
			mass[top+k], mass[top-k] = here, here
			if k > 0 {
				sum += 2 * here
				next, here = here, next+2*float64(k)/v*here
			}
			if here > 1e200 {
				for i := range mass {
					mass[i] *= 1e-200
				}
				next, here, sum = next*1e-200, here*1e-200, sum*1e-200
			}
		}
		return lattice{float64(-top), scale(mass, 1/(sum+mass[top]))}
	}}
}

func gaussianNoise(variance float64) source {
	one := func(v float64) lattice {
		top := int(10*math.Sqrt(v)) + 10
		mass := make([]float64, 2*top+1)
		var sum float64
		for i := range mass {
			k := float64(i - top)
			mass[i] = math.Exp(-k * k / (2 * v))
			sum += mass[i]
		}
		return lattice{float64(-top), scale(mass, 1/sum)}
	}
	s := source{[3]float64{variance, 0, 0}, nil}
	if variance < 25 {
		// Above, the law has a normal one's cumulants, and sums are discrete Gaussian, but for
		// e^−2π²·25/2.
		var v, m4 float64
		l := one(variance)
		for i, p := range l.mass {
			k := l.from + float64(i)
			v += p * k * k
			m4 += p * k * k * k * k
		}
		s.cumulants = [3]float64{v, 0, m4 - 3*v*v}
	}
	s.sum = func(times int64) lattice {
		if variance >= 25 {
			return one(variance * float64(times))
		}
		// Doubling.
		sum, power := lattice{0, []float64{1}}, one(variance)
		for ; ; times /= 2 {
			if times%2 == 1 {
				sum = sum.plus(power)
			}
			if times <= 1 {
				return sum
			}
			power = power.plus(power)
		}
	}
	return s
}

func scale(x []float64, by float64) []float64 {
	for i := range x {
		x[i] *= by
	}
	return x
}

// plus returns the law of the sum of two independent variables.
func (l lattice) plus(o lattice) lattice {
	out := make([]float64, len(l.mass)+len(o.mass)-1)
	for i, a := range l.mass {
		for j, b := range o.mass {
			out[i+j] += a * b
		}
	}
	return lattice{l.from + o.from, out}.trimmed()
}

// trimmed drops ends of chances below 1e-22.
func (l lattice) trimmed() lattice {
	lo, hi := 0, len(l.mass)
	for sum := 0.; lo < hi-1 && sum+l.mass[lo] < 1e-22; lo++ {
		sum += l.mass[lo]
	}
	for sum := 0.; hi > lo+1 && sum+l.mass[hi-1] < 1e-22; hi-- {
		sum += l.mass[hi-1]
	}
	return lattice{l.from + float64(lo), l.mass[lo:hi]}
}

// mirrored returns the law of the negative variable.
func (l lattice) mirrored() lattice {
	out := make([]float64, len(l.mass))
	for i, p := range l.mass {
		out[len(out)-1-i] = p
	}
	return lattice{-l.from - float64(len(out)-1), out}
}

func (l lattice) tails(own float64) tails {
	n := len(l.mass)
	t := tails{l.from, make([]float64, n), make([]float64, n)}
	var below, above float64
	for i := range n {
		t.lower[i], t.upper[n-1-i] = below+own*l.mass[i], above+own*l.mass[n-1-i]
		below, above = below+l.mass[i], above+l.mass[n-1-i]
	}
	return t
}

// accepted returns the least and the largest value both of whose tails are at least tail.
func (t tails) accepted(tail float64) (least, most float64) {
	i := sort.Search(len(t.lower)-1, func(i int) bool { return t.lower[i] >= tail })
	j := sort.Search(len(t.upper), func(j int) bool { return t.upper[j] < tail }) - 1
	return t.from + float64(i), t.from + float64(max(i, j)) // one value may have nearly all the chance
}

// smooth returns the quantile at p of the variable plus an independent normal one of the given
// variance.
func (l lattice) smooth(variance, p float64) float64 {
	sd := math.Sqrt(variance)
	below := func(x float64) float64 {
		var c float64
		for i, m := range l.mass {
			c += m * tail.UpperNormal((l.from+float64(i)-x)/sd)
		}
		return c
	}
	lo, hi := l.from-10*sd, l.from+float64(len(l.mass)-1)+10*sd
	for range 60 {
		if mid := (lo + hi) / 2; below(mid) < p {
			lo = mid
		} else {
			hi = mid
		}
	}
	return (lo + hi) / 2
}

package statistic

import "math"

// ones returns the interval of the number of clients with a one, of whom sum were measured.
func (r Release) ones(sum, chance float64) (low, high float64) {
	if r.Clients == r.Reports {
		return r.Law.interval(sum, chance)
	}
	if l, ok := r.Law.(*noise); ok && l.rounding == 0 {
		switch few := math.Min(sum, float64(r.Reports)-sum); {
		case few < fewDrawn:
			return r.fewOnes(l, sum, chance)
		case few < someDrawn:
			return r.someOnes(l, sum, (1+chance)/2), r.someOnes(l, sum, (1-chance)/2)
		}
	}
	// A share p of all clients is refused if the sum is further from kp than z standard
	// deviations of noise and sampling together at p; statistic.md, section 4.
	k, z := float64(r.Reports), normalQuantile((1+chance)/2)
	noise, draw := r.Law.variance(sum), r.finite()*k
	a, b, c := k*k+z*z*draw, 2*sum*k+z*z*draw, sum*sum-z*z*noise
	low, high = roots(a, b, c)
	// Outside 0 … 1 the share has no sampling error.
	if s := sum / k; low < 0 || math.IsNaN(low) {
		low = math.Min(0, s-z*math.Sqrt(noise)/k)
	}
	if s := sum / k; high > 1 || math.IsNaN(high) {
		high = math.Max(1, s+z*math.Sqrt(noise)/k)
	}
	return low * float64(r.Clients), high * float64(r.Clients)
}

// someDrawn is the number of drawn clients with a one, or without one, below which their law is not
// near enough to the normal one where many intervals hold together, and fewDrawn that below which
// four cumulants do not describe it well enough.
const (
	someDrawn = 1000
	fewDrawn  = 50
)

// someOnes returns the number of clients with a one of which a sum at least as large as the one
// measured has the chance 1 − p, by the cumulants of drawing and noise.
func (r Release) someOnes(l *noise, sum, p float64) float64 {
	n, m := float64(r.Clients), float64(r.Reports)
	have := sum * n / m
	// The deviation changes slowly with have.
	for range 40 {
		in := math.Max(1, math.Min(n-1, have))
		// The cumulants of the hypergeometric law.
		k, q := in/n, 1-in/n
		draw := m * k * q * (n - m) / (n - 1)
		skew := (n - 2*in) * math.Sqrt(n-1) * (n - 2*m) / (math.Sqrt(m*in*(n-in)*(n-m)) * (n - 2))
		excess := ((n-1)*n*n*(n*(n+1)-6*in*(n-in)-6*m*(n-m)) + 6*m*in*(n-in)*(n-m)*(5*n-6)) / (m * in * (n - in) * (n - m) * (n - 2) * (n - 3))
		square := l.step * l.step
		v := draw + square*l.cumulants[0]
		third := skew*draw*math.Sqrt(draw) + square*l.step*l.cumulants[1]
		fourth := excess*draw*draw + square*square*l.cumulants[2]
		next := (sum - math.Sqrt(v)*cornishFisher(p, third/(v*math.Sqrt(v)), fourth/(v*v))) * n / m
		if math.Abs(next-have) < 1e-6 {
			break
		}
		have = next
	}
	return have
}

// fewOnes is ones by the exact law of drawing and noise.
func (r Release) fewOnes(l *noise, sum, chance float64) (low, high float64) {
	n, by := float64(r.Clients), float64(r.Clients)/float64(r.Reports)
	law, err := tailsOf(l)
	if err != nil {
		return math.Inf(-1), math.Inf(1) // it is a sum's
	}
	low, high = drawn{clients: r.Clients, reports: r.Reports, noise: law}.between(sum, (1-chance)/2, l.atLeast)
	// Outside 0 … n there is no sampling error.
	least, most := l.interval(sum, chance)
	outside := func(end, noisy float64) float64 {
		if end == 0 {
			return math.Min(0, noisy)
		} else if end == n {
			return math.Max(n, noisy)
		}
		return end
	}
	return outside(low, least*by), outside(high, most*by)
}

// finite is the factor of a finite population: 0 where all clients reported.
func (r Release) finite() float64 {
	if r.Clients == r.Reports {
		return 0
	}
	return float64(r.Clients-r.Reports) / float64(r.Clients-1)
}

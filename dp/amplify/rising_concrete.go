package amplify

import (
	"fmt"
	"math"

	"gonum.org/v1/gonum/dsp/fourier"

	"github.com/riffle-dp/riffle/dp"
)

// StepOutcomes lists outcomes of a concrete mechanism of steps s, for lower bounds: every bound
// for reports of these steps must allow what it leaks. The victim's two inputs are opposite, and
// everybody else holds one third input. Their scores for it are independent of the scores for
// the victim's inputs, as for an orthogonal direction. If apart is set, its high levels lie as
// far as possible from those of the victim's inputs instead.
//
// A report counts as a whole number, about in proportion to (p − q)/π, p and q the densities of
// the victim's inputs and π that of the others' input. The outcomes are the sum of these numbers
// over k reports, and k. Losses rise; the list is symmetric but for its slack.
//
// Result: a part of the pair of laws, P rounded down and Q up, replace-one. c.Eps0 and c.Symbols
// are not read, nor is s.Eta. Shares and levels are those given but for 1e-13 of them. It returns
// ErrNoBound beyond about 1e9 reports. Source: rising.md. Time: some ms, tens with random k.
func StepOutcomes(c ConcreteConfig, s Steps, apart bool) ([]dp.Atom, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	c.Eps0 = math.Log1p(s.Height * float64(len(s.Tails)))
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	var most int64
	for _, b := range sizes {
		most = max(most, b.Last)
	}
	law, err := s.scored(apart, c.Population-c.Colluders == 1, most)
	if err != nil {
		return nil, err
	}
	sums := map[int64][]sumPart{}
	for _, b := range sizes {
		if b.Last > 0 {
			if sums[b.Last], err = law.sumOf(b.Last - 1); err != nil {
				return nil, err
			}
		}
	}
	visit := func(b spanned, gamma float64, yield func(p, q, over float64)) {
		parts := sums[b.Last]
		// Neighbouring sums are joined where they are many.
		width := 1 + parts[len(parts)-1].to/mostOutcomes
		for _, part := range parts {
			v := law.view(gamma, part.tilt)
			var up, down [3]float64 // masses of P and Q and their difference, of sums above and below 0
			for n := part.from; n <= part.to; n++ {
				// The densities of P and Q differ by over at n, and by −over at −n.
				q, over, err, errOver := v.at(part, n)
				w := b.Weight * math.Exp(part.scale-part.tilt*float64(n))
				less := errOver + 2*err // Q is q + err at most, P is q + over − errOver − err at least
				up[0] += w * (q + over - errOver - err)
				up[1] += w * (q + err)
				up[2] += w * (over - less)
				if n > 0 {
					down[0] += w * (q - err)
					down[1] += w * (q + over + errOver + err)
					down[2] -= w * (over + less)
				}
				if n%width == 0 || n == part.to {
					yield(up[0], up[1], up[2])
					yield(down[0], down[1], down[2])
					up, down = [3]float64{}, [3]float64{}
				}
			}
		}
	}
	extremes := func(b spanned, gamma float64) (low, high float64) {
		last := sums[b.Last][len(sums[b.Last])-1]
		q, over, _, _ := law.view(gamma, last.tilt).at(last, last.to)
		high = math.Log1p(math.Max(0, over/q))
		return -high, high
	}
	return c.list(sizes, visit, extremes, false)
}

// scored is the law of the number that one report counts as. Index i stands for i − top.
type scored struct {
	top    int
	law    []float64 // of a report of anybody but the victim; symmetric
	victim []float64 // of the victim's under P; under Q it is mirrored
}

// The finest scores are finestScore times as fine as the difference of levels; scores are as
// coarse as allows to keep keptShare of the sum's information.
const (
	finestScore = 12
	keptShare   = .998
	// mostSums bounds the values of a sum that are computed, mostOutcomes roughly those above 0
	// that are told apart.
	mostSums     = 1 << 18
	mostOutcomes = 1 << 9
)

// scored returns the law of scores for sums of up to k reports. If nobody is beside the victim,
// alone, the others' levels do not matter.
func (s Steps) scored(apart, alone bool, k int64) (scored, error) {
	shares := []float64{1 - s.Tails[0]}
	for j, q := range s.Tails {
		if j+1 < len(s.Tails) {
			q -= s.Tails[j+1]
		}
		shares = append(shares, q)
	}
	pair, err := pairOf(s.Height, shares)
	if err != nil {
		return scored{}, err
	}
	others := shares
	if alone {
		others = []float64{1}
	}
	met := pair.meet(others, apart && !alone)
	score := func(d, b, fine int) int {
		return int(math.Round(float64(fine*d) / (1 + s.Height*float64(b))))
	}
	each := func(yield func(d, b int, mass, p float64)) {
		for i, row := range pair.joint {
			for j, m := range row {
				for b, part := range met[max(i-j, j-i)] {
					if m > 0 && part > 0 {
						yield(i-j, b, pair.common*m*part*(1+s.Height*float64(b)), pair.common*m*part*(1+s.Height*float64(i)))
					}
				}
			}
		}
	}
	best, kept := 0, 0.
	for fine := 1; fine <= finestScore && kept < keptShare; fine++ {
		var both, rounded, exact, square float64
		each(func(d, b int, mass, _ float64) {
			x, y := float64(score(d, b, fine)), float64(d)/(1+s.Height*float64(b))
			both, rounded, exact, square = both+mass*x*y, rounded+mass*x*x, exact+mass*y*y, square+mass*x*x
		})
		if square*float64(k)*200 > mostSums*mostSums/4 {
			break
		}
		if share := both / rounded * (both / exact); share > kept {
			best, kept = fine, share
		}
	}
	if best == 0 {
		return scored{}, fmt.Errorf("amplify: sums of %d reports have too many values: %w", k, dp.ErrNoBound)
	}
	out := scored{top: best * len(s.Tails)}
	out.law, out.victim = make([]float64, 2*out.top+1), make([]float64, 2*out.top+1)
	each(func(d, b int, mass, p float64) {
		x := score(d, b, best)
		out.victim[x+out.top] += p
		if x > 0 {
			out.law[x+out.top] += mass
			out.law[out.top-x] += mass
		}
	})
	rest := 1.
	for x := 1; x <= out.top; x++ {
		rest -= 2 * out.law[out.top+x]
	}
	out.law[out.top] = math.Max(0, rest)
	return out, nil
}

// meet returns, for each distance of the levels of the victim's two inputs, the share of each
// level of the others' input where the distance is that.
func (l *risingLaw) meet(others []float64, apart bool) [][]float64 {
	out := make([][]float64, len(l.joint))
	left := append([]float64(nil), others...)
	b := 0
	for d := len(out) - 1; d >= 0; d-- {
		if out[d] = append([]float64(nil), others...); !apart {
			continue
		}
		// The largest distances take the lowest levels that are left.
		clear(out[d])
		var mass float64
		for i, row := range l.joint {
			for j, m := range row {
				if max(i-j, j-i) == d {
					mass += m
				}
			}
		}
		for rest := mass; rest > 0; {
			take := math.Min(rest, left[b])
			if b == len(left)-1 {
				take = rest
			}
			out[d][b] += take / mass
			left[b] -= take
			if rest -= take; rest > 0 {
				b++
			}
		}
	}
	return out
}

// sumPart is the law of the sum of n scores of others where one tilt serves it: the density at x
// is mass[x−low]·e^(scale − tilt·x). It serves those sums of all reports between from and to.
type sumPart struct {
	tilt, scale float64
	low         int64
	mass        []float64
	err, factor float64 // each mass errs by err, and by factor of itself
	from, to    int64
}

// deviationsOfSums are where sums are computed afresh, tilted, so that their errors stay small
// beside them.
var deviationsOfSums = []float64{0, 4, 8, 12}

// leastMass is the mass under which values of a sum are left out.
const leastMass = 1e-45

// sumOf returns the law of the sum of n scores for all sums of n + 1 from 0 on that are not left
// out.
func (s scored) sumOf(n int64) ([]sumPart, error) {
	if top := float64(s.top); float64(n)*float64(n)*top*(2*top+1) <= 4e6 {
		return []sumPart{s.direct(int(n))}, nil
	}
	_, variance := s.moments(0)
	deviation := math.Sqrt(float64(n) * variance)
	var parts []sumPart
	for _, z := range deviationsOfSums {
		t, ok := s.tiltTo(z * deviation / float64(n))
		if !ok {
			break
		}
		part, err := s.inverted(n, t)
		if err != nil {
			return nil, err
		}
		mean, spread := s.moments(t)
		part.to = int64(float64(n)*mean + 2*math.Sqrt(float64(n)*spread))
		if i := len(parts) - 1; i >= 0 {
			// The tilt whose error is smaller serves.
			meet := int64((part.scale - parts[i].scale) / (t - parts[i].tilt))
			if meet < parts[i].from || meet >= part.to {
				break
			}
			parts[i].to, part.from = meet, meet+1
		}
		parts = append(parts, part)
	}
	return parts, nil
}

// direct convolves n times.
func (s scored) direct(n int) sumPart {
	mass := []float64{1}
	for range n {
		next := make([]float64, len(mass)+2*s.top)
		for i, m := range mass {
			if m < 1e-300 {
				continue // its products may underflow
			}
			for x, p := range s.law {
				next[i+x] += m * p
			}
		}
		mass = next
	}
	part := sumPart{low: int64(-n * s.top), mass: mass, err: 1e-290,
		factor: float64(n+1) * float64(2*s.top+4) * 0x1p-52}
	for x := int64(0); x <= int64((n+1)*s.top); x++ {
		if i := x - int64(s.top) - part.low; i < int64(len(mass)) && (i < 0 || mass[i] >= leastMass) {
			part.to = x
		}
	}
	return part
}

// cumulant returns log E e^{tX}.
func (s scored) cumulant(t float64) float64 {
	var v float64
	for x := 1; x <= s.top; x++ {
		half := math.Sinh(t * float64(x) / 2)
		v += 4 * s.law[s.top+x] * half * half
	}
	return math.Log1p(v)
}

// moments returns mean and variance under the law tilted by e^{tX}.
func (s scored) moments(t float64) (mean, variance float64) {
	norm, square := math.Exp(s.cumulant(t)), 0.
	for x := 1; x <= s.top; x++ {
		p := 2 * s.law[s.top+x] / norm
		mean += p * float64(x) * math.Sinh(t*float64(x))
		square += p * float64(x) * float64(x) * math.Cosh(t*float64(x))
	}
	return mean, math.Max(0, square-mean*mean)
}

// tiltTo returns a tilt under which the mean is about the one given, false if there is none.
func (s scored) tiltTo(mean float64) (float64, bool) {
	if mean == 0 {
		return 0, true
	}
	lo, hi := 0., 60/float64(s.top)
	if top, _ := s.moments(hi); top < mean {
		return 0, false
	}
	for range 60 {
		mid := (lo + hi) / 2
		if at, _ := s.moments(mid); at < mean {
			lo = mid
		} else {
			hi = mid
		}
	}
	return hi, true
}

// outside bounds the tilted mass of a sum of n scores, in the direction of side, that is further
// than the returned distance from its mean, by beyond.
func (s scored) outside(n, t, side, beyond float64) float64 {
	mean, variance := s.moments(t)
	base := s.cumulant(t)
	best := n * (float64(s.top) - side*mean)
	guess := math.Sqrt(-2 * math.Log(beyond) / math.Max(1e-300, n*variance))
	for _, factor := range []float64{.1, .2, .4, .6, .8, 1, 1.2} {
		step := side * guess * factor
		k := n * (s.cumulant(t+step) - base)
		if w := (k - step*n*mean - math.Log(beyond)) / math.Abs(step); w < best {
			best = w
		}
	}
	return math.Max(0, best) + 1
}

// inverted returns the law of the sum of n scores, tilted by t, from its transform.
func (s scored) inverted(n int64, t float64) (sumPart, error) {
	const beyond, negligible = 1e-21, -46.
	k := float64(n)
	mean, _ := s.moments(t)
	up, down := s.outside(k, t, 1, beyond), s.outside(k, t, -1, beyond)
	size := 1 << 8
	for !(float64(size) >= up+down+4) {
		if size *= 2; size > mostSums {
			return sumPart{}, fmt.Errorf("amplify: sums of %d reports have too many values: %w", n, dp.ErrNoBound)
		}
	}
	part := sumPart{tilt: t, scale: k * s.cumulant(t), low: int64(math.Floor(k*mean - down)), err: 2 * beyond, factor: 1e-13}
	// weights of e^{tX} on x and −x together, and their differences.
	norm := math.Exp(s.cumulant(t))
	even, odd := make([]float64, s.top+1), make([]float64, s.top+1)
	law := func(x int) float64 { return s.law[s.top+x] * math.Exp(t*float64(x)) / norm }
	near := 0. // the chance that two scores differ by 1, in one order
	for x := -s.top; x < s.top; x++ {
		near += law(x) * law(x+1)
	}
	for x := 1; x <= s.top; x++ {
		even[x] = 2 * s.law[s.top+x] * math.Cosh(t*float64(x)) / norm
		odd[x] = 2 * s.law[s.top+x] * math.Sinh(t*float64(x)) / norm
	}
	z := make([]complex128, size/2+1)
	var errors, square float64
	for j := range z {
		theta := 2 * math.Pi * float64(j) / float64(size)
		half := math.Sin(theta / 2)
		if k/2*math.Log1p(-math.Min(1, 4*near*half*half*(1-1e-9))) < negligible {
			part.err += math.Exp(negligible) // of all frequencies from here on, on average
			break
		}
		// The transform is 1 − drop + i·im.
		var drop, im float64
		for x := 1; x <= s.top; x++ {
			sin, cos := math.Sincos(theta * float64(x) / 2)
			drop += even[x] * 2 * sin * sin
			im += odd[x] * 2 * sin * cos
		}
		less := im*im + drop*drop - 2*drop
		if k/2*math.Log1p(math.Max(-1, less)) < negligible {
			errors += 2 * math.Exp(negligible)
			continue
		}
		arg := k * math.Atan2(im, 1-drop)
		magnitude := math.Exp(k / 2 * math.Log1p(less))
		// The phase of the window's low end is reduced exactly.
		turn := float64((part.low%int64(size)+int64(size))%int64(size)*int64(j)%int64(size)) / float64(size)
		sin, cos := math.Sincos(math.Mod(arg, 2*math.Pi) - 2*math.Pi*turn)
		z[j] = complex(magnitude*cos, -magnitude*sin)
		errors += 2 * magnitude * 0x1p-49 * (8 + k*(2*drop+drop*drop+im*im)/(1+less) + math.Abs(arg))
		square += 2 * magnitude * magnitude
	}
	n2 := float64(size)
	part.err += errors/n2 + 0x1p-49*math.Log2(n2)*math.Sqrt(square/n2)
	part.mass = fourier.NewFFT(size).Sequence(nil, z)
	for i := range part.mass {
		part.mass[i] /= n2
	}
	return part, nil
}

// scoredView is what a sum of the others becomes with a report that is the victim's with
// probability gamma: the tilted law of that report under Q, and the difference between P and Q.
type scoredView struct {
	q, over       []float64
	all, allOver  float64 // sums of their sizes
	overMagnitude []float64
}

func (s scored) view(gamma, tilt float64) scoredView {
	v := scoredView{q: make([]float64, len(s.law)), over: make([]float64, len(s.law)), overMagnitude: make([]float64, len(s.law))}
	for i, p := range s.law {
		w := math.Exp(tilt * float64(i-s.top))
		mirrored := s.victim[len(s.law)-1-i]
		v.q[i] = w * ((1-gamma)*p + gamma*mirrored)
		v.over[i] = w * gamma * (s.victim[i] - mirrored)
		v.overMagnitude[i] = w * gamma * (s.victim[i] + mirrored)
		v.all += v.q[i]
		v.allOver += v.overMagnitude[i]
	}
	return v
}

// at returns the tilted density of Q at a sum x of all reports, that of P less it, and bounds on
// the errors of both.
func (v scoredView) at(part sumPart, x int64) (q, over, err, errOver float64) {
	top := int64(len(v.q) / 2)
	for i := range v.q {
		if j := x - (int64(i) - top) - part.low; j >= 0 && j < int64(len(part.mass)) {
			m := math.Max(0, part.mass[j])
			q += m * v.q[i]
			over += m * v.over[i]
			errOver += m * v.overMagnitude[i]
		}
	}
	factor := part.factor + 1e-13
	return q, over, part.err*v.all + factor*q, part.err*v.allOver + factor*errOver
}

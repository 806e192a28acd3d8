package account

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
)

// knob is a value that Plan can turn. Larger values cost more, except where there are branches.
type knob struct {
	low  float64
	high func(Query) float64
	set  func(*Query, float64)
	// middle returns a value between two. close says whether two values are so close that the
	// search ends: neighbours for whole numbers, equal to four digits for others.
	middle func(lo, hi float64) float64
	close  func(lo, hi float64) bool
	name   string
	// branches says that ε may fall as well as rise with the value.
	branches bool
	// shown returns the displayed value for u; nil: u itself.
	shown func(u float64) float64
}

func (k knob) show(u float64) string {
	if k.shown != nil {
		u = k.shown(u)
	}
	return fmt.Sprintf("%s = %g", k.name, u)
}

func knobs() map[string]knob {
	whole := func(name string, high func(Query) float64, set func(*Query, int64)) knob {
		return knob{low: 1, high: high, name: name,
			set: func(q *Query, u float64) { set(q, int64(u)) },
			// The geometric mean of small neighbours, such as 1 and 3, rounds down to the lower one.
			middle: func(lo, hi float64) float64 { return math.Max(lo+1, math.Floor(math.Sqrt(lo)*math.Sqrt(hi))) },
			close:  func(lo, hi float64) bool { return hi-lo <= 1 }}
	}
	real := func(name string, low float64, high func(Query) float64, set func(*Query, float64)) knob {
		return knob{low: low, high: high, name: name, set: set,
			middle: func(lo, hi float64) float64 { return math.Sqrt(lo) * math.Sqrt(hi) },
			close:  func(lo, hi float64) bool { return hi-lo <= 1e-4*lo }}
	}
	// Less noise costs more, so the knob is the inverse of the noise.
	noise := real("sigma", 1/dp.MaxSigma, func(Query) float64 { return 1e3 }, func(q *Query, u float64) { q.Sigma = 1 / u })
	noise.shown = func(u float64) float64 { return 1 / u }
	gamma := real("gamma", 1e-9, func(Query) float64 { return 1 }, func(q *Query, u float64) { q.Gamma = u })
	k := whole("k", func(q Query) float64 { return float64(q.Population) }, func(q *Query, u int64) { q.Reports = u })
	gamma.branches, k.branches = true, true
	return map[string]knob{
		"sigma":  noise,
		"eps0":   real("eps0", 1e-3, mostEps0, func(q *Query, u float64) { q.Eps0 = u }),
		"gamma":  gamma,
		"k":      k,
		"rounds": whole("rounds", func(Query) float64 { return 1e9 }, func(q *Query, u int64) { q.Rounds = u }),
	}
}

// search looks for the largest value of a knob that meets a target.
type search struct {
	knob
	target float64
	// cost returns the ε of a value; +Inf without a bound.
	cost func(u float64) (float64, error)
	// least is the smallest ε that was seen, at the value at.
	least, at float64
}

const (
	// scanned is the number of values of a knob with branches, for each power of ten, at which the scan looks.
	scanned = 6
	// mostProbes bounds the search of a dip. It ends earlier where the dip is narrower than dipWidth, as a
	// ratio: a smooth function is flat there.
	mostProbes = 24
	dipWidth   = 1.01
)

// largest returns the largest value from lo to hi that meets the target, up to close; found is false if none was
// seen. It asks values from above, and bisects between the first that meets the target and the one above it. Where
// the values of the scan have a dip above the target, it looks for the dip's lowest point: a branch may reach the target
// between two values only. So it misses no more than a second dip between three values of the scan.
func (s *search) largest(lo, hi float64) (u float64, found bool, err error) {
	s.least, s.at = math.Inf(1), lo
	values := s.scan(lo, hi)
	costs := make([]float64, len(values))
	for i := len(values) - 1; i >= -1; i-- {
		if i >= 0 {
			if costs[i], err = s.ask(values[i]); err != nil {
				return 0, false, err
			}
			if costs[i] <= s.target && i == len(values)-1 {
				return values[i], true, nil
			}
			if costs[i] <= s.target {
				return s.between(values[i], values[i+1])
			}
		}
		// Both neighbours of the value above i are known now: it may be at the bottom of a dip.
		m := i + 1
		if !s.branches || m == len(values) {
			continue
		}
		below, over := max(0, m-1), min(m+1, len(values)-1)
		if costs[m] > min(costs[below], costs[over]) || costs[m] == max(costs[below], costs[over]) {
			continue // no bottom, or inside of a flat stretch
		}
		u, above, found, err := s.dip(values[below], values[m], values[over], costs[m])
		if err != nil {
			return 0, false, err
		}
		if found {
			return s.between(u, above)
		}
	}
	return 0, false, nil
}

// scan lists the values at which largest looks, in rising order.
func (s *search) scan(lo, hi float64) []float64 {
	values := []float64{lo}
	if s.branches {
		n := math.Ceil(scanned * math.Log10(hi/lo))
		for i := 1.; i < n; i++ {
			// Whole numbers are asked as middle rounds them.
			if u := s.middle(lo, lo*math.Pow(hi/lo, 2*i/n)); u > values[len(values)-1] && u < hi {
				values = append(values, u)
			}
		}
	}
	if hi > lo {
		values = append(values, hi)
	}
	return values
}

func (s *search) ask(u float64) (float64, error) {
	eps, err := s.cost(u)
	if math.IsNaN(eps) {
		eps = math.Inf(1)
	}
	if err == nil && eps < s.least {
		s.least, s.at = eps, u
	}
	return eps, err
}

// between bisects between a value that meets the target and one that does not.
func (s *search) between(good, bad float64) (float64, bool, error) {
	for !s.close(good, bad) {
		mid := s.middle(good, bad)
		eps, err := s.ask(mid)
		if err != nil {
			return 0, false, err
		}
		if eps <= s.target {
			good = mid
		} else {
			bad = mid
		}
	}
	return good, true, nil
}

// dip looks for a value between lo and hi that meets the target, where the ε at m, which is at least one of them or
// lies between, is not above theirs. It returns the value, and one above it that does not meet the target.
func (s *search) dip(lo, m, hi, eps float64) (u, above float64, found bool, err error) {
	for range mostProbes {
		if hi <= lo*dipWidth {
			break
		}
		// Probe the wider side; of whole numbers, a side that has one inside.
		left := m/lo > hi/m
		if s.close(lo, m) {
			left = false
		} else if s.close(m, hi) {
			left = true
		}
		a, b := m, hi
		if left {
			a, b = lo, m
		}
		if s.close(a, b) {
			break
		}
		p := s.middle(a, b)
		at, err := s.ask(p)
		if err != nil {
			return 0, 0, false, err
		}
		switch {
		case at <= s.target:
			return p, b, true, nil
		case at < eps && left:
			hi, m, eps = m, p, at
		case at < eps:
			lo, m, eps = m, p, at
		case left:
			lo = p
		default:
			hi = p
		}
	}
	return 0, 0, false, nil
}

// mostEps0 returns the largest ε₀ that a query can have: a ≤ 1/(e^ε₀+1) for a known total
// variation.
func mostEps0(q Query) float64 {
	if q.TV > 0 && q.TV < .5 {
		return math.Min(dp.MaxEps0, math.Log(1/q.TV-1))
	}
	return dp.MaxEps0
}

package statistic

import (
	"errors"
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// cumulative is the distribution function of an error: of values from, from+step, … where sums are
// the chances of each value or less, or, without sums, a normal one.
type cumulative struct {
	from, step float64
	sums       []float64
	square     float64 // the variance
}

// errDepends refuses a law that a search cannot use.
var errDepends = errors.New("statistic: heavy hitters need noise that does not depend on the data, as sums have: the noise of single messages does")

// tailsOf returns the distribution function of the sum of independent errors of the given laws. It is
// exact where the laws are tables, and otherwise a normal one of the same variance.
func tailsOf(laws ...Law) (errorLaw, error) {
	all := lattice{0, []float64{1}}
	c, exact := cumulative{}, true
	for i, law := range laws {
		l, ok := law.(*noise)
		if !ok {
			return nil, errDepends
		}
		if i == 0 {
			c.step = l.step
		}
		c.square += l.variance(0)
		exact = exact && len(l.exact.mass) > 0 && l.rounding == 0 && l.step == c.step && c.square <= exactBelow*c.step*c.step
		if exact {
			all = all.plus(l.exact)
		}
	}
	if len(laws) == 0 {
		return nil, errors.New("statistic: no law")
	}
	if !exact {
		return c, nil
	}
	c.from = all.from * c.step
	var sum float64
	for _, m := range all.mass {
		sum += m
		c.sums = append(c.sums, sum)
	}
	return c, nil
}

func (c cumulative) variance() float64 { return c.square }

func (c cumulative) below(x float64) (less, most float64) {
	if len(c.sums) == 0 {
		if c.square == 0 {
			return indicator(x > 0), indicator(x >= 0)
		}
		p := tail.UpperNormal(-x / math.Sqrt(c.square))
		return p, p
	}
	at := func(i int) float64 {
		switch {
		case i < 0:
			return 0
		case i >= len(c.sums):
			return 1
		}
		return c.sums[i]
	}
	// i is the last value that is at most x, j the last that is below; values that differ by
	// rounding errors count as equal.
	place := (x - c.from) / c.step
	i := math.Floor(place + 1e-6)
	j := math.Ceil(place-1e-6) - 1
	clamp := func(v float64) int { return int(math.Max(-1, math.Min(v, float64(len(c.sums))))) }
	return at(clamp(j)), at(clamp(i))
}

func indicator(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

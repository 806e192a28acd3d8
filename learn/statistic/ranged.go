package statistic

import (
	"errors"
	"math"
)

// checkRanged checks a question about a number with a public range.
func (q Question) checkRanged() error {
	if err := checkName("column", q.Column); err != nil {
		return err
	}
	if q.Everyone && len(q.Where) > 0 {
		return errors.New("statistic: everyone is given with conditions, which some clients may not meet")
	}
	if q.Low == 0 && q.High == 0 {
		return errors.New("statistic: the public range of column \"" + q.Column + "\" is missing: the range that the data has would tell of it")
	}
	return q.checkRange()
}

// joint returns the chance of each interval with which so many numbers, and the number inside if that
// is not everyone, together hold with 95 %.
func (q Question) joint(numbers int) float64 {
	if !q.Everyone {
		numbers++
	}
	return bonferroni(numbers)
}

// middle and half are the middle of the range and half its width.
func (q Question) middle() float64 { return q.Low/2 + q.High/2 }
func (q Question) half() float64   { return q.High/2 - q.Low/2 }

// unit returns the value clipped to the range and scaled to −1 … 1, if the row is inside.
func (q Question) unit(row Row, ok bool) (float64, bool) {
	v, ok := q.value(row, ok)
	if !ok {
		return 0, false
	}
	return math.Min(1, math.Max(-1, (v-q.middle())/q.half())), true
}

// part returns which of so many equal parts of the range a value is in.
func (q Question) part(v float64, parts int) int {
	f := (v/2 - q.Low/2) / q.half() // halved first, so that nothing overflows
	return min(int(math.Min(1, math.Max(0, f))*float64(parts)), parts-1)
}

// edge returns the lower edge of part j of so many; j may be the number of parts.
func (q Question) edge(j, parts int) float64 {
	f := float64(j) / float64(parts)
	return q.Low*(1-f) + q.High*f
}

// scaledLaw is a law in units of the sums times a factor.
type scaledLaw struct {
	Law
	by float64
}

func (l scaledLaw) interval(sum, chance float64) (low, high float64) {
	low, high = l.Law.interval(sum/l.by, chance)
	return low * l.by, high * l.by
}

func (l scaledLaw) surely() Law { return scaledLaw{l.Law.surely(), l.by} }

func (l scaledLaw) variance(sum float64) float64 { return l.by * l.by * l.Law.variance(sum/l.by) }

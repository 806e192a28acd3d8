package statistic

import (
	"errors"
	"math"
)

// count asks how many clients have a value and meet the conditions.
type count struct{ Question }

func (count) uses() []string { return []string{"column", "where"} }
func (count) dim() int       { return 1 }
func (count) ones() int      { return 1 }

func (c count) check() error {
	if c.Column == "" && len(c.Where) == 0 {
		return errors.New("statistic: a count needs a column or a condition")
	}
	if c.Column == "" {
		return nil
	}
	return checkName("column", c.Column)
}

func (c count) coder() coder {
	return coder{places: func(row Row, ok bool, _ []float32, places []int) []int {
		if ok && (c.Column == "" || c.cell(row, ok) != "") {
			return append(places, 0)
		}
		return places
	}}
}

func (c count) answer(r Release) (Answer, error) {
	n := r.count(r.Sums[0], single)
	share := n.scaled(1 / float64(r.Clients))
	return Answer{Count: &n, Share: &share}, nil
}

// single is the chance that an interval of one number holds.
const single = .95

// joint returns the chance of each of m sums' intervals that together hold with 95 %: Šidák's
// where errors are independent, Bonferroni's otherwise.
func (r Release) joint(m int) float64 {
	if r.Law.independent() && r.Clients == r.Reports {
		return math.Exp(math.Log(single) / float64(m))
	}
	return bonferroni(m)
}

// bonferroni is the chance of each of m intervals, however they depend on one another, that
// together hold with 95 %.
func bonferroni(m int) float64 { return 1 - (1-single)/float64(m) }

// count returns the number of clients, of whom sum of the reports were measured. All released
// numbers together hold if each does with the chance joint.
func (r Release) count(sum, joint float64) Number {
	n := Number{Value: sum * float64(r.Clients) / float64(r.Reports)}
	n.Low95, n.High95 = r.ones(sum, single)
	n.JointLow95, n.JointHigh95 = r.surely().ones(sum, joint)
	return n
}

// surely returns r with a law whose intervals hold with their chance at least.
func (r Release) surely() Release {
	r.Law = r.Law.surely()
	return r
}

// roots returns the two solutions of ax² − bx + c = 0, a > 0, and NaN if there are none.
func roots(a, b, c float64) (low, high float64) {
	root := math.Sqrt(b*b/4 - a*c)
	// Without cancellation.
	if b >= 0 {
		high = (b/2 + root) / a
		low = c / (b/2 + root)
		if b == 0 && root == 0 {
			low = 0
		}
	} else {
		low = (b/2 - root) / a
		high = c / (b/2 - root)
	}
	return low, high
}

// scaled returns n in other units, by a factor above 0.
func (n Number) scaled(by float64) Number { return n.moved(0, by) }

// moved returns from + by·n.
func (n Number) moved(from, by float64) Number {
	return Number{from + by*n.Value, Interval{from + by*n.Low95, from + by*n.High95, from + by*n.JointLow95, from + by*n.JointHigh95}}
}

package statistic

import (
	"errors"
	"fmt"
	"math"
	"strconv"
)

// Release is what one round released.
type Release struct {
	Sums    []float64 // unbiased estimates of the sums of the inputs of all reports
	Reports int64     // the number of reports in the sums
	// Clients is the number of clients that the answer is about, Reports of which were drawn at
	// random; 0 stands for Reports.
	Clients int64
	Law     Law // of the error of each sum
}

// Law is the law of the errors of released sums, in the units of the sums. [OfClients],
// [OfAggregators] and [OfCurator] return it for what adds the noise.
type Law interface {
	// interval returns the equal-tailed interval of one true sum, given its estimate and the
	// chance, between 0 and 1, that it holds.
	interval(sum, chance float64) (low, high float64)
	// surely returns the law with intervals that hold with their chance at least. Those of a law
	// on a grid hold with about that chance otherwise, by mid-p.
	surely() Law
	// variance is the variance of the error of one sum, given its estimate. It may be a bound.
	variance(sum float64) float64
	// independent says whether the errors of several sums are independent. If so, they do not
	// depend on the true sums either.
	independent() bool
	// sources names what the errors come from: "noise", "rounding".
	sources() []string
}

// Interval holds two intervals of a number. Each of the first kind holds with 95 %; those of the
// second kind hold for all numbers of the answer together with 95 %.
type Interval struct {
	Low95       float64 `json:"low95"`
	High95      float64 `json:"high95"`
	JointLow95  float64 `json:"joint_low95"`
	JointHigh95 float64 `json:"joint_high95"`
}

// Number is an estimate with its intervals.
type Number struct {
	Value float64 `json:"value"`
	Interval
}

// Bin is a bin of a histogram: of numbers, with Lower and Upper, or of texts.
type Bin struct {
	Lower    *float64 `json:"lower,omitempty"`
	Upper    *float64 `json:"upper,omitempty"`
	Category *string  `json:"category,omitempty"`
	// Count is the number of clients as measured: it has no bias and may be negative.
	Count float64 `json:"count"`
	Interval
}

// BinNames returns the names of the bins: categories, or [lower, upper), the last one closed. Long
// edges are rounded, to as few digits as keep them apart.
func (a Answer) BinNames() []string {
	names := make([]string, len(a.Bins))
	digits := a.edgeDigits()
	for i, b := range a.Bins {
		switch {
		case b.Category != nil && *b.Category == Others:
			names[i] = "* (all others)"
		case b.Category != nil:
			names[i] = *b.Category
		case b.Lower != nil && b.Upper != nil && i == len(a.Bins)-1:
			names[i] = "[" + edge(*b.Lower, digits) + ", " + edge(*b.Upper, digits) + "]"
		case b.Lower != nil && b.Upper != nil:
			names[i] = "[" + edge(*b.Lower, digits) + ", " + edge(*b.Upper, digits) + ")"
		}
	}
	return names
}

// edgeDigits is the number of digits with which edges are written. All are needed if no edge is long.
func (a Answer) edgeDigits() int {
	const all, few, long = 17, 4, 9
	for digits := few; digits < all; digits++ {
		short, apart := true, true
		for _, b := range a.Bins {
			if b.Lower == nil || b.Upper == nil {
				return all
			}
			short = short && len(edge(*b.Lower, all)) <= long && len(edge(*b.Upper, all)) <= long
			apart = apart && edge(*b.Lower, digits) != edge(*b.Upper, digits)
		}
		if short {
			return all
		}
		if apart {
			return digits
		}
	}
	return all
}

// edge writes an edge of bins, rounded to so many digits.
func edge(x float64, digits int) string {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(x, 'g', digits, 64), 64)
	if text := strconv.FormatFloat(rounded, 'f', -1, 64); len(text) <= 12 {
		return text
	}
	return strconv.FormatFloat(rounded, 'g', -1, 64)
}

// Quantile is the value at a rank: about a share Rank of all values lies below it. The question's
// leaves are equal parts of the range, and values within a leaf are not told apart: Value is the lower
// edge of its leaf, and in the last leaf the end of the range.
type Quantile struct {
	Rank  float64 `json:"rank"`
	Value float64 `json:"value"`
	Interval
	// RankLow95 and RankHigh95 hold all true ranks of the values in the leaf with 95 %: from the
	// share below it to the share up to it.
	RankLow95  float64 `json:"rank_low95"`
	RankHigh95 float64 `json:"rank_high95"`
}

// Answer is the answer to a question. Which numbers are there depends on the kind.
type Answer struct {
	Measure string `json:"measure"`
	Column  string `json:"column,omitempty"`
	Reports int64  `json:"reports"` // in the sums
	Clients int64  `json:"clients"` // that the answer is about
	// Errors names what the intervals hold: "noise", "rounding", "sampling".
	Errors []string `json:"errors"`

	Count     *Number    `json:"count,omitempty"` // of clients inside: that have a value and meet the conditions
	Share     *Number    `json:"share,omitempty"` // of them among all clients
	Mean      *Number    `json:"mean,omitempty"`
	Variance  *Number    `json:"variance,omitempty"`
	Bins      []Bin      `json:"bins,omitempty"`
	Quantiles []Quantile `json:"quantiles,omitempty"`
	// Coefficients are the intercept and those of the features, in their order.
	Coefficients []Coefficient `json:"coefficients,omitempty"`
	Items        []Item        `json:"items,omitempty"`
	Search       *Searched     `json:"search,omitempty"`
}

// Answer returns the answer that a release gives.
func (q Question) Answer(r Release) (Answer, error) {
	if err := q.Validate(); err != nil {
		return Answer{}, err
	}
	m := q.must()
	if err := r.check(m.dim()); err != nil {
		return Answer{}, err
	}
	if q.Measure == LinearRegression { // it is about those who reported
		r.Clients = r.Reports
	}
	a, err := m.answer(r)
	if err != nil {
		return Answer{}, err
	}
	return a.of(q, r), nil
}

// check refuses a release that is not of so many sums, and sets what 0 stands for.
func (r *Release) check(sums int) error {
	if r.Clients == 0 {
		r.Clients = r.Reports
	}
	if len(r.Sums) != sums {
		return fmt.Errorf("statistic: %d sums released for a question of %d", len(r.Sums), sums)
	}
	if r.Reports < 1 || r.Clients < r.Reports || r.Clients > 1<<40 {
		return fmt.Errorf("statistic: %d reports of %d clients are not possible", r.Reports, r.Clients)
	}
	if r.Law == nil {
		return errors.New("statistic: the law of the errors is missing")
	}
	for j, s := range r.Sums {
		// The condition is negated so that it refuses a NaN.
		if !(math.Abs(s) <= mostValue) {
			return fmt.Errorf("statistic: sum %d is %v", j, s)
		}
	}
	return nil
}

// of says what a is about.
func (a Answer) of(q Question, r Release) Answer {
	a.Measure, a.Column, a.Reports, a.Clients = q.Measure, q.Column, r.Reports, r.Clients
	a.Errors = r.Law.sources()
	if r.Clients > r.Reports {
		a.Errors = append(a.Errors, "sampling")
	}
	return a
}

// Package statistic holds public questions about one row of data per client: what is asked,
// how a row becomes a vector, and how sums of such vectors become numbers with intervals.
//
//	Question → Dim, Ones, Radius      the sum that it needs
//	Question → Encoder                one client's row to a vector of that sum
//	Release  → Question.Answer        a round's sums to numbers
//	rounds   → Search                 heavy hitters, over several rounds
//	Question → Single, Messages       the same by one randomized symbol of each client
//	mechanism → [Law]                 of the errors of sums
//
// Everything in a question is public and written down before anything is known of the data:
// ranges, edges, categories, ranks. Nothing here adds noise or says what a release costs; that
// is package mechanism/vecsum's and the randomizers' business. statistic.md, messages.md and
// regression.md have the derivations of estimates and intervals.
package statistic

import "fmt"

// measure is one kind of question.
type measure interface {
	// uses returns the names of the question's fields, as in JSON, that the kind reads.
	uses() []string
	// check refuses a question that cannot be asked. It is called first; no other method is
	// called where it fails.
	check() error
	// dim is the length of an encoded row.
	dim() int
	// ones is the most ones of an encoded row whose values are zeros and ones, and 0 where
	// rows are encoded into the unit ball.
	ones() int
	// coder prepares the encoding of rows.
	coder() coder
	// answer turns sums into numbers. r has been checked.
	answer(r Release) (Answer, error)
}

// kinds holds the names of all kinds of questions, in the order of the documents.
var kinds = []string{"count", "mean", "variance", "histogram", "quantiles", LinearRegression, HeavyHitters}

// kind returns the kind of question that q is.
func (q Question) kind() (measure, error) {
	switch q.Measure {
	case "count":
		return count{q}, nil
	case "mean":
		return mean{q}, nil
	case "variance":
		return variance{q}, nil
	case "histogram":
		return histogram{q}, nil
	case "quantiles":
		return quantiles{q}, nil
	case LinearRegression:
		return regression{q}, nil
	case HeavyHitters:
		return heavy{q}, nil
	}
	return nil, fmt.Errorf("statistic: %q is none of the questions %v", q.Measure, kinds)
}

// must returns the kind of a question that has been checked.
func (q Question) must() measure {
	m, err := q.kind()
	if err != nil {
		panic(err)
	}
	return m
}

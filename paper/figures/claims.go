package figures

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/account"
)

// claim is a number that a paper's text states about a figure.
type claim struct {
	ID     string
	Paper  string
	Where  string
	Quote  string
	Stated float64 // NaN if our copy of the text lacks it
	// Tolerance is the relative precision with which the text can be read.
	Tolerance float64
	// Below says that the text claims less than Stated, and not Stated itself.
	Below bool
	// Methods are the method ids of the paper's formula.
	Methods string
	// Ours says what riffle's number is, and in which unit.
	Ours string
	Unit unit
	// Why explains the difference, and how much the number can be relied on.
	Why string

	compute compute
}

// compute returns the number of a claim, by the paper's formula and by riffle's bound.
type compute func(ctx context.Context, d *desk) (paper, ours float64, err error)

// unit is the unit of a claim's riffle number; it decides how the number is rounded.
type unit int

// Units of riffle's numbers.
const (
	Epsilon  unit = iota // rounded up
	Ratio                // ratio of another bound to riffle's; rounded down
	Accuracy             // recorded, in %
)

// checked is a claim with its numbers.
type checked struct {
	claim
	Computed float64 // by the paper's formula; NaN if there is none, or nothing was recorded
	Riffle   float64 // by riffle's own bound; NaN: does not apply
}

// Verdicts on a claim.
const (
	Matches  = "match"
	Explains = "explained difference"
	Missing  = "not recorded"
	Lost     = "number lost in the text"
	// Verdicts on accuracies.
	Missed   = "not reached"
	Exceeded = "exceeded"
)

// verdict compares the computed number with the stated one.
func (c checked) verdict() string {
	switch {
	case math.IsNaN(c.Stated):
		return Lost
	case math.IsNaN(c.Computed) && c.Unit == Accuracy:
		return Missing
	case c.Below && c.Computed < c.Stated, !c.Below && math.Abs(c.Computed-c.Stated) <= c.Tolerance*math.Abs(c.Stated):
		return Matches
	case c.Unit == Accuracy && c.Computed < c.Stated:
		return Missed
	case c.Unit == Accuracy:
		return Exceeded
	}
	return Explains
}

// riffle writes riffle's number, rounded so that it never looks better than it is.
func (c checked) riffle() string {
	return show(c.Riffle, []string{Epsilon: "upper", Ratio: "lower", Accuracy: ""}[c.Unit])
}

// show writes four digits.
func show(x float64, kind string) string {
	if math.IsNaN(x) {
		return "–"
	}
	return digits(x, kind)
}

// check computes all claims.
func check(ctx context.Context, d *desk) ([]checked, error) {
	var out []checked
	for _, c := range claims() {
		paper, ours, err := c.compute(ctx, d)
		if err != nil {
			return nil, fmt.Errorf("figures: claim %s: %w", c.ID, err)
		}
		out = append(out, checked{c, paper, ours})
	}
	return out, nil
}

const claimsName = "claims"

func claimsTable() figure {
	return figure{Name: claimsName, Paper: "All papers", Where: "Quoted points", Title: "What the papers' texts say about their figures",
		Caption: "Each number that a text states about a figure, what riffle computes at the same point with the paper's formula, and what riffle proves.",
		Notes: []string{"A match is as exact as the text can be read. An explained difference has its reason in the last column.",
			"Claims about accuracy are compared with the best evaluation of recorded experiments, mean of the seeds; where there are none they stay open."},
		draw: func(ctx context.Context, d *desk) (data, error) {
			list, err := check(ctx, d)
			if err != nil {
				return data{}, err
			}
			t := table{Header: []string{"claim", "paper", "where", "quote", "stated", "method", "computed", "riffle", "riffle's number", "verdict", "why"}}
			for _, c := range list {
				stated := show(c.Stated, "")
				if c.Below {
					stated = "< " + stated
				}
				t.Rows = append(t.Rows, []string{c.ID, c.Paper, c.Where, c.Quote, stated, c.Methods, show(c.Computed, ""), c.riffle(), c.Ours, c.verdict(), c.Why})
			}
			return data{Table: t}, nil
		}}
}

// ratio returns ε by one method over ε by another, and over riffle's proved ε.
func ratio(q account.Query, above, below string) compute {
	return func(ctx context.Context, d *desk) (float64, float64, error) {
		var eps [3]float64
		for i, method := range []string{above, below, upper} {
			var err error
			if eps[i], err = d.eps(ctx, q, method); err != nil {
				return 0, 0, err
			}
		}
		return eps[0] / eps[1], eps[0] / eps[2], nil
	}
}

// within finds the last round, no later than round most, at which the paper's ε is at most the
// stated one, eps. It returns a method's ε there, and riffle's proved ε.
func within(query func(rounds int64) account.Query, most int64, eps float64, method string) compute {
	return func(ctx context.Context, d *desk) (float64, float64, error) {
		t, err := d.last(ctx, query, most, "girgis-thm1", eps)
		if err != nil {
			return 0, 0, err
		}
		y, err := d.eps(ctx, query(t), method)
		if err != nil {
			return 0, 0, err
		}
		ours, err := d.eps(ctx, query(t), upper)
		return y, ours, err
	}
}

// last returns the largest number of rounds, within the limit most, at which the method's ε is
// at most eps.
func (d *desk) last(ctx context.Context, query func(rounds int64) account.Query, most int64, method string, eps float64) (int64, error) {
	low, high := int64(0), most+1
	for high-low > 1 {
		mid := low + (high-low)/2
		y, err := d.eps(ctx, query(mid), method)
		if err != nil {
			return 0, err
		}
		if y <= eps {
			low = mid
		} else {
			high = mid
		}
	}
	if low == 0 {
		return 0, fmt.Errorf("figures: one round of %s costs more than %v", method, eps)
	}
	return low, nil
}

// recorded returns the best recorded mean accuracy in % with ε at most eps: with ε by a
// column of the recording, and by riffle's proved bound.
func recorded(experiment string, eps float64, column func(point) float64) compute {
	return func(_ context.Context, d *desk) (float64, float64, error) {
		return d.accuracy(experiment, func(p point) bool { return column(p) <= eps }, func(p point) bool { return p.proved <= eps })
	}
}

// recordedBy works like recorded, but computes ε with a method of the accountant. It covers
// the settings that have an ε by the paper's formula; query returns the question about a
// number of rounds.
func recordedBy(experiment string, query func(rounds int64) account.Query, most int64, method string, eps float64) compute {
	return func(ctx context.Context, d *desk) (float64, float64, error) {
		t, err := d.last(ctx, query, most, method, eps)
		if err != nil {
			return 0, 0, err
		}
		return d.accuracy(experiment, func(p point) bool { return p.at.Round <= t && p.paper > 0 }, func(p point) bool { return p.proved <= eps })
	}
}

// rival is the experiment with riffle's own settings for single messages, which are compared
// at every ε.
const rival = "e7"

// accuracy returns two best mean accuracies in %. One is over the points of the experiment for
// which first is true; the other is over the points of the experiment and of its rival for
// which second is true. NaN: there are no such points.
func (d *desk) accuracy(experiment string, first, second func(point) bool) (float64, float64, error) {
	a, b := math.NaN(), math.NaN()
	for _, name := range []string{experiment, rival} {
		rows, err := readResults(d.results, name)
		if err != nil {
			return 0, 0, err
		}
		for _, p := range gather(rows, func(r row) float64 { return float64(r.Round) }) {
			y := 100 * p.mean
			if name == experiment && first(p) && !(a >= y) {
				a = y
			}
			if second(p) && !(b >= y) {
				b = y
			}
		}
	}
	return a, b, nil
}

// unprotected says whether a point is from a run without privacy.
func unprotected(p point) bool { return math.IsInf(p.proved, 1) || math.IsNaN(p.proved) }

func byPaper(p point) float64  { return p.paper }
func byRiffle(p point) float64 { return p.proved }

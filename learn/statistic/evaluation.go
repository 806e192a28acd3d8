package statistic

import (
	"fmt"
	"math"
)

// Evaluation measures a model on rows that each client has held out: with how much loss, and how
// often right. Its sums travel in the same vector as a round's gradients. A client's part of the
// vector is zero if it has no such rows, and otherwise
//
//	(1, 2l/Limit − 1, 2c − 1) · Length/√3
//
// where l is the mean loss of its rows, each clipped to 0 … Limit, and c the share of them that the
// model gets right; without Accuracy (1, 2l/Limit − 1)·Length/√2. So the part is no longer than
// Length, and depends on nothing but these rows and the model.
type Evaluation struct {
	Limit    float64 // the largest loss that counts. Required.
	Length   float64 // of a client's part. Required.
	Accuracy bool    // whether answers are right or wrong
}

// Evaluated is what a round's reports tell of a model: about the mean over the clients who have held
// out rows, each client counting once. Values are estimates as measured, so an accuracy may be below 0
// or above 1; intervals of loss and accuracy end where such numbers do.
type Evaluated struct {
	Clients  Number  `json:"clients"` // who have held out rows, of those that the answer is about
	Loss     Number  `json:"loss"`
	Accuracy *Number `json:"accuracy,omitempty"`
	Reports  int64   `json:"reports"` // in the sums
}

// Check refuses numbers out of range.
func (e Evaluation) Check() error {
	// The condition is negated so that it refuses a NaN.
	if !(e.Limit > 0 && e.Limit <= mostValue && e.Length > 0 && e.Length <= mostValue) {
		return fmt.Errorf("statistic: an evaluation up to loss %v in a length of %v: both must be above 0", e.Limit, e.Length)
	}
	return nil
}

// Dim is the length of a client's part.
func (e Evaluation) Dim() int {
	if e.Accuracy {
		return 3
	}
	return 2
}

func (e Evaluation) unit() float64 { return e.Length / math.Sqrt(float64(e.Dim())) }

// Encode overwrites x, of length Dim, with the part of a client. loss is the mean of its rows' clipped
// losses, see Clip, correct the share of rows that are right; rows is their number.
func (e Evaluation) Encode(rows int, loss, correct float64, x []float32) {
	x = x[:e.Dim()]
	clear(x)
	if rows == 0 {
		return
	}
	u := e.unit() * (1 - 1e-6) // so that rounding to float32 makes the part no longer than Length
	x[0] = float32(u)
	x[1] = float32(u * (2*e.Clip(loss)/e.Limit - 1))
	if e.Accuracy {
		x[2] = float32(u * (2*math.Max(0, math.Min(correct, 1)) - 1))
	}
}

// Clip clips the loss of a row; one that is not a number counts as the largest.
func (e Evaluation) Clip(loss float64) float64 {
	if !(loss <= e.Limit) {
		return e.Limit
	}
	return math.Max(0, loss)
}

// Answer returns what released sums of clients' parts tell. At chance each of its intervals holds, in
// place of 95 %, if chance is not 0.
func (e Evaluation) Answer(r Release, chance float64) (Evaluated, error) {
	if err := e.Check(); err != nil {
		return Evaluated{}, err
	}
	if r.Clients == 0 {
		r.Clients = r.Reports
	}
	if len(r.Sums) != e.Dim() || r.Reports < 1 || r.Clients < r.Reports || r.Law == nil {
		return Evaluated{}, fmt.Errorf("statistic: %d sums of %d reports of %d clients are no evaluation", len(r.Sums), r.Reports, r.Clients)
	}
	u := e.unit() * (1 - 1e-6)
	sums := make([]float64, len(r.Sums))
	for j, s := range r.Sums {
		if !(math.Abs(s) <= mostValue) {
			return Evaluated{}, fmt.Errorf("statistic: sum %d of an evaluation is %v", j, s)
		}
		sums[j] = s / u
	}
	r.Law = scaledLaw{r.Law, 1 / u}
	one := single
	if chance != 0 {
		one = chance
	}
	together := bonferroni(e.Dim())
	number := func(sum float64) Number {
		v := ratio{sum: sum, inside: sums[0], square: 1} // values lie in −1 … 1; the accuracy of one row is at an end
		n := v.number(r, together)
		if chance != 0 {
			n.Low95, n.High95 = v.interval(r, one)
		}
		return n
	}
	within := func(n Number, most float64) Number {
		for _, end := range []*float64{&n.Low95, &n.High95, &n.JointLow95, &n.JointHigh95} {
			*end = math.Max(0, math.Min(*end, most))
		}
		return n
	}
	out := Evaluated{Clients: r.count(sums[0], together), Reports: r.Reports}
	out.Loss = within(number(sums[1]).moved(e.Limit/2, e.Limit/2), e.Limit)
	if e.Accuracy {
		a := within(number(sums[2]).moved(.5, .5), 1)
		out.Accuracy = &a
	}
	return out, nil
}

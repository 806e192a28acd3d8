package statistic

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// Messages answers a question by one message of each client: a symbol of K-ary randomized response
// (package randomizer, KRR), for trust local and shuffle. messages.md has the derivations.
//
// A count has two symbols. A histogram has one for each bin, quantiles one for each of equal parts of
// the range, and both one more for rows outside. For a mean or variance a number is spread over 16
// neighbouring symbols around its place, so that the error of rounding is the same wherever the
// number lies; 16 more symbols stand for rows outside, unless Everyone is said to be inside. A
// histogram may have a code for each bin in place of a symbol, see codes.go.
type Messages struct {
	q Question
	// bins is the number of symbols but those for rows outside.
	bins int
	// outside is the number of symbols for rows outside.
	outside int
	truth   float64 // probability of a report of the symbol that was drawn
	lie     float64 // of each other symbol
	codes   bool    // whether bins have codes
	coder   coder
	where   []func(Row) bool
}

// wave is the number of symbols over which a number is spread.
const wave = 16

// Limits of K, see [Question.Choose].
const (
	leastKnown = 2
	mostKnown  = 1 << 16 // so that 2^20 spread symbols do
)

// Symbols returns the number of symbols of messages without codes, of a count or histogram; 0 for
// other questions. [Question.Choose] chooses the number for all of them, and between bins and codes.
func (q Question) Symbols() int {
	switch q.Measure {
	case "count":
		return 2
	case "histogram":
		return q.Dim() + 1
	}
	return 0
}

// Single returns the randomizer of the messages that answer the question, at eps0. symbols is K, as
// Choose returns it: a report is as private as one of randomized response on K symbols, also where it
// has more symbols. Its class is dp.KRR, or dp.Cap with 1/K.
func (q Question) Single(symbols int, eps0 float64) (randomizer.Config, error) {
	c := randomizer.Config{Dim: symbols, Radius: 1, Eps0: eps0}
	fixed := q.Symbols()
	switch {
	case q.coded(symbols):
		c.Dim = codeLength(q.Dim())
		c.Bits = c.Dim / 2
		return c, nil
	case fixed != 0 && symbols != fixed:
		return c, fmt.Errorf("statistic: a %s of this question has %d symbols, not %d", q.Measure, fixed, symbols)
	case fixed != 0:
		return c, nil
	case symbols < leastKnown || symbols > mostKnown:
		return c, fmt.Errorf("statistic: %d symbols of a %s must lie between %d and %d", symbols, q.Measure, leastKnown, mostKnown)
	case q.Measure == "quantiles":
		return c, nil
	case q.Measure != "mean" && q.Measure != "variance":
		return c, fmt.Errorf("statistic: no mechanism answers %s by single messages: use trust %s", q.Measure, dp.TrustNames(dp.SumsOnly)[0])
	case symbols < leastKnown+1 && !q.Everyone:
		return c, fmt.Errorf("statistic: a %s of clients of whom some have no value needs 3 symbols at least", q.Measure)
	}
	c.Dim, c.Bits = symbols*wave, wave
	return c, nil
}

// NewMessages returns the answer to a question by reports of m, which is of the randomizer that
// [Question.Single] describes.
func NewMessages(q Question, m randomizer.Randomizer) (*Messages, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	facts, event := m.Facts(), m.Event()
	if facts.Dim > maxDim+1 { // before anything of that length is made
		return nil, fmt.Errorf("statistic: %d symbols are above the limit of %d", facts.Dim, maxDim+1)
	}
	if facts.Name != randomizer.KRR || facts.Dim < 2 {
		return nil, fmt.Errorf("statistic: %s does not answer questions by single messages, %s does", facts.Name, randomizer.KRR)
	}
	s := &Messages{q: q, bins: facts.Dim - 1, outside: 1}
	// What one report stands for tells its probabilities: (1 − lie)/(truth − lie) where it is, and
	// −lie/(truth − lie) elsewhere.
	one, sum := make([]float64, facts.Dim), make([]int64, facts.Dim)
	sum[0] = 1
	m.Estimate(one, sum, 1)
	gap := 1 / (one[0] - one[1])
	s.lie = -one[1] * gap
	s.truth = s.lie + gap
	symbols := facts.Dim
	if event.Class == dp.Cap {
		spread := wave
		if s.codes = q.Measure == "histogram"; s.codes {
			spread = max(1, facts.Dim/2)
		}
		if ratio := gap / s.lie / math.Expm1(event.Eps0); math.Abs(ratio/float64(spread)-1) > 1e-5 || facts.Dim%spread != 0 {
			return nil, fmt.Errorf("statistic: reports spread over %.6g of %d symbols, want %d", ratio, facts.Dim, spread)
		}
		symbols /= spread
		if s.outside = wave; q.Everyone || s.codes {
			s.outside = 0
		}
		s.bins = facts.Dim - s.outside
	}
	if c, err := q.Single(symbols, event.Eps0); err != nil {
		return nil, err
	} else if c.Dim != facts.Dim || (c.Bits > 1) != (event.Class == dp.Cap) {
		return nil, fmt.Errorf("statistic: reports of %d symbols of class %s do not answer a %s", facts.Dim, event.Class, q.Measure)
	}
	s.coder = q.must().coder()
	for _, c := range q.Where {
		s.where = append(s.where, c.compile())
	}
	return s, nil
}

// Encoder returns how rows become the distributions from which the clients' symbols are drawn.
func (s *Messages) Encoder() *Encoder {
	return &Encoder{q: s.q, dim: s.bins + s.outside, where: s.where, coder: coder{values: func(row Row, ok bool, _ []float32, x []float32) { s.encode(row, ok, x) }}}
}

// encode overwrites x, which is zero and has a place for each symbol. ok is whether the row meets the
// question's conditions.
func (s *Messages) encode(row Row, ok bool, x []float32) {
	switch s.q.Measure {
	case "mean", "variance":
		s.spread(row, ok, x)
	case "quantiles":
		if v, ok := s.q.value(row, ok); ok {
			x[s.q.part(v, s.bins)] = 1
		} else if s.q.Everyone {
			x[s.q.part(s.q.middle(), s.bins)] = 1
		} else {
			x[s.bins] = 1
		}
	default:
		var room [32]int
		at := s.coder.places(row, ok, nil, room[:0])
		switch {
		case s.codes && len(at) == 1:
			encodeCode(at[0], x)
		case s.codes:
			encodeNoCode(x)
		case len(at) == 1:
			x[at[0]] = 1
		default:
			x[s.bins] = 1
		}
	}
}

// Answer returns the answer that the estimated sums of the distributions of so many reports give, of
// clients of whom they were drawn at random; 0 stands for as many as there are reports.
func (s *Messages) Answer(sums []float64, reports, clients int64) (Answer, error) {
	r := Release{Sums: sums, Reports: reports, Clients: clients, Law: s.law(reports, 1)}
	if err := r.check(s.bins + s.outside); err != nil {
		return Answer{}, err
	}
	if s.codes {
		r.Sums, r.Law = s.decode(sums, reports)
		return s.q.Answer(r)
	}
	if fixed := s.q.Symbols(); fixed != 0 {
		r.Sums = sums[:s.bins]
		return s.q.Answer(r)
	}
	return s.numbers(r).of(s.q, r), nil
}

// law returns the law of the number of reports that name one of so many symbols, for clients
// whose symbol is one of them and for those whose symbol is none.
func (s *Messages) law(reports int64, symbols int) response {
	lie := float64(symbols) * s.lie
	gap, others := s.truth-s.lie, float64(s.bins+s.outside-symbols)
	// truth + untruth = lie + unlie = 1, from the side that keeps the digits.
	return response{n: reports, truth: gap + lie, lie: lie, untruth: others * s.lie, unlie: gap + others*s.lie}
}

package statistic

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"unicode/utf8"
)

// Search asks for heavy hitters, round by round. It sees what rounds release, so it costs no privacy.
// Its state, [Search.Vectors], is all that the coming rounds and the answer are made of.
type Search struct {
	question Question
	tree     prefixTree
	clients  int64
	law      func(reports int64) (Law, error)

	state   search
	reports []int64 // of each round so far
	// first and of are each found item's count in the round that found it, and that round's place in
	// reports.
	first []float64
	of    []int
	// counted are the found items' counts in all rounds that counted them, the last ones of reports.
	counted []float64
	counts  int     // the number of those rounds
	others  float64 // in all rounds: the clients whose item is too long or has other symbols
}

// Item is a heavy hitter. Text is its text; if that is not UTF-8, Bytes is given.
type Item struct {
	Text  *string `json:"item,omitempty"`
	Bytes []byte  `json:"bytes,omitempty"`
	// Count is the number of clients who have the item, estimated without bias.
	Count float64 `json:"count"`
	Interval
}

// Searched says what a search for heavy hitters looked for.
type Searched struct {
	// Share is the share of all clients that was asked for. Items that at least the share Sure of all
	// clients have are found, and items that fewer than the share Never have are not, each but for a
	// chance of 0.001.
	Share float64 `json:"share"`
	Sure  float64 `json:"sure"`
	Never float64 `json:"never"`
	// Rounds is the number of rounds that were used, Counted how many of them counted what had been
	// found. If it is 0, counts are those of the rounds that found the items: the smallest are too
	// large on the average.
	Rounds  int64 `json:"rounds"`
	Counted int64 `json:"counted"`
	// Unfinished are beginnings of items that the search had not followed to the end.
	Unfinished []string `json:"unfinished,omitempty"`
	// Others is the number of clients whose item is too long or has symbols outside the alphabet.
	Others Number `json:"others"`
}

// NewSearch begins a search among n clients. law returns the law of the errors of the sums of so
// many reports; smallest is the least number of reports that a round will have. NewSearch refuses a
// search for which such a round is too noisy.
func NewSearch(q Question, clients, smallest int64, law func(reports int64) (Law, error)) (*Search, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	if q.Measure != HeavyHitters {
		return nil, fmt.Errorf("statistic: a %s is no search over rounds", q.Measure)
	}
	if smallest < 1 || clients < smallest || clients > 1<<40 {
		return nil, fmt.Errorf("statistic: rounds of %d of %d clients are not possible", smallest, clients)
	}
	s := &Search{question: q, tree: heavy{q}.mustTree(), clients: clients, law: law}
	s.state = s.tree.begin()
	d, err := s.drawn(smallest)
	if err != nil {
		return nil, err
	}
	return s, s.tree.check(d)
}

// drawn returns the law of a count in rounds of the given numbers of reports together.
func (s *Search) drawn(reports ...int64) (drawn, error) {
	d := drawn{clients: s.clients}
	var laws []Law
	for _, k := range reports {
		l, err := s.law(k)
		if err != nil {
			return d, err
		}
		laws = append(laws, l)
		d.reports += k
	}
	if d.reports < 1 || d.reports > d.clients {
		return d, fmt.Errorf("statistic: %d reports of %d clients, who report once each", d.reports, d.clients)
	}
	var err error
	d.noise, err = tailsOf(laws...)
	return d, err
}

// Point returns what the coming round publishes, all small whole numbers.
func (s *Search) Point() []float32 { return s.tree.encode(s.state) }

// Take takes the sums of a round of so many reports. If it returns an error nothing has changed.
func (s *Search) Take(sums []float64, reports int64) error {
	if len(sums) != s.tree.dim() {
		return fmt.Errorf("statistic: %d sums released for a question of %d", len(sums), s.tree.dim())
	}
	for j, v := range sums {
		if !(math.Abs(v) <= mostValue) {
			return fmt.Errorf("statistic: sum %d is %v", j, v)
		}
	}
	if _, err := s.drawn(append(slices.Clone(s.reports), reports)...); err != nil {
		return err
	}
	d, err := s.drawn(reports)
	if err != nil {
		return err
	}
	if s.state.counting() {
		for i := range s.state.found {
			s.counted[i] += sums[i]
		}
		s.counts++
	} else {
		next := s.tree.step(s.state, sums, s.tree.limits(d).cut)
		for _, w := range next.found[len(s.state.found):] {
			s.first = append(s.first, sums[s.tree.bucketOf(s.state, w)])
			s.of = append(s.of, len(s.reports))
		}
		s.state = next
		s.counted = make([]float64, len(next.found))
	}
	s.reports = append(s.reports, reports)
	s.others += sums[len(sums)-1]
	return nil
}

// Answer returns what the rounds so far tell.
func (s *Search) Answer() (Answer, error) {
	if len(s.reports) == 0 {
		return Answer{}, errors.New("statistic: no round of the search has been released")
	}
	all, err := s.drawn(s.reports...)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{Measure: s.question.Measure, Column: s.question.Column, Reports: all.reports, Clients: s.clients, Errors: []string{"noise"},
		Search: &Searched{Share: s.tree.share, Never: 1, Rounds: int64(len(s.reports)), Counted: int64(s.counts)}}
	if all.reports < s.clients || len(s.reports) > 1 {
		a.Errors = append(a.Errors, "sampling")
	}
	outside := (1 - single) / 2
	together := outside / float64(len(s.state.found)+1)
	number := func(d drawn, y float64) Number {
		n := Number{Value: y * float64(s.clients) / float64(d.reports)}
		n.Low95, n.High95 = d.between(y, outside, false)
		n.JointLow95, n.JointHigh95 = d.between(y, together, true)
		return n
	}
	a.Search.Others = number(all, s.others)
	searching := len(s.reports) - s.counts
	for i, w := range s.state.found {
		y, rounds := s.first[i], s.reports[s.of[i]:s.of[i]+1]
		if s.counts > 0 {
			y, rounds = s.counted[i], s.reports[searching:]
		}
		d, err := s.drawn(rounds...)
		if err != nil {
			return Answer{}, err
		}
		n := number(d, y)
		item := Item{Count: n.Value, Interval: n.Interval}
		if text := s.tree.text(w); utf8.ValidString(text) {
			item.Text = &text
		} else {
			item.Bytes = []byte(text)
		}
		a.Items = append(a.Items, item)
	}
	slices.SortStableFunc(a.Items, func(x, y Item) int {
		switch {
		case x.Count > y.Count:
			return -1
		case x.Count < y.Count:
			return 1
		}
		return 0
	})
	for _, w := range s.state.prefixes {
		a.Search.Unfinished = append(a.Search.Unfinished, s.tree.text(w))
	}
	done := map[int64]bool{}
	for _, k := range s.reports[:searching] {
		if done[k] {
			continue
		}
		done[k] = true
		d, err := s.drawn(k)
		if err != nil {
			return Answer{}, err
		}
		l := s.tree.limits(d)
		a.Search.Sure, a.Search.Never = max(a.Search.Sure, l.sure), min(a.Search.Never, l.never)
	}
	return a, nil
}

// Names of the vectors of a search's state.
const (
	vectorState   = "search"  // Point
	vectorReports = "reports" // of each round; then the number of rounds that counted, and others
	vectorFirst   = "first"   // of each found item: its count in the round that found it, and that round
	vectorCounted = "counted" // of each found item
)

// Vectors returns the state, by name. All are whole numbers, but for estimates.
func (s *Search) Vectors() map[string][]float64 {
	v := map[string][]float64{vectorCounted: slices.Clone(s.counted)}
	for _, x := range s.Point() {
		v[vectorState] = append(v[vectorState], float64(x))
	}
	for _, k := range s.reports {
		v[vectorReports] = append(v[vectorReports], float64(k))
	}
	v[vectorReports] = append(v[vectorReports], float64(s.counts), s.others)
	for i := range s.first {
		v[vectorFirst] = append(v[vectorFirst], s.first[i], float64(s.of[i]))
	}
	return v
}

// Restore takes back what Vectors of a search for the same question returned. If it returns an error
// nothing has changed.
func (s *Search) Restore(v map[string][]float64) error {
	bad := errors.New("statistic: not the state of this search")
	for name := range v {
		switch name {
		case vectorState, vectorReports, vectorFirst, vectorCounted:
		default:
			return bad
		}
	}
	next := *s
	theta := make([]float32, len(v[vectorState]))
	for i, x := range v[vectorState] {
		if theta[i] = float32(x); float64(theta[i]) != x {
			return bad
		}
	}
	var err error
	if next.state, err = s.tree.decode(theta); err != nil {
		return err
	}
	whole := func(x float64, least, most int64) (int64, bool) {
		ok := x >= float64(least) && x <= float64(most) && x == math.Trunc(x)
		return int64(x), ok
	}
	r, found := v[vectorReports], len(next.state.found)
	rounds := len(r) - 2
	if rounds < 0 || len(v[vectorFirst]) != 2*found || len(v[vectorCounted]) != found {
		return bad
	}
	next.reports, next.first, next.of = nil, nil, nil
	next.counted = slices.Clone(v[vectorCounted])
	for _, x := range r[:rounds] {
		k, ok := whole(x, 1, s.clients)
		if !ok {
			return bad
		}
		next.reports = append(next.reports, k)
	}
	counts, ok := whole(r[rounds], 0, int64(rounds))
	if next.counts, next.others = int(counts), r[rounds+1]; !ok || counts > 0 && !next.state.counting() {
		return bad
	}
	for i := range found {
		of, ok := whole(v[vectorFirst][2*i+1], 0, int64(rounds)-counts-1)
		if !ok {
			return bad
		}
		next.first, next.of = append(next.first, v[vectorFirst][2*i]), append(next.of, int(of))
	}
	for _, x := range slices.Concat(next.first, next.counted, []float64{next.others}) {
		if !(math.Abs(x) <= mostValue) {
			return bad
		}
	}
	*s = next
	return nil
}

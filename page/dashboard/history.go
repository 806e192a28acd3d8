package dashboard

import (
	"cmp"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// limit is the number of points kept of a curve. More points than a chart has pixels would
// only make it slow. Memory and messages do not grow with the rounds.
const limit = 480

// Measure is a model's quality and cost after a round. NaN: not known.
type Measure struct {
	Round    int64
	Eps      float64 // nats, up to and including that round
	Accuracy float64 // share in [0, 1]
	Loss     float64
	Seconds  float64 // since the start
}

// fill copies the values that m knows into a, which is a measure of the same round.
func (a *Measure) fill(m Measure) {
	for _, f := range []struct{ have, more *float64 }{{&a.Eps, &m.Eps}, {&a.Accuracy, &m.Accuracy}, {&a.Loss, &m.Loss}} {
		if !math.IsNaN(*f.more) {
			*f.have = *f.more
		}
	}
}

// measures keeps the first and the last measure, and every stride-th between.
type measures struct {
	list   []Measure
	stride int64
	added  int64
	drafts bool // whether the next measure replaces the last element of list
	shape  int64
}

func (h *measures) add(m Measure) {
	if h.stride == 0 {
		h.stride = 1
	}
	if n := len(h.list); n > 0 && m.Round <= h.list[n-1].Round {
		if last := &h.list[n-1]; m.Round == last.Round {
			last.fill(m)
		} else if i, ok := slices.BinarySearchFunc(h.list, m.Round, func(a Measure, r int64) int { return cmp.Compare(a.Round, r) }); ok && math.IsNaN(h.list[i].Loss) && !math.IsNaN(m.Loss) {
			h.list[i].fill(m) // an evaluation that came late
			h.shape++
		}
		return // a resumed run measures rounds again that are in the list
	}
	if h.drafts {
		h.list[len(h.list)-1] = m
	} else {
		h.list = append(h.list, m)
	}
	h.drafts = h.added%h.stride != 0
	h.added++
	if len(h.list) <= limit {
		return
	}
	kept := h.list[:0]
	for i, m := range h.list {
		if i%2 == 0 {
			kept = append(kept, m)
		}
	}
	// limit is even, so the last of limit + 1 measures is kept. Every second measure of the
	// old stride is one of the new stride.
	h.list, h.stride = kept, 2*h.stride
	h.shape++
}

// Round is the result of a round, or of several rounds that ended since the last.
type Round struct {
	Round    int64 // the last of these rounds
	Rounds   int64 // number of rounds; 0 stands for 1
	Reports  int64 // reports that were summed
	Rejected int64
	Void     int64 // rounds with too few reports
	Failed   int64 // rounds that were charged and gave no step
}

// Past returns the rounds up to last, as far as a ledger's entries show them: one Round for
// each charged round, and the void rounds between them in groups. all is the sum over these
// rounds. If the entries do not show single rounds, Past returns all of them as one Round.
// That is so if an entry pays for several rounds, and in a run without privacy, which has no
// entries.
func Past(entries []ledger.Entry, last int64, all Round) (list []Round) {
	if last == 0 {
		return nil
	}
	if last-int64(len(entries)) != all.Void {
		all.Round, all.Rounds = last, last
		return []Round{all}
	}
	at := int64(0)
	void := func(to int64) {
		each := max(1, (to-at)/limit)
		for at < to {
			n := min(each, to-at)
			at += n
			list = append(list, Round{Round: at, Rounds: n, Void: n})
		}
	}
	left := int64(len(entries))
	for _, e := range entries {
		void(e.Round - 1)
		// A charge does not say how many came: the total is spread evenly.
		n := all.Reports / left
		all.Reports, left = all.Reports-n, left-1
		list = append(list, Round{Round: e.Round, Rounds: 1, Reports: n})
		at = e.Round
	}
	void(last)
	return list
}

// rounds keeps sums over neighbouring rounds, so the totals stay complete.
type rounds struct {
	list   []Round
	stride int64
	shape  int64
}

func (a Round) with(b Round) Round {
	return Round{Round: b.Round, Rounds: a.Rounds + b.Rounds, Reports: a.Reports + b.Reports,
		Rejected: a.Rejected + b.Rejected, Void: a.Void + b.Void, Failed: a.Failed + b.Failed}
}

func (h *rounds) add(r Round) {
	if h.stride == 0 {
		h.stride = 1
	}
	if r.Rounds == 0 {
		r.Rounds = 1
	}
	n := len(h.list)
	if n > 0 && r.Round <= h.list[n-1].Round {
		return
	}
	if n > 0 && h.list[n-1].Rounds < h.stride {
		h.list[n-1] = h.list[n-1].with(r)
		return
	}
	if h.list = append(h.list, r); len(h.list) <= limit {
		return
	}
	var merged []Round
	for i := 0; i < len(h.list); i += 2 {
		x := h.list[i]
		if i+1 < len(h.list) {
			x = x.with(h.list[i+1])
		}
		merged = append(merged, x)
	}
	h.list, h.stride = merged, 2*h.stride
	h.shape++
}

// seen is how much of a history a page has.
type seen struct {
	measures, rounds series
}

// series identifies a state of a list by its shape and its number of elements.
type series struct{ shape, length int64 }

// from returns the first element to send. The last one that the page has is sent again,
// because it may have changed.
func (s series) from(shape, length int64) int64 {
	if s.shape != shape || s.length == 0 {
		return 0
	}
	return min(s.length-1, length)
}

// columns is a history, or an addition to it, in the form that pages take: it replaces
// everything from place From on.
type columns struct {
	Task     string         `json:"task"`
	Measures measureColumns `json:"measures"`
	Rounds   roundColumns   `json:"rounds"`
}

type measureColumns struct {
	From     int64       `json:"from"`
	Round    []int64     `json:"round"`
	Eps      []dp.Number `json:"epsilon"`
	Accuracy []rounded   `json:"accuracy"`
	Loss     []rounded   `json:"loss"`
	Seconds  []rounded   `json:"seconds"`
}

type roundColumns struct {
	From     int64   `json:"from"`
	Round    []int64 `json:"round"`
	Rounds   []int64 `json:"rounds"`
	Reports  []int64 `json:"reports"`
	Rejected []int64 `json:"rejected"`
	Void     []int64 `json:"void"`
	Failed   []int64 `json:"failed"`
}

func (h *measures) columns(s series) (c measureColumns, now series) {
	now = series{h.shape, int64(len(h.list))}
	c.From = s.from(now.shape, now.length)
	for _, m := range h.list[c.From:] {
		c.Round = append(c.Round, m.Round)
		c.Eps = append(c.Eps, dp.Number(m.Eps))
		c.Accuracy = append(c.Accuracy, rounded(m.Accuracy))
		c.Loss = append(c.Loss, rounded(m.Loss))
		c.Seconds = append(c.Seconds, rounded(m.Seconds))
	}
	return c, now
}

func (h *rounds) columns(s series) (c roundColumns, now series) {
	now = series{h.shape, int64(len(h.list))}
	c.From = s.from(now.shape, now.length)
	for _, r := range h.list[c.From:] {
		c.Round = append(c.Round, r.Round)
		c.Rounds = append(c.Rounds, r.Rounds)
		c.Reports = append(c.Reports, r.Reports)
		c.Rejected = append(c.Rejected, r.Rejected)
		c.Void = append(c.Void, r.Void)
		c.Failed = append(c.Failed, r.Failed)
	}
	return c, now
}

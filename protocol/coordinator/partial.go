package coordinator

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// ErrPartial is wrapped if the tally of a range cannot be one of the batch's.
var ErrPartial = errors.New("coordinator: not a tally of the batch's chunks")

// NewPartial returns an empty tally for a range that a coordinator has handed over. mechanism is that of
// the round. The tally is for Partial alone: End refuses it.
func NewPartial(mechanism randomizer.Mechanism) *Tally { return newTally(mechanism, 0) }

// Partial returns what a worker tells of a range: its tally, and what the tally has not. of has range
// and ticket, wrongKey the number of messages that could not be opened. The other rejected ones were out of
// shape or range.
func (t *Tally) Partial(of wire.Opened, wrongKey int64, receipts []wire.ID) wire.Opened {
	of.Accepted, of.WrongKey, of.OutOfRange = t.Accepted, wrongKey, t.Rejected-wrongKey
	of.Sum, of.Identities, of.Receipts = t.Sum, slices.Clone(t.identities), slices.Clone(receipts)
	// Their order is that of the batch, which nobody needs.
	slices.SortFunc(of.Identities, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	slices.SortFunc(of.Receipts, func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) })
	return of
}

// Total adds the tallies of a charged batch's ranges, each of them once. Sums are exact integers, so the
// total is that of one process, whatever the ranges are and in whatever order they come.
type Total struct {
	Tally    *Tally
	WrongKey int64 // number of messages that could not be opened; Tally.Rejected counts them, too
	Receipts []wire.ID

	announcement     [32]byte
	messages, chunks int64
	receipts         bool     // whether messages have receipts
	ranges           []chunks // that were added, ascending and apart
}

type chunks struct{ from, to int64 }

// NewTotal returns an empty total for the batch of so many messages in so many chunks that was charged
// for.
func (c *Coordinator) NewTotal(b wire.RoundClosed, messages int64, receipts bool) (*Total, error) {
	if c.opened != 0 && c.opened != b.Round {
		return nil, fmt.Errorf("coordinator: total of round %d in round %d", b.Round, c.opened)
	}
	t, err := c.NewTally()
	return &Total{Tally: t, announcement: b.Announcement, messages: messages, chunks: b.Chunks, receipts: receipts}, err
}

// AddPartial adds the tally of a range. The tally of a range that was added is left out, and is no error:
// added is then false. Whatever is not a tally of a range beside those is refused and changes nothing.
func (t *Total) AddPartial(p *wire.Opened) (added bool, err error) {
	refuse := func(format string, args ...any) (bool, error) {
		return false, fmt.Errorf("%w: chunks %d to %d: %s", ErrPartial, p.From, p.To, fmt.Sprintf(format, args...))
	}
	switch {
	case p.Announcement != t.announcement:
		return refuse("of round %x, want %x", p.Announcement[:8], t.announcement[:8])
	case p.From < 0 || p.From >= p.To || p.To > t.chunks:
		return refuse("the batch has %d chunks", t.chunks)
	}
	at, there := slices.BinarySearchFunc(t.ranges, p.From, func(c chunks, from int64) int { return int(max(-1, min(1, c.from-from))) })
	switch {
	case there && t.ranges[at].to == p.To:
		return false, nil
	case there, at > 0 && t.ranges[at-1].to > p.From, at < len(t.ranges) && t.ranges[at].from < p.To:
		return refuse("they overlap with others")
	}
	if p.Accepted < 0 || p.WrongKey < 0 || p.OutOfRange < 0 {
		return refuse("%d messages accepted, %d and %d rejected", p.Accepted, p.WrongKey, p.OutOfRange)
	}
	left, distinct := t.messages-t.Tally.Accepted-t.Tally.Rejected, int64(0)
	if t.Tally.distinct != nil {
		distinct = p.Accepted
	}
	switch {
	// One after the other, because their sum may overflow.
	case p.Accepted > left || p.WrongKey > left-p.Accepted || p.OutOfRange > left-p.Accepted-p.WrongKey:
		return refuse("%d, %d and %d messages, the batch has %d more", p.Accepted, p.WrongKey, p.OutOfRange, left)
	case p.Accepted+p.WrongKey+p.OutOfRange < p.To-p.From:
		return refuse("%d messages, a chunk has one at least", p.Accepted+p.WrongKey+p.OutOfRange)
	case len(p.Sum) != len(t.Tally.Sum):
		return refuse("a sum of %d values, the mechanism has %d", len(p.Sum), len(t.Tally.Sum))
	case int64(len(p.Identities)) != distinct:
		return refuse("%d identities of %d messages", len(p.Identities), distinct)
	case !t.receipts && len(p.Receipts) > 0, int64(len(p.Receipts)) > p.Accepted+p.OutOfRange:
		return refuse("%d receipts of %d messages", len(p.Receipts), p.Accepted+p.OutOfRange)
	}
	for j, v := range p.Sum {
		if s := t.Tally.Sum[j]; v > 0 && s > math.MaxInt64-v || v < 0 && s < math.MinInt64-v {
			return refuse("value %d overflows", j)
		}
	}
	for j, v := range p.Sum {
		t.Tally.Sum[j] += v
	}
	t.Tally.Accepted += p.Accepted
	t.Tally.Rejected += p.WrongKey + p.OutOfRange
	t.WrongKey += p.WrongKey
	t.Tally.identities = append(t.Tally.identities, p.Identities...)
	t.Receipts = append(t.Receipts, p.Receipts...)
	t.ranges = slices.Insert(t.ranges, at, chunks{p.From, p.To})
	return true, nil
}

// Whole returns an error that wraps ErrPartial unless every chunk was added, and all messages with them.
func (t *Total) Whole() error {
	next := int64(0)
	for _, c := range t.ranges {
		if c.from != next {
			break
		}
		next = c.to
	}
	if next != t.chunks {
		return fmt.Errorf("%w: chunk %d of %d is missing", ErrPartial, next, t.chunks)
	}
	if n := t.Tally.Accepted + t.Tally.Rejected; n != t.messages {
		return fmt.Errorf("%w: %d messages in the chunks, %d were signed", ErrPartial, n, t.messages)
	}
	return nil
}

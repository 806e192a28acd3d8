package exchange

import (
	"context"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// Shares is one aggregator's part of a batch whose reports carry no proofs. Both aggregators leave
// out messages by the same rules.
type Shares struct {
	Reader batch.Reader
	Of     *vecsum.Shares
	Index  int          // the aggregator's
	Tokens *token.Round // nil if the task has none
	// Open opens a sealed part. Several goroutines call it.
	Open func(sealed []byte) (content []byte, with wire.Attached, err error)
}

// shown is an opened part.
type shown struct {
	content []byte // nil: it cannot be opened
	with    wire.Attached
	valid   bool // whether its token is valid, if the task has tokens
}

// Sum is a sum over a batch.
type Sum struct {
	*vecsum.Aggregator
	IDs     [][16]byte            // of the reports, by place
	Failed  []int64               // the places of those that could not be summed, in order
	Refused map[wire.Reason]int64 // why, with counts
}

// Sum opens and sums all parts but those at the places in out, which ascend.
func (s Shares) Sum(ctx context.Context, out []int64) (*Sum, error) {
	aggregator, err := s.Of.NewAggregator(s.Index)
	if err != nil {
		return nil, err
	}
	sum := &Sum{aggregator, make([][16]byte, s.Reader.Reports), nil, map[wire.Reason]int64{}}
	open := func(_ int, chunk wire.Chunk) ([]shown, error) {
		opened := make([]shown, chunk.Len())
		for i := range opened {
			o := &opened[i]
			if content, with, err := s.Open(chunk.Item(i)); err == nil {
				o.content, o.with = content, with
			}
			o.valid = o.content != nil && (s.Tokens == nil || s.Tokens.Valid(0, &o.with.Token))
		}
		return opened, nil
	}
	then := func(place int64, _ wire.Chunk, opened []shown) error {
		for i := range opened {
			at := place + int64(i)
			if _, skip := slices.BinarySearch(out, at); skip {
				continue
			}
			if at >= s.Reader.Reports {
				continue // the batch has more than was signed: batch.Read returns an error
			}
			if why := s.add(sum, &opened[i]); why != "" {
				sum.Failed = append(sum.Failed, at)
				sum.Refused[why]++
			} else if sum.IDs[at], err = s.Of.ReportID(opened[i].content, s.Index); err != nil {
				return err // ReportID cannot fail once Add has taken the content
			}
		}
		return nil
	}
	return sum, batch.Read(ctx, s.Reader, open, then)
}

// add adds a part, or says why it does not.
func (s Shares) add(sum *Sum, o *shown) wire.Reason {
	switch {
	case o.content == nil:
		return wire.OutOfRange
	case !o.valid:
		return wire.NoToken
	case s.Tokens != nil && !s.Tokens.Take(0, &o.with.Token):
		return wire.SpentToken
	case sum.Add(o.content) != nil:
		return wire.OutOfRange
	}
	return ""
}

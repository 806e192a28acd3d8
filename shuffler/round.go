// Package shuffler is the role that stands between clients and coordinator:
// it collects a round's reports, refuses duplicates, and releases them once,
// in a uniformly random order, or not at all.
//
// It decides on report ids alone. It must not reach anything that could open,
// make or interpret a report; layers_test.go holds it to that.
package shuffler

import (
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/rng"
	"github.com/riffle-dp/riffle/sample"
	"github.com/riffle-dp/riffle/wire"
)

// ErrTooFew is wrapped when a round closes below its minimum. The round is
// void: nothing of it is released.
var ErrTooFew = errors.New("too few reports")

// Round is the shuffler's state for one round: about 32 bytes a report.
type Round struct {
	ann     wire.Announcement
	block   cipher.Block
	tickets []tagged
	closed  bool
}

type tagged struct {
	hi, lo  uint64 // AES of the report id: equal only for equal ids
	payload int64
}

// Open starts a round. key permutes it: drawn for this round alone, known to
// the shuffler alone, and destroyed with the round.
func Open(ann wire.Announcement, key [16]byte) (*Round, error) {
	if ann.MinReports < 1 {
		return nil, fmt.Errorf("shuffler: minimum of %d reports must be at least 1", ann.MinReports)
	}
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, fmt.Errorf("shuffler: %v", err)
	}
	return &Round{ann: ann, block: block}, nil
}

// Draw chooses the k participants of a Sampled round, uniformly without
// replacement. It is the shuffler's to draw: amplification by sampling needs
// that the coordinator does not know who takes part.
func Draw(src rng.Source, ann wire.Announcement) []int {
	return sample.Subset(src, nil, int(ann.Population), int(ann.Sample))
}

// Accept takes a report. Whether its id was seen before is settled when the
// round closes.
func (r *Round) Accept(t wire.Ticket) error {
	if r.closed {
		return fmt.Errorf("shuffler: round %d is closed", r.ann.Round)
	}
	var tag [16]byte
	r.block.Encrypt(tag[:], t.ID[:])
	r.tickets = append(r.tickets, tagged{
		hi: binary.BigEndian.Uint64(tag[:8]), lo: binary.BigEndian.Uint64(tag[8:]), payload: t.Payload,
	})
	return nil
}

// Close ends the round and returns its permuted batch and how many duplicates
// were dropped. Sorting by a keyed permutation of distinct ids orders them
// uniformly (as far as AES is a random permutation), brings equal ids together
// and gives the same batch for the same reports, in whatever order they came.
func (r *Round) Close() (wire.Batch, int64, error) {
	if r.closed {
		return wire.Batch{}, 0, fmt.Errorf("shuffler: round %d is closed", r.ann.Round)
	}
	r.closed = true
	slices.SortFunc(r.tickets, compare)
	payloads := make([]int64, 0, len(r.tickets))
	var duplicates int64
	for i, t := range r.tickets {
		if i > 0 && t.hi == r.tickets[i-1].hi && t.lo == r.tickets[i-1].lo {
			duplicates++
			continue
		}
		payloads = append(payloads, t.payload)
	}
	r.tickets = nil
	if int64(len(payloads)) < r.ann.MinReports {
		return wire.Batch{}, duplicates, fmt.Errorf("shuffler: round %d has %d reports, the minimum is %d: %w",
			r.ann.Round, len(payloads), r.ann.MinReports, ErrTooFew)
	}
	return wire.Batch{Round: r.ann.Round, Payloads: payloads}, duplicates, nil
}

// compare orders by tag; the payload only decides which of two copies is
// kept, so that this does not depend on arrival.
func compare(a, b tagged) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo), cmp.Compare(a.payload, b.payload))
}

// Package shuffler is the role that stands between clients and coordinator: it collects a
// round's reports, keeps one of each client, and releases them once, in a uniformly random
// order, or not at all.
//
// Its decisions use only a report's sender and id. It must not reach anything that could
// open, make or interpret a report; layers_test.go enforces that.
//
// [Round] holds a round's tickets in memory. [Scatter], [Collect] and [Cutter] compute the
// same order and make the same choice for rounds larger than memory, over streams of items,
// and by several workers.
package shuffler

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// ErrTooFew is wrapped when a round closes below its minimum. The round is
// void: nothing of it is released.
var ErrTooFew = errors.New("too few reports")

// NewOrder returns a round's keyed permutation of 128-bit ids, AES-128. Ordering by it orders
// distinct ids uniformly, as far as AES is a random permutation. It is safe for concurrent
// use. The key is drawn for this round alone, known to the shuffler alone, and destroyed with
// the round.
func NewOrder(key [16]byte) cipher.Block {
	block, err := aes.NewCipher(key[:])
	if err != nil {
		panic("shuffler: " + err.Error()) // cannot fail: 16 bytes are a valid key
	}
	return block
}

// Tag appends a ticket's two tags: the image of its sender, which orders tickets and groups
// those of one sender, and the image of its report id. Without a sender the id takes the
// sender's place.
func Tag(order cipher.Block, dst []byte, sender, id wire.ID) []byte {
	at := len(dst)
	if sender == (wire.ID{}) {
		sender = id
	}
	// Encrypted in place, so that nothing has to be allocated.
	dst = append(append(dst, sender[:]...), id[:]...)
	order.Encrypt(dst[at:at+16], dst[at:at+16])
	order.Encrypt(dst[at+16:], dst[at+16:])
	return dst
}

// Dropped counts the reports that were accepted but are not in the batch.
type Dropped struct {
	Duplicates int64 // the same client's report with the same id again
	Second     int64 // another report of a client that has one in the batch
}

// Round is the shuffler's state for one round: 40 bytes a report.
type Round struct {
	ann     wire.Announcement
	order   cipher.Block
	parts   Parts
	tickets []tagged
	closed  bool
}

type tagged struct {
	hi, lo     uint64 // image of the sender, or of the id if there is none
	idHi, idLo uint64 // image of the id; equal for equal ids only
	payload    int64
}

// Open starts a round. key permutes its reports; see NewOrder and NewParts.
func Open(ann wire.Announcement, key [16]byte) (*Round, error) {
	if ann.MinReports < 1 {
		return nil, fmt.Errorf("shuffler: minimum of %d reports must be at least 1", ann.MinReports)
	}
	return &Round{ann: ann, order: NewOrder(key), parts: NewParts(key, ann.PerClient())}, nil
}

// Accept takes a report. Whether its sender or its id was seen before is decided when the
// round closes. Either all tickets of a round have a sender or none has.
func (r *Round) Accept(t wire.Ticket) error {
	if r.closed {
		return fmt.Errorf("shuffler: round %d is closed", r.ann.Round)
	}
	var tag [TagSize]byte
	Tag(r.order, tag[:0], t.Sender, t.ID)
	r.tickets = append(r.tickets, tagged{
		hi: binary.BigEndian.Uint64(tag[:8]), lo: binary.BigEndian.Uint64(tag[8:16]),
		idHi: binary.BigEndian.Uint64(tag[16:24]), idLo: binary.BigEndian.Uint64(tag[24:]), payload: t.Payload,
	})
	return nil
}

// Close ends the round and returns its permuted batch and the counts of what was dropped. Of
// a client's reports it keeps the one whose id has the smallest image. Sorting by a keyed
// permutation of distinct clients orders them uniformly, groups each client's reports, and
// gives the same batch for the same reports in whatever order they came. The parts of reports
// of several messages are ordered each by a key of its own; see Parts.
func (r *Round) Close() (wire.Batch, Dropped, error) {
	if r.closed {
		return wire.Batch{}, Dropped{}, fmt.Errorf("shuffler: round %d is closed", r.ann.Round)
	}
	r.closed = true
	slices.SortFunc(r.tickets, compare)
	m := r.ann.PerClient()
	b := wire.Batch{Round: r.ann.Round, Messages: m, Payloads: make([]int64, 0, m*int64(len(r.tickets)))}
	kept := r.tickets[:0] // filled for several messages only
	var dropped Dropped
	var before tagged
	for i, t := range r.tickets {
		last := before
		before = t
		if i > 0 && t.hi == last.hi && t.lo == last.lo {
			if t.idHi == last.idHi && t.idLo == last.idLo {
				dropped.Duplicates++
			} else {
				dropped.Second++
			}
			continue
		}
		b.Payloads = append(b.Payloads, t.payload)
		if m > 1 {
			kept = append(kept, t)
		}
	}
	r.tickets = nil
	if k := len(b.Payloads); int64(k) < r.ann.MinReports {
		return wire.Batch{}, dropped, fmt.Errorf("shuffler: round %d has %d reports, the minimum is %d: %w",
			r.ann.Round, k, r.ann.MinReports, ErrTooFew)
	}
	for j := 1; j < int(m); j++ {
		b.Payloads = r.parts.run(b.Payloads, kept, j)
	}
	return b, dropped, nil
}

// run appends the payloads of the tickets in the order of part j.
func (p Parts) run(dst []int64, kept []tagged, j int) []int64 {
	type place struct {
		image   [16]byte
		payload int64
	}
	places := make([]place, len(kept))
	for i, t := range kept {
		var first [16]byte
		binary.BigEndian.PutUint64(first[:8], t.hi)
		binary.BigEndian.PutUint64(first[8:], t.lo)
		places[i] = place{p.image(j, first), t.payload}
	}
	slices.SortFunc(places, func(a, b place) int { return bytes.Compare(a.image[:], b.image[:]) })
	for _, at := range places {
		dst = append(dst, at.payload)
	}
	return dst
}

// compare orders by tags. The payload only decides which of two copies is kept, so that the
// choice does not depend on arrival.
func compare(a, b tagged) int {
	return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo), cmp.Compare(a.idHi, b.idHi), cmp.Compare(a.idLo, b.idLo),
		cmp.Compare(a.payload, b.payload))
}

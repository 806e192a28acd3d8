package wire

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
)

// Receipts heads the list of the receipts that a coordinator detached from a round's messages.
// The list follows the signed head, 16 bytes a receipt. The coordinator signs the head under
// LabelReceipts.
type Receipts struct {
	Announcement [32]byte
	Closed       [32]byte // digest of the shuffler's word on the round
	// Whole is the number of the list's first receipts: those of messages of which every part was
	// opened. Half is the number of the others, in a vector sum: the coordinator opened its part,
	// and the aggregator named no such receipt. Each of the two runs ascends.
	Whole, Half int64
	// Unopened is the number of messages that the coordinator could not open. They have no receipt.
	Unopened int64
	List     [32]byte // SHA-256 of the list
}

// ReceiptsHead is the size of a signed head.
const ReceiptsHead = 64 + 2 + 2*32 + 3*8 + 32

func (*Receipts) kind() byte { return KindReceipts }

func (*Receipts) label() Label { return LabelReceipts }

func (m *Receipts) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Closed[:])
	for _, n := range []*int64{&m.Whole, &m.Half, &m.Unopened} {
		if c.count("receipts", n); c.read() && *n > maxReceipts {
			c.fail("%d receipts", *n)
		}
	}
	c.fixed(m.List[:])
}

// maxReceipts keeps sums of counts and sizes of lists from overflowing.
const maxReceipts = 1 << 48

// Len returns the number of receipts in the list.
func (m Receipts) Len() int64 { return m.Whole + m.Half }

// SortReceipts encodes receipts in their order in a list.
func SortReceipts(list []ID) []byte {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	out := make([]byte, 0, len(ID{})*len(list))
	for _, r := range list {
		out = append(out, r[:]...)
	}
	return out
}

// CheckReceipts returns an error unless b is receipts in ascending order.
func CheckReceipts(b []byte) error {
	const size = len(ID{})
	if len(b)%size != 0 {
		return fmt.Errorf("%w: %d bytes of receipts", ErrMalformed, len(b))
	}
	for ; len(b) > size; b = b[size:] {
		if bytes.Compare(b[:size], b[size:2*size]) > 0 {
			return fmt.Errorf("%w: receipts that do not ascend", ErrMalformed)
		}
	}
	return nil
}

// receiptReader checks a list that arrives in pieces against its head. It holds none of it.
type receiptReader struct {
	head Receipts
	sum  interface {
		io.Writer
		Sum([]byte) []byte
	}
	seen int64
	last ID
}

// NewReceiptReader returns a reader of the list under a head.
func NewReceiptReader(head Receipts) *receiptReader {
	return &receiptReader{head: head, sum: sha256.New()}
}

// Add reads the next piece, whole receipts, and calls see for each.
func (r *receiptReader) Add(piece []byte, see func(receipt ID, whole bool)) error {
	if len(piece)%len(ID{}) != 0 {
		return fmt.Errorf("%w: %d bytes of receipts", ErrMalformed, len(piece))
	}
	_, _ = r.sum.Write(piece) // it does not fail
	for receipt := range slices.Chunk(piece, len(ID{})) {
		id := ID(receipt)
		switch {
		case r.seen == r.head.Len():
			return fmt.Errorf("%w: more receipts than the %d of the signed head", ErrMalformed, r.seen)
		case r.seen != 0 && r.seen != r.head.Whole && bytes.Compare(id[:], r.last[:]) < 0:
			return fmt.Errorf("%w: receipts that do not ascend", ErrMalformed)
		}
		see(id, r.seen < r.head.Whole)
		r.last = id
		r.seen++
	}
	return nil
}

// Close returns an error unless the whole list was read, and is the one that the head names.
func (r *receiptReader) Close() error {
	switch {
	case r.seen != r.head.Len():
		return fmt.Errorf("%w: %d receipts, the signed head has %d", ErrMalformed, r.seen, r.head.Len())
	case [32]byte(r.sum.Sum(nil)) != r.head.List:
		return fmt.Errorf("%w: the receipts are not those of the signed head", ErrMalformed)
	}
	return nil
}

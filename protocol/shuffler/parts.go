package shuffler

import (
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
)

// Parts orders the parts of reports of several messages, so that nobody can link the parts of
// one report. The batch has all first parts in the order of the round, then all second parts in
// an order of their own, and so on. Each order is a keyed permutation of the reports' places in
// the round's order, with a key of its own. It is safe for concurrent use.
type Parts struct {
	orders []cipher.Block // of the second part and of those after it
}

// NewParts returns the orders for reports that have the given number of parts, at least 1. The
// key is drawn for this round alone, known to the shuffler alone, and destroyed with the batch.
func NewParts(key [16]byte, parts int64) Parts {
	p := Parts{orders: make([]cipher.Block, 0, parts-1)}
	for j := range uint64(parts - 1) {
		h := sha256.New()
		h.Write([]byte("riffle order of a part\x00"))
		h.Write(key[:])
		h.Write(binary.LittleEndian.AppendUint64(nil, j+1))
		p.orders = append(p.orders, NewOrder([16]byte(h.Sum(nil))))
	}
	return p
}

// image returns the value by which part j, counted from 0, is sorted; first is the first tag of
// the part's report.
func (p Parts) image(j int, first [16]byte) (out [16]byte) {
	if j == 0 {
		return first
	}
	p.orders[j-1].Encrypt(out[:], first[:])
	return out
}

// Split yields the parts of an item, which Gather has yielded, as items of their own: each has a
// tag, and then its part. Scatter and Gather then sort the parts of all reports into the order
// of the batch. A part that is yielded is valid until the next one. Split returns false when
// yield does.
func (p Parts) Split(item []byte, yield func(part []byte) bool) bool {
	n := uint64(len(p.orders) + 1)
	first, rest := [16]byte(item), item[TagSize:]
	size := len(rest) / int(n)
	out := make([]byte, TagSize+size)
	for j := range n {
		image := p.image(int(j), first)
		// The tag is the image, less than 2^128, plus j times 2^128, divided by the number of
		// parts: 16 bytes of quotient, and the remainder. So it is uniform over all items.
		hi, r := bits.Div64(j, binary.BigEndian.Uint64(image[:8]), n)
		lo, r := bits.Div64(r, binary.BigEndian.Uint64(image[8:]), n)
		binary.BigEndian.PutUint64(out, hi)
		binary.BigEndian.PutUint64(out[8:], lo)
		binary.BigEndian.PutUint64(out[16:], r)
		copy(out[TagSize:], rest[int(j)*size:])
		if !yield(out) {
			return false
		}
	}
	return true
}

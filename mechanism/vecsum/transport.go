package vecsum

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Transport carries the counts of all clients to an analyzer that must learn their sums and
// nothing else. There are three kinds: [Shares] and the transports of [NewBits] and [NewMix].
// For the same counts all give the same sums.
type Transport interface {
	// Messages returns one client's messages. Their number and sizes are those of Size,
	// whatever the counts. In production src is rng.Secure.
	Messages(src rng.Source, counts []int64) ([][]byte, error)
	// Sum takes the messages of a whole round in any order. It returns the summed counts and
	// the number of clients, or an error and no counts.
	Sum(messages [][]byte) (counts []int64, clients int64, err error)
	// Size returns how many messages a client sends and their bytes together,
	// before encryption.
	Size() (messages, bytes int64)
	// Distance is the transport's contribution to [Curve.Distance] in each round.
	Distance() float64
}

// RoundID names a round; no two rounds of a task may share one.
type RoundID [16]byte

// format is the common part of all transports of a round.
type format struct {
	params Params
	tag    [16]byte // binds messages to the round and its parameters
	bits   int      // log₂ of the modulus
	mask   uint64
}

// maxModulus bounds log₂ q, so that packing works in 64-bit words.
const maxModulus = 56

func newFormat(p Params, round RoundID, kind string) (format, error) {
	if err := p.Validate(); err != nil {
		return format{}, err
	}
	p = p.withDefaults()
	f := format{params: p, bits: p.Modulus()}
	if f.bits > maxModulus {
		return format{}, fmt.Errorf("vecsum: sums of %d users need a modulus of 2^%d, above 2^%d", p.Users, f.bits, maxModulus)
	}
	f.mask = 1<<f.bits - 1
	f.tag = p.Tag(round, kind)
	return f, nil
}

// Tag binds the messages of one round to its parameters and to the named transport. Two tags
// are equal only if all three are equal.
func (p Params) Tag(round RoundID, transport string) (tag [16]byte) {
	p = p.withDefaults()
	h := sha256.New()
	h.Write([]byte("riffle/vecsum round 1 " + transport + "\x00"))
	h.Write(round[:])
	split := uint64(0)
	if p.Split {
		split = 1
	}
	for _, w := range []uint64{
		uint64(p.Users), uint64(p.MinUsers), math.Float64bits(p.Honest), uint64(p.Dim), math.Float64bits(p.Radius),
		uint64(p.Grid), uint64(p.Norm), uint64(p.Noise.Bits), math.Float64bits(p.Noise.p()),
		math.Float64bits(p.Noise.Variance), split,
	} {
		h.Write(binary.LittleEndian.AppendUint64(nil, w))
	}
	h.Write([]byte(p.Noise.Kind))
	copy(tag[:], h.Sum(nil))
	return tag
}

// check refuses counts that no encoder makes.
func (f *format) check(counts []int64) error {
	if len(counts) != f.params.Streams() {
		return fmt.Errorf("vecsum: %d counts for %d streams", len(counts), f.params.Streams())
	}
	if f.params.Noise.Kind != Binomial {
		return nil // unbounded noise: single counts are taken modulo q, like their sum
	}
	limit, err := f.params.MaxCount()
	if err != nil {
		return err
	}
	for j, c := range counts {
		if c > limit || c < 0 {
			return fmt.Errorf("vecsum: count %d is outside its range", j)
		}
	}
	return nil
}

// open turns sums modulo q into counts: it takes the representatives from −offset on.
func (f *format) open(sums []uint64, clients int64) ([]int64, error) {
	if err := f.params.CheckCohort(clients); err != nil {
		return nil, err
	}
	offset := f.params.offset()
	counts := make([]int64, len(sums))
	for j, s := range sums {
		counts[j] = int64((s+uint64(offset))&f.mask) - offset
	}
	return counts, nil
}

func draw16(src rng.Source) (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], src.Uint64())
	binary.LittleEndian.PutUint64(id[8:], src.Uint64())
	return id
}

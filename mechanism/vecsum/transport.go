package vecsum

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Transport carries the counts of all clients to an analyzer that must learn their sums and
// nothing else. There are three kinds: [Shares] and those of [NewShuffled]. For the same counts
// all give the same sums.
type Transport interface {
	// Messages returns one client's messages. Their number and sizes are those of Cost,
	// whatever the counts. In production src is rng.Secure.
	Messages(src rng.Source, counts []int64) ([][]byte, error)
	// Sum takes the messages of a whole round in any order. It returns the summed counts and
	// the number of clients, or an error and no counts.
	Sum(messages [][]byte) (counts []int64, clients int64, err error)
	// Cost says what a round over the transport costs.
	Cost() Cost
}

// Cost is what one round over a transport costs.
type Cost struct {
	Messages, Bytes int64   // that a client sends; the bytes of all together, before encryption
	Distance        float64 // the contribution to [Curve.Distance]
}

// Config describes a transport of one round.
type Config struct {
	Params Params  // required
	Round  RoundID // required
	// Aggregators is S of [NewShares], 2 or 3; 0 means 2.
	Aggregators int
	// Security is σ of the transport [Mix], between 20 and 120: the view is within 2^−σ of one
	// that depends on the sums only, over all coordinates; 0 means 40.
	Security int
}

// The transports of [NewShuffled], which send many small messages to one honest shuffler.
const (
	Bits = "bits" // one message for each bit, the paper's; the reference, for small d and binomial noise
	Mix  = "mix"  // split-and-mix: each count is split into shares modulo q
)

// NewShuffled returns the transport of that name.
func NewShuffled(name string, c Config) (Transport, error) {
	switch name {
	case Bits:
		return newBits(c)
	case Mix:
		return newMix(c)
	}
	return nil, fmt.Errorf("vecsum: transport %q must be %s or %s", name, Bits, Mix)
}

// RoundID names a round; no two rounds of a task may share one.
type RoundID [16]byte

// format is the common part of all transports of a round.
type format struct {
	params Params
	tag    [16]byte // binds messages to the round and its parameters
	bits   int      // log₂ of the modulus
	mask   uint64
	cost   Cost
}

// Cost implements [Transport].
func (f *format) Cost() Cost { return f.cost }

// maxModulus bounds log₂ q, so that packing works in 64-bit words.
const maxModulus = 56

func newFormat(c Config, kind string) (format, error) {
	p := c.Params
	if err := p.Validate(); err != nil {
		return format{}, err
	}
	p = p.withDefaults()
	f := format{params: p, bits: p.Modulus()}
	if f.bits > maxModulus {
		return format{}, fmt.Errorf("vecsum: sums of %d users need a modulus of 2^%d, above 2^%d", p.Users, f.bits, maxModulus)
	}
	f.mask = 1<<f.bits - 1
	f.tag = p.Tag(c.Round, kind)
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
	if p.Ones != 0 {
		h.Write(binary.LittleEndian.AppendUint64([]byte("\x00ones"), uint64(p.Ones)))
	}
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

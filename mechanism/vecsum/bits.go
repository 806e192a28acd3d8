package vecsum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// BitsConfig describes the transport that [NewBits] makes.
type BitsConfig struct {
	Params Params  // required, with binomial noise
	Round  RoundID // required
	// OnesOnly sends one token for each one, padded with dummies to a fixed number of tokens,
	// instead of one message for each bit. It is meant for Params.Split.
	OnesOnly bool
	// Overflow is the allowed probability that a client has more ones than tokens, so that
	// some ones are left out; 0 means 2^−80. Only with OnesOnly.
	Overflow float64
}

// bitTransport is the reference transport, the paper's: every bit is a message of its own to
// one honest shuffler, labelled with its coordinate. It is meant for small d.
//
// With OnesOnly each one is a token, and zeros are not sent: they carry no information once
// the number of tokens is fixed. A client with more ones than tokens leaves some out, at
// random; the distance accounts for it, by a union bound over Users.
type bitTransport struct {
	format
	each int64 // number of messages that a client sends
	ones bool
}

// NewBits validates c and returns the transport of single bits.
func NewBits(c BitsConfig) (Transport, error) {
	if c.OnesOnly && c.Overflow == 0 {
		c.Overflow = 0x1p-80
	}
	// The number of tokens depends on OnesOnly and Overflow, so all clients must agree on
	// both.
	f, err := newFormat(c.Params, c.Round, fmt.Sprint("bits ", c.OnesOnly, " ", c.Overflow))
	if err != nil {
		return nil, err
	}
	if f.params.Noise.Kind != Binomial {
		return nil, fmt.Errorf("vecsum: bits cannot carry %s noise, which has no largest value: %w", f.params.Noise.Kind, dp.ErrNoBound)
	}
	b, distance := &bitTransport{format: f, ones: c.OnesOnly}, 0.
	all := float64(f.params.Streams()) * (float64(f.params.top()) + float64(f.params.Noise.Bits))
	if !c.OnesOnly {
		if c.Overflow != 0 {
			return nil, fmt.Errorf("vecsum: overflow = %v given where all bits are sent", c.Overflow)
		}
		b.each = int64(all)
	} else {
		if !(c.Overflow >= 1e-100 && c.Overflow <= 1e-3) {
			return nil, fmt.Errorf("vecsum: overflow = %v must lie between 1e-100 and 1e-3", c.Overflow)
		}
		distance = c.Overflow * float64(b.params.Users) * (1 + 0x1p-50)
		b.each = int64(math.Min(all, f.params.onesBound(c.Overflow)))
	}
	if all > 1<<53 {
		return nil, fmt.Errorf("vecsum: %g bits of a client's counts are more than 2^53", all)
	}
	return newShuffled(shuffled{&b.format, b.each, tokenSize, distance, b})
}

// onesBound returns a number of ones that one client exceeds with probability at
// most beta: the largest sum of its rounded coordinates, by Cauchy's inequality
// from the norm check, and Chernoff's bound for the noise.
func (p Params) onesBound(beta float64) float64 {
	d, norm := float64(p.Dim), math.Sqrt(float64(p.Norm))
	sum := math.Sqrt(d)*norm/2 + 1
	if !p.Split {
		sum += d * float64(p.Grid) / 2
	}
	n, prob := int64(p.Streams())*p.Noise.Bits, p.Noise.p()
	_, hi := tail.Window(n, prob, 1-prob, .5, beta)
	return math.Floor(sum) + float64(hi)
}

// A token has a tag (16 bytes), a stream (4 bytes, little endian) and a value (1 byte). In a
// dummy, stream and value are all ones.
const (
	tokenSize   = 16 + 4 + 1
	dummyStream = math.MaxUint32
	dummyValue  = math.MaxUint8
)

func (b *bitTransport) token(stream uint32, value byte) []byte {
	m := append(make([]byte, 0, tokenSize), b.tag[:]...)
	return append(binary.LittleEndian.AppendUint32(m, stream), value)
}

func (b *bitTransport) split(_ rng.Source, counts []int64) [][]byte {
	width := b.params.top() + b.params.Noise.Bits
	out := make([][]byte, 0, b.each)
	for j, c := range counts {
		for k := range width {
			switch {
			case k < c:
				out = append(out, b.token(uint32(j), 1))
			case !b.ones:
				out = append(out, b.token(uint32(j), 0))
			}
			if b.ones && k >= c {
				break
			}
		}
	}
	for int64(len(out)) < b.each {
		out = append(out, b.token(dummyStream, dummyValue))
	}
	return out
}

// join counts the ones of each stream. In a round of all bits each stream must have as many
// messages as its clients send.
func (b *bitTransport) join(messages [][]byte, n int64) ([]int64, error) {
	streams := b.params.Streams()
	counts, bits := make([]int64, streams), make([]int64, streams)
	for _, m := range messages {
		if len(m) != tokenSize {
			return nil, fmt.Errorf("vecsum: token of %d bytes, not %d", len(m), tokenSize)
		}
		if !bytes.Equal(m[:16], b.tag[:]) {
			return nil, errors.New("vecsum: token from another round or of other parameters")
		}
		stream, value := binary.LittleEndian.Uint32(m[16:]), m[20]
		switch {
		case b.ones && stream == dummyStream && value == dummyValue:
			continue
		case stream >= uint32(streams):
			return nil, fmt.Errorf("vecsum: token of stream %d of %d", stream, streams)
		case value == 1:
			counts[stream]++
		case value != 0 || b.ones:
			return nil, fmt.Errorf("vecsum: token with value %d", value)
		}
		bits[stream]++
	}
	most := n * (b.params.top() + b.params.Noise.Bits)
	for j, have := range bits {
		if have > most || !b.ones && have != most {
			return nil, fmt.Errorf("vecsum: stream %d has %d messages, not %d", j, have, most)
		}
	}
	return counts, nil
}

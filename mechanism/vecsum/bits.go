package vecsum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
)

// bitTransport is the reference transport, the paper's: every bit is a message of its own to
// one honest shuffler, labelled with its coordinate. It is meant for small d.
type bitTransport struct {
	format
	each int64 // number of messages that a client sends
}

// newBits returns the transport of single bits.
func newBits(c Config) (Transport, error) {
	f, err := newFormat(c, "bits false 0")
	if err != nil {
		return nil, err
	}
	if f.params.Noise.Kind != Binomial {
		return nil, fmt.Errorf("vecsum: bits cannot carry %s noise, which has no largest value: %w", f.params.Noise.Kind, dp.ErrNoBound)
	}
	all := float64(f.params.Streams()) * (float64(f.params.top()) + float64(f.params.Noise.Bits))
	if all > 1<<53 {
		return nil, fmt.Errorf("vecsum: %g bits of a client's counts are more than 2^53", all)
	}
	b := &bitTransport{f, int64(all)}
	return newShuffled(&b.format, b, Cost{Messages: b.each, Bytes: b.each * tokenSize})
}

// tokenSize is the size of a message, a token: a tag (16 bytes), a stream (4 bytes, little
// endian) and a value (1 byte).
const tokenSize = 16 + 4 + 1

func (b *bitTransport) token(stream uint32, value byte) []byte {
	m := append(make([]byte, 0, tokenSize), b.tag[:]...)
	return append(binary.LittleEndian.AppendUint32(m, stream), value)
}

func (b *bitTransport) split(_ rng.Source, counts []int64) [][]byte {
	width := b.params.top() + b.params.Noise.Bits
	out := make([][]byte, 0, b.each)
	for j, c := range counts {
		for k := range width {
			value := byte(0)
			if k < c {
				value = 1
			}
			out = append(out, b.token(uint32(j), value))
		}
	}
	return out
}

// join counts the ones of each stream. Each stream must have as many messages as its clients
// send.
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
		case stream >= uint32(streams):
			return nil, fmt.Errorf("vecsum: token of stream %d of %d", stream, streams)
		case value == 1:
			counts[stream]++
		case value != 0:
			return nil, fmt.Errorf("vecsum: token with value %d", value)
		}
		bits[stream]++
	}
	most := n * (b.params.top() + b.params.Noise.Bits)
	for j, have := range bits {
		if have != most {
			return nil, fmt.Errorf("vecsum: stream %d has %d messages, not %d", j, have, most)
		}
	}
	return counts, nil
}

package vecsum

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// mixTransport is split-and-mix [Ishai et al. 2006; Balle et al. 2020]: each count is split into k
// shares modulo q. The shares go to one honest shuffler, labelled with their coordinate.
//
// The number of shares is the smallest for which mix.md proves that the view, given the
// guaranteed honest clients' sums, is all but independent of their inputs. For up to a
// million clients it is no larger than the number in Balle, Bell, Gascón, Nissim, "Private
// Summation in the Multi-Message Shuffle Model", CCS 2020, as far as we recall it; for 2^30
// it can be two more.
//
// The shuffler must pass nothing on unless MinUsers … Users clients sent it all
// their messages. Sum checks that too, but its caller has seen the shares already.
type mixTransport struct {
	format
	shares int // messages for each coordinate
}

// newMix returns the transport by split-and-mix.
func newMix(c Config) (Transport, error) {
	if c.Security == 0 {
		c.Security = 40
	}
	if c.Security < 20 || c.Security > 120 {
		return nil, fmt.Errorf("vecsum: security = %d must lie between 20 and 120", c.Security)
	}
	f, err := newFormat(c, fmt.Sprint("mix ", c.Security))
	if err != nil {
		return nil, err
	}
	k, err := mixShares(f.params.guaranteed(), f.bits, float64(c.Security)+math.Log2(float64(f.params.Streams())))
	if err != nil {
		return nil, err
	}
	m := &mixTransport{f, k}
	// The distance is a union bound over all coordinates; mix.md.
	each := int64(f.params.Streams()) * int64(k)
	return newShuffled(&m.format, m, Cost{Messages: each, Bytes: each * mixSize, Distance: math.Ldexp(1, -c.Security)})
}

// mixSize is the size of a message: a tag (16 bytes), a stream (4 bytes, little endian) and a
// share (8 bytes, below q).
const mixSize = 16 + 4 + 8

func (m *mixTransport) split(src rng.Source, counts []int64) [][]byte {
	out := make([][]byte, 0, len(counts)*m.shares)
	for j, c := range counts {
		rest := uint64(c)
		for i := range m.shares {
			share := rest
			if i < m.shares-1 {
				share = src.Uint64()
				rest -= share
			}
			b := append(make([]byte, 0, mixSize), m.tag[:]...)
			b = binary.LittleEndian.AppendUint32(b, uint32(j))
			out = append(out, binary.LittleEndian.AppendUint64(b, share&m.mask))
		}
	}
	return out
}

// join adds the shares of each coordinate; every coordinate must have the same number.
func (m *mixTransport) join(messages [][]byte, n int64) ([]int64, error) {
	sums := make([]uint64, m.params.Streams())
	have := make([]int64, len(sums))
	for _, b := range messages {
		if len(b) != mixSize {
			return nil, fmt.Errorf("vecsum: share of %d bytes, not %d", len(b), mixSize)
		}
		if !bytes.Equal(b[:16], m.tag[:]) {
			return nil, errors.New("vecsum: share from another round or of other parameters")
		}
		stream, share := binary.LittleEndian.Uint32(b[16:]), binary.LittleEndian.Uint64(b[20:])
		if stream >= uint32(len(sums)) {
			return nil, fmt.Errorf("vecsum: share of stream %d of %d", stream, len(sums))
		}
		if share > m.mask {
			return nil, fmt.Errorf("vecsum: share above the modulus 2^%d", m.bits)
		}
		sums[stream] += share
		have[stream]++
	}
	for j, h := range have {
		if h != n*int64(m.shares) {
			return nil, fmt.Errorf("vecsum: unequal shares: stream %d has %d, not %d", j, h, n*int64(m.shares))
		}
	}
	return m.open(sums, n)
}

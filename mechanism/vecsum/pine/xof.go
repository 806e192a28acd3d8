package pine

import (
	"bytes"
	"encoding/binary"

	"github.com/cloudflare/circl/simd/keccakf1600"
)

// stream is a string of pseudorandom bytes without an end.
type stream interface{ read(dst []byte) }

// xof expands a seed of a fixed size and further strings into a stream. The first string is
// a tag that separates uses of one seed.
type xof struct {
	seed int // bytes
	open func(seed, tag []byte, binder ...[]byte) stream
}

// turboShake is XofTurboShake128 of draft-irtf-cfrg-vdaf-11: TurboSHAKE128 (RFC 9861), domain
// 1, of the tag's length in one byte, tag, seed and binder.
var turboShake = xof{seed: 16, open: func(seed, tag []byte, binder ...[]byte) stream {
	s := newSponge()
	s.write([]byte{byte(len(tag))})
	s.write(tag)
	s.write(seed)
	for _, b := range binder {
		s.write(b)
	}
	s.finish(1)
	return s
}}

const rate = 168 // bytes of TurboSHAKE128 between two permutations

// sponge is TurboSHAKE128 on CIRCL's permutation, which works on several states at a time.
// Only the first is used.
type sponge struct {
	four   keccakf1600.StateX4
	two    keccakf1600.StateX2
	state  []uint64 // all states, interleaved
	lanes  int
	buffer [rate]byte
	filled int // bytes of the buffer that are absorbed, or have been read
}

func newSponge() *sponge {
	s := &sponge{lanes: 2}
	if keccakf1600.IsEnabledX4() {
		s.lanes = 4
		s.state = s.four.Initialize(true)
	} else {
		s.state = s.two.Initialize(true)
	}
	return s
}

var zeros [128]byte

func (s *sponge) permute() {
	if s.lanes == 4 {
		s.four.Permute()
		// Its AVX2 code leaves the upper halves of registers in use. Until they are cleared SSE
		// instructions are slow, SHA-256 a hundred times. This search ends with clearing them.
		bytes.IndexByte(zeros[:], 1)
	} else {
		s.two.Permute()
	}
}

func (s *sponge) absorb() {
	for i := range rate / 8 {
		s.state[i*s.lanes] ^= binary.LittleEndian.Uint64(s.buffer[8*i:])
	}
	s.permute()
	s.filled = 0
}

func (s *sponge) write(b []byte) {
	for len(b) > 0 {
		n := copy(s.buffer[s.filled:], b)
		s.filled += n
		b = b[n:]
		if s.filled == rate {
			s.absorb()
		}
	}
}

// finish ends the input with the domain's byte and the padding.
func (s *sponge) finish(domain byte) {
	clear(s.buffer[s.filled:])
	s.buffer[s.filled] = domain
	s.buffer[rate-1] ^= 0x80
	s.absorb()
	s.filled = rate
	s.squeeze()
}

func (s *sponge) squeeze() {
	for i := range rate / 8 {
		binary.LittleEndian.PutUint64(s.buffer[8*i:], s.state[i*s.lanes])
	}
	s.filled = 0
}

func (s *sponge) read(dst []byte) {
	for len(dst) > 0 {
		if s.filled == rate {
			s.permute()
			s.squeeze()
		}
		n := copy(dst, s.buffer[s.filled:])
		s.filled += n
		dst = dst[n:]
	}
}

// derive returns a new seed.
func (x xof) derive(seed, tag []byte, binder ...[]byte) []byte {
	out := make([]byte, x.seed)
	x.open(seed, tag, binder...).read(out)
	return out
}

// fill draws elements: strings of their size, of which those that are not below the modulus
// are left out.
func fill[E element[E]](dst []E, from stream) {
	var f E
	n := f.size()
	raw := make([]byte, min(len(dst), 512)*n)
	for len(dst) > 0 {
		raw = raw[:min(len(dst)*n, len(raw))]
		from.read(raw)
		for b := raw; len(b) > 0; b = b[n:] {
			if x, ok := f.read(b); ok {
				dst[0] = x
				dst = dst[1:]
			}
		}
	}
}

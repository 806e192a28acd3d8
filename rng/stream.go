package rng

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"math/bits"
	"unsafe"
)

// streamWords is how far a Stream reads ahead for Uint64. Small, because many
// clients draw only a few words; Fill does not read ahead.
const streamWords = 32

// Replay returns the stream that belongs to seed and path, for instance
// Replay(seed, run, round, client). Equal arguments give equal streams on every
// machine; different ones give unrelated streams, also where one path is the
// beginning of another. The result does not depend on what other streams did.
//
// For simulations and tests only: it must never reach production noise.
func Replay(seed uint64, path ...uint64) Source { return NewStream(seed, path...) }

// Stream is the type behind [Replay], for callers that visit many paths of one
// seed: [Stream.Reset] moves to another path for less than a new Replay costs.
//
// The stream is AES-128 in counter mode. The key is a hash of the seed, the
// first counter a 128-bit hash of seed and path, so two streams could overlap
// only with probability about (number of streams)² · (blocks in each) / 2^127.
// AES-CTR was taken instead of math/rand/v2's ChaCha8 because it gives five
// times as many words per second where the CPU has AES instructions.
type Stream struct {
	seed  uint64
	block cipher.Block
	ctr   cipher.Stream
	buf   [streamWords]uint64
	next  int
}

// NewStream returns the stream of seed and path; see [Replay].
func NewStream(seed uint64, path ...uint64) *Stream {
	key := digest("riffle/rng key 1", seed, nil)
	block, err := aes.NewCipher(key[:16])
	if err != nil {
		panic("rng: 16 bytes refused as an AES key: " + err.Error())
	}
	s := &Stream{seed: seed, block: block}
	s.Reset(path...)
	return s
}

// Reset moves s to the beginning of the stream Replay(seed, path...), where
// seed is the one s was made with.
func (s *Stream) Reset(path ...uint64) {
	iv := digest("riffle/rng path1", s.seed, path)
	s.ctr = cipher.NewCTR(s.block, iv[:16])
	s.next = streamWords
}

// Uint64 returns the next word.
func (s *Stream) Uint64() uint64 {
	if s.next == streamWords {
		s.read(s.buf[:])
		s.next = 0
	}
	w := s.buf[s.next&(streamWords-1)]
	s.next++
	return w
}

// Fill stores the next len(dst) words.
func (s *Stream) Fill(dst []uint64) {
	n := copy(dst, s.buf[s.next:])
	s.next += n
	s.read(dst[n:])
}

// read stores the next words of the counter mode, little-endian everywhere.
func (s *Stream) read(dst []uint64) {
	if len(dst) == 0 {
		return
	}
	b := bytesOf(dst)
	clear(b)
	s.ctr.XORKeyStream(b, b)
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		for i, w := range dst {
			dst[i] = bits.ReverseBytes64(w)
		}
	}
}

// digest hashes label, seed and path. The path's length is part of the input,
// so no path is confused with another's beginning.
func digest(label string, seed uint64, path []uint64) [sha256.Size]byte {
	var space [128]byte // paths up to 12 words need no allocation
	b := append(space[:0], label...)
	b = binary.LittleEndian.AppendUint64(b, seed)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(path)))
	for _, p := range path {
		b = binary.LittleEndian.AppendUint64(b, p)
	}
	return sha256.Sum256(b)
}

// bytesOf views words as bytes. dst must not be empty.
func bytesOf(dst []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&dst[0])), 8*len(dst))
}

package rng

import "crypto/rand"

// secureWords is the size of Secure's buffer: large enough that the cost of a
// system call is shared by many small draws.
const secureWords = 128

// Secure returns a source that reads crypto/rand. It cannot be seeded or replayed and never
// fails: if the operating system has no randomness, crypto/rand ends the program.
func Secure() Source { return &secure{next: secureWords} }

type secure struct {
	buf  [secureWords]uint64
	next int
}

func (s *secure) Uint64() uint64 {
	if s.next == secureWords {
		s.read(s.buf[:])
		s.next = 0
	}
	w := s.buf[s.next]
	s.buf[s.next] = 0 // a used word does not stay in memory
	s.next++
	return w
}

func (s *secure) Fill(dst []uint64) {
	n := copy(dst, s.buf[s.next:])
	clear(s.buf[s.next : s.next+n])
	s.next += n
	s.read(dst[n:])
}

func (s *secure) read(dst []uint64) {
	if len(dst) > 0 {
		// Read's error is always nil since Go 1.24; the order of the bytes in a
		// word does not matter to random bytes.
		rand.Read(bytesOf(dst))
	}
}

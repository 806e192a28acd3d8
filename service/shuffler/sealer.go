package shuffler

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
)

// sealingKeySize is the size of a sealer's key in bytes.
const sealingKeySize = 32

// sealOverhead is the number of bytes that seal adds.
const sealOverhead = 12 + 16

// sealer encrypts what is on disk during a round with AES-256-GCM. Nonces are 96 random bits,
// because several processes share a round's key and a restart must not repeat a counter. 2^32
// blocks, 280 TB, collide with probability below 2^-32; a sealer refuses more. A sealer is
// safe for concurrent use and does not print its key.
type sealer struct {
	aead  cipher.AEAD
	count atomic.Uint64
}

// newSealer returns a sealer with a key of sealingKeySize bytes.
func newSealer(key []byte) (*sealer, error) {
	if len(key) != sealingKeySize {
		return nil, fmt.Errorf("shuffler: a sealing key of %d bytes: must have %d", len(key), sealingKeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("shuffler: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("shuffler: %w", err)
	}
	return &sealer{aead: aead}, nil
}

// seal appends the sealed plaintext to dst. The context says what the plaintext is and where
// it belongs, such as stream and block; open needs the same context.
func (s *sealer) seal(dst, plaintext, context []byte) ([]byte, error) {
	if s.count.Add(1) > 1<<32 {
		return nil, errors.New("shuffler: a sealing key was used for 2^32 blocks")
	}
	return s.aead.Seal(dst, nil, plaintext, context), nil
}

// open appends the plaintext to dst, or fails if anything was changed.
func (s *sealer) open(dst, sealed, context []byte) ([]byte, error) {
	out, err := s.aead.Open(dst, nil, sealed, context)
	if err != nil {
		return nil, errors.New("shuffler: a sealed block does not open: changed, misplaced, or another key")
	}
	return out, nil
}

// Format hides the key, whatever the verb.
func (*sealer) Format(f fmt.State, _ rune) { io.WriteString(f, "shuffler.sealer") }

package store

import (
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"sync/atomic"
)

// KeySize is the size of a Sealer's key in bytes.
const KeySize = 32

// SealOverhead is the number of bytes that Seal adds.
const SealOverhead = 12 + 16

// Sealer encrypts what is on disk during a round with AES-256-GCM. Nonces are 96 random bits,
// because several processes share a round's key and a restart must not repeat a counter. 2^32
// blocks, 280 TB, collide with probability below 2^-32; a Sealer refuses more. A Sealer is
// safe for concurrent use and does not print its key.
type Sealer struct {
	aead  cipher.AEAD
	count atomic.Uint64
}

// NewSealer returns a sealer with a key of KeySize bytes.
func NewSealer(key []byte) (*Sealer, error) {
	if len(key) != KeySize {
		return nil, fmt.Errorf("store: a sealing key of %d bytes: must have %d", len(key), KeySize)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return &Sealer{aead: aead}, nil
}

// Seal appends the sealed plaintext to dst. The context says what the plaintext is and where
// it belongs, such as stream and block; Open needs the same context.
func (s *Sealer) Seal(dst, plaintext, context []byte) ([]byte, error) {
	if s.count.Add(1) > 1<<32 {
		return nil, errors.New("store: a sealing key was used for 2^32 blocks")
	}
	return s.aead.Seal(dst, nil, plaintext, context), nil
}

// Open appends the plaintext to dst, or fails if anything was changed.
func (s *Sealer) Open(dst, sealed, context []byte) ([]byte, error) {
	out, err := s.aead.Open(dst, nil, sealed, context)
	if err != nil {
		return nil, errors.New("store: a sealed block does not open: changed, misplaced, or another key")
	}
	return out, nil
}

// String hides the key.
func (*Sealer) String() string { return "store.Sealer" }

// GoString hides the key.
func (*Sealer) GoString() string { return "store.Sealer" }

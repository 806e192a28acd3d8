// Package sealed seals secrets of a round that a service keeps in its store: the key of the proofs
// and the noise that is added to a sum. They are sealed to the service's own keys, which are files
// outside the store. The package is for the program.
package sealed

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/envelope"
)

// Label says what a secret is.
type Label string

// Labels.
const (
	VerifyKey Label = "riffle/1 stored verify key"
	Noise     Label = "riffle/1 stored noise"
	// Sum is the share of a round's sum without noise, which later rounds' releases are made of.
	Sum Label = "riffle/1 stored sum"
)

// place binds a secret to its label and round. It is no announcement's digest, so a client's part
// is never taken for a secret, nor a secret for a part.
func (l Label) place(announcement [32]byte) [32]byte {
	h := sha256.New()
	h.Write([]byte(l))
	h.Write([]byte{0})
	h.Write(announcement[:])
	return [32]byte(h.Sum(nil))
}

// Seal seals a secret of a round to one's own key.
func (l Label) Seal(ring *envelope.Keyring, own envelope.Reader, announcement [32]byte, secret []byte) ([]byte, error) {
	return envelope.SealPart(ring.Keys[0], own, l.place(announcement), secret)
}

// Open is the inverse of Seal. It needs the key to which the secret was sealed, which may be an
// older one of the ring.
func (l Label) Open(ring *envelope.Keyring, own envelope.Reader, announcement [32]byte, b []byte) ([]byte, error) {
	secret, err := ring.OpenPart(own, l.place(announcement), b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", string(l), err)
	}
	return secret, nil
}

// SealVector seals a vector of a round, such as its noise, and clears its encoding.
func (l Label) SealVector(ring *envelope.Keyring, own envelope.Reader, announcement [32]byte, vector []int64) ([]byte, error) {
	b := make([]byte, 0, 8*len(vector))
	defer func() { clear(b[:cap(b)]) }()
	for _, v := range vector {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return l.Seal(ring, own, announcement, b)
}

// OpenVector is the inverse of SealVector, for a vector of dim coordinates.
func (l Label) OpenVector(ring *envelope.Keyring, own envelope.Reader, announcement [32]byte, sealed []byte, dim int) ([]int64, error) {
	b, err := l.Open(ring, own, announcement, sealed)
	if err != nil {
		return nil, err
	}
	defer clear(b)
	if len(b) != 8*dim {
		return nil, fmt.Errorf("%s: %d bytes for %d coordinates", string(l), len(b), dim)
	}
	vector := make([]int64, dim)
	for j := range vector {
		vector[j] = int64(binary.LittleEndian.Uint64(b[8*j:]))
	}
	return vector, nil
}

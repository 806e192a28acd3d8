package wire

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
)

// Label separates signatures and digests by their purpose.
type Label string

// Labels.
const (
	LabelEnrolment    Label = "riffle/1 enrolment"
	LabelTask         Label = "riffle/1 task"
	LabelAnnouncement Label = "riffle/1 announcement"
	LabelClosed       Label = "riffle/1 closed"
	LabelReport       Label = "riffle/1 report"
	LabelAsk          Label = "riffle/1 ask"
	LabelPass         Label = "riffle/1 pass"
	LabelRelayPass    Label = "riffle/1 relay pass"
	LabelSession      Label = "riffle/1 session"
	LabelBatch        Label = "riffle/1 batch"
	LabelKey          Label = "riffle/1 key"
	LabelClient       Label = "riffle/1 client"
	LabelEntry        Label = "riffle/1 entry"
	LabelRoster       Label = "riffle/1 roster"
	LabelRegistrar    Label = "riffle/1 registrar"
	LabelExclusion    Label = "riffle/1 exclusion"
	LabelProofKey     Label = "riffle/1 proof key"
	LabelProofs       Label = "riffle/1 proofs"
	LabelAgreed       Label = "riffle/1 agreed"
	LabelTokenKeys    Label = "riffle/1 token keys"
	LabelTokens       Label = "riffle/1 tokens"
	LabelReceipts     Label = "riffle/1 receipts"
	LabelHead         Label = "riffle/1 head"
	LabelOpening      Label = "riffle/1 opening"
	LabelOpened       Label = "riffle/1 opened"
)

// ErrSignature is wrapped if a signature is wrong.
var ErrSignature = errors.New("wire: signature does not fit")

// hash is SHA-256 of the label, a zero byte and the parts, each after its
// length in eight bytes.
func hash(l Label, parts ...[]byte) (d [32]byte) {
	h := sha256.New()
	head := append(append(make([]byte, 0, 64), l...), 0)
	h.Write(head)
	for _, p := range parts {
		h.Write(binary.LittleEndian.AppendUint64(head[:0], uint64(len(p))))
		h.Write(p)
	}
	h.Sum(d[:0])
	return d
}

// Sign returns the message with an Ed25519 signature of 64 bytes before it. The signature is
// over the message's hash under the label.
func Sign(key ed25519.PrivateKey, l Label, message []byte) []byte {
	d := hash(l, message)
	return append(ed25519.Sign(key, d[:]), message...)
}

// Verify returns the message if key signed it under the label.
func Verify(key ed25519.PublicKey, l Label, signed []byte) ([]byte, error) {
	if len(key) != ed25519.PublicKeySize {
		return nil, fmt.Errorf("wire: signing key of %d bytes, want %d", len(key), ed25519.PublicKeySize)
	}
	if len(signed) < ed25519.SignatureSize {
		return nil, fmt.Errorf("%w: %d bytes are shorter than a signature", ErrMalformed, len(signed))
	}
	message := signed[ed25519.SignatureSize:]
	d := hash(l, message)
	if !ed25519.Verify(key, d[:], signed[:ed25519.SignatureSize]) {
		return nil, fmt.Errorf("%w: %s", ErrSignature, l)
	}
	return message, nil
}

// ID names a population, an enrolled client or a report, or is a pass of a report or for a relay.
type ID [16]byte

// ClientID returns the id of an enrolled client: the first 16 bytes of the digest of its
// public signing key.
func ClientID(key ed25519.PublicKey) (id ID) {
	d := hash(LabelClient, key)
	copy(id[:], d[:])
	return id
}

// Package envelope seals messages between the roles. It seals reports, to the shuffler on the
// outside and to the coordinator and the second aggregator on the inside, the shuffler's answer to
// a client that asks for a session, and the key of a round to the coordinator's workers. It is HPKE (RFC 9180, base mode, from the
// standard library) with riffle's labels, key ids and expiry.
//
// A sealed message is bound to its reader's role (HPKE's info) and to the round (additional
// data), so it cannot be opened elsewhere. Its size depends on the suite and on the content's
// size only.
package envelope

import (
	"bytes"
	"crypto/hpke"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Reader is the role that a message is sealed to.
type Reader string

// Readers.
const (
	Shuffler    Reader = "riffle/1 seal shuffler"
	Coordinator Reader = "riffle/1 seal coordinator"
	Aggregator  Reader = "riffle/1 seal aggregator"
	Client      Reader = "riffle/1 seal session"
	Worker      Reader = "riffle/1 seal worker"
)

// ErrOpen is wrapped if a message cannot be opened. The cause, which is not revealed, is
// another key, round or role, or a change on the way.
var ErrOpen = errors.New("envelope: cannot be opened")

// ErrKey is wrapped if a message names a key that is not held.
var ErrKey = errors.New("envelope: key is not held")

const tagSize = 16

func kem(s wire.Suite) (hpke.KEM, error) {
	switch s {
	case wire.X25519:
		return hpke.NewKEM(0x0020) // DHKEM(X25519, HKDF-SHA256)
	case wire.X25519MLKEM768:
		return hpke.MLKEM768X25519(), nil
	}
	return nil, fmt.Errorf("envelope: unknown suite %d", s)
}

func encSize(s wire.Suite) (int, error) {
	switch s {
	case wire.X25519:
		return 32, nil
	case wire.X25519MLKEM768:
		return 1120, nil // an ML-KEM-768 ciphertext of 1088 bytes and an X25519 share
	}
	return 0, fmt.Errorf("envelope: unknown suite %d", s)
}

// PartHeader is the size of the header of a part sealed to the coordinator or the aggregator:
// version, kind, id of the reader's key. The header and the announcement's digest are the
// additional data.
const PartHeader = 2 + 8

// PartSize returns the size of n bytes sealed by SealPart.
func PartSize(s wire.Suite, n int64) (int64, error) {
	e, err := encSize(s)
	return PartHeader + int64(e) + n + tagSize, err
}

// ReportSize returns the size of a report with parts of these sizes, sealed by SealReport.
func ReportSize(s wire.Suite, part, share int64) (int64, error) {
	e, err := encSize(s)
	return int64(wire.ReportHeader) + int64(e) + wire.ReportSize(part, share) + tagSize, err
}

func seal(key wire.Key, to Reader, header, extra, content []byte) ([]byte, error) {
	k, err := kem(key.Suite)
	if err != nil {
		return nil, err
	}
	public, err := k.NewPublicKey(key.Public)
	if err != nil {
		return nil, fmt.Errorf("envelope: key %x of suite %d: %v", key.ID(), key.Suite, err)
	}
	enc, s, err := hpke.NewSender(public, hpke.HKDFSHA256(), hpke.AES128GCM(), []byte(to))
	if err != nil {
		return nil, fmt.Errorf("envelope: %v", err)
	}
	aad := append(append(make([]byte, 0, len(header)+len(extra)), header...), extra...)
	sealed, err := s.Seal(aad, content)
	if err != nil {
		return nil, fmt.Errorf("envelope: %v", err)
	}
	out := make([]byte, 0, len(header)+len(enc)+len(sealed))
	return append(append(append(out, header...), enc...), sealed...), nil
}

// SealReport seals a signed report to the shuffler, under a header that shows the client's pass.
func SealReport(key wire.Key, r *wire.Report, pass wire.ID) ([]byte, error) {
	header := wire.Encode(wire.Header{Key: key.ID(), Announcement: r.Announcement, Pass: pass})
	return seal(key, Shuffler, header, nil, r.Append(nil))
}

// SealPart seals a report's part to the coordinator or the aggregator.
func SealPart(key wire.Key, to Reader, announcement [32]byte, content []byte) ([]byte, error) {
	id := key.ID()
	header := append([]byte{wire.Version, byte(wire.KindSealed)}, id[:]...)
	return seal(key, to, header, announcement[:], content)
}

// OpenReport opens a report sealed to the shuffler. The report's header names the
// announcement, which gives the sizes of the parts; part is that of all messages together.
func (r *Keyring) OpenReport(b []byte, part, share int64) (wire.Report, error) {
	h, sealed, err := wire.DecodeHeader(b)
	if err != nil {
		return wire.Report{}, err
	}
	content, err := r.open(h.Key, Shuffler, b[:len(b)-len(sealed)], nil, sealed)
	if err != nil {
		return wire.Report{}, err
	}
	return wire.DecodeReport(content, h.Announcement, part, share)
}

// OpenPart opens a part sealed to a reader.
func (r *Keyring) OpenPart(to Reader, announcement [32]byte, b []byte) ([]byte, error) {
	if len(b) < PartHeader || b[0] != wire.Version || b[1] != byte(wire.KindSealed) {
		return nil, fmt.Errorf("%w: no sealed part", wire.ErrMalformed)
	}
	return r.open([8]byte(b[2:PartHeader]), to, b[:PartHeader], announcement[:], b[PartHeader:])
}

// sessionHeader starts the answer to a session request. The header and the request's digest
// are the additional data.
var sessionHeader = []byte{wire.Version, byte(wire.KindSessionSealed)}

// SealSession seals a session to the key in the request for it.
func SealSession(m wire.SessionRequest, s wire.Session) ([]byte, error) {
	digest := wire.Digest(m)
	return seal(wire.Key{Suite: m.Suite, Public: m.Public}, Client, sessionHeader, digest[:], wire.Encode(s))
}

// OpenSession opens the answer to a request that named this key.
func (k *PrivateKey) OpenSession(m wire.SessionRequest, b []byte) (wire.Session, error) {
	if !bytes.HasPrefix(b, sessionHeader) {
		return wire.Session{}, fmt.Errorf("%w: no sealed session", wire.ErrMalformed)
	}
	digest := wire.Digest(m)
	content, err := k.open(Client, sessionHeader, digest[:], b[len(sessionHeader):])
	if err != nil {
		return wire.Session{}, err
	}
	return wire.Decode[wire.Session](content)
}

func (r *Keyring) open(id [8]byte, to Reader, header, extra, sealed []byte) ([]byte, error) {
	k, err := r.Key(id)
	if err != nil {
		return nil, err
	}
	return k.open(to, header, extra, sealed)
}

func (k *PrivateKey) open(to Reader, header, extra, sealed []byte) ([]byte, error) {
	n, err := encSize(k.Public.Suite)
	if err != nil {
		return nil, err
	}
	if len(sealed) < n+tagSize {
		return nil, fmt.Errorf("%w: %d bytes sealed", wire.ErrMalformed, len(sealed))
	}
	recipient, err := hpke.NewRecipient(sealed[:n], k.private, hpke.HKDFSHA256(), hpke.AES128GCM(), []byte(to))
	if err != nil {
		return nil, ErrOpen
	}
	aad := append(append(make([]byte, 0, len(header)+len(extra)), header...), extra...)
	content, err := recipient.Open(aad, sealed[n:])
	if err != nil {
		return nil, ErrOpen
	}
	return content, nil
}

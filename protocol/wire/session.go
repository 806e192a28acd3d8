package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
)

// ErrMAC is wrapped if a report's MAC is wrong.
var ErrMAC = errors.New("wire: MAC does not fit")

// SessionRequest asks the shuffler for a session, which authenticates a client's reports and
// asks. The client signs it under LabelSession.
type SessionRequest struct {
	Population Population
	Client     ClientID
	Time       int64 // Unix seconds; decides the session
	// Suite and Public are a key that the client has made for the answer alone. The answer is
	// sealed to it, so that nobody on the way can read the session.
	Suite  Suite
	Public []byte
}

// Digest is what the client signs, and what the answer is bound to.
func (m SessionRequest) Digest() [32]byte { return Digest(LabelSession, m.Append(nil)) }

// Append appends the encoding to dst.
func (m SessionRequest) Append(dst []byte) []byte {
	e := encode(dst, KindSessionRequest)
	e.raw(m.Population[:])
	e.raw(m.Client[:])
	e.i64(m.Time)
	e.u8(byte(m.Suite))
	e.blob(m.Public)
	return e.b
}

// DecodeSessionRequest is the inverse of Append.
func DecodeSessionRequest(b []byte) (m SessionRequest, err error) {
	d := decode(b, KindSessionRequest)
	d.fixed(m.Population[:])
	d.fixed(m.Client[:])
	m.Time = d.count("time")
	m.Suite, m.Public = Suite(d.u8()), d.blob()
	if d.err == nil && (m.Suite != X25519 && m.Suite != X25519MLKEM768 || len(m.Public) == 0) {
		d.fail("answer key of suite %d with %d bytes", m.Suite, len(m.Public))
	}
	if err := d.end(); err != nil {
		return SessionRequest{}, err
	}
	return m, nil
}

// SessionKey is shared by one client and its shuffler. It does not print itself.
type SessionKey [32]byte

// String hides the key.
func (SessionKey) String() string { return "wire.SessionKey" }

// GoString hides the key.
func (SessionKey) GoString() string { return "wire.SessionKey" }

// Pass returns what the session's client shows in a round: the first 16 bytes of the round's
// HMAC-SHA-256 under the key.
func (k SessionKey) Pass(announcement [32]byte) Pass {
	d := Digest(LabelPass, announcement[:])
	h := hmac.New(sha256.New, k[:])
	h.Write(d[:])
	var sum [sha256.Size]byte
	return Pass(h.Sum(sum[:0])[:len(Pass{})])
}

// Session is the content of the answer to a SessionRequest, sealed to its sender alone.
type Session struct {
	Expires int64 // Unix seconds; no report and no ask is accepted with it afterwards
	Key     SessionKey
}

// Append appends the encoding to dst.
func (m Session) Append(dst []byte) []byte {
	e := encode(dst, KindSession)
	e.i64(m.Expires)
	e.raw(m.Key[:])
	return e.b
}

// DecodeSession is the inverse of Append.
func DecodeSession(b []byte) (m Session, err error) {
	d := decode(b, KindSession)
	m.Expires = d.count("expiry")
	d.fixed(m.Key[:])
	if err := d.end(); err != nil {
		return Session{}, err
	}
	return m, nil
}

// mac returns the HMAC-SHA-256 of the report without the MAC itself.
func (r *Report) mac(key *SessionKey) (sum [sha256.Size]byte) {
	e := encoder{}
	e.i64(r.Session)
	d := Digest(LabelReport, r.Announcement[:], r.Client[:], r.ID[:], e.b, r.Part, r.Share)
	h := hmac.New(sha256.New, key[:])
	h.Write(d[:])
	h.Sum(sum[:0])
	return sum
}

// Authenticate sets the report's MAC by the session's key.
func (r *Report) Authenticate(s Session) {
	r.Session = s.Expires
	r.MAC = r.mac(&s.Key)
}

// Verify checks that the report was made with the key. The caller checks whether the session
// has ended.
func (r *Report) Verify(key SessionKey) error {
	want := r.mac(&key)
	if !hmac.Equal(want[:], r.MAC[:]) {
		return fmt.Errorf("%w: %s", ErrMAC, LabelReport)
	}
	return nil
}

// Ask is a client's question to the shuffler whether it is among a round's drawn clients
// (Sampled), or in its block (Once). It is authenticated like a report.
type Ask struct {
	Announcement [32]byte
	Client       ClientID
	Session      int64 // the session's expiry
	MAC          [sha256.Size]byte
}

func (m *Ask) mac(key *SessionKey) (sum [sha256.Size]byte) {
	e := encoder{}
	e.i64(m.Session)
	d := Digest(LabelAsk, m.Announcement[:], m.Client[:], e.b)
	h := hmac.New(sha256.New, key[:])
	h.Write(d[:])
	h.Sum(sum[:0])
	return sum
}

// Authenticate sets the ask's MAC by the session's key.
func (m *Ask) Authenticate(s Session) {
	m.Session = s.Expires
	m.MAC = m.mac(&s.Key)
}

// Verify checks that the ask was made with the key.
func (m *Ask) Verify(key SessionKey) error {
	want := m.mac(&key)
	if !hmac.Equal(want[:], m.MAC[:]) {
		return fmt.Errorf("%w: %s", ErrMAC, LabelAsk)
	}
	return nil
}

// Append appends the encoding to dst.
func (m Ask) Append(dst []byte) []byte {
	e := encode(dst, KindAsk)
	e.raw(m.Announcement[:])
	e.raw(m.Client[:])
	e.i64(m.Session)
	e.raw(m.MAC[:])
	return e.b
}

// DecodeAsk is the inverse of Append.
func DecodeAsk(b []byte) (m Ask, err error) {
	d := decode(b, KindAsk)
	d.fixed(m.Announcement[:])
	d.fixed(m.Client[:])
	m.Session = d.count("session")
	d.fixed(m.MAC[:])
	if err := d.end(); err != nil {
		return Ask{}, err
	}
	return m, nil
}

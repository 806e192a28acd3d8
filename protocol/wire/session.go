package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
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
func (m SessionRequest) Digest() [32]byte { return Digest(LabelSession, Encode(m)) }

func (*SessionRequest) kind() Kind { return KindSessionRequest }

func (m *SessionRequest) fields(c *codec) {
	c.fixed(m.Population[:])
	c.fixed(m.Client[:])
	c.count("time", &m.Time)
	c.suite(&m.Suite)
	c.blob(&m.Public)
	if c.read() && (m.Suite != X25519 && m.Suite != X25519MLKEM768 || len(m.Public) == 0) {
		c.fail("answer key of suite %d with %d bytes", m.Suite, len(m.Public))
	}
}

// SessionKey is shared by one client and its shuffler. Printing it does not show the key.
type SessionKey [32]byte

// String hides the key.
func (SessionKey) String() string { return "wire.SessionKey" }

// GoString hides the key.
func (SessionKey) GoString() string { return "wire.SessionKey" }

// Pass returns the pass that the session's client shows in a round: the first 16 bytes of the
// round's HMAC-SHA-256 under the key.
func (k SessionKey) Pass(announcement [32]byte) Pass {
	sum := k.mac(LabelPass, announcement[:])
	return Pass(sum[:len(Pass{})])
}

// mac returns the HMAC-SHA-256 of the parts' digest.
func (k *SessionKey) mac(l Label, parts ...[]byte) (sum [sha256.Size]byte) {
	d := Digest(l, parts...)
	h := hmac.New(sha256.New, k[:])
	h.Write(d[:])
	h.Sum(sum[:0])
	return sum
}

// Session is the content of the answer to a SessionRequest, sealed to its sender alone.
type Session struct {
	Expires int64 // Unix seconds; no report and no ask is accepted with it afterwards
	Key     SessionKey
}

func (*Session) kind() Kind { return KindSession }

func (m *Session) fields(c *codec) {
	c.count("expiry", &m.Expires)
	c.fixed(m.Key[:])
}

// mac returns the HMAC-SHA-256 of the report without the MAC itself.
func (r *Report) mac(key *SessionKey) [sha256.Size]byte {
	session := binary.LittleEndian.AppendUint64(nil, uint64(r.Session))
	return key.mac(LabelReport, r.Announcement[:], r.Client[:], r.ID[:], session, r.Part, r.Share)
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

func (m *Ask) mac(key *SessionKey) [sha256.Size]byte {
	return key.mac(LabelAsk, m.Announcement[:], m.Client[:], binary.LittleEndian.AppendUint64(nil, uint64(m.Session)))
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

func (*Ask) kind() Kind { return KindAsk }

func (m *Ask) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Client[:])
	c.count("session", &m.Session)
	c.fixed(m.MAC[:])
}

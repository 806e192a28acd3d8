package wire

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// ErrMAC is returned if the MAC of a report or an ask is wrong.
var ErrMAC = errors.New("wire: MAC does not fit")

// SessionRequest asks the shuffler for a session, which authenticates a client's reports and
// asks. The client signs it under LabelSession.
type SessionRequest struct {
	Population ID
	Client     ID
	Time       int64 // Unix seconds; decides the session
	// Suite and Public are a key that the client has made for the answer alone. The answer is
	// sealed to it, so that nobody on the way can read the session.
	Suite  Suite
	Public []byte
}

func (*SessionRequest) kind() byte { return KindSessionRequest }

func (*SessionRequest) label() Label { return LabelSession }

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

// SessionKey is shared by one client and its shuffler, or by a shuffler and its relay. Printing it does not show
// the key.
type SessionKey [32]byte

// Format hides the key.
func (SessionKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "wire.SessionKey") }

// Pass returns the pass that the session's client shows in a round: the first 16 bytes of the
// round's HMAC-SHA-256 under the key.
func (k SessionKey) Pass(announcement [32]byte) ID {
	sum := k.mac(LabelPass, announcement[:])
	return ID(sum[:len(ID{})])
}

// mac returns the HMAC-SHA-256 of the parts' digest.
func (k *SessionKey) mac(l Label, parts ...[]byte) (sum [sha256.Size]byte) {
	d := hash(l, parts...)
	h := hmac.New(sha256.New, k[:])
	h.Write(d[:])
	h.Sum(sum[:0])
	return sum
}

// Session is the content of the answer to a SessionRequest, sealed to its sender alone.
type Session struct {
	Expires int64 // Unix seconds; no report and no ask is accepted with it afterwards
	Key     SessionKey
	// Taken is the number of messages that the shuffler has taken from the client in rounds that
	// are closed, since it began to count; nil: it does not count.
	Taken *int64
	// Passes are for the relay, one for each day (UTC) from that of the request's time on, as long as the
	// session lasts but at most MaxPasses; nil: the shuffler has no relay.
	Passes []ID
}

func (*Session) kind() byte { return KindSession }

func (m *Session) fields(c *codec) {
	c.count("expiry", &m.Expires)
	c.fixed(m.Key[:])
}

func (m *Session) parts() []part {
	return []part{{tagTaken, func() bool { return m.Taken != nil }, func(c *codec) {
		if c.reads {
			m.Taken = new(int64)
		}
		c.count("taken", m.Taken)
	}}, passesPart(&m.Passes)}
}

// mac returns the HMAC-SHA-256 of the report without the MAC itself.
func (r *Report) mac(key *SessionKey) [sha256.Size]byte {
	session := binary.LittleEndian.AppendUint64(nil, uint64(r.Session))
	return key.mac(LabelReport, r.Announcement[:], r.Client[:], r.ID[:], session, r.Part, r.Share)
}

// authentic is a message with a MAC: a Report or an Ask.
type authentic interface {
	mac(key *SessionKey) [sha256.Size]byte
	// seal returns the message's fields for the session's end and the MAC.
	seal() (session *int64, mac *[sha256.Size]byte)
}

func (r *Report) seal() (*int64, *[sha256.Size]byte) { return &r.Session, &r.MAC }
func (m *Ask) seal() (*int64, *[sha256.Size]byte)    { return &m.Session, &m.MAC }

// Authenticate sets the MAC of a [Report] or an [Ask] by the session's key.
func Authenticate(m authentic, s Session) {
	session, mac := m.seal()
	*session = s.Expires
	*mac = m.mac(&s.Key)
}

// Authentic checks that a [Report] or an [Ask] was made with the key. The caller checks whether
// the session has ended.
func Authentic(m authentic, key SessionKey) error {
	want := m.mac(&key)
	if _, mac := m.seal(); !hmac.Equal(want[:], mac[:]) {
		return ErrMAC
	}
	return nil
}

// Ask is a client's question to the shuffler whether it is among a round's drawn clients
// (Sampled), or in its block (Once). It is authenticated like a report.
type Ask struct {
	Announcement [32]byte
	Client       ID
	Session      int64 // the session's expiry
	MAC          [sha256.Size]byte
}

func (m *Ask) mac(key *SessionKey) [sha256.Size]byte {
	return key.mac(LabelAsk, m.Announcement[:], m.Client[:], binary.LittleEndian.AppendUint64(nil, uint64(m.Session)))
}

func (*Ask) kind() byte { return KindAsk }

func (m *Ask) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Client[:])
	c.count("session", &m.Session)
	c.fixed(m.MAC[:])
}

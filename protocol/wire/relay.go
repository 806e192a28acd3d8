package wire

import "encoding/binary"

// MaxPasses is the largest number of passes for a relay in a session.
const MaxPasses = 32

// passesPart are the passes of a session.
func passesPart(p *[]ID) part {
	return part{tagPasses, func() bool { return len(*p) > 0 }, func(c *codec) {
		if c.reads {
			*p = make([]ID, min(len(c.b)/len(ID{}), MaxPasses))
		}
		for i := range *p {
			c.fixed((*p)[i][:])
		}
	}}
}

// PassDay is a day in seconds. A pass for a relay is for one day, counted from the first of 1970 (UTC).
const PassDay = 24 * 60 * 60

// RelayPass returns the pass of a day with a nonce, under a key that a shuffler shares with its relay: the nonce, and
// the first 8 bytes of the HMAC-SHA-256 of day and nonce.
func (k SessionKey) RelayPass(day int64, nonce [8]byte) (pass ID) {
	sum := k.mac(LabelRelayPass, binary.LittleEndian.AppendUint64(nil, uint64(day)), nonce[:])
	copy(pass[copy(pass[:], nonce[:]):], sum[:])
	return pass
}

// RelayView is what a shuffler tells its relay, so that the relay answers by itself who asks for enrolments, and
// knows passes.
type RelayView struct {
	Keys       []SessionKey // of passes
	Enrolments [][]byte     // signed; the first is the newest
	Rounds     []RelayRound
}

// RelayRound is an open round, with the place of the enrolment that it counts on.
type RelayRound struct {
	Announcement [32]byte
	Enrolment    byte
}

func (*RelayView) kind() byte { return KindRelayView }

func (m *RelayView) fields(c *codec) {
	list(c, &m.Keys, func(k *SessionKey) { c.fixed(k[:]) })
	list(c, &m.Enrolments, func(e *[]byte) { c.blob(e) })
	n := c.rest("rounds", len(m.Rounds), len([32]byte{})+1)
	if c.reads && n > 0 {
		m.Rounds = make([]RelayRound, n)
	}
	for i := range m.Rounds {
		r := &m.Rounds[i]
		c.fixed(r.Announcement[:])
		if c.u8(&r.Enrolment); c.read() && int(r.Enrolment) >= len(m.Enrolments) {
			c.fail("enrolment %d of %d", r.Enrolment, len(m.Enrolments))
		}
	}
}

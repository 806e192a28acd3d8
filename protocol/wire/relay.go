package wire

import (
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"io"
)

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

// PassKey makes and checks passes for a relay. A shuffler shares it with its relay. Printing it does not
// show the key.
type PassKey [32]byte

// Format hides the key.
func (PassKey) Format(s fmt.State, _ rune) { _, _ = io.WriteString(s, "wire.PassKey") }

// Pass returns the pass of a day, counted from the first of 1970 (UTC): the nonce, and the first 8 bytes of the
// HMAC-SHA-256 of day and nonce.
func (k PassKey) Pass(day int64, nonce [8]byte) (pass ID) {
	sum := (*SessionKey)(&k).mac(LabelRelayPass, binary.LittleEndian.AppendUint64(nil, uint64(day)), nonce[:])
	copy(pass[copy(pass[:], nonce[:]):], sum[:])
	return pass
}

// Made says whether a pass is one of this key for a day.
func (k PassKey) Made(pass ID, day int64) bool {
	want := k.Pass(day, [8]byte(pass[:8]))
	return hmac.Equal(want[:], pass[:])
}

// PassDay returns the day of a time in Unix seconds, as passes count it.
func PassDay(unix int64) int64 { return unix / (24 * 60 * 60) }

// RelayView is what a shuffler tells its relay, so that the relay answers by itself who asks for enrolments, and
// knows passes.
type RelayView struct {
	Keys       []PassKey
	Enrolments [][]byte // signed; the first is the newest
	Rounds     []RelayRound
}

// RelayRound is an open round, with the place of the enrolment that it counts on.
type RelayRound struct {
	Announcement [32]byte
	Enrolment    byte
}

func (*RelayView) kind() byte { return KindRelayView }

func (m *RelayView) fields(c *codec) {
	list(c, &m.Keys, func(k *PassKey) { c.fixed(k[:]) })
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

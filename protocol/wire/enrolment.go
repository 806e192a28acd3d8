package wire

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Population names the people behind a task: the clients enrolled with one shuffler.
type Population [16]byte

// Enrolment is the shuffler operator's signed word on who is enrolled. It keeps a coordinator
// from adding clients of its own and from overstating n. The operator's key signs it under
// LabelEnrolment.
type Enrolment struct {
	Population Population
	Serial     int64 // increases with every change
	Clients    int64 // n
	Roster     [32]byte
	MinReports int64 // the shuffler closes no round with fewer
	// Shuffler lists the keys that reports may be sealed to, the preferred one first.
	Shuffler []Key
	// Aggregator lists the keys of the second aggregator; empty if there is none.
	Aggregator []Key
	From, To   int64 // the enrolment is valid between these times, in Unix seconds
}

// RosterDigest identifies a set of clients; their order does not matter.
func RosterDigest(ids []ClientID) [32]byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b ClientID) int { return bytes.Compare(a[:], b[:]) })
	flat := make([]byte, 0, 16*len(sorted))
	for _, id := range sorted {
		flat = append(flat, id[:]...)
	}
	return Digest(LabelRoster, flat)
}

// Append appends the encoding to dst.
func (m Enrolment) Append(dst []byte) []byte {
	e := encode(dst, KindEnrolment)
	e.raw(m.Population[:])
	e.i64(m.Serial)
	e.i64(m.Clients)
	e.raw(m.Roster[:])
	e.i64(m.MinReports)
	for _, keys := range [][]Key{m.Shuffler, m.Aggregator} {
		e.u8(byte(len(keys)))
		for _, k := range keys {
			e.key(k)
		}
	}
	e.i64(m.From)
	e.i64(m.To)
	return e.b
}

// DecodeEnrolment is the inverse of Append.
func DecodeEnrolment(b []byte) (m Enrolment, err error) {
	d := decode(b, KindEnrolment)
	d.fixed(m.Population[:])
	m.Serial, m.Clients = d.count("serial"), d.count("clients")
	d.fixed(m.Roster[:])
	m.MinReports = d.count("n-min")
	for _, keys := range []*[]Key{&m.Shuffler, &m.Aggregator} {
		for range d.u8() {
			k := d.key()
			if d.err == nil && k.None() {
				d.fail("a key that is none")
			}
			*keys = append(*keys, k)
		}
	}
	m.From, m.To = d.i64(), d.i64()
	if d.err == nil && (m.Clients < 1 || m.MinReports < 1 || m.To <= m.From || len(m.Shuffler) == 0) {
		d.fail("enrolment of %d clients, n-min %d, %d keys, from %d to %d", m.Clients, m.MinReports, len(m.Shuffler), m.From, m.To)
	}
	if err := d.end(); err != nil {
		return Enrolment{}, err
	}
	return m, nil
}

// Digest identifies the enrolment.
func (m Enrolment) Digest() [32]byte { return Digest(LabelEnrolment, m.Append(nil)) }

// ShufflerKey returns the first of the shuffler's keys that has not expired.
func (m Enrolment) ShufflerKey(now time.Time) (Key, error) {
	for _, k := range m.Shuffler {
		if k.Valid(now) == nil {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("the shuffler's %d keys have expired", len(m.Shuffler))
}

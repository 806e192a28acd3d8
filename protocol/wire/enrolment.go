package wire

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Population names the people behind a task: the clients enrolled with one shuffler.
type Population [16]byte

// Enrolment is the shuffler operator's signed statement of who is enrolled. It keeps a
// coordinator from adding clients of its own and from overstating n. The operator's key signs
// it under LabelEnrolment.
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

func (*Enrolment) kind() Kind { return KindEnrolment }

func (m *Enrolment) fields(c *codec) {
	c.fixed(m.Population[:])
	c.count("serial", &m.Serial)
	c.count("clients", &m.Clients)
	c.fixed(m.Roster[:])
	c.count("n-min", &m.MinReports)
	for _, keys := range []*[]Key{&m.Shuffler, &m.Aggregator} {
		list(c, keys, func(k *Key) {
			if c.key(k); c.read() && k.None() {
				c.fail("a key that is none")
			}
		})
	}
	c.i64(&m.From)
	c.i64(&m.To)
	if c.read() && (m.Clients < 1 || m.MinReports < 1 || m.To <= m.From || len(m.Shuffler) == 0) {
		c.fail("enrolment of %d clients, n-min %d, %d keys, from %d to %d", m.Clients, m.MinReports, len(m.Shuffler), m.From, m.To)
	}
}

// Digest identifies the enrolment.
func (m Enrolment) Digest() [32]byte { return Digest(LabelEnrolment, Encode(m)) }

// ShufflerKey returns the first of the shuffler's keys that has not expired.
func (m Enrolment) ShufflerKey(now time.Time) (Key, error) {
	for _, k := range m.Shuffler {
		if k.Valid(now) == nil {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("the shuffler's %d keys have expired", len(m.Shuffler))
}

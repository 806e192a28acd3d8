package wire

import (
	"bytes"
	"fmt"
	"slices"
	"time"
)

// Enrolment is the shuffler operator's signed statement of who is enrolled. It keeps a
// coordinator from adding clients of its own and from overstating n. The operator's key signs
// it under LabelEnrolment.
type Enrolment struct {
	Population ID    // names the people behind a task: the clients enrolled with one shuffler
	Serial     int64 // increases with every change
	Clients    int64 // n
	Roster     [32]byte
	MinReports int64 // the shuffler closes no round with fewer
	// Shuffler lists the keys that reports may be sealed to, the preferred one first.
	Shuffler []Key
	// Aggregator lists the keys of the second aggregator; empty if there is none.
	Aggregator []Key
	From, To   int64 // the enrolment is valid between these times, in Unix seconds
	// Registrar is the signed Roster that the enrolment counts on; empty if there is no registrar.
	Registrar []byte
}

// RosterDigest identifies a set of clients; their order does not matter.
func RosterDigest(ids []ID) [32]byte {
	sorted := slices.Clone(ids)
	slices.SortFunc(sorted, func(a, b ID) int { return bytes.Compare(a[:], b[:]) })
	flat := make([]byte, 0, 16*len(sorted))
	for _, id := range sorted {
		flat = append(flat, id[:]...)
	}
	return hash(LabelRoster, flat)
}

func (*Enrolment) kind() byte { return KindEnrolment }

func (*Enrolment) label() Label { return LabelEnrolment }

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

// ShufflerKey returns the first of the shuffler's keys that has not expired.
func (m Enrolment) ShufflerKey(now time.Time) (Key, error) {
	for _, k := range m.Shuffler {
		if k.Valid(now) == nil {
			return k, nil
		}
	}
	return Key{}, fmt.Errorf("the shuffler's %d keys have expired", len(m.Shuffler))
}

package wire

import "fmt"

// Head is how far a ledger was written: the number of its entries, and the digest of the last
// one, which identifies all of them.
type Head struct {
	Entries int64
	Digest  [32]byte // zero if there is no entry
}

func (m *Head) fields(c *codec) {
	c.count("entries", &m.Entries)
	c.fixed(m.Digest[:])
	if c.read() && (m.Entries == 0) != (m.Digest == [32]byte{}) {
		c.fail("%d entries with digest %x", m.Entries, m.Digest[:4])
	}
}

// Follows returns nil if a ledger whose head was old may have this head later: it has more
// entries, or the same ones.
func (m Head) Follows(old Head) error {
	switch {
	case m.Entries < old.Entries:
		return fmt.Errorf("the ledger has %d entries, it had %d before", m.Entries, old.Entries)
	case m.Entries == old.Entries && m.Digest != old.Digest:
		return fmt.Errorf("entry %d of the ledger was another one before", m.Entries)
	}
	return nil
}

// HeadStatement is the coordinator's statement to the shuffler how far the ledger of a
// population was written. The coordinator signs it under LabelHead.
type HeadStatement struct {
	Population ID
	Head       Head
}

func (*HeadStatement) kind() byte { return KindHead }

func (*HeadStatement) label() Label { return LabelHead }

func (m *HeadStatement) fields(c *codec) {
	c.fixed(m.Population[:])
	m.Head.fields(c)
}

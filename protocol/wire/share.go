package wire

// Exclusion lists the reports of a vector sum's batch that are left out, by their places in
// the batch, because one of the aggregators could not open them. Each aggregator sums the
// same set, once. The coordinator signs it under LabelExclusion.
type Exclusion struct {
	Announcement [32]byte
	Reports      int64   // number of reports in the batch
	Places       []int64 // from 0, ascending
	// Earlier are the announcements of the rounds, in their order, whose sums the release is made of besides
	// the round's own, where noise is correlated.
	Earlier [][32]byte
}

func (m *Exclusion) parts() []part {
	return []part{{tagEarlier, func() bool { return len(m.Earlier) > 0 }, func(c *codec) {
		n := c.rest("earlier rounds", len(m.Earlier), 32)
		if c.reads {
			m.Earlier = make([][32]byte, min(n, MaxWeights))
		}
		for i := range m.Earlier {
			c.fixed(m.Earlier[i][:])
		}
	}}}
}

func (*Exclusion) kind() byte { return KindExclusion }

func (*Exclusion) label() Label { return LabelExclusion }

func (m *Exclusion) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.count("reports", &m.Reports)
	n := c.some("places", len(m.Places), 8)
	if c.reads && n > 0 {
		m.Places = make([]int64, n)
	}
	last := int64(-1)
	for i := range m.Places {
		p := &m.Places[i]
		if c.i64(p); c.read() && (*p <= last || *p >= m.Reports) {
			c.fail("place %d after %d of %d reports", *p, last, m.Reports)
		}
		last = *p
	}
}

// ShareIDs lists the report ids of the shares that an aggregator holds, by their places in a
// batch. Places where the two aggregators' ids differ are left out.
type ShareIDs struct {
	Announcement [32]byte
	IDs          [][16]byte // zero if the share cannot be summed
}

func (*ShareIDs) kind() byte { return KindShareIDs }

func (m *ShareIDs) fields(c *codec) {
	c.fixed(m.Announcement[:])
	n := c.rest("report ids", len(m.IDs), 16)
	if c.reads {
		m.IDs = make([][16]byte, n)
	}
	for i := range m.IDs {
		c.fixed(m.IDs[i][:])
	}
}

// Partial is an aggregator's share of a round's sums; its fields are those of vecsum.Partial.
type Partial struct {
	Announcement [32]byte
	Exclusion    [32]byte // digest of the exclusion
	Tag          [16]byte
	Index        int64
	Clients      int64
	Reports      [32]byte
	// Sums are numbers modulo that of the transport; of a sum with proofs, elements of its field.
	Sums []uint64
}

func (*Partial) kind() byte { return KindPartial }

func (m *Partial) fields(c *codec) {
	c.fixed(m.Announcement[:])
	c.fixed(m.Exclusion[:])
	c.fixed(m.Tag[:])
	c.count("index", &m.Index)
	c.count("clients", &m.Clients)
	c.fixed(m.Reports[:])
	n := c.rest("sums", len(m.Sums), 8)
	if c.reads {
		m.Sums = make([]uint64, n)
	}
	for j := range m.Sums {
		c.u64(&m.Sums[j])
	}
}

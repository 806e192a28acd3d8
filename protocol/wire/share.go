package wire

// Exclusion lists the reports of a vector sum's batch that are left out, by their places in
// the batch, because one of the aggregators could not open them. Each aggregator sums the
// same set, once. The coordinator signs it under LabelExclusion.
type Exclusion struct {
	Announcement [32]byte
	Reports      int64   // number of reports in the batch
	Places       []int64 // from 0, ascending
}

// Append appends the encoding to dst.
func (m Exclusion) Append(dst []byte) []byte {
	e := encode(dst, KindExclusion)
	e.raw(m.Announcement[:])
	e.i64(m.Reports)
	e.i64(int64(len(m.Places)))
	for _, p := range m.Places {
		e.i64(p)
	}
	return e.b
}

// DecodeExclusion is the inverse of Append.
func DecodeExclusion(b []byte) (m Exclusion, err error) {
	d := decode(b, KindExclusion)
	d.fixed(m.Announcement[:])
	m.Reports = d.count("reports")
	n := d.count("excluded")
	if d.err == nil && n != int64(len(d.b))/8 || len(d.b)%8 != 0 {
		d.fail("%d places in %d bytes", n, len(d.b))
	}
	last := int64(-1)
	for range n {
		p := d.i64()
		if d.err != nil {
			break
		}
		if p <= last || p >= m.Reports {
			d.fail("place %d after %d of %d reports", p, last, m.Reports)
			break
		}
		last = p
		m.Places = append(m.Places, p)
	}
	if err := d.end(); err != nil {
		return Exclusion{}, err
	}
	return m, nil
}

// Digest identifies the exclusion.
func (m Exclusion) Digest() [32]byte { return Digest(LabelExclusion, m.Append(nil)) }

// ShareIDs lists the report ids of the halves that an aggregator has, by their places in a
// batch. Places where the two aggregators' ids differ are left out.
type ShareIDs struct {
	Announcement [32]byte
	IDs          [][16]byte // zero if the half cannot be summed
}

// Append appends the encoding to dst.
func (m ShareIDs) Append(dst []byte) []byte {
	e := encode(dst, KindShareIDs)
	e.raw(m.Announcement[:])
	e.i64(int64(len(m.IDs)))
	for _, id := range m.IDs {
		e.raw(id[:])
	}
	return e.b
}

// DecodeShareIDs is the inverse of Append.
func DecodeShareIDs(b []byte) (m ShareIDs, err error) {
	d := decode(b, KindShareIDs)
	d.fixed(m.Announcement[:])
	n := d.count("report ids")
	if d.err == nil && (n != int64(len(d.b))/16 || len(d.b)%16 != 0) {
		d.fail("%d report ids in %d bytes", n, len(d.b))
	}
	if d.err == nil {
		m.IDs = make([][16]byte, n)
		for i := range m.IDs {
			d.fixed(m.IDs[i][:])
		}
	}
	if err := d.end(); err != nil {
		return ShareIDs{}, err
	}
	return m, nil
}

// Partial is an aggregator's share of a round's sums; its fields are those of vecsum.Partial.
type Partial struct {
	Announcement [32]byte
	Exclusion    [32]byte // digest of the exclusion
	Tag          [16]byte
	Index        int64
	Clients      int64
	Reports      [32]byte
	Sums         []uint64
}

// Append appends the encoding to dst.
func (m Partial) Append(dst []byte) []byte {
	e := encode(dst, KindPartial)
	e.raw(m.Announcement[:])
	e.raw(m.Exclusion[:])
	e.raw(m.Tag[:])
	e.i64(m.Index)
	e.i64(m.Clients)
	e.raw(m.Reports[:])
	e.i64(int64(len(m.Sums)))
	for _, s := range m.Sums {
		e.i64(int64(s))
	}
	return e.b
}

// DecodePartial is the inverse of Append.
func DecodePartial(b []byte) (m Partial, err error) {
	d := decode(b, KindPartial)
	d.fixed(m.Announcement[:])
	d.fixed(m.Exclusion[:])
	d.fixed(m.Tag[:])
	m.Index, m.Clients = d.count("index"), d.count("clients")
	d.fixed(m.Reports[:])
	n := d.count("sums")
	if d.err == nil && n != int64(len(d.b))/8 || len(d.b)%8 != 0 {
		d.fail("%d sums in %d bytes", n, len(d.b))
	}
	if d.err == nil {
		m.Sums = make([]uint64, n)
		for j := range m.Sums {
			m.Sums[j] = uint64(d.i64())
		}
	}
	if err := d.end(); err != nil {
		return Partial{}, err
	}
	return m, nil
}

package wire

import "github.com/riffle-dp/riffle/dp"

// Entry is one entry of a durable ledger: the charged round, its batch, and the event that it
// is charged as. One ledger holds the entries of all tasks of a population. Each entry holds
// the digest of the one before, so that none can be taken out.
type Entry struct {
	Before     [32]byte // digest of the entry before; zero for the first
	Population Population
	Task       [32]byte
	Round      int64
	// Announcement and Batch are digests: one charge pays for one batch.
	Announcement [32]byte
	Batch        [32]byte
	Event        dp.Round
}

// Append appends the encoding to dst.
func (m Entry) Append(dst []byte) []byte {
	e := encode(dst, KindEntry)
	e.raw(m.Before[:])
	e.raw(m.Population[:])
	e.raw(m.Task[:])
	e.i64(m.Round)
	e.raw(m.Announcement[:])
	e.raw(m.Batch[:])
	r := m.Event
	e.text(string(r.Report.Class))
	e.f64(r.Report.Eps0)
	e.f64(r.Report.Sigma)
	e.i64(int64(r.Report.Symbols))
	e.f64(r.Report.TV)
	e.text(string(r.Trust))
	e.text(string(r.Participation))
	e.i64(r.Population)
	e.i64(r.Reports)
	e.f64(r.Gamma)
	e.flag(r.Realised)
	return e.b
}

// DecodeEntry is the inverse of Append. The event is valid.
func DecodeEntry(b []byte) (m Entry, err error) {
	d := decode(b, KindEntry)
	d.fixed(m.Before[:])
	d.fixed(m.Population[:])
	d.fixed(m.Task[:])
	m.Round = d.count("round")
	d.fixed(m.Announcement[:])
	d.fixed(m.Batch[:])
	r := &m.Event
	r.Report.Class, r.Report.Eps0, r.Report.Sigma = dp.Class(d.text()), d.f64("eps0"), d.f64("sigma")
	symbols := d.count("symbols")
	if r.Report.Symbols = int(symbols); int64(r.Report.Symbols) != symbols {
		d.fail("symbols = %d", symbols)
	}
	r.Report.TV = d.f64("tv")
	r.Trust, r.Participation = d.trust(), d.participation()
	r.Population, r.Reports, r.Gamma = d.count("n"), d.count("k"), d.f64("gamma")
	r.Realised = d.flag()
	if d.err == nil {
		if err := r.Validate(); err != nil {
			d.fail("%v", err)
		}
	}
	if err := d.end(); err != nil {
		return Entry{}, err
	}
	return m, nil
}

// Digest identifies the entry and, through Before, all entries before it.
func (m Entry) Digest() [32]byte { return Digest(LabelEntry, m.Append(nil)) }

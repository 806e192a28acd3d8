package wire

import "github.com/riffle-dp/riffle/dp"

// MaxTimes is the largest number of times that one entry charges its event.
const MaxTimes = 1e12

// Entry is one entry of a durable ledger: the charged round, its batch, and the event that it
// is charged as, once or several times. One ledger holds the entries of all tasks of a population. Each entry holds
// the digest of the one before, so that none can be taken out.
type Entry struct {
	Before     [32]byte // digest of the entry before; zero for the first
	Population ID
	Task       [32]byte
	Round      int64
	// Announcement and Batch are digests: one charge pays for one batch.
	Announcement [32]byte
	Batch        [32]byte
	Event        dp.Round
	// Times is how often the event is charged, if not once: the number of messages that each
	// client sent, or this round and the void ones before it. 0 means once.
	Times int64
}

func (*Entry) kind() byte { return KindEntry }

func (*Entry) label() Label { return LabelEntry }

func (m *Entry) fields(c *codec) {
	c.fixed(m.Before[:])
	c.fixed(m.Population[:])
	c.fixed(m.Task[:])
	c.count("round", &m.Round)
	c.fixed(m.Announcement[:])
	c.fixed(m.Batch[:])
	r := &m.Event
	text(c, &r.Report.Class)
	c.f64("eps0", &r.Report.Eps0)
	c.f64("sigma", &r.Report.Sigma)
	symbols := int64(r.Report.Symbols)
	c.count("symbols", &symbols)
	if r.Report.Symbols = int(symbols); int64(r.Report.Symbols) != symbols {
		c.fail("symbols = %d", symbols)
	}
	c.f64("tv", &r.Report.TV)
	if r.Report.Class == dp.Rising {
		c.steps(&r.Report.Steps)
	}
	c.trust(&r.Trust)
	c.participation(&r.Participation)
	c.count("n", &r.Population)
	c.count("k", &r.Reports)
	c.f64("gamma", &r.Gamma)
	c.count("n-min", &r.Least)
	if c.read() {
		if err := r.Validate(); err != nil {
			c.fail("%v", err)
		}
	}
}

func (m *Entry) parts() []part {
	return []part{{tagMessages, func() bool { return m.Times > 1 }, func(c *codec) {
		c.i64(&m.Times)
		if c.read() && (m.Times < 2 || m.Times > MaxTimes) {
			c.fail("an event is charged %d times, at least twice and at most %d times", m.Times, int64(MaxTimes))
		}
	}}}
}

// steps are height and eta, the number of shares, and each share.
func (c *codec) steps(s *dp.Steps) {
	c.f64("height", &s.Height)
	c.f64("eta", &s.Eta)
	count := byte(s.Count)
	if c.u8(&count); count > dp.MaxSteps {
		c.fail("%d steps, at most %d", count, dp.MaxSteps)
		return
	}
	s.Count = int(count)
	for i := range s.Each() {
		c.f64("share", &s.Shares[i])
	}
}

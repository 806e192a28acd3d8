package wire

import "github.com/riffle-dp/riffle/dp"

// Announcement opens a round. The coordinator publishes it; every client and the shuffler
// read it. The coordinator signs it under LabelAnnouncement.
type Announcement struct {
	Task  [32]byte // digest of the task's configuration
	Round int64    // 1-based
	// ModelDigest is the SHA-256 of the published parameters.
	ModelDigest   [32]byte
	Trust         dp.Trust
	Participation dp.Participation
	Population    int64   // n, the enrolled clients
	Sample        int64   // k, if Participation is Sampled
	Gamma         float64 // γ, if Participation is CheckIn
	PerEpoch      int64   // blocks of an epoch, if Participation is Once
	MinReports    int64   // a round with fewer unique reports is void
	Randomizer    string
	Eps0          float64 // of one report, including numerical slack
	Sigma         float64 // of a vector sum: the σ of each client's noise, in units of Clip; see vecsum.Params.Sigma
	Clip          float64 // radius of the gradient's ball
	// Messages is the number of messages that each client sends; 0 means one.
	Messages int64
	// MinClients is the task's. A round in which fewer clients of its enrolment are enrolled until
	// its end is void.
	MinClients int64

	// The remaining fields are for a network; a simulation leaves them empty.

	Enrolment   [32]byte // digest of the enrolment that has this n
	Opens       int64    // Unix milliseconds
	Deadline    int64    // Unix milliseconds; later reports are refused
	Coordinator Key      // the key that reports, or their first shares, are sealed to
	Aggregator  Key      // the key that second shares of a vector sum are sealed to
	ReportBytes int64    // size of a sealed part for the coordinator: of one message
	ShareBytes  int64    // size of the sealed part for the aggregator; 0 if there is none
	// Ledger is the head of the coordinator's ledger when the round was announced; nil if the
	// coordinator does not tell it.
	Ledger *Head
}

// maxPart bounds the size of a sealed part of a report.
const maxPart = 1 << 26

func (*Announcement) kind() byte { return KindAnnouncement }

func (*Announcement) label() Label { return LabelAnnouncement }

func (m *Announcement) fields(c *codec) {
	c.fixed(m.Task[:])
	c.count("round", &m.Round)
	c.fixed(m.ModelDigest[:])
	c.trust(&m.Trust)
	c.participation(&m.Participation)
	c.count("n", &m.Population)
	c.count("k", &m.Sample)
	c.f64("p", &m.Gamma)
	c.count("blocks", &m.PerEpoch)
	c.count("n-min", &m.MinReports)
	text(c, &m.Randomizer)
	c.f64("eps0", &m.Eps0)
	c.f64("sigma", &m.Sigma)
	c.f64("clip", &m.Clip)
	c.fixed(m.Enrolment[:])
	c.i64(&m.Opens)
	c.i64(&m.Deadline)
	c.key(&m.Coordinator)
	c.key(&m.Aggregator)
	c.count("report bytes", &m.ReportBytes)
	c.count("share bytes", &m.ShareBytes)
	switch {
	case !c.read():
	case m.Round < 1 || m.MinReports < 1 || m.MinReports > m.Population:
		c.fail("round %d with n-min %d of %d clients", m.Round, m.MinReports, m.Population)
	case m.Gamma < 0 || m.Gamma > 1 || m.Participation == dp.CheckIn && m.Gamma == 0:
		c.fail("p = %v must be above 0 and at most 1", m.Gamma)
	case m.Sample > m.Population || m.Participation == dp.Sampled && m.Sample < m.MinReports:
		c.fail("k = %d must lie between n-min = %d and n = %d", m.Sample, m.MinReports, m.Population)
	case m.Deadline < m.Opens:
		c.fail("deadline %d before %d", m.Deadline, m.Opens)
	case m.ReportBytes > maxPart || m.ShareBytes > maxPart:
		c.fail("parts of %d and %d bytes, at most %d", m.ReportBytes, m.ShareBytes, maxPart)
	}
}

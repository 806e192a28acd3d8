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
	Sigma         float64 // of a vector sum: the σ that a client's noise is worth, in units of Clip
	Clip          float64 // radius of the gradient's ball

	// The remaining fields are for a network; a simulation leaves them empty.

	Enrolment   [32]byte // digest of the enrolment that has this n
	Opens       int64    // Unix milliseconds
	Deadline    int64    // Unix milliseconds; later reports are refused
	Coordinator Key      // the key that reports, or their first shares, are sealed to
	Aggregator  Key      // the key that second shares of a vector sum are sealed to
	ReportBytes int64    // size of the sealed part for the coordinator
	ShareBytes  int64    // size of the sealed part for the aggregator; 0 if there is none
}

// Append appends the encoding to dst.
func (m Announcement) Append(dst []byte) []byte {
	e := encode(dst, KindAnnouncement)
	e.raw(m.Task[:])
	e.i64(m.Round)
	e.raw(m.ModelDigest[:])
	e.text(string(m.Trust))
	e.text(string(m.Participation))
	e.i64(m.Population)
	e.i64(m.Sample)
	e.f64(m.Gamma)
	e.i64(m.PerEpoch)
	e.i64(m.MinReports)
	e.text(m.Randomizer)
	e.f64(m.Eps0)
	e.f64(m.Sigma)
	e.f64(m.Clip)
	e.raw(m.Enrolment[:])
	e.i64(m.Opens)
	e.i64(m.Deadline)
	e.key(m.Coordinator)
	e.key(m.Aggregator)
	e.i64(m.ReportBytes)
	e.i64(m.ShareBytes)
	return e.b
}

// maxPart bounds the size of a sealed part of a report.
const maxPart = 1 << 26

// DecodeAnnouncement is the inverse of Append.
func DecodeAnnouncement(b []byte) (m Announcement, err error) {
	d := decode(b, KindAnnouncement)
	d.fixed(m.Task[:])
	m.Round = d.count("round")
	d.fixed(m.ModelDigest[:])
	m.Trust, m.Participation = d.trust(), d.participation()
	m.Population, m.Sample, m.Gamma = d.count("n"), d.count("k"), d.f64("p")
	m.PerEpoch, m.MinReports = d.count("blocks"), d.count("n-min")
	m.Randomizer, m.Eps0, m.Sigma, m.Clip = d.text(), d.f64("eps0"), d.f64("sigma"), d.f64("clip")
	d.fixed(m.Enrolment[:])
	m.Opens, m.Deadline = d.i64(), d.i64()
	m.Coordinator, m.Aggregator = d.key(), d.key()
	m.ReportBytes, m.ShareBytes = d.count("report bytes"), d.count("share bytes")
	switch {
	case d.err != nil:
	case m.Round < 1 || m.MinReports < 1 || m.MinReports > m.Population:
		d.fail("round %d with n-min %d of %d clients", m.Round, m.MinReports, m.Population)
	case m.Gamma < 0 || m.Gamma > 1 || m.Participation == dp.CheckIn && m.Gamma == 0:
		d.fail("p = %v must be above 0 and at most 1", m.Gamma)
	case m.Sample > m.Population || m.Participation == dp.Sampled && m.Sample < m.MinReports:
		d.fail("k = %d must lie between n-min = %d and n = %d", m.Sample, m.MinReports, m.Population)
	case m.Deadline < m.Opens:
		d.fail("deadline %d before %d", m.Deadline, m.Opens)
	case m.ReportBytes > maxPart || m.ShareBytes > maxPart:
		d.fail("parts of %d and %d bytes, at most %d", m.ReportBytes, m.ShareBytes, maxPart)
	}
	if err := d.end(); err != nil {
		return Announcement{}, err
	}
	return m, nil
}

// Digest identifies the announcement; reports are bound to it.
func (m Announcement) Digest() [32]byte { return Digest(LabelAnnouncement, m.Append(nil)) }

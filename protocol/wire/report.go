package wire

import (
	"crypto/sha256"
	"fmt"
)

// Reason says why a report or a request was refused. The set is closed; counts
// are kept by reason and by nothing else.
type Reason string

// Reasons of a shuffler.
const (
	Malformed    Reason = "malformed"     // not a message of this version
	WrongSize    Reason = "wrong-size"    // another size than the announcement's
	WrongKey     Reason = "wrong-key"     // sealed to a key that is not held, or not openable
	UnknownRound Reason = "unknown-round" // no such announcement, or another task's
	Closed       Reason = "closed"        // after the deadline
	NotEnrolled  Reason = "not-enrolled"
	BadSignature Reason = "bad-signature" // a signature, or a report's MAC, does not fit
	Expired      Reason = "expired"       // a session that is over, or a request for one of another time
	NotDrawn     Reason = "not-drawn"     // not among the round's drawn clients
	Duplicate    Reason = "duplicate"     // the same report again: counted once
	SecondReport Reason = "second-report" // another report of the same client: one is kept
	TooMany      Reason = "too-many"      // over a rate or a size limit
	Unavailable  Reason = "unavailable"   // nothing was stored: send the same bytes again
)

// Reasons of a coordinator or an aggregator, which see no sender.
const (
	OutOfRange Reason = "out-of-range" // opened, but no report of the mechanism
	Excluded   Reason = "excluded"     // the other aggregator could not open it
)

// Refused is what a shuffler answers to an announcement that its operator's rules do
// not allow.
const Refused Reason = "refused"

// Reasons lists all, in the order they are shown.
func Reasons() []Reason {
	return []Reason{Malformed, WrongSize, WrongKey, UnknownRound, Closed, NotEnrolled, BadSignature, Expired, NotDrawn,
		Duplicate, SecondReport, TooMany, Unavailable, OutOfRange, Excluded, Refused}
}

// Report is a client's report as the shuffler opens it: who sent it, under what
// id, and the sealed parts that it passes on unread.
type Report struct {
	Announcement [32]byte // digest; bound by the outer seal and by the MAC
	Client       ClientID
	ID           ReportID
	Session      int64 // when the session ends whose key the MAC is made with
	MAC          [sha256.Size]byte
	Part         []byte // sealed to the coordinator
	Share        []byte // sealed to the aggregator; empty without
}

// ReportHeader starts a sealed report: version, kind, id of the shuffler's key,
// digest of the announcement. It is the additional data of the outer seal.
const ReportHeader = 2 + 8 + 32

// reportFixed is what a report holds besides its parts.
const reportFixed = 16 + 16 + 8 + sha256.Size

// AppendReportHeader encodes the header.
func AppendReportHeader(dst []byte, key KeyID, announcement [32]byte) []byte {
	e := encode(dst, KindReport)
	e.raw(key[:])
	e.raw(announcement[:])
	return e.b
}

// Pass is what a report may show outside of its seal: by it a shuffler that knows
// its sessions tells a client's bytes from a stranger's before it takes them in. It
// is another one in each round, and says nothing of the client to anyone else.
type Pass [16]byte

// PassedHeader is the size of a header with a pass.
const PassedHeader = ReportHeader + len(Pass{})

// ReportKindHeader is a field of the HTTP answer to a request for a session: the
// kind of report that the shuffler takes beside KindReport, KindPassed. Shufflers
// before passes do not send it.
const ReportKindHeader = "Riffle-Report-Kind"

// AppendPassedHeader encodes a header with a pass.
func AppendPassedHeader(dst []byte, key KeyID, announcement [32]byte, pass Pass) []byte {
	e := encode(dst, KindPassed)
	e.raw(key[:])
	e.raw(announcement[:])
	e.raw(pass[:])
	return e.b
}

// DecodePass returns a sealed report's pass, if it has one.
func DecodePass(b []byte) (p Pass, ok bool) {
	if len(b) < PassedHeader || b[0] != Version || Kind(b[1]) != KindPassed {
		return Pass{}, false
	}
	return Pass(b[ReportHeader:PassedHeader]), true
}

// DecodeReportHeader splits a sealed report, with a pass or without, into what its
// header says, the header itself and the rest.
func DecodeReportHeader(b []byte) (key KeyID, announcement [32]byte, header, sealed []byte, err error) {
	kind, size := KindReport, ReportHeader
	if len(b) > 1 && Kind(b[1]) == KindPassed {
		kind, size = KindPassed, PassedHeader
	}
	d := decode(b, kind)
	d.fixed(key[:])
	d.fixed(announcement[:])
	d.take(size - ReportHeader)
	if d.err != nil {
		return KeyID{}, [32]byte{}, nil, nil, d.err
	}
	return key, announcement, b[:size], d.b, nil
}

// Append encodes what goes inside the outer seal.
func (r *Report) Append(dst []byte) []byte {
	e := encoder{dst}
	e.raw(r.Client[:])
	e.raw(r.ID[:])
	e.i64(r.Session)
	e.raw(r.MAC[:])
	e.raw(r.Part)
	e.raw(r.Share)
	return e.b
}

// ReportSize is the size of an opened report with parts of these sizes.
func ReportSize(part, share int64) int64 { return reportFixed + part + share }

// DecodeReport is the inverse of Append, for an announcement's sizes. The parts
// are not copied.
func DecodeReport(b []byte, announcement [32]byte, part, share int64) (r Report, err error) {
	if int64(len(b)) != ReportSize(part, share) {
		return r, fmt.Errorf("%w: report of %d bytes, want %d", ErrMalformed, len(b), ReportSize(part, share))
	}
	d := decoder{b: b}
	r.Announcement = announcement
	d.fixed(r.Client[:])
	d.fixed(r.ID[:])
	r.Session = d.count("session")
	d.fixed(r.MAC[:])
	r.Part, r.Share = d.take(int(part)), d.take(int(share))
	if err := d.end(); err != nil {
		return Report{}, err
	}
	return r, nil
}

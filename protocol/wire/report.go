package wire

import (
	"crypto/sha256"
	"fmt"
)

// Reason says why a report or a request was refused. The set is closed; refusals are counted
// by reason and by nothing else.
type Reason string

// Reasons that a shuffler gives.
const (
	Malformed    Reason = "malformed"     // not a message of this version
	WrongSize    Reason = "wrong-size"    // the size differs from the announcement's
	WrongKey     Reason = "wrong-key"     // sealed to a key that is not held, or cannot be opened
	UnknownRound Reason = "unknown-round" // no such announcement, or one of another task
	Closed       Reason = "closed"        // after the deadline
	NotEnrolled  Reason = "not-enrolled"
	BadSignature Reason = "bad-signature" // a signature, or a report's MAC, is wrong
	Expired      Reason = "expired"       // the session has ended, or the time in a request for a session is wrong
	NotDrawn     Reason = "not-drawn"     // not among the round's drawn clients
	Duplicate    Reason = "duplicate"     // the same report again; counted once
	SecondReport Reason = "second-report" // another report of the same client; one is kept
	TooMany      Reason = "too-many"      // over a rate or a size limit
	Unavailable  Reason = "unavailable"   // nothing was stored; send the same bytes again
)

// Reasons that a coordinator or an aggregator gives; they see no sender.
const (
	OutOfRange Reason = "out-of-range" // opened, but not a possible report of the mechanism
	Excluded   Reason = "excluded"     // the other aggregator could not open it
	Unequal    Reason = "unequal"      // the parts for coordinator and aggregator are not of one report
	BadProof   Reason = "bad-proof"    // its proof does not hold, or is of another round
)

// Reasons of whoever checks the tokens of a task's messages.
const (
	NoToken    Reason = "no-token"    // without a token of the registrar for this task, round and message
	SpentToken Reason = "spent-token" // with a token that another message of the round has; the first one counts
)

// Refused is a shuffler's reason for refusing an announcement that its operator's rules do
// not allow.
const Refused Reason = "refused"

// OldLedger is a shuffler's reason for refusing a coordinator whose ledger is shorter than it
// was, or another one.
const OldLedger Reason = "old-ledger"

// Reasons lists all reasons, in the order in which they are shown. The order is part of the
// encoding of RoundClosed: new reasons come last.
func Reasons() []Reason {
	return []Reason{Malformed, WrongSize, WrongKey, UnknownRound, Closed, NotEnrolled, BadSignature, Expired, NotDrawn,
		Duplicate, SecondReport, TooMany, Unavailable, OutOfRange, Excluded, Refused,
		Unequal, BadProof, NoToken, SpentToken, OldLedger}
}

// Report is a client's report after the shuffler has opened it: the sender, the report's id,
// and the sealed parts that the shuffler passes on unread.
type Report struct {
	Announcement [32]byte // digest of the announcement; bound by the outer seal and by the MAC
	Client       ID
	ID           ID
	Session      int64 // end of the session whose key makes the MAC
	MAC          [sha256.Size]byte
	Part         []byte // sealed to the coordinator; the parts of several messages follow one another
	Share        []byte // sealed to the aggregator; empty if there is none
}

// Header starts a sealed report. It is the additional data of the outer seal.
type Header struct {
	Key          [8]byte // of the shuffler's key
	Announcement [32]byte
	// Pass is a value that a report shows outside of its seal: SessionKey.Pass. By it a shuffler that
	// knows its sessions recognises a client's report before it accepts the bytes. A client's pass is
	// different in each round, and tells nobody else anything about the client.
	Pass ID
}

// ReportHeader is the size of a header: version, kind, id of the shuffler's key, digest of the
// announcement, pass.
const ReportHeader = 2 + 8 + 32 + len(ID{})

// reportFixed is the size of a report without its parts.
const reportFixed = 16 + 16 + 8 + sha256.Size

func (*Header) kind() byte { return KindReport }

func (h *Header) fields(c *codec) {
	c.fixed(h.Key[:])
	c.fixed(h.Announcement[:])
	c.fixed(h.Pass[:])
}

// DecodeHeader reads a sealed report's header, and returns the header and the bytes after it.
func DecodeHeader(b []byte) (h Header, sealed []byte, err error) {
	c := codec{b: b, reads: true}
	c.head(h.kind())
	h.fields(&c)
	if c.err != nil {
		return Header{}, nil, c.err
	}
	return h, c.b, nil
}

// Append appends the content of the outer seal to dst.
func (r *Report) Append(dst []byte) []byte {
	c := codec{b: dst}
	r.fields(&c, 0, 0)
	return c.b
}

// fields reads or writes the report. Parts that are read have these sizes.
func (r *Report) fields(c *codec, part, share int64) {
	c.fixed(r.Client[:])
	c.fixed(r.ID[:])
	c.count("session", &r.Session)
	c.fixed(r.MAC[:])
	c.bytes(&r.Part, int(part))
	c.bytes(&r.Share, int(share))
}

// ReportSize returns the size of an opened report with parts of these sizes.
func ReportSize(part, share int64) int64 { return reportFixed + part + share }

// DecodeReport is the inverse of Append, for parts of the sizes that the announcement states.
// The parts are not copied.
func DecodeReport(b []byte, announcement [32]byte, part, share int64) (r Report, err error) {
	if int64(len(b)) != ReportSize(part, share) {
		return r, fmt.Errorf("%w: report of %d bytes, want %d", ErrMalformed, len(b), ReportSize(part, share))
	}
	c := codec{b: b, reads: true}
	r.Announcement = announcement
	r.fields(&c, part, share)
	if err := c.end(); err != nil {
		return Report{}, err
	}
	return r, nil
}

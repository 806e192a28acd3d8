package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Version is that of the encoding. Every message starts with it.
const Version = 1

// Kinds of messages: the second byte of each. A number is never reused for another kind.
const (
	KindEnrolment    byte = 1
	KindTask         byte = 2
	KindAnnouncement byte = 3
	KindReport       byte = 4 // outer envelope, client to shuffler
	KindSealed       byte = 5 // inner envelope, client to coordinator or aggregator
	KindClosed       byte = 6
	KindChunk        byte = 7
	KindEntry        byte = 9 // entry of a ledger
	KindExclusion    byte = 10
	KindPartial      byte = 11

	KindSession        byte = 13
	KindAsk            byte = 14 // a client asks whether it is drawn
	KindSessionRequest byte = 15
	KindSessionSealed  byte = 16 // the answer to KindSessionRequest
	KindShareIDs       byte = 17 // the report ids of the shares that an aggregator holds
	KindProofKey       byte = 19
	KindProofs         byte = 20
	KindAgreed         byte = 21 // an aggregator's word on which reports it sums
	KindRoster         byte = 22 // a registrar's statement
	KindTokenKeys      byte = 24
	KindTokenRequest   byte = 25
	KindReceipts       byte = 28
	KindHead           byte = 40 // how far a ledger was written
	KindOpening        byte = 46 // a range of a batch, for one of the coordinator's workers
	KindOpened         byte = 47 // its tally
	KindRelayView      byte = 48 // what a relay answers and checks by itself
)

// ErrMalformed is wrapped by every error of a decoder.
var ErrMalformed = errors.New("wire: malformed message")

const (
	maxString = 1 << 10
	maxBlob   = 1 << 20
)

// message is a pointer to a message T that starts with its version and kind. Its fields are
// listed once, in the order of their encoding: the same list reads and writes them.
type message[T any] interface {
	*T
	kind() byte
	// fields reads or writes the fields, and refuses what was read if it cannot be true.
	fields(c *codec)
}

// labelled is a message that is signed, or that others name by its digest.
type labelled[T any] interface {
	message[T]
	label() Label
}

// Digest identifies an [Agreed], [Announcement], [Enrolment], [Entry], [Exclusion], [HeadStatement], [Opening], [ProofKey],
// [Proofs], [Receipts], [Roster], [RoundClosed], [SessionRequest], [Task], [TokenKeys] or [TokenRequest]: it is what a signature of the message is over. An Entry's
// digest also identifies all entries before it. A Task's digest is the task's id.
func Digest[T any, P labelled[T]](m T) [32]byte { return hash(P(&m).label(), Encode[T, P](m)) }

// Encode returns the encoding of a message: an [Agreed], [Announcement], [Ask], [Chunk], [Enrolment],
// [Entry], [Exclusion], [Header], [HeadStatement], [Opened], [Opening], [Partial], [ProofKey], [Proofs], [Receipts], [RelayView], [Roster], [RoundClosed], [Session],
// [SessionRequest], [ShareIDs], [Task], [TokenKeys] or [TokenRequest].
func Encode[T any, P message[T]](m T) []byte {
	c := codec{b: []byte{Version, P(&m).kind()}}
	P(&m).fields(&c)
	if e, ok := any(&m).(extended); ok {
		c.writeParts(e.parts())
	}
	return c.b
}

// Decode is the inverse of Encode. A Chunk's items and the message of Proofs are not copied.
func Decode[T any, P message[T]](b []byte) (T, error) {
	var m, none T
	c := codec{b: b, reads: true}
	c.head(P(&m).kind())
	P(&m).fields(&c)
	if e, ok := any(&m).(extended); ok {
		c.readParts(e.parts())
	}
	if err := c.end(); err != nil {
		return none, err
	}
	return m, nil
}

// codec reads little-endian fields from the front of b, or appends them to b. Appending does
// not change the fields. After the first error it reads nothing.
type codec struct {
	b     []byte
	reads bool
	err   error
}

// head reads the version and the kind.
func (c *codec) head(k byte) {
	var version, kind byte
	if c.u8(&version); c.read() && version != Version {
		c.fail("version %d, this program speaks %d", version, Version)
	}
	if c.u8(&kind); c.read() && kind != k {
		c.fail("kind %d, want %d", kind, k)
	}
}

// read says whether the codec reads fields and has met no error so far.
func (c *codec) read() bool { return c.reads && c.err == nil }

func (c *codec) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	c.b = nil
}

func (c *codec) take(n int) []byte {
	if c.err != nil || n > len(c.b) {
		c.fail("%d bytes where %d are needed", len(c.b), n)
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

// fixed reads or writes as many bytes as b has.
func (c *codec) fixed(b []byte) {
	if c.reads {
		copy(b, c.take(len(b)))
		return
	}
	c.b = append(c.b, b...)
}

// bytes reads n bytes without a copy, or writes b.
func (c *codec) bytes(b *[]byte, n int) {
	if c.reads {
		*b = c.take(n)
		return
	}
	c.b = append(c.b, *b...)
}

func (c *codec) u8(v *byte) {
	if !c.reads {
		c.b = append(c.b, *v)
	} else if b := c.take(1); b != nil {
		*v = b[0]
	}
}

func (c *codec) u64(v *uint64) {
	if !c.reads {
		c.b = binary.LittleEndian.AppendUint64(c.b, *v)
	} else if b := c.take(8); b != nil {
		*v = binary.LittleEndian.Uint64(b)
	}
}

func (c *codec) i64(v *int64) {
	u := uint64(*v)
	if c.u64(&u); c.reads {
		*v = int64(u)
	}
}

// count reads an i64 that must not be negative.
func (c *codec) count(name string, v *int64) {
	if c.i64(v); c.read() && *v < 0 {
		c.fail("%s = %d must not be negative", name, *v)
	}
}

// f64 refuses NaN, infinities and negative zero, so that a value has one encoding.
func (c *codec) f64(name string, v *float64) {
	u := math.Float64bits(*v)
	if c.u64(&u); c.read() {
		if *v = math.Float64frombits(u); math.IsNaN(*v) || math.IsInf(*v, 0) || *v == 0 && math.Signbit(*v) {
			c.fail("%s = %v must be finite", name, *v)
		}
	}
}

func (c *codec) flag(v *bool) {
	var u byte
	if *v {
		u = 1
	}
	if c.u8(&u); c.reads {
		*v = u == 1
	}
	if u > 1 {
		c.fail("flag %d must be 0 or 1", u)
	}
}

// length reads or writes a number of bytes, in four bytes. It refuses to read a number above
// the limit, most.
func (c *codec) length(what string, n int, most uint32) int {
	if !c.reads {
		c.b = binary.LittleEndian.AppendUint32(c.b, uint32(n))
		return n
	}
	b := c.take(4)
	if b == nil {
		return 0
	}
	u := binary.LittleEndian.Uint32(b)
	if u > most {
		c.fail("%s of %d bytes, at most %d", what, u, most)
		return 0
	}
	return int(u)
}

// blob reads or writes a length and as many bytes. What it reads is a copy.
func (c *codec) blob(b *[]byte) {
	n := c.length("content", len(*b), maxBlob)
	if c.reads {
		*b = append([]byte(nil), c.take(n)...)
		return
	}
	c.b = append(c.b, *b...)
}

// text reads or writes a length and a text in UTF-8.
func text[S ~string](c *codec, s *S) {
	n := c.length("text", len(*s), maxString)
	if !c.reads {
		c.b = append(c.b, *s...)
		return
	}
	if *s = S(c.take(n)); !utf8.ValidString(string(*s)) {
		c.fail("text that is not UTF-8")
	}
}

// list reads or writes the number of items, in one byte, and then the items.
func list[T any](c *codec, items *[]T, item func(*T)) {
	n := byte(len(*items))
	if c.u8(&n); c.reads && n > 0 {
		*items = make([]T, n)
	}
	for i := range *items {
		item(&(*items)[i])
	}
}

// rest reads or writes the number of the items at the end of a message, each of size bytes. It
// returns that number, or 0 after an error.
func (c *codec) rest(name string, items, size int) int {
	n := int64(items)
	c.count(name, &n)
	if c.read() && (n != int64(len(c.b)/size) || len(c.b)%size != 0) {
		c.fail("%d %s in %d bytes", n, name, len(c.b))
	}
	if c.err != nil {
		return 0
	}
	return int(n)
}

// end refuses bytes after the message.
func (c *codec) end() error {
	if c.err == nil && len(c.b) != 0 {
		c.fail("%d bytes left over", len(c.b))
	}
	return c.err
}

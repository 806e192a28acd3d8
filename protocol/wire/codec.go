package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"unicode/utf8"
)

// Version is the protocol's version. Every message starts with it.
const Version = 1

// Kind is the type of a message, its second byte.
type Kind byte

// Kinds of messages. A number is never reused for another kind.
const (
	KindEnrolment    Kind = 1
	KindTask         Kind = 2
	KindAnnouncement Kind = 3
	KindReport       Kind = 4 // outer envelope, client to shuffler
	KindSealed       Kind = 5 // inner envelope, client to coordinator or aggregator
	KindClosed       Kind = 6
	KindChunk        Kind = 7
	KindEntry        Kind = 9 // entry of a ledger
	KindExclusion    Kind = 10
	KindPartial      Kind = 11

	KindSession        Kind = 13
	KindAsk            Kind = 14 // a client asks whether it is drawn
	KindSessionRequest Kind = 15
	KindSessionSealed  Kind = 16 // the answer to KindSessionRequest
	KindShareIDs       Kind = 17 // whose halves an aggregator holds, by place
	KindPassed         Kind = 18 // KindReport with a pass in the header

	// Kinds 8 and 12 were a signed ask and a request for a session that was not sealed.
)

// ErrMalformed is wrapped by every error of a decoder.
var ErrMalformed = errors.New("wire: malformed message")

const (
	maxString = 1 << 10
	maxBlob   = 1 << 20
)

// encoder appends little-endian fields.
type encoder struct{ b []byte }

func encode(dst []byte, k Kind) *encoder { return &encoder{append(dst, Version, byte(k))} }

func (e *encoder) u8(v byte)     { e.b = append(e.b, v) }
func (e *encoder) u32(v uint32)  { e.b = binary.LittleEndian.AppendUint32(e.b, v) }
func (e *encoder) i64(v int64)   { e.b = binary.LittleEndian.AppendUint64(e.b, uint64(v)) }
func (e *encoder) f64(v float64) { e.b = binary.LittleEndian.AppendUint64(e.b, math.Float64bits(v)) }
func (e *encoder) raw(b []byte)  { e.b = append(e.b, b...) }
func (e *encoder) flag(v bool) {
	if v {
		e.u8(1)
		return
	}
	e.u8(0)
}

// text and blob append their length in four bytes, then their content.
func (e *encoder) text(s string) { e.u32(uint32(len(s))); e.b = append(e.b, s...) }
func (e *encoder) blob(b []byte) { e.u32(uint32(len(b))); e.raw(b) }

// decoder reads what an encoder wrote. After the first error it returns zeros.
type decoder struct {
	b   []byte
	err error
}

func decode(b []byte, k Kind) *decoder {
	d := &decoder{b: b}
	if v := d.u8(); d.err == nil && v != Version {
		d.fail("version %d, this program speaks %d", v, Version)
	}
	if got := Kind(d.u8()); d.err == nil && got != k {
		d.fail("kind %d, want %d", got, k)
	}
	return d
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
	d.b = nil
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n > len(d.b) {
		d.fail("%d bytes where %d are needed", len(d.b), n)
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) u8() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (d *decoder) u32() uint32 {
	if b := d.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (d *decoder) i64() int64 {
	if b := d.take(8); b != nil {
		return int64(binary.LittleEndian.Uint64(b))
	}
	return 0
}

// count reads an i64 that must not be negative.
func (d *decoder) count(name string) int64 {
	v := d.i64()
	if v < 0 {
		d.fail("%s = %d must not be negative", name, v)
		return 0
	}
	return v
}

// f64 refuses NaN, infinities and negative zero, so that a value has one encoding.
func (d *decoder) f64(name string) float64 {
	v := math.Float64frombits(uint64(d.i64()))
	if d.err == nil && (math.IsNaN(v) || math.IsInf(v, 0) || v == 0 && math.Signbit(v)) {
		d.fail("%s = %v must be finite", name, v)
		return 0
	}
	return v
}

func (d *decoder) flag() bool {
	v := d.u8()
	if v > 1 {
		d.fail("flag %d must be 0 or 1", v)
	}
	return v == 1
}

func (d *decoder) text() string {
	n := d.u32()
	if n > maxString {
		d.fail("text of %d bytes, at most %d", n, maxString)
		return ""
	}
	s := string(d.take(int(n)))
	if !utf8.ValidString(s) {
		d.fail("text that is not UTF-8")
	}
	return s
}

func (d *decoder) blob() []byte {
	n := d.u32()
	if n > maxBlob {
		d.fail("%d bytes, at most %d", n, maxBlob)
		return nil
	}
	return append([]byte(nil), d.take(int(n))...)
}

func (d *decoder) fixed(dst []byte) { copy(dst, d.take(len(dst))) }

// end refuses bytes after the message.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) != 0 {
		d.fail("%d bytes left over", len(d.b))
	}
	return d.err
}

// Package bhttp encodes HTTP requests and answers as RFC 9292 (Binary HTTP) says, in the form of
// known length, with padding. It has what requests through a relay need, and refuses the rest:
// informational answers and trailers.
package bhttp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrMalformed is wrapped by every error of a decoder.
var ErrMalformed = errors.New("bhttp: malformed message")

// headerField is one line of a header.
type headerField struct{ Name, Value string }

// Request is a request.
type Request struct {
	Method, Scheme, Authority, Path string
	Header                          []headerField
	Body                            []byte
}

// Response is a final answer.
type Response struct {
	Status int
	Header []headerField
	Body   []byte
}

// Framing indicators of messages of known length.
const (
	framingRequest  = 0
	framingResponse = 1
)

// maxFields bounds the number of lines of a header.
const maxFields = 64

// Append appends the encoding to b, and zeros up to size bytes in all, if it is shorter.
func (m *Request) Append(b []byte, size int) []byte {
	start := len(b)
	b = number(b, framingRequest)
	for _, s := range []string{m.Method, m.Scheme, m.Authority, m.Path} {
		b = text(b, s)
	}
	return end(b, start, m.Header, m.Body, size)
}

// Append appends the encoding to b, and zeros up to size bytes in all, if it is shorter.
func (m *Response) Append(b []byte, size int) []byte {
	start := len(b)
	b = number(number(b, framingResponse), uint64(m.Status))
	return end(b, start, m.Header, m.Body, size)
}

func end(b []byte, start int, header []headerField, body []byte, size int) []byte {
	var fields []byte
	for _, f := range header {
		fields = text(text(fields, f.Name), f.Value)
	}
	b = text(b, string(fields))
	b = append(number(b, uint64(len(body))), body...)
	b = number(b, 0) // no trailers
	if pad := size - (len(b) - start); pad > 0 {
		b = append(b, make([]byte, pad)...)
	}
	return b
}

// number appends an integer of variable length (RFC 9000, section 16).
func number(b []byte, n uint64) []byte {
	switch {
	case n < 1<<6:
		return append(b, byte(n))
	case n < 1<<14:
		return binary.BigEndian.AppendUint16(b, uint16(n)|1<<14)
	case n < 1<<30:
		return binary.BigEndian.AppendUint32(b, uint32(n)|1<<31)
	}
	return binary.BigEndian.AppendUint64(b, n|3<<62)
}

func text(b []byte, s string) []byte { return append(number(b, uint64(len(s))), s...) }

// DecodeRequest reads a request. Its body is not copied.
func DecodeRequest(b []byte) (m Request, err error) {
	r := reader{b: b}
	if f := r.number(); f != framingRequest {
		r.fail("framing %d, want a request of known length", f)
	}
	for _, s := range []*string{&m.Method, &m.Scheme, &m.Authority, &m.Path} {
		*s = string(r.blob())
	}
	m.Header, m.Body = r.end()
	return m, r.err
}

// DecodeResponse reads an answer. Its body is not copied.
func DecodeResponse(b []byte) (m Response, err error) {
	r := reader{b: b}
	if f := r.number(); f != framingResponse {
		r.fail("framing %d, want an answer of known length", f)
	}
	status := r.number()
	if status < 200 || status > 599 {
		r.fail("status %d", status)
	}
	m.Status = int(status)
	m.Header, m.Body = r.end()
	return m, r.err
}

// reader reads from the front of b. After the first error it reads nothing.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.b, r.err = nil, fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
	}
}

func (r *reader) number() uint64 {
	if r.err == nil && len(r.b) == 0 {
		r.fail("it ends early")
	}
	if r.err != nil {
		return 0
	}
	size := 1 << (r.b[0] >> 6)
	if len(r.b) < size {
		r.fail("it ends early")
		return 0
	}
	n := uint64(r.b[0] & 0x3f)
	for _, x := range r.b[1:size] {
		n = n<<8 | uint64(x)
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) blob() []byte {
	n := r.number()
	if n > uint64(len(r.b)) {
		r.fail("%d bytes, there are %d", n, len(r.b))
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// end reads header, body, trailers and padding. Empty ones at the end may be left out.
func (r *reader) end() (header []headerField, body []byte) {
	if r.err != nil || len(r.b) == 0 {
		return nil, nil
	}
	fields := reader{b: r.blob()}
	for r.err == nil && len(fields.b) > 0 {
		f := headerField{string(fields.blob()), string(fields.blob())}
		if header = append(header, f); fields.err != nil || len(header) > maxFields {
			r.fail("%d lines of a header, the last broken or too many", len(header))
		}
	}
	if r.err == nil && len(r.b) > 0 {
		body = r.blob()
	}
	if r.err == nil && len(r.b) > 0 && len(r.blob()) > 0 {
		r.fail("trailers")
	}
	if r.err == nil && len(bytes.TrimLeft(r.b, "\x00")) > 0 {
		r.fail("padding that is not zero")
	}
	return header, body
}

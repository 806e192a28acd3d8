package external

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

func putUint64(b []byte, n uint64) { binary.LittleEndian.PutUint64(b, n) }

// errAnswer is wrapped by errors in what a program answered, as opposed to those of its end or of
// the connection.
var errAnswer = errors.New("")

func badAnswer(format string, args ...any) error {
	return fmt.Errorf("%s%w", fmt.Sprintf(format, args...), errAnswer)
}

// reader reads answers.
type reader struct {
	in    *bufio.Reader
	chunk []byte // working memory of values
}

func newReader(r io.Reader) *reader {
	return &reader{in: bufio.NewReaderSize(r, 1<<16)}
}

// head reads an answer up to its tensors' data, which have at most most bytes.
func (r *reader) head(op string, most int) (safetensors.File, error) {
	var first [8]byte
	if n, err := io.ReadFull(r.in, first[:]); err != nil {
		if text, ok := printed(first[:n]); ok && n > 0 {
			return safetensors.File{}, printedError(text)
		}
		return safetensors.File{}, err
	}
	length := binary.LittleEndian.Uint64(first[:])
	limit := 8 + maxHeader + uint64(most)
	if length > limit {
		if text, ok := printed(r.seen(first[:])); ok {
			return safetensors.File{}, printedError(text)
		}
		return safetensors.File{}, badAnswer("it answers with a frame of %d bytes, at most %d can be needed", length, limit)
	}
	f, n, size, err := r.document()
	if err != nil {
		if text, ok := printed(first[:]); ok && errors.Is(err, errAnswer) {
			return f, printedError(text)
		}
		return f, unexpected(err)
	}
	switch got := f.Metadata["op"]; {
	case got == opError:
		return f, r.said(f, size)
	case got != op:
		return f, badAnswer("it answers %q, it was asked for %s", clipped(got), op)
	case uint64(n) > length || uint64(size) != length-uint64(n):
		return f, badAnswer("its frame has %d bytes, its document %d", length, n+size)
	case size > most:
		return f, badAnswer("it sends %d bytes of tensors, at most %d can be needed", size, most)
	}
	return f, nil
}

// said is the error that the program itself reports.
func (r *reader) said(f safetensors.File, size int) error {
	if size != 0 {
		return badAnswer("it answers an error with tensors")
	}
	text := strings.Join(strings.Fields(f.Metadata["message"]), " ")
	if text == "" {
		text = "an error without a message"
	}
	if len(text) > 1000 {
		text = text[:1000] + "…"
	}
	return badAnswer("it says: %s", text)
}

// seen returns the first bytes, and those that follow and are there already.
func (r *reader) seen(first []byte) []byte {
	more, _ := r.in.Peek(min(r.in.Buffered(), 200))
	return append(append([]byte(nil), first...), more...)
}

// document reads the head of a document. It looks at its first bytes first, so that it does not
// wait for the rest of something else.
func (r *reader) document() (f safetensors.File, n, size int, err error) {
	const what = "its answer is no safetensors document (does something print to standard output?): "
	first, err := r.in.Peek(8)
	if err == nil && binary.LittleEndian.Uint64(first) <= maxHeader {
		if first, err = r.in.Peek(9); err == nil && first[8] != '{' {
			return f, 0, 0, badAnswer(what + "its header must begin with {")
		}
	}
	if err != nil {
		return f, 0, 0, err
	}
	f, n, size, err = safetensors.ReadHead(r.in, maxHeader)
	if err != nil {
		if text, ok := strings.CutPrefix(err.Error(), "safetensors: "); ok {
			err = badAnswer("%s%s", what, text)
		}
	}
	return f, n, size, err
}

// printed returns the first line of what begins as text.
func printed(b []byte) (string, bool) {
	text := string(b)
	end := strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r == utf8.RuneError })
	ended := end >= 0 && (text[end] == '\n' || text[end] == '\r')
	if end >= 0 {
		text = text[:end]
	}
	if text == "" || !ended && len(text) < 3 {
		return "", false
	}
	return clipped(text), true
}

func printedError(text string) error {
	return badAnswer("it printed %q to standard output, which is for answers only: print to standard error", text)
}

// chunkBytes is how many bytes of values are read at a time.
const chunkBytes = 1 << 17

// values reads float32 into dst. A value that is not finite becomes 0; odd is their number.
// negate turns all signs.
func (r *reader) values(dst []float32, negate bool) (odd int64, err error) {
	if r.chunk == nil {
		r.chunk = make([]byte, chunkBytes)
	}
	var sign uint32
	if negate {
		sign = 1 << 31
	}
	for len(dst) > 0 {
		part := dst[:min(len(dst), chunkBytes/4)]
		raw := r.chunk[:4*len(part)]
		if _, err := io.ReadFull(r.in, raw); err != nil {
			return odd, unexpected(err)
		}
		odd += decode(part, raw, sign)
		dst = dst[len(part):]
	}
	return odd, nil
}

// exponent masks the bits that are all set in a float32 that is not finite; exponents and carry
// find one of two at once: only such a one carries into its sign.
const (
	exponent  = 0x7f800000
	exponents = exponent<<32 | exponent
	carry     = 0x00800000<<32 | 0x00800000
	signs     = 1<<63 | 1<<31
)

// decode turns bytes into as many float32, and their signs if sign is the sign's bit.
func decode(dst []float32, raw []byte, sign uint32) (odd int64) {
	finite := func(bits uint32) uint32 {
		if bits&exponent == exponent {
			odd++
			return 0
		}
		return bits
	}
	both := uint64(sign)<<32 | uint64(sign)
	for len(dst) >= 8 && len(raw) >= 32 {
		a, b, c, d := binary.LittleEndian.Uint64(raw), binary.LittleEndian.Uint64(raw[8:16]), binary.LittleEndian.Uint64(raw[16:24]), binary.LittleEndian.Uint64(raw[24:32])
		if ((a&exponents+carry)|(b&exponents+carry)|(c&exponents+carry)|(d&exponents+carry))&signs != 0 {
			for i := range 8 {
				dst[i] = math.Float32frombits(finite(binary.LittleEndian.Uint32(raw[4*i:])) ^ sign)
			}
		} else {
			a, b, c, d = a^both, b^both, c^both, d^both
			dst[0], dst[1] = math.Float32frombits(uint32(a)), math.Float32frombits(uint32(a>>32))
			dst[2], dst[3] = math.Float32frombits(uint32(b)), math.Float32frombits(uint32(b>>32))
			dst[4], dst[5] = math.Float32frombits(uint32(c)), math.Float32frombits(uint32(c>>32))
			dst[6], dst[7] = math.Float32frombits(uint32(d)), math.Float32frombits(uint32(d>>32))
		}
		dst, raw = dst[8:], raw[32:]
	}
	for i := range dst {
		dst[i] = math.Float32frombits(finite(binary.LittleEndian.Uint32(raw[4*i:])) ^ sign)
	}
	return odd
}

// grown reads n float32 into memory that grows as they come.
func (r *reader) grown(n int) (out []float32, odd int64, err error) {
	for len(out) < n {
		more := min(n-len(out), chunkBytes/4)
		out = append(out, make([]float32, more)...)
		k, err := r.values(out[len(out)-more:], false)
		if odd += k; err != nil {
			return nil, odd, err
		}
	}
	return out, odd, nil
}

// unexpected is the error of a stream that ends inside an answer.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

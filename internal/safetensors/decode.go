package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Unmarshal parses a whole file. Tensors come in the order of their data,
// which is shared with b. It fails, and says why, on
//
//   - a file shorter than its header says, or a header above MaxHeader;
//   - a header that is not one JSON object in UTF-8 followed by spaces only;
//   - a name, metadata key or field that occurs twice, or an unknown field;
//   - an unknown dtype, a dimension that is not a plain integer ≥ 0;
//   - offsets that overlap, leave a hole, do not fit dtype and shape, or do
//     not end where the file ends.
func Unmarshal(b []byte) (File, error) {
	if len(b) < 8 {
		return File{}, fmt.Errorf("safetensors: file of %d bytes, want at least 8", len(b))
	}
	n := binary.LittleEndian.Uint64(b)
	if n > MaxHeader {
		return File{}, fmt.Errorf("safetensors: header length %d above limit %d", n, MaxHeader)
	}
	if n > uint64(len(b)-8) {
		return File{}, fmt.Errorf("safetensors: header length %d, but only %d bytes follow", n, len(b)-8)
	}
	header, data := b[8:8+n], b[8+n:]
	if !utf8.Valid(header) {
		return File{}, fmt.Errorf("safetensors: header is not valid UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return File{}, fmt.Errorf("safetensors: header must begin with {")
	}
	f, spans, err := parseHeader(header)
	if err != nil {
		return File{}, fmt.Errorf("safetensors: header: %w", err)
	}
	if err := place(&f, spans, data); err != nil {
		return File{}, fmt.Errorf("safetensors: %w", err)
	}
	return f, nil
}

// span is a tensor's byte range as the header gives it.
type span struct {
	tensor     int
	begin, end int
}

// place sorts the tensors by their data, checks that they tile it, and hands
// each its part.
func place(f *File, spans []span, data []byte) error {
	// The sort is stable: empty tensors share an offset and keep their header order.
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	ordered := make([]Tensor, 0, len(spans))
	at := 0
	for _, s := range spans {
		t := f.Tensors[s.tensor]
		if s.begin < 0 || s.end < s.begin || s.end > len(data) {
			return fmt.Errorf("tensor %q: offsets [%d, %d] outside the %d bytes of data", t.Name, s.begin, s.end, len(data))
		}
		if s.begin < at {
			return fmt.Errorf("tensor %q: offset %d overlaps the tensor before it, which ends at %d", t.Name, s.begin, at)
		}
		if s.begin > at {
			return fmt.Errorf("tensor %q: hole between bytes %d and %d", t.Name, at, s.begin)
		}
		want, err := byteLen(t.DType, t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		if s.end-s.begin != want {
			return fmt.Errorf("tensor %q: offsets [%d, %d] hold %d bytes, want %d for %s %v",
				t.Name, s.begin, s.end, s.end-s.begin, want, t.DType, t.Shape)
		}
		t.Data = data[s.begin:s.end:s.end]
		ordered = append(ordered, t)
		at = s.end
	}
	if at != len(data) {
		return fmt.Errorf("%d trailing bytes after the tensors", len(data)-at)
	}
	f.Tensors = ordered
	return nil
}

// headerReader walks the JSON tokens, because only tokens reveal a key that occurs twice.
type headerReader struct{ dec *json.Decoder }

func parseHeader(header []byte) (File, []span, error) {
	h := headerReader{json.NewDecoder(bytes.NewReader(header))}
	h.dec.UseNumber()
	var f File
	var spans []span
	err := h.object(func(name string) error {
		if name == metadataKey {
			f.Metadata = map[string]string{}
			return h.object(func(key string) error {
				v, err := h.text()
				f.Metadata[key] = v
				return err
			})
		}
		if name == "" {
			return fmt.Errorf("a tensor without a name")
		}
		t, s, err := h.tensor(name)
		if err != nil {
			return fmt.Errorf("tensor %q: %w", name, err)
		}
		s.tensor = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
		spans = append(spans, s)
		return nil
	})
	if err != nil {
		return File{}, nil, err
	}
	for _, c := range header[h.dec.InputOffset():] {
		if c != ' ' {
			return File{}, nil, fmt.Errorf("byte 0x%02x after the object, want only spaces", c)
		}
	}
	return f, spans, nil
}

func (h headerReader) tensor(name string) (Tensor, span, error) {
	t := Tensor{Name: name, Shape: []int{}}
	var offsets []int
	seen := 0
	err := h.object(func(field string) (err error) {
		seen++
		switch field {
		case "dtype":
			var v string
			v, err = h.text()
			t.DType = dType(v)
		case "shape":
			t.Shape, err = h.integers()
		case "data_offsets":
			offsets, err = h.integers()
		default:
			err = fmt.Errorf("unknown field %q", field)
		}
		return err
	})
	if err != nil {
		return t, span{}, err
	}
	// object refuses repeated fields, so three fields are the three known ones.
	if seen != 3 {
		return t, span{}, fmt.Errorf("%d fields, want dtype, shape and data_offsets", seen)
	}
	if len(offsets) != 2 {
		return t, span{}, fmt.Errorf("%d data_offsets, want 2", len(offsets))
	}
	return t, span{begin: offsets[0], end: offsets[1]}, nil
}

// object reads a JSON object and calls field for each key, which must read
// the value.
func (h headerReader) object(field func(key string) error) error {
	if err := h.delim('{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for h.dec.More() {
		key, err := h.text()
		if err != nil {
			return err
		}
		if seen[key] {
			return fmt.Errorf("%q occurs twice", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return h.delim('}')
}

// integers reads an array of integers between 0 and the largest int.
func (h headerReader) integers() ([]int, error) {
	if err := h.delim('['); err != nil {
		return nil, err
	}
	out := []int{}
	for h.dec.More() {
		tok, err := h.token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, fmt.Errorf("%v in an array of integers", tok)
		}
		v, err := strconv.ParseUint(num.String(), 10, strconv.IntSize-1)
		if err != nil {
			return nil, fmt.Errorf("%s must be a plain integer from 0 to %d", num, uint64(1)<<(strconv.IntSize-1)-1)
		}
		out = append(out, int(v))
	}
	return out, h.delim(']')
}

func (h headerReader) text() (string, error) {
	tok, err := h.token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", fmt.Errorf("%v where a string is expected", tok)
	}
	return s, nil
}

func (h headerReader) delim(want json.Delim) error {
	tok, err := h.token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%v where %v is expected", tok, want)
	}
	return nil
}

func (h headerReader) token() (json.Token, error) {
	tok, err := h.dec.Token()
	if err == io.EOF {
		return nil, io.ErrUnexpectedEOF
	}
	return tok, err
}

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
//   - a file shorter than its header says, a header above MaxHeader, or more than MaxEntries or MaxDims;
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
	f, ends, err := parse(header)
	if err != nil {
		return File{}, err
	}
	at := 0
	for i := range f.Tensors {
		if ends[i] > len(data) {
			return File{}, fmt.Errorf("safetensors: tensor %.80q: offsets [%d, %d] outside the %d bytes of data", f.Tensors[i].Name, at, ends[i], len(data))
		}
		f.Tensors[i].Data = data[at:ends[i]:ends[i]]
		at = ends[i]
	}
	if at != len(data) {
		return File{}, fmt.Errorf("safetensors: %d trailing bytes after the tensors", len(data)-at)
	}
	return f, nil
}

// ReadHead reads the part of a file that comes before the data, and no further. The tensors
// come in the order of their data, which is nil: the data, of size bytes in total, are what r
// has next. It fails as Unmarshal does, and on a header of more than limit bytes, which it does
// not read. It takes n bytes from r, and holds no more memory than a small multiple of them.
func ReadHead(r io.Reader, limit int) (f File, n, size int, err error) {
	var first [8]byte
	n, err = io.ReadFull(r, first[:])
	if err != nil {
		return File{}, n, 0, err
	}
	length := binary.LittleEndian.Uint64(first[:])
	if length > uint64(min(limit, MaxHeader)) {
		return File{}, n, 0, fmt.Errorf("safetensors: header length %d above limit %d", length, min(limit, MaxHeader))
	}
	var header bytes.Buffer
	got, err := io.CopyN(&header, r, int64(length))
	n += int(got)
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return File{}, n, 0, err
	}
	f, ends, err := parse(header.Bytes())
	if err != nil {
		return File{}, n, 0, err
	}
	if len(ends) > 0 {
		size = ends[len(ends)-1]
	}
	return f, n, size, nil
}

// parse reads a header. The tensors come in the order of their data; ends are the offsets at
// which they end.
func parse(header []byte) (f File, ends []int, err error) {
	if !utf8.Valid(header) {
		return File{}, nil, fmt.Errorf("safetensors: header is not valid UTF-8")
	}
	if len(header) == 0 || header[0] != '{' {
		return File{}, nil, fmt.Errorf("safetensors: header must begin with {")
	}
	f, spans, err := parseHeader(header)
	if err != nil {
		return File{}, nil, fmt.Errorf("safetensors: header: %w", err)
	}
	if ends, err = order(&f, spans); err != nil {
		return File{}, nil, fmt.Errorf("safetensors: %w", err)
	}
	return f, ends, nil
}

// span is a tensor's byte range as the header gives it.
type span struct {
	tensor     int
	begin, end int
}

// order sorts the tensors by their data, and checks that these have the right sizes and leave
// no hole. It returns the offset at which each ends.
func order(f *File, spans []span) (ends []int, err error) {
	// The sort is stable: empty tensors share an offset and keep their header order.
	slices.SortStableFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(a.end, b.end))
	})
	ordered := make([]Tensor, 0, len(spans))
	at := 0
	for _, s := range spans {
		t := f.Tensors[s.tensor]
		if s.begin < 0 || s.end < s.begin {
			return nil, fmt.Errorf("tensor %.80q: offsets [%d, %d] outside the data", t.Name, s.begin, s.end)
		}
		if s.begin < at {
			return nil, fmt.Errorf("tensor %.80q: offset %d overlaps the tensor before it, which ends at %d", t.Name, s.begin, at)
		}
		if s.begin > at {
			return nil, fmt.Errorf("tensor %.80q: hole between bytes %d and %d", t.Name, at, s.begin)
		}
		want, err := byteLen(t.DType, t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %.80q: %w", t.Name, err)
		}
		if s.end-s.begin != want {
			return nil, fmt.Errorf("tensor %.80q: offsets [%d, %d] hold %d bytes, want %d for %s %s",
				t.Name, s.begin, s.end, s.end-s.begin, want, t.DType, shown(t.Shape))
		}
		ordered = append(ordered, t)
		ends = append(ends, s.end)
		at = s.end
	}
	f.Tensors = ordered
	return ends, nil
}

// headerReader walks the JSON tokens, because only tokens reveal a key that occurs twice.
type headerReader struct{ dec *json.Decoder }

func parseHeader(header []byte) (File, []span, error) {
	h := headerReader{json.NewDecoder(bytes.NewReader(header))}
	h.dec.UseNumber()
	var f File
	var spans []span
	err := h.object(MaxEntries+1, func(name string) error {
		if name == metadataKey {
			f.Metadata = map[string]string{}
			return h.object(MaxEntries, func(key string) error {
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
			return fmt.Errorf("tensor %.80q: %w", name, err)
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
	err := h.object(MaxEntries, func(field string) (err error) {
		seen++
		switch field {
		case "dtype":
			var v string
			v, err = h.text()
			t.DType = dType(v)
		case "shape":
			t.Shape, err = h.integers(MaxDims)
		case "data_offsets":
			offsets, err = h.integers(2)
		default:
			err = fmt.Errorf("unknown field %.80q", field)
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

// object reads a JSON object of at most so many entries, and calls field for each key, which must read
// the value.
func (h headerReader) object(most int, field func(key string) error) error {
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
			return fmt.Errorf("%.80q occurs twice", key)
		}
		if len(seen) == most {
			return fmt.Errorf("more than %d entries in an object", most)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return h.delim('}')
}

// integers reads an array of at most so many integers between 0 and the largest int.
func (h headerReader) integers(most int) ([]int, error) {
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
			return nil, fmt.Errorf("%s in an array of integers", shown(tok))
		}
		v, err := strconv.ParseUint(num.String(), 10, strconv.IntSize-1)
		if err != nil {
			return nil, fmt.Errorf("%.80s must be a plain integer from 0 to %d", num, uint64(1)<<(strconv.IntSize-1)-1)
		}
		if len(out) == most {
			return nil, fmt.Errorf("more than %d integers in an array", most)
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
		return "", fmt.Errorf("%s where a string is expected", shown(tok))
	}
	return s, nil
}

func (h headerReader) delim(want json.Delim) error {
	tok, err := h.token()
	if err != nil {
		return err
	}
	if tok != want {
		return fmt.Errorf("%s where %v is expected", shown(tok), want)
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

// shown returns what a header says for an error: texts in quotes, and nothing long.
func shown(x any) string {
	text := fmt.Sprint(x)
	if quoted, ok := x.(string); ok {
		text = fmt.Sprintf("%.80q", quoted)
	}
	if len([]rune(text)) > 90 {
		text = string([]rune(text)[:90]) + "…"
	}
	return text
}

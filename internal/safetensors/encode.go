package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Marshal returns the file's one encoding. It fails on names or metadata that
// are not valid UTF-8, names that are empty, reserved or used twice, unknown
// types, and data that is not as long as its shape says.
func Marshal(f File) ([]byte, error) {
	for _, t := range f.Tensors {
		if err := t.check(t.DType); err != nil {
			return nil, err
		}
	}
	out, size, err := Head(f)
	if err != nil {
		return nil, err
	}
	out = slices.Grow(out, size)
	for _, t := range f.Tensors {
		out = append(out, t.Data...)
	}
	return out, nil
}

// Head returns what comes before the tensors' data in the file's encoding: the length of the
// header, and the header. The data, of size bytes in total, follow it in the order of the
// tensors. Data are not looked at. It fails as Marshal does.
func Head(f File) (head []byte, size int, err error) {
	if len(f.Tensors) > MaxEntries || len(f.Metadata) > MaxEntries {
		return nil, 0, fmt.Errorf("safetensors: %d tensors and %d metadata, at most %d each", len(f.Tensors), len(f.Metadata), MaxEntries)
	}
	header := []byte{'{'}
	if f.Metadata != nil {
		header = append(header, `"`+metadataKey+`":{`...)
		for i, k := range slices.Sorted(maps.Keys(f.Metadata)) {
			if i > 0 {
				header = append(header, ',')
			}
			if header, err = appendText(header, k); err != nil {
				return nil, 0, fmt.Errorf("safetensors: metadata key: %w", err)
			}
			header = append(header, ':')
			if header, err = appendText(header, f.Metadata[k]); err != nil {
				return nil, 0, fmt.Errorf("safetensors: metadata %q: %w", k, err)
			}
		}
		header = append(header, '}')
	}
	seen := make(map[string]bool, len(f.Tensors))
	for _, t := range f.Tensors {
		if t.Name == "" || t.Name == metadataKey {
			return nil, 0, fmt.Errorf("safetensors: %q cannot name a tensor", t.Name)
		}
		if len(t.Shape) > MaxDims {
			return nil, 0, fmt.Errorf("safetensors: tensor %q: %d dimensions, at most %d", t.Name, len(t.Shape), MaxDims)
		}
		if seen[t.Name] {
			return nil, 0, fmt.Errorf("safetensors: two tensors named %q", t.Name)
		}
		seen[t.Name] = true
		n, err := byteLen(t.DType, t.Shape)
		if err != nil {
			return nil, 0, fmt.Errorf("safetensors: tensor %q: %w", t.Name, err)
		}
		if n > math.MaxInt-size {
			return nil, 0, fmt.Errorf("safetensors: tensor %q: the sum of all sizes overflows", t.Name)
		}
		if len(header) > 1 {
			header = append(header, ',')
		}
		if header, err = appendText(header, t.Name); err != nil {
			return nil, 0, fmt.Errorf("safetensors: tensor name: %w", err)
		}
		header = append(header, `:{"dtype":"`+string(t.DType)+`","shape":[`...)
		for i, s := range t.Shape {
			if i > 0 {
				header = append(header, ',')
			}
			header = strconv.AppendInt(header, int64(s), 10)
		}
		header = append(header, `],"data_offsets":[`...)
		header = strconv.AppendInt(header, int64(size), 10)
		header = append(header, ',')
		size += n
		header = strconv.AppendInt(header, int64(size), 10)
		header = append(header, `]}`...)
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if len(header) > MaxHeader {
		return nil, 0, fmt.Errorf("safetensors: header of %d bytes, at most %d", len(header), MaxHeader)
	}
	head = binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(header)), uint64(len(header)))
	return append(head, header...), size, nil
}

// appendText appends s as a JSON string.
func appendText(b []byte, s string) ([]byte, error) {
	if !utf8.ValidString(s) {
		return nil, fmt.Errorf("%q is not valid UTF-8", s)
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return append(b, bytes.TrimSuffix(buf.Bytes(), []byte("\n"))...), nil
}

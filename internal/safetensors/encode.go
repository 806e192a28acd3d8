package safetensors

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// Marshal returns the file's one encoding. It fails on names or metadata that
// are not valid UTF-8, names that are empty, reserved or used twice, unknown
// types, and data that is not as long as its shape says.
func Marshal(f File) ([]byte, error) {
	header := []byte{'{'}
	if f.Metadata != nil {
		header = append(header, `"`+metadataKey+`":{`...)
		for i, k := range slices.Sorted(maps.Keys(f.Metadata)) {
			if i > 0 {
				header = append(header, ',')
			}
			var err error
			if header, err = appendText(header, k); err != nil {
				return nil, fmt.Errorf("safetensors: metadata key: %w", err)
			}
			header = append(header, ':')
			if header, err = appendText(header, f.Metadata[k]); err != nil {
				return nil, fmt.Errorf("safetensors: metadata %q: %w", k, err)
			}
		}
		header = append(header, '}')
	}
	seen := make(map[string]bool, len(f.Tensors))
	offset := 0
	for _, t := range f.Tensors {
		if t.Name == "" || t.Name == metadataKey {
			return nil, fmt.Errorf("safetensors: %q cannot name a tensor", t.Name)
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("safetensors: two tensors named %q", t.Name)
		}
		seen[t.Name] = true
		if err := t.check(t.DType); err != nil {
			return nil, err
		}
		if len(header) > 1 {
			header = append(header, ',')
		}
		var err error
		if header, err = appendText(header, t.Name); err != nil {
			return nil, fmt.Errorf("safetensors: tensor name: %w", err)
		}
		header = append(header, `:{"dtype":"`+string(t.DType)+`","shape":[`...)
		for i, s := range t.Shape {
			if i > 0 {
				header = append(header, ',')
			}
			header = strconv.AppendInt(header, int64(s), 10)
		}
		header = append(header, `],"data_offsets":[`...)
		header = strconv.AppendInt(header, int64(offset), 10)
		header = append(header, ',')
		offset += len(t.Data)
		header = strconv.AppendInt(header, int64(offset), 10)
		header = append(header, `]}`...)
	}
	header = append(header, '}')
	for len(header)%8 != 0 {
		header = append(header, ' ')
	}
	if len(header) > MaxHeader {
		return nil, fmt.Errorf("safetensors: header of %d bytes, at most %d", len(header), MaxHeader)
	}
	out := make([]byte, 0, 8+len(header)+offset)
	out = binary.LittleEndian.AppendUint64(out, uint64(len(header)))
	out = append(out, header...)
	for _, t := range f.Tensors {
		out = append(out, t.Data...)
	}
	return out, nil
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

// Package document reads the JSON records that services store. Each record states its format,
// which is checked before anything else. The package is for the program.
package document

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Hash is a digest that is stored as text; empty if zero.
type Hash [32]byte

// MarshalText writes hex.
func (h Hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

// UnmarshalText reads what MarshalText writes.
func (h *Hash) UnmarshalText(b []byte) error {
	d, err := hex.DecodeString(string(b))
	if err != nil || len(d) != len(h) {
		return fmt.Errorf("digest %q", b)
	}
	copy(h[:], d)
	return nil
}

// ErrNewer is wrapped if a newer program wrote the document.
var ErrNewer = errors.New("written by a newer program")

// Decode reads one document of the given format into v and refuses unknown fields. It refuses
// another format, which may mean something else by the same fields.
func Decode(b []byte, format int, v any) error {
	var head struct {
		Format int `json:"format"`
	}
	// Unmarshal also refuses anything after the document.
	if err := json.Unmarshal(b, &head); err != nil {
		return err
	}
	if head.Format > format {
		return fmt.Errorf("%w: format %d, this program knows %d", ErrNewer, head.Format, format)
	}
	if head.Format != format {
		return fmt.Errorf("format %d, this program knows %d", head.Format, format)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

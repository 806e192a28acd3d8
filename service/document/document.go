// Package document reads what services write down: JSON documents that say their
// format, which is looked at before anything else.
package document

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Hash is a digest that is stored as text; zero for none.
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

// ErrNewer is wrapped where a newer program wrote the document.
var ErrNewer = errors.New("written by a newer program")

// Decode reads one document of a format into v, without unknown fields. Another
// format, which may mean something else by the same fields, is refused.
func Decode(b []byte, format int, v any) error {
	var head struct {
		Format int `json:"format"`
	}
	// Which also refuses what comes after the document.
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

// Package mark keeps high-water marks: small files outside a store that say how far a list in the
// store has been written. A mark disagrees with a store that was lost, restored from an old copy,
// or edited. Somebody who can write both can still roll both back. The package is for the program.
package mark

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/service/document"
)

// Err is wrapped if there is no mark, or if it disagrees with what it is compared with.
var Err = errors.New("the high-water mark does not agree")

// ErrNone is the Err of a missing file: nobody can tell then whether the list is complete.
var ErrNone = fmt.Errorf("%w: there is none", Err)

const format = 1

// Mark says how far a list was written.
type Mark struct {
	Entries int64
	Digest  [32]byte // digest of the last entry; zero without entries
	// Epsilon is what the entries cost, for people to read: a decimal of at least 0, or +Inf. It
	// is empty if entries cost nothing.
	Epsilon string
}

type stored struct {
	Format  int    `json:"format"`
	Count   uint64 `json:"count"`
	Last    uint64 `json:"last"`
	Digest  string `json:"digest"`
	Epsilon string `json:"epsilon,omitempty"`
}

func parse(data []byte) (m Mark, err error) {
	var j stored
	if err := document.Decode(data, format, &j); err != nil {
		return Mark{}, fmt.Errorf("high-water mark: %w", err)
	}
	m = Mark{Entries: int64(j.Count), Epsilon: j.Epsilon}
	digest, err := hex.DecodeString(j.Digest)
	if err != nil || len(digest) != len(m.Digest) {
		return Mark{}, fmt.Errorf("high-water mark: digest %q", j.Digest)
	}
	copy(m.Digest[:], digest)
	if j.Last != j.Count {
		return Mark{}, fmt.Errorf("high-water mark: %d entries and last sequence %d", j.Count, j.Last)
	}
	return m, m.check()
}

func (m Mark) check() error {
	if m.Entries < 0 || (m.Entries == 0) != (m.Digest == [32]byte{}) {
		return fmt.Errorf("high-water mark: %d entries with digest %x", m.Entries, m.Digest)
	}
	if m.Epsilon == "" {
		return nil
	}
	if eps, err := strconv.ParseFloat(m.Epsilon, 64); err != nil || math.IsNaN(eps) || eps < 0 {
		return fmt.Errorf("high-water mark: epsilon = %q must be at least 0", m.Epsilon)
	}
	return nil
}

func (m Mark) encode() ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	n := uint64(m.Entries)
	b, err := json.MarshalIndent(stored{format, n, n, hex.EncodeToString(m.Digest[:]), m.Epsilon}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("high-water mark: %w", err)
	}
	return append(b, '\n'), nil
}

// File is the path of a mark, best on another disk than the store. `riffle init` makes the file.
type File string

// Load reads the mark. A missing file is an ErrNone. A mark in a directory that others own or may write into is refused.
func (f File) Load() (Mark, error) {
	if err := durable.Own(filepath.Dir(string(f))); err != nil {
		return Mark{}, fmt.Errorf("high-water mark: %w", err)
	}
	data, err := durable.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return Mark{}, fmt.Errorf("%w: %s", ErrNone, f)
	}
	if err != nil {
		return Mark{}, err
	}
	return parse(data)
}

// Save replaces the mark durably, or makes the file. It refuses to lower one: a mark stays if it cannot be
// read, has more entries, or has as many entries with another digest. A mark of no entries is only ever made: of
// several processes that do so at the same time one succeeds, and the errors of the others wrap os.ErrExist.
func (f File) Save(m Mark) error {
	data, err := m.encode()
	if err != nil {
		return err
	}
	old, err := f.Load()
	switch {
	case errors.Is(err, ErrNone):
		return durable.Create(string(f), data, 0o644)
	case err != nil:
		return err
	case m.Entries == 0 && old == m:
		return fmt.Errorf("high-water mark %s: %w", f, os.ErrExist)
	case old.Entries > m.Entries || old.Entries == m.Entries && old.Digest != m.Digest:
		return fmt.Errorf("%w: %s is at entry %d (%x); not replaced by entry %d (%x)",
			Err, f, old.Entries, old.Digest[:8], m.Entries, m.Digest[:8])
	}
	return durable.WriteFile(string(f), data)
}

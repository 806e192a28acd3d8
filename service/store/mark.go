package store

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/riffle-dp/riffle/internal/durable"
)

// Mark is the high-water mark of a ledger, kept in a file outside of NATS, best on another
// disk. It disagrees with a ledger that was lost, restored from an old copy, or edited.
// Somebody who can write both can still roll both back.
type Mark struct {
	Count  uint64            // number of entries, which is the last sequence
	Digest [sha256.Size]byte // digest of the last entry, which chains them all; zero if there is none
	// Epsilon is the cost of the entries, for people to read. It may be +Inf, but not NaN or
	// below 0.
	Epsilon float64
}

const markFormat = 1

type markJSON struct {
	Format  int    `json:"format"`
	Count   uint64 `json:"count"`
	Last    uint64 `json:"last"`
	Digest  string `json:"digest"`
	Epsilon string `json:"epsilon"` // shortest decimal that reads back, or +Inf
}

func parseMark(data []byte) (Mark, error) {
	if err := checkFormat("the high-water mark", data, markFormat); err != nil {
		return Mark{}, err
	}
	var j markJSON
	if err := strictJSON(data, &j); err != nil {
		return Mark{}, fmt.Errorf("store: high-water mark: %w", err)
	}
	m := Mark{Count: j.Count}
	digest, err := hex.DecodeString(j.Digest)
	if err != nil || len(digest) != len(m.Digest) {
		return Mark{}, fmt.Errorf("store: high-water mark: digest %q", j.Digest)
	}
	copy(m.Digest[:], digest)
	if j.Last != j.Count {
		return Mark{}, fmt.Errorf("store: high-water mark: %d entries and last sequence %d", j.Count, j.Last)
	}
	if (m.Count == 0) != (m.Digest == [sha256.Size]byte{}) {
		return Mark{}, fmt.Errorf("store: high-water mark: %d entries with digest %s", j.Count, j.Digest)
	}
	if m.Epsilon, err = strconv.ParseFloat(j.Epsilon, 64); err != nil {
		return Mark{}, fmt.Errorf("store: high-water mark: epsilon %q", j.Epsilon)
	}
	return m, checkEpsilon(m.Epsilon)
}

func checkEpsilon(eps float64) error {
	if math.IsNaN(eps) || eps < 0 {
		return fmt.Errorf("store: high-water mark: epsilon = %v must be at least 0", eps)
	}
	return nil
}

func (m Mark) encode() ([]byte, error) {
	if err := checkEpsilon(m.Epsilon); err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(markJSON{Format: markFormat, Count: m.Count, Last: m.Count, Digest: hex.EncodeToString(m.Digest[:]),
		Epsilon: strconv.FormatFloat(m.Epsilon, 'g', -1, 64)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("store: high-water mark: %w", err)
	}
	return append(b, '\n'), nil
}

// ReadMark reads a mark; ErrNotFound if there is no file.
func ReadMark(path string) (Mark, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return Mark{}, fmt.Errorf("store: high-water mark %s: %w", path, ErrNotFound)
	}
	if err != nil {
		return Mark{}, fmt.Errorf("store: %w", err)
	}
	return parseMark(data)
}

// WriteMark replaces the mark durably. It refuses to lower one: a mark stays if it cannot be
// read, has more entries, or has as many entries with another digest.
func WriteMark(path string, m Mark) error {
	switch old, err := ReadMark(path); {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return err
	case old.Count > m.Count, old.Count == m.Count && old.Digest != m.Digest:
		return fmt.Errorf("store: high-water mark %s is at entry %d (%x); not replaced by entry %d (%x): %w",
			path, old.Count, old.Digest[:8], m.Count, m.Digest[:8], ErrRollback)
	}
	data, err := m.encode()
	if err != nil {
		return err
	}
	if err := durable.WriteFile(path, data); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

package store

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/riffle-dp/riffle/internal/durable"
)

// Mark is the high-water mark of a ledger, kept in a file outside of NATS, best
// on another disk. A ledger that was lost, restored from an old copy, or edited
// does not agree with it. Whoever can write both can still roll both back.
type Mark struct {
	Count  uint64            // entries, which is the last sequence
	Digest [sha256.Size]byte // chain over the entries, see Chain
	// Epsilon is what the entries cost, for people to read and for a check that
	// a recount is not lower. +Inf is allowed, NaN and below 0 are not.
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

// Chain is the running digest of a ledger: SHA-256 over the digest so far, the
// sequence, and the entry. The zero value is that of an empty ledger.
type Chain struct {
	Count  uint64
	Digest [sha256.Size]byte
}

// Add takes in the next entry.
func (c *Chain) Add(data []byte) {
	c.Count++
	h := sha256.New()
	h.Write([]byte("riffle ledger v1\x00"))
	h.Write(c.Digest[:])
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], c.Count)
	h.Write(n[:])
	h.Write(data)
	h.Sum(c.Digest[:0])
}

// Mark returns the mark of this position.
func (c Chain) Mark(epsilon float64) Mark {
	return Mark{Count: c.Count, Digest: c.Digest, Epsilon: epsilon}
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

// WriteMark replaces the mark durably. It refuses to lower one: a mark that
// cannot be read, has more entries, or has as many but others, stays.
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

// Check reads the whole ledger, compares it with a mark and returns the
// ledger's position. The ledger may be ahead: an entry is written before its
// mark. One that is shorter, or whose entries up to the mark are others, is
// ErrRollback.
func (l *Ledger) Check(ctx context.Context, m Mark) (Chain, error) {
	var c, at Chain
	for e, err := range l.Read(ctx) {
		if err != nil {
			return c, err
		}
		c.Add(e.Data)
		if c.Count == m.Count {
			at = c
		}
	}
	if c.Count < m.Count {
		return c, fmt.Errorf("store: ledger ends at entry %d (%x), the mark is at entry %d (%x): %w",
			c.Count, c.Digest[:8], m.Count, m.Digest[:8], ErrRollback)
	}
	if at.Digest != m.Digest {
		return c, fmt.Errorf("store: ledger entry %d has digest %x, the mark %x: %w", m.Count, at.Digest[:8], m.Digest[:8], ErrRollback)
	}
	return c, nil
}

package coordinator

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// MarkFile is the path of a ledger's high-water mark, best on another disk than the store.
// The mark disagrees with a ledger that was lost, restored from an old copy, or edited.
// Somebody who can write both can still roll both back. `riffle init` makes the file.
type MarkFile string

const markFormat = 1

type markJSON struct {
	Format  int    `json:"format"`
	Count   uint64 `json:"count"`
	Last    uint64 `json:"last"`
	Digest  string `json:"digest"`
	Epsilon string `json:"epsilon"` // shortest decimal that reads back, or +Inf
}

func parseMark(data []byte) (ledger.Mark, error) {
	var j markJSON
	if err := document.Decode(data, markFormat, &j); err != nil {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: %w", err)
	}
	m := ledger.Mark{Entries: int64(j.Count)}
	digest, err := hex.DecodeString(j.Digest)
	if err != nil || len(digest) != len(m.Digest) {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: digest %q", j.Digest)
	}
	copy(m.Digest[:], digest)
	if j.Last != j.Count || m.Entries < 0 {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: %d entries and last sequence %d", j.Count, j.Last)
	}
	if (m.Entries == 0) != (m.Digest == [32]byte{}) {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: %d entries with digest %s", j.Count, j.Digest)
	}
	if m.Eps, err = strconv.ParseFloat(j.Epsilon, 64); err != nil {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: epsilon %q", j.Epsilon)
	}
	return m, checkEpsilon(m.Eps)
}

func checkEpsilon(eps float64) error {
	if math.IsNaN(eps) || eps < 0 {
		return fmt.Errorf("coordinator: high-water mark: epsilon = %v must be at least 0", eps)
	}
	return nil
}

func encodeMark(m ledger.Mark) ([]byte, error) {
	if err := checkEpsilon(m.Eps); err != nil {
		return nil, err
	}
	n := uint64(m.Entries)
	b, err := json.MarshalIndent(markJSON{Format: markFormat, Count: n, Last: n, Digest: hex.EncodeToString(m.Digest[:]),
		Epsilon: strconv.FormatFloat(m.Eps, 'g', -1, 64)}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("coordinator: high-water mark: %w", err)
	}
	return append(b, '\n'), nil
}

// Load reads the mark. Without it nobody can tell whether the ledger is complete: a missing
// file is a ledger.ErrMark.
func (f MarkFile) Load() (ledger.Mark, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return ledger.Mark{}, fmt.Errorf("%w: high-water mark %s: %w", ledger.ErrMark, f, store.ErrNotFound)
	}
	if err != nil {
		return ledger.Mark{}, fmt.Errorf("coordinator: %w", err)
	}
	return parseMark(data)
}

// Save replaces the mark durably. It refuses to lower one: a mark stays if it cannot be
// read, has more entries, or has as many entries with another digest.
func (f MarkFile) Save(m ledger.Mark) error {
	if _, err := os.Stat(string(f)); !errors.Is(err, os.ErrNotExist) {
		old, err := f.Load()
		if err != nil {
			return err
		}
		if old.Entries > m.Entries || old.Entries == m.Entries && old.Digest != m.Digest {
			return fmt.Errorf("coordinator: high-water mark %s is at entry %d (%x); not replaced by entry %d (%x): %w",
				f, old.Entries, old.Digest[:8], m.Entries, m.Digest[:8], ledger.ErrMark)
		}
	}
	data, err := encodeMark(m)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(string(f), data); err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	return nil
}

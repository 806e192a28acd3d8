package coordinator

import (
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// MarkFile is the path of a ledger's high-water mark, best on another disk than the store:
// see package mark. `riffle init` makes the file.
type MarkFile string

// Load reads the mark. Without it nobody can tell whether the ledger is complete: a missing
// file is a ledger.ErrMark.
func (f MarkFile) Load() (ledger.Mark, error) {
	m, err := mark.File(f).Load()
	if errors.Is(err, mark.ErrNone) {
		return ledger.Mark{}, fmt.Errorf("%w: high-water mark %s: %w", ledger.ErrMark, f, store.ErrNotFound)
	}
	if err != nil {
		return ledger.Mark{}, fmt.Errorf("coordinator: %w", err)
	}
	eps, err := strconv.ParseFloat(m.Epsilon, 64)
	if err != nil {
		return ledger.Mark{}, fmt.Errorf("coordinator: high-water mark: epsilon %q", m.Epsilon)
	}
	return ledger.Mark{Entries: m.Entries, Digest: m.Digest, Eps: eps}, nil
}

// Save replaces the mark durably. It refuses to lower one: a mark stays if it cannot be
// read, has more entries, or has as many entries with another digest.
func (f MarkFile) Save(m ledger.Mark) error {
	if math.IsNaN(m.Eps) || m.Eps < 0 {
		return fmt.Errorf("coordinator: high-water mark: epsilon = %v must be at least 0", m.Eps)
	}
	err := mark.File(f).Save(mark.Mark{Entries: m.Entries, Digest: m.Digest, Epsilon: strconv.FormatFloat(m.Eps, 'g', -1, 64)})
	switch {
	case err == nil:
		return nil
	case errors.Is(err, mark.Err):
		return fmt.Errorf("coordinator: %w: %w", err, ledger.ErrMark)
	}
	return fmt.Errorf("coordinator: %w", err)
}

package coordinator

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
)

// promise is what a round with proofs may never do otherwise, for it would show more than was charged:
// which set of reports it sums, and which noise it adds. The state of a task holds it too, but a
// store that was restored from an older copy has forgotten it, and the ledger's mark does not tell,
// because nothing is charged meanwhile. So the last round's promise also lies outside the store.
type promise struct {
	Round        int64 `json:"round"`
	Announcement hash  `json:"announcement"`
	Excluded     hash  `json:"excluded"`
	Noise        hash  `json:"noise,omitzero"` // zero until it is named
}

// keeps says whether a round may go on with p, if old was promised last.
func (p promise) keeps(old promise) bool {
	if p.Announcement != old.Announcement {
		return p.Round > old.Round
	}
	return p.Round == old.Round && p.Excluded == old.Excluded && (old.Noise == hash{} || p.Noise == old.Noise)
}

// promiseStore holds the last promise of each task, by its id. It is a PromiseFile, except in tests.
type promiseStore interface {
	Load() (map[hash]promise, error)
	Save(map[hash]promise) error // durable on return
}

// PromiseFile is the path of a file outside the store that holds the promises. A missing file has none.
type PromiseFile string

type promises struct {
	Format int              `json:"format"`
	Tasks  map[hash]promise `json:"tasks"`
}

// Load reads the promises.
func (f PromiseFile) Load() (map[hash]promise, error) {
	if err := durable.Own(filepath.Dir(string(f))); err != nil {
		return nil, fmt.Errorf("coordinator: promises of rounds: %w", err)
	}
	b, err := os.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		return map[hash]promise{}, nil
	}
	var p promises
	if err == nil {
		err = document.Decode(b, 1, &p)
	}
	if err != nil {
		return nil, fmt.Errorf("coordinator: promises of rounds: %w", err)
	}
	if p.Tasks == nil {
		p.Tasks = map[hash]promise{}
	}
	return p.Tasks, nil
}

// Save replaces the promises durably.
func (f PromiseFile) Save(tasks map[hash]promise) error {
	b, err := json.MarshalIndent(promises{1, tasks}, "", "  ")
	if err != nil {
		return err
	}
	if err := durable.WriteFile(string(f), append(b, '\n')); err != nil {
		return fmt.Errorf("coordinator: promises of rounds: %w", err)
	}
	return nil
}

// promised compares the open round with the task's last promise, and notes what is new. It comes after
// the state was stored, and before anything is done by it.
func (r *runner) promised(announcement [32]byte) error {
	s := r.s
	if s.config.Promises == nil {
		return nil
	}
	s.promises.Lock()
	defer s.promises.Unlock()
	all, err := s.config.Promises.Load()
	if err != nil {
		return err
	}
	open := r.record.Open
	now := promise{r.record.Round + 1, announcement, open.Excluded, open.Noise}
	old, ok := all[r.id]
	if ok && old == now {
		return nil
	}
	if ok && !now.keeps(old) {
		return &failure{FailedSecret, "the store is an old copy: what was settled of the round is lost",
			fmt.Errorf("%w: round %d was settled otherwise", mark.Err, old.Round)}
	}
	all = maps.Clone(all)
	all[r.id] = now
	return s.config.Promises.Save(all)
}

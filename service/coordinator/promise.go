package coordinator

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
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

// PromiseFile is the path of a file outside the store that holds the promises. `riffle init` makes it with
// the ledger's mark. A missing one is refused: a round could then be summed over a second set, or with a
// second noise, and nobody would notice.
type PromiseFile string

type promises struct {
	Format int              `json:"format"`
	Tasks  map[hash]promise `json:"tasks"`
}

// Load reads the promises. A missing file is a mark.ErrNone.
func (f PromiseFile) Load() (map[hash]promise, error) {
	if err := durable.Own(filepath.Dir(string(f))); err != nil {
		return nil, fmt.Errorf("coordinator: promises of rounds: %w", err)
	}
	b, err := durable.ReadFile(string(f))
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: %s", mark.ErrNone, f)
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
	return f.write(tasks, durable.WriteFile)
}

func (f PromiseFile) write(tasks map[hash]promise, by func(path string, data []byte) error) error {
	b, err := json.MarshalIndent(promises{1, tasks}, "", "  ")
	if err == nil {
		err = by(string(f), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("coordinator: promises of rounds: %w", err)
	}
	return nil
}

// unknowable stands for what a round has promised where nobody knows it any more: no round keeps it.
var unknowable = hash(sha256.Sum256([]byte("riffle/1 nobody knows what was promised")))

// Create makes the file, if it is missing, with the promises that hold for what is stored of tasks. Of a new
// ledger, which has no tasks, there are none. Of a lost file only those are known that the state of a
// task holds. A round that is open, charged, and not settled as far as the state says may have
// been settled in a newer state: it will end without a step. Create returns the number of these rounds.
func (f PromiseFile) Create(ctx context.Context, s storage, book *ledger.Book, tasks []wire.Task) (lost int, err error) {
	all := map[hash]promise{}
	for _, task := range tasks {
		r := runner{id: wire.Digest(task), task: task}
		r.record, _, err = readRecord(ctx, s, r.id)
		if errors.Is(err, store.ErrNotFound) {
			continue // no process has led it yet
		}
		if err != nil {
			return 0, err
		}
		rec := r.record
		last, _ := book.Last(r.id)
		charged := last.Round > rec.Round || task.Participation == dp.Once // of an epoch only the first round has an entry
		if !task.Mechanism.Sum.Proved() || rec.Open == nil || len(rec.Open.Closed) == 0 || !charged {
			continue
		}
		a, err := r.announcement()
		if err != nil {
			return 0, fatal("%w", err)
		}
		p := promise{a.Round, wire.Digest(*a), rec.Open.Excluded, rec.Open.Noise}
		drawn := task.Mechanism.Sum.NoiseBy != wire.NoiseByClients
		if p.Excluded == (hash{}) || drawn && p.Noise == (hash{}) {
			p.Noise = unknowable
			if p.Excluded == (hash{}) {
				p.Excluded = unknowable
			}
			lost++
		}
		all[r.id] = p
	}
	return lost, f.write(all, func(path string, data []byte) error { return durable.Create(path, data, 0o644) })
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

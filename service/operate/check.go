package operate

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	roles "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/aggregator"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/opener"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/service/shuffler"
	"github.com/riffle-dp/riffle/service/store"
)

// problem is something that is wrong with a store.
type problem struct {
	Where string `json:"where"`
	What  string `json:"what"`
}

// checkReport is the result of a check of a store.
type checkReport struct {
	Role     string           `json:"role"`
	Clean    bool             `json:"clean"`
	Problems []problem        `json:"problems"`
	Checked  map[string]int64 `json:"checked"` // number of things checked, by kind
}

func (r *checkReport) problem(where, format string, args ...any) {
	r.Problems = append(r.Problems, problem{where, fmt.Sprintf(format, args...)})
}

// Check opens a role's store, which must not be in use, reads all of it, and reports what
// contradicts DATA_MODEL.md. It changes nothing.
func Check(ctx context.Context, role, path string) (*checkReport, error) {
	r := &checkReport{Role: role, Problems: []problem{}, Checked: map[string]int64{}}
	var err error
	switch role {
	case RoleShuffler:
		err = r.shuffler(ctx, path)
	case RoleCoordinator:
		err = r.coordinator(ctx, path)
	case RoleAggregator:
		err = r.aggregator(ctx, path)
	case RoleRegistrar:
		err = r.registrar(ctx, path)
	default:
		return nil, config.Errorf("no role %q to be checked", role)
	}
	r.Clean = err == nil && len(r.Problems) == 0
	return r, err
}

// readAll reads everything once, and counts it.
func (r *checkReport) readAll(ctx context.Context, s *store.Store) {
	v, err := s.Inventory(ctx)
	if err != nil {
		r.problem("store", "it cannot be read whole: %v", err)
	}
	for name, n := range map[string]uint64{"ledger entries": v.Ledger, "keys": v.Keys, "secrets": v.Secrets, "streams": v.Streams,
		"messages": v.Messages, "objects": v.Objects} {
		r.Checked[name] = int64(n)
	}
	// Noise of rounds with proofs. Between rounds there is none, unless a crash has left some, which
	// goes at the next start.
	if names, err := s.List(ctx, store.Objects, "noise/"); err == nil && len(names) > 0 {
		r.Checked["objects of noise"] = int64(len(names))
	}
}

func (r *checkReport) coordinator(ctx context.Context, path string) error {
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		return err
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openCoordinatorStore(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	r.readAll(ctx, s)
	// Ranges for workers, and their tallies. Between rounds there are none, unless a crash or a late worker
	// has left some, which go at the start of the task's next leader or after its next round.
	if items, results, err := s.Queued(ctx, opener.Queue); err != nil {
		r.problem("opening", "the queue cannot be read: %v", err)
	} else if items+results > 0 {
		r.Checked["openings"], r.Checked["messages of tallies"] = int64(items), int64(results)
	}
	book, marked, err := verifyLedger(ctx, c, s)
	if err == nil {
		err = lag(book, marked)
	}
	if err != nil {
		r.problem("ledger", "%v", err)
	}
	promises := promisesOf(c)
	if _, err := promises.Load(); err != nil {
		r.problem("promises", "%v", err)
	}
	unknown := map[[32]byte]bool{} // charged tasks that have no record
	if book != nil {
		for _, e := range book.Entries() {
			unknown[e.Task] = true
		}
	}
	keys, err := s.List(ctx, store.Values, createdPrefix)
	if err != nil {
		return err
	}
	run := &coordinatorProcess{config: c, store: s, own: coordinator.Config{Key: key}, tasks: map[[32]byte]*train.Setup{}}
	run.config.Record = "" // with a name here, the directory would be made
	if c.Aggregator != nil {
		run.own.Aggregator = &coordinator.Aggregator{Key: c.Aggregator.Signer}
	}
	if c.Registrar != nil {
		run.own.Shuffler.Registrar = c.Registrar.Signer
	}
	for _, k := range keys {
		r.Checked["tasks"]++
		made, w, err := readCreated(ctx, s, k, publicOf(key))
		if err != nil {
			r.problem(k, "%v", err)
			if b, err := hex.DecodeString(strings.TrimPrefix(k, createdPrefix)); err == nil && len(b) == 32 {
				delete(unknown, [32]byte(b))
			}
			continue
		}
		removed, err := r.usable(ctx, run, k, made)
		if err != nil {
			return err
		}
		if removed {
			continue
		}
		if book != nil {
			coordinator.Check(ctx, s, book, promises, w, r.problem)
		}
		delete(unknown, wire.Digest(w))
		if roles.Question(w) != "" {
			r.answer(ctx, s, k, made, w)
		}
	}
	for id := range unknown {
		r.problem("ledger", "task %x is charged, and the store does not know it", id)
	}
	return nil
}

// answer checks that what is stored of a question gives its answer, if it was released.
func (r *checkReport) answer(ctx context.Context, s *store.Store, key string, made created, w wire.Task) {
	state, _, err := coordinator.ReadLearned(ctx, s, wire.Digest(w))
	if errors.Is(err, coordinator.ErrNoModel) {
		return
	}
	r.Checked["answers"]++
	p := (*measure.Plan)(nil)
	if err == nil {
		p, err = measure.OpenTask(w, made.Question)
	}
	if err == nil {
		_, err = p.AnswerOf(state)
	}
	if err != nil && ctx.Err() == nil {
		r.problem(key, "its answer cannot be made: %v", err)
	}
}

// usable checks that a task that has not ended could be run. It returns an error only
// after ctx has ended; removed says that only the task's key is left.
func (r *checkReport) usable(ctx context.Context, run *coordinatorProcess, key string, made created) (removed bool, err error) {
	t, err := run.openTask(ctx, made)
	switch {
	case errors.Is(err, errRemoved):
		return true, nil
	case ctx.Err() != nil:
		return false, ctx.Err()
	case err != nil:
		r.problem(key, "%v", err)
	case t.Missing != nil:
		r.problem(key, "the task cannot be run with this configuration (riffle task stop or remove ends it): %v", t.Missing)
	}
	return false, nil
}

func (r *checkReport) shuffler(ctx context.Context, path string) error {
	c, err := config.Load[config.Shuffler](path)
	if err != nil {
		return err
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openStore(ctx, c.Store)
	if err != nil {
		return err
	}
	defer s.Close()
	r.readAll(ctx, s)
	var registrar ed25519.PublicKey
	if c.Registrar != nil {
		registrar = c.Registrar.Signer
	}
	r.Checked["rounds"], err = shuffler.Check(ctx, s, publicOf(key), registrar, c.ID, r.problem)
	return err
}

func (r *checkReport) aggregator(ctx context.Context, path string) error {
	c, err := config.Load[config.Aggregator](path)
	if err != nil {
		return err
	}
	s, err := openAggregatorStore(ctx, c)
	if err != nil {
		return err
	}
	defer s.Close()
	r.readAll(ctx, s)
	if c.Mark == "" {
		r.Checked["rounds"], err = aggregator.Check(ctx, s, nil, r.problem)
	} else {
		r.Checked["rounds"], err = aggregator.Check(ctx, s, mark.File(c.Mark), r.problem)
	}
	return err
}

func (r *checkReport) registrar(ctx context.Context, path string) error {
	c, err := config.Load[config.Registrar](path)
	if err != nil {
		return err
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		return config.Errorf("%w", err)
	}
	s, err := openStore(ctx, c.Store)
	if err != nil {
		return err
	}
	defer s.Close()
	r.readAll(ctx, s)
	if c.Mark == "" {
		r.Checked["clients"], err = registrar.Check(ctx, s, nil, publicOf(key), c.ID, r.problem)
	} else {
		r.Checked["clients"], err = registrar.Check(ctx, s, mark.File(c.Mark), publicOf(key), c.ID, r.problem)
	}
	return err
}

// verifyLedger compares a coordinator's ledger with its mark, which it returns too.
func verifyLedger(ctx context.Context, c config.Coordinator, s *store.Store) (*ledger.Book, ledger.Mark, error) {
	log, err := coordinator.OpenLog(ctx, s)
	if err != nil {
		return nil, ledger.Mark{}, err
	}
	marked, err := coordinator.MarkFile(c.Mark).Load()
	if err != nil {
		return nil, marked, fmt.Errorf("high-water mark: %w", err)
	}
	book, err := ledger.Verify(ctx, log, marked, c.ID)
	return book, marked, err
}

// lag returns an error if a mark does not count all entries of a ledger.
func lag(b *ledger.Book, m ledger.Mark) error {
	if n := b.Head().Entries; m.Entries < n {
		return fmt.Errorf("the high-water mark lags: it is at entry %d of %d, so that an old copy of the store would be taken; a coordinator that starts writes it, or says why it cannot", m.Entries, n)
	}
	return nil
}

package operate

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/measure"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// This file stores tasks for coordinators that share a store, and loads the tasks that
// another coordinator has created.

// created is what CreateTask stores before it answers.
type created struct {
	Format int    `json:"format"`
	Signed []byte `json:"task"`
	// Round is the time that clients have to report, in nanoseconds.
	Round time.Duration `json:"round"`
	// Question is what a question's task is opened with, measure.Plan.Stored; empty: it trains.
	Question json.RawMessage `json:"question,omitempty"`

	tokens  []byte // the signed keys of its tokens, an object of their own; nil: it has none
	initial []byte // the parameters that the task starts from, an object of their own; nil: zeros
}

const createdFormat = 1

func (c created) encode() []byte {
	c.Format = createdFormat
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // bytes and numbers can always be written
	}
	return b
}

func decodeCreated(b []byte) (c created, err error) {
	err = document.Decode(b, createdFormat, &c)
	return c, err
}

// createdPrefix is the prefix of the keys under which CreateTask stores tasks.
const createdPrefix = "created."

func createdKey(id [32]byte) string { return createdPrefix + hex.EncodeToString(id[:]) }

// verified returns the stored task if the key has signed it.
func (c created) verified(public ed25519.PublicKey) (wire.Task, error) {
	message, err := wire.Verify(public, wire.LabelTask, c.Signed)
	if err != nil {
		return wire.Task{}, err
	}
	return wire.Decode[wire.Task](message)
}

// readCreated returns the task that a key of the store names.
func readCreated(ctx context.Context, s *store.Store, key string, public ed25519.PublicKey) (made created, w wire.Task, err error) {
	e, err := s.Get(ctx, key)
	if err == nil {
		made, err = decodeCreated(e.Value)
	}
	if err == nil {
		w, err = made.verified(public)
	}
	if err == nil && createdKey(wire.Digest(w)) != key {
		err = fmt.Errorf("the task there is another, %x", wire.Digest(w))
	}
	return made, w, err
}

// openTask makes a stored task ready to be run. A task that has ended is only shown, and so
// is one that cannot be run here: its Missing says why. An error says that the stored task
// cannot be read.
func (r *coordinatorProcess) openTask(ctx context.Context, made created) (coordinator.Job, error) {
	w, err := made.verified(publicOf(r.own.Key))
	if err != nil {
		return coordinator.Job{}, err
	}
	ended, how, err := coordinator.Ended(ctx, r.store, wire.Digest(w))
	if err != nil {
		return coordinator.Job{}, err
	}
	if how.State == coordinator.Removed {
		return coordinator.Job{}, errRemoved
	}
	shown := coordinator.Job{Signed: made.Signed, Budget: tailOnly(w), Ended: ended}
	if client.Question(w) != "" {
		return r.openQuestion(ctx, made, w, shown)
	}
	if t, err := train.ReadTask(w); err == nil {
		r.remember(t)
	}
	if ended {
		return shown, nil
	}
	t, err := train.OpenTask(ctx, w, r.config.Data, initialOf(r.store, w))
	var out coordinator.Job
	if err == nil {
		made.tokens, err = readTokenKeys(ctx, r.store, w)
	}
	if err == nil {
		out, err = r.runnable(t, made)
	}
	if err == nil {
		err = coordinator.CheckJob(r.own, out)
	}
	if err == nil {
		err = r.record(t.Wire, t.Mechanism, &out)
	}
	switch {
	case err == nil:
		r.remember(t)
		return out, nil
	case ctx.Err() != nil:
		return out, ctx.Err()
	}
	shown.Missing = err
	return shown, nil
}

// errRemoved says that a task was removed and only its key is left.
var errRemoved = errors.New("operate: the task was removed")

// tailOnly returns a budget without a limit, with the tail that the task needs.
func tailOnly(w wire.Task) ledger.Config {
	c := ledger.Config{Accountant: new(account.Accountant), Delta: w.Delta, MaxEps: math.Inf(1)}
	c.Tail = measure.TaskTail(w)
	return c
}

// lookup gives the journal the tail of a task that another coordinator charges, or that
// cannot be run here. The coordinator that charges it keeps its budget. The task's digest in
// the ledger identifies it, so its signature, which may be by an old key, is not verified.
func (r *coordinatorProcess) lookup(ctx context.Context, task [32]byte) (limit ledger.Config, ok bool, err error) {
	e, err := r.store.Get(ctx, createdKey(task))
	if errors.Is(err, store.ErrNotFound) {
		return limit, false, nil
	}
	if err != nil {
		return limit, false, err
	}
	made, err := decodeCreated(e.Value)
	if err != nil {
		return limit, false, err
	}
	if len(made.Signed) < ed25519.SignatureSize {
		return limit, false, fmt.Errorf("operate: %s holds no signed task", e.Key)
	}
	w, err := wire.Decode[wire.Task](made.Signed[ed25519.SignatureSize:])
	if err != nil {
		return limit, false, err
	}
	if wire.Digest(w) != task {
		return limit, false, fmt.Errorf("operate: %s holds task %x", e.Key, wire.Digest(w))
	}
	return tailOnly(w), true, nil
}

// loadNew adds the tasks in the store that were not loaded yet. Tasks that cannot be run or
// read are in bad; they do not keep others away, and the next call tries them again. fatal
// says that the store cannot be read or was written by a newer program, or that ctx has
// ended. The caller holds creating, or is alone.
func (r *coordinatorProcess) loadNew(ctx context.Context, add func(coordinator.Job) error) (bad, fatal error) {
	keys, err := r.store.List(ctx, store.Values, createdPrefix)
	if err != nil {
		return nil, err
	}
	var failed []error
	var found []store.Entry
	for _, key := range keys {
		if r.known[key] {
			continue
		}
		e, err := r.store.Get(ctx, key)
		if err != nil {
			failed = append(failed, fmt.Errorf("operate: %s: %w", key, err))
			continue
		}
		found = append(found, e)
	}
	// In the order in which they were created.
	slices.SortFunc(found, func(a, b store.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range found {
		err := r.loadOne(ctx, e, add)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err == nil || errors.Is(err, errRemoved) {
			r.known[e.Key] = true
			continue
		}
		if errors.Is(err, document.ErrNewer) { // this program cannot know what the record means
			return nil, fmt.Errorf("operate: %s: %w", e.Key, err)
		}
		failed = append(failed, fmt.Errorf("operate: %s: %w", e.Key, err))
	}
	return errors.Join(failed...), nil
}

func (r *coordinatorProcess) loadOne(ctx context.Context, e store.Entry, add func(coordinator.Job) error) error {
	made, err := decodeCreated(e.Value)
	if err != nil {
		return err
	}
	t, err := r.openTask(ctx, made)
	if err != nil {
		return err
	}
	if t.Missing != nil && r.unusable[e.Key] {
		return t.Missing // it is shown as unusable already
	}
	if err := add(t); err != nil {
		return err
	}
	if t.Missing != nil {
		r.unusable[e.Key] = true
		return t.Missing
	}
	delete(r.unusable, e.Key)
	return nil
}

// loadEvery is how often a coordinator on a shared store looks for new tasks.
const loadEvery = 2 * time.Second

// refreshEvery is how often a standby reads the population's ledger again.
const refreshEvery = 20 * time.Second

// follow loads the tasks that other coordinators create, until ctx ends.
func (r *coordinatorProcess) follow(ctx context.Context, log *slog.Logger) error {
	pause, last := loadEvery, ""
	refreshed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		r.creating.Lock()
		before := len(r.known)
		bad, err := r.loadNew(ctx, r.service.Add)
		err = errors.Join(err, bad)
		n := len(r.known) - before
		r.creating.Unlock()
		if time.Since(refreshed) > refreshEvery {
			// Refresh makes this process show what others have charged.
			err = errors.Join(err, r.journal.Refresh(ctx))
			refreshed = time.Now()
		}
		if n > 0 {
			log.Info("learned of tasks that another coordinator has created", "tasks", n)
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pause, last = loadEvery, ""
		default:
			if text := err.Error(); text != last {
				log.Warn("tasks in the store cannot be run here", "error", err)
				last = text
			}
			pause = min(2*pause, time.Minute) // each attempt to make a task may be costly
		}
	}
}

// createTTL is how long a coordinator that dies keeps others from creating tasks.
const createTTL = 15 * time.Second

// initialName names the object with the parameters that a task starts from.
func initialName(id [32]byte) string { return fmt.Sprintf("initial/%x", id) }

// initialOf returns the reader of these parameters, which checks nothing: the task names their
// digest.
func initialOf(s *store.Store, w wire.Task) func(context.Context, [32]byte) ([]byte, error) {
	return func(ctx context.Context, _ [32]byte) ([]byte, error) {
		return s.GetObject(ctx, initialName(wire.Digest(w)))
	}
}

// storeTask stores a new task unless its tail does not fit beside those of all tasks in the
// store. A lease lets one coordinator at a time do so. If the lease should fail, a charge is
// still refused where the tails of charged tasks do not fit.
func (r *coordinatorProcess) storeTask(ctx context.Context, id [32]byte, limit ledger.Config, made created) error {
	lease, _, err := r.store.Acquire(ctx, "create", r.config.Holder, createTTL)
	if err != nil {
		return err
	}
	defer func() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = lease.Release(release) // if this fails, the lease expires
	}()
	if err := r.checkTails(ctx, id, limit); err != nil {
		return err
	}
	// A task that was removed must not come back: clients and the shuffler may have seen its
	// rounds, and would refuse them.
	if _, how, err := coordinator.Ended(ctx, r.store, id); err != nil {
		return err
	} else if how.State == coordinator.Removed {
		return fmt.Errorf("bad input: the same task was removed before: %x (give it another name)%w", id[:8], train.ErrInput)
	}
	if made.initial != nil { // before the task, which cannot be run without it
		if err := r.store.PutObject(ctx, initialName(id), made.initial); err != nil {
			return err
		}
	}
	if made.tokens != nil {
		if err := r.store.PutObject(ctx, tokensName(id), made.tokens); err != nil {
			return err
		}
	}
	_, err = r.store.Put(ctx, createdKey(id), made.encode(), 0)
	if errors.Is(err, store.ErrConflict) {
		return alreadyThere(id)
	}
	return err
}

func alreadyThere(id [32]byte) error {
	return fmt.Errorf("bad input: the same task exists already: %x (give it another name)%w", id[:8], train.ErrInput)
}

// checkTails checks that the task's tail fits beside those of all tasks in the store, loaded
// or not.
func (r *coordinatorProcess) checkTails(ctx context.Context, id [32]byte, limit ledger.Config) error {
	if err := r.journal.Refresh(ctx); err != nil {
		return err
	}
	if limit.Tail == 0 {
		return nil // a task without a tail always fits
	}
	keys, err := r.store.List(ctx, store.Values, createdPrefix)
	if err != nil {
		return err
	}
	for _, key := range keys {
		if r.known[key] {
			continue
		}
		b, err := hex.DecodeString(key[len(createdPrefix):])
		if err != nil || len(b) != len(id) {
			return fmt.Errorf("operate: key %s names no task", key)
		}
		task := [32]byte(b)
		other, ok, err := r.lookup(ctx, task)
		if err != nil {
			return fmt.Errorf("operate: %s: %w", key, err)
		}
		if !ok {
			continue // it was removed since the keys were listed
		}
		if _, err := r.journal.Task(task, other); err != nil { // its own budget comes when it is loaded
			return err
		}
	}
	r.journal.View(func(b *ledger.Book) { _, _, err = b.Prospect(id, limit) })
	return err
}

// remove deletes a task that was never charged, by its name or digest. A task whose record
// cannot be read must be named by its whole digest.
func (r *coordinatorProcess) remove(ctx context.Context, text string) error {
	r.creating.Lock()
	defer r.creating.Unlock()
	id, err := r.find(text)
	if errors.Is(err, coordinator.ErrNoTask) {
		b, bad := hex.DecodeString(text)
		if bad != nil || len(b) != len(id) {
			return err
		}
		id = [32]byte(b)
		if _, missing := r.store.Get(ctx, createdKey(id)); missing != nil {
			return err
		}
		if err := r.eraseUnread(ctx, id); err != nil {
			return err
		}
	} else if err != nil {
		return err
	} else if err := r.service.Remove(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	delete(r.tasks, id)
	delete(r.questions, id)
	r.mu.Unlock()
	delete(r.known, createdKey(id))
	delete(r.unusable, createdKey(id))
	return r.forget(ctx, id)
}

// eraseUnread removes a task that never ran because its record cannot be read.
func (r *coordinatorProcess) eraseUnread(ctx context.Context, id [32]byte) error {
	if err := r.journal.Refresh(ctx); err != nil {
		return err
	}
	charged := false
	r.journal.View(func(b *ledger.Book) { _, charged = b.Last(id) })
	if charged {
		return fmt.Errorf("%w: %x", coordinator.ErrCharged, id[:8])
	}
	return coordinator.Erase(ctx, r.store, id)
}

// forget deletes the keys of a task that was removed.
func (r *coordinatorProcess) forget(ctx context.Context, id [32]byte) error {
	name := hex.EncodeToString(id[:])
	for _, key := range []string{createdKey(id), "state." + name, historyKey(name)} {
		if err := r.store.Delete(ctx, store.Values, key); err != nil && !errors.Is(err, store.ErrNotFound) {
			return err
		}
	}
	_ = r.store.Delete(ctx, store.Objects, initialName(id)) // most tasks have none; one that stays only takes space
	_ = r.store.Delete(ctx, store.Objects, tokensName(id))
	if r.config.Record != "" {
		_ = os.Remove(filepath.Join(r.config.Record, name)) // deleted only if it is empty
	}
	return nil
}

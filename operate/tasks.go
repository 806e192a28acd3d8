package operate

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/store"
	"github.com/riffle-dp/riffle/train"
	"github.com/riffle-dp/riffle/vecsum"
	"github.com/riffle-dp/riffle/wire"
)

// This file holds what coordinators that share a store write down of tasks, and how
// each learns of those that another has created.

// created is what CreateTask writes down before it answers.
type created struct {
	Format int    `json:"format"`
	Signed []byte `json:"task"`
	// Round is how long clients have to report, in nanoseconds.
	Round time.Duration `json:"round"`
}

const createdFormat = 1

func (c created) encode() []byte {
	c.Format = createdFormat
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // bytes and numbers
	}
	return b
}

func decodeCreated(b []byte) (c created, err error) {
	err = document.Decode(b, createdFormat, &c)
	return c, err
}

// createdKey names what CreateTask wrote down: the signed task and how it is run.
func createdKey(id [32]byte) string { return "created." + hex.EncodeToString(id[:]) }

// verified returns the task that was written down, if it is ours.
func (r *running) verified(made created) (wire.Task, error) {
	message, err := wire.Verify(publicOf(r.own.Key), wire.LabelTask, made.Signed)
	if err != nil {
		return wire.Task{}, err
	}
	return wire.DecodeTask(message)
}

// openTask makes a task run again from what was written down.
func (r *running) openTask(ctx context.Context, made created) (coordinator.Task, error) {
	w, err := r.verified(made)
	if err != nil {
		return coordinator.Task{}, err
	}
	t, err := train.OpenTask(ctx, w, r.config.Data)
	if err != nil {
		return coordinator.Task{}, err
	}
	return r.runnable(t, made)
}

// endedTask is a task that has ended and cannot be made again, its data being gone:
// the others run all the same. missing is why.
func (r *running) endedTask(ctx context.Context, made created, missing error) (coordinator.Task, error) {
	w, err := r.verified(made)
	if err != nil {
		return coordinator.Task{}, err
	}
	if ended, _, err := coordinator.Ended(ctx, r.own.Store, w.ID()); err != nil || !ended {
		return coordinator.Task{}, errors.Join(missing, err)
	}
	return coordinator.Task{Signed: made.Signed, Budget: tailOnly(w), Missing: missing}, nil
}

// tailOnly is a budget that bounds nothing and says what the task keeps for tails.
func tailOnly(w wire.Task) ledger.Config {
	c := ledger.Config{Accountant: account.New(), Delta: w.Delta, MaxEps: math.Inf(1)}
	if w.Trust == dp.Distributed {
		c.Tail = vecsum.TailShare
	}
	return c
}

// lookup is the journal's: the tail of a task that another coordinator charges and
// this one has not learned of yet. Its own budget is kept by who charges it.
func (r *running) lookup(ctx context.Context, task [32]byte) (limit ledger.Config, ok bool, err error) {
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
	w, err := r.verified(made)
	if err != nil {
		return limit, false, err
	}
	if w.ID() != task {
		return limit, false, fmt.Errorf("operate: %s holds task %x", e.Key, w.ID())
	}
	return tailOnly(w), true, nil
}

// learn passes on the tasks in the store that are not here yet. One that cannot be
// made does not keep the others away. The caller holds creating, or is alone.
func (r *running) learn(ctx context.Context, add func(coordinator.Task) error) error {
	keys, err := r.store.Keys(ctx, "created.")
	if err != nil {
		return err
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
	// As they were created, whatever their names.
	slices.SortFunc(found, func(a, b store.Entry) int { return cmp.Compare(a.Revision, b.Revision) })
	for _, e := range found {
		if err := r.learnOne(ctx, e, add); err != nil {
			failed = append(failed, fmt.Errorf("operate: %s: %w", e.Key, err))
			continue
		}
		r.known[e.Key] = true
	}
	return errors.Join(failed...)
}

func (r *running) learnOne(ctx context.Context, e store.Entry, add func(coordinator.Task) error) error {
	made, err := decodeCreated(e.Value)
	if err != nil {
		return err
	}
	t, err := r.openTask(ctx, made)
	if err != nil {
		t, err = r.endedTask(ctx, made, err)
	}
	if err != nil {
		return err
	}
	return add(t)
}

// learnEvery is how often a coordinator on a shared store looks for new tasks.
const learnEvery = 2 * time.Second

// refreshEvery is how old a standby's figures for the population get.
const refreshEvery = 20 * time.Second

// follow learns of tasks that others create, until ctx ends.
func (r *running) follow(ctx context.Context, log *slog.Logger) error {
	pause, last := learnEvery, ""
	refreshed := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		r.creating.Lock()
		before := len(r.known)
		err := r.learn(ctx, r.service.Add)
		n := len(r.known) - before
		r.creating.Unlock()
		if time.Since(refreshed) > refreshEvery {
			// What others charge shows in the figures of this one.
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
			pause, last = learnEvery, ""
		default:
			if text := err.Error(); text != last {
				log.Warn("tasks of another coordinator cannot be run here", "error", err)
				last = text
			}
			pause = min(2*pause, time.Minute) // making a task may cost much
		}
	}
}

// enterTTL is how long a coordinator that dies keeps others from creating tasks.
const enterTTL = 15 * time.Second

// enter writes a task down unless its tail would not fit beside those of all tasks,
// also of others: one coordinator at a time. What no lease can promise, a charge
// does: it is refused where the tails of charged tasks would not fit.
func (r *running) enter(ctx context.Context, id [32]byte, t *train.Task, made created) error {
	lease, err := r.store.Acquire(ctx, "create", r.config.Holder, enterTTL)
	if err != nil {
		return err
	}
	defer func() {
		release, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		_ = lease.Release(release) // it ends by itself
	}()
	if err := r.checkTails(ctx, id, t.Config.Limit()); err != nil {
		return err
	}
	_, err = r.store.CreateKey(ctx, createdKey(id), made.encode())
	if errors.Is(err, store.ErrExists) {
		return fmt.Errorf("%w: the same task is there already: %x (another name makes it another)", train.ErrInput, id[:8])
	}
	return err
}

// checkTails asks the journal with all tasks in the store in it, learned or not.
func (r *running) checkTails(ctx context.Context, id [32]byte, limit ledger.Config) error {
	if err := r.journal.Refresh(ctx); err != nil {
		return err
	}
	keys, err := r.store.Keys(ctx, "created.")
	if err != nil {
		return err
	}
	for _, key := range keys {
		if r.known[key] {
			continue
		}
		b, err := hex.DecodeString(key[len("created."):])
		if err != nil || len(b) != len(id) {
			return fmt.Errorf("operate: key %s names no task", key)
		}
		task := [32]byte(b)
		other, ok, err := r.lookup(ctx, task)
		if err != nil {
			return fmt.Errorf("operate: %s: %w", key, err)
		}
		if !ok {
			continue // of a key that was just listed: it went
		}
		if _, err := r.journal.Task(task, other); err != nil { // until it is learned
			return err
		}
	}
	r.journal.View(func(b *ledger.Book) { err = b.CheckTail(id, limit) })
	return err
}

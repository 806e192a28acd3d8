package coordinator

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// Check reads the stored data of a task, which must not run meanwhile. It calls problem for
// each thing that is wrong, with its key: counts that contradict the task or the ledger,
// objects that are missing or do not match their names, and an open round that does not follow
// the last one or was settled otherwise than kept says, which may be nil. The caller has checked the
// ledger's chain.
func Check(ctx context.Context, s storage, book *ledger.Book, kept promiseStore, task wire.Task, problem func(where, format string, args ...any)) {
	r := runner{id: wire.Digest(task), task: task}
	last, charged := book.Last(r.id)
	charges := int64(len(book.TaskEntries(r.id)))
	var err error
	switch r.record, _, err = readRecord(ctx, s, r.id); {
	case errors.Is(err, store.ErrNotFound):
		if charged {
			problem(stateKey(r.id), "there is none, and the ledger has %d entries of the task", charges)
		}
	case err != nil:
		problem(stateKey(r.id), "%v", err)
	default:
		r.checkCounts(charges, func(format string, args ...any) { problem(stateKey(r.id), format, args...) })
	}
	fail := func(format string, args ...any) { problem(taskKey(r.id), format, args...) }
	t, _, bad := readTask(ctx, s, r.id)
	if errors.Is(bad, store.ErrNotFound) && errors.Is(err, store.ErrNotFound) {
		return // it was created, and no process has led it yet
	} else if bad != nil {
		fail("%v", bad)
	}
	if b, err := s.GetObject(ctx, taskName(r.id)); err != nil {
		fail("%v", err)
	} else if t, err := wire.Decode[wire.Task](b[min(len(b), ed25519.SignatureSize):]); err != nil || wire.Digest(t) != r.id {
		fail("the signed task is another")
	}
	if err == nil {
		r.checkObjects(ctx, s, fail)
		r.checkTold(ctx, s, fail)
		r.checkOpen(last, charged, fail)
		r.checkNoise(ctx, s, fail)
		if bad == nil && t.State == Running { // of others they are deleted
			r.checkHeld(ctx, s, fail)
		}
		r.checkPromises(kept, fail)
	}
}

// checkNoise looks for the noise that the open round names: it is never drawn again, so without it
// the round ends without a step.
func (r *runner) checkNoise(ctx context.Context, s storage, fail func(format string, args ...any)) {
	if r.record.Open == nil || r.record.Open.Noise == (hash{}) {
		return
	}
	name := noiseName(r.id, r.record.Open.Noise)
	if b, err := s.GetObject(ctx, name); err != nil {
		fail("the open round's noise %s: %v", name, err)
	} else if digestOf(b) != r.record.Open.Noise {
		fail("the open round's noise %s is not what its name says", name)
	}
}

// checkHeld compares the held sums with their names. Without one of them the next release has more noise.
func (r *runner) checkHeld(ctx context.Context, s storage, fail func(format string, args ...any)) {
	for _, h := range r.record.Held {
		if b, err := s.GetObject(ctx, heldName(r.id, h.Share)); err != nil {
			fail("the held sum of round %d: %v", h.Round, err)
		} else if digestOf(b) != h.Share {
			fail("the held sum of round %d is not what its name says", h.Round)
		}
	}
}

// checkPromises compares the state with what the task's last round with proofs has settled.
func (r *runner) checkPromises(kept promiseStore, fail func(format string, args ...any)) {
	if kept == nil {
		return
	}
	all, err := kept.Load()
	if err != nil {
		fail("%v", err)
		return
	}
	old, ok := all[r.id]
	if !ok || r.record.Round >= old.Round {
		return
	}
	if r.record.Open != nil {
		if a, err := r.announcement(); err == nil && (promise{a.Round, wire.Digest(*a), r.record.Open.Excluded, r.record.Open.Noise}).keeps(old) {
			return
		}
	}
	fail("round %d was settled otherwise than the state says: the store is an old copy", old.Round)
}

// checkCounts compares the state's counts with each other, the task and the ledger.
func (r *runner) checkCounts(charges int64, fail func(format string, args ...any)) {
	n, round := r.record.Counts, r.record.Round
	if n.Released+n.Void+n.Failed != round {
		fail("%d rounds released, %d void, %d failed, which are not the %d that ended", n.Released, n.Void, n.Failed, round)
	}
	if round > r.task.LastRound() || n.Released+n.Failed > r.task.Rounds {
		fail("round %d of at most %d, %d of them charged, and they may be %d", round, r.task.LastRound(), n.Released+n.Failed, r.task.Rounds)
	}
	if r.task.Participation == dp.Once { // an epoch is charged once
		if n.Released+n.Failed > 0 && charges == 0 {
			fail("%d rounds were opened, none is charged", n.Released+n.Failed)
		}
	} else if charges < n.Released+n.Failed {
		fail("%d rounds were opened, %d are charged", n.Released+n.Failed, charges)
	}
}

// checkObjects compares the model and the optimiser's state with their names.
func (r *runner) checkObjects(ctx context.Context, s storage, fail func(format string, args ...any)) {
	rec := r.record
	for name, digest := range map[string]hash{modelName(r.id, rec.Model): rec.Model, stateName(r.id, rec.Step): rec.Step} {
		if b, err := s.GetObject(ctx, name); err != nil {
			fail("%s: %v", name, err)
		} else if digestOf(b) != digest {
			fail("%s is not what its name says", name)
		} else if digest == rec.Step {
			if _, err := decodeState(b); err != nil {
				fail("%s: %v", name, err)
			}
		}
	}
}

// checkTold compares what clients may ask of ended rounds with the objects.
func (r *runner) checkTold(ctx context.Context, s storage, fail func(format string, args ...any)) {
	for _, t := range r.record.Told {
		if t.Receipts == (hash{}) {
			continue
		}
		name := receiptsName(r.id, t.Receipts)
		if b, err := s.GetObject(ctx, name); err != nil {
			fail("%s: %v", name, err)
		} else if digestOf(b) != t.Receipts {
			fail("%s is not what its name says", name)
		}
	}
}

// checkOpen compares the open round, if there is one, with the state and with the
// task's last charge.
func (r *runner) checkOpen(last wire.Entry, charged bool, fail func(format string, args ...any)) {
	rec := r.record
	if rec.Open != nil {
		a, err := r.announcement()
		switch {
		case err != nil:
			fail("%v", err)
		case a.Task != r.id || a.Round != rec.Round+1 || a.ModelDigest != rec.Model:
			fail("the open round %d does not follow round %d", a.Round, rec.Round)
		case charged && last.Round == a.Round && last.Announcement != wire.Digest(*a):
			fail("round %d is charged for another announcement", a.Round)
		}
		if rec.Open.Charged && (!charged || last.Round < rec.Round+1) && r.task.Participation != dp.Once {
			fail("round %d was opened, and the ledger's last charge is of round %d", rec.Round+1, last.Round)
		}
	}
	if charged && (last.Round > rec.Round+1 || last.Round == rec.Round+1 && (rec.Open == nil || len(rec.Open.Closed) == 0)) {
		fail("round %d is charged, the state is of round %d", last.Round, rec.Round)
	}
}

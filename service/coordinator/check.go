package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// Check looks over what is stored of a task, which must not run meanwhile, and
// returns all that is wrong: objects that are missing or not what their names say,
// and a state that the ledger, whose chain has been tried, contradicts.
func Check(ctx context.Context, s Store, j *ledger.Journal, task [32]byte) error {
	r := runner{id: task}
	var wrong []error
	fail := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("task %x: "+format, append([]any{task[:8]}, args...)...))
	}
	e, err := s.Get(ctx, r.taskKey())
	if err == nil {
		_, err = decodeTask(e.Value)
	}
	if err != nil {
		fail("%w", err)
	}
	if b, err := s.GetObject(ctx, taskName(task)); err != nil {
		fail("%w", err)
	} else if len(b) < 64 || wire.Digest(wire.LabelTask, b[64:]) != task {
		fail("the signed task is another")
	}
	var last wire.Entry
	var charged bool
	j.View(func(k *ledger.Book) { last, charged = k.Last(task) })
	if e, err = s.Get(ctx, r.stateKey()); err != nil {
		if !errors.Is(err, store.ErrNotFound) || charged {
			fail("%w", err)
		}
		return errors.Join(wrong...)
	}
	rec, err := decodeRecord(e.Value)
	if err != nil {
		fail("%w", err)
		return errors.Join(wrong...)
	}
	for name, digest := range map[string]hash{modelName(task, rec.Model): rec.Model, stateName(task, rec.Step): rec.Step} {
		if b, err := s.GetObject(ctx, name); err != nil {
			fail("%s: %w", name, err)
		} else if digestOf(b) != digest {
			fail("%s is not what its name says", name)
		} else if digest == rec.Step {
			if _, err := decodeState(b); err != nil {
				fail("%s: %w", name, err)
			}
		}
	}
	r.record = rec
	if rec.Open != nil {
		a, err := r.announcement()
		switch {
		case err != nil:
			fail("%w", err)
		case a.Task != task || a.Round != rec.Round+1 || a.ModelDigest != rec.Model:
			fail("the open round %d does not follow round %d", a.Round, rec.Round)
		case charged && last.Round == a.Round && last.Announcement != a.Digest():
			fail("round %d is charged for another announcement", a.Round)
		}
	}
	if charged && (last.Round > rec.Round+1 || last.Round == rec.Round+1 && (rec.Open == nil || len(rec.Open.Closed) == 0)) {
		fail("round %d is charged, the state is of round %d", last.Round, rec.Round)
	}
	return errors.Join(wrong...)
}

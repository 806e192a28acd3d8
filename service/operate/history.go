package operate

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

func historyKey(task string) string { return "curve." + task }

// histories keeps in the store what the pages showed of tasks. Errors are logged once and
// stop no task.
type histories struct {
	store    *store.Store
	revision map[string]uint64
	troubled bool
	warn     func(msg string, args ...any)
}

func (k *histories) trouble(err error) {
	if err != nil && !k.troubled {
		k.warn("the curves of the dashboard are not kept", "error", err.Error())
	}
	k.troubled = err != nil
}

// load returns what the store has of a task, up to its last round.
func (k *histories) load(ctx context.Context, task string, last int64) (h dashboard.History) {
	e, err := k.store.Get(ctx, historyKey(task))
	if errors.Is(err, store.ErrNotFound) {
		return h
	}
	if err == nil {
		k.revision[task] = e.Revision
		err = json.Unmarshal(e.Value, &h)
	}
	k.trouble(err)
	return h.Until(last)
}

func (k *histories) save(ctx context.Context, task string, h dashboard.History) {
	text, err := json.Marshal(h)
	if err == nil {
		err = k.put(ctx, task, text)
	}
	if errors.Is(err, store.ErrConflict) {
		// Another coordinator has led the task meanwhile.
		var e store.Entry
		if e, err = k.store.Get(ctx, historyKey(task)); err == nil {
			k.revision[task] = e.Revision
			err = k.put(ctx, task, text)
		}
	}
	k.trouble(err)
}

func (k *histories) put(ctx context.Context, task string, text []byte) error {
	revision, err := k.store.Put(ctx, historyKey(task), text, k.revision[task])
	if err == nil {
		k.revision[task] = revision
	}
	return err
}

// keepEvery is the shortest time between two writes of a task's history.
const keepEvery = 10 * time.Second

// keep stores the histories that have grown: now if all is set, or else at most every
// keepEvery.
func (v *pageWriter) keep(ctx context.Context, all bool) {
	for _, s := range v.process.service.List() {
		last := v.tasks[s.ID]
		if last == nil || !last.led || s.Phase == "standby" || last.kept == last.measured || !all && !last.over && time.Since(last.keptAt) < keepEvery {
			continue
		}
		id := boardID(s)
		v.histories.save(ctx, id, dashboard.History{Measures: v.board.Measures(id), Examined: last.examined, ExaminedAt: last.examinedAt})
		last.kept, last.keptAt = last.measured, time.Now()
	}
}

// restore shows the measures of earlier processes.
func (v *pageWriter) restore(ctx context.Context, s wire.Status, last *shownTask) {
	last.accuracy, last.loss = math.NaN(), math.NaN()
	h := v.histories.load(ctx, boardID(s), s.Round)
	last.examined, last.examinedAt = h.Examined, h.ExaminedAt
	if n := len(h.Measures); n > 0 && h.Measures[n-1].Round == s.Round {
		last.kept = progress{round: s.Round}
	}
	for _, m := range h.Measures {
		v.board.Measured(boardID(s), m)
		last.before = m.Seconds
		if !math.IsNaN(m.Loss) {
			last.accuracy, last.loss = m.Accuracy, m.Loss
		}
	}
}

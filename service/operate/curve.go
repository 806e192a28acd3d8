package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/dashboard"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/store"
)

// curve is what the pages showed of a task's model and cost, as it lies in the
// store: a coordinator that starts again, or another one that goes on, shows it
// from the first round. All of it was public when it was measured.
type curve struct {
	Round    []int64     `json:"round"`
	Epsilon  []dp.Number `json:"epsilon"`
	Accuracy []dp.Number `json:"accuracy"`
	Loss     []dp.Number `json:"loss"`
	Seconds  []dp.Number `json:"seconds"`
	// What the model after a round made of the evaluation examples; absent where it
	// was not kept.
	Examined   *report.Examined `json:"examined,omitempty"`
	ExaminedAt int64            `json:"examined_round,omitempty"`
}

func curveKey(task string) string { return "curve." + task }

func encodeCurve(list []dashboard.Measure, x *report.Examined, at int64) ([]byte, error) {
	c := curve{Examined: x, ExaminedAt: at}
	for _, m := range list {
		c.Round = append(c.Round, m.Round)
		c.Epsilon, c.Accuracy = append(c.Epsilon, dp.Number(m.Eps)), append(c.Accuracy, dp.Number(m.Accuracy))
		c.Loss, c.Seconds = append(c.Loss, dp.Number(m.Loss)), append(c.Seconds, dp.Number(m.Seconds))
	}
	return json.Marshal(c)
}

func decodeCurve(b []byte) (list []dashboard.Measure, x *report.Examined, at int64, err error) {
	var c curve
	if err := json.Unmarshal(b, &c); err != nil {
		return nil, nil, 0, err
	}
	n := len(c.Round)
	if len(c.Epsilon) != n || len(c.Accuracy) != n || len(c.Loss) != n || len(c.Seconds) != n {
		return nil, nil, 0, fmt.Errorf("%d rounds, %d values of epsilon, %d of accuracy, %d of loss and %d of seconds do not agree",
			n, len(c.Epsilon), len(c.Accuracy), len(c.Loss), len(c.Seconds))
	}
	list = make([]dashboard.Measure, n)
	for i := range list {
		list[i] = dashboard.Measure{Round: c.Round[i], Eps: float64(c.Epsilon[i]), Accuracy: float64(c.Accuracy[i]),
			Loss: float64(c.Loss[i]), Seconds: float64(c.Seconds[i])}
	}
	return list, c.Examined, c.ExaminedAt, nil
}

// curves keeps tasks' curves in the store. What goes wrong is logged once: a task
// does not stop for the want of a picture.
type curves struct {
	store    *store.Store
	revision map[string]uint64
	troubled bool
	warn     func(msg string, args ...any)
}

func (c *curves) trouble(err error) {
	if err != nil && !c.troubled {
		c.warn("the curves of the dashboard are not kept", "error", err.Error())
	}
	c.troubled = err != nil
}

// load returns what there is of a task up to its last round; a round that is taken
// up again is measured again.
func (c *curves) load(ctx context.Context, task string, last int64) (list []dashboard.Measure, x *report.Examined, at int64) {
	e, err := c.store.Get(ctx, curveKey(task))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil, 0
	}
	if err == nil {
		c.revision[task] = e.Revision
		list, x, at, err = decodeCurve(e.Value)
	}
	c.trouble(err)
	for len(list) > 0 && list[len(list)-1].Round > last {
		list = list[:len(list)-1]
	}
	if at > last {
		x, at = nil, 0
	}
	return list, x, at
}

func (c *curves) save(ctx context.Context, task string, list []dashboard.Measure, x *report.Examined, at int64) {
	text, err := encodeCurve(list, x, at)
	if err == nil {
		err = c.put(ctx, task, text)
	}
	if errors.Is(err, store.ErrConflict) {
		// Another coordinator led the task since.
		var e store.Entry
		if e, err = c.store.Get(ctx, curveKey(task)); err == nil {
			c.revision[task] = e.Revision
			err = c.put(ctx, task, text)
		}
	}
	c.trouble(err)
}

func (c *curves) put(ctx context.Context, task string, text []byte) error {
	at, err := c.store.Put(ctx, curveKey(task), text, c.revision[task])
	if err == nil {
		c.revision[task] = at
	}
	return err
}

// keepEvery is the least time between two writes of a task's curve.
const keepEvery = 10 * time.Second

// keep writes the curves that have grown; with all, without waiting.
func (v *view) keep(ctx context.Context, all bool) {
	for _, s := range v.running.service.List() {
		last := v.tasks[s.Task]
		if last == nil || !last.led || s.Phase == "standby" || last.kept == last.measured || !all && !last.over && time.Since(last.keptAt) < keepEvery {
			continue
		}
		id := boardID(s)
		v.curves.save(ctx, id, v.board.Measures(id), last.examined, last.examinedAt)
		last.kept, last.keptAt = last.measured, time.Now()
	}
}

// restore shows what earlier processes measured.
func (v *view) restore(ctx context.Context, s coordinator.Status, last *shown) {
	last.accuracy, last.loss = math.NaN(), math.NaN()
	list, x, at := v.curves.load(ctx, boardID(s), s.Round)
	last.examined, last.examinedAt = x, at
	if n := len(list); n > 0 && list[n-1].Round == s.Round {
		last.kept = stage{round: s.Round}
	}
	for _, m := range list {
		v.board.Measured(boardID(s), m)
		last.before = m.Seconds
		if !math.IsNaN(m.Loss) {
			last.accuracy, last.loss = m.Accuracy, m.Loss
		}
	}
}

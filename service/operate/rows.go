package operate

import (
	"bytes"
	"slices"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
)

// This file bounds what a coordinator's tasks hold in memory. A task is made of its whole data set, of which a
// coordinator needs the evaluation set alone, and that only while the task runs.

// shape returns a table without its rows.
func shape(t *dataset.Table) *dataset.Table {
	if t == nil {
		return nil
	}
	return &dataset.Table{Dim: t.Dim, Classes: t.Classes}
}

// share drops a new task's training rows. If a task that runs is evaluated on the same rows, both hold the
// same ones.
func (r *coordinatorProcess) share(t *train.Setup) {
	d := t.Data
	d.Train = shape(d.Train)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, other := range r.tasks {
		if other.Data == nil {
			continue
		}
		if a, b := d.Eval, other.Data.Eval; a != nil && b != nil && a.Dim == b.Dim && a.Classes == b.Classes &&
			slices.Equal(a.X, b.X) && slices.Equal(a.Y, b.Y) && slices.Equal(a.Targets, b.Targets) && slices.Equal(a.Blank, b.Blank) {
			d.Eval = b
		}
		if a, b := d.EvalImages, other.Data.EvalImages; a != nil && b != nil && a.Width == b.Width && a.Height == b.Height && a.Channels == b.Channels &&
			slices.Equal(a.Names, b.Names) && bytes.Equal(a.Pixels, b.Pixels) && bytes.Equal(a.Labels, b.Labels) && a.Blank == nil && b.Blank == nil {
			d.EvalImages = b
		}
	}
}

// ended drops the rows of a task that has ended. What is shown of it, and its model's file, need none.
func (r *coordinatorProcess) ended(t *train.Setup) {
	out, d := *t, *t.Data
	d.Train, d.Eval, d.EvalImages = shape(d.Train), shape(d.Eval), nil
	out.Data = &d
	r.mu.Lock()
	defer r.mu.Unlock()
	if id := wire.Digest(t.Wire); r.tasks[id] == t {
		r.tasks[id] = &out
	}
}

package coordinator

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"runtime"
	"slices"

	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// readRecord returns task's state, and its revision.
func readRecord(ctx context.Context, s storage, task [32]byte) (record, uint64, error) {
	e, err := s.Get(ctx, stateKey(task))
	if err != nil {
		return record{}, 0, err
	}
	rec, err := decodeRecord(e.Value)
	if err != nil {
		return record{}, 0, fatal("%w", err)
	}
	return rec, e.Revision, nil
}

// readTask returns the stored record of a task's run, and its revision.
func readTask(ctx context.Context, s storage, task [32]byte) (taskRecord, uint64, error) {
	e, err := s.Get(ctx, taskKey(task))
	if err != nil {
		return taskRecord{}, 0, err
	}
	t, err := decodeTask(e.Value)
	if err != nil {
		return taskRecord{}, 0, fatal("%w", err)
	}
	return t, e.Revision, nil
}

// ReadStatus returns what the store says of a task that is not run: round, model and
// counts.
func ReadStatus(ctx context.Context, s storage, task [32]byte) (wire.Status, error) {
	rec, _, err := readRecord(ctx, s, task)
	return wire.Status{ID: task, Round: rec.Round, Model: rec.Model, Counts: rec.Counts}, err
}

// first stores the task's initial model and returns the state before round 1.
func (r *runner) first(ctx context.Context) (record, error) {
	defer r.collectGarbage()
	rec := record{Counts: cloned(wire.Counts{})}
	o, err := r.t.Optimizer()
	if err != nil {
		return rec, err
	}
	params := make([]float32, len(o.Point()))
	for j, v := range o.Point() {
		params[j] = float32(v)
	}
	model, state := encodeModel(params), encodeState(o.State())
	rec.Model, rec.Step = digestOf(model), digestOf(state)
	rec.Recent = []hash{rec.Model}
	db := r.s.config.Store
	if err := db.PutObject(ctx, modelName(r.id, rec.Model), model); err != nil {
		return rec, err
	}
	return rec, db.PutObject(ctx, stateName(r.id, rec.Step), state)
}

// save replaces the state by compare-and-swap.
func (r *runner) save(ctx context.Context, rec record) error {
	b, err := rec.encode()
	if err != nil {
		return err
	}
	revision, err := r.s.config.Store.Put(ctx, stateKey(r.id), b, r.revision)
	if err != nil {
		return fmt.Errorf("coordinator: state of task %q: %w", r.task.Name, err)
	}
	r.record, r.revision = rec, revision
	return nil
}

// reload reads the state again after an error, when it is not known what was written. If
// another leader wrote the state, it returns store.ErrConflict.
func (r *runner) reload(ctx context.Context) error {
	rec, revision, err := readRecord(ctx, r.s.config.Store, r.id)
	if err != nil {
		return err
	}
	if rec.Fence != r.record.Fence {
		return fmt.Errorf("%w: task %q is led under number %d", store.ErrConflict, r.task.Name, rec.Fence)
	}
	r.record, r.revision, r.pure = rec, revision, nil
	r.show()
	return nil
}

// manyParameters is the number from which on what a round leaves behind is collected at once: it
// is as large as the model many times, and would wait until the heap has doubled.
const manyParameters = 1 << 20

func (r *runner) collectGarbage() {
	if max(r.task.Mechanism.Dim, r.task.Parameters()) >= manyParameters {
		runtime.GC()
	}
}

// load makes the pure coordinator of n clients from what is stored.
func (r *runner) load(ctx context.Context, n int64) error {
	r.pure = nil // free its memory first
	r.collectGarbage()
	defer r.collectGarbage()
	blocks, err := r.blocks(n)
	if err != nil {
		return err
	}
	o, err := r.t.Optimizer()
	if err != nil {
		return err
	}
	b, err := r.s.config.Store.GetObject(ctx, stateName(r.id, r.record.Step))
	if err != nil {
		return err
	}
	if digestOf(b) != r.record.Step {
		return fatal("the optimiser's state is not what its name says")
	}
	state, err := decodeState(b)
	if err != nil {
		return fatal("%w", err)
	}
	c, err := coordinator.New(coordinator.Config{
		Task: r.id, Optimizer: o, Mechanism: r.mechanism, Report: r.t.Report, Ledger: r.ledger,
		Trust: r.task.Trust, Participation: r.task.Participation, Population: n, MinClients: r.task.MinClients, Sample: r.t.Sample,
		Gamma: r.t.Gamma, Blocks: blocks, MinReports: r.task.MinReports, Messages: r.task.Messages, Clip: r.task.Mechanism.Clip, ModelDim: r.task.ModelDim,
		Colluders: r.t.Colluders, Honest: r.honest(), Tokens: r.tokens != nil, Declinable: r.t.Declinable, Every: r.task.Every,
	})
	if err != nil {
		return err
	}
	s := coordinator.State{Round: r.record.Round, Optimizer: state, Charged: r.ledger.Entries()}
	if last, opened, err := r.openCharge(); err != nil {
		return err
	} else if opened {
		s.Opened, s.Batch = last.Round, last.Batch
	}
	if err := c.Restore(s); err != nil {
		return fatal("%w", err)
	}
	if a := c.Announce(); a.ModelDigest != r.record.Model {
		return fatal("the optimiser's state gives another model than the one that was released")
	}
	r.pure = c
	r.showMeasured()
	return nil
}

// showMeasured shows what clients measured in the last released round.
func (r *runner) showMeasured() {
	if r.t.Measured != nil {
		v := r.t.Measured(r.pure.State().Optimizer)
		r.update(func(s *wire.Status) { s.Measured = v })
	}
}

// announcement decodes the announcement of the open round.
func (r *runner) announcement() (*wire.Announcement, error) {
	if len(r.record.Open.Announcement) < ed25519.SignatureSize {
		return nil, wire.ErrMalformed
	}
	a, err := wire.Decode[wire.Announcement](r.record.Open.Announcement[64:])
	return &a, err
}

// keepModels is how many models can be fetched, the newest included.
const keepModels = 16

// recent adds a model to the list of kept models. It returns the models to keep and those to
// drop.
func recent(list []hash, model hash) (kept, dropped []hash) {
	kept = append(slices.DeleteFunc(slices.Clone(list), func(h hash) bool { return h == model }), model)
	if n := len(kept) - keepModels; n > 0 {
		return kept[n:], kept[:n]
	}
	return kept, nil
}

package solve

import (
	"context"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/run/simulate"
)

// gradients makes noisy mean gradients, round by round.
type gradients struct {
	task    *Setup
	models  []*model.Model // by stage, with its smoothing
	workers []*worker
	theta   []float32
	out     []float64
}

// worker holds the working memory of one goroutine.
type worker struct {
	src  *rng.Stream
	grad []float32
}

func (t *Setup) newGradients() (*gradients, error) {
	g := &gradients{task: t, theta: make([]float32, t.Params), out: make([]float64, t.Params)}
	for _, s := range t.Plan.Stages {
		m, err := t.Model.Smoothed(s.Smoothing)
		if err != nil {
			return nil, err
		}
		g.models = append(g.models, m)
	}
	for range t.Config.Workers {
		g.workers = append(g.workers, &worker{rng.Replay(t.Config.Seed), make([]float32, t.Params)})
	}
	return g, nil
}

// A batch is cut into parts of at least minPart clients, at most maxParts, by its size alone,
// so results do not depend on the number of workers.
const (
	minPart  = 4096
	maxParts = 1024
)

// cohort holds the clients of a round. Their protection and smoothing are set by the stage of
// the round's batch.
type cohort struct {
	batch
	from   int64   // the first client's place, if places is nil
	places []int64 // the clients' places; nil if they follow each other
}

func (c cohort) place(i int64) int64 {
	if c.places != nil {
		return c.places[i]
	}
	return c.from + i
}

// cohort returns the clients who report in a round. step is the number of the optimiser's next
// step; each void round before this one leaves it one further behind round.
func (t *Setup) cohort(round, step int64) cohort {
	stage := t.Plan.Stage(step)
	c := cohort{batch: batch{stage: stage, sigma: t.Plan.Stages[stage].Sigma}}
	if t.coins != nil {
		c.places = t.coins.present(rng.Replay(t.Config.Seed, domainCoins, uint64(round)))
		c.clients = int64(len(c.places))
		return c
	}
	from, to := t.Plan.Batches.Places(round)
	c.from, c.clients = from, to-from
	return c
}

// mean returns the noisy mean gradient of a round's clients at a point.
func (g *gradients) mean(ctx context.Context, round int64, b cohort, point []float64) ([]float64, error) {
	t := g.task
	for j, v := range point {
		g.theta[j] = float32(v)
	}
	size := max(minPart, (b.clients+maxParts-1)/maxParts)
	if _, ok := t.protection.(*stream); ok {
		size = b.clients // a stream takes clients one after the other
	}
	sums := make([]sum, (b.clients+size-1)/size)
	err := simulate.Parts(ctx, g.workers, b.clients, size, func(w *worker, i int, from, to int64) (err error) {
		w.src.Reset(domainClients, uint64(round), uint64(i))
		sums[i], err = g.part(ctx, w, b, from, to)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, s := range sums[1:] {
		if err := sums[0].merge(s); err != nil {
			return nil, err
		}
	}
	if err := t.protection.release(rng.Replay(t.Config.Seed, domainRelease, uint64(round)), b.batch, sums[0], g.out); err != nil {
		return nil, fmt.Errorf("solve: round %d: %w", round, err)
	}
	for j, v := range point {
		g.out[j] += t.Config.Lambda * v
	}
	return g.out, nil
}

// part sums the reports of the cohort's clients from ≤ i < to.
func (g *gradients) part(ctx context.Context, w *worker, b cohort, from, to int64) (sum, error) {
	s, err := g.task.protection.open(w.src, b.batch)
	if err != nil {
		return nil, err
	}
	m, people := g.models[b.stage], g.task.people
	for i := from; i < to; i++ {
		if (i-from)%minPart == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		row := people.row(b.place(i))
		m.Grad(g.theta, people.rows.Row(row), people.rows.Target(row), w.grad, nil)
		clip(w.grad, g.task.Config.Clip)
		if err := s.add(w.src, w.grad); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// clip scales x so that its norm is at most radius, also after rounding to float32. A
// vector that is not finite becomes 0.
func clip(x []float32, radius float64) {
	square := 0.0
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	if !(square <= math.MaxFloat64) { // only if a value is not finite: squares of float32 cannot overflow
		clear(x)
		return
	}
	if norm := math.Sqrt(square); norm > radius {
		scale := radius / norm * (1 - 1e-6)
		for j, v := range x {
			x[j] = float32(float64(v) * scale)
		}
	}
}

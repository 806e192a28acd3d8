package coordinator

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
)

// slow evaluates models as the test lets it.
type slow struct {
	began chan []float32
	let   chan struct{}

	closed int
}

func (s *slow) Evaluate(ctx context.Context, params []float32) any {
	select {
	case s.began <- params:
	case <-ctx.Done():
		return nil
	}
	select {
	case <-s.let:
	case <-ctx.Done():
		return nil
	}
	return slices.Clone(params)
}

func (s *slow) Close() {
	s.closed++
}

// Rounds do not wait for an evaluation, of the models that are released meanwhile the last is
// evaluated, and that of the last round also after the task has ended.
func TestEvaluationBesideTheRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slow{began: make(chan []float32, 10), let: make(chan struct{})}
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) { w.config.Beside = e })
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		first := <-e.began // it goes on while the task ends
		s, err := p.Wait(t.Context(), p.List()[0].ID)
		if err != nil || s.State != Done || s.Round != 3 || s.Released != 3 || s.Evaluation != nil {
			t.Fatalf("%+v, %v", s, err)
		}
		last, _, err := p.Released(t.Context(), s.ID)
		if err != nil {
			t.Fatal(err)
		}
		changed, stop := p.Watch()
		defer stop()
		for _, want := range []struct {
			round int64
			theta []float32
		}{{1, first}, {3, last}} {
			e.let <- struct{}{}
			for s = p.List()[0]; s.EvaluatedAt != want.round; s = p.List()[0] {
				<-changed
			}
			if !slices.Equal(s.Evaluation.([]float32), want.theta) {
				t.Errorf("round %d: another model was evaluated", want.round)
			}
		}
		synctest.Wait()
		if e.closed != 1 {
			t.Error("it is not closed")
		}
		w.end(p)
		if len(e.began) != 1 || e.closed != 1 { // the third model's; the second's was skipped
			t.Errorf("%d more evaluations, closed %d times", len(e.began), e.closed)
		}
	})
}

// A stop ends an evaluation that hangs.
func TestStopEndsAnEvaluation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &slow{began: make(chan []float32, 10), let: make(chan struct{})}
		w := newWorld(t, dp.Shuffle, dp.All, func(w *world) { w.config.Beside = e })
		p, err := w.start(nil)
		if err != nil {
			t.Fatal(err)
		}
		<-e.began
		if s := w.end(p); s.Evaluation != nil || e.closed != 1 {
			t.Errorf("%+v, closed %d times", s.Evaluation, e.closed)
		}
	})
}

// Memory for sums does not grow with the processors of a machine without bound.
func TestOpeners(t *testing.T) {
	for _, c := range []struct {
		workers int
		dim     int64
		want    int
	}{{0, 5, 1}, {2, 10_000_000, 2}, {64, 10_000_000, 13}, {64, 1930, 64}, {64, 1 << 40, 1}} {
		r := &runner{s: &Service{config: Config{Workers: c.workers}}}
		r.task.Mechanism.Dim = c.dim
		if got := r.openers(); got != c.want {
			t.Errorf("%d workers, %d parameters: %d open reports, want %d", c.workers, c.dim, got, c.want)
		}
	}
}

package certificate

import (
	"context"
	"math"
	"math/big"
	"sync"
	"sync/atomic"
)

// maxSteps bounds the work that a document can ask for. A step is a weight of a law or the like, and takes a
// processor about a microsecond. Writers' documents take a fraction of it.
const maxSteps = 1 << 28

// work is the context of a check, and counts its steps. Goroutines may share it.
type work struct {
	context.Context
	most  int64
	steps atomic.Int64

	mu       sync.Mutex
	show     func(part string, done, of int64) // nil: nobody watches
	part     string
	done, of int64
}

func begin(ctx context.Context, show func(part string, done, of int64)) *work {
	return &work{Context: ctx, most: maxSteps, show: show}
}

// step counts n more steps. It returns an error if the check is to stop.
func (w *work) step(n int64) error {
	if w.steps.Add(n) > w.most {
		return w.tooMuch()
	}
	return w.Err()
}

// expect refuses work of some n further steps before it begins.
func (w *work) expect(n float64) error {
	if n > float64(w.most-w.steps.Load()) {
		return w.tooMuch()
	}
	return w.Err()
}

func (w *work) tooMuch() error {
	return reject("it asks for more than the %d steps that the checker takes", w.most)
}

// begins says that a part of the work with so many pieces begins. What it returns ends the part.
func (w *work) begins(part string, of int64) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	wasPart, wasDone, wasOf := w.part, w.done, w.of
	w.part, w.done, w.of = part, 0, of
	w.shown()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.part, w.done, w.of = wasPart, wasDone, wasOf
	}
}

// advance says that n more pieces of the current part are done.
func (w *work) advance(n int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done += n
	w.shown()
}

func (w *work) shown() {
	if w.show != nil && w.of > 0 {
		w.show(w.part, min(w.done, w.of), w.of)
	}
}

const (
	// looks is the number of weights of a law after which a loop counts them.
	looks = 1 << 12
	// longLaw is the number of weights from which a law is a part of its own, for who watches.
	longLaw = 1 << 22
)

// weights counts the weights of a law: about two sides of so many standard deviations as it takes until they
// are tiny, or the rest of its range where that is less.
func (w *work) weights(deviation float64, below, above int64, tiny *big.Float) (count func() error, end func(), err error) {
	reach := deviation * math.Sqrt(2*math.Ln2*float64(max(1, -tiny.MantExp(nil))))
	n := math.Min(reach, float64(below)) + math.Min(reach, float64(above))
	if err := w.expect(n); err != nil {
		return nil, nil, err
	}
	end = func() {}
	long := n >= longLaw
	if long {
		end = w.begins("weights of a law", int64(n))
	}
	seen := int64(0)
	return func() error {
		if seen++; seen%looks != 0 {
			return nil
		}
		if long {
			w.advance(looks)
		}
		return w.step(looks)
	}, end, nil
}

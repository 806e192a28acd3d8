package model

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"
)

// Evaluation says how a model does on labelled examples.
type Evaluation struct {
	// Examples is the number of examples, Correct those whose class has the
	// largest score.
	Examples, Correct int
	// Loss is the mean loss in nats per example.
	Loss float64
	// Confusion[y][c] is the number of examples of class y that were classified as c; nil if
	// examples have real targets.
	Confusion [][]int
}

// Accuracy returns Correct / Examples, NaN if there are no classes.
func (e *Evaluation) Accuracy() float64 {
	if e.Confusion == nil {
		return math.NaN()
	}
	return float64(e.Correct) / float64(e.Examples)
}

// evaluateChunk is the number of examples whose losses are summed together;
// it is fixed so that sums do not depend on the number of workers.
const evaluateChunk = 256

// Evaluate runs the model on len(y) rows of x with the given number of
// goroutines (0: one per processor). The result does not depend on workers.
func Evaluate(m Model, theta, x []float32, y []int32, workers int) (*Evaluation, error) {
	n, d := len(y), m.Inputs()
	if n < 1 {
		return nil, fmt.Errorf("model: no examples to evaluate")
	}
	if len(theta) != m.Params() || len(x) != n*d {
		return nil, fmt.Errorf("model: %d parameters and %d features for %d examples, want %d and %d",
			len(theta), len(x), n, m.Params(), n*d)
	}
	for i, c := range y {
		if c < 0 || int(c) >= m.Classes() {
			return nil, fmt.Errorf("model: class %d of example %d must be at least 0 and below %d", c, i, m.Classes())
		}
	}
	if workers < 0 {
		return nil, fmt.Errorf("model: workers = %d must be at least 0", workers)
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	chunks := (n + evaluateChunk - 1) / evaluateChunk
	losses := make([]float64, chunks)
	guess := make([]int32, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, chunks) {
		wg.Go(func() {
			s := m.NewScratch()
			logits := make([]float32, m.Classes())
			prob := make([]float64, m.Classes())
			for {
				c := int(next.Add(1)) - 1
				if c >= chunks {
					return
				}
				sum := 0.0
				for i := c * evaluateChunk; i < min(n, (c+1)*evaluateChunk); i++ {
					m.Forward(theta, x[i*d:(i+1)*d], logits, s)
					guess[i] = int32(Argmax(logits))
					sum += crossEntropy(logits, int(y[i]), prob)
				}
				losses[c] = sum
			}
		})
	}
	wg.Wait()

	e := &Evaluation{Examples: n, Confusion: make([][]int, m.Classes())}
	for c := range e.Confusion {
		e.Confusion[c] = make([]int, m.Classes())
	}
	for i, c := range y {
		e.Confusion[c][guess[i]]++
		if c == guess[i] {
			e.Correct++
		}
	}
	total := 0.0
	for _, l := range losses {
		total += l
	}
	e.Loss = total / float64(n)
	return e, nil
}

// MeanLoss returns a linear model's mean loss, without ridge, over rows of x
// with real targets, summed in row order.
func (m *Linear) MeanLoss(theta, x []float32, targets func(row int) float64) (float64, error) {
	d := m.c.Inputs
	if len(x) == 0 || len(x)%d != 0 || len(theta) != m.Params() {
		return 0, fmt.Errorf("model: %d parameters and %d features, want %d and rows of %d", len(theta), len(x), m.Params(), d)
	}
	n, sum := len(x)/d, 0.0
	for i := range n {
		loss, _ := m.c.Loss.At(m.score(theta, x[i*d:(i+1)*d]), targets(i))
		sum += loss
	}
	return sum / float64(n), nil
}

// Argmax returns the class with the largest score, the first one of equals.
func Argmax(logits []float32) int {
	best := 0
	for j, v := range logits {
		if v > logits[best] {
			best = j
		}
	}
	return best
}

// Probabilities overwrites prob with the softmax of the logits.
func Probabilities(logits []float32, prob []float64) {
	if len(logits) != len(prob) || len(logits) == 0 {
		panic(fmt.Sprintf("model: %d logits into %d probabilities", len(logits), len(prob)))
	}
	crossEntropy(logits, 0, prob)
}

package model

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Evaluation says how a model does on labelled examples.
type Evaluation struct {
	// Examples is the number of examples, Correct those whose class has the
	// largest score.
	Examples, Correct int
	// Accuracy is Correct / Examples, NaN if there are no classes.
	Accuracy float64
	// Loss is the mean loss of an example; in nats for cross-entropy and logistic loss.
	Loss float64
	// Numbers are all that a program measured, by name; nil for the other models.
	Numbers map[string]float64
	// Confusion[y][c] is the number of examples of class y that were classified as c; nil if
	// examples have real targets.
	Confusion [][]int

	// Scores holds each example's score for two classes, larger for the second one, and for
	// real targets; nil for more classes.
	Scores []float64

	targets []float64 // of the scores
}

// evaluateChunk is the number of examples whose cross-entropies are summed
// together; it is fixed so that sums do not depend on the number of workers.
const evaluateChunk = 256

// Evaluate runs the model on the rows of x, whose true answers are y, with the given number
// of goroutines (0: one per processor). The result does not depend on workers. A linear
// model's loss is without ridge and smoothing.
func (m *Model) Evaluate(theta, x []float32, y func(row int) float64, workers int) (*Evaluation, error) {
	d := m.Inputs
	n := len(x) / d
	if n < 1 {
		return nil, fmt.Errorf("model: no examples to evaluate")
	}
	if len(theta) != m.Params || len(x) != n*d {
		return nil, fmt.Errorf("model: %d parameters and %d features, want %d and rows of %d",
			len(theta), len(x), m.Params, d)
	}
	targets := make([]float64, n)
	for i := range targets {
		if targets[i] = y(i); !m.takes(targets[i]) {
			return nil, fmt.Errorf("model: class %v of example %d must be at least 0 and below %d", targets[i], i, m.Classes)
		}
	}
	if workers < 0 {
		return nil, fmt.Errorf("model: workers = %d must be at least 0", workers)
	}
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	chunks := (n + evaluateChunk - 1) / evaluateChunk
	losses := make([]float64, n)
	guess, scores := make([]int, n), make([]float64, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(workers, chunks) {
		wg.Go(func() {
			s := m.NewScratch()
			logits, prob := make([]float32, m.Classes), make([]float64, m.Classes)
			for {
				c := int(next.Add(1)) - 1
				if c >= chunks {
					return
				}
				for i := c * evaluateChunk; i < min(n, (c+1)*evaluateChunk); i++ {
					guess[i], losses[i], scores[i] = m.example(theta, x[i*d:(i+1)*d], targets[i], logits, prob, s)
				}
			}
		})
	}
	wg.Wait()

	e := &Evaluation{Examples: n, Accuracy: math.NaN()}
	if m.Classes <= 2 {
		e.Scores, e.targets = scores, targets
	}
	if m.Classes > 0 {
		e.Confusion = make([][]int, m.Classes)
	}
	for c := range e.Confusion {
		e.Confusion[c] = make([]int, m.Classes)
	}
	for i, g := range guess {
		if m.Classes > 0 {
			c := max(0, int(targets[i])) // −1 and 1 stand for the classes 0 and 1
			e.Confusion[c][g]++
			if c == g {
				e.Correct++
			}
		}
	}
	if m.Classes > 0 {
		e.Accuracy = float64(e.Correct) / float64(n)
	}
	size := evaluateChunk
	if _, ok := m.kind.(*linear); ok {
		size = n
	}
	total := 0.0
	for part := range slices.Chunk(losses, size) {
		sum := 0.0
		for _, l := range part {
			sum += l
		}
		total += sum
	}
	e.Loss = total / float64(n)
	return e, nil
}

// Judge returns the loss of one row with a valid answer, as Evaluate counts it, and whether the model
// gives the row its class; correct is false for real targets.
func (m *Model) Judge(theta, x []float32, y float64, s *workspace) (loss float64, correct bool) {
	m.check(theta, x, y)
	class, loss, _ := m.example(theta, x, y, s.logits, s.prob, s)
	return loss, m.Classes > 0 && class == max(0, int(y))
}

// example returns the class that the model gives a row, if it has classes, its loss and, for at
// most two classes, its score.
func (m *Model) example(theta, x []float32, y float64, logits []float32, prob []float64, s *workspace) (class int, loss, score float64) {
	if l, ok := m.kind.(*linear); ok {
		score = l.score(theta, x)
		if l.binary {
			y = side(y)
		}
		if round32(score) > 0 {
			class = 1
		}
		loss, _ = l.c.Loss.at(score, y)
		return class, loss, score
	}
	m.kind.forward(theta, x, logits, s)
	if len(logits) == 2 {
		score = float64(logits[1]) - float64(logits[0])
	}
	return argmax(logits), crossEntropy(logits, int(y), prob), score
}

// argmax returns the class with the largest score, the first if several are equal.
func argmax(logits []float32) int {
	best := 0
	for j, v := range logits {
		if v > logits[best] {
			best = j
		}
	}
	return best
}

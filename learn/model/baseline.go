package model

import (
	"math"
	"slices"
)

// Baseline is the result of the best constant answer on labelled examples. It uses the labels
// of these very examples and nothing else, so a model that is no better has learned nothing
// from its features.
type Baseline struct {
	// Accuracy is the share of the most frequent class; NaN for real targets.
	Accuracy float64
	// Class is the most frequent class, the first if several are equally frequent; -1 for real
	// targets.
	Class int
	// Loss is the least mean loss that any one answer, given for all examples, can have.
	Loss float64
}

// Baseline returns the result of the best constant answer on n ≥ 1 examples, by the model's
// loss. For classes, cross-entropy and logistic loss have the same baseline, in nats. The
// hinge loss, which has no probabilities, has its own.
func (m *Model) Baseline(n int, y func(row int) float64) Baseline {
	targets := make([]float64, n)
	for i := range targets {
		if targets[i] = y(i); m.Loss.Binary {
			targets[i] = side(targets[i])
		}
	}
	if m.Classes == 0 {
		return Baseline{Accuracy: math.NaN(), Class: -1, Loss: m.Loss.constant(targets)}
	}
	b := classBaseline(targets, m.Classes)
	if m.Loss.kind == Hinge {
		b.Loss = m.Loss.constant(targets)
	}
	return b
}

// classBaseline returns the baseline of cross-entropy. y holds the numbers of classes, or −1
// and 1 for two classes.
func classBaseline(y []float64, classes int) Baseline {
	counts := make([]int, classes)
	for _, c := range y {
		counts[max(0, int(c))]++
	}
	b := Baseline{}
	for k, n := range counts {
		if share := float64(n) / float64(len(y)); n > 0 {
			b.Loss -= share * math.Log(share)
		}
		if n > counts[b.Class] {
			b.Class = k
		}
	}
	b.Accuracy = float64(counts[b.Class]) / float64(len(y))
	return b
}

// constant returns the least mean loss that a constant score can have on the targets, of which
// there is at least one.
func (l Loss) constant(targets []float64) float64 {
	if l.kind == Logistic {
		return classBaseline(targets, 2).Loss
	}
	// For the other losses the mean is linear between targets, so one of the targets is a
	// minimum.
	sorted := slices.Sorted(slices.Values(targets))
	at := 0
	switch l.kind {
	case Absolute:
		at = (len(sorted) - 1) / 2
	case "pinball":
		at = max(0, int(math.Ceil(l.tau*float64(len(sorted))))-1)
	case Hinge:
		at = (len(sorted) - 1) / 2 // ±1: the more frequent sign
	}
	sum := 0.0
	for _, y := range targets {
		loss, _ := l.at(sorted[at], y)
		sum += loss
	}
	return sum / float64(len(targets))
}

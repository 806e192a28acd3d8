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
	// Class is the most frequent one, the first of equals; -1 for real targets.
	Class int
	// Loss is the least mean loss of any answer that is the same for all examples.
	Loss float64
}

// Beaten says whether a model is better than the baseline on the same examples: by accuracy
// if there are classes, otherwise by loss. NaN is never better.
func (b Baseline) Beaten(accuracy, loss float64) bool {
	if b.Class >= 0 {
		return accuracy > b.Accuracy
	}
	return loss < b.Loss
}

// ClassBaseline returns the baseline of at least one class label, each at least 0 and below
// classes. The loss is that of constant probabilities, in nats; it is the same for
// cross-entropy and logistic loss.
func ClassBaseline(y []int32, classes int) Baseline {
	counts := make([]int, classes)
	for _, c := range y {
		counts[c]++
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

// Constant returns the least mean of the loss over at least one target that a
// constant score has.
func (l Loss) Constant(targets []float64) float64 {
	if l.kind == "logistic" {
		y := make([]int32, len(targets))
		for i, t := range targets {
			if t > 0 {
				y[i] = 1
			}
		}
		return ClassBaseline(y, 2).Loss
	}
	// For the other losses the mean is linear between targets, so one of the targets is a
	// minimum.
	sorted := slices.Sorted(slices.Values(targets))
	at := 0
	switch l.kind {
	case "absolute":
		at = (len(sorted) - 1) / 2
	case "pinball":
		at = max(0, int(math.Ceil(l.tau*float64(len(sorted))))-1)
	case "hinge":
		at = (len(sorted) - 1) / 2 // ±1: the more frequent sign
	}
	sum := 0.0
	for _, y := range targets {
		loss, _ := l.At(sorted[at], y)
		sum += loss
	}
	return sum / float64(len(targets))
}

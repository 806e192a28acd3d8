package model

import (
	"cmp"
	"math"
	"slices"
)

// mostNamed is the largest number of classes whose recall and precision are told.
const mostNamed = 20

// Metrics returns the figures of an evaluation besides accuracy and loss, by name.
//
// With classes: recall_C, the share of the examples of class C that were classified as C, and
// precision_C, the share of those classified as C that are of class C; C is the class's name in
// classes. A figure without examples is left out, and with more than 20 classes all are. With
// two classes also auc: the chance that a random example of the second class has a larger score
// than one of the first, where equal scores count half.
//
// With real targets: r2, the share of the targets' variance that the scores explain (0 for their
// mean, negative for worse; left out if all targets are equal), and mae, the mean absolute
// error times unit, beside baseline_mae, that of the targets' median.
func (e *Evaluation) Metrics(classes []string, unit float64) map[string]float64 {
	out := map[string]float64{}
	for c, row := range e.Confusion {
		if len(e.Confusion) > mostNamed || c >= len(classes) {
			break
		}
		of, as := 0, 0
		for k := range row {
			of += row[k]
			as += e.Confusion[k][c]
		}
		if of > 0 {
			out["recall_"+classes[c]] = float64(row[c]) / float64(of)
		}
		if as > 0 {
			out["precision_"+classes[c]] = float64(row[c]) / float64(as)
		}
	}
	switch {
	case len(e.Confusion) == 2:
		if a, ok := auc(e.Scores, e.targets); ok {
			out["auc"] = a
		}
	case e.Confusion == nil && len(e.Scores) > 0:
		r2, mae, best := deviations(e.Scores, e.targets)
		if !math.IsNaN(r2) {
			out["r2"] = r2
		}
		out["mae"], out["baseline_mae"] = unit*mae, unit*best
	}
	return out
}

// auc returns the chance that an example with a target above 0 has a larger score than one of
// the others. It is not ok unless there are examples of both kinds and all scores are numbers.
func auc(scores, targets []float64) (area float64, ok bool) {
	order := make([]int, len(scores))
	for i := range order {
		if order[i] = i; math.IsNaN(scores[i]) {
			return 0, false
		}
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(scores[a], scores[b]) })
	below, pairs, second := 0, 0.0, 0 // examples of the first class below, pairs in order
	for i := 0; i < len(order); {
		first, more := 0, 0 // with this score
		j := i
		for ; j < len(order) && scores[order[j]] == scores[order[i]]; j++ {
			if targets[order[j]] > 0 {
				more++
			} else {
				first++
			}
		}
		pairs += float64(more) * (float64(below) + float64(first)/2)
		below, second, i = below+first, second+more, j
	}
	if below == 0 || second == 0 {
		return 0, false
	}
	return pairs / (float64(below) * float64(second)), true
}

// deviations returns R² of scores for real targets, NaN if the targets are all equal; the mean
// absolute error; and that of the targets' median.
func deviations(scores, targets []float64) (r2, mae, best float64) {
	n := float64(len(targets))
	mean := 0.0
	for _, y := range targets {
		mean += y / n
	}
	sorted := slices.Sorted(slices.Values(targets))
	median := sorted[(len(sorted)-1)/2]
	left, all := 0.0, 0.0
	for i, y := range targets {
		left += (y - scores[i]) * (y - scores[i])
		all += (y - mean) * (y - mean)
		mae += math.Abs(y-scores[i]) / n
		best += math.Abs(y-median) / n
	}
	if sorted[0] == sorted[len(sorted)-1] {
		return math.NaN(), mae, best
	}
	return 1 - left/all, mae, best
}

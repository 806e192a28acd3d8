package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
)

// places are the figures that are shown at places of their own.
var places = []string{"loss", "accuracy", "examples", "baseline_loss", "baseline_accuracy"}

// measures lists the other figures by name, as "auc 0.93".
func measures(numbers map[string]dp.Number) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if !slices.Contains(places, name) {
			out = append(out, fmt.Sprintf("%s %.4g", name, float64(numbers[name])))
		}
	}
	return out
}

// briefly lists those of them that are not about one class.
func briefly(numbers map[string]dp.Number) []string {
	return slices.DeleteFunc(measures(numbers), func(text string) bool {
		return strings.HasPrefix(text, "recall_") || strings.HasPrefix(text, "precision_") || strings.HasPrefix(text, "baseline_")
	})
}

// figures prints an evaluation's other figures: a line for each class of a table, and one for
// each figure that is not about a class.
func (p *printer) figures(numbers map[string]dp.Number, e *model.Evaluation, classes []string) {
	told := slices.Clone(places)
	for k, name := range classes {
		recall, precision := "recall_"+name, "precision_"+name
		told = append(told, recall, precision)
		if r, ok := numbers[recall]; ok && k < len(e.Confusion) {
			text := fmt.Sprintf("recall %.2f %% of %d", 100*float64(r), sum(e.Confusion[k]))
			if q, ok := numbers[precision]; ok {
				text += fmt.Sprintf(", precision %.2f %%", 100*float64(q))
			}
			p.row("  "+name, "%s", text)
		}
	}
	if a, ok := numbers["weighted_accuracy"]; ok {
		told = append(told, "weighted_accuracy", "baseline_weighted_accuracy")
		p.row("weighted accuracy", "%.2f %%, of the best constant %.2f %%", 100*float64(a), 100*float64(numbers["baseline_weighted_accuracy"]))
	}
	if mae, ok := numbers["mae"]; ok {
		told = append(told, "mae", "baseline_mae")
		p.row("mean absolute error", "%.4g, of the best constant %.4g", float64(mae), float64(numbers["baseline_mae"]))
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if !slices.Contains(told, name) {
			p.row(name, "%.4g", float64(numbers[name]))
		}
	}
}

func sum(counts []int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// asNumbers returns figures as numbers that JSON can hold.
func asNumbers(numbers map[string]float64) map[string]dp.Number {
	out := map[string]dp.Number{}
	for name, x := range numbers {
		out[name] = dp.Number(x)
	}
	return out
}

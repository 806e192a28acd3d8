package statistic

import (
	"fmt"
	"math"
	"slices"
)

// histogram asks how many clients have a value in each of several bins, or one of several texts.
type histogram struct{ Question }

func (histogram) uses() []string { return []string{"column", "where", "edges", "categories"} }
func (histogram) ones() int      { return 1 }

func (h histogram) dim() int {
	if len(h.Categories) > 0 {
		return len(h.Categories)
	}
	return len(h.Edges) - 1
}

func (h histogram) check() error {
	if err := checkName("column", h.Column); err != nil {
		return err
	}
	switch {
	case len(h.Edges) > 0 && len(h.Categories) > 0:
		return fmt.Errorf("statistic: the histogram of %q has edges and categories; it needs one of them", h.Column)
	case len(h.Categories) > 0:
		return h.checkCategories()
	case len(h.Edges) < 2:
		return fmt.Errorf("statistic: the histogram of %q needs public bins or categories: those that the data has would tell of it", h.Column)
	}
	for i, e := range h.Edges {
		switch {
		case math.Abs(e) > mostValue:
			return fmt.Errorf("statistic: edge %v of the bins lies beyond ±%v, the limit", e, mostValue)
		case math.IsNaN(e) || e == 0 && math.Signbit(e):
			return fmt.Errorf("statistic: edge %v of the bins is no number", e)
		case i > 0 && !(e > h.Edges[i-1]):
			return fmt.Errorf("statistic: edge %v of the bins must be above the one before it, %v", e, h.Edges[i-1])
		}
	}
	return nil
}

func (h histogram) checkCategories() error {
	seen := map[string]bool{}
	for i, c := range h.Categories {
		if c == "" {
			return fmt.Errorf("statistic: category %d of %d is empty; rows with an empty cell count nowhere", i+1, len(h.Categories))
		}
		if err := checkName("category", c); err != nil {
			return err
		}
		if seen[c] {
			return fmt.Errorf("statistic: category %q is named twice", c)
		}
		if c == Others && i < len(h.Categories)-1 {
			return fmt.Errorf("statistic: category %q stands for all other texts and comes last", c)
		}
		seen[c] = true
	}
	return nil
}

func (h histogram) coder() coder {
	at := make(map[string]int, len(h.Categories))
	for i, c := range h.Categories {
		at[c] = i
	}
	others, hasOthers := at[Others]
	return coder{places: func(row Row, ok bool, _ []float32, places []int) []int {
		if len(h.Categories) == 0 {
			if v, ok := h.value(row, ok); ok {
				places = append(places, h.bin(v))
			}
			return places
		}
		text := h.cell(row, ok)
		if i, ok := at[text]; ok {
			return append(places, i)
		}
		if text != "" && hasOthers {
			places = append(places, others)
		}
		return places
	}}
}

// bin returns the bin of a number.
func (h histogram) bin(v float64) int {
	i, found := slices.BinarySearch(h.Edges, v)
	if !found {
		i--
	}
	return min(max(i, 0), len(h.Edges)-2)
}

func (h histogram) answer(r Release) (Answer, error) {
	joint := r.joint(len(r.Sums))
	a := Answer{Bins: make([]Bin, len(r.Sums))}
	for i, s := range r.Sums {
		n := r.count(s, joint)
		b := Bin{Count: n.Value, Interval: n.Interval}
		if len(h.Categories) > 0 {
			b.Category = &h.Categories[i]
		} else {
			b.Lower, b.Upper = &h.Edges[i], &h.Edges[i+1]
		}
		a.Bins[i] = b
	}
	return a, nil
}

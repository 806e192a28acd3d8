package figures

import (
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"
	"strconv"
)

// row is one measurement of a recorded experiment. A value that does not apply is NaN.
type row struct {
	Setting  string
	Seed     int64
	Round    int64
	Proved   float64 // ε by riffle's proved bound
	Best     float64
	Paper    float64 // ε by the paper's own accounting
	Value    float64 // test accuracy in 0..1, or excess loss
	N        float64
	Dim      float64
	Epsilon  float64 // budget of a convex problem
	hasValue bool
}

// columns are the columns that a file must have, in this order; more may follow.
var columns = []string{"experiment", "setting", "seed", "round", "eps_proved", "eps_best", "eps_paper", "value", "seconds"}

// readResults returns the rows of an experiment's file, such as e1.csv; none, without an error, if
// it was not recorded.
func readResults(results fs.FS, experiment string) ([]row, error) {
	if results == nil {
		return nil, nil
	}
	name := experiment + ".csv"
	if info, err := fs.Stat(results, name); err == nil && !info.Mode().IsRegular() { // opening a pipe would wait for ever
		return nil, fmt.Errorf("figures: %s is not a regular file", name)
	}
	f, err := results.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("figures: %v", err)
	}
	defer f.Close()
	rows, err := readRows(f, experiment)
	if err != nil {
		return nil, fmt.Errorf("figures: %s.csv: %v", experiment, err)
	}
	return rows, nil
}

func readRows(from io.Reader, experiment string) ([]row, error) {
	r := csv.NewReader(from)
	r.Comment = '#'
	header, err := r.Read()
	if err != nil {
		return nil, err
	}
	if len(header) < len(columns) || !slices.Equal(header[:len(columns)], columns) {
		return nil, fmt.Errorf("columns are %v, must begin with %v", header, columns)
	}
	var out []row
	for {
		text, err := r.Read()
		if err == io.EOF {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		line, _ := r.FieldPos(0)
		row, err := parseRow(header, text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("line %d: %v", line, err)
		case text[0] != experiment:
			return nil, fmt.Errorf("line %d: experiment %q", line, text[0])
		}
		if row.hasValue {
			out = append(out, row)
		}
	}
}

func parseRow(header, text []string) (row, error) {
	row := row{Setting: text[1], Proved: math.NaN(), Best: math.NaN(), Paper: math.NaN(), Value: math.NaN(), N: math.NaN(), Dim: math.NaN(), Epsilon: math.NaN()}
	for i, name := range header {
		if text[i] == "" {
			continue
		}
		whole := map[string]*int64{"seed": &row.Seed, "round": &row.Round}[name]
		number := map[string]*float64{"eps_proved": &row.Proved, "eps_best": &row.Best, "eps_paper": &row.Paper, "value": &row.Value,
			"n": &row.N, "dim": &row.Dim, "epsilon": &row.Epsilon}[name]
		var err error
		switch {
		case whole != nil:
			*whole, err = strconv.ParseInt(text[i], 10, 64)
		case number != nil:
			*number, err = strconv.ParseFloat(text[i], 64)
		}
		if err != nil {
			return row, fmt.Errorf("%s: %v", name, err)
		}
	}
	row.hasValue = !math.IsNaN(row.Value)
	return row, nil
}

// point joins the rows of one setting over its seeds.
type point struct {
	setting             string
	at                  row // row of the first seed
	mean, least, most   float64
	seeds               int
	proved, paper, best float64 // largest over the seeds
}

// gather joins the seeds: rows with the same setting and the same key, in the order of
// settings in the rows, and of keys.
func gather(rows []row, key func(row) float64) []point {
	type group struct {
		setting string
		key     float64
	}
	at := map[group]int{}
	order := map[string]int{}
	var out []point
	for _, r := range rows {
		if _, ok := order[r.Setting]; !ok {
			order[r.Setting] = len(order)
		}
		g := group{r.Setting, key(r)}
		i, ok := at[g]
		if !ok {
			i = len(out)
			at[g] = i
			out = append(out, point{setting: r.Setting, at: r, least: r.Value, most: r.Value, proved: r.Proved, paper: r.Paper, best: r.Best})
		}
		p := &out[i]
		p.seeds++
		p.mean += (r.Value - p.mean) / float64(p.seeds)
		p.least, p.most = math.Min(p.least, r.Value), math.Max(p.most, r.Value)
		p.proved, p.paper, p.best = math.Max(p.proved, r.Proved), math.Max(p.paper, r.Paper), math.Max(p.best, r.Best)
	}
	slices.SortStableFunc(out, func(a, b point) int {
		return cmp.Or(cmp.Compare(order[a.setting], order[b.setting]), cmp.Compare(key(a.at), key(b.at)))
	})
	return out
}

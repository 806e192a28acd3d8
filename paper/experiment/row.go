package experiment

import (
	"bytes"
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strconv"
)

// Row is one evaluation of one run. A value that does not apply is NaN, or 0 in N and Dim.
type Row struct {
	Experiment, Setting string
	Seed, Round         int64
	// EpsProved and EpsBest are ε of all rounds so far by the best proved and the
	// best sound bound, EpsPaper by the source's own formula. +Inf: no privacy.
	EpsProved, EpsBest, EpsPaper float64
	Value                        float64 // test accuracy in [0, 1]; of a convex problem the excess loss
	Seconds                      float64 // since the run began
	Final                        bool    // whether it is the last of a finished run, even one that its budget ended
	// For convex problems only: clients, features and the budget.
	N, Dim  int64
	Epsilon float64
}

var (
	columns = []string{"experiment", "setting", "seed", "round", "eps_proved", "eps_best", "eps_paper", "value", "seconds", "final"}
	convex  = []string{"n", "dim", "epsilon"}
)

//go:embed recorded/*.csv
var recorded embed.FS

// Recorded returns the results of the named experiment that are part of riffle; none if it
// was not recorded.
func Recorded(name string) ([]Row, error) {
	raw, err := recorded.ReadFile("recorded/" + name + ".csv")
	if errors.Is(err, fs.ErrNotExist) {
		if len(List(name)) == 0 {
			return nil, fmt.Errorf("experiment: no experiment %q", name)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseRows(raw)
}

// marshalRows writes rows as CSV. ε is written with six digits, rounded up.
func marshalRows(rows []Row) []byte {
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	head, sized := columns, false
	for _, r := range rows {
		sized = sized || r.N > 0
	}
	if sized {
		head = append(append([]string{}, columns...), convex...)
	}
	_ = w.Write(head) // cannot fail: a Buffer takes everything
	whole := func(n int64) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatInt(n, 10)
	}
	for _, r := range rows {
		fields := []string{r.Experiment, r.Setting, strconv.FormatInt(r.Seed, 10), strconv.FormatInt(r.Round, 10),
			upper(r.EpsProved), upper(r.EpsBest), upper(r.EpsPaper), number(r.Value, 7), number(r.Seconds, 5),
			strconv.FormatBool(r.Final)}
		if sized {
			fields = append(fields, whole(r.N), whole(r.Dim), number(r.Epsilon, -1))
		}
		_ = w.Write(fields)
	}
	w.Flush()
	return out.Bytes()
}

func number(x float64, digits int) string {
	if math.IsNaN(x) {
		return ""
	}
	return strconv.FormatFloat(x, 'g', digits, 64)
}

// upper writes an upper bound with six digits, rounded up.
func upper(x float64) string {
	if math.IsInf(x, 1) {
		return "inf"
	}
	if math.IsNaN(x) || x == 0 {
		return number(x, -1)
	}
	text := strconv.FormatFloat(x, 'g', 6, 64)
	for up := x; ; {
		if v, err := strconv.ParseFloat(text, 64); err != nil || v >= x {
			return text
		}
		up = math.Max(up*(1+1e-6), math.Nextafter(up, math.Inf(1)))
		text = strconv.FormatFloat(up, 'g', 6, 64)
	}
}

// parseRows reads what marshalRows writes.
func parseRows(raw []byte) ([]Row, error) {
	lines, err := csv.NewReader(bytes.NewReader(raw)).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("experiment: %w", err)
	}
	if len(lines) == 0 {
		return nil, errors.New("experiment: no heading")
	}
	all := append(append([]string{}, columns...), convex...)
	if n := len(lines[0]); n != len(columns) && n != len(all) {
		return nil, fmt.Errorf("experiment: %d columns, want %d or %d", n, len(columns), len(all))
	}
	for i, name := range lines[0] {
		if name != all[i] {
			return nil, fmt.Errorf("experiment: column %d is %q, want %q", i+1, name, all[i])
		}
	}
	rows := make([]Row, 0, len(lines)-1)
	for i, line := range lines[1:] {
		r, err := parseRow(line)
		if err != nil {
			return nil, fmt.Errorf("experiment: line %d: %w", i+2, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func parseRow(line []string) (r Row, err error) {
	whole := func(text string) (n int64) {
		if err == nil && text != "" {
			n, err = strconv.ParseInt(text, 10, 64)
		}
		return n
	}
	float := func(text string) float64 {
		if text == "" {
			return math.NaN()
		}
		var x float64
		if err == nil {
			x, err = strconv.ParseFloat(text, 64)
		}
		return x
	}
	r = Row{Experiment: line[0], Setting: line[1], Seed: whole(line[2]), Round: whole(line[3]),
		EpsProved: float(line[4]), EpsBest: float(line[5]), EpsPaper: float(line[6]), Value: float(line[7]), Seconds: float(line[8]),
		Epsilon: math.NaN()}
	if err == nil {
		r.Final, err = strconv.ParseBool(line[9])
	}
	if len(line) > len(columns) {
		r.N, r.Dim, r.Epsilon = whole(line[10]), whole(line[11]), float(line[12])
	}
	return r, err
}

// Recordings returns the files that Recorded reads, e1.csv, e2.csv, ….
func Recordings() fs.FS {
	sub, err := fs.Sub(recorded, "recorded")
	if err != nil {
		panic(err) // cannot fail: the folder is embedded
	}
	return sub
}

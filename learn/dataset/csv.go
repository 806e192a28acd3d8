package dataset

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of a CSV file.
const (
	// MaxCSVRecord is the largest number of bytes of one line, or of one record whose quoted
	// cells span lines. Bytes already in the reader's buffer are not counted.
	MaxCSVRecord = 1 << 20
	// MaxCSVCells is the largest number of features, rows × columns.
	MaxCSVCells = 1 << 28
	// MaxCSVClasses is the largest number of classes. A label column with more is probably a
	// real target, read without Regression.
	MaxCSVClasses = 1024
)

// CSVConfig says how to read a CSV file.
type CSVConfig struct {
	// Label is the name of the column to predict. Required.
	Label string
	// Regression reads the label column as real targets. Otherwise every
	// distinct text in it is a class, whatever it looks like.
	Regression bool
	// Classes lists all classes, in order, if they are public. The file may lack some of them
	// and must not hold any other. nil: the classes in the file, sorted.
	Classes []string
	// Unlabelled reads rows whose answer nobody needs: the label's column may be absent, and is
	// not read. All targets are 0.
	Unlabelled bool
	// Blanks replaces each row that cannot be used by a blank one, instead of returning an
	// error: whether a client takes part in a task must not depend on its rows. It needs
	// Classes or Regression.
	Blanks bool
	// Scale maps columns to their scaling; Rest applies to all other feature columns. Only a
	// regression's label column may be scaled.
	//
	// The constants must be public, that is known without looking at the clients' data, such
	// as the range of a pixel or of an age. A mean, a deviation or an extreme of the data
	// would be a statistic of the clients that no accountant here charges. Nothing in this
	// package computes one.
	Scale map[string]Scaling
	Rest  Scaling
	// Categories lists the public texts of a column, each of which becomes a feature that is 1
	// in rows with this text and 0 in others. The last one may be Others. Missing says what an
	// empty cell counts as; * stands for all columns of numbers without an entry. Drop names the
	// columns that are not read. Declare sets them. They, the ranges and Classes are all that
	// decides which features a row has: none of it is read off the rows.
	Categories map[string][]string
	Missing    map[string]fill
	Drop       []string
	// Features are the features that a model takes, in its order, named as Columns of a CSV. Columns
	// are then taken by their names: in any order, and those that give none of them are not
	// read. nil: all columns.
	Features []string
	// Weights are public weights of classes, which no reader uses.
	Weights map[string]float64
}

// Scaling maps a cell v to (v − Shift)/Unit.
type Scaling struct {
	Shift float64 // finite
	Unit  float64 // finite and above 0, or 0 for 1
}

func (s Scaling) validate(column string) error {
	if math.IsNaN(s.Shift) || math.IsInf(s.Shift, 0) {
		return fmt.Errorf("dataset: scaling of %s: shift = %v must be finite", column, s.Shift)
	}
	if !(s.Unit >= 0) || math.IsInf(s.Unit, 0) {
		return fmt.Errorf("dataset: scaling of %s: unit = %v must be finite and above 0, or 0 for none", column, s.Unit)
	}
	return nil
}

func (s Scaling) apply(v float64) float32 {
	if s.Unit == 0 {
		return float32(v - s.Shift)
	}
	return float32((v - s.Shift) / s.Unit)
}

// CSV is a table with the names in its file.
type CSV struct {
	// Name is the file's name.
	Name string
	// Columns are the names of the features, in the order of a row.
	Columns []string
	// Labels are the texts of the classes; nil for a regression.
	Labels []string
	Table  *Table
	// Binary marks the features that are 0 or 1: categories and indicators. nil: none. A row
	// has at most Ones of them that are 1.
	Binary []bool
	Ones   int
	// Square bounds the sum of the squares of a row's features, if all cells of numbers lie in
	// −1..1 once they are scaled. What an empty cell counts as may lie outside.
	Square float64
	// Blanks is the number of blank rows, and Why the error of the first of them.
	Blanks int
	Why    error

	known bool // whether CSVConfig gave the classes
}

// ErrRows is wrapped by every error about rows behind a valid header. Whether there is such
// an error depends on the data.
var ErrRows = errors.New("dataset: rows cannot be used")

type rowsError struct{ error }

func (e rowsError) Unwrap() []error { return []error{e.error, ErrRows} }

// ReadCSV reads the file at path; see parseCSV.
func ReadCSV(path string, c CSVConfig) (*CSV, error) {
	f, err := openCSV(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseCSV(f, path, c)
}

// parseCSV reads comma-separated values (RFC 4180; lines may end in LF alone).
// A UTF-8 byte order mark at the start is skipped, and so are blank lines, but behind a header of one column:
// there a blank line is a row with an empty cell. Spaces are part of a cell. name stands for the file in errors.
//
// The first line is the header: column names, none empty, all different, one
// of them c.Label. All other columns that are not dropped are features: decimal
// numbers that float32 can hold, scaled or not, or declared categories. Every record has as many cells as the
// header. A class is a cell of the label column, not empty and without spaces
// around it; classes are numbered in sorted order, integers by value before
// all other texts by their bytes, and there are at least two. The order names
// classes and decides nothing else, so no type is guessed.
//
// Memory: 4 bytes per feature, up to 2.5 times that while it grows, and one record.
// Errors quote the offending cell: they are for whoever owns the file.
func parseCSV(r io.Reader, name string, c CSVConfig) (*CSV, error) {
	c.Regression = c.Regression || c.Unlabelled
	p := &csvParser{name: name, config: c, classes: map[string]int32{}}
	p.begin(r)
	if err := p.header(); err != nil {
		return nil, err
	}
	out, err := p.rows()
	if err != nil {
		return nil, rowsError{err}
	}
	return out, nil
}

func (p *csvParser) rows() (*CSV, error) {
	for {
		cells, err := p.record()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		if len(p.out.X) > MaxCSVCells-p.out.Dim {
			return nil, fmt.Errorf("dataset: %s: line %d: more than %d features in all", p.name, p.last, MaxCSVCells)
		}
		if err := p.row(cells); err != nil {
			if !p.config.Blanks {
				return nil, err
			}
			p.blank(err)
		}
	}
	return p.finish()
}

type csvParser struct {
	name    string
	config  CSVConfig
	source  allowance
	reader  *csv.Reader
	columns []string // all, the label included
	scale   []Scaling
	read    []column
	order   []int // of the columns that give features
	label   int
	out     Table
	classes map[string]int32 // numbered in order of appearance until finish sorts them
	names   []string
	last    int // the line on which the last good record began
	ahead   ahead

	features []string // their names
	binary   []bool   // which features are 0 or 1; nil: none
	ones     int
	square   float64

	finished int   // number of complete rows
	blanks   []int // indices of blank rows
	why      error // why the first blank row is blank
}

func (p *csvParser) header() error {
	cells, err := p.record()
	if err == io.EOF {
		return fmt.Errorf("dataset: %s: empty file, want a header line", p.name)
	}
	if err != nil {
		return err
	}
	p.columns = slices.Clone(cells)
	p.label = -1
	p.scale = make([]Scaling, len(cells))
	seen := make(map[string]int, len(cells))
	for j, column := range p.columns {
		line, _ := p.reader.FieldPos(j)
		if column == "" || !utf8.ValidString(column) {
			return fmt.Errorf("dataset: %s: line %d: name %q of column %d must be UTF-8 text and not empty", p.name, line, column, j+1)
		}
		if first, ok := seen[column]; ok {
			return fmt.Errorf("dataset: %s: line %d: columns %d and %d are both named %q, names must differ", p.name, line, first+1, j+1, column)
		}
		seen[column] = j
		p.scale[j] = p.config.Rest
		if column == p.config.Label {
			p.label = j
			p.scale[j] = Scaling{}
		}
	}
	if p.label < 0 && !p.config.Unlabelled {
		return p.noColumn("label column", p.config.Label)
	}
	if p.label >= 0 && len(p.columns) < 2 {
		return fmt.Errorf("dataset: %s: %q is the only column, want at least one feature", p.name, p.config.Label)
	}
	if err := p.config.Rest.validate("the other columns"); err != nil {
		return err
	}
	for column, s := range p.config.Scale {
		j, ok := seen[column]
		if !ok {
			return fmt.Errorf("dataset: %s: scaling of %q, which is not a column", p.name, column)
		}
		if j == p.label && !p.config.Regression {
			return fmt.Errorf("dataset: %s: scaling of the label column %q, which holds classes", p.name, column)
		}
		if err := s.validate(column); err != nil {
			return err
		}
		p.scale[j] = s
	}
	return p.declare(seen)
}

func (p *csvParser) row(cells []string) error {
	if len(cells) != len(p.columns) {
		return fmt.Errorf("dataset: %s: line %d has %d cells, the header %d", p.name, p.last, len(cells), len(p.columns))
	}
	if !p.config.Unlabelled {
		if err := p.answer(cells[p.label]); err != nil {
			return err
		}
	}
	for _, j := range p.order {
		if err := p.cell(&p.read[j], cells[j]); err != nil {
			return fmt.Errorf("%s: %.40q %w", p.at(j), cells[j], err)
		}
	}
	if p.config.Unlabelled {
		p.out.Targets = append(p.out.Targets, 0)
	}
	p.finished++
	return nil
}

// blank replaces the row that failed half-way by a blank one.
func (p *csvParser) blank(err error) {
	t := &p.out
	n := p.finished
	t.X = append(t.X[:n*t.Dim], make([]float32, t.Dim)...)
	if p.config.Regression {
		t.Targets = append(t.Targets[:n], 0)
	} else {
		t.Y = append(t.Y[:n], -1)
	}
	if p.blanks = append(p.blanks, n); p.why == nil {
		p.why = err
	}
	p.finished++
}

// answer appends the cell of the label's column.
func (p *csvParser) answer(cell string) error {
	if !p.config.Regression {
		y, err := p.class(cell)
		if err == nil {
			p.out.Y = append(p.out.Y, y)
		}
		return err
	}
	v, err := number(cell)
	switch { // nothing that is declared of columns helps
	case errors.Is(err, ErrText):
		err = errors.New("is not a number to predict; classes need a loss of their own, such as logistic")
	case cell == "":
		err = errors.New("is an empty cell, must be a number: a row without an answer cannot be used")
	}
	y := p.scale[p.label].apply(v)
	if err == nil && !finite(y) {
		err = errTooLarge
	}
	if err != nil {
		return fmt.Errorf("%s: %.40q %w", p.at(p.label), cell, err)
	}
	p.out.Targets = append(p.out.Targets, y)
	return nil
}

func (p *csvParser) class(cell string) (int32, error) {
	if y, ok := p.classes[cell]; ok {
		return y, nil
	}
	switch {
	case cell == "":
		return 0, fmt.Errorf("%s: %q is an empty cell, must name a class", p.at(p.label), cell)
	case !utf8.ValidString(cell):
		return 0, fmt.Errorf("%s: class %.40q must be UTF-8", p.at(p.label), cell)
	case strings.TrimSpace(cell) != cell:
		return 0, fmt.Errorf("%s: class %.40q must not have spaces around it", p.at(p.label), cell)
	case p.config.Classes != nil && !slices.Contains(p.config.Classes, cell):
		return 0, fmt.Errorf("%s: class %.40q is none of the %d that there are%w", p.at(p.label), cell, len(p.config.Classes), ErrClass)
	case len(p.names) == MaxCSVClasses:
		return 0, fmt.Errorf("%s: %.40q would be class %d, at most %d are read; numbers to predict need a loss of their own, such as absolute",
			p.at(p.label), cell, MaxCSVClasses+1, MaxCSVClasses)
	}
	cell = strings.Clone(cell) // otherwise the cell would keep its whole record in memory
	y := int32(len(p.names))
	p.classes[cell] = y
	p.names = append(p.names, cell)
	return y, nil
}

func (p *csvParser) finish() (*CSV, error) {
	if p.out.Len() == 0 {
		return nil, fmt.Errorf("dataset: %s: no rows behind the header", p.name)
	}
	table := p.out // so that the result does not keep the parser's buffers
	out := &CSV{Name: p.name, Table: &table, Blanks: len(p.blanks), Why: p.why, known: p.config.Classes != nil}
	if len(p.blanks) > 0 {
		table.Blank = make([]bool, table.Len())
		for _, i := range p.blanks {
			table.Blank[i] = true
		}
	}
	out.Columns, out.Binary, out.Ones, out.Square = p.features, p.binary, p.ones, p.square+float64(p.ones)
	if p.config.Regression {
		return out, nil
	}
	if p.config.Classes == nil && len(p.names) < 2 {
		return nil, fmt.Errorf("dataset: %s: column %q holds one class only, %.40q, want at least 2",
			p.name, p.config.Label, p.names[0])
	}
	out.Labels = slices.Clone(p.config.Classes)
	if out.Labels == nil {
		out.Labels = slices.Clone(p.names)
		slices.SortFunc(out.Labels, compareLabels)
	}
	place := make([]int32, len(p.names))
	for y, label := range out.Labels {
		if old, ok := p.classes[label]; ok {
			place[old] = int32(y)
		}
	}
	for i, y := range table.Y {
		if y < 0 {
			table.Y[i] = 0 // a blank row
			continue
		}
		table.Y[i] = place[y]
	}
	table.Classes = len(out.Labels)
	return out, nil
}

// Split parts the rows into training and test: round(fraction · rows) rows for
// the test, chosen as Split chooses, at least one for each part. The training
// part of a classification must hold at least two classes.
func (c *CSV) Split(fraction float64, seed uint64) (train, test *Table, err error) {
	if !(fraction > 0 && fraction < 1) {
		return nil, nil, fmt.Errorf("dataset: %s: test fraction = %v must lie strictly between 0 and 1", c.Name, fraction)
	}
	n := c.Table.Len()
	held := max(1, int(math.Round(fraction*float64(n))))
	if held >= n {
		return nil, nil, fmt.Errorf("dataset: %s: test fraction = %v of %d rows leaves none to train on", c.Name, fraction, n)
	}
	first, second, err := split(n, held, "test rows", newKey(seed, domainTest))
	if err != nil {
		return nil, nil, err
	}
	if train, err = c.Table.Subset(first); err != nil {
		return nil, nil, err
	}
	if test, err = c.Table.Subset(second); err != nil {
		return nil, nil, err
	}
	// Given classes are public, so the training part may lack any of them.
	if c.known || train.Targets != nil {
		return train, test, nil
	}
	if !slices.ContainsFunc(train.Y, func(y int32) bool { return y != train.Y[0] }) {
		return nil, nil, fmt.Errorf("dataset: %s: the training part of %d rows holds one class only, %q, want at least 2",
			c.Name, train.Len(), c.Labels[train.Y[0]])
	}
	return train, test, nil
}

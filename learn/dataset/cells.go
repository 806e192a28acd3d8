package dataset

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// Cells are some columns of a CSV file as texts: no scaling, no categories.
type Cells struct {
	Rows int
	// Odd is the number of cells that count as empty because they break a rule; of a column that is
	// not there, all. It is 0 unless the reading was lenient.
	Odd int
	// Absent are the columns that are not there. There are none unless the reading was lenient.
	Absent  []string
	columns map[string]*cellsColumn
}

// cellsColumn holds the cells of a column one behind the other.
type cellsColumn struct {
	at       int // place in a record
	name     string
	number   bool
	filled   bool
	fill     string
	building strings.Builder
	text     string
	ends     []int64
}

// Cell returns a cell of a column that was read; "" if it is empty.
func (c *Cells) Cell(row int, column string) string {
	of, begin := c.columns[column], int64(0)
	if of == nil {
		return ""
	}
	if row > 0 {
		begin = of.ends[row-1]
	}
	return of.text[begin:of.ends[row]]
}

// CellsConfig says what ReadCells reads.
type CellsConfig struct {
	// Columns are the names of columns; none: rows are counted only.
	Columns []string
	// Numbers are those of Columns whose cells must be decimal numbers or empty.
	Numbers []string
	// Missing says what empty cells count as; * stands for all columns of numbers without an entry. An
	// empty cell of which it says nothing stays empty.
	Missing CSVConfig
	// Lenient takes cells that break a rule, and those of columns that are not there, for empty ones.
	Lenient bool
}

// ReadCells reads columns of the CSV file at path, whose shape is that of ReadCSV. Cells and names of
// columns are UTF-8 texts; unlike those of ReadCSV they lose the spaces around them. It does not look
// at other columns.
//
// Memory: the cells' bytes and 8 for each. Errors quote the offending cell: they are for whoever owns
// the file.
func ReadCells(path string, c CellsConfig) (*Cells, error) {
	f, err := openCSV(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseCells(f, path, c)
}

func parseCells(r io.Reader, name string, c CellsConfig) (*Cells, error) {
	p := &csvParser{name: name, config: CSVConfig{Unlabelled: true}}
	p.begin(r)
	header, err := p.record()
	if err == io.EOF {
		return nil, fmt.Errorf("dataset: %s: empty file, want a header line", name)
	}
	if err != nil {
		return nil, err
	}
	p.columns = slices.Clone(header)
	for i := range p.columns {
		p.columns[i] = strings.Clone(strings.TrimSpace(p.columns[i]))
	}
	out := &Cells{columns: map[string]*cellsColumn{}}
	readers, err := c.readers(p)
	if err != nil {
		return nil, err
	}
	for {
		cells, err := p.record()
		if err == io.EOF {
			break
		}
		if err == nil && len(cells) != len(p.columns) {
			err = fmt.Errorf("dataset: %s: line %d has %d cells, the header %d", name, p.last, len(cells), len(p.columns))
		}
		if err == nil && out.Rows*len(readers) >= MaxCSVCells {
			err = fmt.Errorf("dataset: %s: line %d: more than %d cells in all", name, p.last, MaxCSVCells)
		}
		for i := 0; i < len(readers) && err == nil; i++ {
			if readers[i].at < 0 {
				out.Odd++
				readers[i].ends = append(readers[i].ends, 0)
				continue
			}
			rule := readers[i].read(cells[readers[i].at])
			if rule != nil && c.Lenient {
				out.Odd++
				rule = readers[i].read("")
			}
			if rule != nil {
				err = fmt.Errorf("%s: %.40q %w", p.at(readers[i].at), cells[readers[i].at], rule)
			}
		}
		if err != nil {
			return nil, rowsError{err}
		}
		out.Rows++
	}
	if out.Rows == 0 {
		return nil, rowsError{fmt.Errorf("dataset: %s: no rows behind the header", name)}
	}
	for _, r := range readers {
		if r.at < 0 {
			out.Absent = append(out.Absent, r.name)
		}
		r.text = r.building.String()
		out.columns[r.name] = r
	}
	return out, nil
}

// readers returns what reads the columns of a file with a header.
func (c CellsConfig) readers(p *csvParser) (out []*cellsColumn, err error) {
	for name := range c.Missing.Missing {
		if name != Others && !slices.Contains(c.Columns, name) {
			return nil, fmt.Errorf("dataset: %s: missing cells of %q, which nothing is asked about", p.name, name)
		}
	}
	for _, name := range c.Columns {
		at := slices.Index(p.columns, name)
		if at < 0 && c.Lenient {
			out = append(out, &cellsColumn{at: at, name: name})
			continue
		}
		if at < 0 {
			return nil, p.noColumn("column", name)
		}
		if slices.Contains(p.columns[at+1:], name) && !c.Lenient {
			return nil, fmt.Errorf("dataset: %s: two columns are named %q, names must differ", p.name, name)
		}
		if slices.ContainsFunc(out, func(r *cellsColumn) bool { return r.name == name }) {
			continue
		}
		r := &cellsColumn{at: at, name: name, number: slices.Contains(c.Numbers, name)}
		out = append(out, r)
		f, ok := c.Missing.Missing[name]
		if !ok && r.number {
			f, ok = c.Missing.Missing[Others]
		}
		if r.fill, r.filled = f.text, ok; !ok {
			continue
		}
		if f.indicator {
			return nil, fmt.Errorf("dataset: %s: missing cells of %q have an indicator, which only a model has", p.name, name)
		}
		if _, rule := number(r.fill); r.number && rule != nil {
			return nil, fmt.Errorf("dataset: %s: missing cells of %q count as %q, which %w", p.name, name, r.fill, rule)
		}
	}
	return out, nil
}

// read appends a cell, or returns the rule that it breaks.
func (r *cellsColumn) read(cell string) error {
	if cell = strings.TrimSpace(cell); cell == "" {
		cell = r.fill
	}
	if _, rule := number(cell); r.number && cell != "" && rule != nil {
		if rule == errTooLarge { // for a float64
			rule = errors.New("is too large")
		}
		return rule
	}
	if !utf8.ValidString(cell) {
		return errors.New("must be UTF-8")
	}
	r.building.WriteString(cell)
	r.ends = append(r.ends, int64(r.building.Len()))
	return nil
}

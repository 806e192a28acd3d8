package dataset

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
)

// This file reads the records of a CSV file, for ReadCSV and ReadCells.

// openCSV opens a file, and refuses a folder.
func openCSV(path string) (*os.File, error) {
	f, err := durable.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err)
	}
	info, err := f.Stat()
	switch {
	case err != nil:
		err = fmt.Errorf("dataset: %w", err)
	case info.IsDir():
		err = fmt.Errorf("dataset: %s is a folder, want a CSV file", path)
	default:
		return f, nil
	}
	f.Close()
	return nil, err
}

// begin makes the reader of the file's records.
func (p *csvParser) begin(r io.Reader) {
	p.source.r = r
	buffered := bufio.NewReaderSize(&p.source, csvReadAhead)
	p.source.left = csvReadAhead
	if mark, err := buffered.Peek(3); err == nil && bytes.Equal(mark, []byte("\xef\xbb\xbf")) {
		buffered.Discard(3)
	}
	p.reader = csv.NewReader(buffered)
	p.reader.FieldsPerRecord = -1 // the parser reports ragged records itself
	p.reader.ReuseRecord = true
}

// csvReadAhead is the number of bytes that the buffer reads beyond a record.
const csvReadAhead = 1 << 16

// allowance is a reader that fails when a record exceeds its allowed bytes, and counts ends of lines.
type allowance struct {
	r     io.Reader
	left  int
	lines int
}

var errRecordTooLong = errors.New("record too long")

func (a *allowance) Read(b []byte) (int, error) {
	if a.left <= 0 {
		return 0, errRecordTooLong
	}
	n, err := a.r.Read(b[:min(len(b), a.left)])
	a.left -= n
	a.lines += bytes.Count(b[:n], []byte{'\n'})
	return n, err
}

// ahead is the record that was read ahead, to find blank lines in front of it: the csv package passes over them.
type ahead struct {
	cells []string // nil: none
	line  int      // on which it begins, or would begin where the file ends
	ended bool
	next  int  // the line behind the last record
	blank bool // whether the last record is a blank line
}

// record returns the next record. In a table of one column a blank line is a record too, with an empty cell.
func (p *csvParser) record() ([]string, error) {
	a := &p.ahead
	if a.cells == nil && !a.ended {
		cells, err := p.parsed()
		if err != nil && err != io.EOF {
			return nil, err
		}
		a.cells, a.ended = cells, err == io.EOF
		if a.line = p.source.lines + 1; !a.ended {
			a.line, _ = p.reader.FieldPos(0)
		}
	}
	if len(p.columns) == 1 && a.next < a.line { // no columns are known before the header
		p.last, a.blank = a.next, true
		a.next++
		return []string{""}, nil
	}
	if a.ended {
		return nil, io.EOF
	}
	cells := a.cells
	p.last, a.blank, a.cells = a.line, false, nil
	a.next = a.line + 1
	for _, cell := range cells {
		a.next += strings.Count(cell, "\n") // inside of quotes
	}
	return cells, nil
}

// parsed returns the next record that is no blank line.
func (p *csvParser) parsed() ([]string, error) {
	p.source.left = MaxCSVRecord + csvReadAhead
	cells, err := p.reader.Read()
	var parse *csv.ParseError
	switch {
	case err == nil, err == io.EOF:
		return cells, err
	case errors.Is(err, errRecordTooLong):
		return nil, fmt.Errorf("dataset: %s: record after line %d has more than %d bytes", p.name, p.last, MaxCSVRecord)
	case errors.As(err, &parse):
		return nil, fmt.Errorf("dataset: %s: line %d, byte %d: %v", p.name, parse.Line, parse.Column, parse.Err)
	}
	return nil, fmt.Errorf("dataset: %s: %w", p.name, err)
}

// at returns the place of cell j of the last record, for errors.
func (p *csvParser) at(j int) string {
	line := p.last
	if !p.ahead.blank {
		line, _ = p.reader.FieldPos(j)
	}
	return fmt.Sprintf("dataset: %s: line %d, column %q", p.name, line, p.columns[j])
}

// noColumn refuses a file without a column, and says why that may be.
func (p *csvParser) noColumn(what, name string) error {
	why := ""
	switch {
	case len(p.columns) > 1:
	case strings.ContainsAny(p.columns[0], ";\t"):
		why = "; commas separate cells, nothing else does"
	case strings.HasPrefix(p.columns[0], "\xff\xfe"), strings.HasPrefix(p.columns[0], "\xfe\xff"):
		why = "; the file seems to be UTF-16, want UTF-8"
	}
	return fmt.Errorf("dataset: %s: no %s %q among the columns %.200q%s", p.name, what, name, strings.Join(p.columns, ","), why)
}

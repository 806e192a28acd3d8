package measure

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Local is a CSV file on a client's machine, whose rows answer the questions of tasks. A task decides
// what is asked, never which file is read. Safe for concurrent use.
type Local struct {
	// Data is the file, which is read only when there is a question.
	Data string
	// Warn, if not nil, is called about data that do not fit a question, once for each task. It is
	// for the owner of the data, and must not leave the machine.
	Warn func(task [32]byte, what error)

	mu    sync.Mutex
	tasks map[[32]byte]*localRows
}

// localRows holds what a question looks at, once for all clients.
type localRows struct {
	encoder *statistic.Encoder
	cells   *dataset.Cells // nil: nothing fits
	err     error
}

// LocalClient is one client's row, with the methods that service/client requires of a source.
type LocalClient struct {
	Local *Local
	// Client numbers the row, from 0. A client without one reports the encoding of an empty row.
	Client int64
}

// Open returns a function that overwrites x with the row's encoding. Its error says that the task asks
// no question that rows answer, and depends on the task alone: a client whose data cannot be read
// reports like all others, as if its row were empty.
func (s LocalClient) Open(task wire.Task) (func(theta, x []float32), error) {
	of := s.Local.open(task)
	if of.err != nil {
		return nil, of.err
	}
	row := func(string) string { return "" }
	if c := of.cells; c != nil && s.Client >= 0 && s.Client < int64(c.Rows) {
		row = func(column string) string { return c.Cell(int(s.Client), column) }
	}
	return func(theta, x []float32) { of.encoder.Encode(row, theta, x) }, nil
}

// Close releases a task's data.
func (s LocalClient) Close(task wire.Task) {
	s.Local.mu.Lock()
	defer s.Local.mu.Unlock()
	delete(s.Local.tasks, wire.Digest(task))
}

func (l *Local) open(task wire.Task) *localRows {
	id := wire.Digest(task)
	l.mu.Lock()
	defer l.mu.Unlock()
	if out := l.tasks[id]; out != nil {
		return out
	}
	out := &localRows{}
	if out.encoder, out.err = client.NewEncoder(task); out.err == nil {
		var odd error
		if out.cells, odd = l.read(task); odd != nil && l.Warn != nil {
			l.Warn(id, odd)
		}
	}
	if l.tasks == nil {
		l.tasks = map[[32]byte]*localRows{}
	}
	l.tasks[id] = out
	return out
}

// read reads what a question looks at. odd says what does not fit.
func (l *Local) read(task wire.Task) (cells *dataset.Cells, odd error) {
	q, err := statistic.Parse(task.Config)
	if err != nil {
		return nil, err
	}
	if filepath.Ext(l.Data) != ".csv" {
		return nil, errors.New("measure: the data are no CSV file, whose rows could answer: the answer is that of an empty row")
	}
	c := cellsOf(q)
	c.Lenient = true
	if cells, err = dataset.ReadCells(l.Data, c); err != nil {
		return nil, fmt.Errorf("measure: the answer is that of an empty row: %w", err)
	}
	if len(cells.Absent) > 0 {
		odd = fmt.Errorf("measure: %s has no column %.200q, whose cells count as empty", l.Data, strings.Join(cells.Absent, ","))
	}
	if n := cells.Odd - cells.Rows*len(cells.Absent); n > 0 {
		odd = errors.Join(odd, fmt.Errorf("measure: %d of %d cells of %s do not fit, and count as empty", n, cells.Rows*(len(c.Columns)-len(cells.Absent)), l.Data))
	}
	return cells, odd
}

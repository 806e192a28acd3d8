package train

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Local is data on a client's machine, for tasks that a coordinator describes.
// The task says what the model is, never what is read. Safe for concurrent use.
type Local struct {
	// Warn is told of rows that do not fit a task, once for each task. It is for
	// whoever owns the data, and must not leave the machine. nil: nobody is told.
	Warn func(task [32]byte, what error)

	data    string
	workers int64

	mu    sync.Mutex
	tasks map[[32]byte]*learner
}

// NewLocal takes what Config.Data takes. Nothing is read before a task is there.
func NewLocal(data string) *Local { return &Local{data: data, tasks: map[[32]byte]*learner{}} }

// Whole is the source of one client that holds all of the training data: its
// gradient is the mean over them, and privacy is the client's. Where their kind is
// the task's and a row is not, as with a class that the task leaves out, that row's
// gradient is 0, and the client reports like all others: a task must not find out by
// who stays away.
func (l *Local) Whole() LocalClient { return LocalClient{l, -1} }

// Part is the source of client i, from 0, of the task's population that these data
// are dealt out to, as a simulation deals them. Rows that do not fit the task have
// their place and a gradient of 0, as with Whole.
func (l *Local) Part(i int64) LocalClient { return LocalClient{l, i} }

// LocalClient is one client's data, with the methods that service/client asks of a
// source.
type LocalClient struct {
	of     *Local
	client int64 // −1: all
}

// learner is a task on these data.
type learner struct {
	dealt   clients
	workers sync.Pool // of func(id int64, theta, grad []float32)
	err     error
	blank   bool  // none of its rows can be used
	clients int64 // that the task deals them out to
}

// Open returns what overwrites grad with the gradient at theta of a task.
func (s LocalClient) Open(task wire.Task) (func(theta, grad []float32), error) {
	l := s.of.learner(task, s.client < 0)
	switch {
	case l.err != nil:
		return nil, l.err
	case s.client >= l.clients:
		return nil, inputError("client %d of a population of %d", s.client, l.clients)
	case l.blank:
		return func(_, grad []float32) { clear(grad) }, nil
	}
	id := max(0, s.client)
	return func(theta, grad []float32) {
		w := l.workers.Get().(func(id int64, theta, grad []float32))
		w(id, theta, grad)
		l.workers.Put(w)
	}, nil
}

// Close lets go of a task's data.
func (s LocalClient) Close(task wire.Task) {
	s.of.mu.Lock()
	defer s.of.mu.Unlock()
	delete(s.of.tasks, taskKey(task, s.client < 0))
}

// taskKey names a task on one's own data or on a part of them: both may be asked for.
func taskKey(task wire.Task, whole bool) [32]byte {
	key := task.ID()
	if whole {
		key[0] ^= 1
	}
	return key
}

// learner loads the data for a task, once.
func (l *Local) learner(task wire.Task, whole bool) *learner {
	key := taskKey(task, whole)
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.tasks[key]
	if out == nil {
		out = &learner{}
		var odd error
		if odd, out.err = l.load(task, whole, out); errors.Is(out.err, dataset.ErrRows) {
			out.blank, odd, out.err = true, out.err, nil
		}
		if odd != nil && l.Warn != nil {
			l.Warn(task.ID(), odd)
		}
		out.workers.New = func() any { return out.dealt.Worker() }
		l.tasks[key] = out
	}
	return out
}

// load fills out. odd says what is wrong with rows that have no gradient.
func (l *Local) load(task wire.Task, whole bool, out *learner) (odd, err error) {
	d, err := readDocument(task.Config)
	if err != nil {
		return nil, err
	}
	c := d.config
	c.Data, c.Workers = l.data, l.workers
	if c.isCSV() != (len(d.columns) > 0) {
		return nil, inputError("data %s: the task's are of another kind", l.data)
	}
	if whole {
		c.Validation, c.Population, c.PerClient = 0, 1, 0
	}
	out.clients = c.Population
	t, odd, err := c.localTable(d, whole)
	if err != nil {
		return nil, err
	}
	if whole {
		c.PerClient = int64(t.Len())
	}
	m, err := c.newModel(t)
	if err != nil {
		return nil, inputError("%v", err)
	}
	if err := checkShape(m, task); err != nil {
		return nil, err
	}
	out.dealt, err = c.newClients(t, []model.Parametric{m})
	return odd, err
}

func checkShape(m model.Parametric, task wire.Task) error {
	if int64(m.Params()) != task.Mechanism.Dim {
		return inputError("the model has %d parameters, the task says %d", m.Params(), task.Mechanism.Dim)
	}
	return nil
}

// localTable is the training data, with the task's classes. Rows that do not fit
// are blank, and odd says so.
func (c Config) localTable(d document, whole bool) (t *dataset.Table, odd, err error) {
	columns, labels := []string(nil), d.classes
	if c.isCSV() {
		if t, columns, odd, err = c.localCSV(d, whole); err != nil {
			return nil, nil, err
		}
	} else {
		data, err := c.Load()
		if err != nil {
			return nil, nil, err
		}
		t, labels = data.Train, data.Classes
		if len(labels) > len(d.classes) && len(d.classes) > 0 { // some that the task leaves out
			labels = labels[:len(d.classes)]
			t, odd = leaveOut(t, len(d.classes))
		}
	}
	switch {
	case t.Dim != d.inputs || !slices.Equal(columns, d.columns):
		return nil, nil, inputError("data %s: its features are not the task's", c.Data)
	case t.Regression() != (d.classes == nil):
		return nil, nil, inputError("data %s: classes where the task has numbers, or numbers where it has classes", c.Data)
	case len(labels) > len(d.classes) || !slices.Equal(labels, d.classes[:len(labels)]):
		return nil, nil, inputError("data %s: its classes are not the task's", c.Data)
	}
	out := *t
	out.Classes = len(d.classes) // these data may not have the last ones
	return &out, odd, nil
}

func (c Config) localCSV(d document, whole bool) (t *dataset.Table, columns []string, odd, err error) {
	file, err := c.readCSV(d.classes, true)
	if err != nil {
		return nil, nil, nil, err
	}
	if file.Blanks > 0 {
		odd = fmt.Errorf("train: %d of %d rows of %s do not fit, and count as a gradient of 0: %w", file.Blanks, file.Table.Len(), c.Data, file.Why)
	}
	if whole { // nothing of it is for tests
		return file.Table, file.Columns, odd, nil
	}
	data, err := c.splitCSV(file)
	if err == nil && c.Model == pcaMLP {
		err = data.reduce(c)
	}
	if err != nil {
		return nil, nil, nil, err
	}
	return data.Train, data.columns, odd, nil
}

// leaveOut makes rows of other classes than the first ones blank.
func leaveOut(t *dataset.Table, classes int) (*dataset.Table, error) {
	out := *t
	out.Y, out.Blank = slices.Clone(t.Y), make([]bool, t.Len())
	n := 0
	for i, y := range out.Y {
		if int(y) >= classes {
			out.Y[i], out.Blank[i] = 0, true
			n++
		}
	}
	if n == 0 {
		return &out, nil
	}
	return &out, fmt.Errorf("train: %d of %d images are of classes that the task leaves out, and count as a gradient of 0", n, t.Len())
}

package train

import (
	"errors"
	"slices"
	"sync"

	"github.com/riffle-dp/riffle/client"
	"github.com/riffle-dp/riffle/dataset"
	"github.com/riffle-dp/riffle/model"
	"github.com/riffle-dp/riffle/wire"
)

// Local is data on a client's machine, for tasks that a coordinator describes.
// The task says what the model is, never what is read. Safe for concurrent use.
type Local struct {
	data    string
	workers int64

	mu    sync.Mutex
	tasks map[[32]byte]*learner
}

// NewLocal takes what Config.Data takes. Nothing is read before a task is there.
func NewLocal(data string) *Local { return &Local{data: data, tasks: map[[32]byte]*learner{}} }

// Whole is the source of one client that holds all of the training data: its
// gradient is the mean over them, and privacy is the client's. Where their kind is
// the task's and their rows are not, as with a class that the task leaves out, the
// client reports like all others and its gradient is 0: a task must not find out by
// who stays away.
func (l *Local) Whole() client.Source { return local{l, -1} }

// Part is the source of client i, from 0, of the task's population that these data
// are dealt out to, as a simulation deals them.
func (l *Local) Part(i int64) client.Source { return local{l, i} }

type local struct {
	of     *Local
	client int64 // −1: all
}

// learner is a task on these data.
type learner struct {
	clients clients
	workers sync.Pool // of func(id int64, theta, grad []float32)
	err     error
	blank   bool // its rows cannot be used
}

// Open implements client.Source.
func (s local) Open(task wire.Task) (client.Gradient, error) {
	l := s.of.learner(task, s.client < 0)
	switch {
	case l.err != nil:
		return nil, l.err
	case l.blank:
		return func(_, grad []float32) { clear(grad) }, nil
	case s.client >= l.clients.Size():
		return nil, inputError("client %d of a population of %d", s.client, l.clients.Size())
	}
	id := max(0, s.client)
	return func(theta, grad []float32) {
		w := l.workers.Get().(func(id int64, theta, grad []float32))
		w(id, theta, grad)
		l.workers.Put(w)
	}, nil
}

// learner loads the data for a task, once.
func (l *Local) learner(task wire.Task, whole bool) *learner {
	key := task.ID()
	if whole {
		key[0] ^= 1 // both may be asked for
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.tasks[key]
	if out == nil {
		out = &learner{}
		if out.clients, out.err = l.load(task, whole); whole && errors.Is(out.err, dataset.ErrRows) {
			out.blank, out.err = true, nil
		}
		out.workers.New = func() any { return out.clients.Worker() }
		l.tasks[key] = out
	}
	return out
}

func (l *Local) load(task wire.Task, whole bool) (clients, error) {
	d, err := readDocument(task.Config)
	if err != nil {
		return clients{}, err
	}
	c := d.config
	c.Data, c.Workers = l.data, l.workers
	if c.isCSV() != (len(d.columns) > 0) {
		return clients{}, inputError("data %s: the task's are of another kind", l.data)
	}
	if whole {
		c.Validation, c.Population, c.PerClient = 0, 1, 0
	}
	t, err := c.localTable(d, whole)
	if err != nil {
		return clients{}, err
	}
	if whole {
		c.PerClient = int64(t.Len())
	}
	m, err := c.newModel(t)
	if err != nil {
		return clients{}, inputError("%v", err)
	}
	if err := checkShape(m, task); err != nil {
		return clients{}, err
	}
	return c.newClients(t, []model.Parametric{m})
}

func checkShape(m model.Parametric, task wire.Task) error {
	if int64(m.Params()) != task.Mechanism.Dim {
		return inputError("the model has %d parameters, the task says %d", m.Params(), task.Mechanism.Dim)
	}
	return nil
}

// localTable is the training data, with the task's classes.
func (c Config) localTable(d document, whole bool) (*dataset.Table, error) {
	var t *dataset.Table
	columns, labels := []string(nil), d.classes
	if c.isCSV() && whole {
		file, err := c.readCSV(d.classes) // nothing of it is for tests
		if err != nil {
			return nil, err
		}
		t, columns = file.Table, file.Columns
	} else {
		data, err := c.Load()
		if err != nil {
			return nil, err
		}
		t, columns, labels = data.Train, data.columns, data.Classes
	}
	switch {
	case t.Dim != d.inputs || !slices.Equal(columns, d.columns):
		return nil, inputError("data %s: its features are not the task's", c.Data)
	case t.Regression() != (d.classes == nil):
		return nil, inputError("data %s: classes where the task has numbers, or numbers where it has classes", c.Data)
	case len(labels) > len(d.classes) || !slices.Equal(labels, d.classes[:len(labels)]):
		return nil, inputError("data %s: its classes are not the task's", c.Data)
	}
	out := *t
	out.Classes = len(d.classes) // these data may not have the last ones
	return &out, nil
}

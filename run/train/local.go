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

// Local is data on a client's machine, for tasks that a coordinator describes. A task decides
// the model, never which data are read. Safe for concurrent use.
type Local struct {
	// Warn, if not nil, is called about rows that do not fit a task, once for each task. It
	// is for the owner of the data, and must not leave the machine.
	Warn func(task [32]byte, what error)

	// Data is a data set as in Config.Data, which is read only when there is a task.
	Data string

	workers int64
	mu      sync.Mutex
	tasks   map[[32]byte]*learner
}

// LocalClient is one client's part of local data, with the methods that service/client requires
// of a source. Single rows may not fit a task, for instance because the task leaves out their
// class. They keep their place and have a gradient of 0, and their client reports like all
// others: a task must not learn anything from who stays away.
type LocalClient struct {
	Local *Local
	// Client numbers the client, from 0, in the task's population. The data are dealt out to
	// the population as a simulation deals them.
	Client int64
}

// learner holds a task's model, and the local data in the form that the task needs.
type learner struct {
	dealt   clients
	workers sync.Pool // pool of func(id int64, theta, grad []float32)
	err     error
	blank   bool  // whether none of its rows can be used
	clients int64 // number of clients among whom the task deals them out
}

// Open returns a function that overwrites grad with the gradient at theta for a task.
func (s LocalClient) Open(task wire.Task) (func(theta, grad []float32), error) {
	l := s.Local.learner(task)
	switch {
	case l.err != nil:
		return nil, l.err
	case s.Client < 0 || s.Client >= l.clients:
		return nil, inputError("client %d of a population of %d", s.Client, l.clients)
	case l.blank:
		return func(_, grad []float32) { clear(grad) }, nil
	}
	return func(theta, grad []float32) {
		w := l.workers.Get().(func(id int64, theta, grad []float32))
		w(s.Client, theta, grad)
		l.workers.Put(w)
	}, nil
}

// Close releases a task's data.
func (s LocalClient) Close(task wire.Task) {
	s.Local.mu.Lock()
	defer s.Local.mu.Unlock()
	delete(s.Local.tasks, wire.Digest(task))
}

// learner loads the data for a task, once.
func (l *Local) learner(task wire.Task) *learner {
	key := wire.Digest(task)
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.tasks[key]
	if out == nil {
		out = &learner{}
		var odd error
		if odd, out.err = l.load(task, out); errors.Is(out.err, dataset.ErrRows) {
			out.blank, odd, out.err = true, out.err, nil
		}
		if odd != nil && l.Warn != nil {
			l.Warn(key, odd)
		}
		out.workers.New = func() any { return out.dealt.worker() }
		if l.tasks == nil {
			l.tasks = map[[32]byte]*learner{}
		}
		l.tasks[key] = out
	}
	return out
}

// load fills in out. odd describes the rows whose gradient is 0 because they do not fit.
func (l *Local) load(task wire.Task, out *learner) (odd, err error) {
	d, err := readDocument(task.Config)
	if err != nil {
		return nil, err
	}
	if d.config.described() {
		return nil, inputError("a program computes the gradients of this task's model; data %s cannot", l.Data)
	}
	c := d.config
	c.Data, c.Workers = l.Data, l.workers
	if c.isCSV() != (len(d.columns) > 0) {
		return nil, inputError("data %s: the task's are of another kind", l.Data)
	}
	out.clients = c.Population
	t, odd, err := c.localTable(d)
	if err != nil {
		return nil, err
	}
	m, err := c.newModel(t)
	if err != nil {
		return nil, inputError("%v", err)
	}
	if err := checkShape(m, task); err != nil {
		return nil, err
	}
	if int64(c.width(m)) != task.Mechanism.Dim {
		return nil, inputError("a report has %d values, the task says %d", c.width(m), task.Mechanism.Dim)
	}
	if out.dealt, err = c.newClients(t, []*model.Model{m}); err == nil {
		out.dealt.weights, err = c.weights(d.classes)
	}
	return odd, err
}

func checkShape(m *model.Model, task wire.Task) error {
	if int64(m.Params) != task.Parameters() {
		return inputError("the model has %d parameters, the task says %d", m.Params, task.Parameters())
	}
	return nil
}

// localTable returns the training data, with the task's classes. Rows that do not fit are
// blank, and odd describes them.
func (c Config) localTable(d document) (t *dataset.Table, odd, err error) {
	columns, labels := []string(nil), d.classes
	if c.isCSV() {
		if t, columns, odd, err = c.localCSV(d); err != nil {
			return nil, nil, err
		}
	} else {
		data, err := c.localImages(d)
		if err != nil {
			return nil, nil, err
		}
		t, labels, odd = data.Train, data.Classes, data.odd
		if len(labels) > len(d.classes) && len(d.classes) > 0 { // the data have classes that the task leaves out
			labels = labels[:len(d.classes)]
			t, odd = leaveOut(t, len(d.classes))
		}
	}
	switch {
	case t.Dim != d.inputs || !slices.Equal(columns, d.columns):
		return nil, nil, inputError("data %s: its features are not the task's", c.Data)
	case (t.Targets == nil) != (d.classes != nil):
		return nil, nil, inputError("data %s: classes where the task has numbers, or numbers where it has classes", c.Data)
	case len(labels) > len(d.classes) || !slices.Equal(labels, d.classes[:len(labels)]):
		return nil, nil, inputError("data %s: its classes are not the task's", c.Data)
	}
	out := *t
	out.Classes = len(d.classes) // these data may lack the last classes
	return &out, odd, nil
}

// localImages reads images. Pictures have the task's classes, and those that do not fit are
// blank.
func (c Config) localImages(d document) (*Data, error) {
	if c.ImageSize == "" {
		return c.load()
	}
	data, err := c.prepareImages(d.classes, true)
	if err == nil && c.Model == pcaMLP {
		err = data.reduce(c)
	}
	return data, err
}

func (c Config) localCSV(d document) (t *dataset.Table, columns []string, odd, err error) {
	file, err := c.readTable(dataset.CSVConfig{Classes: d.classes, Features: d.columns, Blanks: true})
	if err != nil {
		return nil, nil, nil, err
	}
	if file.Blanks > 0 {
		odd = fmt.Errorf("train: %d of %d rows of %s do not fit, and count as a gradient of 0: %w", file.Blanks, file.Table.Len(), c.Data, file.Why)
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

// leaveOut blanks the rows of all classes but the first ones.
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

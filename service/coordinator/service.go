package coordinator

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Service is a coordinator. Its methods may be called by several goroutines.
type Service struct {
	config Config

	mu      sync.Mutex
	runners []*runner
	start   func(*runner) // nil before Run and after
	models  cache
	told    map[hash]endedRound // rounds of which clients may ask, by announcement; guarded by mu
	lists   cache               // lists of receipts

	counting chan struct{} // a slot for the ended task whose cost is being counted

	promises sync.Mutex // held while the file of promises is changed

	watchers watchers

	looking   sync.Mutex // held while an old model, which no open round has, is looked for
	lookAgain time.Time  // when the next search for an old model may start; guarded by looking
	old       oldModels  // old models that are being sent

	listing   sync.Mutex // as looking, lookAgain and old, for lists of receipts
	listAgain time.Time
	oldLists  oldModels
}

// New checks the configuration. Nothing is read or written before Run.
func New(c Config) (*Service, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	s := &Service{config: c, counting: make(chan struct{}, 1)}
	s.config.Tasks = nil // each job is its runner's, which drops it at its end
	for _, t := range c.Tasks {
		if err := s.add(t); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Service) add(t Job) error {
	r, err := s.newRunner(t)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.IndexFunc(s.runners, func(o *runner) bool { return o.id == r.id }); i < 0 {
		s.runners = append(s.runners, r)
	} else if old := s.runners[i]; old.t.Missing == nil {
		return fmt.Errorf("coordinator: task %q exists already", r.task.Name)
	} else { // the old runner's task could not run here
		s.runners[i] = r
		close(old.replaced)
	}
	defer s.watchers.notify()
	if s.start != nil {
		s.start(r)
	}
	return nil
}

// Add runs one more task, or one that could not be run before.
func (s *Service) Add(t Job) error { return s.add(t) }

// Run runs the tasks until ctx ends, and then returns nil; when all tasks have ended it
// still waits for ctx. An error says that what is stored cannot be trusted, and that
// nothing more was done with it.
func (s *Service) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	start := func(r *runner) {
		wg.Go(func() {
			if err := r.run(ctx); err != nil {
				cancel(err)
			}
		})
		if e := r.t.Beside; e != nil {
			wg.Go(func() { r.evaluateBeside(ctx, e) })
		}
	}
	s.mu.Lock()
	if s.start != nil {
		s.mu.Unlock()
		return errors.New("coordinator: already running")
	}
	s.start = start
	for _, r := range s.runners {
		start(r)
	}
	s.mu.Unlock()
	<-ctx.Done()
	s.mu.Lock()
	s.start = nil // no goroutine is added to wg from here on
	s.mu.Unlock()
	wg.Wait()
	if err := context.Cause(ctx); errors.Is(err, ErrFatal) {
		return err
	}
	return nil
}

func (s *Service) find(id [32]byte) *runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.runners {
		if r.id == id {
			return r
		}
	}
	return nil
}

func (s *Service) all() []*runner {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.runners)
}

// ErrNoTask is wrapped where there is no such task.
var ErrNoTask = errors.New("coordinator: no such task")

// ErrNotPaused is wrapped if somebody resumes a task that is not paused.
var ErrNotPaused = errors.New("coordinator: nothing to resume")

// List returns all tasks' status.
func (s *Service) List() []wire.Status {
	var out []wire.Status
	for _, r := range s.all() {
		if now := r.snapshot(); now.State != Removed {
			out = append(out, now)
		}
	}
	return out
}

// Show returns a task's status.
func (s *Service) Show(id [32]byte) (wire.Status, error) {
	if r := s.find(id); r != nil {
		if now := r.snapshot(); now.State != Removed {
			return now, nil
		}
	}
	return wire.Status{}, fmt.Errorf("%w: %x", ErrNoTask, id[:8])
}

// ErrNoModel is wrapped if a task has released no model yet.
var ErrNoModel = errors.New("coordinator: no model yet")

// Released returns the parameters that a task released last, and its status then.
func (s *Service) Released(ctx context.Context, id [32]byte) ([]float32, wire.Status, error) {
	now, err := s.Show(id)
	switch {
	case err != nil:
		return nil, now, err
	case now.Phase == "standby":
		return nil, now, fmt.Errorf("%w %q: ask that one", ErrStandby, now.Task.Name)
	case now.Released == 0:
		return nil, now, fmt.Errorf("%w: no round of task %q was released", ErrNoModel, now.Task.Name)
	case math.IsNaN(float64(now.Eps)):
		return nil, now, fmt.Errorf("coordinator: the charges of task %q are not known yet", now.Task.Name)
	}
	b, err := s.model(ctx, id, now.Model)
	if err != nil {
		return nil, now, err
	}
	params, err := decodeModel(b)
	return params, now, err
}

// model returns a model of a task.
func (s *Service) model(ctx context.Context, task [32]byte, digest hash) ([]byte, error) {
	if b := s.models.get(digest); b != nil {
		return b, nil
	}
	b, err := s.readModel(ctx, task, digest)
	if err == nil {
		s.models.put(digest, b)
	}
	return b, err
}

func (s *Service) readModel(ctx context.Context, task [32]byte, digest hash) ([]byte, error) {
	b, err := s.config.Store.GetObject(ctx, modelName(task, digest))
	if err != nil {
		return nil, err
	}
	if digestOf(b) != digest {
		return nil, fmt.Errorf("coordinator: model %s is not what its name says", hex.EncodeToString(digest[:]))
	}
	return b, nil
}

// cache holds the models that were read last. Those of open rounds are also held by their
// runners, so that clients get them whatever else is read.
type cache struct {
	mu     sync.Mutex
	names  []hash
	models map[hash][]byte
	bytes  int
}

// cached and cachedBytes are the most that is kept, but for a single model that is larger.
const (
	cached      = 8
	cachedBytes = 64 << 20
)

func (c *cache) get(d hash) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.models[d]
}

func (c *cache) put(d hash, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.models == nil {
		c.models = map[hash][]byte{}
	}
	if c.models[d] != nil {
		return
	}
	for len(c.names) == cached || len(c.names) > 0 && c.bytes+len(b) > cachedBytes {
		c.bytes -= len(c.models[c.names[0]])
		delete(c.models, c.names[0])
		c.names = c.names[1:]
	}
	c.names, c.models[d], c.bytes = append(c.names, d), b, c.bytes+len(b)
}

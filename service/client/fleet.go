package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Fleet is the enrolled clients of one process. Each client decides and reports for itself.
// Announcements and models are fetched once for all of them, and one file is the ledger of
// all.
type Fleet struct {
	config  JoinConfig
	web     *web
	book    *book
	counter *client.Counter
	members []*member
	compute chan struct{} // a slot for each report that is being made
	models  chan struct{} // a slot for each gradient that is computed ahead of its report
	flight  chan struct{} // a slot for each request that is under way

	enrolled enrolled
	heads    *heads
	widest   atomic.Int64           // size of the largest report of the rounds that were admitted
	passes   atomic.Pointer[passes] // for the relay; nil: none yet
	witness  witness

	cache        cache
	coordinators []string     // base addresses
	answered     atomic.Int32 // index of the coordinator that answered last

	checking    chan struct{} // a slot for the task that is being checked
	accepted    chan struct{} // a slot for each task that was agreed to and has not ended
	most        int           // see mostTasks; another number in tests only
	remembered  time.Duration // a day; another time in tests only
	refusedTime time.Duration // time spent on tasks that were refused since refusedFrom; guarded by checking
	refusedFrom time.Time

	// Randomness of coins and of reports: rng.Secure, except in tests.
	coin, noise func(id wire.ID, round int64) rng.Source
	beforeSend  func() // called before a report is sent; nil except in tests
	// planned is told the times of a gradient and its report; nil except in tests
	planned func(begun, by, from, at time.Time)

	mu    sync.Mutex
	count snapshot
}

// member is one client of the fleet.
type member struct {
	credential *Credential
	id         wire.ID
	source     Source

	mu        sync.Mutex // guards the fields below except asking
	history   *client.History
	gradients map[[32]byte]opened
	purses    map[[32]byte]*purse // its tokens, by task
	session   session
	over      *client.Refused // why it takes part no more; nil: it does

	asking    chan struct{} // a slot for the request for a session
	computing chan struct{} // a slot for the gradient that is computed: one that is late may still be
}

// opened is the data that a member's source gave for a task.
type opened struct {
	gradient Gradient
	err      error
}

// NewFleet opens the ledger and checks everything that can be checked without a request. The
// caller must close the fleet. The config's Credential is not used.
func NewFleet(c JoinConfig, members []Member) (f *Fleet, err error) {
	if c, err = c.check(); err != nil {
		return nil, err
	}
	if len(members) == 0 {
		return nil, errors.New("client: a fleet needs a member")
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Connections == 0 {
		c.Connections = 32
	}
	checking, accepted := make(chan struct{}, 1), make(chan struct{}, max(mostAccepted, len(c.Tasks)))
	secure := func(wire.ID, int64) rng.Source { return rng.Secure() }
	f = &Fleet{config: c, counter: &client.Counter{Accountant: c.Accountant}, coin: secure, noise: secure,
		enrolled: enrolled{turn: make(chan struct{}, 1)}, compute: make(chan struct{}, c.Workers), models: make(chan struct{}, c.Workers), flight: make(chan struct{}, c.Connections), checking: checking, accepted: accepted, most: mostTasks, remembered: day,
		count: snapshot{Reports: map[string]int64{}, Declined: map[client.Cause]int64{}, Refusals: map[wire.Reason]int64{}}}
	f.cache.base, f.cache.every, f.cache.held = c.Cache, directEvery, heldBack
	f.coordinators = append([]string{c.Coordinator}, c.Coordinators...)
	seen := map[wire.ID]bool{}
	for i, m := range members {
		if m.Credential == nil || m.Source == nil {
			return nil, fmt.Errorf("client: member %d needs a credential and a source", i)
		}
		id := wire.ClientID(m.Credential.Public())
		if seen[id] {
			return nil, fmt.Errorf("client: member %d has the credential of another member", i)
		}
		seen[id] = true
		f.members = append(f.members, &member{credential: m.Credential, id: id, source: m.Source, gradients: map[[32]byte]opened{}, purses: map[[32]byte]*purse{}, asking: make(chan struct{}, 1), computing: make(chan struct{}, 1)})
	}
	if f.book, err = openBook(c.Store); err != nil {
		return nil, err
	}
	if f.heads, err = openHeads(c.Store); err != nil {
		return nil, errors.Join(err, f.book.close())
	}
	for _, m := range f.members {
		m.history = f.book.history(m.id)
	}
	f.witness = witness{fleet: f, coin: coinOf, rounds: map[[32]byte]*watched{}}
	if f.web, err = newWeb(c); err != nil {
		return nil, errors.Join(err, f.book.close())
	}
	return f, nil
}

// Close unlocks the ledger. Run must have returned.
func (f *Fleet) Close() error {
	f.web.Close()
	return f.book.close()
}

// Snapshot returns what happened so far.
func (f *Fleet) Snapshot() snapshot {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.count
	s.Reports, s.Declined, s.Refusals = maps.Clone(s.Reports), maps.Clone(s.Declined), maps.Clone(s.Refusals)
	s.Compared.Last = slices.Clone(s.Compared.Last)
	return s
}

// Spent returns what a client's reports have cost, as its policy counts it: see client.Terms.Afford. It
// is what the ledger holds.
func (f *Fleet) Spent(id wire.ID) (client.Cost, error) {
	for _, m := range f.members {
		if m.id == id {
			m.mu.Lock()
			defer m.mu.Unlock()
			return f.config.Policy.Cost(m.history, f.counter)
		}
	}
	return client.Cost{}, errors.New("client: no client of this fleet")
}

// notify counts a notice and passes it on.
func (f *Fleet) notify(n Notice) {
	f.mu.Lock()
	if refused := (*client.Refused)(nil); errors.As(n.Err, &refused) {
		f.count.Declined[refused.Cause]++
	} else if n.What == Passed || n.What == NotDrawn || n.What == Sent || n.What == Lost {
		f.count.Reports[n.What]++
	}
	f.mu.Unlock()
	if f.config.Watch != nil {
		f.config.Watch(n)
	}
}

// Run takes part until ctx or the last of the tasks ends. First it sends what an earlier
// process sealed and charged but did not send. It returns nil when ctx ends; otherwise the
// refusals of tasks, joined, or the error of a ledger that cannot be written.
func (f *Fleet) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	defer wg.Wait()
	var mu sync.Mutex
	var failed []error
	fail := func(err error) {
		if err == nil || ctx.Err() != nil && !errors.Is(err, errStore) {
			return
		}
		mu.Lock()
		failed = append(failed, err)
		mu.Unlock()
		if errors.Is(err, errStore) {
			cancel(err) // no client may report without its ledger
		}
	}
	comparing, stop := context.WithCancel(ctx)
	defer stop()
	f.witness.start(comparing)
	wg.Go(func() { fail(f.resend(ctx)) })
	if len(f.config.Tasks) > 0 {
		for _, task := range f.config.Tasks {
			wg.Go(func() { fail(f.task(ctx, task, func() {})) })
		}
	} else {
		f.follow(ctx, func(task [32]byte, done, gone func()) {
			wg.Go(func() {
				defer gone()
				over := sync.OnceFunc(done)
				defer over()
				// A task that the policy refuses is not an error here: others may take part.
				if err := f.task(ctx, task, over); errors.Is(err, errStore) {
					fail(err)
				}
			})
		})
	}
	wg.Wait()
	f.witness.finish(stop)
	return errors.Join(failed...)
}

const (
	// taskListEvery is the mean time between two requests for the list of tasks: short enough
	// for rounds of 15 seconds.
	taskListEvery = 5 * time.Second
	// A process looks at mostTasks of a coordinator's tasks in all, and at tasksAtOnce
	// at a time: others wait until one has ended or was refused. It forgets a task that is listed
	// no more, not sooner than a day after it began to look at it: no coordinator makes it fetch
	// more than mostTasks in a day.
	mostTasks   = 1024
	tasksAtOnce = 32
	day         = 24 * time.Hour
	// If no tasks are named, a process holds data for mostAccepted tasks at a time: further
	// tasks that the policy allows wait until one of them has ended.
	mostAccepted = 8
)

// considered is a task that a process has looked at.
type considered struct {
	begun time.Time
	gone  atomic.Bool // nothing works for it any more
}

// follow starts the tasks that the coordinator lists, until ctx ends. run must return
// at once, and call done when no more rounds of the task are asked for. It must not wait
// for reports to be sent: follow may ask for the list once done was called, and the time
// of that request must not reveal who reports. It calls gone when nothing works for the task
// any more.
func (f *Fleet) follow(ctx context.Context, run func(task [32]byte, done, gone func())) {
	known := map[[32]byte]*considered{}
	slots := make(chan struct{}, tasksAtOnce)
	full := false
	retry := newBackoff()
	for ctx.Err() == nil {
		tasks, err := f.fetchTasks(ctx)
		if err != nil {
			f.notify(Notice{What: Retrying, Err: err})
			if retry.wait(ctx) != nil {
				return
			}
			continue
		}
		retry.reset()
		listed := sync.OnceValue(func() map[[32]byte]bool {
			all := map[[32]byte]bool{}
			for _, task := range tasks {
				all[task] = true
			}
			return all
		})
		maps.DeleteFunc(known, func(task [32]byte, c *considered) bool {
			return time.Since(c.begun) >= f.remembered && c.gone.Load() && !listed()[task]
		})
		for _, task := range tasks {
			if known[task] != nil {
				continue
			}
			if len(known) >= f.most {
				if !full {
					f.notify(Notice{What: Declined, Task: task, Err: client.Refuse(client.CausePolicy, "%d tasks were considered", f.most).In(task, 0)})
				}
				full = true
				break
			}
			full = false
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			c := &considered{begun: time.Now()}
			known[task] = c
			run(task, func() { <-slots }, func() { c.gone.Store(true) })
		}
		if sleep(ctx, taskListEvery/2+upTo(retry.src, taskListEvery)) != nil {
			return
		}
	}
}

// task takes part in one task until it ends. It calls over once no more rounds of it
// are asked for.
func (f *Fleet) task(ctx context.Context, id [32]byte, over func()) error {
	t, err := f.agree(ctx, id)
	if err != nil {
		if ctx.Err() == nil {
			f.notify(Notice{What: Declined, Task: id, Err: err})
		}
		return err
	}
	select {
	case f.accepted <- struct{}{}:
		defer func() { <-f.accepted }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer f.closeAll(t)
	if err := f.fetchTokens(ctx, t); err != nil {
		return err
	}
	if f.config.Prepare {
		f.prepare(ctx, t)
	}
	if err := f.openAll(ctx, t); err != nil {
		return err
	}
	f.notify(Notice{What: Agreed, Task: id})
	r := rounds{fleet: f, terms: t, over: over}
	return r.run(ctx)
}

// agree fetches a task, retrying until it is there, and checks it.
func (f *Fleet) agree(ctx context.Context, id [32]byte) (*client.Terms, error) {
	retry := newBackoff()
	for {
		task, err := f.fetchTask(ctx, id)
		if err == nil {
			return f.consider(ctx, task)
		}
		if refused := (*client.Refused)(nil); errors.As(err, &refused) {
			return nil, refused.In(id, 0)
		}
		f.notify(Notice{What: Retrying, Task: id, Err: err})
		if err := retry.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// A process may spend at most refusedWork times MaxWork in a day on checking tasks that it then
// refuses.
const refusedWork = 10

// consider checks a task against the policy, one task at a time. Once tasks that were
// refused have cost too much work, it refuses all others unseen.
func (f *Fleet) consider(ctx context.Context, task wire.Task) (*client.Terms, error) {
	id := wire.Digest(task)
	// The cheapest check comes first.
	if most := f.config.Policy.MaxTasks; !slices.ContainsFunc(f.members, func(m *member) bool { return m.takes(id, most) }) {
		return nil, client.Refuse(client.CauseBudget, "no client may begin another task (max-tasks: %d)", most).In(id, 0)
	}
	select {
	case f.checking <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-f.checking }()
	if time.Since(f.refusedFrom) >= f.remembered {
		f.refusedFrom, f.refusedTime = time.Now(), 0
	}
	if most := refusedWork * f.config.Policy.MaxWork; f.refusedTime > most {
		return nil, client.Refuse(client.CausePolicy, "to refuse tasks has taken more than %v already", most).In(id, 0)
	}
	begun := time.Now()
	t, err := f.config.Policy.Agree(ctx, task)
	if err == nil {
		err = t.Affordable(messageTime(ctx, t))
	}
	if err != nil {
		f.refusedTime += time.Since(begun)
		return nil, err
	}
	return t, nil
}

// takes says whether a member could still take part in a task.
func (m *member) takes(task [32]byte, most int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.history.Of(task) != nil || int64(len(m.history.Tasks)) < most
}

// openAll has every client prepare its data before the first round, for that may take
// long. It is an error if no client has data for the task.
func (f *Fleet) openAll(ctx context.Context, t *client.Terms) error {
	var last *client.Refused
	some := false
	for _, m := range f.members {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if _, err := m.open(t); err != nil {
			last = client.Refuse(client.CauseSource, "%v", err).In(t.ID, 0)
			f.notify(Notice{What: Declined, Task: t.ID, Client: m.id, Err: last})
			continue
		}
		some = true
	}
	if !some {
		return last
	}
	return nil
}

// closeAll releases the clients' data for a task that has ended.
func (f *Fleet) closeAll(t *client.Terms) {
	for _, m := range f.members {
		m.mu.Lock()
		delete(m.gradients, t.ID)
		delete(m.purses, t.ID)
		m.mu.Unlock()
		if s, ok := m.source.(closer); ok {
			s.Close(t.Task)
		}
	}
}

// open returns a member's gradient for a task; nil if its source is asked for it.
func (m *member) open(t *client.Terms) (Gradient, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	o, ok := m.gradients[t.ID]
	if !ok {
		o.gradient, o.err = m.source.Open(t.Task)
		if _, asks := m.source.(asker); o.err == nil && o.gradient == nil && !asks {
			o.err = errors.New("client: the source gave no gradient")
		}
		m.gradients[t.ID] = o
	}
	return o.gradient, o.err
}

package dashboard

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/report"
)

// State says how a task stands.
type State string

// States of a task.
const (
	Running     State = "running"
	Done        State = "done"        // all rounds were run
	Stopped     State = "stopped"     // by the operator, or at its budget
	Refused     State = "refused"     // the ledger takes no further round
	Paused      State = "paused"      // until the operator resumes it
	Interrupted State = "interrupted" // saved, and can be continued
	Failed      State = "failed"
)

// Task is what the page shows of a task now. Floats may be NaN: not known.
type Task struct {
	ID    string // Required; a-z, 0-9 and -.
	Name  string
	State State
	Why   string // of an end, or of trouble
	Phase string // what is being done

	Round    int64   // the last that ended
	Rounds   int64   // at most
	Opened   int64   // reports that were summed of the open round
	Expected float64 // reports of a round; 0: not known

	Eps     float64 // spent up to and with EpsAt, nats; +Inf: no privacy
	EpsAt   int64   // the round that Eps is of: counting may take longer than a round
	Planned float64 // what all rounds together will cost
	Budget  float64 // 0 or +Inf: none
	Delta   float64
	Method  string // of the bound
	Source  string // its theorem
	Charge  string // what the last round was charged as
	Charged int64  // rounds

	Accuracy  float64
	Loss      float64
	Evaluated string // on what, such as "10,000 test examples"
	EvalEvery int64  // rounds between evaluations; 0: after each that is released
	Numbers   bool   // targets are real numbers: there are no classes and no accuracy
	Baseline  string // what the best constant reaches there, such as "11.35 %"; "": not known
	Warning   string // says that the model is no better than that; "": it is, or was not evaluated
	Blind     string // why this process does not evaluate the model; "": it does

	// Examined is what the model after round ExaminedAt makes of the evaluation
	// examples; nil: not known.
	Examined   *report.Examined
	ExaminedAt int64

	Counts
	Stages  []Stage
	Seconds float64 // since the start

	Facts   []Fact
	Privacy report.Privacy
	Report  bool   // a report page can be had
	Dir     string // where a run leaves its files
}

// Counts are totals over a task's rounds.
type Counts struct {
	Released int64 // rounds whose step was taken
	Void     int64 // rounds with too few reports
	Failed   int64 // rounds that were charged and gave no step
	Reports  int64 // that are in the model
	Rejected map[string]int64
}

// Stage is a part of the work: how long it took, and how much went through.
type Stage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Items   int64   `json:"items"` // 0: not counted
	Unit    string  `json:"unit"`
}

// Fact is a line of a task's description.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Board holds what the page shows. A run or a coordinator writes to it and never
// waits for who reads. Safe for concurrent use.
type Board struct {
	mu       sync.Mutex
	version  uint64
	tasks    []*entry
	removed  []removal
	watchers map[*watcher]struct{}
}

// removal is of a task that was on the board.
type removal struct {
	id      string
	version uint64
}

type entry struct {
	task     Task
	version  uint64
	measures measures
	rounds   rounds
}

// watcher is a page that is kept up to date.
type watcher struct {
	changed chan struct{} // has room for one: a page that is slow misses nothing but steps
	told    uint64        // version that it has
}

// NewBoard returns an empty board.
func NewBoard() *Board { return &Board{watchers: map[*watcher]struct{}{}} }

// Set replaces what is known of a task, or adds one. The board keeps t's slices
// and maps.
func (b *Board) Set(t Task) {
	b.write(t.ID, func(e *entry) { e.task = t })
}

// Ended adds rounds to a task's history; those that are in it already are ignored.
func (b *Board) Ended(id string, r Round) {
	b.write(id, func(e *entry) { e.rounds.add(r) })
}

// Measured adds a measure to a task's history.
func (b *Board) Measured(id string, m Measure) {
	b.write(id, func(e *entry) { e.measures.add(m) })
}

// Measures returns what is kept of a task's measures.
func (b *Board) Measures(id string) []Measure {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.find(id); e != nil {
		return slices.Clone(e.measures.list)
	}
	return nil
}

// Remove takes a task off the board, and off the pages that show it.
func (b *Board) Remove(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.find(id)
	if e == nil {
		return
	}
	b.tasks = slices.DeleteFunc(b.tasks, func(o *entry) bool { return o == e })
	b.version++
	b.removed = append(b.removed, removal{id, b.version})
	b.wake()
}

func (b *Board) write(id string, f func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.find(id)
	if e == nil {
		e = &entry{task: Task{ID: id, State: Running, Eps: math.NaN(), Planned: math.NaN(), Accuracy: math.NaN(), Loss: math.NaN()}}
		b.tasks = append(b.tasks, e)
	}
	f(e)
	b.version++
	e.version = b.version
	b.wake()
}

// wake tells the pages that there is news.
func (b *Board) wake() {
	for w := range b.watchers {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (b *Board) find(id string) *entry {
	for _, e := range b.tasks {
		if e.task.ID == id {
			return e
		}
	}
	return nil
}

// Tasks returns all tasks.
func (b *Board) Tasks() []Task {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []Task
	for _, e := range b.tasks {
		out = append(out, e.task)
	}
	return out
}

// pick returns the task to show to who names none: the newest, which is the last
// that was set first; "" if there is none.
func (b *Board) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.tasks); n > 0 {
		return b.tasks[n-1].task.ID
	}
	return ""
}

func (b *Board) task(id string) (Task, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.find(id); e != nil {
		return e.task, true
	}
	return Task{}, false
}

func (b *Board) history(id string, s seen) (columns, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.find(id)
	if e == nil {
		return columns{}, false
	}
	c, _ := e.columns(s)
	return c, true
}

func (e *entry) columns(s seen) (c columns, now seen) {
	c.Task = e.task.ID
	c.Measures, now.measures = e.measures.columns(s.measures)
	c.Rounds, now.rounds = e.rounds.columns(s.rounds)
	return c, now
}

func (b *Board) watch() *watcher {
	w := &watcher{changed: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers[w] = struct{}{}
	return w
}

func (b *Board) leave(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, w)
}

// gone returns the tasks that were removed since version.
func (b *Board) gone(version uint64) (ids []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range b.removed {
		if r.version > version {
			ids = append(ids, r.id)
		}
	}
	return ids
}

// news returns what has changed since version: the tasks, and how the history of
// one of them goes on. Its history is empty if that has not.
func (b *Board) news(version uint64, id string, s seen) (now uint64, tasks []Task, history *columns, next seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.tasks {
		if e.version <= version {
			continue
		}
		tasks = append(tasks, e.task)
		if e.task.ID == id {
			c, n := e.columns(s)
			history, s = &c, n
		}
	}
	return b.version, tasks, history, s
}

// told notes that a page has everything up to a version.
func (b *Board) told(w *watcher, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.told = version
}

// Drain waits until every open page has been sent what is known, or ctx ends.
func (b *Board) Drain(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		behind := false
		for w := range b.watchers {
			behind = behind || w.told < b.version
		}
		b.mu.Unlock()
		if !behind {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// taskView is a task as pages get it.
type taskView struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     State     `json:"state"`
	Why       string    `json:"why,omitempty"`
	Phase     string    `json:"phase,omitempty"`
	Round     int64     `json:"round"`
	Rounds    int64     `json:"rounds"`
	Opened    int64     `json:"opened"`
	Expected  dp.Number `json:"expected"`
	Eps       dp.Number `json:"epsilon"`
	EpsAt     int64     `json:"epsilon_round"`
	Planned   dp.Number `json:"planned"`
	Budget    dp.Number `json:"budget"`
	Delta     dp.Number `json:"delta"`
	Method    string    `json:"method,omitempty"`
	Source    string    `json:"source,omitempty"`
	Charge    string    `json:"charge,omitempty"`
	Charged   int64     `json:"charged"`
	Accuracy  dp.Number `json:"accuracy"`
	Loss      dp.Number `json:"loss"`
	Evaluated string    `json:"evaluated,omitempty"`
	EvalEvery int64     `json:"eval_every"`
	Numbers   bool      `json:"numbers"`
	Baseline  string    `json:"baseline,omitempty"`
	Warning   string    `json:"warning,omitempty"`
	Blind     string    `json:"blind,omitempty"`
	Examined  int64     `json:"examined"` // the round; -1: nothing to show
	Released  int64     `json:"released"`
	Void      int64     `json:"void"`
	Failed    int64     `json:"failed"`
	Reports   int64     `json:"reports"`
	Rejected  []reason  `json:"rejected"`
	Stages    []Stage   `json:"stages"`
	Seconds   rounded   `json:"seconds"`
	Facts     []Fact    `json:"facts"`
	Report    bool      `json:"report"`
	Dir       string    `json:"dir,omitempty"`
}

type reason struct {
	Reason string `json:"reason"`
	Count  int64  `json:"count"`
}

func (t Task) view() taskView {
	v := taskView{ID: t.ID, Name: t.Name, State: t.State, Why: t.Why, Phase: t.Phase, Round: t.Round, Rounds: t.Rounds, Opened: t.Opened,
		Expected: dp.Number(t.Expected), Eps: dp.Number(t.Eps), EpsAt: t.EpsAt, Planned: dp.Number(t.Planned), Budget: dp.Number(t.Budget), Delta: dp.Number(t.Delta),
		Method: t.Method, Source: t.Source, Charge: t.Charge, Charged: t.Charged, Accuracy: dp.Number(t.Accuracy), Loss: dp.Number(t.Loss),
		Evaluated: t.Evaluated, EvalEvery: t.EvalEvery, Numbers: t.Numbers, Baseline: t.Baseline, Warning: t.Warning, Blind: t.Blind, Examined: -1, Released: t.Released, Void: t.Void, Failed: t.Failed, Reports: t.Reports, Rejected: []reason{},
		Stages: append([]Stage{}, t.Stages...), Seconds: rounded(t.Seconds), Facts: append([]Fact{}, t.Facts...), Report: t.Report, Dir: t.Dir}
	if t.Examined != nil {
		v.Examined = t.ExaminedAt
	}
	for _, name := range slices.Sorted(maps.Keys(t.Rejected)) {
		v.Rejected = append(v.Rejected, reason{name, t.Rejected[name]})
	}
	return v
}

// Grouped writes an integer with its thousands apart, as the page does.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// rounded is a number to six digits, to the nearest: of measurements, not of bounds.
type rounded float64

func (n rounded) MarshalJSON() ([]byte, error) {
	x, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'g', 6, 64), 64)
	if err != nil {
		return nil, err
	}
	return dp.Number(x).MarshalJSON()
}

package dashboard

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// States of a task.
const (
	Running     = "running"
	Done        = "done"        // all rounds have ended
	Stopped     = "stopped"     // by the operator, or at the end of its budget
	Refused     = "refused"     // the ledger takes no further round
	Paused      = "paused"      // until the operator resumes the task
	Interrupted = "interrupted" // saved; can be continued
	Failed      = "failed"
)

// View is a task as the page shows it now, in the form that pages get: its status, and what
// this process adds. A Number that is NaN is not known.
type View struct {
	ID string `json:"id"` // Required; a-z, 0-9 and -.
	wire.Status

	Opened   int64     `json:"opened"`           // reports of the open round summed so far
	Expected dp.Number `json:"expected"`         // expected reports of a round; 0: not known
	EpsAt    int64     `json:"epsilon_round"`    // the round for which Eps was computed; computing may take longer than a round
	Planned  dp.Number `json:"planned"`          // ε of all planned rounds together
	Budget   dp.Number `json:"budget"`           // 0 or +Inf: none
	Charge   string    `json:"charge,omitempty"` // the event of the last charge, in words

	Accuracy  dp.Number `json:"accuracy"`
	Loss      dp.Number `json:"loss"`
	Evaluated string    `json:"evaluated,omitempty"` // the evaluation data, such as "10,000 test examples"
	EvalEvery int64     `json:"eval_every"`          // rounds between evaluations; 0: every released round is evaluated
	Numbers   bool      `json:"numbers"`             // targets are real numbers: there are no classes and no accuracy
	Baseline  string    `json:"baseline,omitempty"`  // the best constant's result on the evaluation data, such as "11.35 %"; "": not known
	Warning   string    `json:"warning,omitempty"`   // a warning that the model is no better than the baseline; "": it is better, or was not evaluated
	Blind     string    `json:"blind,omitempty"`     // why this process does not evaluate the model; "": it does

	// Examined is the result of the model after round ExaminedAt on the evaluation examples;
	// nil: not known. Pages request it, and get ExaminedAt = -1 if there is none.
	Examined   *report.Examined `json:"-"`
	ExaminedAt int64            `json:"examined"`

	// Question is what the task asks, such as "histogram of age"; "": it trains a model.
	Question string  `json:"question,omitempty"`
	Answer   *Answer `json:"answer,omitempty"` // nil: not released yet

	Stages  []Stage `json:"stages"`
	Seconds float64 `json:"-"` // since the start

	Facts   []Fact         `json:"facts"`
	Privacy report.Privacy `json:"-"`
	Report  bool           `json:"report"`        // whether there is a report page
	Dir     string         `json:"dir,omitempty"` // directory of the run's files
}

// MarshalJSON writes empty lists as [], not as null, for the page's script. It adds what the
// page shows of the task's description, and lists refusals sorted by reason.
func (v View) MarshalJSON() ([]byte, error) {
	if v.Examined == nil {
		v.ExaminedAt = -1
	}
	if v.Stages == nil {
		v.Stages = []Stage{}
	}
	if v.Facts == nil {
		v.Facts = []Fact{}
	}
	v.Shortened, v.FailedBy = 0, nil // not for the page
	type refused struct {
		Reason wire.Reason `json:"reason"`
		Count  int64       `json:"count"`
	}
	rejected := []refused{}
	for _, name := range slices.Sorted(maps.Keys(v.Rejected)) {
		rejected = append(rejected, refused{name, v.Rejected[name]})
	}
	type plain View
	return json.Marshal(struct {
		Name     string    `json:"name"`
		Delta    dp.Number `json:"delta"`
		Seconds  rounded   `json:"seconds"`
		Rejected []refused `json:"rejected"`
		plain
	}{v.Task.Name, dp.Number(v.Task.Delta), rounded(v.Seconds), rejected, plain(v)})
}

// Answer is the answer to a task's question.
type Answer struct {
	What string   `json:"what"`           // what the values are, such as "clients"
	Bars bool     `json:"bars"`           // whether the figures are counts that are drawn as bars
	Note string   `json:"note,omitempty"` // what else is to be said
	Rows []Figure `json:"rows"`
}

// Figure is a number of an answer with its interval, and the interval that holds for all numbers
// together.
type Figure struct {
	Name      string    `json:"name"`
	Value     dp.Number `json:"value"`
	Low       dp.Number `json:"low"`
	High      dp.Number `json:"high"`
	JointLow  dp.Number `json:"joint_low"`
	JointHigh dp.Number `json:"joint_high"`
}

// Stage is a part of the work, with its duration and the number of items that went through
// it.
type Stage struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
	Items   int64   `json:"items"` // 0: not counted
	Unit    string  `json:"unit"`
}

// Fact is one line of a task's description.
type Fact struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Board holds what the page shows; the zero Board is empty. A run or a coordinator writes to it and never waits for
// readers. Safe for concurrent use.
type Board struct {
	mu       sync.Mutex
	version  uint64
	tasks    []*entry
	removed  []removal
	watchers []*watcher
}

// removal records a task that was on the board.
type removal struct {
	id      string
	version uint64
}

type entry struct {
	task     View
	version  uint64
	measures measures
	rounds   rounds
}

// watcher is an open page that gets news.
type watcher struct {
	changed chan struct{} // holds one element: a slow page misses intermediate states only
	told    uint64        // the version that the page has
}

// Set replaces what is known about a task, or adds a task. The board keeps v's slices and
// maps.
func (b *Board) Set(v View) {
	b.write(v.ID, func(e *entry) { e.task = v })
}

// Ended adds rounds to a task's history. It ignores rounds that are there already.
func (b *Board) Ended(id string, r Round) {
	b.write(id, func(e *entry) { e.rounds.add(r) })
}

// Measured adds a measure to a task's history.
func (b *Board) Measured(id string, m Measure) {
	b.write(id, func(e *entry) { e.measures.add(m) })
}

// Measures returns the stored measures of a task.
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

// unknown is a Number that is not known.
var unknown = dp.Number(math.NaN())

func (b *Board) write(id string, f func(*entry)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.find(id)
	if e == nil {
		e = &entry{task: View{ID: id, Status: wire.Status{State: Running, Eps: unknown}, Planned: unknown, Accuracy: unknown, Loss: unknown}}
		b.tasks = append(b.tasks, e)
	}
	f(e)
	b.version++
	e.version = b.version
	b.wake()
}

// wake tells the open pages that there is news.
func (b *Board) wake() {
	for _, w := range b.watchers {
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

// list returns all tasks.
func (b *Board) list() []View {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []View
	for _, e := range b.tasks {
		out = append(out, e.task)
	}
	return out
}

// pick returns the task for a page that names none: the one that was first set most recently;
// "" if there is no task.
func (b *Board) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.tasks); n > 0 {
		return b.tasks[n-1].task.ID
	}
	return ""
}

func (b *Board) task(id string) (View, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.find(id); e != nil {
		return e.task, true
	}
	return View{}, false
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
	b.watchers = append(b.watchers, w)
	return w
}

func (b *Board) leave(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.watchers = slices.DeleteFunc(b.watchers, func(other *watcher) bool { return other == w })
}

// gone returns the tasks that were removed after version.
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

// news returns the tasks that changed after version, and what to add to the history of one of
// them. The history is empty if it has not changed.
func (b *Board) news(version uint64, id string, s seen) (now uint64, tasks []View, history *columns, next seen) {
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

// told records that a page has everything up to a version.
func (b *Board) told(w *watcher, version uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w.told = version
}

// Drain waits until every open page has been sent everything known, or ctx ends.
func (b *Board) Drain(ctx context.Context) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b.mu.Lock()
		behind := false
		for _, w := range b.watchers {
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

// Grouped writes an integer with its thousands apart, as the page does.
func Grouped(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// rounded is a number that is written rounded to the nearest with six digits. It serves measurements, not
// bounds.
type rounded float64

func (n rounded) MarshalJSON() ([]byte, error) {
	x, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'g', 6, 64), 64)
	if err != nil {
		return nil, err
	}
	return dp.Number(x).MarshalJSON()
}

package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// Ledger is a ledger's charges, for people to read.
type Ledger struct {
	Entries int64
	Digest  string  // digest of the last entry; "": there is no chain
	Eps     float64 // ε of all tasks together; NaN: not known
	Budget  float64 // 0 or +Inf: none
	Delta   float64
	Method  string
	Tasks   []LedgerTask
	lines   []Charges // oldest first
	omitted int64     // number of entries before lines
}

// LedgerTask has the charges of one task by itself.
type LedgerTask struct {
	ID, Name string
	Entries  int64
	Round    int64 // the last charged round
	Eps      float64
	Delta    float64
}

// Charges is one charge, or several neighbours with the same event.
type Charges struct {
	First int64  `json:"first"` // number of the first entry
	Last  int64  `json:"last"`
	Task  string `json:"task"` // the task's name
	From  int64  `json:"from"` // first and last round
	To    int64  `json:"to"`
	Event string `json:"event"`
}

// maxLines is the number of lines of a ledger that a page shows.
const maxLines = 200

// Charge adds the next entry.
func (l *Ledger) Charge(task string, round int64, event string) {
	l.Entries++
	if n := len(l.lines); n > 0 {
		if last := &l.lines[n-1]; last.Task == task && last.Event == event && last.To < round {
			last.Last, last.To = l.Entries, round
			return
		}
	}
	l.lines = append(l.lines, Charges{First: l.Entries, Last: l.Entries, Task: task, From: round, To: round, Event: event})
	if len(l.lines) > 2*maxLines {
		l.lines = append([]Charges(nil), l.lines[len(l.lines)-maxLines:]...)
		l.omitted = l.lines[0].First - 1
	}
}

// Clone returns a copy that shares nothing with l.
func (l *Ledger) Clone() Ledger {
	out := *l
	out.Tasks = append([]LedgerTask(nil), l.Tasks...)
	out.lines = append([]Charges(nil), l.lines...)
	return out
}

type ledgerView struct {
	Entries int64            `json:"entries"`
	Digest  string           `json:"digest,omitempty"`
	Eps     dp.Number        `json:"epsilon"`
	Budget  dp.Number        `json:"budget"`
	Delta   dp.Number        `json:"delta"`
	Method  string           `json:"method,omitempty"`
	Tasks   []ledgerTaskView `json:"tasks"`
	Lines   []Charges        `json:"lines"` // newest first
	Omitted int64            `json:"omitted"`
}

type ledgerTaskView struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Entries int64     `json:"entries"`
	Round   int64     `json:"round"`
	Eps     dp.Number `json:"epsilon"`
	Delta   dp.Number `json:"delta"`
}

func (l Ledger) view() ledgerView {
	v := ledgerView{Entries: l.Entries, Digest: l.Digest, Eps: dp.Number(l.Eps), Budget: dp.Number(l.Budget), Delta: dp.Number(l.Delta), Method: l.Method,
		Tasks: []ledgerTaskView{}, Lines: []Charges{}, Omitted: l.omitted}
	for _, t := range l.Tasks {
		v.Tasks = append(v.Tasks, ledgerTaskView{ID: t.ID, Name: t.Name, Entries: t.Entries, Round: t.Round, Eps: dp.Number(t.Eps), Delta: dp.Number(t.Delta)})
	}
	for i := len(l.lines) - 1; i >= 0 && len(v.Lines) < maxLines; i-- {
		v.Lines = append(v.Lines, l.lines[i])
	}
	if n := len(v.Lines); n > 0 {
		v.Omitted = v.Lines[n-1].First - 1
	}
	return v
}

// cachedLedger spares the ledger's owner when many pages ask at once.
type cachedLedger struct {
	get func(context.Context) (Ledger, error)

	mu   sync.Mutex
	at   time.Time
	have ledgerView
}

const ledgerAge = time.Second

func (c *cachedLedger) view(ctx context.Context) (ledgerView, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < ledgerAge {
		return c.have, nil
	}
	l, err := c.get(ctx)
	if err != nil {
		return ledgerView{}, err
	}
	c.at, c.have = time.Now(), l.view()
	return c.have, nil
}

func (d *Dashboard) serveLedger(w http.ResponseWriter, r *http.Request) {
	if d.config.Ledger == nil {
		refuse(w, http.StatusNotFound, "there is no ledger here")
		return
	}
	v, err := d.ledger.view(r.Context())
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "the ledger cannot be read now")
		return
	}
	answer(w, v)
}

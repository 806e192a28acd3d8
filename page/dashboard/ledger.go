package dashboard

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
)

// Ledger is a ledger's charges, for people to read, in the form that pages get.
type Ledger struct {
	Entries int64        `json:"entries"`
	Digest  string       `json:"digest,omitempty"` // digest of the last entry; "": there is no chain
	Eps     dp.Number    `json:"epsilon"`          // ε of all tasks together; NaN: not known
	Budget  dp.Number    `json:"budget"`           // 0 or +Inf: none
	Delta   dp.Number    `json:"delta"`
	Method  string       `json:"method,omitempty"`
	Tasks   []LedgerTask `json:"tasks"`
	Lines   []charges    `json:"lines"`   // newest first; shown fills them in
	Omitted int64        `json:"omitted"` // number of entries older than those of Lines

	charged []charges // oldest first; Charge adds to them
}

// LedgerTask has the charges of one task by itself.
type LedgerTask struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Asks    string    `json:"asks"` // what it asks, or that it trains a model
	Entries int64     `json:"entries"`
	Round   int64     `json:"round"` // the last charged round
	Eps     dp.Number `json:"epsilon"`
	Delta   dp.Number `json:"delta"`
}

// charges is one charge, or several neighbours with the same event.
type charges struct {
	First int64  `json:"first"` // number of the first entry
	Last  int64  `json:"last"`
	Task  string `json:"task"` // the announcement's name
	From  int64  `json:"from"` // first and last round
	To    int64  `json:"to"`
	Event string `json:"event"`
}

// maxLines is the number of lines of a ledger that a page shows.
const maxLines = 200

// Charge adds the next entry.
func (l *Ledger) Charge(task string, round int64, event string) {
	l.Entries++
	if n := len(l.charged); n > 0 {
		if last := &l.charged[n-1]; last.Task == task && last.Event == event && last.To < round {
			last.Last, last.To = l.Entries, round
			return
		}
	}
	l.charged = append(l.charged, charges{First: l.Entries, Last: l.Entries, Task: task, From: round, To: round, Event: event})
	if len(l.charged) > 2*maxLines {
		l.charged = append([]charges(nil), l.charged[len(l.charged)-maxLines:]...)
	}
}

// Clone returns a copy that shares nothing with l.
func (l *Ledger) Clone() Ledger {
	out := *l
	out.Tasks = append([]LedgerTask(nil), l.Tasks...)
	out.charged = append([]charges(nil), l.charged...)
	return out
}

// shown returns l with its last lines, as many as a page shows, and the number of entries
// before them.
func (l Ledger) shown() Ledger {
	l.Tasks, l.Lines = append([]LedgerTask{}, l.Tasks...), []charges{}
	for i := len(l.charged) - 1; i >= 0 && len(l.Lines) < maxLines; i-- {
		l.Lines = append(l.Lines, l.charged[i])
	}
	if n := len(l.Lines); n > 0 {
		l.Omitted = l.Lines[n-1].First - 1
	}
	return l
}

// cachedLedger asks for the ledger at most once in ledgerAge, and gives all pages the same
// answer until then.
type cachedLedger struct {
	get func(context.Context) (Ledger, error)

	mu   sync.Mutex
	at   time.Time
	have Ledger
}

const ledgerAge = time.Second

func (c *cachedLedger) view(ctx context.Context) (Ledger, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < ledgerAge {
		return c.have, nil
	}
	l, err := c.get(ctx)
	if err != nil {
		return Ledger{}, err
	}
	c.at, c.have = time.Now(), l.shown()
	return c.have, nil
}

func (d *dashboard) serveLedger(w http.ResponseWriter, r *http.Request) {
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

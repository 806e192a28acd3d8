//go:build js && wasm

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall/js"
	"time"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// event is what a page is told: Event in index.d.ts.
type event struct {
	Type     string `json:"type"`
	Task     string `json:"task,omitempty"`
	Round    int64  `json:"round,omitempty"`
	Reason   string `json:"reason,omitempty"`
	Message  string `json:"message,omitempty"`
	Opens    int64  `json:"opens,omitempty"`    // Unix ms
	Deadline int64  `json:"deadline,omitempty"` // Unix ms
	*spent
}

// spent is what the client's ledger holds against its policy.
type spent struct {
	Eps      dp.Number `json:"epsilon"`
	Delta    float64   `json:"delta"`
	MaxEps   float64   `json:"maxEpsilon"`
	LocalEps dp.Number `json:"localEpsilon"`
	Messages int64     `json:"messages"`
	Tasks    int64     `json:"tasks"`
}

// teller tells a page what happens.
type teller struct {
	say    js.Value
	policy pure.Policy
	id     wire.ID

	mu    sync.Mutex
	fleet *client.Fleet // nil before the beginning and after the end
	busy  sync.WaitGroup
}

func (t *teller) tell(e event) {
	if text, err := json.Marshal(e); err == nil { // always
		t.say.Invoke(string(text))
	}
}

// begin tells what was spent before.
func (t *teller) begin(f *client.Fleet) {
	t.mu.Lock()
	t.fleet = f
	t.mu.Unlock()
	t.spent()
}

// close tells what was spent, for the last time.
func (t *teller) close() error {
	t.busy.Wait()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.fleet = nil
	return nil
}

// spent tells what was spent, later: the accountant takes a while.
func (t *teller) spent() {
	t.busy.Go(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.fleet == nil {
			return
		}
		c, err := t.fleet.Spent(t.id)
		if err != nil {
			c.Eps, c.LocalEps = math.Inf(1), math.Inf(1)
		}
		t.tell(event{Type: "spent", spent: &spent{Eps: dp.Number(c.Eps), Delta: t.policy.Delta, MaxEps: t.policy.MaxEps,
			LocalEps: dp.Number(c.LocalEps), Messages: c.Messages, Tasks: c.Tasks}})
	})
}

func (t *teller) announced(task [32]byte, round int64, opens, deadline time.Time) {
	t.tell(event{Type: "round", Task: fmt.Sprintf("%x", task), Round: round, Opens: opens.UnixMilli(), Deadline: deadline.UnixMilli()})
}

func (t *teller) notice(n client.Notice) {
	e := event{Type: n.What, Round: n.Round}
	if n.Task != [32]byte{} {
		e.Task = fmt.Sprintf("%x", n.Task)
	}
	if refused := (*pure.Refused)(nil); errors.As(n.Err, &refused) {
		e.Reason, e.Message = string(refused.Cause), refused.Detail
	} else if n.Err != nil {
		e.Message = n.Err.Error()
	}
	t.tell(e)
	if n.What == client.Sent || n.What == client.Lost {
		t.spent()
	}
}

package client

import (
	"fmt"
	"math"
	"math/big"
	"sync"

	"github.com/riffle-dp/riffle/dp"
)

// History is what one client has sent, as far as it limits what it may still send.
type History struct {
	Tasks []*Spent // in order of appearance; few
}

// Spent is what one client sent in one task.
type Spent struct {
	Task         [32]byte
	Round        int64 // the last that was decided, by a report or a coin
	Announcement [32]byte
	Tail         float64     // δ of its sums beside Charges; the largest counts
	Charges      []dp.Repeat // of dp.Round, all different
}

// Of returns what was sent in a task; nil if nothing was ever decided in it.
func (h *History) Of(task [32]byte) *Spent {
	for _, s := range h.Tasks {
		if s.Task == task {
			return s
		}
	}
	return nil
}

// Decide records that a round was decided, whatever the decision.
func (h *History) Decide(task [32]byte, round int64, announcement [32]byte) *Spent {
	s := h.Of(task)
	if s == nil {
		s = &Spent{Task: task}
		h.Tasks = append(h.Tasks, s)
	}
	s.Round, s.Announcement = round, announcement
	return s
}

// Charge counts reports of one kind.
func (s *Spent) Charge(r dp.Round, times int64, tail float64) {
	s.Tail = math.Max(s.Tail, tail)
	for i := range s.Charges {
		if s.Charges[i].Event == dp.Event(r) {
			s.Charges[i].Times += times
			return
		}
	}
	s.Charges = append(s.Charges, dp.Repeat{Event: r, Times: times})
}

// with returns s and one more report, leaving s as it is.
func (s *Spent) with(r dp.Round, tail float64) *Spent {
	out := &Spent{}
	if s != nil {
		out.Task, out.Tail = s.Task, s.Tail
		out.Charges = append(out.Charges, s.Charges...)
	}
	out.Charge(r, 1, tail)
	return out
}

// local is the sum of ε₀ of all reports; +Inf where one has none.
func (s *Spent) local() float64 {
	var sum float64
	for _, c := range s.Charges {
		r := c.Event.(dp.Round)
		if r.Report.Class == dp.Gaussian {
			return math.Inf(1)
		}
		sum += float64(c.Times) * r.Report.Eps0
	}
	return sum * (1 + 1e-12) // for its roundings
}

// Counter asks an accountant what histories cost, each question once: clients of one
// process have few different histories. Safe for concurrent use.
type Counter struct {
	Accountant dp.Accountant // Required.

	mu    sync.Mutex
	known map[string]float64
}

// counterLimit bounds what is remembered.
const counterLimit = 1 << 16

// eps returns the ε of one task at delta; +Inf where the tails leave no δ.
func (c *Counter) eps(s *Spent, delta float64) (float64, error) {
	if len(s.Charges) == 0 {
		return 0, nil
	}
	rest := (delta - s.Tail) * (1 - 0x1p-50)
	if !(rest > 0) {
		return math.Inf(1), nil
	}
	key := fmt.Sprint(rest)
	events := make(dp.Sequence, 0, len(s.Charges))
	for _, r := range s.Charges {
		key += fmt.Sprintf(" %d×%+v", r.Times, r.Event)
		events = append(events, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if eps, ok := c.known[key]; ok {
		return eps, nil
	}
	b, err := c.Accountant.Eps(events, rest)
	if err != nil {
		return 0, err
	}
	if b.Kind != dp.Upper || b.Adjacency != dp.ReplaceOne || math.IsNaN(b.Eps) {
		return 0, fmt.Errorf("client: the accountant's answer is a %s bound, %v", b.Kind, b.Guarantee)
	}
	if c.known == nil || len(c.known) >= counterLimit {
		c.known = map[string]float64{}
	}
	c.known[key] = b.Eps
	return b.Eps, nil
}

// exact is a precision that sums of float64 need no rounding in.
const exact = 2200

// Afford refuses one more report where it would bring a client above its policy. It
// changes nothing.
func (t *Terms) Afford(h *History, c *Counter) *Refused {
	p := t.Policy
	// A policy that was tightened does not give more to the tasks that were begun.
	delta := p.Delta / float64(max(p.MaxTasks, int64(len(h.Tasks))))
	mine := h.Of(t.ID)
	if mine == nil && int64(len(h.Tasks)) >= p.MaxTasks {
		return Refuse(CauseBudget, "no room for another task (max-tasks: %d)", len(h.Tasks))
	}
	next := mine.with(t.Charge, t.Tail)
	task, err := c.eps(next, delta)
	if err != nil {
		return Refuse(CauseBudget, "%v", err)
	}
	// The condition is negated so that it refuses a NaN.
	if !(task <= p.MaxTaskEps) {
		return Refuse(CauseBudget, "epsilon of this task would be %.4g, above %.4g", task, p.MaxTaskEps)
	}
	// A coordinator that ends a task where it went badly for the client, and goes on
	// in another, has more than the sum of what both cost so far: each counts with
	// all that it may come to (policy.md).
	total := new(big.Float).SetPrec(exact).SetFloat64(max(task, p.MaxTaskEps))
	local := next.local()
	begun := 1
	for _, s := range h.Tasks {
		if s == mine {
			continue
		}
		eps, err := c.eps(s, delta)
		if err != nil {
			return Refuse(CauseBudget, "%v", err)
		}
		total.Add(total, big.NewFloat(max(eps, p.MaxTaskEps)))
		local += s.local()
		begun++
	}
	if begun == 1 {
		total.SetFloat64(task) // it ends at MaxEps, if not at MaxTaskEps
	}
	if total.Cmp(big.NewFloat(p.MaxEps)) > 0 {
		return Refuse(CauseBudget, "epsilon of %d tasks may come to %.4g, above %.4g", begun, total, p.MaxEps)
	}
	if p.MaxLocalEps > 0 && !(local <= p.MaxLocalEps) {
		return Refuse(CauseBudget, "the sum of eps0 would be %.4g, above %.4g", local, p.MaxLocalEps)
	}
	return nil
}

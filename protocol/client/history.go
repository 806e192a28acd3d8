package client

import (
	"fmt"
	"math"
	"math/big"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// history is what one client has sent, as far as it matters for what follows.
type history struct {
	tasks []*spent // in order of appearance; few
}

// spent is what one client sent in one task.
type spent struct {
	task         [32]byte
	round        int64 // the last that was decided, by a report or a coin
	announcement [32]byte
	tail         float64
	charges      []dp.Repeat // of dp.Round, all different
}

func (h *history) of(task [32]byte) *spent {
	for _, s := range h.tasks {
		if s.task == task {
			return s
		}
	}
	return nil
}

// decide records that a round was decided.
func (h *history) decide(task [32]byte, round int64, announcement [32]byte) *spent {
	s := h.of(task)
	if s == nil {
		s = &spent{task: task}
		h.tasks = append(h.tasks, s)
	}
	s.round, s.announcement = round, announcement
	return s
}

// charge counts reports.
func (s *spent) charge(r dp.Round, times int64, tail float64) {
	s.tail = math.Max(s.tail, tail)
	for i := range s.charges {
		if s.charges[i].Event == dp.Event(r) {
			s.charges[i].Times += times
			return
		}
	}
	s.charges = append(s.charges, dp.Repeat{Event: r, Times: times})
}

// keep returns the lines that say as much as all that led to h.
func (h *history) keep(id wire.ClientID) []decision {
	var out []decision
	for _, s := range h.tasks {
		d := decision{client: id, task: s.task, round: s.round, announcement: s.announcement}
		for _, c := range s.charges {
			d.kept, d.times, d.tail, d.charge = true, c.Times, s.tail, c.Event.(dp.Round)
			out = append(out, d)
		}
		if len(s.charges) == 0 {
			out = append(out, d)
		}
	}
	return out
}

// with returns s and one more report, leaving s as it is.
func (s *spent) with(r dp.Round, tail float64) *spent {
	out := &spent{}
	if s != nil {
		out.task, out.tail = s.task, s.tail
		out.charges = append(out.charges, s.charges...)
	}
	out.charge(r, 1, tail)
	return out
}

// local is the sum of ε₀ of all reports; +Inf where one has none.
func (s *spent) local() float64 {
	var sum float64
	for _, c := range s.charges {
		r := c.Event.(dp.Round)
		if r.Report.Class == dp.Gaussian {
			return math.Inf(1)
		}
		sum += float64(c.Times) * r.Report.Eps0
	}
	return sum * (1 + 1e-12) // for its roundings
}

// counter asks an accountant what histories cost, each question once. Clients of
// one process have few different histories.
type counter struct {
	accountant dp.Accountant
	mu         sync.Mutex
	known      map[string]float64
}

// counterLimit bounds what is remembered.
const counterLimit = 1 << 16

// eps returns the ε of one task at delta; +Inf where the tails leave no δ.
func (c *counter) eps(s *spent, delta float64) (float64, error) {
	if len(s.charges) == 0 {
		return 0, nil
	}
	rest := (delta - s.tail) * (1 - 0x1p-50)
	if !(rest > 0) {
		return math.Inf(1), nil
	}
	key := fmt.Sprint(rest)
	events := make(dp.Sequence, 0, len(s.charges))
	for _, r := range s.charges {
		key += fmt.Sprintf(" %d×%+v", r.Times, r.Event)
		events = append(events, r)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if eps, ok := c.known[key]; ok {
		return eps, nil
	}
	b, err := c.accountant.Eps(events, rest)
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

// afford refuses a report that would bring a client above its policy.
func (t *Terms) afford(h *history, c *counter) *Refused {
	p := t.policy
	// A policy that was tightened does not give more to the tasks that were begun.
	delta := p.Delta / float64(max(p.MaxTasks, int64(len(h.tasks))))
	mine := h.of(t.ID)
	if mine == nil && int64(len(h.tasks)) >= p.MaxTasks {
		return refuse(CauseBudget, "no room for another task (max-tasks: %d)", len(h.tasks))
	}
	next := mine.with(t.Charge, t.Tail)
	task, err := c.eps(next, delta)
	if err != nil {
		return refuse(CauseBudget, "%v", err)
	}
	// Negated so that a NaN refuses.
	if !(task <= p.MaxTaskEps) {
		return refuse(CauseBudget, "epsilon of this task would be %.4g, above %.4g", task, p.MaxTaskEps)
	}
	// A coordinator that ends a task where it went badly for the client, and goes on
	// in another, has more than the sum of what both cost so far: each counts with
	// all that it may come to (policy.md).
	total := new(big.Float).SetPrec(exact).SetFloat64(max(task, p.MaxTaskEps))
	local := next.local()
	begun := 1
	for _, s := range h.tasks {
		if s == mine {
			continue
		}
		eps, err := c.eps(s, delta)
		if err != nil {
			return refuse(CauseBudget, "%v", err)
		}
		total.Add(total, big.NewFloat(max(eps, p.MaxTaskEps)))
		local += s.local()
		begun++
	}
	if begun == 1 {
		total.SetFloat64(task) // it ends at MaxEps, if not at MaxTaskEps
	}
	if total.Cmp(big.NewFloat(p.MaxEps)) > 0 {
		return refuse(CauseBudget, "epsilon of %d tasks may come to %.4g, above %.4g", begun, total, p.MaxEps)
	}
	if p.MaxLocalEps > 0 && !(local <= p.MaxLocalEps) {
		return refuse(CauseBudget, "the sum of eps0 would be %.4g, above %.4g", local, p.MaxLocalEps)
	}
	return nil
}

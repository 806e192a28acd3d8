package client

import (
	"fmt"
	"math"
	"math/big"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// History is the record of one client's reports, as far as it limits further reports.
type History struct {
	Tasks []*spentOn // few, in the order of their first round
}

// spentOn is the record of one client's reports in one task.
type spentOn struct {
	Task [32]byte
	// Round is the last round that was decided, by a report or a coin; of a task with Every the last
	// with a report.
	Round        int64
	Announcement [32]byte
	Tail         float64     // δ for the tails of its sums, on top of Charges; the largest that any report named
	Charges      []dp.Repeat // charges of dp.Round, all different
}

// Of returns the record of a task; nil if no round of the task was ever decided.
func (h *History) Of(task [32]byte) *spentOn {
	for _, s := range h.Tasks {
		if s.Task == task {
			return s
		}
	}
	return nil
}

// Messages returns the number of messages that were charged, in all tasks.
func (h *History) Messages() (n int64) {
	for _, s := range h.Tasks {
		for _, c := range s.Charges {
			n += c.Times
		}
	}
	return n
}

// Decide records that a round was decided, whatever the decision was.
func (h *History) Decide(task [32]byte, round int64, announcement [32]byte) *spentOn {
	s := h.Of(task)
	if s == nil {
		s = &spentOn{Task: task}
		h.Tasks = append(h.Tasks, s)
	}
	s.Round, s.Announcement = round, announcement
	return s
}

// Charge counts messages of one kind: a report has one, or several.
func (s *spentOn) Charge(r dp.Round, times int64, tail float64) {
	s.Tail = math.Max(s.Tail, tail)
	for i := range s.Charges {
		if s.Charges[i].Event == dp.Event(r) {
			s.Charges[i].Times += times
			return
		}
	}
	s.Charges = append(s.Charges, dp.Repeat{Event: r, Times: times})
}

// with returns s plus so many more messages; s does not change.
func (s *spentOn) with(r dp.Round, times int64, tail float64) *spentOn {
	out := &spentOn{}
	if s != nil {
		out.Task, out.Tail = s.Task, s.Tail
		out.Charges = append(out.Charges, s.Charges...)
	}
	out.Charge(r, times, tail)
	return out
}

// local returns the sum of ε₀ over all messages; +Inf if one has none.
func (s *spentOn) local() float64 {
	var sum float64
	for _, c := range s.Charges {
		r := c.Event.(dp.Round)
		if !r.Report.Class.LDP() {
			return math.Inf(1)
		}
		sum += float64(c.Times) * r.Report.Eps0
	}
	return sum * (1 + 1e-12) // for the roundings of the sum
}

// Counter asks an accountant for the costs of histories. It asks each question once, because
// the clients of one process have few different histories. Safe for concurrent use.
type Counter struct {
	Accountant dp.Accountant // Required.

	mu    sync.Mutex
	known map[string]float64
}

// counterLimit bounds the number of cached answers.
const counterLimit = 1 << 16

// eps returns the ε of one task at delta; +Inf if the tails use up delta, or if the ε is above the
// largest for which the tails of a sum with proofs hold.
func (c *Counter) eps(s *spentOn, delta float64) (float64, error) {
	if len(s.Charges) == 0 {
		return 0, nil
	}
	rest := (delta - s.Tail) * (1 - 0x1p-50)
	if !(rest > 0) {
		return math.Inf(1), nil
	}
	key := fmt.Sprint(rest)
	events := make(dp.Sequence, 0, len(s.Charges))
	most := math.Inf(1)
	for _, r := range s.Charges {
		key += fmt.Sprintf(" %d×%+v", r.Times, r.Event)
		events = append(events, r)
		if r.Event.(dp.Round).Report.Class == dp.GaussianSum {
			most = mechanism.MostEps
		}
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
	if b.Eps > most {
		b.Eps = math.Inf(1)
	}
	if c.known == nil || len(c.known) >= counterLimit {
		c.known = map[string]float64{}
	}
	c.known[key] = b.Eps
	return b.Eps, nil
}

// exact is a precision at which sums of float64 are not rounded.
const exact = 2200

// Afford refuses one more report if it would exceed the client's policy. It changes nothing.
func (t *Terms) Afford(h *History, c *Counter) *Refused {
	p := t.Policy
	// If MaxTasks was lowered, δ is still divided among all tasks that were begun.
	delta := p.Delta / float64(max(p.MaxTasks, int64(len(h.Tasks))))
	mine := h.Of(t.ID)
	if mine == nil && int64(len(h.Tasks)) >= p.MaxTasks {
		return Refuse(CauseBudget, "no room for another task (max-tasks: %d)", len(h.Tasks))
	}
	next := mine.with(t.Charge, t.Task.PerClient(), t.Tail)
	task, err := c.eps(next, delta)
	if err != nil {
		return Refuse(CauseBudget, "%v", err)
	}
	// The condition is negated so that it refuses a NaN.
	if !(task <= p.MaxTaskEps) {
		return Refuse(CauseBudget, "epsilon of this task would be %.4g, above %.4g", task, p.MaxTaskEps)
	}
	// A coordinator may end a task that goes badly for the client and continue in another. What
	// it learns may then cost more than the sum of what both cost so far. So each task counts
	// with the most that it may cost (policy.md).
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
		total.SetFloat64(task) // a single task counts with its own cost only
	}
	if total.Cmp(big.NewFloat(p.MaxEps)) > 0 {
		return Refuse(CauseBudget, "epsilon of %d tasks may come to %.4g, above %.4g", begun, total, p.MaxEps)
	}
	if p.MaxLocalEps > 0 && !(local <= p.MaxLocalEps) {
		return Refuse(CauseBudget, "the sum of eps0 would be %.4g, above %.4g", local, p.MaxLocalEps)
	}
	return nil
}

// Cost is what a client's messages have cost so far.
type Cost struct {
	Eps      float64 // as MaxEps counts it, at the policy's Delta; +Inf if there is no bound
	LocalEps float64 // the sum of ε₀, without a shuffler; +Inf if a message has none
	Messages int64
	Tasks    int64
}

// Cost returns what the history has cost, counted as Afford counts it: of several tasks each with the
// most that it may cost.
func (p Policy) Cost(h *History, c *Counter) (Cost, error) {
	p = p.withDefaults()
	out := Cost{Messages: h.Messages(), Tasks: int64(len(h.Tasks))}
	delta := p.Delta / float64(max(p.MaxTasks, int64(len(h.Tasks))))
	for _, s := range h.Tasks {
		eps, err := c.eps(s, delta)
		if err != nil {
			return Cost{}, err
		}
		if len(h.Tasks) > 1 {
			eps = max(eps, p.MaxTaskEps)
		}
		out.Eps = upSum(out.Eps, eps)
		out.LocalEps += s.local()
	}
	return out, nil
}

// upSum adds, rounded up.
func upSum(a, b float64) float64 {
	sum := a + b
	if a == 0 || b == 0 || math.IsInf(sum, 1) {
		return sum
	}
	return math.Nextafter(sum, math.Inf(1))
}

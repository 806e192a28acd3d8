// Package coordinator is the role that runs a task: it announces rounds,
// charges the ledger, sums reports and owns the model. Nothing about privacy
// rests on it but the order in Round: charge first, open after.
package coordinator

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/ledger"
	"github.com/riffle-dp/riffle/optimize"
	"github.com/riffle-dp/riffle/randomizer"
	"github.com/riffle-dp/riffle/wire"
)

// Ledger is the budget. Charge returns only when the charge would survive
// what the coordinator survives; charging the same round again is harmless.
type Ledger interface {
	Charge(ledger.Entry) error
	Spent() (dp.Bound, error)
	Entries() []ledger.Entry
	Restore([]ledger.Entry) error
}

// Config is a task. Required are all fields but Sample and CheckInRate, and
// Report where the ledger is ledger.Unprotected.
type Config struct {
	Task          [32]byte
	Optimizer     optimize.Optimizer
	Mechanism     randomizer.Mechanism
	Report        dp.Report // what one of the mechanism's reports promises
	Ledger        Ledger
	Trust         dp.Trust
	Participation dp.Participation
	Population    int64
	Sample        int64
	CheckInRate   float64
	MinReports    int64
	Clip          float64
}

// Coordinator is the task's state between messages. Not safe for concurrent
// use; tallies of one round may be filled concurrently.
type Coordinator struct {
	config    Config
	round     int64 // last round that ended
	opened    int64 // round whose batch may be opened; 0 if none
	published []float32
	mean      []float64
}

// New returns the coordinator before round 1.
func New(c Config) (*Coordinator, error) {
	if c.Optimizer == nil || c.Mechanism == nil || c.Ledger == nil {
		return nil, errors.New("coordinator: optimizer, mechanism and ledger are required")
	}
	if d := len(c.Optimizer.Point()); d != c.Mechanism.Dim() {
		return nil, fmt.Errorf("coordinator: the model has %d parameters, the mechanism %d", d, c.Mechanism.Dim())
	}
	if c.Population < 1 || c.MinReports < 1 || c.MinReports > c.Population {
		return nil, fmt.Errorf("coordinator: n-min = %d must lie between 1 and n = %d", c.MinReports, c.Population)
	}
	switch c.Participation {
	case dp.All:
	case dp.Sampled:
		if c.Sample < 1 || c.Sample > c.Population {
			return nil, fmt.Errorf("coordinator: k = %d must lie between 1 and n = %d", c.Sample, c.Population)
		}
	case dp.CheckIn:
		if !(c.CheckInRate > 0 && c.CheckInRate <= 1) {
			return nil, fmt.Errorf("coordinator: gamma = %v must be above 0 and at most 1", c.CheckInRate)
		}
	default:
		return nil, fmt.Errorf("coordinator: participation %q cannot be run", c.Participation)
	}
	co := &Coordinator{config: c, mean: make([]float64, c.Mechanism.Dim()), published: make([]float32, c.Mechanism.Dim())}
	co.publish()
	return co, nil
}

// publish rounds the optimiser's point to what clients receive.
func (c *Coordinator) publish() {
	for j, v := range c.config.Optimizer.Point() {
		c.published[j] = float32(v)
	}
}

// Round returns the last round that ended.
func (c *Coordinator) Round() int64 { return c.round }

// Parameters returns the published parameters of the coming round. Read it,
// do not keep it across End.
func (c *Coordinator) Parameters() []float32 { return c.published }

// Announce opens the coming round. It may be called any number of times.
func (c *Coordinator) Announce() wire.Announcement {
	h := sha256.New()
	var word [4]byte
	for _, v := range c.published {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
		h.Write(word[:])
	}
	a := wire.Announcement{
		Task: c.config.Task, Round: c.round + 1, Trust: c.config.Trust,
		Participation: c.config.Participation, Population: c.config.Population,
		Sample: c.config.Sample, CheckInRate: c.config.CheckInRate, MinReports: c.config.MinReports,
		Randomizer: c.config.Mechanism.Name(), Eps0: c.config.Report.Eps0, Clip: c.config.Clip,
	}
	h.Sum(a.ModelDigest[:0])
	return a
}

// Receive charges the ledger for a closed batch. Only after it returns nil may
// the batch be opened; if it refuses, the batch must be destroyed unread.
func (c *Coordinator) Receive(b wire.Batch) error {
	if b.Round != c.round+1 {
		return fmt.Errorf("coordinator: batch of round %d, want round %d", b.Round, c.round+1)
	}
	k := int64(len(b.Payloads))
	if k < c.config.MinReports || k > c.config.Population {
		return fmt.Errorf("coordinator: round %d has %d reports, want between n-min = %d and n = %d",
			b.Round, k, c.config.MinReports, c.config.Population)
	}
	if err := c.config.Ledger.Charge(ledger.Entry{Round: b.Round, Event: c.event(k)}); err != nil {
		return err
	}
	c.opened = b.Round
	return nil
}

// event is what a round with k reports costs. Given k, and with coins and
// drop-outs independent of the data, those who took part are a uniform
// k-subset of the population, however they came to be chosen.
func (c *Coordinator) event(k int64) dp.Round {
	e := dp.Round{
		Report: c.config.Report, Trust: c.config.Trust, Participation: c.config.Participation,
		Population: c.config.Population, Reports: k, Realised: true,
	}
	if e.Participation == dp.All && k != e.Population {
		e.Participation = dp.CheckIn
	}
	return e
}

// Tally sums opened reports. One goroutine each; sums are exact integers, so
// how reports are spread over tallies changes nothing.
type Tally struct {
	mechanism randomizer.Mechanism
	round     int64
	sum       []int64
	accepted  int64
	rejected  int64
}

// NewTally returns an empty tally of the round that was charged.
func (c *Coordinator) NewTally() (*Tally, error) {
	if c.opened == 0 {
		return nil, errors.New("coordinator: no round is charged, nothing may be opened")
	}
	return &Tally{mechanism: c.config.Mechanism, round: c.opened, sum: make([]int64, c.config.Mechanism.Dim())}, nil
}

// Open validates a report and adds it. A report out of shape or range is
// counted as rejected and leaves no other trace.
func (t *Tally) Open(r *randomizer.Report) {
	if t.mechanism.Check(r) != nil {
		t.rejected++
		return
	}
	t.mechanism.Add(t.sum, r)
	t.accepted++
}

// End closes the charged round with its tallies and takes the step. It returns
// how many reports were summed and how many rejected.
func (c *Coordinator) End(tallies ...*Tally) (accepted, rejected int64, err error) {
	if c.opened == 0 {
		return 0, 0, errors.New("coordinator: no round is open")
	}
	sum := make([]int64, len(c.mean))
	for _, t := range tallies {
		if t.round != c.opened {
			return 0, 0, fmt.Errorf("coordinator: tally of round %d in round %d", t.round, c.opened)
		}
		for j, v := range t.sum {
			sum[j] += v
		}
		accepted += t.accepted
		rejected += t.rejected
	}
	if accepted > 0 {
		c.config.Mechanism.Estimate(c.mean, sum, accepted)
		if err := c.config.Optimizer.Step(c.mean); err != nil {
			return accepted, rejected, err
		}
		c.publish()
	}
	c.round, c.opened = c.opened, 0
	return accepted, rejected, nil
}

// Void ends a round of which nothing was released: no charge, no step.
func (c *Coordinator) Void() error {
	if c.opened != 0 {
		return fmt.Errorf("coordinator: round %d is charged and cannot be void", c.opened)
	}
	c.round++
	return nil
}

// Model writes the parameters to release now.
func (c *Coordinator) Model(dst []float64) { c.config.Optimizer.Model(dst) }

// Spent returns the bound on what was charged so far.
func (c *Coordinator) Spent() (dp.Bound, error) { return c.config.Ledger.Spent() }

// State is a coordinator between two rounds.
type State struct {
	Round     int64
	Optimizer optimize.State
	Charged   []ledger.Entry
}

// State returns a copy; a round in progress is not part of it.
func (c *Coordinator) State() State {
	return State{Round: c.round, Optimizer: c.config.Optimizer.State(), Charged: c.config.Ledger.Entries()}
}

// Restore brings a new coordinator of the same configuration to s.
func (c *Coordinator) Restore(s State) error {
	if c.round != 0 || s.Round < 0 {
		return fmt.Errorf("coordinator: restore of round %d over round %d", s.Round, c.round)
	}
	if n := len(s.Charged); n > 0 && s.Charged[n-1].Round > s.Round+1 {
		return fmt.Errorf("coordinator: round %d is charged in a state of round %d", s.Charged[n-1].Round, s.Round)
	}
	if err := c.config.Optimizer.Restore(s.Optimizer); err != nil {
		return err
	}
	if err := c.config.Ledger.Restore(s.Charged); err != nil {
		return err
	}
	c.round = s.Round
	c.publish()
	return nil
}

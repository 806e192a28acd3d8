// Package coordinator is the role that runs a task: it announces rounds, charges the ledger,
// sums reports and owns the model. Privacy rests on one thing here, the order of a round:
// charge first, open after.
package coordinator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Ledger is the budget. Charge returns only when the charge is at least as durable as the
// coordinator's state; charging the same round again is harmless.
type Ledger interface {
	Charge(context.Context, ledger.Charge) error
	Spent() (dp.Bound, error)
	Entries() []ledger.Entry
	Restore([]ledger.Entry) error
}

// ErrBatch is wrapped by the refusal of a batch that cannot belong to the announced round.
// Nothing was charged for it.
var ErrBatch = errors.New("coordinator: not a batch of the announced round")

// Learner is what rounds' estimates become: an optimiser's model, or the answer to a question.
// *optimize.Optimizer is one.
type Learner interface {
	Point() []float64 // the parameters that the next round publishes; never changed
	// Step takes the estimated mean of a round's reports.
	Step(mean []float64) error
	Model(dst []float64) // writes the parameters to release
	State() optimize.State
	Restore(optimize.State) error
}

// counting is a Learner that wants the number of summed reports, too. It gets means as they were
// estimated, however long they are: the law of their errors is known for these only.
type counting interface {
	StepOf(mean []float64, reports int64) error
}

// Config describes a task. Sample, Gamma and Blocks are required by one Participation each.
// Messages, Colluders, Honest and Declinable are optional, and so is Report if the ledger is
// ledger.Unprotected. All other fields are required.
type Config struct {
	Task          [32]byte
	Optimizer     Learner
	Mechanism     randomizer.Mechanism
	Report        dp.Report // the Event of Mechanism, the promise of one report
	Ledger        Ledger
	Trust         dp.Trust
	Participation dp.Participation
	Population    int64 // n, including Colluders
	// MinClients is the number of clients by which every round of the task is charged, whatever n
	// it has, if the roster may change: absence.md. 0: the roster stays.
	MinClients int64
	Sample     int64
	Gamma      float64
	Blocks     schedule.Blocks // for dp.Once: each client once in every epoch
	MinReports int64           // the fewest clients of a round
	// Messages is the number of messages that each client sends in a round, at most
	// wire.MaxMessages; 0 means one. With more than one a round is charged as that many rounds
	// of all its clients: the random choice of participants then lowers no cost (messages.md).
	Messages int64
	Clip     float64
	// ModelDim is the number of published parameters, if it is another than the mechanism's
	// dimension; 0: it is not.
	ModelDim int64
	// Colluders is the number of a round's reports that are assumed to be from clients that
	// collude with an observer; they hide nobody. A round is then charged as a round of all its
	// other reports: the random choice of participants then lowers no cost.
	Colluders int64
	// Honest is the share of a vector sum's reports whose noise is relied on in every round; 0
	// means 1. The other clients choose freely when they take part, so the charge counts on a
	// random choice among Honest·Population clients only.
	Honest float64
	// Tokens says that only messages with a token of their own count. How many do is not known
	// when a round is charged, because it shows only when the batch is opened: a round is charged
	// as one of MinReports clients, fewer give no step, and the random choice of participants
	// lowers no cost (tokens.md).
	Tokens bool
	// Declinable says that clients decide whether they take part, as they do of a question, which
	// their policies may refuse. They may do so upon having been drawn, so no chance is credited.
	Declinable bool
	// Every says that a client takes part in at most one of so many consecutive rounds, by its own
	// count. It is required, with participation check-in, for a mechanism whose noise is correlated
	// over rounds, and for no other. No chance is then credited.
	Every int64
}

// Fewer returns the number of a round's reports that are charged as hiding nobody: those of the
// colluders. In a vector sum, where only the share Honest of the reports surely adds noise, it
// is Colluders/Honest, rounded up.
func (c Config) Fewer() int64 {
	if c.Colluders > 0 && c.Honest > 0 && c.Honest < 1 {
		return int64(min(math.Ceil(float64(c.Colluders)/c.Honest*(1+0x1p-50)), 1<<52))
	}
	return c.Colluders
}

// Coordinator is the task's state between messages. Not safe for concurrent use, but tallies
// of one round may be filled concurrently.
//
// The exported fields are for reading only.
type Coordinator struct {
	Round int64 // the last round that ended
	// Parameters are the published parameters for the coming round. Do not keep them across
	// End.
	Parameters []float32
	// Shortened says whether End shortened its last step. If so, some of the reports were not
	// honest, but for a chance of 1e-9.
	Shortened bool

	config Config
	opened int64 // the round whose batch may be opened; 0 if none
	// reports is the mechanism of the open round's reports.
	reports randomizer.Mechanism
	batch   [32]byte
	mean    []float64
	// recovery undoes the correlation of the noise; nil if there is none. recovered says that the open
	// round is in it, because a step failed.
	recovery  *toeplitz.Recovery
	recovered bool
}

// New returns the coordinator before round 1.
func New(c Config) (*Coordinator, error) {
	if c.Optimizer == nil || c.Mechanism == nil || c.Ledger == nil {
		return nil, errors.New("coordinator: optimizer, mechanism and ledger are required")
	}
	if d, want := int64(len(c.Optimizer.Point())), cmp.Or(c.ModelDim, int64(c.Mechanism.Facts().Dim)); d != want {
		return nil, fmt.Errorf("coordinator: the model has %d parameters, want %d", d, want)
	}
	if err := c.checkPromise(); err != nil {
		return nil, err
	}
	if !(c.Honest >= 0 && c.Honest <= 1) {
		return nil, fmt.Errorf("coordinator: honest = %v must lie between 0 and 1", c.Honest)
	}
	if c.Colluders < 0 || c.Colluders > 0 && c.MinReports <= c.Fewer() {
		return nil, fmt.Errorf("coordinator: %d colluders must be fewer than n-min = %d, and their noise than that of its honest fraction", c.Colluders, c.MinReports)
	}
	if c.Messages < 0 || c.Messages > wire.MaxMessages {
		return nil, fmt.Errorf("coordinator: %d messages must lie between 1 and %d", c.Messages, wire.MaxMessages)
	}
	if c.Messages > 1 && c.Trust.Is(dp.SumsOnly) {
		return nil, fmt.Errorf("coordinator: %d messages with trust %s, in which a client has one", c.Messages, c.Trust)
	}
	if c.Population < 1 || c.MinReports < 1 || c.MinReports > c.Population {
		return nil, fmt.Errorf("coordinator: n-min = %d must lie between 1 and n = %d", c.MinReports, c.Population)
	}
	if c.MinClients != 0 && (c.MinClients < c.MinReports || c.MinClients > c.Population) {
		return nil, fmt.Errorf("coordinator: min-clients = %d must lie between n-min = %d and n = %d", c.MinClients, c.MinReports, c.Population)
	}
	switch c.Participation {
	case dp.All:
	case dp.Sampled:
		if c.Sample < 1 || c.Sample > c.Population {
			return nil, fmt.Errorf("coordinator: k = %d must lie between 1 and n = %d", c.Sample, c.Population)
		}
	case dp.CheckIn:
		if !(c.Gamma > 0 && c.Gamma <= 1) {
			return nil, fmt.Errorf("coordinator: gamma = %v must be above 0 and at most 1", c.Gamma)
		}
		if c.Declinable {
			return nil, errors.New("coordinator: the coins of clients who may decline are no chance: participation all, sampled or once")
		}
	case dp.Once:
		if c.Blocks.Clients != c.Population {
			return nil, fmt.Errorf("coordinator: blocks of %d clients, the population has %d", c.Blocks.Clients, c.Population)
		}
		if c.MinReports > c.Blocks.Smallest {
			return nil, fmt.Errorf("coordinator: n-min = %d must be at most the %d of the smallest block", c.MinReports, c.Blocks.Smallest)
		}
	default:
		return nil, fmt.Errorf("coordinator: participation %q cannot be run", c.Participation)
	}
	_, strategy, related := c.correlation()
	if related != (c.Every != 0) || related && (c.Every < 2 || c.Participation != dp.CheckIn) {
		return nil, fmt.Errorf("coordinator: every = %d with participation %s: at least 2 with %s and noise that is correlated over rounds, otherwise 0", c.Every, c.Participation, dp.CheckIn)
	}
	co := &Coordinator{config: c, mean: make([]float64, c.Mechanism.Facts().Dim), Parameters: make([]float32, len(c.Optimizer.Point()))}
	co.publish()
	if related {
		var err error
		if co.recovery, err = toeplitz.NewRecovery(strategy, len(co.mean)); err != nil {
			return nil, fmt.Errorf("coordinator: %w", err)
		}
	}
	return co, nil
}

// checkPromise makes sure that the charge matches the reports: a budget needs a mechanism
// with a local guarantee, and is charged that guarantee.
func (c Config) checkPromise() error {
	if c.Ledger == ledger.Unprotected {
		return nil
	}
	m, ok := c.Mechanism.(randomizer.Randomizer)
	if !ok {
		return fmt.Errorf("coordinator: mechanism %q has no local guarantee that a ledger could count", c.Mechanism.Facts().Name)
	}
	if m.Event() != c.Report {
		return fmt.Errorf("coordinator: report %+v is to be charged, mechanism %q promises %+v", c.Report, m.Facts().Name, m.Event())
	}
	return nil
}

// publish rounds the optimiser's point to the parameters that clients receive.
func (c *Coordinator) publish() {
	for j, v := range c.config.Optimizer.Point() {
		c.Parameters[j] = float32(v)
	}
}

// Announce opens the coming round. It may be called any number of times.
func (c *Coordinator) Announce() wire.Announcement {
	h := sha256.New()
	var word [4]byte
	for _, v := range c.Parameters {
		binary.LittleEndian.PutUint32(word[:], math.Float32bits(v))
		h.Write(word[:])
	}
	a := wire.Announcement{
		Task: c.config.Task, Round: c.Round + 1, Trust: c.config.Trust,
		Participation: c.config.Participation, Population: c.config.Population,
		Sample: c.config.Sample, Gamma: c.config.Gamma, MinReports: c.config.MinReports,
		PerEpoch: c.config.Blocks.PerEpoch, Messages: c.config.Messages, MinClients: c.config.MinClients,
		Randomizer: c.config.Mechanism.Facts().Name, Eps0: c.config.Report.Eps0, Sigma: c.config.Report.Sigma, Clip: c.config.Clip,
	}
	h.Sum(a.ModelDigest[:0])
	return a
}

// Receive charges the ledger for a closed batch. Only after it returns nil may the batch be
// opened; if it refuses, the batch must be destroyed unread. One charge pays for one batch:
// the same one may be received again before End, also by a coordinator restored from a State
// in which it is open; another one is refused. The error wraps ErrBatch or is the ledger's.
//
// Where reports stand alone, a void round is charged, too, and ends without a tally: its
// reports were seen by whoever carries them, and nobody is trusted to forget them.
func (c *Coordinator) Receive(ctx context.Context, b wire.RoundClosed) error {
	entry, charged, err := c.cost(b)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrBatch, err)
	}
	if charged {
		if err := c.config.Ledger.Charge(ctx, ledger.Charge{
			Task: c.config.Task, Round: b.Round, Announcement: b.Announcement, Batch: b.Digest, Event: entry.Event, Times: entry.Times,
		}); err != nil {
			return err
		}
	}
	c.opened, c.batch, c.reports = b.Round, b.Digest, c.config.Mechanism
	if b.Announcement != ([32]byte{}) { // reports were made over a network
		c.reports = randomizer.ForRound(c.config.Mechanism, b.Announcement)
	}
	return nil
}

// ErrRange is wrapped if no reports of honest clients can add up to a sum.
var ErrRange = errors.New("coordinator: sum out of range")

// ranged is a mechanism whose single reports nobody sees, so that their sum is checked.
type ranged interface {
	CheckSum(sum []int64, n int64) error
}

// TakeBack restores the optimiser's state before the step that End took: the round then has
// ended without a step.
func (c *Coordinator) TakeBack(before optimize.State) error {
	if c.opened != 0 {
		return fmt.Errorf("coordinator: round %d is open", c.opened)
	}
	learner, _ := split(before)
	if err := c.config.Optimizer.Restore(learner); err != nil {
		return err
	}
	c.publish()
	return nil
}

// shorten limits the length of a mean. The mean of n honest reports is within the limit, but
// for a chance of 1e-9. A longer one is shortened to the limit, so liars cannot move the model
// far in one step; a counting learner gets it as it is. It uses the mean only, so it costs no
// privacy.
func (c *Coordinator) shorten(n int64) {
	c.Shortened = false
	var square float64
	for _, v := range c.mean {
		square += float64(v * v)
	}
	length, most := math.Sqrt(square), c.config.Mechanism.MeanBound(n)
	if !(length > most) {
		return
	}
	c.Shortened = true
	if _, ok := c.config.Optimizer.(counting); ok {
		return
	}
	for j := range c.mean {
		c.mean[j] *= most / length
	}
}

// End closes the charged round with its tallies and takes the step. It returns the numbers of
// summed and of rejected messages. After an error the round is still open.
func (c *Coordinator) End(tallies ...*Tally) (accepted, rejected int64, err error) {
	if c.opened == 0 {
		return 0, 0, errors.New("coordinator: no round is open")
	}
	sum := make([]int64, len(c.mean))
	for _, t := range tallies {
		if t.round != c.opened {
			return 0, 0, fmt.Errorf("coordinator: tally of round %d in round %d", t.round, c.opened)
		}
		for j, v := range t.Sum {
			sum[j] += v
		}
		accepted += t.Accepted
		rejected += t.Rejected
	}
	again := repeated(sum, tallies)
	accepted, rejected = accepted-again, rejected+again
	if accepted > 0 {
		if m, ok := c.config.Mechanism.(ranged); ok {
			if err := m.CheckSum(sum, accepted); err != nil {
				return accepted, rejected, fmt.Errorf("%w: %w", ErrRange, err)
			}
		}
		if err := c.estimate(sum, accepted); err != nil {
			return accepted, rejected, err
		}
		c.shorten(accepted)
		if err := c.learn(accepted); err != nil {
			return accepted, rejected, err
		}
		c.publish()
	}
	c.Round, c.opened, c.batch, c.recovered = c.opened, 0, [32]byte{}, false
	return accepted, rejected, nil
}

// learn takes the step with the mean of n messages.
func (c *Coordinator) learn(n int64) error {
	if l, ok := c.config.Optimizer.(counting); ok {
		return l.StepOf(c.mean, n)
	}
	return c.config.Optimizer.Step(c.mean)
}

// Held says why the learner went back to an earlier state in the last round, in place of a step; ""
// if it did not.
func (c *Coordinator) Held() string {
	if l, ok := c.config.Optimizer.(interface{ Held() string }); ok {
		return l.Held()
	}
	return ""
}

// Dim returns the length of a report.
func (c *Coordinator) Dim() int { return len(c.mean) }

// Void ends a round that released nothing: no charge, no step. In trust modes in which
// reports stand alone it is only for rounds without any report; others go to Receive.
func (c *Coordinator) Void() error {
	if c.opened != 0 {
		return fmt.Errorf("coordinator: round %d is charged and cannot be void", c.opened)
	}
	c.Round++
	return nil
}

// Model writes the parameters to release now.
func (c *Coordinator) Model(dst []float64) { c.config.Optimizer.Model(dst) }

// Spent returns the bound on everything charged so far.
func (c *Coordinator) Spent() (dp.Bound, error) { return c.config.Ledger.Spent() }

// State is a coordinator's state after a round, with the next round if it is open.
type State struct {
	Round int64
	// Optimizer is the learner's state. Where noise is correlated it has what was recovered of earlier
	// rounds, too: correlated.go.
	Optimizer optimize.State
	Charged   []ledger.Entry
	// Opened is Round+1 if its batch was charged and may have been opened, and Batch the
	// digest of that batch; otherwise 0. The partial sum is not stored: the same batch must
	// be received again.
	Opened int64
	Batch  [32]byte
}

// State returns a copy of the coordinator's state.
func (c *Coordinator) State() State {
	return State{Round: c.Round, Optimizer: c.withRecovered(c.config.Optimizer.State()), Charged: c.config.Ledger.Entries(), Opened: c.opened, Batch: c.batch}
}

// Restore brings a new coordinator of the same configuration to s.
func (c *Coordinator) Restore(s State) error {
	if c.Round != 0 || s.Round < 0 {
		return fmt.Errorf("coordinator: restore of round %d over round %d", s.Round, c.Round)
	}
	if s.Opened != 0 && s.Opened != s.Round+1 {
		return fmt.Errorf("coordinator: round %d is open in a state of round %d", s.Opened, s.Round)
	}
	if n := len(s.Charged); n > 0 && s.Charged[n-1].Round > s.Round+1 {
		return fmt.Errorf("coordinator: round %d is charged in a state of round %d", s.Charged[n-1].Round, s.Round)
	} else if n > 0 && s.Charged[n-1].Round == s.Round+1 && s.Opened == 0 {
		return fmt.Errorf("coordinator: round %d is charged in a state that does not say for which batch", s.Charged[n-1].Round)
	}
	learner, recovery, err := c.restored(s)
	if err != nil {
		return fmt.Errorf("coordinator: %w", err)
	}
	if err := c.config.Optimizer.Restore(learner); err != nil {
		return err
	}
	if err := c.config.Ledger.Restore(s.Charged); err != nil {
		return err
	}
	c.Round, c.opened, c.batch, c.recovery = s.Round, s.Opened, s.Batch, recovery
	c.publish()
	return nil
}

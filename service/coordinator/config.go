// Package coordinator runs tasks over a network: rounds by deadline, charge before
// exposure, exact sums, one release of a round. It is for the program.
//
// The pure functions of riffle/protocol/coordinator decide what a round does; a
// simulation drives the same ones. This package fetches what they need and stores what
// they decide, in the order of DATA_MODEL.md.
//
// Several coordinators may share a store. The one that holds a task's lease leads the task: it
// alone runs the task's rounds. The others are standbys.
//
// Every step is a function of what is stored. After an error or a crash a task is loaded again,
// and its round goes on after the last thing that was stored of it.
package coordinator

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
)

// Config is a coordinator. Required are Key, Keyring, Shuffler, Store and Journal.
type Config struct {
	Key        ed25519.PrivateKey // key that signs tasks, announcements and exclusions
	Keyring    *envelope.Keyring  // private keys for which reports are sealed
	Shuffler   batch.Source
	Aggregator *Aggregator // required for tasks with a vector sum
	Store      storage
	Journal    *ledger.Journal // the population's ledger
	Tasks      []Job
	// Promises holds what rounds with proofs have settled, outside the store; nil: a store that was
	// restored from before a round was settled is noticed only if another round was charged since.
	Promises promiseStore

	// Holder names this process to those who wait for a lease. Default "coordinator".
	Holder string
	// LeaseTTL is how long a task stays with a leader that is silent. Default 15 s.
	LeaseTTL time.Duration
	// Workers is the number of goroutines that open reports. Default: one per CPU.
	Workers int
	// Opening, if not nil, has other processes open the batches whose messages stand alone.
	Opening *Opening
	// Poll is how long a question to the shuffler waits for its answer. Default 20 s.
	Poll time.Duration
	// Backoff is the pause after a first failure. It doubles with each further failure, up to
	// 100 times the first. Default 100 ms.
	Backoff time.Duration
	// Hold, if not nil, keeps rounds from being announced until it is closed. Open rounds
	// go on.
	Hold <-chan struct{}
	// PauseAfter is how many charged rounds in a row may give no step before their task
	// pauses, and PauseAfterVoid how many rounds in a row may be void; 0: it never does.
	PauseAfter, PauseAfterVoid int64
	// AnnounceLedger tells the shuffler and the clients how far the ledger was written, so that
	// they notice a store and a mark that were restored from old copies.
	AnnounceLedger bool
	// Log gets what happens, without anything about clients. Default: nowhere.
	Log *slog.Logger
}

// Aggregator is the second aggregator of vector sums.
type Aggregator struct {
	URL    string
	Client *http.Client
	// Key verifies its word on which reports are summed. Required for sums with proofs.
	Key ed25519.PublicKey
}

// Job is a task to run, and how. Required are Signed, Optimizer, Report, Budget, Round, and
// what belongs to the task's participation.
type Job struct {
	// Signed is the wire.Task with the signature of Config.Key.
	Signed []byte
	// TokenKeys are the keys of the task's tokens, wire.TokenKeys with the registrar's signature.
	// Required if the task has tokens.
	TokenKeys []byte
	// Optimizer makes the optimiser in its initial state; it is called whenever the task is
	// loaded.
	Optimizer func() (coordinator.Learner, error)
	// Report is what the ledger is charged for a report; it must be the Event of the
	// task's mechanism.
	Report dp.Report
	// Budget is the budget of the task alone; the journal has the budget of the population.
	Budget ledger.Config
	// Sample is k, of participation sampled.
	Sample int64
	// Gamma is the chance γ of participation check-in.
	Gamma float64
	// BlockSize is the least number of clients in a block, of participation once.
	BlockSize int64
	// Colluders is the number of a round's reports that are assumed to come from clients that
	// collude with an observer. In a vector sum a report that cannot be read adds no noise. If
	// there are more such reports than Colluders and those that the honest fraction allows
	// for, the round gives no step.
	Colluders int64
	// Declinable says that clients decide whether they take part: the task asks a question.
	Declinable bool
	// Round is how long clients have to report.
	Round time.Duration
	// Pause is the time between a round and the next announcement.
	Pause time.Duration

	// Evaluate, if not nil, is called with the parameters of a model that was released.
	// Its result is shown in the task's Status. The next round waits for it.
	Evaluate func(params []float32) any
	// Beside, if not nil, evaluates released models beside the rounds, in place of Evaluate. Calls
	// come one at a time, and not for each model; Evaluate returns when ctx ends. Close is the
	// last call, after the task has ended.
	Beside evaluator
	// Guard, if not nil, holds back steps that Evaluate finds worse.
	Guard *Guard
	// Measured, if not nil, reads off the learner's state what clients measured in the last released
	// round, for the task's Status.
	Measured func(optimize.State) any
	// Record, if not nil, is called with each message of a charged round that could be
	// opened, in the batch's order; a round that is opened again begins again at place 0.
	// The report is reused after the call. It is not called for vector sums. If it, or
	// one of the next two, returns an error, nothing is released and the round is tried
	// again later.
	Record func(announcement [32]byte, round, place int64, r *randomizer.Report) error
	// RecordSum, if not nil, is called with a vector sum's counts and its number of clients.
	RecordSum func(round int64, counts []int64, clients int64) error
	// Discard, if not nil, is called when a charged round gives no step: its recorded reports
	// are in no model.
	Discard func(round int64) error

	// Close, if not nil, is called once the task has ended here. Nothing of the job but Beside is called
	// after that.
	Close func()

	// Ended says that the task has ended: it is only shown. Only Signed and Budget are
	// required then.
	Ended bool
	// Missing, if not nil, is why this coordinator cannot run a task that has not ended.
	// The task is shown as Unusable and can be stopped; others run. Only Signed and
	// Budget are required then.
	Missing error
}

func (c *Config) check() error {
	switch {
	case len(c.Key) != ed25519.PrivateKeySize:
		return errors.New("coordinator: a signing key is required")
	case c.Keyring == nil || c.Store == nil || c.Journal == nil:
		return errors.New("coordinator: keyring, store and journal are required")
	case c.Workers < 0 || c.LeaseTTL < 0 || c.Poll < 0 || c.Backoff < 0 || c.PauseAfter < 0 || c.PauseAfterVoid < 0:
		return errors.New("coordinator: workers, lease, poll, backoff, pause-after and pause-after-void must not be negative")
	}
	if err := c.Shuffler.Check(); err != nil {
		return err
	}
	if err := c.Opening.check(); err != nil {
		return err
	}
	if a := c.Aggregator; a != nil {
		if u, err := url.Parse(a.URL); err != nil || u.Host == "" || a.Client == nil {
			return fmt.Errorf("coordinator: %q is not the address of an aggregator, or there is no HTTP client for it", a.URL)
		}
	}
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.LeaseTTL, 15*time.Second)
	set(&c.Poll, 20*time.Second)
	set(&c.Backoff, 100*time.Millisecond)
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	if c.Holder == "" {
		c.Holder = "coordinator"
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// CheckJob returns an error unless a coordinator with c's Key and Aggregator could run
// the task. It changes nothing.
func CheckJob(c Config, t Job) error {
	s := &Service{config: c}
	if s.config.Log == nil {
		s.config.Log = slog.New(slog.DiscardHandler)
	}
	_, err := s.checkedRunner(t)
	return err
}

// newRunner checks a task and opens its ledger.
func (s *Service) newRunner(t Job) (*runner, error) {
	r, err := s.checkedRunner(t)
	if err != nil {
		return nil, err
	}
	if r.ledger, err = s.config.Journal.Task(r.id, t.Budget); err != nil {
		return nil, fmt.Errorf("coordinator: task %q: %w", r.task.Name, err)
	}
	return r, nil
}

// checkedRunner returns the runner of a task that was checked, without its ledger.
func (s *Service) checkedRunner(t Job) (*runner, error) {
	message, err := wire.Verify(s.config.Key.Public().(ed25519.PublicKey), wire.LabelTask, t.Signed)
	if err != nil {
		return nil, err
	}
	w, err := wire.Decode[wire.Task](message)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*runner, error) {
		return nil, fmt.Errorf("coordinator: task %q: %w", w.Name, fmt.Errorf(format, args...))
	}
	if t.onlyShown() {
		return s.plainRunner(t, w), nil
	}
	if t.Optimizer == nil || t.Round < time.Millisecond || t.Pause < 0 {
		return fail("an optimizer and a round's duration are required")
	}
	m, err := mechanism.New(w.Mechanism)
	if err != nil {
		return fail("%w", err)
	}
	if g := t.Guard; g != nil && !g.Private && (t.Evaluate == nil || g.Measure == nil || !(g.Fall > 0) || math.IsInf(g.Fall, 1)) {
		return fail("a guard needs an evaluation, a measure and a fall above 0, it is %v", g.Fall)
	}
	if t.Report != m.Event() {
		return fail("report %+v is to be charged, the mechanism promises %+v", t.Report, m.Event())
	}
	if t.Budget.Delta != w.Delta {
		return fail("the budget is counted at delta = %v, the task says %v", t.Budget.Delta, w.Delta)
	}
	r := s.plainRunner(t, w)
	r.mechanism = m
	sum, isSum := m.(*mechanism.VectorSum)
	of, isProved := m.(*mechanism.AggregatedSum)
	if (isSum || isProved) != w.Trust.Is(dp.SumsOnly) {
		return fail("trust %q with mechanism %q", w.Trust, m.Facts().Name)
	}
	if isSum || isProved {
		if w.PerClient() > 1 {
			return fail("%d messages of each client of a vector sum, which takes one", w.PerClient())
		}
		if s.config.Aggregator == nil {
			return fail("a vector sum needs an aggregator")
		}
		if !(t.Budget.Tail > 0) {
			return fail("the budget keeps nothing of delta for the tails of a vector sum's noise")
		}
	}
	if isProved {
		if len(s.config.Aggregator.Key) != ed25519.PublicKeySize {
			return fail("a vector sum with proofs needs the key with which the aggregator signs (aggregator: key:)")
		}
		r.proved = of
		if _, ok := of.Correlation(); ok != (w.Every > 0) || ok && w.Participation != dp.CheckIn {
			return fail("correlated noise of clients in one of %d rounds, participation %s", w.Every, w.Participation)
		}
		if w.Every > 0 && t.Gamma != 1/float64(w.Every) {
			return fail("gamma = %v, a client is in one of %d rounds", t.Gamma, w.Every)
		}
	}
	minUsers, honest := int64(0), 0.
	switch {
	case isSum:
		minUsers, honest = sum.Params.MinUsers, sum.Params.Honest
	case isProved:
		minUsers, honest = of.MinUsers, of.Honest
	}
	if fewer := (coordinator.Config{Colluders: t.Colluders, Honest: honest}).Fewer(); minUsers != 0 && w.MinReports-fewer < minUsers {
		return fail("n-min = %d less %d reports for the colluders is below the %d clients whose noise hides a sum: leave colluders at 0 and say in the task what share is honest", w.MinReports, fewer, minUsers)
	}
	if isSum {
		r.sum = sum
		r.status.Spare = r.allowed(w.MinReports)
	}
	if isSum || isProved {
		// What the noise is worth must hold with tails as small as the budget keeps for them.
		if err := mechanism.CheckSigma(context.Background(), w.Mechanism, min(w.Delta, w.Delta*t.Budget.Tail/vecsum.TailShare), w.Rounds); err != nil {
			return fail("%w", err)
		}
	}
	if r.partSize, r.shareSize, err = mechanism.ContentSizes(m); err != nil {
		return fail("%w", err)
	}
	if r.tokens, err = s.tokenKeys(&t, &w); err != nil {
		return fail("%w", err)
	}
	attached := w.Attachments()
	r.partSize, r.shareSize = attached.Size(r.partSize), attached.Size(r.shareSize)
	if w.Participation == dp.Once && t.BlockSize < 1 {
		return fail("participation once needs a block size")
	}
	switch least := w.MinClients; {
	case least == 0 && w.Participation == dp.Sampled && !t.Declinable:
		return fail("participation sampled needs min-clients, on which the charge of k of n counts")
	case least == 0:
	case least < w.MinReports || w.Participation == dp.Sampled && least < t.Sample || w.Participation == dp.Once && least < t.BlockSize:
		return fail("min-clients = %d must be at least n-min = %d, k and a block", least, w.MinReports)
	case isSum && w.Participation == dp.Once:
		return fail("a vector sum with participation once needs a roster that stays: leave min-clients out")
	}
	o, err := t.Optimizer()
	if err != nil {
		return fail("%w", err)
	}
	if d := len(o.Point()); int64(d) != w.Parameters() {
		return fail("the model has %d parameters, the task %d", d, w.Parameters())
	}
	return r, nil
}

// unknown is a cost that is not known: a process that does not lead a task does not know its
// charges.
var unknown = dp.Number(math.NaN())

// plainRunner returns a runner with nothing but the task and its status.
func (s *Service) plainRunner(t Job, w wire.Task) *runner {
	r := &runner{s: s, t: t, id: wire.Digest(w), task: w, changed: make(chan struct{}), ended: make(chan struct{}), besides: besides{make(chan released, 1)}, replaced: make(chan struct{}), resume: make(chan chan error)}
	r.status = wire.Status{Task: w, ID: r.id, State: Running, Phase: "starting", Until: w.Rounds, Eps: unknown,
		Counts: cloned(wire.Counts{}), Spent: map[string]float64{}}
	r.log = s.config.Log.With("task", w.Name)
	return r
}

// blocks returns the division of n clients into blocks, for participation once.
func (r *runner) blocks(n int64) (schedule.Blocks, error) {
	if r.task.Participation != dp.Once {
		return schedule.Blocks{}, nil
	}
	if least := r.task.MinClients; least > 0 {
		// The number of blocks must stay when n changes. With n at least least, none is too small.
		b, err := schedule.NewBlocks(least, r.t.BlockSize)
		b.Clients, b.Smallest = n, n/b.PerEpoch
		return b, err
	}
	return schedule.NewBlocks(n, r.t.BlockSize)
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

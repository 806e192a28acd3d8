// Package simulate runs a task's three roles in one process. It calls the same client,
// shuffler and coordinator functions as a network, with messages passed as values.
//
// The shuffler sees ids only. A payload is made when the coordinator opens it, one per worker
// at a time, so memory grows by about 40 bytes for each of a round's reports, and not with
// their size. Several messages of a client are drawn as one sum where the mechanism can
// ([randomizer.Several]): the coordinator adds them up anyway. Everything random comes from one seed, keyed by round and client, so results do
// not depend on the number of workers. A seeded run shows what a protocol does; it protects
// nobody.
package simulate

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// summed is a mechanism of whose reports only the sum is seen. A client's own report lacks
// its noise here: AddNoise draws the noise of n clients at once, with the law of their sum.
type summed interface {
	AddNoise(src rng.Source, sum []int64, n int64) error
}

// counter is a mechanism that may count ones. It adds a client's rounded vector of ones at places and
// zeros elsewhere to a sum, in time that does not depend on the dimension; false: it does not count.
type counter interface {
	AddOnes(sum []int64, places []int) bool
}

// few is the largest number of coordinates of a client's gradient that are computed one by one,
// in all its messages of a round.
const few = 2

// Config describes a simulation. Clients, one of Worker, Each and Ones, Coordinator, Client and
// Mechanism are required.
type Config struct {
	Seed    uint64
	Clients int64 // n
	// Worker returns an evaluator for one goroutine, which overwrites grad with client id's
	// gradient at theta.
	Worker func() func(id int64, theta, grad []float32)
	// Each, if not nil, stands in for Worker: it calls do for each of the clients with its
	// gradient at theta, which do may change, from so many goroutines. No two calls at a time
	// have the same worker, from 0.
	Each func(ctx context.Context, round int64, theta []float32, ids []int64, workers int, do func(worker int, id int64, grad []float32) error) error
	// Ones, if not nil, stands in for Worker where gradients are vectors of zeros and ones. It returns
	// an evaluator for one goroutine, which appends the places of the ones of client id's vector at
	// theta. If the mechanism counts ones, a client costs as much as its ones.
	Ones func() func(id int64, theta []float32, places []int) []int
	// CoordinateWorker returns an evaluator of coordinate j of client id's gradient; nil if
	// a coordinate costs as much as a whole gradient.
	CoordinateWorker func() func(id int64, theta []float32, j int) float32
	Client           *client.Client
	Coordinator      *coordinator.Coordinator
	Mechanism        randomizer.Mechanism
	Blocks           schedule.Blocks // if the participation is dp.Once
	// Carry, if not nil, opens the way by which a round's reports reach whoever sums them, so
	// that only the sum is seen. Each client then adds its own noise, and AddNoise is not
	// called. Several goroutines may call carry at once; open is called once, and returns the
	// sum and the number of reports in it. If Carry is nil, a tally adds the reports.
	Carry func(round int64) (carry func(rng.Source, *randomizer.Report) error, open func() (sum []int64, n int64, err error), err error)
	// Every, if not 0, has each client take part in one of so many rounds, beginning with one that it
	// draws, in place of a coin.
	Every   int64
	Dropout float64 // p′, the chance that a participant's report never arrives
	Workers int     // 0 means one per CPU
}

// Simulation holds the roles between rounds.
type Simulation struct {
	config  Config
	workers []*worker
	window  *toeplitz.Window // what the aggregators hold of earlier rounds; nil: nothing
	order   []uint32         // order of the blocks in the present epoch
	dealt   int64
}

type worker struct {
	src        *rng.Stream
	gradient   func(id int64, theta, grad []float32)
	coordinate func(id int64, theta []float32, j int) float32 // nil: compute the whole gradient
	ones       func(id int64, theta []float32, places []int) []int
	places     []int
	grad       []float32
	report     *randomizer.Report
	tally      *coordinator.Tally // tally of the open round
}

// Streams of random numbers of a seed. A stream's path is (stream, round[, client]).
const (
	streamShuffler = iota // permutation key and drawing of participants
	streamCoins           // clients' check-in coins
	streamDropout         // the choice of lost reports
	streamIDs             // report ids
	streamReport          // clients' noise
	streamBlocks          // the blocks of an epoch
	streamSum             // all clients' noise in a sum
	streamTurns           // clients' first rounds
)

// New checks the configuration and returns the simulation, with its workers allocated.
func New(c Config) (*Simulation, error) {
	sources := 0
	for _, given := range []bool{c.Worker != nil, c.Each != nil, c.Ones != nil} {
		if given {
			sources++
		}
	}
	if sources != 1 || c.Client == nil || c.Coordinator == nil || c.Mechanism == nil {
		return nil, errors.New("simulate: one of worker, each and ones, client, coordinator and mechanism are required")
	}
	if n := c.Coordinator.Announce().Population; n != c.Clients {
		return nil, fmt.Errorf("simulate: there are %d clients, the coordinator counts on %d", c.Clients, n)
	}
	if ann := c.Coordinator.Announce(); ann.Participation == dp.Once &&
		(c.Blocks.Clients != ann.Population || c.Blocks.PerEpoch != ann.PerEpoch) {
		return nil, fmt.Errorf("simulate: %d blocks of %d clients, the coordinator counts on %d of %d",
			c.Blocks.PerEpoch, c.Blocks.Clients, ann.PerEpoch, ann.Population)
	}
	if d := c.Coordinator.Dim(); d != c.Mechanism.Facts().Dim {
		return nil, fmt.Errorf("simulate: reports have %d coordinates, the mechanism %d", d, c.Mechanism.Facts().Dim)
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		return nil, fmt.Errorf("simulate: dropout = %v must lie in [0, 1)", c.Dropout)
	}
	if c.Every < 0 || c.Every > 0 && c.Coordinator.Announce().Participation != dp.CheckIn {
		return nil, fmt.Errorf("simulate: every = %d goes with participation %s", c.Every, dp.CheckIn)
	}
	if c.Workers < 0 {
		return nil, fmt.Errorf("simulate: workers = %d must not be negative", c.Workers)
	}
	if c.Workers == 0 {
		c.Workers = runtime.GOMAXPROCS(0)
	}
	s := &Simulation{config: c}
	if err := s.Hold(nil); err != nil {
		return nil, err
	}
	asked := int64(c.Client.Sparse) * max(1, c.Coordinator.Announce().Messages)
	sparse := c.CoordinateWorker != nil && asked > 0 && asked <= few
	for range c.Workers {
		w := &worker{src: rng.Replay(c.Seed), report: c.Mechanism.NewReport()}
		if sparse {
			w.coordinate = c.CoordinateWorker()
		}
		if w.coordinate == nil && c.Worker != nil {
			w.gradient, w.grad = c.Worker(), make([]float32, c.Mechanism.Facts().Dim)
		}
		if c.Ones != nil {
			w.ones, w.grad = c.Ones(), make([]float32, c.Mechanism.Facts().Dim)
			w.gradient = w.vector
		}
		s.workers = append(s.workers, w)
	}
	return s, nil
}

// correlated is a mechanism whose noise may be correlated over rounds.
type correlated interface {
	Correlation() (toeplitz.Strategy, bool)
}

// Held returns the sums without noise that the aggregators hold of earlier rounds, because the noise is
// correlated. They belong to a simulation's state, with the coordinator's.
func (s *Simulation) Held() []toeplitz.Sum {
	if s.window == nil {
		return nil
	}
	return s.window.Held()
}

// Hold brings the aggregators of a simulation to what Held returned.
func (s *Simulation) Hold(held []toeplitz.Sum) error {
	m, ok := s.config.Mechanism.(correlated)
	var strategy toeplitz.Strategy
	if ok {
		strategy, ok = m.Correlation()
	}
	if !ok {
		if len(held) > 0 {
			return errors.New("simulate: sums of earlier rounds are held, but the noise is not correlated")
		}
		return nil
	}
	w, err := toeplitz.NewWindow(strategy, s.config.Mechanism.Facts().Dim, held)
	if err != nil {
		return fmt.Errorf("simulate: %w", err)
	}
	s.window = w
	return nil
}

// vector writes out the vector of which ones tells the places.
func (w *worker) vector(id int64, theta, grad []float32) {
	clear(grad)
	w.places = w.ones(id, theta, w.places[:0])
	for _, j := range w.places {
		grad[j] = 1
	}
}

// Result is the result of one round.
type Result struct {
	Round    int64
	Reports  int64 // clients whose reports were summed
	Rejected int64 // messages that failed the coordinator's check
	Void     bool  // too few reports: nothing is released; charged with trust local only
}

// Round runs one round. progress, if not nil, is called from any goroutine with the number of
// reports opened since its last call. If ctx ends, the round is abandoned with ctx's error
// and the coordinator stays before the round.
func (s *Simulation) Round(ctx context.Context, progress func(reports int64)) (Result, error) {
	ann := s.config.Coordinator.Announce()
	result := Result{Round: ann.Round}
	if err := s.config.Client.Check(ann); err != nil {
		return result, err
	}
	batch, err := s.collect(ann)
	if errors.Is(err, shuffler.ErrTooFew) {
		result.Void = true
		if !ann.Trust.Is(dp.Alone) {
			return result, s.config.Coordinator.Void()
		}
		if err := s.config.Coordinator.Receive(ctx, wire.RoundClosed{Round: ann.Round, Void: true}); err != nil {
			return result, err
		}
		_, _, err := s.config.Coordinator.End()
		return result, err
	}
	if err != nil {
		return result, err
	}
	if err := s.config.Coordinator.Receive(ctx, batch.Closed()); err != nil {
		return result, err
	}
	tallies, err := s.open(ctx, batch, progress)
	if err != nil {
		return result, err
	}
	if err := s.release(ann.Round, tallies); err != nil {
		return result, err
	}
	result.Reports, result.Rejected, err = s.config.Coordinator.End(tallies...)
	if err != nil && s.window != nil {
		s.window.Undo() // the round is still open
	}
	result.Reports /= ann.PerClient()
	return result, err
}

// release makes of a sum what the aggregators show.
func (s *Simulation) release(round int64, tallies []*coordinator.Tally) error {
	m, ok := s.config.Mechanism.(summed)
	if !ok || s.config.Carry != nil {
		return nil
	}
	var n int64
	for _, t := range tallies {
		n += t.Accepted
	}
	if err := s.mix(round, tallies); err != nil {
		return err
	}
	err := m.AddNoise(rng.Replay(s.config.Seed, streamSum, uint64(round)), tallies[0].Sum, n)
	if err != nil && s.window != nil {
		s.window.Undo()
	}
	return err
}

// mix makes of a round's sum, if noise is correlated, what is released of it but for the noise.
func (s *Simulation) mix(round int64, tallies []*coordinator.Tally) error {
	if s.window == nil {
		return nil
	}
	sum := tallies[0].Sum
	for _, t := range tallies[1:] {
		for j, v := range t.Sum {
			sum[j] += v
		}
		clear(t.Sum)
	}
	return s.window.Mix(round, sum)
}

// collect lets the clients decide and the shuffler close the round.
func (s *Simulation) collect(ann wire.Announcement) (wire.Batch, error) {
	round := uint64(ann.Round)
	src := rng.Replay(s.config.Seed, streamShuffler, round)
	var key [16]byte
	binary.LittleEndian.PutUint64(key[:8], src.Uint64())
	binary.LittleEndian.PutUint64(key[8:], src.Uint64())
	sh, err := shuffler.Open(ann, key)
	if err != nil {
		return wire.Batch{}, err
	}
	ids := rng.Replay(s.config.Seed, streamIDs, round)
	losses := rng.Replay(s.config.Seed, streamDropout, round)
	var failed error
	send := func(id int64) {
		var t wire.Ticket
		binary.LittleEndian.PutUint64(t.ID[:8], ids.Uint64())
		binary.LittleEndian.PutUint64(t.ID[8:], ids.Uint64())
		t.Payload = id
		if s.config.Dropout > 0 && client.CheckIn(losses, s.config.Dropout) {
			return
		}
		failed = errors.Join(failed, sh.Accept(t))
	}
	switch ann.Participation {
	case dp.Sampled:
		for _, id := range shuffler.Draw(src, ann) {
			send(int64(id))
		}
	case dp.Once:
		epoch, block := s.config.Blocks.Of(ann.Round)
		if s.dealt != epoch {
			s.order = s.config.Blocks.Draw(rng.Replay(s.config.Seed, streamBlocks, uint64(epoch)), s.order)
			s.dealt = epoch
		}
		from, to := s.config.Blocks.Range(block)
		for _, id := range s.order[from:to] {
			send(int64(id))
		}
	case dp.CheckIn:
		if s.config.Every > 0 {
			turns := rng.Replay(s.config.Seed, streamTurns)
			for id := range ann.Population {
				first, last := client.FirstRound(turns, s.config.Every), int64(0)
				if ann.Round > first { // it has been there in all its turns
					last = ann.Round - 1 - (ann.Round-1-first)%s.config.Every
				}
				if client.Turn(s.config.Every, first, last, ann.Round) {
					send(id)
				}
			}
			break
		}
		coins := rng.Replay(s.config.Seed, streamCoins, round)
		for id := range ann.Population {
			if client.CheckIn(coins, ann.Gamma) {
				send(id)
			}
		}
	default:
		for id := range ann.Population {
			send(id)
		}
	}
	if failed != nil {
		return wire.Batch{}, failed
	}
	batch, dropped, err := sh.Close()
	if err == nil && dropped != (shuffler.Dropped{}) {
		err = fmt.Errorf("simulate: report ids collided: %+v", dropped)
	}
	return batch, err
}

// most is the largest number of reports that a worker takes at a time, some milliseconds'
// work. In a small round it takes fewer, down to least, so that all workers have some.
const most, least = 64, 8

// open runs the charged batch through the workers, into one tally each.
func (s *Simulation) open(ctx context.Context, batch wire.Batch, progress func(int64)) ([]*coordinator.Tally, error) {
	tallies := make([]*coordinator.Tally, len(s.workers))
	for i := range tallies {
		var err error
		if tallies[i], err = s.config.Coordinator.NewTally(); err != nil {
			return nil, err
		}
		s.workers[i].tally = tallies[i]
	}
	var carry func(rng.Source, *randomizer.Report) error
	var total func() ([]int64, int64, error)
	if s.config.Carry != nil {
		var err error
		if carry, total, err = s.config.Carry(batch.Round); err != nil {
			return nil, err
		}
	}
	theta := s.config.Coordinator.Parameters
	// All messages of a client are made at its place in the first run: a sum does not depend on
	// the order of messages, and a gradient is computed once.
	clients := batch.Payloads[:batch.Clients()]
	tallier, counts := s.config.Mechanism.(counter)
	counts = counts && s.config.Ones != nil && carry == nil && batch.Messages <= 1 && tallier.AddOnes(nil, nil)
	one := func(w *worker, id int64, grad []float32) error {
		w.src.Reset(streamReport, uint64(batch.Round), uint64(id))
		if batch.Messages > 1 && s.config.Client.Sums && carry == nil {
			// Only the sum is looked at, so a client's messages are drawn as one sum. None of
			// them is refused: the check refuses honest ones with a chance of e^−100.
			s.config.Client.AddReports(w.src, grad, batch.Messages, w.tally.Sum)
			w.tally.Accepted += batch.Messages
			return nil
		}
		for j := range max(1, batch.Messages) {
			switch {
			case grad == nil:
				s.config.Client.ReportAt(w.src, func(j int) float32 { return w.coordinate(id, theta, j) }, w.report)
			case j == 0:
				s.config.Client.Report(w.src, grad, w.report)
			default:
				s.config.Client.Again(w.src, grad, w.report)
			}
			if carry == nil {
				w.tally.Open(w.report)
			} else if err := carry(w.src, w.report); err != nil {
				return err
			}
		}
		return nil
	}
	done := func(n int64) {
		if progress != nil {
			progress(n)
		}
	}
	var err error
	if s.config.Each != nil {
		err = s.config.Each(ctx, batch.Round, theta, clients, len(s.workers), func(w int, id int64, grad []float32) error {
			done(1)
			return one(s.workers[w], id, grad)
		})
	} else {
		chunk := min(most, max(least, int64(len(clients)/(2*len(s.workers)))))
		err = Parts(ctx, s.workers, int64(len(clients)), chunk, func(w *worker, _ int, from, to int64) error {
			for _, id := range clients[from:to] {
				if counts {
					w.places = w.ones(id, theta, w.places[:0])
					tallier.AddOnes(w.tally.Sum, w.places)
					w.tally.Accepted++
					continue
				}
				if w.coordinate == nil {
					w.gradient(id, theta, w.grad)
				}
				if err := one(w, id, w.grad); err != nil {
					return err
				}
			}
			done(to - from)
			return nil
		})
	}
	if err != nil {
		return nil, err
	}
	if carry != nil {
		sum, n, err := total()
		if err != nil {
			return nil, err
		}
		if err := tallies[0].AddSum(sum, n); err != nil {
			return nil, err
		}
	}
	return tallies, nil
}

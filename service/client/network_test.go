package client_test

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/learn/schedule"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/simulate"
	"github.com/riffle-dp/riffle/service/client"
)

const seed = 11

// Streams of a simulation's seed; simulate names them.
const (
	streamShuffler, streamCoins = 0, 1
	streamReport, streamBlocks  = 4, 5
)

// points is the population whose gradients gradientOf has.
type points int64

func (p points) worker() func(id int64, theta, grad []float32) {
	return func(id int64, theta, grad []float32) { gradientOf(id)(theta, grad) }
}

// adder carries a simulation's reports to their sum.
type adder struct {
	mu  sync.Mutex
	sum []int64
	n   int64
}

func (a *adder) carry(_ rng.Source, r *randomizer.Report) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for j, v := range r.Value {
		a.sum[j] += int64(v)
	}
	a.n++
	return nil
}
func (a *adder) open() ([]int64, int64, error) { return a.sum, a.n, nil }

func sumTask(t *testing.T, n, min int64) wire.Mechanism {
	t.Helper()
	p, err := vecsum.Tight(vecsum.Target{Sigma: 1, Delta: 1e-5, Users: n, MinUsers: min, Dim: dim, Radius: 1, Rounds: 4, Kind: vecsum.Skellam})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(context.Background(), 1e-5, 4)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	return m.Describe()
}

// Deployed clients with a source that is played again give the model of a
// simulation, bit for bit: what they send is what the round functions say.
func TestNetworkIsTheSimulation(t *testing.T) {
	const n, rounds = 12, 4
	plain := func(name, mode string) wire.Mechanism {
		return wire.Mechanism{Name: name, Dim: dim, Clip: 1, ClipMode: mode, Eps0: 2}
	}
	for name, c := range map[string]struct {
		trust         dp.Trust
		participation dp.Participation
		mechanism     wire.Mechanism
	}{
		"privunit all":       {dp.Shuffle, dp.All, plain("privunit", "norm")},
		"privunit sampled":   {dp.Shuffle, dp.Sampled, plain("privunit", "norm")},
		"rinf check-in":      {dp.Shuffle, dp.CheckIn, plain("rinf", "coordinate")},
		"rinf once":          {dp.Shuffle, dp.Once, plain("rinf", "norm")},
		"local laplace":      {dp.Local, dp.All, plain("laplace", "norm")},
		"local krr check-in": {dp.Local, dp.CheckIn, plain("signed-krr", "norm")},
		"sum all":            {dp.Distributed, dp.All, sumTask(t, n, 2)},
		"sum sampled":        {dp.Distributed, dp.Sampled, sumTask(t, n, 2)},
		"sum check-in":       {dp.Distributed, dp.CheckIn, sumTask(t, n, 2)},
		"sum once":           {dp.Distributed, dp.Once, sumTask(t, n, 2)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				task := wire.Task{Population: wire.ID{3}, Name: name, Trust: c.trust, Participation: c.participation,
					MinReports: 2, Rounds: rounds, Delta: 1e-5, Mechanism: c.mechanism}
				suite := wire.X25519
				if c.participation == dp.Sampled {
					suite = wire.X25519MLKEM768
				}
				w := newWorldOf(t, suite, n, task)
				theirs, blocks := w.newCoordinator(t, n)
				want := w.simulate(t, n, rounds, blocks)

				config := w.config()
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				fleet.Replay(w.coins, w.noise)
				done := make(chan error, 1)
				go func() { done <- fleet.Run(ctx) }()
				var sent int
				for round := int64(1); round <= rounds; round++ {
					ann := w.fill(theirs.Announce())
					drawn := w.draw(ann, blocks)
					w.publish(ann, theirs.Parameters, drawn)
					reports := w.wait(ctx, len(drawn))
					sent += len(drawn)
					if len(drawn) < 2 {
						if err := theirs.Void(); err != nil {
							t.Fatal(err)
						}
						continue
					}
					w.close(t, theirs, reports)
				}
				w.end()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if got := theirs.Parameters; !slices.Equal(got, want) {
					t.Errorf("the network's model is %v, the simulation's %v", got, want)
				}
				s := fleet.Snapshot()
				if s.Rounds != rounds || s.Reports[client.Sent] != int64(sent) || len(s.Declined) != 0 || len(s.Refusals) != 0 || s.Reports[client.Lost] != 0 {
					t.Errorf("snapshot %+v, want %d rounds, %d sent", s, rounds, sent)
				}
				if err := fleet.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

func (w *world) newCoordinator(t *testing.T, n int64) (*coordinator.Coordinator, schedule.Blocks) {
	t.Helper()
	rates, err := optimize.ParseSchedule("0.5")
	if err != nil {
		t.Fatal(err)
	}
	o, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: dim, Schedule: rates, Start: make([]float64, dim)})
	if err != nil {
		t.Fatal(err)
	}
	book, err := ledger.New(ledger.Config{Accountant: new(account.Accountant), Delta: 1e-5, MaxEps: 1e3})
	if err != nil {
		t.Fatal(err)
	}
	c := coordinator.Config{Task: wire.Digest(w.task), Optimizer: o, Mechanism: w.mechanism, Report: w.mechanism.Event(), Ledger: book,
		Trust: w.task.Trust, Participation: w.task.Participation, Population: n, MinReports: w.task.MinReports, Clip: w.task.Mechanism.Clip}
	switch c.Participation {
	case dp.Sampled:
		c.Sample = 5
	case dp.CheckIn:
		c.Gamma = .6
	case dp.Once:
		if c.Blocks, err = schedule.NewBlocks(n, 5); err != nil {
			t.Fatal(err)
		}
	}
	out, err := coordinator.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return out, c.Blocks
}

func (w *world) simulate(t *testing.T, n, rounds int64, blocks schedule.Blocks) []float32 {
	t.Helper()
	co, _ := w.newCoordinator(t, n)
	norm, err := mechanism.Norm(w.task.Mechanism)
	if err != nil {
		t.Fatal(err)
	}
	reporter, err := pure.New(pure.Config{Mechanism: w.mechanism, Clip: w.task.Mechanism.Clip, Norm: norm,
		ClipMode: pure.ClipMode(w.task.Mechanism.ClipMode)})
	if err != nil {
		t.Fatal(err)
	}
	config := simulate.Config{Seed: seed, Clients: n, Worker: points(n).worker, Client: reporter, Coordinator: co, Mechanism: w.mechanism, Blocks: blocks}
	if w.task.Trust == dp.Distributed {
		config.Carry = func(int64) (func(rng.Source, *randomizer.Report) error, func() ([]int64, int64, error), error) {
			a := &adder{sum: make([]int64, dim)}
			return a.carry, a.open, nil
		}
	}
	s, err := simulate.New(config)
	if err != nil {
		t.Fatal(err)
	}
	for range rounds {
		if _, err := s.Round(context.Background(), nil); err != nil {
			t.Fatal(err)
		}
	}
	return slices.Clone(co.Parameters)
}

// coins is the source that a simulation's client flips its coin with: one source
// for all of them, in turn.
func (w *world) coins(id wire.ID, round int64) rng.Source {
	src := rng.Replay(seed, streamCoins, uint64(round))
	for range w.at[id] {
		pure.CheckIn(src, .6)
	}
	return src
}

func (w *world) noise(id wire.ID, round int64) rng.Source {
	return rng.Replay(seed, streamReport, uint64(round), uint64(w.at[id]))
}

// draw is who reports in a simulation.
func (w *world) draw(ann wire.Announcement, blocks schedule.Blocks) map[int]bool {
	out := map[int]bool{}
	switch ann.Participation {
	case dp.Sampled:
		src := rng.Replay(seed, streamShuffler, uint64(ann.Round))
		src.Uint64()
		src.Uint64()
		for _, i := range shuffler.Draw(src, ann) {
			out[i] = true
		}
	case dp.Once:
		epoch, block := blocks.Of(ann.Round)
		from, to := blocks.Range(block)
		for _, i := range blocks.Draw(rng.Replay(seed, streamBlocks, uint64(epoch)), nil)[from:to] {
			out[int(i)] = true
		}
	default:
		for _, m := range w.members {
			id := wire.ClientID(m.Credential.Public())
			if ann.Participation == dp.All || pure.CheckIn(w.coins(id, ann.Round), ann.Gamma) {
				out[w.at[id]] = true
			}
		}
	}
	return out
}

// close is what shuffler, coordinator and aggregator do with a round's reports.
func (w *world) close(t *testing.T, co *coordinator.Coordinator, reports map[wire.ID]wire.Report) {
	t.Helper()
	round, err := shuffler.Open(w.open, [16]byte{1})
	if err != nil {
		t.Fatal(err)
	}
	var all []wire.Report
	for _, r := range reports {
		if err := round.Accept(wire.Ticket{Sender: r.Client, ID: r.ID, Payload: int64(len(all))}); err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	batch, twice, err := round.Close()
	if err != nil || twice != (shuffler.Dropped{}) {
		t.Fatal(twice, err)
	}
	if err := co.Receive(t.Context(), batch.Closed()); err != nil {
		t.Fatal(err)
	}
	tally, err := co.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	var messages [][]byte
	r := w.mechanism.NewReport()
	for _, p := range batch.Payloads {
		part, err := w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, all[p].Part)
		if err != nil {
			t.Fatal(err)
		}
		if w.task.Trust != dp.Distributed {
			if err := randomizer.DecodeReport(part, w.mechanism, r); err != nil {
				t.Fatal(err)
			}
			tally.Open(r)
			continue
		}
		share, err := w.rings[envelope.Aggregator].OpenPart(envelope.Aggregator, w.digest, all[p].Share)
		if err != nil {
			t.Fatal(err)
		}
		messages = append(messages, part, share)
	}
	if messages != nil {
		s, err := w.mechanism.(*mechanism.VectorSum).Shares(w.digest)
		if err != nil {
			t.Fatal(err)
		}
		sum, k, err := s.Sum(messages)
		if err != nil {
			t.Fatal(err)
		}
		if err := tally.AddSum(sum, k); err != nil {
			t.Fatal(err)
		}
	}
	if n, rejected, err := co.End(tally); err != nil || rejected != 0 || n != int64(len(reports)) {
		t.Fatal(n, rejected, err)
	}
}

// What a report's size and header show is the same whatever the data.
func TestReportsOfARoundHaveOneSize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := newWorld(t, 6, wire.Task{Population: wire.ID{3}, Trust: dp.Shuffle, Participation: dp.All, MinReports: 2, Rounds: 1,
			Delta: 1e-5, Mechanism: wire.Mechanism{Name: "laplace", Dim: dim, Clip: 1, ClipMode: "norm", Eps0: 2}})
		w.publish(w.announcement(1, make([]float32, dim)), make([]float32, dim), nil)
		fleet, err := client.NewFleet(w.config(), w.members)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		w.wait(ctx, 6)
		w.end()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		size, err := envelope.ReportSize(wire.X25519, w.open.ReportBytes, w.open.ShareBytes)
		if err != nil {
			t.Fatal(err)
		}
		ids := map[wire.ID]bool{}
		for id, body := range w.got {
			if int64(len(body)) != size || binary.LittleEndian.Uint16(body) != uint16(wire.KindReport)<<8|wire.Version {
				t.Errorf("a report of %d bytes, want %d", len(body), size)
			}
			ids[w.reports[id].ID] = true
		}
		if len(ids) != 6 {
			t.Errorf("%d report ids of 6 clients", len(ids))
		}
		if err := fleet.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

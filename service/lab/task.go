package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	pure "github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Dim is the number of a task's parameters.
const Dim = 5

var population = wire.ID{7}

// GradientOf is client i's gradient: of ½‖θ − x_i‖², for a point that differs.
func GradientOf(i int64) func(theta, grad []float32) {
	return func(theta, grad []float32) {
		for j := range grad {
			grad[j] = theta[j] - float32(math.Sin(float64(7*i+int64(j))))
		}
	}
}

type design struct{ users, least, rounds int64 }

var (
	designing sync.Mutex
	designs   = map[design]wire.Mechanism{} // they take a while
)

// Sum describes a vector sum to which each of at least so many clients adds noise.
func Sum(t testing.TB, users, least, rounds int64) wire.Mechanism {
	t.Helper()
	designing.Lock()
	defer designing.Unlock()
	d := design{users, least, rounds}
	if m, ok := designs[d]; ok {
		return m
	}
	p, err := vecsum.Tight(vecsum.Target{Sigma: 1, Delta: 1e-6, Users: users, MinUsers: least, Dim: Dim, Radius: 1, Rounds: rounds, Kind: vecsum.Skellam})
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(t.Context(), 1e-6, rounds)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewVectorSum(p, sigma)
	if err != nil {
		t.Fatal(err)
	}
	designs[d] = m.Describe()
	return designs[d]
}

// Proved describes a vector sum with proofs of the norms, to which the aggregators add noise.
func Proved(t testing.TB, users, rounds int64) wire.Mechanism {
	t.Helper()
	p, err := vecsum.NewAggregated(users, Dim, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(rounds)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(p, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	return m.Describe()
}

// makeTask makes and signs the task. A registrar that gives tokens is started for that.
func (l *Lab) makeTask() {
	l.t.Helper()
	l.Task = wire.Task{Population: population, Name: "lab", Trust: dp.Shuffle, Participation: dp.All, MinReports: 3, Rounds: 3, Delta: 1e-6,
		Mechanism: wire.Mechanism{Name: "privunit", Dim: Dim, Clip: 1, ClipMode: "norm", Eps0: 2}}
	if l.c.Task != nil {
		l.c.Task(&l.Task)
	}
	if l.Task.Participation == dp.Sampled && l.Task.MinClients == 0 {
		l.Task.MinClients = int64(l.c.Clients)
	}
	m, err := mechanism.New(l.Task.Mechanism)
	l.must(err)
	l.job = coordinator.Job{Report: m.Event(), Round: time.Hour, Budget: ledger.Config{Accountant: accountant, Delta: l.Task.Delta, Tail: vecsum.TailShare, MaxEps: mechanism.MostEps},
		Optimizer: func() (pure.Learner, error) {
			return optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: Dim, Schedule: func(int64) float64 { return .5 }, Momentum: .5})
		}}
	switch l.Task.Participation {
	case dp.Sampled:
		l.job.Sample = l.Task.MinReports + 1
	case dp.CheckIn:
		l.job.Gamma = .75
	case dp.Once:
		l.job.BlockSize = l.Task.MinReports
	}
	if l.c.Job != nil {
		l.c.Job(&l.job)
	}
	if l.c.Tokens {
		l.Start(Registrar)
		l.makeTokens()
	}
	l.ID = wire.Digest(l.Task)
	l.job.Signed = wire.Sign(l.keys[Coordinator], wire.LabelTask, wire.Encode(l.Task))
}

// makeTokens asks the registrar for the keys of the task's tokens.
func (l *Lab) makeTokens() {
	l.t.Helper()
	var epoch wire.ID
	_, _ = rand.Read(epoch[:])
	address := fmt.Sprintf("%s/v1/epochs/%x?rounds=%d&messages=%d", l.doors["registrar for coordinator"].url, epoch, l.Task.LastRound(), l.Task.PerClient())
	l.Until(func() bool {
		signed, _, err := endpoint.Do(context.Background(), l.peer(), http.MethodPut, address, nil, 1<<20)
		if refused := (*endpoint.Refusal)(nil); errors.As(err, &refused) && batch.IsRefused(err) == nil {
			return false // the keys are being made
		}
		l.must(err)
		l.job.TokenKeys = signed
		return true
	})
	message, err := wire.Verify(public(l.keys[Registrar]), wire.LabelTokenKeys, l.job.TokenKeys)
	l.must(err)
	m, err := wire.Decode[wire.TokenKeys](message)
	l.must(err)
	l.Task.Tokens = wire.Tokens{Epoch: epoch, Keys: wire.Digest(m)}
}

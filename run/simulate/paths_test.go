package simulate

import (
	"math"
	"slices"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// seen records who was asked for a gradient.
type seen struct {
	points
	mu  *sync.Mutex
	ids *[]int64
}

func (p seen) worker() func(id int64, theta, grad []float32) {
	one := p.points.worker()
	return func(id int64, theta, grad []float32) {
		p.mu.Lock()
		*p.ids = append(*p.ids, id)
		p.mu.Unlock()
		one(id, theta, grad)
	}
}

func TestOnceAsksEveryClientOnceAnEpoch(t *testing.T) {
	var ids []int64
	s, co := build(t, setup{n: 100, participation: dp.Once, k: 30, seed: 3, workers: 2,
		worker: seen{points{}, new(sync.Mutex), &ids}.worker})
	var orders [2][]int64
	for epoch := range 2 {
		ids = nil
		for _, k := range rounds(t, s, 3) {
			if k != 33 && k != 34 {
				t.Errorf("a block of %d reports, want 33 or 34", k)
			}
		}
		orders[epoch] = slices.Clone(ids)
		slices.Sort(ids)
		for i, id := range ids {
			if id != int64(i) {
				t.Fatalf("epoch %d asked %v", epoch+1, ids)
			}
		}
	}
	slices.Sort(orders[0][:34])
	slices.Sort(orders[1][:34])
	if slices.Equal(orders[0][:34], orders[1][:34]) {
		t.Error("two epochs have the same first block")
	}
	if n := len(co.State().Charged); n != 2 {
		t.Errorf("%d charges for two epochs", n)
	}
}

// TestCoordinatesGiveTheModelOfGradients runs R∞ both ways. Of more than two coordinates, in all messages of
// a round, the gradient is computed once.
func TestCoordinatesGiveTheModelOfGradients(t *testing.T) {
	const dim, n = 12, 200
	run := func(byCoordinate func() func(id int64, theta []float32, j int) float32, coordinates int, messages int64) []float32 {
		m, err := randomizer.New(randomizer.RInf, randomizer.Config{Dim: dim, Radius: .3, Eps0: 2, Bits: coordinates})
		if err != nil {
			t.Fatal(err)
		}
		opt, err := optimize.NewCLDPSGD(optimize.CLDPSGDConfig{Dim: dim, Schedule: func(int64) float64 { return .5 }})
		if err != nil {
			t.Fatal(err)
		}
		book, err := ledger.New(ledger.Config{Accountant: counting{}, Delta: 1e-5, MaxEps: 100})
		if err != nil {
			t.Fatal(err)
		}
		co, err := coordinator.New(coordinator.Config{Optimizer: opt, Mechanism: m, Report: m.Event(), Ledger: book,
			Trust: dp.Shuffle, Participation: dp.All, Population: n, MinReports: 1, Messages: messages, Clip: .3})
		if err != nil {
			t.Fatal(err)
		}
		cl, err := client.New(client.Config{Mechanism: m, ClipMode: client.ClipCoordinate, Clip: .3, Norm: math.Inf(1)})
		if err != nil {
			t.Fatal(err)
		}
		s, err := New(Config{Seed: 5, Clients: n, Worker: points{}.worker, CoordinateWorker: byCoordinate, Client: cl, Coordinator: co, Mechanism: m, Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		rounds(t, s, 4)
		return slices.Clone(co.Parameters)
	}
	for _, c := range []struct {
		coordinates int
		messages    int64
		each        int // evaluations for a client and round
	}{{1, 0, 1}, {2, 0, 2}, {3, 0, 0}, {1, 2, 2}, {1, 3, 0}, {2, 2, 0}} {
		asked := 0
		byCoordinate := func() func(id int64, theta []float32, j int) float32 {
			return func(id int64, theta []float32, j int) float32 {
				asked++
				return theta[j] - float32(id%7)/7
			}
		}
		got, want := run(byCoordinate, c.coordinates, c.messages), run(nil, c.coordinates, c.messages)
		if !slices.Equal(got, want) {
			t.Errorf("%+v: %v, want %v", c, got, want)
		}
		if asked != 4*n*c.each {
			t.Errorf("%+v: %d evaluations, want %d", c, asked, 4*n*c.each)
		}
	}
}

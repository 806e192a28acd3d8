package client_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// Over a network, and over restarts, a coordinator that announces rounds again under other announcements, out of
// order or with others left out gets at most one report of each client in any 3 rounds.
func TestTurnsOverANetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}
		const n = 6
		p, err := vecsum.NewCorrelated(n, dim, 1, 40, s)
		if err != nil {
			t.Fatal(err)
		}
		sigma, _, err := p.Sigma(9)
		if err != nil {
			t.Fatal(err)
		}
		m, err := mechanism.NewCorrelatedSum(p, s, sigma, n)
		if err != nil {
			t.Fatal(err)
		}
		task := wire.Task{Population: wire.ID{3}, Trust: dp.Distributed, Participation: dp.CheckIn, MinReports: 2, Rounds: 20, Delta: 1e-5,
			Mechanism: m.Describe(), Every: 3}
		w := newWorld(t, n, task)
		config := w.config()
		seen := newWatch()
		config.Watch = seen.tell
		theta := make([]float32, dim)
		in := map[wire.ID][]int64{}
		opens := time.Now().Add(-time.Second).UnixMilli()
		for process, rounds := range [][]int64{{1, 2, 4}, {3, 5}, {5, 6, 9}, {2, 7, 10, 11}} {
			fleet, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			for i, round := range rounds {
				a := w.announcement(round, theta)
				opens++
				a.Opens = opens // so that no two are equal
				w.publish(a, theta, nil)
				if i == 0 {
					go func() { done <- fleet.Run(running) }()
				}
				for decided := 0; decided < n; {
					select {
					case got := <-seen:
						if got.Round != round || got.Client == (wire.ID{}) {
							continue
						}
						decided++
						if got.What == client.Sent {
							in[got.Client] = append(in[got.Client], round)
						} else if got.What != client.Passed && got.What != client.Declined {
							t.Errorf("round %d: %+v", round, got)
						}
					case <-ctx.Done():
						t.Fatalf("process %d: %d of %d have decided about round %d", process, decided, n, round)
					}
				}
			}
			stop()
			if err := errors.Join(<-done, fleet.Close()); err != nil {
				t.Fatal(err)
			}
		}
		for id, rounds := range in {
			for i := range rounds {
				if i > 0 && rounds[i] < rounds[i-1]+3 {
					t.Errorf("client %x reports in rounds %v", id[:4], rounds)
				}
			}
			if len(rounds) < 2 {
				t.Errorf("client %x reports in rounds %v only", id[:4], rounds)
			}
		}
		if len(in) != n {
			t.Errorf("%d of %d clients have reported", len(in), n)
		}
	})
}

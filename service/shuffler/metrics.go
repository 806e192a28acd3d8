package shuffler

import (
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Snapshot counts what a service has done since it was made. It says nothing of single
// clients.
type Snapshot struct {
	Accepted int64                 // answered with 204
	Refused  map[wire.Reason]int64 // refused reports, by reason
	Rounds   map[roundState]int64  // number of rounds that this process moved to each state
	Declined map[wire.Reason]int64 // rounds that were not opened, by reason
	Open     int64                 // open rounds, as far as this process knows
	// Stages holds the time spent on each part of the work. A report has the stages receive,
	// open (opening the outer seal), verify (checking the MAC) and store (waiting for its
	// block). The others are block (writing a block), pass-1 (dealing a bucket) and pass-2
	// (collecting and cutting one).
	Stages map[string]spent
}

// spent is the number of passes through a stage and their total wall-clock time.
type spent struct {
	Count   int64
	Seconds float64
}

type metrics struct {
	accepted                                          atomic.Int64
	refused, declined                                 tally
	receive, open, verify, store, block, pass1, pass2 stage
	closed, void, released, opened, abandoned         atomic.Int64
}

type stage struct{ count, nanos atomic.Int64 }

func (s *stage) since(t time.Time) {
	s.count.Add(1)
	s.nanos.Add(int64(time.Since(t)))
}

func (s *stage) spent() spent { return spent{s.count.Load(), float64(s.nanos.Load()) / 1e9} }

// Snapshot returns the counts so far.
func (s *Service) Snapshot() Snapshot {
	m := &s.metrics
	out := Snapshot{Accepted: m.accepted.Load(),
		Rounds: map[roundState]int64{Open: m.opened.Load(), Closed: m.closed.Load(), Void: m.void.Load(), Released: m.released.Load(),
			Abandoned: m.abandoned.Load()},
		Stages: map[string]spent{"receive": m.receive.spent(), "open": m.open.spent(), "verify": m.verify.spent(),
			"store": m.store.spent(), "block": m.block.spent(), "pass-1": m.pass1.spent(), "pass-2": m.pass2.spent()}}
	out.Refused, _ = m.refused.snapshot()
	out.Declined, _ = m.declined.snapshot()
	for _, r := range s.live() {
		if !r.closed.Load() {
			out.Open++
		}
	}
	return out
}

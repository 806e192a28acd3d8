// Package schedule plans over several rounds which client reports in which round, and says
// which event such a plan is charged as.
package schedule

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// Blocks divides every epoch into ⌊n/B⌋ rounds. The clients are dealt out to that many
// disjoint blocks, whose sizes differ by at most 1 and are at least B. The clients of block b
// report once, in round b of the epoch.
//
// Source: shuffled Laplace SGD, Chen, Cao and Ge, arXiv:2401.04306, Algorithm 1 (our copy
// keeps only the proof of Theorem 3). There an epoch splits the data into blocks, shuffles
// the blocks, and steps along the noisy mean gradient of one block after another. A block is
// what one client holds, its m samples, and the step follows that client's single report.
// That is B = 1 here, with the client's data from dataset.Population. With B > 1 a step averages B
// clients' reports; without a trusted owner of blocks m stays 1.
type Blocks struct {
	Clients  int64 // n
	PerEpoch int64 // the number of blocks, the rounds of an epoch
	Smallest int64 // the number of clients in the smallest block, at least B
}

// NewBlocks divides n clients, 1 ≤ n ≤ 2³², into blocks of at least B = size clients, 1 ≤ B ≤
// n.
func NewBlocks(clients, size int64) (Blocks, error) {
	if clients < 1 || clients > 1<<32 {
		return Blocks{}, fmt.Errorf("schedule: n = %d clients must be at least 1 and at most 2^32", clients)
	}
	if int64(int(clients)) != clients {
		return Blocks{}, fmt.Errorf("schedule: n = %d clients are more than this machine's words can count", clients)
	}
	if size < 1 || size > clients {
		return Blocks{}, fmt.Errorf("schedule: block size = %d must be at least 1 and at most n = %d", size, clients)
	}
	blocks := clients / size
	return Blocks{clients, blocks, clients / blocks}, nil
}

// Epochs returns the number of epochs that begin within the given number of rounds; 0 if
// rounds is below 1.
func (b Blocks) Epochs(rounds int64) int64 {
	if rounds < 1 {
		return 0
	}
	return (rounds-1)/b.PerEpoch + 1 // cannot overflow
}

// Of returns the epoch, from 1, and the block, from 0, of round t = 1, 2, ….
func (b Blocks) Of(round int64) (epoch, block int64) {
	if round < 1 {
		panic(fmt.Sprintf("schedule: round %d must be at least 1", round))
	}
	return (round-1)/b.PerEpoch + 1, (round - 1) % b.PerEpoch
}

// Range returns the places from ≤ place < to of a block, 0 ≤ block < PerEpoch, in an order of
// all clients, such as that of Draw.
func (b Blocks) Range(block int64) (from, to int64) {
	if block < 0 || block >= b.PerEpoch {
		panic(fmt.Sprintf("schedule: block %d outside the %d of an epoch", block, b.PerEpoch))
	}
	larger := b.Clients % b.PerEpoch // the first blocks have one client more
	from = block*b.Smallest + min(block, larger)
	to = from + b.Smallest
	if block < larger {
		to++
	}
	return from, to
}

// Epoch returns what one whole epoch costs a client. It is charged before the epoch's first
// batch is opened. A client is in one block, so the epoch costs as much as its most expensive
// block, even against an observer who knows the blocks. k is the least number of reports that
// any block releases, at most Smallest; a block with fewer must be destroyed unread. Epochs
// compose: dp.Repeat.
//
// The event is one round of All among k clients, in which k reports shuffle with each other
// and nothing else hides them. It is not Once, because an accountant takes Once rounds to be
// disjoint and a client reports again in the next epoch. It holds for public blocks, the same
// in every epoch or not, and for any drop-outs that do not depend on the data.
func (b Blocks) Epoch(report dp.Report, k int64) (dp.Round, error) {
	if k < 1 || k > b.Smallest {
		return dp.Round{}, fmt.Errorf("schedule: k = %d reports of a block must be at least 1 and at most the %d of the smallest", k, b.Smallest)
	}
	r := dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: k}
	if report.Class == dp.GaussianSum { // counted for sums only
		r.Trust = dp.Distributed
	}
	return r, r.Validate()
}

// Draw deals the clients out uniformly at random, exactly: the clients of a block are those at
// its Range of the result, in no meaningful order. Public blocks may come from
// rng.Replay(public seed, epoch); secret ones must come from rng.Secure(). reuse is nil or an
// order that is not needed any more, whose memory Draw takes over; 4 bytes per client.
func (b Blocks) Draw(src rng.Source, reuse []uint32) []uint32 {
	order := reuse
	if int64(len(order)) != b.Clients {
		order = make([]uint32, b.Clients)
	}
	// Start from the identity, so that the result does not depend on the old order.
	for i := range order {
		order[i] = uint32(i)
	}
	sample.Shuffle(src, order)
	return order
}

// Package schedule plans over several rounds which client reports in which round, and says
// which event such a plan is charged as.
package schedule

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// BlocksConfig describes a division of every epoch into blocks.
type BlocksConfig struct {
	// Clients is n, at least 1 and at most 2³². Required.
	Clients int64
	// Size is B, 1 ≤ B ≤ n, the least number of clients in a block. Required.
	Size int64
}

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
}

// NewBlocks returns the division that c describes.
func NewBlocks(c BlocksConfig) (Blocks, error) {
	if c.Clients < 1 || c.Clients > 1<<32 {
		return Blocks{}, fmt.Errorf("schedule: n = %d clients must be at least 1 and at most 2^32", c.Clients)
	}
	if int64(int(c.Clients)) != c.Clients {
		return Blocks{}, fmt.Errorf("schedule: n = %d clients are more than this machine's words can count", c.Clients)
	}
	if c.Size < 1 || c.Size > c.Clients {
		return Blocks{}, fmt.Errorf("schedule: block size = %d must be at least 1 and at most n = %d", c.Size, c.Clients)
	}
	return Blocks{c.Clients, c.Clients / c.Size}, nil
}

// Smallest returns the number of clients in the smallest block, at least B.
func (b Blocks) Smallest() int64 { return b.Clients / b.PerEpoch }

// Len returns the number of clients in a block, 0 ≤ block < PerEpoch.
func (b Blocks) Len(block int64) int64 { return b.start(block+1) - b.start(block) }

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

// Rounds returns the number of rounds in the given number of epochs.
func (b Blocks) Rounds(epochs int64) int64 { return epochs * b.PerEpoch }

// start returns the number of clients before a block.
func (b Blocks) start(block int64) int64 {
	q, r := b.Clients/b.PerEpoch, b.Clients%b.PerEpoch
	return block*q + min(block, r)
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
	if k < 1 || k > b.Smallest() {
		return dp.Round{}, fmt.Errorf("schedule: k = %d reports of a block must be at least 1 and at most the %d of the smallest", k, b.Smallest())
	}
	r := dp.Round{Report: report, Trust: dp.Shuffle, Participation: dp.All, Population: k}
	return r, r.Validate()
}

// Order says which clients are in which block of one epoch.
type Order struct {
	blocks  Blocks
	clients []uint32
}

// Draw deals the clients out uniformly at random, exactly. Public blocks may come from
// rng.Replay(public seed, epoch); secret ones must come from rng.Secure(). reuse is nil or an
// Order that is not needed any more, whose memory Draw takes over; 4 bytes per client.
func (b Blocks) Draw(src rng.Source, reuse *Order) *Order {
	o := reuse
	if o == nil || int64(len(o.clients)) != b.Clients {
		o = &Order{clients: make([]uint32, b.Clients)}
	}
	o.blocks = b
	// Start from the identity, so that the result does not depend on the old order.
	for i := range o.clients {
		o.clients[i] = uint32(i)
	}
	sample.Shuffle(src, o.clients)
	return o
}

// Members returns the clients of a block, 0 ≤ block < PerEpoch, in no meaningful order. They
// are shared, not copied.
func (o *Order) Members(block int64) []uint32 {
	if block < 0 || block >= o.blocks.PerEpoch {
		panic(fmt.Sprintf("schedule: block %d outside the %d of an epoch", block, o.blocks.PerEpoch))
	}
	from, to := o.blocks.start(block), o.blocks.start(block+1)
	return o.clients[from:to:to]
}

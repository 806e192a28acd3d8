package schedule

import (
	"fmt"
	"math"
)

// Batches says which clients report in which round of one run: either once
// each, in disjoint batches, stage after stage, or all of them in every round.
//
// Clients are places 0, 1, … of an order that the caller keeps; it may be any
// order that does not depend on the data. Who is in which batch is public.
type Batches struct {
	stages []Blocks // one epoch each; nil if all report in every round
	from   []int64  // the first place of a stage
	first  []int64  // the rounds before a stage

	clients, rounds, uses int64
}

// OnePass returns the plan in which every client reports once: stage i takes
// the next stages[i].Clients places and deals them out into batches of at least
// stages[i].Size, one batch a round.
func OnePass(stages ...BlocksConfig) (Batches, error) {
	if len(stages) == 0 {
		return Batches{}, fmt.Errorf("schedule: one pass without stages")
	}
	b := Batches{uses: 1}
	for i, c := range stages {
		blocks, err := NewBlocks(c)
		if err != nil {
			return Batches{}, fmt.Errorf("stage %d: %w", i, err)
		}
		if blocks.Clients() > math.MaxInt64-b.clients {
			return Batches{}, fmt.Errorf("schedule: stage %d: more clients than can be counted", i)
		}
		b.stages = append(b.stages, blocks)
		b.from, b.first = append(b.from, b.clients), append(b.first, b.rounds)
		b.clients += blocks.Clients()
		b.rounds += blocks.PerEpoch()
	}
	return b, nil
}

// FullBatches returns the plan in which every client reports in every round.
func FullBatches(clients, rounds int64) (Batches, error) {
	if clients < 1 || rounds < 1 {
		return Batches{}, fmt.Errorf("schedule: %d clients in %d rounds, both must be at least 1", clients, rounds)
	}
	return Batches{clients: clients, rounds: rounds, uses: rounds}, nil
}

// Clients returns the number of clients that report at all.
func (b Batches) Clients() int64 { return b.clients }

// Rounds returns T.
func (b Batches) Rounds() int64 { return b.rounds }

// Uses returns the number of rounds that a client reports in: 1 or T. The
// rounds of one client compose; with 1, rounds are disjoint and the run costs
// as much as its dearest round.
func (b Batches) Uses() int64 { return b.uses }

// Stages returns the number of stages, 1 if all report in every round.
func (b Batches) Stages() int { return max(1, len(b.stages)) }

// Stage returns the stage of round t = 1 … T.
func (b Batches) Stage(round int64) int {
	b.check(round)
	stage := b.Stages() - 1
	for stage > 0 && round <= b.first[stage] {
		stage--
	}
	return stage
}

// Places returns the places from ≤ place < to that report in round t = 1 … T.
func (b Batches) Places(round int64) (from, to int64) {
	b.check(round)
	if b.stages == nil {
		return 0, b.clients
	}
	i := b.Stage(round)
	block := round - b.first[i] - 1
	return b.from[i] + b.stages[i].start(block), b.from[i] + b.stages[i].start(block+1)
}

// Smallest returns the number of clients in the smallest batch.
func (b Batches) Smallest() int64 {
	least := b.clients
	for _, s := range b.stages {
		least = min(least, s.Smallest())
	}
	return least
}

func (b Batches) check(round int64) {
	if round < 1 || round > b.rounds {
		panic(fmt.Sprintf("schedule: round %d outside 1 to %d", round, b.rounds))
	}
}

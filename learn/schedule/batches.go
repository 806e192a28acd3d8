package schedule

import (
	"fmt"
	"math"
)

// Batches says which clients report in which round of one run. A run has stages. In a stage
// either each client reports once, in disjoint batches, or all of the stage's clients report
// in every round. No client is in two stages.
//
// Clients are places 0, 1, … of an order that the caller keeps; it may be any order that does
// not depend on the data. It is public who is in which batch.
type Batches struct {
	stages []Blocks // each lasts Uses of its epochs
	from   []int64  // the first place of each stage
	first  []int64  // the number of rounds before each stage

	Clients int64 // the clients of all stages together
	Rounds  int64 // T
	// Uses is the number of rounds in which a client reports: 1, or all rounds of its stage.
	// One client's rounds compose, and stages are disjoint. So the run costs as much as its
	// most expensive stage, and with Uses 1 as much as its most expensive round.
	Uses int64
}

// NewBatches returns the plan of the given stages, one after the other: stage i takes the next
// stages[i].Clients places and goes the given number of times through its blocks, one block a
// round. With times 1 every client reports once. Stages of one block each are groups of
// clients that report in every round of their group.
func NewBatches(times int64, stages ...Blocks) (Batches, error) {
	if times < 1 || len(stages) == 0 {
		return Batches{}, fmt.Errorf("schedule: %d stages, %d times each: both must be at least 1", len(stages), times)
	}
	b := Batches{Uses: times}
	for i, blocks := range stages {
		if blocks.Clients > math.MaxInt64-b.Clients {
			return Batches{}, fmt.Errorf("schedule: stage %d: more clients than can be counted", i)
		}
		b.stages = append(b.stages, blocks)
		b.from, b.first = append(b.from, b.Clients), append(b.first, b.Rounds)
		b.Clients += blocks.Clients
		if blocks.PerEpoch > (math.MaxInt64-b.Rounds)/times {
			return Batches{}, fmt.Errorf("schedule: stage %d: more rounds than can be counted", i)
		}
		b.Rounds += times * blocks.PerEpoch
	}
	return b, nil
}

// stageList returns the number of stages.
func (b Batches) stageList() int { return len(b.stages) }

// stage returns the stage of round t = 1 … T.
func (b Batches) stage(round int64) int {
	b.check(round)
	stage := b.stageList() - 1
	for stage > 0 && round <= b.first[stage] {
		stage--
	}
	return stage
}

// Places returns the places from ≤ place < to that report in round t = 1 … T.
func (b Batches) Places(round int64) (from, to int64) {
	b.check(round)
	i := b.stage(round)
	_, block := b.stages[i].Of(round - b.first[i])
	from, to = b.stages[i].Range(block)
	return b.from[i] + from, b.from[i] + to
}

func (b Batches) check(round int64) {
	if round < 1 || round > b.Rounds {
		panic(fmt.Sprintf("schedule: round %d outside 1 to %d", round, b.Rounds))
	}
}

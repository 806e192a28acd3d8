package schedule

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// No plan lets a client report more often than Uses says, and one pass uses
// every client.
func TestBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Batches
		var err error
		var stages []Blocks
		var sizes []int64
		full := rapid.Bool().Draw(t, "full")
		if full {
			b, err = fullBatches(rapid.Int64Range(1, 60).Draw(t, "n"), rapid.Int64Range(1, 40).Draw(t, "T"))
		} else {
			for range rapid.IntRange(1, 5).Draw(t, "stages") {
				n := rapid.Int64Range(1, 80).Draw(t, "n")
				size := rapid.Int64Range(1, n).Draw(t, "size")
				blocks, err := NewBlocks(n, size)
				if err != nil {
					t.Fatal(err)
				}
				stages, sizes = append(stages, blocks), append(sizes, size)
			}
			b, err = NewBatches(1, stages...)
		}
		if err != nil {
			t.Fatal(err)
		}
		used := make([]int64, b.Clients)
		perStage := make([]int64, b.stageList())
		last := 0
		for round := int64(1); round <= b.Rounds; round++ {
			stage := b.stage(round)
			if stage < last || stage > last+1 {
				t.Fatalf("round %d is in stage %d after stage %d", round, stage, last)
			}
			last = stage
			from, to := b.Places(round)
			for p := from; p < to; p++ {
				used[p]++
			}
			perStage[stage] += to - from
			if !full && (to-from < sizes[stage] || to-from >= 2*sizes[stage]+1) {
				t.Fatalf("batch of %d, wanted about %d", to-from, sizes[stage])
			}
		}
		for p, k := range used {
			if k != b.Uses {
				t.Fatalf("client %d reports %d times, Uses says %d", p, k, b.Uses)
			}
		}
		if last != b.stageList()-1 || full != (b.Uses == b.Rounds && len(stages) == 0) {
			t.Fatalf("%d stages, %d uses", b.stageList(), b.Uses)
		}
		for i, c := range stages {
			if perStage[i] != c.Clients {
				t.Fatalf("stage %d has %d clients, want %d", i, perStage[i], c.Clients)
			}
		}
	})
}

func TestBatchesRefuse(t *testing.T) {
	if _, err := NewBatches(1); err == nil {
		t.Error("accepted no stages")
	}
	for _, c := range [][2]int64{{0, 1}, {1, 0}, {-1, 5}} {
		if _, err := fullBatches(c[0], c[1]); err == nil {
			t.Errorf("accepted %v", c)
		}
	}
	b, _ := fullBatches(4, 2)
	for _, round := range []int64{0, 3} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("round %d of 2 has places", round)
				}
			}()
			b.Places(round)
		}()
	}
}

// fullBatches returns the plan in which every client reports in every round.
func fullBatches(clients, rounds int64) (Batches, error) {
	if clients < 1 || rounds < 1 {
		return Batches{}, fmt.Errorf("schedule: %d clients in %d rounds, both must be at least 1", clients, rounds)
	}
	group, err := NewBlocks(clients, clients)
	if err != nil {
		return Batches{}, err
	}
	return NewBatches(rounds, group)
}

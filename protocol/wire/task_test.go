package wire

import (
	"math"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// Void rounds are announced again, up to a last one; a block's turn is not.
func TestLastRound(t *testing.T) {
	for _, c := range []struct {
		p            dp.Participation
		rounds, last int64
	}{{dp.All, 1, 12}, {dp.Sampled, 20, 50}, {dp.CheckIn, 1000, 2010}, {dp.Once, 20, 20}, {dp.All, math.MaxInt64, math.MaxInt64}, {dp.All, math.MaxInt64/2 - 5, math.MaxInt64 - 1}} {
		if got := (Task{Participation: c.p, Rounds: c.rounds}).LastRound(); got != c.last {
			t.Errorf("%s, %d rounds: the last is %d, want %d", c.p, c.rounds, got, c.last)
		}
	}
	if got := (Task{Trust: dp.Local, Participation: dp.All, Rounds: 20}).LastRound(); got != 20 {
		t.Errorf("trust local, 20 rounds: the last is %d: a client would send more than 20 reports", got)
	}
}

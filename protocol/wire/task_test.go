package wire

import (
	"bytes"
	"encoding/binary"
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

// TestParameters: a task says how many parameters it publishes if that is not the dimension of
// its reports, and in one way only.
func TestParameters(t *testing.T) {
	task := Task{Name: "a", Trust: dp.Shuffle, Participation: dp.All, MinReports: 1, Rounds: 1, Mechanism: Mechanism{Dim: 7}}
	plain := Encode(task)
	if task.Parameters() != 7 {
		t.Errorf("%d parameters, want 7", task.Parameters())
	}
	task.ModelDim = 7
	if !bytes.Equal(Encode(task), plain) || task.Parameters() != 7 {
		t.Error("a number of parameters that is the dimension is written")
	}
	task.ModelDim = 300
	b := Encode(task)
	again, err := Decode[Task](b)
	if err != nil || again.Parameters() != 300 {
		t.Errorf("%d parameters (%v), want 300", again.Parameters(), err)
	}
	for _, n := range []int64{0, 7, -1, math.MinInt64} {
		binary.LittleEndian.PutUint64(b[len(b)-8:], uint64(n))
		if _, err := Decode[Task](b); err == nil {
			t.Errorf("decoded a part of %d parameters", n)
		}
	}
}

// A sum of counts says how many ones a vector has, and nothing if it is none.
func TestOnes(t *testing.T) {
	task := Task{Name: "a", Trust: dp.Distributed, Participation: dp.All, MinReports: 1, Rounds: 1, Mechanism: Mechanism{Dim: 7}}
	task.Mechanism.Sum.Ones = 3
	b := Encode(task)
	if again, err := Decode[Task](b); err != nil || again.Mechanism.Sum.Ones != 3 {
		t.Errorf("%d ones (%v), want 3", again.Mechanism.Sum.Ones, err)
	}
	for _, n := range []int64{0, -1, math.MinInt64} {
		binary.LittleEndian.PutUint64(b[len(b)-8:], uint64(n))
		if _, err := Decode[Task](b); err == nil {
			t.Errorf("decoded a part of %d ones", n)
		}
	}
}

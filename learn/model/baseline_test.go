package model

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// No constant score is better than Constant says, and one is as good.
func TestConstantIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tau := rapid.Float64Range(.01, .99).Draw(t, "tau")
		pinball := Loss{"pinball", tau}
		for _, l := range []Loss{lossOf(Absolute), pinball, lossOf(Hinge), lossOf(Logistic)} {
			targets := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 30).Draw(t, "targets")
			if l.Binary() {
				for i, y := range targets {
					targets[i] = math.Copysign(1, y)
				}
			}
			best := math.Inf(1)
			try := func(score float64) {
				sum := 0.0
				for _, y := range targets {
					loss, _ := l.At(score, y)
					sum += loss
				}
				best = min(best, sum/float64(len(targets)))
			}
			for s := -20.0; s <= 20; s += .01 {
				try(s)
			}
			for _, y := range targets {
				try(y)
			}
			if got := l.constant(targets); got > best+1e-9 || got < best-1e-4 {
				t.Fatalf("%s of %v: %v, by search %v", l, targets, got, best)
			}
		}
	})
}

func TestClassBaseline(t *testing.T) {
	y := []int32{2, 0, 2, 1, 2, 0, 2, 2}
	b := newSoftmax(t, 1, 4).Baseline(len(y), class(y))
	want := -(2./8*math.Log(2./8) + 1./8*math.Log(1./8) + 5./8*math.Log(5./8))
	if b.Class != 2 || b.Accuracy != 5./8 || math.Abs(b.Loss-want) > 1e-12 {
		t.Errorf("%+v, want class 2, accuracy .625, loss %v", b, want)
	}
	e := &Evaluation{Examples: 8, Correct: 5, Loss: .1, Confusion: [][]int{{5, 3}, {0, 0}}}
	if b.Beaten(e.Accuracy(), e.Loss) {
		t.Error("as many right as the most frequent class is no better")
	}
	if e.Correct = 6; !b.Beaten(e.Accuracy(), e.Loss) {
		t.Error("6 of 8 is better than 5")
	}
	numbers := Baseline{Accuracy: math.NaN(), Class: -1, Loss: .1}
	if numbers.Beaten(math.NaN(), .1) || numbers.Beaten(math.NaN(), math.NaN()) || !numbers.Beaten(math.NaN(), .09) {
		t.Error("a loss must be below the constant's")
	}
}

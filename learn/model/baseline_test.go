package model

import (
	"math"
	"strconv"
	"testing"

	"pgregory.net/rapid"
)

// No constant score is better than Constant says, and one is as good.
func TestConstantIsTheBest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tau := rapid.Float64Range(.01, .99).Draw(t, "tau")
		pinball := lossOf("pinball:" + strconv.FormatFloat(tau, 'g', -1, 64))
		for _, l := range []Loss{lossOf(Absolute), pinball, lossOf(Hinge), lossOf(Logistic)} {
			targets := rapid.SliceOfN(rapid.Float64Range(-3, 3), 1, 30).Draw(t, "targets")
			if l.Binary {
				for i, y := range targets {
					targets[i] = math.Copysign(1, y)
				}
			}
			best := math.Inf(1)
			try := func(score float64) {
				sum := 0.0
				for _, y := range targets {
					loss, _ := l.at(score, y)
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
				t.Fatalf("%s of %v: %v, by search %v", l.Name, targets, got, best)
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
}

package account

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// A client in a batch whose reports are of another law is one of the possible histories: of
// batches with other steps none stands for another.
func TestBatchesOfOtherSteps(t *testing.T) {
	const delta = 1e-5
	batch := func(share float64, k int64) dp.Round {
		return dp.Round{Report: dp.Report{Class: dp.Rising, Eps0: 3, Steps: dp.NewSteps(19, []float64{share}, 0)}, Trust: dp.Shuffle,
			Participation: dp.Once, Population: 2000, Reports: k}
	}
	wide, narrow := batch(.05, 1000), batch(.001, 999)
	var a Accountant
	least, err := a.Eps(wide, delta)
	if err != nil {
		t.Fatal(err)
	}
	for _, both := range []dp.Sequence{{wide, narrow}, {narrow, wide}} {
		if got, err := a.Eps(both, delta); err != nil || got.Eps < least.Eps {
			t.Errorf("two batches: epsilon = %v, %v; one of them alone has %v", got.Eps, err, least.Eps)
		}
	}
}

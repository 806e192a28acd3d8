package coordinator

import (
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
)

// counter keeps what it gets, and publishes another number of parameters than reports have.
type counter struct {
	point   []float64
	mean    []float64
	reports int64
}

func (c *counter) Point() []float64             { return c.point }
func (c *counter) Step([]float64) error         { panic("a counting learner takes no such step") }
func (c *counter) Model(dst []float64)          { copy(dst, c.point) }
func (c *counter) State() optimize.State        { return optimize.State{} }
func (c *counter) Restore(optimize.State) error { return nil }
func (c *counter) StepOf(mean []float64, reports int64) error {
	c.mean, c.reports = slices.Clone(mean), reports
	c.point[2]++
	return nil
}

// short has means of length 1 at most.
type short struct{ promised }

func (short) MeanBound(int64) float64 { return 1 }

// TestLearnerCounts: a learner that counts gets the number of reports and the mean as it was
// estimated, too long a one as well; what it publishes has a length of its own.
func TestLearnerCounts(t *testing.T) {
	c := config(t, &book{})
	l := &counter{point: make([]float64, 5)}
	c.Optimizer, c.Mechanism = l, short{c.Mechanism.(promised)}
	if _, err := New(c); err == nil {
		t.Error("5 parameters of a mechanism of 2 that the task does not mention")
	}
	c.ModelDim = 5
	co, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if len(co.Parameters) != 5 || co.Dim() != 2 {
		t.Errorf("%d parameters, reports of %d", len(co.Parameters), co.Dim())
	}
	before := co.Announce().ModelDigest
	if err := co.Receive(t.Context(), batch(1, 4).Closed()); err != nil {
		t.Fatal(err)
	}
	tally, err := co.NewTally()
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		tally.Open(&randomizer.Report{Value: []int32{1 << 23, -1 << 22}}) // (.5, −.25)
	}
	tally.Sum[0] += 1 << 50 // a liar's
	if n, _, err := co.End(tally); err != nil || n != 3 {
		t.Fatalf("%d reports: %v", n, err)
	}
	if l.reports != 3 || !(l.mean[0] > 100) || l.mean[1] > -.24 || l.mean[1] < -.26 || !co.Shortened {
		t.Errorf("reports %d, mean %v, too long: %v", l.reports, l.mean, co.Shortened)
	}
	if co.Announce().ModelDigest == before || co.Parameters[2] != 1 {
		t.Errorf("what is published stays %v", co.Parameters)
	}
}

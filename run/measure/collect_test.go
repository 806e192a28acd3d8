package measure

import (
	"math"
	"reflect"
	"testing"

	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/protocol/coordinator"
)

var _ coordinator.Learner = (*collector)(nil)

// TestCollectorRestores: a restored collector is the same, and refuses a state that is not its own.
func TestCollectorRestores(t *testing.T) {
	c := newCollector(3)
	first := c.State()
	if err := c.StepOf([]float64{.5, -.25, 0}, 200); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.sums, []float64{100, -50, 0}) || c.reports != 200 || c.Point()[0] != 1 {
		t.Errorf("%v of %d reports, published %v", c.sums, c.reports, c.Point())
	}
	again := newCollector(3)
	if err := again.Restore(c.State()); err != nil || !reflect.DeepEqual(again, c) {
		t.Errorf("restored %+v (%v), want %+v", again, err, c)
	}
	if err := again.Restore(first); err != nil || !reflect.DeepEqual(again, newCollector(3)) {
		t.Errorf("restored %+v (%v), want a new one", again, err)
	}
	bad := c.State()
	bad.Vectors[stateReports][0] = 1.5
	none, other := c.State(), newCollector(2).State()
	none.Steps = 0
	extra := c.State()
	extra.Vectors["more"] = nil
	for name, s := range map[string]optimize.State{"half a report": bad, "reports of no round": none, "another question": other, "another vector": extra} {
		if err := again.Restore(s); err == nil {
			t.Errorf("restored %s", name)
		}
	}
	for _, mean := range [][]float64{{1, 2}, {1, 2, math.NaN()}, {1, 2, math.Inf(-1)}} {
		if err := newCollector(3).StepOf(mean, 5); err == nil {
			t.Errorf("took %v", mean)
		}
	}
	if err := c.StepOf([]float64{1, 2, 3}, 0); err == nil {
		t.Error("took sums of no reports")
	}
}

package client

import (
	"testing"
	"time"
)

// Gradients that wait for the end of an answer's time fit into memory, however many clients a
// process has and however large its model is.
func TestWaitingGradientsFitIntoMemory(t *testing.T) {
	for _, dim := range []int{1, 1930, 1 << 16, 1 << 20, 10_000_000, 1 << 30} {
		n := atOnce(true, dim)
		if n < 1 || n > mostSealed || n > 1 && int64(n)*4*int64(dim) > mostWaiting {
			t.Errorf("%d at once, of %d values each", n, dim)
		}
		if more := n + 1; n < mostSealed && int64(more)*4*int64(dim) <= mostWaiting {
			t.Errorf("%d at once, of %d values each, and there is room for another", n, dim)
		}
		if atOnce(false, dim) != mostSealed {
			t.Error("where reports leave at once gradients do not wait")
		}
	}
}

// A process that holds reports back measures how long reports take, with zeros.
func TestReportsAreMeasured(t *testing.T) {
	for spread, measures := range map[time.Duration]bool{-1: false, time.Second: true} {
		r := newTaking(t).turn
		r.fleet.config.Spread, r.fleet.config.Workers = spread, 1
		if took := r.measure(t.Context()); took > 0 != measures {
			t.Errorf("held back by %v: %v", spread, took)
		}
	}
}

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
		if n < 1 || n > mostSealed || n > 1 && n*4*dim > mostWaiting {
			t.Errorf("%d at once, of %d values each", n, dim)
		}
		if more := n + 1; n < mostSealed && more*4*dim <= mostWaiting {
			t.Errorf("%d at once, of %d values each, and there is room for another", n, dim)
		}
		if atOnce(false, dim) != mostSealed {
			t.Error("gradients that riffle computes do not wait")
		}
	}
}

// asking is a source that is asked and never answers.
type asking struct{ asker }

// A process that holds reports back for gradients from elsewhere measures how long reports take, with zeros.
func TestReportsAreMeasured(t *testing.T) {
	for spread, measures := range map[time.Duration]bool{-1: false, time.Second: true} {
		r := newTaking(t).turn
		r.fleet.config.Spread, r.fleet.config.Workers = spread, 1
		r.fleet.members[0].source = asking{}
		r.work.New = func() any { return &work{report: r.terms.Reporter.ForRound([32]byte{}).NewReport()} }
		if took := r.measure(); took > 0 != measures {
			t.Errorf("held back by %v: %v", spread, took)
		}
	}
}

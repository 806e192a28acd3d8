package shuffler

import (
	"testing"
	"testing/synctest"
	"time"
)

// A round still ends when all have reported, if some of them reported to a process
// that ended before it told how many, and not before.
func TestRoundIsCompleteAfterRestart(t *testing.T) {
	for before := range 6 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 5)
			c := w.config()
			c.Poll = time.Second
			n := w.start(c)
			ann := n.announcement(1)
			n.open(ann)
			digest := ann.Digest()
			name := encodeName(digest[:])
			begin := time.Now()
			for i := range before {
				n.send(w.report(ann, i, 0))
			}
			n.stop()
			n = w.start(c)
			for i := max(0, before-1); i < 4; i++ { // one of them again
				n.send(w.report(ann, i, 0))
			}
			if before < 5 {
				time.Sleep(10 * time.Second)
				if rec, err := n.loadRecord(t.Context(), name); err != nil || rec.State != Open {
					t.Fatalf("%d before a restart: 4 of 5 have reported, state %v, %v", before, rec.State, err)
				}
				n.send(w.report(ann, 4, 0))
			}
			if word := n.closed(ann); word.Reports != 5 {
				t.Errorf("%d before a restart: %+v", before, word)
			}
			if took := time.Since(begin); took > 15*time.Second {
				t.Errorf("%d before a restart: the round ended after %v", before, took)
			}
		})
	}
}

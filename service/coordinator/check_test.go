package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// An fsck names each object of a task that is gone or damaged.
func TestCheckNamesObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All, receipts)
		w.check(w.run())
		id := wire.Digest(w.task)
		rec, err := decodeRecord(w.disk.Values[stateKey(id)])
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{taskName(id), modelName(id, rec.Model), stateName(id, rec.Step), receiptsName(id, rec.Told[0].Receipts)} {
			whole := w.disk.Objects[name]
			if len(whole) == 0 {
				t.Fatalf("there is no %s", name)
			}
			w.disk.Objects[name] = append([]byte("other"), whole...)
			damaged := w.found()
			delete(w.disk.Objects, name)
			gone := w.found()
			w.disk.Objects[name] = whole
			if len(damaged) != 1 || len(gone) != 1 {
				t.Errorf("%s: damaged %q, gone %q", name, damaged, gone)
			}
		}
	})
}

// An fsck compares what a state counts with its rounds, its task and the ledger.
func TestCheckCounts(t *testing.T) {
	for _, c := range []struct {
		p                      dp.Participation
		round                  int64
		released, void, failed int64
		charges                int64
		problems               int
	}{
		{dp.All, 0, 0, 0, 0, 0, 0},
		{dp.All, 4, 2, 1, 1, 3, 0},
		{dp.All, 4, 2, 1, 1, 4, 0}, // one is charged, and has not ended
		{dp.All, 4, 2, 1, 1, 2, 1},
		{dp.All, 5, 2, 1, 1, 3, 1},
		{dp.All, 3, 2, 1, 1, 3, 1},
		{dp.All, 4, 2, 0, 2, 4, 1}, // of three rounds
		{dp.All, 16, 3, 13, 0, 3, 0},
		{dp.All, 17, 3, 14, 0, 3, 1},
		{dp.Once, 3, 2, 0, 1, 1, 0},
		{dp.Once, 3, 2, 0, 1, 0, 1},
		{dp.Once, 4, 2, 1, 1, 1, 1},
		{dp.Once, 1, 0, 1, 0, 0, 0},
	} {
		r := runner{task: wire.Task{Rounds: 3, Participation: c.p}}
		r.record.Round, r.record.Counts = c.round, wire.Counts{Released: c.released, Void: c.void, Failed: c.failed}
		var found []string
		r.checkCounts(c.charges, func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
		if len(found) != c.problems {
			t.Errorf("%+v: %q", c, found)
		}
	}
}

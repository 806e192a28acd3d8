package coordinator

import (
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

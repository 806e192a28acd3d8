package coordinator

import (
	"crypto/ed25519"
	"fmt"
	"strings"
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

// An fsck compares the open round with the state before it, and with the task's last charge.
func TestCheckOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, dp.Shuffle, dp.All)
		w.run()
		a := w.sh.Opened[1]
		before := record{Round: 1, Model: a.ModelDigest}
		open := func(a wire.Announcement, charged bool) *openRound {
			return &openRound{Announcement: append(make([]byte, ed25519.SignatureSize), wire.Encode(a)...), Closed: []byte{1}, Charged: charged}
		}
		other := func(change func(*wire.Announcement)) wire.Announcement { b := a; change(&b); return b }
		charge := func(round int64, a wire.Announcement) wire.Entry {
			return wire.Entry{Round: round, Announcement: wire.Digest(a)}
		}
		unsent := open(a, false)
		unsent.Closed = nil
		for i, c := range []struct {
			open *openRound
			last wire.Entry // of no round: there is none
			says string
		}{
			{nil, wire.Entry{}, ""},
			{nil, charge(1, a), ""},
			{unsent, charge(1, a), ""},
			{open(a, false), charge(2, a), ""},
			{open(a, true), charge(2, a), ""},
			{&openRound{}, wire.Entry{}, wire.ErrMalformed.Error()},
			{open(other(func(a *wire.Announcement) { a.Task[0] ^= 1 }), false), wire.Entry{}, "does not follow"},
			{open(other(func(a *wire.Announcement) { a.Round = 3 }), false), wire.Entry{}, "does not follow"},
			{open(other(func(a *wire.Announcement) { a.ModelDigest = [32]byte{6} }), false), wire.Entry{}, "does not follow"},
			{open(a, true), charge(2, other(func(a *wire.Announcement) { a.Opens++ })), "for another announcement"},
			{open(a, true), wire.Entry{}, "was opened, and"},
			{open(a, true), charge(1, a), "was opened, and"},
			{nil, charge(2, a), "the state is of round 1"},
			{unsent, charge(2, a), "the state is of round 1"},
			{open(a, true), charge(3, a), "the state is of round 1"},
		} {
			r := runner{id: a.Task, task: w.task, record: before}
			r.record.Open = c.open
			var found []string
			r.checkOpen(c.last, c.last.Round > 0, func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) })
			if (c.says == "") != (len(found) == 0) || len(found) > 1 || c.says != "" && !strings.Contains(found[0], c.says) {
				t.Errorf("%d: %q, want %q", i, found, c.says)
			}
		}
	})
}

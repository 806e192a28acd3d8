package shuffler

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// found is what fsck finds.
func (w *world) found() (rounds int64, found []string) {
	w.t.Helper()
	rounds, err := Check(context.Background(), &memory.Store{Disk: w.disk}, public(w.operator), nil, wire.ID{7}, func(where, format string, args ...any) {
		found = append(found, where+": "+fmt.Sprintf(format, args...))
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return rounds, found
}

// An fsck finds nothing in what a shuffler leaves of rounds in each state, and names what is gone, what should
// be, and what is not as it was signed.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		n := w.start(w.config())
		var names []string
		begin := func(reports int) wire.Announcement {
			ann := n.announcement(1, func(a *wire.Announcement) { a.Task = [32]byte{byte(len(names) + 1)} })
			d := wire.Digest(ann)
			names = append(names, encodeName(d[:]))
			n.open(ann)
			for i := range reports {
				n.send(w.report(ann, i, 0))
			}
			return ann
		}
		n.closed(begin(0))
		over := begin(3)
		n.closed(over)
		n.must(Coordinator, "DELETE", path(over, ""), nil)
		n.closed(begin(3))
		begin(2)
		n.stop()
		if rounds, found := w.found(); rounds != 4 || len(found) != 0 {
			t.Errorf("%d rounds: %q", rounds, found)
		}
		void, released, offered, open := names[0], names[1], names[2], names[3]
		none := encodeName(make([]byte, 32))
		whole := w.disk
		for says, changes := range map[string][]func(d *memory.Disk){
			"no mark or no keys": {
				func(d *memory.Disk) { delete(d.Values, keyOpen(open)) },
				func(d *memory.Disk) { delete(d.Secrets, open) },
			},
			"its batch or its keys are not there": {
				func(d *memory.Disk) { delete(d.Values, keyOpen(offered)) },
				func(d *memory.Disk) { delete(d.Secrets, offered) },
				func(d *memory.Disk) {
					for _, name := range d.Names(store.Streams, streamOut(offered, "")) {
						delete(d.Streams, name)
					}
				},
			},
			"the keys of its order are still there": {func(d *memory.Disk) { d.Secrets[linksName(offered)] = []byte{1} }},
			"its keys are still there": {
				func(d *memory.Disk) { d.Secrets[released] = []byte{1} },
				func(d *memory.Disk) { d.Secrets[linksName(released)] = []byte{1} },
				func(d *memory.Disk) { d.Secrets[void] = []byte{1} },
			},
			"the round has ended, and stream": {func(d *memory.Disk) { d.Streams[streamIn(void)] = []store.Message{} }},
			"there is no such round": {
				func(d *memory.Disk) { d.Secrets[none] = []byte{1} },
				func(d *memory.Disk) { d.Streams[streamOut(none, "1")] = []store.Message{} },
			},
			"is not on this round": {
				func(d *memory.Disk) { w.edit(void, func(r *record) { r.State = Released }) },
				func(d *memory.Disk) { w.edit(released, func(r *record) { r.State = Void }) },
				func(d *memory.Disk) {
					var other []byte
					w.edit(offered, func(r *record) { other = r.Closed })
					w.edit(released, func(r *record) { r.Closed = other })
				},
			},
			"signature":       {func(d *memory.Disk) { w.edit(offered, func(r *record) { r.Closed[70] ^= 1 }) }},
			"no announcement": {func(d *memory.Disk) { w.edit(offered, func(r *record) { r.Announcement = nil }) }},
			`state "other"`:   {func(d *memory.Disk) { w.edit(released, func(r *record) { r.State = "other" }) }},
			keyRecord(void):   {func(d *memory.Disk) { d.Values[keyRecord(void)] = []byte("{") }},
			keyEnrolment:      {func(d *memory.Disk) { d.Values[keyEnrolment] = []byte{1} }},
		} {
			for i, change := range changes {
				w.disk = whole.Copy()
				change(w.disk)
				if _, found := w.found(); len(found) != 1 || !strings.Contains(found[0], says) {
					t.Errorf("%s, %d: %q", says, i, found)
				}
			}
		}
	})
}

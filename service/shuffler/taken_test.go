package shuffler

import (
	"bytes"
	"maps"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// counted asks for client i's session and the count in it.
func (n *node) counted(i int) *int64 {
	n.w.t.Helper()
	request := n.w.request(i)
	clients, _ := n.Handlers()
	q := httptest.NewRequest("POST", "/v1/session", bytes.NewReader(request))
	w := httptest.NewRecorder()
	clients.ServeHTTP(w, endpoint.WithPeer(q, ""))
	if w.Code != 200 {
		n.w.t.Fatalf("session: %d %s", w.Code, w.Body)
	}
	return n.w.decoded(request, w.Body.Bytes()).Taken
}

// A client is told how many of its messages were taken in closed rounds: all rounds together, once
// each, also what it sent twice, over restarts.
func TestTakenMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.counts = true
		n := w.start(w.config())
		want := func(what string, all ...int64) {
			t.Helper()
			time.Sleep(2 * takenPause)
			for i, m := range all {
				if got := n.counted(i); got == nil || *got != m {
					t.Errorf("%s: client %d is told %v, want %d", what, i, got, m)
				}
			}
		}
		want("before any round", 0, 0, 0, 0, 0)
		one := n.announcement(1)
		n.open(one)
		for i := range 4 {
			n.send(w.report(one, i, 0))
		}
		n.send(w.report(one, 2, 0)) // again
		want("before it is closed", 0, 0, 0, 0, 0)
		n.send(w.report(one, 4, 0))
		n.closed(one)
		want("after a round", 1, 1, 1, 1, 1)
		two := n.announcement(2, func(a *wire.Announcement) { a.Messages = 3 })
		n.open(two)
		n.send(w.report(two, 1, 0))
		n.closed(two)
		want("after a void round of three messages", 1, 4, 1, 1, 1)
		n.stop()
		n = w.start(w.config())
		want("after a restart", 1, 4, 1, 1, 1)
		if len(w.disk.Objects) != 1 {
			t.Errorf("objects %v", slices.Collect(maps.Keys(w.disk.Objects)))
		}
		// Without its counts the service goes on, with fewer.
		clear(w.disk.Objects)
		time.Sleep(2 * takenPause)
		if got := n.counted(1); got != nil {
			t.Errorf("it was told %d", *got)
		}
		three := n.announcement(3)
		n.open(three)
		for i := range w.clients {
			n.send(w.report(three, i, 0))
		}
		n.closed(three)
		want("after the counts were lost", 1, 1, 1, 1, 1)
		// What a crash between two writes has left is deleted: between two lists it shows who reported.
		w.disk.Objects["taken/left"] = []byte("an older list")
		for i, m := range []int64{2, 3} {
			a := n.announcement(int64(4 + i))
			n.open(a)
			for i := range w.clients {
				n.send(w.report(a, i, 0))
			}
			n.closed(a)
			want("afterwards", m, m, m, m, m)
		}
		if len(w.disk.Objects) != 1 {
			t.Errorf("objects %v", slices.Collect(maps.Keys(w.disk.Objects)))
		}
		n.stop()
		w.counts = false
		n = w.start(w.config())
		if got := n.counted(1); got != nil {
			t.Errorf("a shuffler that does not count told %d", *got)
		}
	})
}

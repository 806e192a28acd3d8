package shuffler

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
)

func messages(m int64) func(*wire.Announcement) {
	return func(a *wire.Announcement) { a.Messages = m }
}

// The batch has every client once in each run, and each run in an order of its own, in memory
// or by way of buckets. One report of a client counts, with all its messages.
func TestRoundOfSeveralMessages(t *testing.T) {
	for _, bucket := range []int64{0, 700, 3000} {
		synctest.Test(t, func(t *testing.T) {
			const m = 5
			w := newWorld(t, 30)
			c := w.config()
			c.Bucket = bucket
			n := w.start(c)
			ann := n.announcement(1, messages(m))
			n.open(ann)
			var sent [][2]int
			for i := range w.clients[:29] {
				body := w.report(ann, i, 0)
				n.send(body, body) // the same again
				sent = append(sent, [2]int{i, 0})
			}
			n.refused(wire.SecondReport, "", "POST", "/v1/report", w.report(ann, 4, 1))
			word := n.closed(ann)
			want, _ := w.expected(ann, sent)
			got := n.fetch(Coordinator, ann, word)
			if word.Reports != 29 || !slices.EqualFunc(got, want, bytes.Equal) {
				t.Fatalf("bucket %d: %d clients, and not the batch of the shuffle in memory", bucket, word.Reports)
			}
			orders := map[string]bool{}
			for j := range m {
				run := got[j*29 : (j+1)*29]
				order, seen := "", map[string]bool{}
				for _, b := range run {
					if last := b[partContent-1]; last != message(0, 0, j)[partContent-1] {
						t.Fatalf("message %q in run %d", b, j)
					}
					order += string(b[:partContent-1])
					seen[string(b)] = true
				}
				if len(seen) != 29 || orders[order] {
					t.Errorf("run %d: %d clients, or the order of another run", j, len(seen))
				}
				orders[order] = true
			}
			n.must(Coordinator, "DELETE", path(ann, ""), nil)
			w.destroyed(ann)
		})
	}
}

// What a client may not send in a round of several messages: another number of parts, parts of
// another size, another version. A part that it repeats is the coordinator's matter.
func TestWhatClientsMaySendOfSeveralMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m = 3
		w := newWorld(t, 6)
		n := w.start(w.config())
		ann, single := n.announcement(1, messages(m)), n.announcement(1, func(a *wire.Announcement) { a.Task = [32]byte{9} })
		n.open(ann)
		n.open(single)
		one := int(ann.ReportBytes)
		build := func(ann wire.Announcement, change func(r *wire.Report)) []byte {
			r := w.unsealed(ann, 1, 0)
			change(r)
			wire.Authenticate(r, w.session(1))
			return w.sealed(r)
		}
		for name, x := range map[string]struct {
			body []byte
			want wire.Reason
		}{
			"a part too many":    {build(ann, func(r *wire.Report) { r.Part = append(r.Part, r.Part[:one]...) }), wire.WrongSize},
			"a part too few":     {build(ann, func(r *wire.Report) { r.Part = r.Part[one:] }), wire.WrongSize},
			"a byte too many":    {build(ann, func(r *wire.Report) { r.Part = append(r.Part, 0) }), wire.WrongSize},
			"one message":        {build(single, func(r *wire.Report) { r.Announcement = wire.Digest(ann) }), wire.WrongSize},
			"another version":    {append([]byte{2}, build(ann, func(*wire.Report) {})[1:]...), wire.Malformed},
			"several for a byte": {build(single, func(r *wire.Report) { r.Part = append(r.Part, r.Part...) }), wire.WrongSize},
		} {
			if before := n.Snapshot().Refused[x.want]; true {
				n.refused(x.want, "", "POST", "/v1/report", x.body)
				if n.Snapshot().Refused[x.want] != before+1 {
					t.Errorf("%s: not counted", name)
				}
			}
		}
		// Parts of different sizes that fill the room of m parts are taken: nobody but the
		// coordinator can see where one ends, and it opens neither.
		torn := build(ann, func(r *wire.Report) {
			long, err := envelope.SealPart(ann.Coordinator, envelope.Coordinator, wire.Digest(ann), make([]byte, partContent+7))
			if err != nil {
				t.Fatal(err)
			}
			short, err := envelope.SealPart(ann.Coordinator, envelope.Coordinator, wire.Digest(ann), make([]byte, partContent-7))
			if err != nil {
				t.Fatal(err)
			}
			r.Part = slices.Concat(r.Part[:one], long, short)
		})
		n.send(torn)
		for i := 2; i < 6; i++ {
			n.send(w.report(ann, i, 0))
		}
		repeated := w.unsealed(ann, 0, 0)
		repeated.Part = bytes.Repeat(repeated.Part[:one], m)
		wire.Authenticate(repeated, w.session(0))
		n.send(w.sealed(repeated))
		word := n.closed(ann)
		got := rejected(word)
		if word.Reports != 6 || fmt.Sprint(got) != fmt.Sprint(map[wire.Reason]int64{wire.WrongSize: 4}) {
			t.Errorf("%d clients, refused %v", word.Reports, got)
		}
	})
}

// A coordinator cannot ask for more than the operator allows, whatever the number of messages, nor
// for messages of two readers. What it asks for takes no memory before reports arrive.
func TestWhatACoordinatorMayAskOfMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		c := w.config()
		n := w.start(c)
		post := func(reason wire.Reason, change func(*wire.Announcement)) {
			t.Helper()
			n.refused(reason, Coordinator, "POST", "/v1/rounds", w.sign(n.announcement(1, change)))
		}
		for _, m := range []int64{4097, 1e9, 1 << 62} {
			post(wire.Malformed, messages(m))
		}
		most := n.config.Limits.MaxReport / n.announcement(1).ReportBytes
		if most < 4096 {
			post(wire.Refused, messages(most+1))
		}
		post(wire.Refused, func(a *wire.Announcement) { a.Messages, a.ReportBytes = 2, n.config.Limits.MaxReport/2+1 })
		post(wire.Malformed, func(a *wire.Announcement) { a.Messages, a.ReportBytes = 4096, 1<<26 })
		post(wire.Malformed, func(a *wire.Announcement) {
			a.Messages, a.Aggregator, a.ShareBytes = 2, w.second.Public, a.ReportBytes
		})
		if len(w.rounds()) != 0 || len(w.disk.Streams) != 0 {
			t.Error("a refused round has left something")
		}
		ann := n.announcement(1, messages(min(longtest.Pick[int64](1024, 4096), most)))
		n.open(ann)
		bytes := 0
		w.disk.Lock()
		for _, stream := range w.disk.Streams {
			for _, m := range stream {
				bytes += len(m.Data)
			}
		}
		w.disk.Unlock()
		if bytes != 0 {
			t.Errorf("%d bytes are stored for reports that have not come", bytes)
		}
		for i := range w.clients {
			n.send(w.report(ann, i, 0))
		}
		if word := n.closed(ann); word.Reports != 2 {
			t.Errorf("word %+v", word)
		}
		time.Sleep(time.Second)
	})
}

// A coordinator that tells clients of one round to send different numbers of messages gets those
// of the announcement that the shuffler opened, and no others. Nothing of a round can be sent in
// the next one.
func TestOneNumberOfMessagesInARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		n := w.start(w.config())
		three := n.announcement(1, messages(3))
		n.open(three)
		two, one := n.announcement(1, messages(2)), n.announcement(1)
		for _, other := range []wire.Announcement{two, one} {
			n.refused(wire.SecondReport, Coordinator, "POST", "/v1/rounds", w.sign(other))
			n.refused(wire.UnknownRound, "", "POST", "/v1/report", w.report(other, 1, 0))
		}
		first := w.unsealed(three, 2, 0)
		wire.Authenticate(first, w.session(2))
		n.send(w.report(three, 0, 0), w.report(three, 1, 0), w.report(three, 2, 0))
		if word := n.closed(three); word.Reports != 3 {
			t.Errorf("word %+v", word)
		}
		n.must(Coordinator, "DELETE", path(three, ""), nil)

		next := n.announcement(2, messages(3))
		n.open(next)
		old, digest := w.report(three, 2, 0), wire.Digest(next)
		n.refused(wire.Closed, "", "POST", "/v1/report", old)
		copy(old[10:], digest[:]) // as if it had been made for this round
		n.refused(wire.WrongKey, "", "POST", "/v1/report", old)
		first.Announcement = digest // opened and sealed again, by somebody who has the shuffler's key
		n.refused(wire.BadSignature, "", "POST", "/v1/report", w.sealed(first))
		n.send(w.report(next, 3, 0), w.report(next, 4, 0))
		if word := n.closed(next); word.Reports != 2 || fmt.Sprint(rejected(word)) != fmt.Sprint(map[wire.Reason]int64{wire.BadSignature: 1, wire.WrongKey: 1}) {
			t.Errorf("word %+v", word)
		}
	})
}

// A client that was restored from a backup sends its report again, with other messages, and to
// another frontend. One of the two counts, whole: no run has a message of the other.
func TestRestoredClientCountsOnce(t *testing.T) {
	for _, bucket := range []int64{0, 700} {
		synctest.Test(t, func(t *testing.T) {
			const m, clients = 4, 12
			w := newWorld(t, clients)
			c := w.config()
			c.Bucket = bucket
			first := w.start(c)
			c.Store = &memory.Store{Disk: w.disk}
			second := w.start(c)
			ann := second.announcement(1, messages(m))
			first.open(ann)
			for i := range clients {
				first.send(w.report(ann, i, 0))
				second.do("", "POST", "/v1/report", w.report(ann, i, 1)) // taken or not, as its count of the round says
			}
			word := first.closed(ann)
			got := first.fetch(Coordinator, ann, word)
			if word.Reports != clients || len(got) != m*clients {
				t.Fatalf("%d clients, %d messages", word.Reports, len(got))
			}
			kept := map[string]int{} // messages of each report
			for _, b := range got {
				kept[string(b[:partContent-1])]++
			}
			for i := range clients {
				a, b := kept[string(content(i, 0)[:partContent-1])], kept[string(content(i, 1)[:partContent-1])]
				if a+b != m || a*b != 0 {
					t.Errorf("client %d: %d messages of its report, %d of its second", i, a, b)
				}
			}
		})
	}
}

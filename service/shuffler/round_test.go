package shuffler

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// send posts reports at the same time, so that they share blocks, and wants 204.
func (n *node) send(bodies ...[]byte) {
	n.w.t.Helper()
	var wg sync.WaitGroup
	for _, b := range bodies {
		wg.Go(func() {
			if code, text := n.do("", "POST", "/v1/report", b); code != 204 {
				n.w.t.Errorf("report: %d %s", code, text)
			}
		})
	}
	wg.Wait()
}

func TestRoundFromOpeningToRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 40)
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		n.open(ann) // the same post again
		var bodies [][]byte
		var sent [][2]int
		for i := range w.clients {
			bodies, sent = append(bodies, w.report(ann, i, 0)), append(sent, [2]int{i, 0})
		}
		if b := n.must(Coordinator, "GET", path(ann, "/closed"), nil); len(b) != 0 {
			t.Error("closed before a report came")
		}
		began := time.Now()
		n.send(bodies...)
		word := n.closed(ann)
		if time.Since(began) > 5*time.Second {
			t.Errorf("closed after %v, although all had reported", time.Since(began))
		}
		want, _ := w.expected(ann, sent)
		if got := n.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Error("the batch is not what the shuffle in memory makes of the same reports")
		}
		if word.Void || len(word.Rejected) != 0 || word.Shares != ([32]byte{}) {
			t.Errorf("word %+v", word)
		}
		n.refused(wire.Closed, "", "POST", "/v1/report", w.report(ann, 3, 9))
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		n.refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks"), nil)
		n.refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks/0"), nil)
		if again := n.closed(ann); again.Digest != word.Digest {
			t.Error("the word has changed")
		}
		w.destroyed(ann)
	})
}

// destroyed wants nothing left of a round but its record.
func (w *world) destroyed(ann wire.Announcement) {
	w.t.Helper()
	d := wire.Digest(ann)
	name := encodeName(d[:])
	w.disk.Lock()
	defer w.disk.Unlock()
	if len(w.rounds()) != 0 || len(w.disk.Streams) != 0 {
		w.t.Errorf("left: secrets %v, streams %v", w.rounds(), slices.Collect(maps.Keys(w.disk.Streams)))
	}
	for k := range w.disk.Values {
		kind, _, _ := strings.Cut(k, ".")
		if k != keyRecord(name) && k != keyLast(ann.Task) && k != keyEnrolment && !slices.Contains([]string{"epoch", "head", "taken"}, kind) {
			w.t.Errorf("left: %s", k)
		}
	}
}

func TestDeadlineClosesAndTooFewAreDestroyed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 6)
		w.min = 3
		n := w.start(w.config())
		void := n.announcement(1)
		n.open(void)
		n.send(w.report(void, 0, 0), w.report(void, 1, 0))
		n.refused(wire.SecondReport, "", "POST", "/v1/report", w.report(void, 0, 5))
		began := time.Now()
		word := n.closed(void)
		if !word.Void || word.Reports != 0 || word.Digest != ([32]byte{}) || rejected(word)[wire.SecondReport] != 1 {
			t.Errorf("word %+v", word)
		}
		if d := time.Since(began); d < 55*time.Second || d > 65*time.Second {
			t.Errorf("closed after %v, the deadline was a minute ahead", d)
		}
		n.refused(wire.Closed, Coordinator, "GET", path(void, "/chunks"), nil)
		synctest.Wait()
		w.destroyed(void)
		enough := n.announcement(2)
		n.open(enough)
		n.send(w.report(enough, 5, 0), w.report(enough, 1, 0), w.report(enough, 3, 0))
		if word := n.closed(enough); word.Void || word.Reports != 3 {
			t.Errorf("word %+v", word)
		}
	})
}

func TestSharesComeInTheSameOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 12)
		c := w.config()
		c.Bucket = 100_000 // so that a round of large reports needs buckets
		n := w.start(c)
		ann := n.announcement(1, func(a *wire.Announcement) {
			a.Aggregator = w.second.Public
			a.ShareBytes = a.ReportBytes + 150_000 // three messages each
		})
		n.open(ann)
		var bodies [][]byte
		for i := range w.clients {
			bodies = append(bodies, w.report(ann, i, 0))
		}
		n.send(bodies...)
		word := n.closed(ann)
		parts, shares := n.fetch(Coordinator, ann, word), n.fetch(Aggregator, ann, word)
		for i := range parts {
			if !bytes.Equal(parts[i], shares[i][:partContent]) {
				t.Fatalf("place %d: part of %s, share of %s", i, parts[i], shares[i][:partContent])
			}
		}
	})
}

func TestDrawnClientsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 20)
		n := w.start(w.config())
		ask := func(ann wire.Announcement, i int) bool {
			t.Helper()
			return n.must("", "POST", "/v1/ask", w.ask(ann, i, w.session(i)))[0] == 1
		}
		run := func(ann wire.Announcement, want int) map[int]bool {
			t.Helper()
			n.open(ann)
			drawn := map[int]bool{}
			for i := range w.clients {
				if ask(ann, i) {
					drawn[i] = true
				} else {
					// Nobody else learns that this client is not drawn.
					r := w.unsealed(ann, i, 0)
					wire.Authenticate(r, w.session((i+1)%len(w.clients)))
					n.refused(wire.BadSignature, "", "POST", "/v1/report", w.sealed(r))
					n.refused(wire.NotDrawn, "", "POST", "/v1/report", w.report(ann, i, 0))
				}
			}
			if len(drawn) != want {
				t.Fatalf("%d drawn, want %d", len(drawn), want)
			}
			for i := range drawn {
				n.send(w.report(ann, i, 0))
			}
			word := n.closed(ann)
			if word.Reports != int64(want) || rejected(word)[wire.NotDrawn] != int64(20-want) {
				t.Errorf("word %+v", word)
			}
			n.must(Coordinator, "DELETE", path(ann, ""), nil)
			return drawn
		}
		sampled := func(a *wire.Announcement) { a.Participation, a.Sample = dp.Sampled, 7 }
		first := run(n.announcement(1, sampled), 7)
		same := true
		for round := range longtest.Pick[int64](2, 4) {
			same = same && maps.Equal(first, run(n.announcement(2+round, sampled), 7))
		}
		if same {
			t.Error("the same clients in all draws")
		}
		// Two epochs of three blocks: each client once in each.
		once := func(a *wire.Announcement) { a.Participation, a.PerEpoch, a.Task = dp.Once, 3, [32]byte{2} }
		for epoch := range int64(2) {
			seen := map[int]bool{}
			for block := range int64(3) {
				for i := range run(n.announcement(3*epoch+block+1, once), []int{7, 7, 6}[block]) {
					if seen[i] {
						t.Errorf("client %d is in two blocks of epoch %d", i, epoch)
					}
					seen[i] = true
				}
			}
			if len(seen) != 20 {
				t.Errorf("%d clients in epoch %d", len(seen), epoch)
			}
		}
	})
}

func TestBothSuites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		hybrid, err := envelope.GenerateKey(wire.X25519MLKEM768, time.Now().Add(48*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		old := w.seal
		var both *envelope.Keyring
		if both, err = envelope.NewKeyring(hybrid, sealing(t, time.Now().Add(time.Hour))); err != nil {
			t.Fatal(err)
		}
		w.seal = both
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		n.send(w.report(ann, 0, 0))
		r := w.unsealed(ann, 1, 0)
		wire.Authenticate(r, w.session(1))
		b, err := envelope.SealReport(both.Keys[1], r, wire.ID{})
		if err != nil {
			t.Fatal(err)
		}
		n.send(b)
		w.seal = old // a key that is not held
		n.refused(wire.WrongKey, "", "POST", "/v1/report", w.report(ann, 2, 0))
		if word := n.closed(ann); word.Reports != 2 || rejected(word)[wire.WrongKey] != 1 {
			t.Errorf("word %+v", word)
		}
	})
}

package shuffler

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
)

// passed is client i's report with this pass; world.report shows zeros.
func (w *world) passed(ann wire.Announcement, i int, id byte, pass wire.ID) []byte {
	w.t.Helper()
	r := w.unsealed(ann, i, id)
	wire.Authenticate(r, w.session(i))
	b, err := envelope.SealReport(w.seal.Keys[0], r, pass)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) pass(ann wire.Announcement, i int) wire.ID {
	return w.session(i).Key.Pass(wire.Digest(ann))
}

// knows says whether a node would take a report's bytes for a client's, once it has learned what it can.
func (n *node) knows(ann wire.Announcement, report []byte) bool {
	n.w.t.Helper()
	synctest.Wait() // a round is found before all of its passes are known
	r, err := n.round(context.Background(), wire.Digest(ann))
	if err != nil {
		n.w.t.Fatal(err)
	}
	place, ok, err := r.passes.admit(report)
	if err != nil {
		n.w.t.Fatal(err)
	}
	if ok {
		r.passes.leave(place)
	}
	return ok
}

// A client whose session is known shows it; whose is not, as after a restart, is a
// stranger once. Reports with and without a known pass are taken alike.
func TestPasses(t *testing.T) { synctest.Test(t, passesAreKnown) }

func passesAreKnown(t *testing.T) {
	w := newWorld(t, 4)
	n := w.start(w.config())
	early := w.session(0) // before the round
	ann := n.announcement(1)
	n.open(ann)
	if !n.knows(ann, w.passed(ann, 0, 1, early.Key.Pass(wire.Digest(ann)))) {
		t.Error("a session from before the round is not known")
	}
	mine := w.passed(ann, 1, 1, w.pass(ann, 1)) // after it was opened
	if !n.knows(ann, mine) {
		t.Error("a session from within the round is not known")
	}
	plain := w.report(ann, 2, 1)
	if n.knows(ann, plain) || n.knows(ann, w.passed(ann, 1, 1, wire.ID{1})) || n.knows(ann, mine[:wire.ReportHeader-1]) {
		t.Error("what shows no pass of its round is known")
	}
	other := n.announcement(2)
	n.open(other)
	if n.knows(other, mine) || w.pass(ann, 1) == w.pass(other, 1) || w.pass(ann, 1) == w.pass(ann, 0) {
		t.Error("a pass is of one round and one client")
	}
	n.must("", "POST", "/v1/report", mine)
	n.must("", "POST", "/v1/report", mine) // the same again
	n.must("", "POST", "/v1/report", plain)
	n.refused(wire.SecondReport, "", "POST", "/v1/report", w.passed(ann, 1, 2, w.pass(ann, 1)))
	n.refused(wire.SecondReport, "", "POST", "/v1/report", w.report(ann, 1, 3))
	last := w.passed(ann, 3, 1, w.pass(ann, 3))
	n.stop()

	n = w.start(w.config())
	if n.knows(ann, last) {
		t.Error("sessions are known that nobody has shown")
	}
	n.must("", "POST", "/v1/report", last)
	if !n.knows(ann, last) {
		t.Error("a session that a report was taken by is not known")
	}
	n.must("", "POST", "/v1/report", w.passed(ann, 0, 1, early.Key.Pass(wire.Digest(ann))))
	if word := n.closed(ann); word.Reports != 4 {
		t.Errorf("%d reports", word.Reports)
	}
}

// A pass is bound by the seal, and opens the door for its own client's report alone.
func TestPassesAreNotLent(t *testing.T) { synctest.Test(t, passesAreNotLent) }

func passesAreNotLent(t *testing.T) {
	w := newWorld(t, 3)
	n := w.start(w.config())
	ann := n.announcement(1)
	n.open(ann)
	mine := w.passed(ann, 0, 1, w.pass(ann, 0))
	lent := bytes.Clone(w.passed(ann, 1, 1, w.pass(ann, 1)))
	copy(lent[wire.ReportHeader-len(wire.ID{}):], mine[wire.ReportHeader-len(wire.ID{}):wire.ReportHeader])
	n.refused(wire.WrongKey, "", "POST", "/v1/report", lent)
	n.refused(wire.BadSignature, "", "POST", "/v1/report", w.passed(ann, 1, 1, w.pass(ann, 0)))
	n.refused(wire.WrongSize, "", "POST", "/v1/report", mine[:len(mine)-len(wire.ID{})])
	plain := w.report(ann, 2, 1)
	n.refused(wire.WrongSize, "", "POST", "/v1/report", append(bytes.Clone(plain), make([]byte, len(wire.ID{}))...))
	n.must("", "POST", "/v1/report", mine)
}

// One client's pass does not take the memory of others: two reports are received with
// it at a time, and strangers' wait in line with nobody.
func TestStalledPasses(t *testing.T) { synctest.Test(t, stalledPasses) }

func stalledPasses(t *testing.T) {
	w := newWorld(t, 3)
	c := w.config()
	n := w.start(c)
	ann := n.announcement(1)
	n.open(ann)
	mine := w.passed(ann, 0, 1, w.pass(ann, 0))
	var wg sync.WaitGroup
	defer wg.Wait()
	for range mostAtOnce {
		from, to := io.Pipe()
		defer to.Close()
		wg.Go(func() {
			r := httptest.NewRequest("POST", "/v1/report", from)
			r.ContentLength = int64(len(mine))
			serve(n, httptest.NewRecorder(), r)
			_ = from.Close()
		})
		if _, err := to.Write(mine[:len(mine)/2]); err != nil {
			t.Fatal(err)
		}
	}
	n.refused(wire.TooMany, "", "POST", "/v1/report", mine)
	n.must("", "POST", "/v1/report", w.passed(ann, 1, 1, w.pass(ann, 1)))
	n.must("", "POST", "/v1/report", w.report(ann, 2, 1))
}

// tap gives some bytes and then nothing any more.
type tap struct{ left int }

func (f *tap) Read(p []byte) (int, error) {
	if f.left == 0 {
		return 0, errors.New("stalled")
	}
	n := min(len(p), f.left)
	f.left -= n
	return n, nil
}

// What strangers announce takes no memory: what they send does.
func TestStrangersAreHeldAsTheyArrive(t *testing.T) {
	header := make([]byte, wire.ReportHeader)
	for sent, most := range map[int]uint64{0: 8 << 10, 5000: 16 << 10, 100_000: 300 << 10} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := hold(t.Context(), &tap{sent}, header, 4<<20)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; err == nil || n > most {
			t.Errorf("%d bytes for %d that were sent: %v", n, sent, err)
		}
	}
	want := make([]byte, 20_000)
	rand.Read(want)
	for _, size := range []int{len(header), len(header) + 1, firstHeld - 1, firstHeld, firstHeld + 1, 3 * firstHeld, len(want)} {
		got, err := hold(t.Context(), bytes.NewReader(want[len(header):]), want[:len(header)], int64(size))
		if err != nil || !bytes.Equal(got, want[:size]) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	for _, path := range []string{"/v1/session", "/v1/ask"} {
		w := newWorld(t, 2)
		n := w.start(w.config())
		n.refused(wire.TooMany, "", "POST", path, make([]byte, maxSmall+1))
	}
}

// Names of rounds that were invented cost one look at the store for all of them, and
// a round that was opened by another process is found meanwhile.
func TestInventedRounds(t *testing.T) { synctest.Test(t, inventedRounds) }

func inventedRounds(t *testing.T) {
	w := newWorld(t, 2)
	opener := w.start(w.config())
	first := opener.announcement(1)
	opener.open(first)
	real := w.report(first, 0, 1)
	var looks atomic.Int64
	c := w.config()
	c.FrontendOnly = true
	c.Poll = time.Hour
	c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, _ bool) error {
		if strings.HasPrefix(op, "get ") && op != "get secret" || op == "list values" {
			looks.Add(1)
		}
		return nil
	})}
	n := w.start(c)
	looks.Store(0)
	begun := time.Now()
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 4 {
				body := bytes.Clone(real)
				rand.Read(body[10:42])
				r := httptest.NewRequest("POST", "/v1/report", bytes.NewReader(body))
				rec := httptest.NewRecorder()
				serve(n, rec, r)
				var got endpoint.Refusal
				if err := json.Unmarshal(rec.Body.Bytes(), &got); err != nil || got.Reason != wire.UnknownRound {
					t.Errorf("%d %s", rec.Code, rec.Body)
				}
			}
		})
	}
	n.must("", "POST", "/v1/report", real)
	wg.Wait()
	// A real round costs a few.
	if most := int64(time.Since(begun)/markPause) + 12; looks.Load() > most {
		t.Errorf("%d looks at the store for 200 invented names, at most %d", looks.Load(), most)
	}
	if looks.Load() == 0 {
		t.Error("the count does not count")
	}
}

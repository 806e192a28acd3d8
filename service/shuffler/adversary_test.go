package shuffler

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Whatever some clients send, it is refused and counted by its reason, and what
// the others send is in the batch.
func TestWhatClientsMaySend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 10)
		outsider := newWorld(t, 1)
		c := w.config()
		n := w.start(c)
		ann := n.announcement(1, func(a *wire.Announcement) { a.MinReports = 3 })
		n.open(ann)
		other := n.announcement(1, func(a *wire.Announcement) { a.Task = [32]byte{9} })
		n.open(other)
		unknown := n.announcement(7)
		good := w.report(ann, 0, 0)
		n.send(good)

		flip := func(at int) []byte {
			b := slices.Clone(good)
			b[at] ^= 1
			return b
		}
		by := func(r *wire.Report, i int, change ...func(*wire.Report)) []byte {
			wire.Authenticate(r, w.session(i))
			for _, f := range change {
				f(r)
			}
			return w.sealed(r)
		}
		with := func(s wire.Session) []byte {
			r := w.unsealed(ann, 1, 0)
			wire.Authenticate(r, s)
			return w.sealed(r)
		}
		mine := w.session(1)
		day := int64(24 * 60 * 60)
		for name, x := range map[string]struct {
			body []byte
			want wire.Reason
			size bool // counted for the round
		}{
			"nothing":              {nil, wire.Malformed, false},
			"garbage":              {[]byte("garbage"), wire.Malformed, false},
			"another version":      {flip(0), wire.Malformed, false},
			"another kind":         {flip(1), wire.Malformed, false},
			"another key id":       {flip(5), wire.WrongKey, true},
			"another announcement": {flip(20), wire.UnknownRound, false},
			"the header only":      {good[:wire.ReportHeader], wire.WrongSize, true},
			"truncated":            {good[:len(good)-1], wire.WrongSize, true},
			"one byte more":        {append(slices.Clone(good), 0), wire.WrongSize, true},
			"changed enc":          {flip(wire.ReportHeader + 3), wire.WrongKey, true},
			"changed ciphertext":   {flip(len(good) - 20), wire.WrongKey, true},
			"no such round":        {w.report(unknown, 1, 0), wire.UnknownRound, false},
			// Sealed for one round, sent to another: the header is part of the seal.
			"another round's": {append(append(slices.Clone(w.report(other, 1, 0)[:10]), good[10:42]...), w.report(other, 1, 0)[42:]...), wire.WrongKey, true},
			"another shuffler's key": {func() []byte {
				r := w.unsealed(ann, 1, 0)
				wire.Authenticate(r, mine)
				return outsider.sealed(r)
			}(), wire.WrongKey, true},
			"not enrolled": {func() []byte {
				r := w.unsealed(ann, 1, 0)
				r.Client = wire.ClientID(public(outsider.clients[0]))
				wire.Authenticate(r, mine)
				return w.sealed(r)
			}(), wire.NotEnrolled, true},
			"another's MAC":            {by(w.unsealed(ann, 1, 0), 2), wire.BadSignature, true},
			"no MAC":                   {by(w.unsealed(ann, 1, 0), 1, func(r *wire.Report) { r.MAC = [32]byte{} }), wire.BadSignature, true},
			"a forged MAC":             {by(w.unsealed(ann, 1, 0), 1, func(r *wire.Report) { r.MAC[31] ^= 0x80 }), wire.BadSignature, true},
			"a guessed key":            {with(wire.Session{Expires: mine.Expires}), wire.BadSignature, true},
			"the MAC of another round": {by(w.unsealed(other, 1, 0), 1, func(r *wire.Report) { r.Announcement = wire.Digest(ann) }), wire.BadSignature, true},
			"the MAC of another id":    {by(w.unsealed(ann, 1, 0), 1, func(r *wire.Report) { r.ID[3]++ }), wire.BadSignature, true},
			"the MAC of another part":  {by(w.unsealed(ann, 1, 0), 1, func(r *wire.Report) { r.Part[15]++ }), wire.BadSignature, true},
			"no session":               {w.sealed(w.unsealed(ann, 1, 0)), wire.Expired, true},
			"another session's MAC":    {by(w.unsealed(ann, 1, 0), 1, func(r *wire.Report) { r.Session += day }), wire.BadSignature, true},
			"a session of no day":      {with(wire.Session{Expires: mine.Expires + 1, Key: mine.Key}), wire.BadSignature, true},
			"a session that is over":   {with(wire.Session{Expires: time.Now().Unix(), Key: mine.Key}), wire.Expired, true},
			"a second report":          {w.report(ann, 0, 1), wire.SecondReport, true},
		} {
			before := n.Snapshot().Refused[x.want]
			d := wire.Digest(ann)
			r, err := n.round(context.Background(), d)
			if err != nil {
				t.Fatal(err)
			}
			had, _ := r.counts.snapshot()
			n.refused(x.want, "", "POST", "/v1/report", x.body)
			if got := n.Snapshot().Refused[x.want]; got != before+1 {
				t.Errorf("%s: counted %d times", name, got-before)
			}
			have, _ := r.counts.snapshot()
			if counted := have[x.want] == had[x.want]+1; counted != x.size {
				t.Errorf("%s: counted for the round: %t", name, counted)
			}
		}
		n.refused(wire.TooMany, "", "POST", "/v1/report", make([]byte, 2<<20))
		n.send(good, good) // the same again is no error
		for i := 2; i < 10; i++ {
			n.send(w.report(ann, i, 0))
		}
		word := n.closed(ann)
		want, _ := w.expected(ann, [][2]int{{0, 0}, {2, 0}, {3, 0}, {4, 0}, {5, 0}, {6, 0}, {7, 0}, {8, 0}, {9, 0}})
		if got := n.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Error("a report of an honest client is lost, or there is one too many")
		}
		n.refused(wire.Closed, "", "POST", "/v1/report", w.report(ann, 1, 0))
		got := fmt.Sprint(rejected(word))
		if got != fmt.Sprint(map[wire.Reason]int64{wire.WrongSize: 3, wire.WrongKey: 5, wire.NotEnrolled: 1, wire.BadSignature: 9, wire.Expired: 2,
			wire.Duplicate: 2, wire.SecondReport: 1}) {
			t.Errorf("rejected %s", got)
		}
	})
}

func TestLateReportsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		c := w.config()
		c.FrontendOnly = true // nobody closes the round
		n := w.start(c)
		ann := n.announcement(1)
		n.open(ann)
		early, late := w.report(ann, 0, 0), w.report(ann, 1, 0)
		time.Sleep(59 * time.Second)
		n.send(early)
		time.Sleep(time.Second + time.Millisecond)
		n.refused(wire.Closed, "", "POST", "/v1/report", late)
		n.refused(wire.Closed, "", "POST", "/v1/report", early)
	})
}

func TestAsksAreChecked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		mine, others := w.session(0), w.session(1)
		refused := func(want wire.Reason, body []byte) {
			t.Helper()
			n.refused(want, "", "POST", "/v1/ask", body)
		}
		if b := n.must("", "POST", "/v1/ask", w.ask(ann, 0, mine)); len(b) != 1 || b[0] != 1 {
			t.Errorf("answer %v", b)
		}
		refused(wire.Malformed, nil)
		refused(wire.Malformed, make([]byte, 200))
		refused(wire.BadSignature, w.ask(ann, 0, others))
		refused(wire.BadSignature, w.ask(ann, 0, mine, func(m *wire.Ask) { m.MAC[31] ^= 0x80 }))
		refused(wire.BadSignature, w.ask(ann, 0, mine, func(m *wire.Ask) { m.Announcement[0]++ }))
		refused(wire.BadSignature, w.ask(ann, 0, mine, func(m *wire.Ask) { m.Session += int64(sessionDay / time.Second) }))
		refused(wire.Expired, w.ask(ann, 0, mine, func(m *wire.Ask) { m.Session = time.Now().Unix() }))
		refused(wire.NotEnrolled, w.ask(ann, 0, mine, func(m *wire.Ask) { m.Client = wire.ID{} }))
		gone := ann
		gone.Round++
		refused(wire.UnknownRound, w.ask(gone, 0, mine))
	})
}

// A coordinator that wants more than it may have.
func TestWhatACoordinatorMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.min = 3
		n := w.start(w.config())
		post := func(reason wire.Reason, signed []byte) {
			t.Helper()
			n.refused(reason, Coordinator, "POST", "/v1/rounds", signed)
		}
		change := func(f func(*wire.Announcement)) []byte { return w.sign(n.announcement(4, f)) }
		post(wire.Refused, change(func(a *wire.Announcement) { a.MinReports = 2 }))
		post(wire.NotEnrolled, change(func(a *wire.Announcement) { a.Population = 50 }))
		post(wire.NotEnrolled, change(func(a *wire.Announcement) { a.Enrolment = [32]byte{} }))
		post(wire.Refused, change(func(a *wire.Announcement) { a.Deadline = a.Opens + 1 }))
		post(wire.WrongKey, change(func(a *wire.Announcement) { a.Coordinator.Expires = time.Now().Unix() }))
		// Forged: signed by somebody else, as something else, or changed.
		ann := n.announcement(4)
		post(wire.BadSignature, wire.Sign(w.operator, wire.LabelAnnouncement, wire.Encode(ann)))
		post(wire.BadSignature, wire.Sign(w.coordinator, wire.LabelTask, wire.Encode(ann)))
		forged := w.sign(ann)
		forged[100] ^= 1
		post(wire.BadSignature, forged)
		post(wire.Malformed, wire.Sign(w.coordinator, wire.LabelAnnouncement, []byte("garbage")))
		post(wire.Malformed, nil)
		if got := n.Snapshot().Declined; got[wire.Refused] != 2 || got[wire.BadSignature] != 3 {
			t.Errorf("rounds that were not opened: %v", got)
		}
		if len(w.rounds()) != 0 || len(w.disk.Streams) != 0 {
			t.Error("a refused round has left something")
		}
		n.open(ann)
		// Two announcements of one round, an old round, and the same one again.
		post(wire.SecondReport, change(func(a *wire.Announcement) { a.Eps0 = 9 }))
		post(wire.Closed, w.sign(n.announcement(3)))
		n.open(ann)

		// The batch is not to be had before the round is closed, nor the round to be ended.
		for i := range 4 {
			n.send(w.report(ann, i, 0))
		}
		n.refused(wire.Unavailable, Coordinator, "GET", path(ann, "/chunks"), nil)
		n.refused(wire.Unavailable, Coordinator, "GET", path(ann, "/chunks/0"), nil)
		n.refused(wire.Unavailable, Coordinator, "DELETE", path(ann, ""), nil)
		// Others may not ask at all, and the aggregator only for its own.
		for _, peer := range []string{"nobody", Aggregator} {
			n.refused(wire.NotEnrolled, peer, "POST", "/v1/rounds", w.sign(n.announcement(5)))
			n.refused(wire.NotEnrolled, peer, "DELETE", path(ann, ""), nil)
		}
		n.refused(wire.NotEnrolled, "nobody", "GET", path(ann, "/closed"), nil)
		if code, _ := n.do("", "GET", path(ann, "/chunks"), nil); code != 404 {
			t.Errorf("clients reach the batch: %d", code)
		}
		word := n.closed(ann)
		n.fetch(Coordinator, ann, word)
		n.refused(wire.Malformed, Aggregator, "GET", path(ann, "/chunks/0"), nil)
		n.refused(wire.Malformed, Coordinator, "GET", path(ann, "/chunks/1"), nil)
		n.refused(wire.Malformed, Coordinator, "GET", path(ann, "/chunks/-1"), nil)
		n.refused(wire.Malformed, Coordinator, "GET", "/v1/rounds/xyz/closed", nil)
		n.refused(wire.Malformed, Coordinator, "GET", path(ann, "/closed?wait=soon"), nil)
		n.refused(wire.UnknownRound, Coordinator, "GET", "/v1/rounds/"+hex.EncodeToString(make([]byte, 32))+"/closed", nil)

		// After the release the same announcement opens nothing: the round stays over.
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		n.open(ann)
		n.refused(wire.Closed, "", "POST", "/v1/report", w.report(ann, 4, 0))
		n.refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks"), nil)
		post(wire.SecondReport, change(func(a *wire.Announcement) { a.Eps0 = 9 }))
		w.destroyed(ann)
	})
}

// A coordinator's worker gets the chunks of closed rounds, the coordinator's, and nothing else: it cannot
// open, watch or end a round, nor tell of a ledger.
func TestWhatAWorkerMayAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		w.min = 3
		n := w.start(w.config())
		ann := n.announcement(4)
		n.refused(wire.NotEnrolled, Worker, "POST", "/v1/rounds", w.sign(ann))
		n.open(ann)
		for i := range 4 {
			n.send(w.report(ann, i, 0))
		}
		n.refused(wire.Unavailable, Worker, "GET", path(ann, "/chunks/0"), nil)
		n.refused(wire.NotEnrolled, Worker, "GET", path(ann, "/closed"), nil)
		n.closed(ann)
		chunk := n.must(Worker, "GET", path(ann, "/chunks/0"), nil)
		if own := n.must(Coordinator, "GET", path(ann, "/chunks/0"), nil); !bytes.Equal(chunk, own) {
			t.Error("a worker gets another chunk than its coordinator")
		}
		n.refused(wire.NotEnrolled, Worker, "GET", path(ann, "/chunks"), nil)
		n.refused(wire.NotEnrolled, Worker, "GET", path(ann, "/closed"), nil)
		n.refused(wire.NotEnrolled, Worker, "DELETE", path(ann, ""), nil)
		n.refused(wire.NotEnrolled, Worker, "POST", "/v1/ledger", nil)
		for _, method := range []string{"DELETE", "PUT", "POST"} {
			if code, _ := n.do(Worker, method, path(ann, "/chunks/0"), nil); code != 405 {
				t.Errorf("%s of a chunk: %d", method, code)
			}
		}
		if code, _ := n.do(Worker, "POST", "/v1/report", nil); code != 404 {
			t.Errorf("a worker sends a report: %d", code)
		}
		n.must(Coordinator, "GET", path(ann, "/chunks/0"), nil) // the round is still there
		n.must(Coordinator, "DELETE", path(ann, ""), nil)
		n.refused(wire.Closed, Worker, "GET", path(ann, "/chunks/0"), nil)
	})
}

func TestEnrolmentIsSignedAndStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 5)
		slow := func() Config {
			c := w.config()
			c.Poll = time.Hour
			return c
		}
		get := func(n *node) wire.Enrolment {
			t.Helper()
			m, err := wire.Verify(public(w.operator), wire.LabelEnrolment, n.must("", "GET", "/v1/enrolment", nil))
			if err != nil {
				t.Fatal(err)
			}
			e, err := wire.Decode[wire.Enrolment](m)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		n := w.start(slow())
		first := get(n)
		if first.Clients != 5 || first.MinReports != w.min || first.Serial != 1 || first.Population != (wire.ID{7}) || len(first.Aggregator) != 1 {
			t.Errorf("enrolment %+v", first)
		}
		r := httptest.NewRequest("GET", "/v1/enrolment", nil)
		r.Header.Set("If-None-Match", n.enrolment.Load().etag)
		rec := httptest.NewRecorder()
		if serve(n, rec, r); rec.Code != 304 {
			t.Errorf("%d for a known ETag", rec.Code)
		}
		n.stop()
		time.Sleep(time.Hour)
		n = w.start(slow())
		if again := get(n); wire.Digest(again) != wire.Digest(first) {
			t.Error("another enrolment after a restart")
		}
		time.Sleep(20 * 24 * time.Hour)
		if renewed := get(n); renewed.Serial != 2 || renewed.To <= first.To {
			t.Errorf("not renewed: %+v", renewed)
		}
		n.stop()
		w.clients = append(w.clients, signer(t))
		n = w.start(slow())
		if grown := get(n); grown.Serial != 3 || grown.Clients != 6 || grown.Roster == first.Roster {
			t.Errorf("enrolment %+v", grown)
		}
	})
}

// The roster must not change under an open round: the draw is of the old one.
func TestAnotherRosterDoesNotServeTheRound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		n := w.start(w.config())
		ann := n.announcement(1)
		n.open(ann)
		n.send(w.report(ann, 0, 0), w.report(ann, 1, 0))
		body := w.report(ann, 2, 0)
		n.stop()
		w.clients[3] = signer(t)
		n = w.start(w.config())
		n.refused(wire.Unavailable, "", "POST", "/v1/report", body)
		if word := n.closed(ann); word.Reports != 2 {
			t.Errorf("word %+v", word)
		}
	})
}

func TestNewRefuses(t *testing.T) {
	w := newWorld(t, 3)
	for name, f := range map[string]func(*Config){
		"no operator":    func(c *Config) { c.Operator = nil },
		"no coordinator": func(c *Config) { c.Coordinators = nil },
		"a short key":    func(c *Config) { c.Coordinators[0] = c.Coordinators[0][:31] },
		"no keys":        func(c *Config) { c.Keys = nil },
		"no store":       func(c *Config) { c.Store = nil },
		"no floor":       func(c *Config) { c.MinReports = 0 },
		"a floor above":  func(c *Config) { c.MinReports = 4 },
		"enrolled twice": func(c *Config) { copy(c.Roster[32:], c.Roster[:32]) },
		"a torn client":  func(c *Config) { c.Roster = c.Roster[:37] },
		"below 0":        func(c *Config) { c.Poll = -1 },
	} {
		c := w.config()
		f(&c)
		if _, err := New(c); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}

// Handlers answer before Run and after it: nothing is stored then.
func TestNothingIsTakenOutsideRun(t *testing.T) {
	w := newWorld(t, 2)
	s, err := New(w.config())
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Service: s, w: w}
	n.refused(wire.Unavailable, "", "POST", "/v1/report", []byte("x"))
	n.refused(wire.Unavailable, "", "GET", "/v1/enrolment", nil)
	if s.Ready(context.Background()) == nil {
		t.Error("ready")
	}
	run := w.start(w.config())
	if err := run.Ready(context.Background()); err != nil {
		t.Error(err)
	}
	run.stop()
	run.refused(wire.Unavailable, "", "POST", "/v1/report", []byte("x"))
	run.refused(wire.Unavailable, Coordinator, "POST", "/v1/rounds", []byte("x"))
}

// FuzzReport: whatever comes, the answer is 204 or a refusal of the closed set,
// and only what was sealed and signed is ever stored.
func FuzzReport(f *testing.F) {
	w := newWorld(f, 2)
	n := w.start(w.config())
	ann := n.announcement(1)
	n.open(ann)
	good := w.report(ann, 0, 0)
	f.Add(good)
	f.Add(good[:wire.ReportHeader])
	f.Add([]byte{})
	d := wire.Digest(ann)
	f.Add(wire.Encode(wire.Header{Key: w.seal.Keys[0].ID(), Announcement: d}))
	f.Fuzz(func(t *testing.T, body []byte) {
		code, b := n.do("", "POST", "/v1/report", body)
		if bytes.Equal(body, good) {
			return // at the deadline it is refused
		}
		if code < 400 || !bytes.Contains(b, []byte(`"reason"`)) || code == http.StatusServiceUnavailable {
			t.Errorf("%d %s", code, b)
		}
	})
}

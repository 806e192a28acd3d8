package client_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// world is the other roles as clients see them: two servers, their keys, and what
// they were sent. Every answer can be tampered with. It lives in a bubble.
type world struct {
	t           *testing.T
	suite       wire.Suite
	coordinator ed25519.PrivateKey // signing
	operator    ed25519.PrivateKey
	opens       map[envelope.Reader]*envelope.PrivateKey
	rings       map[envelope.Reader]*envelope.Keyring
	members     []client.Member
	at          map[wire.ID]int
	enrolment   wire.Enrolment
	task        wire.Task
	mechanism   randomizer.Randomizer
	network     *memnet.Network
	servers     [2]*httptest.Server
	dir         string // of the last config

	mu       sync.Mutex
	changed  chan struct{}
	ann      []byte // signed
	open     wire.Announcement
	digest   [32]byte
	model    []byte
	ended    bool
	drawn    map[int]bool // nil: all
	sessions map[wire.ID]wire.Session
	given    map[string]wire.Session // by request
	lasting  time.Duration           // of new sessions
	taken    *int64                  // what sessions tell of the number of messages that were taken; nil: nothing
	got      map[wire.ID][]byte
	reports  map[wire.ID]wire.Report
	requests map[string]int    // by method and path, without digests
	told     map[string][]byte // what is published of rounds, by path
	// before answers in place of the handlers where it returns true.
	before func(w http.ResponseWriter, r *http.Request) bool
}

const dim = 5

func newWorld(t *testing.T, n int, task wire.Task) *world {
	t.Helper()
	return newWorldOf(t, wire.X25519, n, task)
}

func newWorldOf(t *testing.T, suite wire.Suite, n int, task wire.Task) *world {
	t.Helper()
	w := &world{t: t, suite: suite, opens: map[envelope.Reader]*envelope.PrivateKey{}, rings: map[envelope.Reader]*envelope.Keyring{},
		at: map[wire.ID]int{}, changed: make(chan struct{}), requests: map[string]int{}, task: task,
		sessions: map[wire.ID]wire.Session{}, given: map[string]wire.Session{}, lasting: 48 * time.Hour}
	_, w.coordinator, _ = ed25519.GenerateKey(rand.Reader)
	_, w.operator, _ = ed25519.GenerateKey(rand.Reader)
	for _, r := range []envelope.Reader{envelope.Shuffler, envelope.Coordinator, envelope.Aggregator} {
		k, err := envelope.GenerateKey(suite, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		w.opens[r] = k
		if w.rings[r], err = envelope.NewKeyring(k); err != nil {
			t.Fatal(err)
		}
	}
	var ids []wire.ID
	for i := range n {
		c, err := client.NewCredential()
		if err != nil {
			t.Fatal(err)
		}
		w.members = append(w.members, client.Member{Credential: c, Source: client.Func(dim, gradientOf(int64(i)))})
		id := wire.ClientID(c.Public())
		w.at[id] = i
		ids = append(ids, id)
	}
	w.enrolment = wire.Enrolment{Population: task.Population, Serial: 1, Clients: int64(n), Roster: wire.RosterDigest(ids), MinReports: 2,
		Shuffler: []wire.Key{w.opens[envelope.Shuffler].Public}, Aggregator: []wire.Key{w.opens[envelope.Aggregator].Public},
		From: time.Now().Add(-time.Minute).Unix(), To: time.Now().Add(time.Hour).Unix()}
	var err error
	if w.mechanism, err = mechanism.New(task.Mechanism); err != nil {
		// A task that clients must refuse; announced as this one.
		if w.mechanism, err = mechanism.New(shuffleTask().Mechanism); err != nil {
			t.Fatal(err)
		}
	}
	w.network = memnet.New()
	w.servers[0] = w.network.ServeTLS(t, http.HandlerFunc(w.serveCoordinator))
	w.servers[1] = w.network.ServeTLS(t, http.HandlerFunc(w.serveShuffler))
	return w
}

// gradientOf is client i's gradient: of ½‖θ − x_i‖², for a point that differs.
func gradientOf(i int64) client.Gradient {
	return func(theta, grad []float32) {
		for j := range grad {
			grad[j] = theta[j] - float32(math.Sin(float64(7*i+int64(j))))
		}
	}
}

// policy allows what the tests ask for.
func policy() pure.Policy {
	return pure.Policy{MaxEps0: 8, MaxEps: 1e3, Delta: 1e-3, MinReports: 2}
}

func (w *world) config() client.JoinConfig {
	roots := x509.NewCertPool()
	for _, s := range w.servers {
		roots.AddCert(s.Certificate())
	}
	dir := w.t.TempDir()
	w.dir = dir
	if err := client.CreateLedger(dir); err != nil {
		w.t.Fatal(err)
	}
	return client.JoinConfig{Coordinator: w.servers[0].URL, Shuffler: w.servers[1].URL,
		CoordinatorKey: w.coordinator.Public().(ed25519.PublicKey), ShufflerKey: w.operator.Public().(ed25519.PublicKey),
		Roots: roots, Dial: w.network.DialContext, Directory: dir, Policy: policy(), Accountant: accountant, Tasks: [][32]byte{wire.Digest(w.task)}, Spread: -1}
}

// roundTime is how long a round lasts unless a test says otherwise.
const roundTime = time.Minute

// fill adds to a pure announcement what a network needs.
func (w *world) fill(a wire.Announcement) wire.Announcement {
	a.Enrolment = wire.Digest(w.enrolment)
	a.Opens, a.Deadline = time.Now().UnixMilli(), time.Now().Add(roundTime).UnixMilli()
	a.Coordinator = w.opens[envelope.Coordinator].Public
	part, share, err := mechanism.ContentSizes(w.mechanism)
	if err != nil {
		w.t.Fatal(err)
	}
	attached := w.task.Attachments()
	part, share = attached.Size(part), attached.Size(share)
	if a.ReportBytes, err = envelope.PartSize(w.suite, part); err != nil {
		w.t.Fatal(err)
	}
	if share > 0 {
		a.Aggregator = w.opens[envelope.Aggregator].Public
		if a.ShareBytes, err = envelope.PartSize(w.suite, share); err != nil {
			w.t.Fatal(err)
		}
	}
	return a
}

// fitSizes makes an announcement's sizes those of its keys.
func (w *world) fitSizes(a *wire.Announcement) {
	part, share, err := mechanism.ContentSizes(w.mechanism)
	if err != nil {
		w.t.Fatal(err)
	}
	if a.ReportBytes, err = envelope.PartSize(a.Coordinator.Suite, part); err != nil {
		w.t.Fatal(err)
	}
	if share > 0 {
		if a.ShareBytes, err = envelope.PartSize(a.Aggregator.Suite, share); err != nil {
			w.t.Fatal(err)
		}
	}
}

// announcement is a good one of a round, for tests without a coordinator.
func (w *world) announcement(round int64, theta []float32) wire.Announcement {
	a := wire.Announcement{Task: wire.Digest(w.task), Round: round, ModelDigest: sha256.Sum256(encode(theta)), Trust: w.task.Trust,
		Participation: w.task.Participation, Population: w.enrolment.Clients, MinReports: w.task.MinReports, Messages: w.task.Messages,
		Randomizer: w.mechanism.Facts().Name, Eps0: w.mechanism.Event().Eps0, Sigma: w.mechanism.Event().Sigma, Clip: w.task.Mechanism.Clip}
	switch a.Participation {
	case dp.Sampled:
		a.Sample = w.task.MinReports
	case dp.CheckIn:
		a.Gamma = .5
		if w.task.Every > 0 {
			a.Gamma = 1 / float64(w.task.Every)
		}
	case dp.Once:
		a.PerEpoch = 2
	}
	return w.fill(a)
}

func encode(theta []float32) []byte {
	var b []byte
	for _, v := range theta {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

// publish opens a round.
func (w *world) publish(a wire.Announcement, theta []float32, drawn map[int]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open, w.digest = a, wire.Digest(a)
	w.ann, w.model, w.drawn = wire.Sign(w.coordinator, wire.LabelAnnouncement, wire.Encode(a)), encode(theta), drawn
	w.got, w.reports = map[wire.ID][]byte{}, map[wire.ID]wire.Report{}
	w.wake()
}

// end says that the task has no more rounds.
func (w *world) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	w.wake()
}

func (w *world) wake() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// wait returns the reports once there are n; sooner it fails.
func (w *world) wait(ctx context.Context, n int) map[wire.ID]wire.Report {
	w.t.Helper()
	w.until(ctx, func() bool { return len(w.reports) == n })
	return w.reports
}

// until waits until ok, which is asked for after each request, holds.
func (w *world) until(ctx context.Context, ok func() bool) {
	w.t.Helper()
	for {
		w.mu.Lock()
		done, changed := ok(), w.changed
		w.mu.Unlock()
		if done {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("%d reports, requests %v: %v", len(w.reports), w.requests, context.Cause(ctx))
		case <-changed:
		}
	}
}

// await lets the bubble's time pass until ok holds.
func await(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Hour); ; time.Sleep(time.Millisecond) {
		synctest.Wait()
		if ok() {
			return
		}
		if time.Now().After(end) {
			t.Fatal("it does not come")
		}
	}
}

func (w *world) asked(what string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.requests[what]
}

func (w *world) count(r *http.Request, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.requests[r.Method+" "+what]++
	w.wake()
}

func (w *world) hook() func(http.ResponseWriter, *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.before
}

func (w *world) serveCoordinator(rw http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/tasks", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "tasks")
		fmt.Fprintf(rw, "%x\n", wire.Digest(w.task))
	})
	mux.HandleFunc("GET /v1/tasks/{task}", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "task")
		signed := wire.Sign(w.coordinator, wire.LabelTask, wire.Encode(w.task))
		endpoint.Lasting(rw, r, sha256.Sum256(signed), signed)
	})
	mux.HandleFunc("GET /v1/tasks/{task}/announcement", w.serveAnnouncement)
	mux.HandleFunc("GET /v1/rounds/{announcement}/{what}", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, r.PathValue("what"))
		w.mu.Lock()
		b, ok := w.told[r.URL.Path]
		w.mu.Unlock()
		if !ok {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		rw.Write(b)
	})
	mux.HandleFunc("GET /v1/models/{digest}", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "model")
		w.mu.Lock()
		defer w.mu.Unlock()
		if raw, err := hex.DecodeString(r.PathValue("digest")); err != nil || [32]byte(raw) != w.open.ModelDigest {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		endpoint.Lasting(rw, r, w.open.ModelDigest, w.model)
	})
	if h := w.hook(); h == nil || !h(rw, r) {
		mux.ServeHTTP(rw, r)
	}
}

func (w *world) serveAnnouncement(rw http.ResponseWriter, r *http.Request) {
	w.count(r, "announcement")
	after, _ := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	seconds, _ := strconv.ParseInt(r.URL.Query().Get("wait"), 10, 64)
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(seconds)*time.Second)
	defer cancel()
	for {
		w.mu.Lock()
		ended, ann, round, changed := w.ended, w.ann, w.open.Round, w.changed
		w.mu.Unlock()
		switch {
		case ended:
			endpoint.Refuse(rw, wire.Closed, "the task has ended")
			return
		case ann != nil && round > after:
			endpoint.Passing(rw, r, time.Second, ann)
			return
		}
		select {
		case <-ctx.Done():
			endpoint.ShortLived(rw, time.Second)
			rw.WriteHeader(http.StatusNoContent)
			return
		case <-changed:
		}
	}
}

func (w *world) serveShuffler(rw http.ResponseWriter, r *http.Request) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/enrolment", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "enrolment")
		w.mu.Lock()
		defer w.mu.Unlock()
		rw.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprint(w.enrolment.Serial)))
		if r.Header.Get("If-None-Match") == rw.Header().Get("ETag") {
			rw.WriteHeader(http.StatusNotModified)
			return
		}
		rw.Write(wire.Sign(w.operator, wire.LabelEnrolment, wire.Encode(w.enrolment)))
	})
	mux.HandleFunc("POST /v1/ask", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "ask")
		body, _ := io.ReadAll(r.Body)
		ask, i := w.openAsk(body)
		w.mu.Lock()
		defer w.mu.Unlock()
		if i < 0 {
			rw.WriteHeader(http.StatusUnauthorized)
			return
		}
		if ask.Announcement != w.digest {
			rw.WriteHeader(http.StatusNotFound)
			return
		}
		answer := byte(0)
		if w.drawn[i] {
			answer = 1
		}
		rw.Write([]byte{answer})
	})
	mux.HandleFunc("POST /v1/session", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "session")
		body, _ := io.ReadAll(r.Body)
		rw.Write(w.give(body))
	})
	mux.HandleFunc("POST /v1/report", func(rw http.ResponseWriter, r *http.Request) {
		w.count(r, "report")
		body, _ := io.ReadAll(r.Body)
		w.take(rw, body)
	})
	if h := w.hook(); h == nil || !h(rw, r) {
		mux.ServeHTTP(rw, r)
	}
}

func (w *world) openAsk(body []byte) (wire.Ask, int) {
	ask, err := wire.Decode[wire.Ask](body)
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.sessions[ask.Client]
	if err != nil {
		w.t.Errorf("ask: %v", err)
	}
	if !ok || ask.Session != s.Expires || wire.Authentic(&ask, s.Key) != nil {
		return ask, -1
	}
	return ask, w.at[ask.Client]
}

// give answers a request for a session with a new one.
func (w *world) give(body []byte) []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range w.members {
		message, err := wire.Verify(m.Credential.Public(), wire.LabelSession, body)
		if err != nil {
			continue
		}
		request, err := wire.Decode[wire.SessionRequest](message)
		if err != nil || request.Client != wire.ClientID(m.Credential.Public()) || request.Population != w.enrolment.Population ||
			max(request.Time-time.Now().Unix(), time.Now().Unix()-request.Time) > 60 {
			w.t.Errorf("request %+v: %v", request, err)
		}
		s := wire.Session{Expires: time.Now().Add(w.lasting).Unix()}
		rand.Read(s.Key[:])
		s.Taken = w.taken
		if again, ok := w.given[string(body)]; ok { // the same request gets the same session
			s = again
		}
		w.given[string(body)] = s
		w.sessions[request.Client] = s
		if request.Suite != w.suite {
			w.t.Errorf("a session is asked for under suite %d, reports are sealed under %d", request.Suite, w.suite)
		}
		sealed, err := envelope.SealSession(request, s)
		if err != nil {
			w.t.Error(err)
		}
		return sealed
	}
	w.t.Error("a request for a session that nobody signed")
	return nil
}

// take opens a report as the shuffler does and keeps it.
func (w *world) take(rw http.ResponseWriter, body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	head, _, err := wire.DecodeHeader(body)
	if err != nil || head.Announcement != w.digest {
		w.t.Errorf("a report of another round: %v", err)
		rw.WriteHeader(http.StatusNotFound)
		return
	}
	report, err := w.rings[envelope.Shuffler].OpenReport(body, w.open.PartBytes(), w.open.ShareBytes)
	if err != nil {
		w.t.Error(err)
		rw.WriteHeader(http.StatusBadRequest)
		return
	}
	i, ok := w.at[report.Client]
	if s := w.sessions[report.Client]; !ok || report.Session != s.Expires || wire.Authentic(&report, s.Key) != nil {
		w.t.Error("a report that is not its client's")
	} else if head.Pass != s.Key.Pass(w.digest) {
		w.t.Errorf("a report with pass %x", head.Pass)
	}
	if old, ok := w.got[report.Client]; ok && !bytes.Equal(old, body) {
		w.t.Errorf("client %d sent two reports in round %d", i, w.open.Round)
		rw.WriteHeader(http.StatusConflict)
		return
	}
	w.got[report.Client], w.reports[report.Client] = body, report
	rw.WriteHeader(http.StatusNoContent)
	w.wake()
}

package shuffler

import (
	"bytes"
	"context"
	"crypto/cipher"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// world holds the keys of everybody.
type world struct {
	t           testing.TB
	clients     []ed25519.PrivateKey
	operator    ed25519.PrivateKey
	coordinator ed25519.PrivateKey
	seal        *envelope.Keyring    // the shuffler's
	shuffled    *envelope.PrivateKey // the key in it
	reader      *envelope.PrivateKey
	second      *envelope.PrivateKey // the aggregator's
	answers     *envelope.PrivateKey // what sessions are sealed to
	disk        *memory.Disk
	min         int64
	counts      bool  // whether messages are counted by client
	node        *node // the last that was started: it gives the sessions
}

func signer(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func public(k ed25519.PrivateKey) ed25519.PublicKey { return k.Public().(ed25519.PublicKey) }

func sealing(t testing.TB, expires time.Time) *envelope.PrivateKey {
	t.Helper()
	k, err := envelope.GenerateKey(wire.X25519, expires)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func newWorld(t testing.TB, clients int) *world {
	t.Helper()
	later := time.Now().Add(24 * time.Hour)
	w := &world{t: t, operator: signer(t), coordinator: signer(t), reader: sealing(t, later), second: sealing(t, later), answers: sealing(t, later), disk: memory.NewDisk(), min: 2}
	for range clients {
		w.clients = append(w.clients, signer(t))
	}
	var err error
	w.shuffled = sealing(t, later)
	if w.seal, err = envelope.NewKeyring(w.shuffled); err != nil {
		t.Fatal(err)
	}
	return w
}

// config is a service's on the world's state in memory.
func (w *world) config() Config {
	c := Config{Population: wire.ID{7}, Operator: w.operator, Coordinators: []ed25519.PublicKey{public(w.coordinator)}, Keys: w.seal,
		Aggregator: []wire.Key{w.second.Public}, MinReports: w.min, Store: &memory.Store{Disk: w.disk}, Poll: 100 * time.Millisecond,
		Lease: time.Second, CountReports: w.counts}
	for _, k := range w.clients {
		c.Roster = append(c.Roster, public(k)...)
	}
	return c
}

// node is a running service.
type node struct {
	*Service
	w    *world
	stop func()
	// retry takes the place of must where the process may die.
	retry func(peer, method, path string, body []byte) []byte
}

// start runs a service until the test ends or stop is called.
func (w *world) start(c Config) *node {
	w.t.Helper()
	s, err := New(c)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n := &node{Service: s, w: w}
	w.node = n
	stopped := false
	n.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("run: %v", err)
		}
	}
	w.t.Cleanup(n.stop)
	for !s.running.Load() {
		select {
		case err := <-done:
			w.t.Fatalf("run: %v", err)
		case <-time.After(time.Millisecond): // some of these tests have a store that no bubble can hold
		}
	}
	return n
}

// serve answers a client's request.
func serve(n *node, w http.ResponseWriter, r *http.Request) {
	h, _ := n.Handlers()
	h.ServeHTTP(w, r)
}

// do sends a request as a peer ("" for a client) and returns status and body.
func (n *node) do(peer, method, path string, body []byte) (int, []byte) {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	h, peers := n.Handlers()
	if peer != "" {
		r, h = endpoint.WithPeer(r, peer), peers
	}
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	return rec.Code, rec.Body.Bytes()
}

// must is do with 200 or 204.
func (n *node) must(peer, method, path string, body []byte) []byte {
	n.w.t.Helper()
	if n.retry != nil {
		return n.retry(peer, method, path, body)
	}
	code, b := n.do(peer, method, path, body)
	if code/100 != 2 {
		n.w.t.Fatalf("%s %s: %d %s", method, path, code, b)
	}
	return b
}

// refused wants a refusal of this reason.
func (n *node) refused(reason wire.Reason, peer, method, path string, body []byte) {
	n.w.t.Helper()
	code, b := n.do(peer, method, path, body)
	want := httptest.NewRecorder()
	endpoint.Refuse(want, reason, "")
	var got endpoint.Refusal
	if err := json.Unmarshal(b, &got); err != nil || got.Reason != reason || code != want.Code && code != http.StatusRequestEntityTooLarge {
		n.w.t.Errorf("%s %s: %d %s, want %s", method, path, code, b, reason)
	}
}

const partContent = 20

// announcement makes one that the service opens.
func (n *node) announcement(round int64, change ...func(*wire.Announcement)) wire.Announcement {
	n.w.t.Helper()
	e := n.enrolment.Load()
	if e == nil {
		n.w.t.Fatal("no enrolment")
	}
	size, err := envelope.PartSize(wire.X25519, partContent)
	if err != nil {
		n.w.t.Fatal(err)
	}
	ann := wire.Announcement{Task: [32]byte{1}, Round: round, Trust: dp.Shuffle, Participation: dp.All, Population: e.Clients, MinReports: n.w.min,
		Randomizer: "rr", Eps0: 1, Clip: 1, Enrolment: wire.Digest(*e), Opens: time.Now().UnixMilli(), Deadline: time.Now().Add(time.Minute).UnixMilli(),
		Coordinator: n.w.reader.Public, ReportBytes: size}
	for _, f := range change {
		f(&ann)
	}
	return ann
}

func (w *world) sign(ann wire.Announcement) []byte {
	return wire.Sign(w.coordinator, wire.LabelAnnouncement, wire.Encode(ann))
}

func (n *node) open(ann wire.Announcement) {
	n.w.t.Helper()
	n.must(Coordinator, "POST", "/v1/rounds", n.w.sign(ann))
}

func path(ann wire.Announcement, rest string) string {
	d := wire.Digest(ann)
	return "/v1/rounds/" + hex.EncodeToString(d[:]) + rest
}

// content is what client i says, and is found again in the batch.
func content(i int, id byte) []byte {
	return fmt.Appendf(nil, "client %05d id %03d   ", i, id)[:partContent]
}

// message is message j, from 0, of client i.
func message(i int, id byte, j int) []byte {
	b := content(i, id)
	if j > 0 {
		b[partContent-1] = byte(j)
	}
	return b
}

func reportID(i int, id byte) wire.ID {
	return wire.ID{byte(i), byte(i >> 8), byte(i >> 16), id, 1}
}

// report is client i's sealed report.
func (w *world) report(ann wire.Announcement, i int, id byte) []byte {
	w.t.Helper()
	r := w.unsealed(ann, i, id)
	wire.Authenticate(r, w.session(i))
	return w.sealed(r)
}

// request is client i's signed request for a session.
func (w *world) request(i int, change ...func(*wire.SessionRequest)) []byte {
	m := wire.SessionRequest{Population: wire.ID{7}, Client: wire.ClientID(public(w.clients[i])), Time: time.Now().Unix(),
		Suite: wire.X25519, Public: w.answers.Public.Public}
	for _, f := range change {
		f(&m)
	}
	return wire.Sign(w.clients[i], wire.LabelSession, wire.Encode(m))
}

// session is client i's session with the node.
func (w *world) session(i int) wire.Session {
	w.t.Helper()
	request := w.request(i)
	return w.decoded(request, w.node.must("", "POST", "/v1/session", request))
}

// decoded opens the answer to a request.
func (w *world) decoded(request, b []byte) wire.Session {
	w.t.Helper()
	m, err := wire.Decode[wire.SessionRequest](request[64:])
	if err != nil {
		w.t.Fatal(err)
	}
	s, err := w.answers.OpenSession(m, b)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// ask is client i's question with a session.
func (w *world) ask(ann wire.Announcement, i int, s wire.Session, change ...func(*wire.Ask)) []byte {
	m := wire.Ask{Announcement: wire.Digest(ann), Client: wire.ClientID(public(w.clients[i]))}
	wire.Authenticate(&m, s)
	for _, f := range change {
		f(&m)
	}
	return wire.Encode(m)
}

func (w *world) unsealed(ann wire.Announcement, i int, id byte) *wire.Report {
	w.t.Helper()
	r := &wire.Report{Announcement: wire.Digest(ann), Client: wire.ClientID(public(w.clients[i])), ID: reportID(i, id)}
	var err error
	for j := range int(ann.PerClient()) {
		r.Part = append(r.Part, w.part(ann, message(i, id, j))...)
	}
	if ann.ShareBytes > 0 {
		plain := make([]byte, ann.ShareBytes-ann.ReportBytes+partContent)
		copy(plain, content(i, id))
		if r.Share, err = envelope.SealPart(ann.Aggregator, envelope.Aggregator, wire.Digest(ann), plain); err != nil {
			w.t.Fatal(err)
		}
	}
	return r
}

// part is one sealed message.
func (w *world) part(ann wire.Announcement, plain []byte) []byte {
	w.t.Helper()
	b, err := envelope.SealPart(ann.Coordinator, envelope.Coordinator, wire.Digest(ann), plain)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) sealed(r *wire.Report) []byte {
	w.t.Helper()
	b, err := envelope.SealReport(w.seal.Keys[0], r, wire.ID{})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// closed waits for the word on a round.
func (n *node) closed(ann wire.Announcement) wire.RoundClosed {
	n.w.t.Helper()
	for range 20 {
		if b := n.must(Coordinator, "GET", path(ann, "/closed?wait=10"), nil); len(b) > 0 {
			return n.w.word(ann, b)
		}
	}
	n.w.t.Fatal("the round does not close")
	return wire.RoundClosed{}
}

func (w *world) word(ann wire.Announcement, signed []byte) wire.RoundClosed {
	w.t.Helper()
	m, err := wire.Verify(public(w.operator), wire.LabelClosed, signed)
	if err != nil {
		w.t.Fatal(err)
	}
	word, err := wire.Decode[wire.RoundClosed](m)
	if err != nil {
		w.t.Fatal(err)
	}
	if word.Announcement != wire.Digest(ann) || word.Round != ann.Round {
		w.t.Fatalf("word on another round: %+v", word)
	}
	return word
}

// fetch gets and checks a batch, as the peer's parts, and opens them.
func (n *node) fetch(peer string, ann wire.Announcement, word wire.RoundClosed) [][]byte {
	n.w.t.Helper()
	key, role, want := n.w.reader, envelope.Coordinator, word.Digest
	if peer == Aggregator {
		key, role, want = n.w.second, envelope.Aggregator, word.Shares
	}
	ring, err := envelope.NewKeyring(key)
	if err != nil {
		n.w.t.Fatal(err)
	}
	flat := n.must(peer, "GET", path(ann, "/chunks"), nil)
	var digests [][32]byte
	for d := range slices.Chunk(flat, 32) {
		digests = append(digests, [32]byte(d))
	}
	if got := wire.BatchDigest(wire.Digest(ann), word.Reports, digests); got != want {
		n.w.t.Fatalf("digests of %s do not fit the word", peer)
	}
	if peer == Coordinator && int64(len(digests)) != word.Chunks {
		n.w.t.Fatalf("%d chunks, want %d", len(digests), word.Chunks)
	}
	var out [][]byte
	for i, d := range digests {
		c, err := wire.Decode[wire.Chunk](n.must(peer, "GET", path(ann, fmt.Sprintf("/chunks/%d", i)), nil))
		if err == nil {
			err = wire.CheckChunk(c, int64(i), d)
		}
		if err != nil {
			n.w.t.Fatal(err)
		}
		for j := range c.Len() {
			plain, err := ring.OpenPart(role, wire.Digest(ann), c.Item(j))
			if err != nil {
				n.w.t.Fatal(err)
			}
			out = append(out, plain)
		}
	}
	if int64(len(out)) != word.Reports*ann.PerClient() {
		n.w.t.Fatalf("%d messages fetched, %d of each of %d clients in the word", len(out), ann.PerClient(), word.Reports)
	}
	return out
}

// rounds are the names of secrets that are rounds'. What is held for sessions outlives them.
func (w *world) rounds() []string {
	return slices.DeleteFunc(w.disk.Names(store.Secrets, ""), func(name string) bool { return strings.HasPrefix(name, masterPrefix) })
}

// expected is what package shuffler makes of the same reports in memory.
func (w *world) expected(ann wire.Announcement, reports [][2]int) ([][]byte, pure.Dropped) {
	w.t.Helper()
	d := wire.Digest(ann)
	name := encodeName(d[:])
	secret := func(name string) []byte {
		w.disk.Lock()
		defer w.disk.Unlock()
		if key, left := w.disk.Secrets[name]; left {
			return key
		}
		return w.disk.Past[name]
	}
	key := [16]byte(secret(linksName(name))[:16])
	one := ann
	one.Messages = 1
	r, err := pure.Open(one, key)
	if err != nil {
		w.t.Fatal(err)
	}
	for at, x := range reports {
		if err := r.Accept(wire.Ticket{Sender: wire.ClientID(public(w.clients[x[0]])), ID: reportID(x[0], byte(x[1])), Payload: int64(at)}); err != nil {
			w.t.Fatal(err)
		}
	}
	b, dropped, err := r.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	var out [][]byte
	for _, at := range b.Payloads {
		out = append(out, content(reports[at][0], byte(reports[at][1])))
	}
	if m := ann.PerClient(); m > 1 {
		v, err := newVault(secret(name), d)
		if err != nil {
			w.t.Fatal(err)
		}
		out = ordered(pure.NewParts(v.order, m), pure.NewOrder(key), w, b.Payloads, reports)
	}
	return out, dropped
}

// ordered lists all messages of the kept reports, in the order of their tags.
func ordered(parts pure.Parts, order cipher.Block, w *world, kept []int64, reports [][2]int) (out [][]byte) {
	var items [][]byte
	for _, at := range kept {
		i, id := reports[at][0], byte(reports[at][1])
		item := pure.Tag(order, nil, wire.ClientID(public(w.clients[i])), reportID(i, id))
		j := 0
		parts.Split(item, func(tag []byte) bool {
			items = append(items, append(slices.Clone(tag), message(i, id, j)...))
			j++
			return true
		})
	}
	slices.SortFunc(items, bytes.Compare)
	for _, item := range items {
		out = append(out, item[pure.TagSize:])
	}
	return out
}

func rejected(word wire.RoundClosed) map[wire.Reason]int64 {
	out := map[wire.Reason]int64{}
	for _, r := range word.Rejected {
		out[r.Reason] = r.Count
	}
	return out
}

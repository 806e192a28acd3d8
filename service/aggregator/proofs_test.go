package aggregator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/binary"
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/sealed"
	"github.com/riffle-dp/riffle/service/store"
)

// provedWorld is one closed round whose reports carry proofs, seen from the coordinator.
type provedWorld struct {
	world
	m      *mechanism.AggregatedSum
	of     *proved.Round
	front  *httptest.Server // the shuffler, to the coordinator
	vector [][]int64
	noise  [][]int64          // of clients that send it
	signs  ed25519.PrivateKey // the aggregator's
	change func(*Config)
}

const roundKey = "a key of tests!!"

func newProved(t *testing.T, bad ...int) *provedWorld {
	t.Helper()
	p, err := vecsum.NewAggregated(users, dim, 1, 2)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(9)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewAggregatedSum(p, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	return newProvedOf(t, m, 0, bad...)
}

// newProvedOf is newProved for a mechanism; every is that of a task whose noise is correlated, or else 0.
func newProvedOf(t *testing.T, m *mechanism.AggregatedSum, every int64, bad ...int) *provedWorld {
	t.Helper()
	w := &provedWorld{world: world{t: t, net: memnet.New(), key: signer(t), store: newMemory()}, signs: signer(t), m: m}
	file := mark.File(filepath.Join(t.TempDir(), "rounds.json"))
	if err := file.Save(mark.Mark{}); err != nil {
		t.Fatal(err)
	}
	w.mark = file
	k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	w.ring, _ = envelope.NewKeyring(k)
	participation, gamma := dp.All, 0.
	if every > 0 {
		participation, gamma = dp.CheckIn, 1/float64(every)
	}
	w.task = wire.Task{Population: wire.ID{1}, Name: "sum", Trust: dp.Distributed, Participation: participation, MinReports: 5,
		Rounds: 9, Delta: 1e-6, Mechanism: w.m.Describe(), Every: every}
	w.sh = batchtest.New(users, 2, w.ring.Keys...)
	if m.ByClients() {
		w.sh.PerChunk = 1 // two reports are longer than a chunk
	}
	w.sh.Fill = func(a wire.Announcement) (parts, shares [][]byte) { return w.fill(a, bad) }
	public := w.key.Public().(ed25519.PublicKey)
	w.server, w.front = w.net.Serve(t, w.sh.Handler(public, true)), w.net.Serve(t, w.sh.Handler(public, false))
	part, share, err := mechanism.ContentSizes(w.m)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	w.a = wire.Announcement{Task: wire.Digest(w.task), Round: 1, Trust: dp.Distributed, Participation: participation, Gamma: gamma, Population: users, MinReports: 5,
		Randomizer: w.m.Facts().Name, Sigma: w.m.Event().Sigma, Clip: 1, Enrolment: wire.Digest(w.sh.Enrolment), Opens: now.UnixMilli(),
		Deadline: now.Add(time.Minute).UnixMilli(), Coordinator: w.ring.Keys[0], Aggregator: w.ring.Keys[0]}
	if w.a.ReportBytes, err = envelope.PartSize(wire.X25519, part); err != nil {
		t.Fatal(err)
	}
	if w.a.ShareBytes, err = envelope.PartSize(wire.X25519, share); err != nil {
		t.Fatal(err)
	}
	w.open(&w.a)
	w.closed = w.sh.Closed(wire.Digest(w.a))
	if w.of, err = w.m.Proved(wire.Digest(w.a)); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *provedWorld) fill(a wire.Announcement, bad []int) (parts, shares [][]byte) {
	src := rng.Replay(1, uint64(a.Round))
	seal := func(to envelope.Reader, content []byte) []byte {
		b, err := envelope.SealPart(w.ring.Keys[0], to, wire.Digest(a), content)
		if err != nil {
			w.t.Error(err)
		}
		return b
	}
	for client := range users {
		r := w.m.NewReport()
		w.m.Randomize(src, []float32{float32(client) / 20, .1, -.2, .3}, r)
		x := make([]int64, dim)
		for j, v := range r.Value {
			x[j] = int64(v)
		}
		vectors := [][]int64{x}
		if w.m.ByClients() {
			g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: w.m.Variance, Den: 1})
			if err != nil {
				w.t.Error(err)
				return nil, nil
			}
			noise := make([]int64, dim)
			g.Fill(src, noise)
			w.noise, vectors = append(w.noise, noise), append(vectors, noise)
		}
		of, err := w.m.Proved(wire.Digest(a))
		if err != nil {
			w.t.Error(err)
			return nil, nil
		}
		share, part, err := of.Report(src, vectors...)
		if err != nil {
			w.t.Error(err)
		}
		if slices.Contains(bad, client) {
			share[100] ^= 1
		}
		w.vector = append(w.vector, x)
		parts, shares = append(parts, seal(envelope.Coordinator, part)), append(shares, seal(envelope.Aggregator, share))
	}
	return parts, shares
}

// start returns an aggregator on the world's store; on, if not nil, is another view of it.
func (w *provedWorld) start(on ...storage) *Service {
	w.t.Helper()
	s, err := w.tryStart(on...)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *provedWorld) tryStart(on ...storage) (*Service, error) {
	ctx, stop := context.WithCancel(context.Background())
	w.t.Cleanup(stop)
	c := Config{Coordinator: w.key.Public().(ed25519.PublicKey), Keyring: w.ring, Store: w.store, Mark: w.mark, Key: w.signs, Workers: 2,
		Shuffler: batch.Source{URL: w.server.URL, Key: w.sh.Public, Client: w.net.Client(w.t)}}
	if len(on) > 0 {
		c.Store = on[0]
	}
	if w.change != nil {
		w.change(&c)
	}
	return New(ctx, c)
}

func (w *provedWorld) sign(l wire.Label, m []byte) []byte { return wire.Sign(w.key, l, m) }

// body is the request to prepare the round with a key.
func (w *provedWorld) body(key string) []byte {
	c, err := wire.Decode[wire.RoundClosed](w.closed[64:])
	if err != nil {
		w.t.Fatal(err)
	}
	k := wire.ProofKey{Announcement: wire.Digest(w.a), Closed: wire.Digest(c), Key: wire.VerifyKey([]byte(key))}
	var b []byte
	for _, p := range [][]byte{w.sign(wire.LabelTask, wire.Encode(w.task)), w.sign(wire.LabelAnnouncement, wire.Encode(w.a)), w.closed} {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	return append(b, w.sign(wire.LabelProofKey, wire.Encode(k))...)
}

func (w *provedWorld) prepare(s *Service) {
	w.t.Helper()
	if code, b := ask(s, "/v1/rounds", w.body(roundKey)); code != 200 {
		w.t.Fatalf("prepare: %d %s", code, b)
	}
}

func (w *provedWorld) path(what string) string {
	d := wire.Digest(w.a)
	return "/v1/rounds/" + hex.EncodeToString(d[:]) + "/" + what
}

// coordinator returns the coordinator's side of an exchange.
func (w *provedWorld) coordinator() *exchange.Exchange {
	w.t.Helper()
	c, err := wire.Decode[wire.RoundClosed](w.closed[64:])
	if err != nil {
		w.t.Fatal(err)
	}
	x, err := exchange.New(w.t.Context(), exchange.Config{Round: w.of, Role: proved.Coordinator, Key: proved.VerifyKey([]byte(roundKey)),
		Open: func(b []byte) ([]byte, wire.Attached, error) {
			content, err := w.ring.OpenPart(envelope.Coordinator, wire.Digest(w.a), b)
			return content, wire.Attached{}, err
		},
		Batch: batch.Reader{Source: batch.Source{URL: w.front.URL, Key: w.sh.Public, Client: w.net.Client(w.t)}, Announcement: wire.Digest(w.a),
			Reports: c.Reports, Chunks: c.Chunks, Digest: c.Digest, Size: w.a.ReportBytes, Workers: 2}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { x.Stop() })
	return x
}

func (w *provedWorld) proofs(message []byte) []byte {
	return w.sign(wire.LabelProofs, wire.Encode(wire.Proofs{Announcement: wire.Digest(w.a), Message: message}))
}

// say sends a message of the coordinator, and finishes its side with the answer.
func (w *provedWorld) say(s *Service, x *exchange.Exchange, message []byte) {
	w.t.Helper()
	code, b := ask(s, w.path("proofs"), w.proofs(message))
	if code != 200 {
		w.t.Fatalf("proofs: %d %s", code, b)
	}
	p, err := wire.Decode[wire.Proofs](b)
	if err == nil {
		err = x.Finish(p.Message)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *provedWorld) begin(x *exchange.Exchange, n int) []byte {
	w.t.Helper()
	m, err := x.Begin(w.t.Context(), n)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

// exchange goes through the whole batch, two places at a time.
func (w *provedWorld) exchange(s *Service) *exchange.Exchange {
	w.t.Helper()
	x := w.coordinator()
	for !x.Complete() {
		w.say(s, x, w.begin(x, min(2, x.Left())))
	}
	return x
}

func (w *provedWorld) exclude(places ...int64) []byte {
	return w.sign(wire.LabelExclusion, wire.Encode(wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Places: places}))
}

func (w *provedWorld) record() record {
	w.t.Helper()
	r, err := decodeRecord(w.store.Values[key(wire.Digest(w.a))])
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

// noiseLog keeps what is stored as noise, also when it is deleted later.
type noiseLog struct {
	storage
	mu    sync.Mutex
	drawn map[string][]byte
	put   func() // called with each noise that is stored
}

func (n *noiseLog) PutObject(ctx context.Context, name string, data []byte) error {
	err := n.storage.PutObject(ctx, name, data)
	if strings.HasPrefix(name, noisePrefix) {
		n.mu.Lock()
		n.drawn[name] = data
		n.mu.Unlock()
		if n.put != nil {
			n.put()
		}
	}
	return err
}

// none is what the coordinator of the tests adds.
func (w *provedWorld) none() []int64 {
	if w.m.ByClients() {
		return nil
	}
	return make([]int64, dim)
}

// added is the noise that is in a release: the one of which drawn has the sealed bytes and that is named, or that of all
// clients but those of some places.
func (w *provedWorld) added(drawn map[string][]byte, out ...int64) []int64 {
	w.t.Helper()
	rec := w.record()
	if rec.Sent != w.m.ByClients() || rec.Sent != (rec.Noise == hash{}) {
		w.t.Fatalf("clients send noise %v: %+v", w.m.ByClients(), rec)
	}
	if w.m.ByClients() {
		sum := make([]int64, dim)
		for i, noise := range w.noise {
			for j := range noise {
				if !slices.Contains(out, int64(i)) {
					sum[j] += noise[j]
				}
			}
		}
		return sum
	}
	noise, err := sealed.Noise.OpenVector(w.ring, envelope.Aggregator, wire.Digest(w.a), drawn[noiseName(wire.Digest(w.a), rec.Noise)], dim)
	if err != nil {
		w.t.Fatal(err)
	}
	return noise
}

// combine opens an answer, and holds the sum against the vectors with the noise that is named or was sent.
func (w *provedWorld) combine(x *exchange.Exchange, b []byte, drawn map[string][]byte, out ...int64) {
	w.t.Helper()
	word, rest, err := split(b)
	if err != nil {
		w.t.Fatal(err)
	}
	message, err := wire.Verify(w.signs.Public().(ed25519.PublicKey), wire.LabelAgreed, word)
	if err != nil {
		w.t.Fatal(err)
	}
	p, err := wire.Decode[wire.Partial](rest)
	if err != nil {
		w.t.Fatal(err)
	}
	if a, err := wire.Decode[wire.Agreed](message); err != nil || a.Announcement != wire.Digest(w.a) || a.Exclusion != p.Exclusion {
		w.t.Errorf("%+v, %v", a, err)
	}
	if w.m.ByClients() {
		strategy, _ := w.m.Correlation()
		if _, err := x.Mix(strategy.Weights[0], nil); err != nil {
			w.t.Fatal(err)
		}
	}
	own, err := x.Close(w.none())
	if err != nil {
		w.t.Fatal(err)
	}
	got, n, err := w.of.Combine(own, vecsum.Partial{Tag: p.Tag, Index: int(p.Index), Clients: p.Clients, Reports: p.Reports, Sums: p.Sums})
	if err != nil || n != int64(users-len(out)) {
		w.t.Fatalf("%d reports, %v", n, err)
	}
	noise := w.added(drawn, out...)
	want := slices.Clone(noise)
	weight := int64(1)
	if strategy, ok := w.m.Correlation(); ok {
		weight = strategy.Weights[0]
	}
	for i, x := range w.vector {
		for j := range x {
			if !slices.Contains(out, int64(i)) {
				want[j] += weight * x[j]
			}
		}
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("sum %v, want %v", got, want)
	}
	if slices.Equal(noise, make([]int64, dim)) {
		w.t.Error("the noise is zero")
	}
}

// eachProved runs a test of a round with proofs with noise of the aggregators, and with that of clients, which goes
// with correlated noise; bad are the clients whose reports are spoilt.
func eachProved(t *testing.T, f func(t *testing.T, w *provedWorld), bad ...int) {
	t.Helper()
	bubble(t, "noise by aggregators", func(t *testing.T) { f(t, newProved(t, bad...)) })
	bubble(t, "noise by clients", func(t *testing.T) { f(t, newHeld(t, true, bad...).provedWorld) })
}

// drew holds that the aggregator has drawn noise so often, and not at all where clients send it.
func (w *provedWorld) drew(log *noiseLog, times int) {
	w.t.Helper()
	if w.m.ByClients() {
		times = 0
	}
	if len(log.drawn) != times {
		w.t.Errorf("noise was drawn %d times, not %d", len(log.drawn), times)
	}
}

func TestProvedRoundIsSummedOnce(t *testing.T) { eachProved(t, provedRoundIsSummedOnce, 2, 5) }

func provedRoundIsSummedOnce(t *testing.T, w *provedWorld) {
	log := &noiseLog{storage: w.store, drawn: map[string][]byte{}}
	s := w.start(log)
	w.prepare(s)
	x := w.exchange(s)
	if out := x.Out(); !slices.Equal(out, []int64{2, 5}) {
		t.Fatalf("left out %v", out)
	}
	code, first := ask(s, w.path("sum"), w.exclude(2, 5))
	if code != 200 {
		t.Fatalf("%d %s", code, first)
	}
	w.combine(x, first, log.drawn, 2, 5)
	if w.drew(log, 1); len(listedObjects(w.store, noisePrefix)) != 0 {
		t.Errorf("%v left", listedObjects(w.store, noisePrefix))
	}
	if c := s.Snapshot(); c.Prepared != 1 || c.Summed != 1 || c.Reports != 7 || c.Refused[wire.Unequal] != 2 {
		t.Errorf("%+v", c)
	}
	for name, s := range map[string]*Service{"again": s, "after a restart": w.start(log)} {
		if code, b := ask(s, w.path("sum"), w.exclude(2, 5)); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("%s: %d", name, code)
		}
		if code, b := ask(s, w.path("sum"), w.exclude(2, 3, 5)); code != 409 {
			t.Errorf("%s, another set: %d %s", name, code, b)
		}
		// The coordinator has lost its memory: the exchange is repeated, and the answer is the same.
		w.prepare(s)
		w.exchange(s)
		if code, b := ask(s, w.path("sum"), w.exclude(2, 5)); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("%s, after another exchange: %d", name, code)
		}
	}
	w.drew(log, 1)
}

func listedObjects(m *memory.Store, prefix string) []string {
	names, _ := m.List(context.Background(), store.Objects, prefix)
	return names
}

// A coordinator that lies gets one key, one set and one noise, and nothing that depends on what it
// says.
func TestLyingCoordinator(t *testing.T) { eachProved(t, lyingCoordinator, 2) }

func lyingCoordinator(t *testing.T, w *provedWorld) {
	s := w.start()
	if code, _ := ask(s, w.path("sum"), w.exclude(2)); code != 404 {
		t.Errorf("a sum that was not prepared: %d", code)
	}
	if code, _ := ask(s, w.path("proofs"), w.proofs([]byte("x"))); code != 404 {
		t.Errorf("proofs of a round that was not prepared: %d", code)
	}
	w.prepare(s)
	before := maps.Clone(w.store.Values)
	refuse := func(what string, code int, path string, body []byte) {
		t.Helper()
		if got, b := ask(s, path, body); got != code {
			t.Errorf("%s: %d %s, want %d", what, got, b, code)
		}
		if !maps.EqualFunc(before, w.store.Values, bytes.Equal) {
			t.Errorf("%s: something was written", what)
		}
	}
	refuse("another key", 409, "/v1/rounds", w.body("another key!!!!!"))
	refuse("a sum before the proofs", 503, w.path("sum"), w.exclude(2))
	refuse("unsigned proofs", 401, w.path("proofs"), wire.Encode(wire.Proofs{Announcement: wire.Digest(w.a), Message: []byte("x")}))
	refuse("a stranger's proofs", 401, w.path("proofs"), wire.Sign(signer(t), wire.LabelProofs, wire.Encode(wire.Proofs{Announcement: wire.Digest(w.a), Message: []byte("x")})))
	refuse("proofs under another name", 401, w.path("proofs"), w.sign(wire.LabelExclusion, wire.Encode(wire.Proofs{Announcement: wire.Digest(w.a), Message: []byte("x")})))
	refuse("proofs of another round", 404, w.path("proofs"), w.sign(wire.LabelProofs, wire.Encode(wire.Proofs{Announcement: [32]byte{1}, Message: []byte("x")})))
	refuse("no message", 400, w.path("proofs"), w.proofs([]byte("nothing of the kind")))
	refuse("too much", 413, w.path("proofs"), w.proofs(make([]byte, w.of.MessageSize(w.of.Places())+2<<10)))
	refuse("ids", 405, w.path("ids"), nil)

	// The messages that are said of the same places differ; the answers do not.
	x, y := w.coordinator(), w.coordinator()
	m := w.begin(x, 4)
	_, honest := ask(s, w.path("proofs"), w.proofs(m))
	lie := bytes.Clone(w.begin(y, 4))
	lie[len(lie)-1] ^= 1
	if code, b := ask(s, w.path("proofs"), w.proofs(lie)); code != 200 || !bytes.Equal(b, honest) {
		t.Errorf("the answer depends on the coordinator's message: %d", code)
	}
	// It has one report refused so, and then has to name that set.
	for !y.Complete() {
		p, err := wire.Decode[wire.Proofs](honest)
		if err == nil {
			err = y.Finish(p.Message)
		}
		if err != nil {
			t.Fatal(err)
		}
		if y.Complete() {
			break
		}
		if _, honest = ask(s, w.path("proofs"), w.proofs(w.begin(y, min(4, y.Left())))); len(honest) == 0 {
			t.Fatal("no answer")
		}
	}
	before = maps.Clone(w.store.Values)
	refuse("the set without its own lie", 409, w.path("sum"), w.exclude(2))
	refuse("fewer than were found", 409, w.path("sum"), w.exclude())
	refuse("another count", 404, w.path("sum"), w.sign(wire.LabelExclusion, wire.Encode(wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users - 1, Places: []int64{2, 3}})))
	if code, b := ask(s, w.path("sum"), w.exclude(2, 3)); code != 200 {
		t.Fatalf("the set that both found: %d %s", code, b)
	}
	before = maps.Clone(w.store.Values)
	w.exchange(s)
	refuse("the honest set, after the other", 409, w.path("sum"), w.exclude(2))
	if n := len(listedObjects(w.store, "partial/")); n != 1 {
		t.Errorf("%d partial sums", n)
	}
}

// unread is a body that must not be read.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.ErrUnexpectedEOF
}

// What a stranger announces and does not send takes no room: the round is looked up before the body
// is read, and a body that is longer than the round's messages is refused unread.
func TestAnnouncedBodiesAreRefusedUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProved(t)
		s := w.start()
		post := func(length int64) int {
			q := httptest.NewRequest(http.MethodPost, w.path("proofs"), unread{t})
			q.ContentLength = length
			r := httptest.NewRecorder()
			s.PeerHandler().ServeHTTP(r, q)
			return r.Code
		}
		if code := post(100); code != 404 {
			t.Errorf("a round that is not here: %d", code)
		}
		w.prepare(s)
		if code := post(int64(w.of.MessageSize(w.of.Places())) + 2<<10); code != 413 {
			t.Errorf("too long: %d", code)
		}
	})
}

func TestPlacesComeInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProved(t)
		s := w.start()
		w.prepare(s)
		x := w.coordinator()
		var first [][]byte
		for !x.Complete() {
			m := w.begin(x, min(2, x.Left()))
			w.say(s, x, m)
			code, b := ask(s, w.path("proofs"), w.proofs(m)) // the answer was lost
			if code != 200 {
				t.Fatalf("asked again: %d %s", code, b)
			}
			first = append(first, b)
		}
		y := w.coordinator()
		zero, two := w.begin(y, 2), []byte(nil)
		w.say(s, y, zero) // begins anew
		two = w.begin(y, 2)
		w.say(s, y, two)
		four := w.begin(w.skipped(4), 2)
		if code, _ := ask(s, w.path("proofs"), w.proofs(zero)); code != 200 {
			t.Errorf("place 0 begins anew: %d", code)
		}
		if code, b := ask(s, w.path("proofs"), w.proofs(four)); code != 503 {
			t.Errorf("place 4 in place of 2: %d %s", code, b)
		}
		if code, _ := ask(s, w.path("sum"), w.exclude()); code != 503 {
			t.Errorf("a sum in the middle: %d", code)
		}
		z := w.coordinator()
		for i := 0; !z.Complete(); i++ {
			m := w.begin(z, min(2, z.Left()))
			if code, b := ask(s, w.path("proofs"), w.proofs(m)); code != 200 || !bytes.Equal(b, first[i]) {
				t.Fatalf("message %d is answered otherwise: %d", i, code)
			}
			w.say(s, z, m)
		}
		if code, b := ask(s, w.path("sum"), w.exclude()); code != 200 {
			t.Errorf("%d %s", code, b)
		}
	})
}

// skipped returns an exchange that has gone past some places by itself.
func (w *provedWorld) skipped(places int) *exchange.Exchange {
	w.t.Helper()
	s := w.start()
	w.prepare(s)
	x := w.coordinator()
	for range places / 2 {
		w.say(s, x, w.begin(x, 2))
	}
	return x
}

package aggregator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/mark"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMemory() *memory.Store { return &memory.Store{Disk: memory.NewDisk()} }

// copied is a backup.
func copied(s *memory.Store) *memory.Store { return &memory.Store{Disk: s.Copy()} }

// bubble runs a subtest in a bubble, where hours pass at once.
func bubble(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, f) })
}

// world is one closed round of a vector sum.
type world struct {
	t      *testing.T
	net    *memnet.Network
	key    ed25519.PrivateKey
	ring   *envelope.Keyring
	sh     *batchtest.Shuffler
	stop   func() // ends the work of the aggregator that was started last
	server *httptest.Server
	store  *memory.Store
	mark   mark.Keeper // nil: none
	sum    *mechanism.VectorSum
	task   wire.Task
	a      wire.Announcement
	closed []byte
	shares *vecsum.Shares
	seeds  [][]byte
	counts [][]int64
}

const dim, users = 4, 9

func signer(t *testing.T) ed25519.PrivateKey {
	t.Helper()
	_, k, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// design is the world's sum, which takes a while to find.
var design = sync.OnceValues(func() (vecsum.Params, error) {
	return vecsum.Tight(vecsum.Target{Eps: 5, Delta: 1e-6, Users: users, MinUsers: 4, Dim: dim, Radius: 1})
})

// newWorld closes a round in which the clients of bad send shares that cannot be
// summed.
func newWorld(t *testing.T, bad ...int) *world {
	t.Helper()
	w := &world{t: t, net: memnet.New(), key: signer(t), store: newMemory()}
	k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	w.ring, _ = envelope.NewKeyring(k)
	p, err := design()
	if err != nil {
		t.Fatal(err)
	}
	if w.sum, err = mechanism.NewVectorSum(p, 1); err != nil {
		t.Fatal(err)
	}
	w.task = wire.Task{Population: wire.ID{1}, Name: "sum", Trust: dp.Distributed, Participation: dp.All, MinReports: 5,
		Rounds: 9, Delta: 1e-6, Mechanism: w.sum.Describe()}
	w.sh = batchtest.New(users, 2, w.ring.Keys...)
	w.sh.Fill = func(a wire.Announcement) (parts, shares [][]byte) { return w.fill(a, bad) }
	w.server = w.net.Serve(t, w.sh.Handler(w.key.Public().(ed25519.PublicKey), true))
	w.a = w.announce(1)
	w.open(&w.a)
	w.closed = w.sh.Closed(wire.Digest(w.a))
	return w
}

func (w *world) announce(round int64) wire.Announcement {
	w.t.Helper()
	_, vector, err := mechanism.ContentSizes(w.sum)
	if err != nil {
		w.t.Fatal(err)
	}
	now := time.Now()
	a := wire.Announcement{Task: wire.Digest(w.task), Round: round, Trust: dp.Distributed, Participation: dp.All, Population: users, MinReports: 5,
		Randomizer: w.sum.Facts().Name, Sigma: 1, Clip: 1, Enrolment: wire.Digest(w.sh.Enrolment), Opens: now.UnixMilli(),
		Deadline: now.Add(time.Minute).UnixMilli(), Coordinator: w.ring.Keys[0], Aggregator: w.ring.Keys[0], ReportBytes: 8}
	if a.ShareBytes, err = envelope.PartSize(wire.X25519, vector); err != nil {
		w.t.Fatal(err)
	}
	return a
}

func (w *world) open(a *wire.Announcement) {
	w.t.Helper()
	if status, reason := w.sh.Open(w.key.Public().(ed25519.PublicKey), wire.Sign(w.key, wire.LabelAnnouncement, wire.Encode(*a))); status != 204 {
		w.t.Fatalf("open: %d %s", status, reason)
	}
}

func (w *world) fill(a wire.Announcement, bad []int) (parts, shares [][]byte) {
	var err error
	if w.shares, err = w.sum.Shares(wire.Digest(a)); err != nil {
		w.t.Fatal(err)
	}
	src := rng.Replay(1, uint64(a.Round))
	r := w.sum.NewReport()
	for client := range users {
		w.sum.Randomize(src, []float32{float32(client) / 20, .1, -.2, .3}, r)
		counts := make([]int64, len(r.Value))
		for j, v := range r.Value {
			counts[j] = int64(v)
		}
		m, err := w.shares.Messages(src, counts)
		if err != nil {
			w.t.Fatal(err)
		}
		if slices.Contains(bad, client) {
			m[1][1] = 7
		}
		sealed, err := envelope.SealPart(a.Aggregator, envelope.Aggregator, wire.Digest(a), m[1])
		if err != nil {
			w.t.Fatal(err)
		}
		w.seeds, w.counts = append(w.seeds, m[0]), append(w.counts, counts)
		parts, shares = append(parts, make([]byte, 8)), append(shares, sealed)
	}
	return parts, shares
}

// start returns an aggregator on the world's store.
func (w *world) start() *Service {
	w.t.Helper()
	s, err := w.tryStart()
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

func (w *world) tryStart() (*Service, error) {
	ctx, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.t.Cleanup(stop)
	return New(ctx, Config{Coordinator: w.key.Public().(ed25519.PublicKey), Keyring: w.ring, Store: w.store, Mark: w.mark, Workers: 2,
		Shuffler: batch.Source{URL: w.server.URL, Key: w.sh.Public, Client: w.net.Client(w.t)}})
}

func body(task, announcement, closed []byte) []byte {
	var b []byte
	for _, p := range [][]byte{task, announcement} {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(p))), p...)
	}
	return append(b, closed...)
}

func (w *world) body() []byte {
	return body(wire.Sign(w.key, wire.LabelTask, wire.Encode(w.task)), wire.Sign(w.key, wire.LabelAnnouncement, wire.Encode(w.a)), w.closed)
}

// ask posts to an aggregator.
func ask(s *Service, path string, b []byte) (int, []byte) {
	q := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(b))
	r := httptest.NewRecorder()
	s.PeerHandler().ServeHTTP(r, q)
	return r.Code, r.Body.Bytes()
}

func (w *world) prepare(s *Service) wire.Exclusion {
	w.t.Helper()
	code, b := ask(s, "/v1/rounds", w.body())
	if code != 200 {
		w.t.Fatalf("prepare: %d %s", code, b)
	}
	e, err := wire.Decode[wire.Exclusion](b)
	if err != nil || e.Announcement != wire.Digest(w.a) || e.Reports != users {
		w.t.Fatalf("%+v %v", e, err)
	}
	return e
}

func (w *world) sumPath() string {
	return "/v1/rounds/" + key(wire.Digest(w.a))[len("sum."):] + "/sum"
}

func (w *world) exclude(places ...int64) []byte {
	e := wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Places: places}
	return wire.Sign(w.key, wire.LabelExclusion, wire.Encode(e))
}

// combine holds a partial sum against the clients' counts.
func (w *world) combine(b []byte, out ...int64) {
	w.t.Helper()
	p, err := wire.Decode[wire.Partial](b)
	if err != nil {
		w.t.Fatal(err)
	}
	seeds, err := w.shares.NewAggregator(0)
	if err != nil {
		w.t.Fatal(err)
	}
	want := make([]int64, len(w.counts[0]))
	for i, m := range w.seeds {
		if slices.Contains(out, int64(i)) {
			continue
		}
		if err := seeds.Add(m); err != nil {
			w.t.Fatal(err)
		}
		for j, c := range w.counts[i] {
			want[j] += c
		}
	}
	own, err := seeds.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	got, n, err := w.shares.Combine(own, vecsum.Partial{Tag: p.Tag, Index: int(p.Index), Clients: p.Clients, Reports: p.Reports, Sums: p.Sums})
	if err != nil || n != int64(users-len(out)) || !slices.Equal(got, want) {
		w.t.Errorf("sum %v of %d, want %v: %v", got, n, want, err)
	}
}

func TestSumsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		s := w.start()
		e := w.prepare(s)
		if !slices.Equal(e.Places, []int64{2}) {
			t.Fatalf("excluded %v", e.Places)
		}
		code, first := ask(s, w.sumPath(), w.exclude(2))
		if code != 200 {
			t.Fatalf("%d %s", code, first)
		}
		w.combine(first, 2)
		for name, s := range map[string]*Service{"again": s, "after a restart": w.start()} {
			if code, b := ask(s, w.sumPath(), w.exclude(2)); code != 200 || !bytes.Equal(b, first) {
				t.Errorf("%s: %d", name, code)
			}
			if code, b := ask(s, w.sumPath(), w.exclude(2, 3)); code != 409 {
				t.Errorf("%s, another exclusion: %d %s", name, code, b)
			}
			if got := w.prepare(s); !slices.Equal(got.Places, e.Places) {
				t.Errorf("%s: excluded %v", name, got.Places)
			}
		}
		if c := s.Snapshot(); c.Prepared != 1 || c.Summed != 1 || c.Reports != 8 || c.Refused[wire.OutOfRange] != 1 || c.Refused[wire.SecondReport] != 1 {
			t.Errorf("%+v", c)
		}
	})
}

// The coordinator's exclusions are honoured, by opening the batch again.
func TestLeavesOutWhatTheCoordinatorCannotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		s := w.start()
		w.prepare(s)
		code, b := ask(s, w.sumPath(), w.exclude(0, 2, 8))
		if code != 200 {
			t.Fatalf("%d %s", code, b)
		}
		w.combine(b, 0, 2, 8)
	})
}

// A crash at any step leaves the same exclusion, and one sum.
func TestRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.prepare(w.start())
		if code, _ := ask(w.start(), w.sumPath(), w.exclude(1)); code != 503 {
			t.Errorf("a sum without the messages: %d", code)
		}
		s := w.start()
		w.prepare(s)
		// It has written down which exclusion it sums, and dies.
		before := maps.Clone(w.store.Values)
		if code, _ := ask(s, w.sumPath(), w.exclude(1, 5)); code != 200 {
			t.Fatal(code)
		}
		rec, err := decodeRecord(w.store.Values[key(wire.Digest(w.a))])
		if err != nil || rec.Partial == (hash{}) || rec.Summed == (hash{}) {
			t.Fatalf("%+v %v", rec, err)
		}
		if bytes.Equal(before[key(wire.Digest(w.a))], w.store.Values[key(wire.Digest(w.a))]) {
			t.Error("nothing was written")
		}
		rec.Partial = hash{}
		if _, err := s.put(t.Context(), wire.Digest(w.a), rec, w.store.Revision[key(wire.Digest(w.a))]); err != nil {
			t.Fatal(err)
		}
		s = w.start()
		w.prepare(s)
		if code, _ := ask(s, w.sumPath(), w.exclude(1)); code != 409 {
			t.Errorf("another exclusion after a crash: %d", code)
		}
		code, b := ask(s, w.sumPath(), w.exclude(1, 5))
		if code != 200 {
			t.Fatalf("%d %s", code, b)
		}
		w.combine(b, 1, 5)
	})
}

func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		s := w.start()
		other := signer(t)
		sign := func(l wire.Label, m []byte) []byte { return wire.Sign(w.key, l, m) }
		task, announcement := sign(wire.LabelTask, wire.Encode(w.task)), sign(wire.LabelAnnouncement, wire.Encode(w.a))
		changed := func(f func(*wire.Announcement)) []byte {
			a := w.a
			f(&a)
			c, err := wire.Decode[wire.RoundClosed](w.closed[64:])
			if err != nil {
				t.Fatal(err)
			}
			c.Announcement, c.Round = wire.Digest(a), a.Round
			return body(task, sign(wire.LabelAnnouncement, wire.Encode(a)), wire.Sign(w.sh.Key, wire.LabelClosed, wire.Encode(c)))
		}
		closed := func(key ed25519.PrivateKey, f func(*wire.RoundClosed)) []byte {
			c, err := wire.Decode[wire.RoundClosed](w.closed[64:])
			if err != nil {
				t.Fatal(err)
			}
			f(&c)
			return body(task, announcement, wire.Sign(key, wire.LabelClosed, wire.Encode(c)))
		}
		smaller := w.task
		smaller.MinReports = 1
		for name, c := range map[string]struct {
			body []byte
			code int
		}{
			"nothing":                {nil, 400},
			"a length too long":      {[]byte{9, 0, 0, 0, 1}, 400},
			"a task of another":      {body(wire.Sign(other, wire.LabelTask, wire.Encode(w.task)), announcement, w.closed), 401},
			"another announcement's": {body(task, wire.Sign(other, wire.LabelAnnouncement, wire.Encode(w.a)), w.closed), 401},
			"unsigned":               {body(wire.Encode(w.task), wire.Encode(w.a), w.closed), 401},
			"another operator":       {closed(other, func(*wire.RoundClosed) {}), 401},
			"the coordinator's word": {closed(w.key, func(*wire.RoundClosed) {}), 401},
			"another count":          {closed(w.sh.Key, func(c *wire.RoundClosed) { c.Reports-- }), 409},
			"another batch":          {closed(w.sh.Key, func(c *wire.RoundClosed) { c.Shares[0] ^= 1 }), 409},
			"fewer than n-min":       {closed(w.sh.Key, func(c *wire.RoundClosed) { c.Reports = 4 }), 400},
			"void": {closed(w.sh.Key, func(c *wire.RoundClosed) {
				*c = wire.RoundClosed{Announcement: c.Announcement, Round: 1, Void: true}
			}), 410},
			"another task's n-min": {body(sign(wire.LabelTask, wire.Encode(smaller)), announcement, w.closed), 404},
			"a lower n-min":        {changed(func(a *wire.Announcement) { a.MinReports = 2 }), 400},
			"a larger sigma":       {changed(func(a *wire.Announcement) { a.Sigma = 3 }), 400},
			"a round beyond":       {changed(func(a *wire.Announcement) { a.Round = 29 }), 400},
			"another size":         {changed(func(a *wire.Announcement) { a.ShareBytes++ }), 400},
			"a round nobody has":   {changed(func(a *wire.Announcement) { a.Opens-- }), 404},
		} {
			if code, b := ask(s, "/v1/rounds", c.body); code != c.code {
				t.Errorf("%s: %d %s, want %d", name, code, b, c.code)
			}
		}
		if len(w.store.Values) != 0 {
			t.Error("something was written")
		}
		if code, _ := ask(s, w.sumPath(), w.exclude(3)); code != 404 {
			t.Errorf("a sum that was not prepared: %d", code)
		}
		w.prepare(s)
		if code, _ := ask(s, "/v1/rounds", closed(w.sh.Key, func(c *wire.RoundClosed) { c.Rejected = []wire.Rejection{{Reason: wire.Malformed, Count: 1}} })); code != 409 {
			t.Errorf("another word on a prepared round: %d", code)
		}
		less := wire.Exclusion{Announcement: wire.Digest(w.a), Reports: 8, Places: []int64{3}}
		elsewhere := wire.Exclusion{Announcement: [32]byte{1}, Reports: users, Places: []int64{3}}
		for name, c := range map[string]struct {
			body []byte
			code int
		}{
			"nothing":            {nil, 401},
			"unsigned":           {append(make([]byte, 64), w.exclude(3)[64:]...), 401},
			"another's":          {wire.Sign(other, wire.LabelExclusion, wire.Encode(less)), 401},
			"not its own":        {w.exclude(), 409},
			"others":             {w.exclude(4), 409},
			"fewer than n-min":   {w.exclude(0, 1, 2, 3, 4), 409},
			"of another count":   {sign(wire.LabelExclusion, wire.Encode(less)), 404},
			"of another round":   {sign(wire.LabelExclusion, wire.Encode(elsewhere)), 404},
			"malformed":          {sign(wire.LabelExclusion, []byte{1, 10}), 400},
			"under another name": {sign(wire.LabelAnnouncement, w.exclude(3)[64:]), 401},
		} {
			if code, b := ask(s, w.sumPath(), c.body); code != c.code {
				t.Errorf("%s: %d %s, want %d", name, code, b, c.code)
			}
		}
		if code, _ := ask(s, "/v1/rounds/12/sum", w.exclude(3)); code != 400 {
			t.Errorf("no digest: %d", code)
		}
		if code, _ := ask(s, w.sumPath(), w.exclude(3)); code != 200 {
			t.Errorf("the right one, after all those: %d", code)
		}
	})
}

// What the shuffler hands out is checked before any of it is summed.
func TestShufflerThatLies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, lie := range map[string]func(*batchtest.Shuffler){
			"chunk":   func(s *batchtest.Shuffler) { s.Chunk = func(c *wire.Chunk) { c.Items[1] ^= 1 } },
			"digests": func(s *batchtest.Shuffler) { s.Digests = func(b []byte) []byte { return b[32:] } },
			"word":    func(s *batchtest.Shuffler) { s.Word = func(c *wire.RoundClosed) { c.Round++ } },
		} {
			w := newWorld(t)
			lie(w.sh)
			s := w.start()
			if code, b := ask(s, "/v1/rounds", w.body()); code != 503 && code != 409 {
				t.Errorf("%s: %d %s", name, code, b)
			}
			if len(w.store.Values) != 0 {
				t.Errorf("%s: something was written", name)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if _, err := New(t.Context(), Config{}); err == nil {
			t.Error("an empty configuration")
		}
		var r *endpoint.Refusal
		if _, err := newWorld(t).start().prepare(nil); !errors.As(err, &r) || r.Reason != wire.Malformed {
			t.Errorf("%v", err)
		}
	})
}

// Who asks and leaves finds the answer when it asks again.
func TestSlowWorkIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		hold := make(chan struct{})
		asked := make(chan struct{}, 100)
		w.sh.Chunk = func(*wire.Chunk) { asked <- struct{}{}; <-hold }
		s := w.start()
		h := w.net.Serve(t, s.PeerHandler())
		ctx, cancel := context.WithCancel(t.Context())
		gone := make(chan error, 1)
		go func() {
			q, _ := http.NewRequestWithContext(ctx, http.MethodPost, h.URL+"/v1/rounds", bytes.NewReader(w.body()))
			_, err := h.Client().Do(q)
			gone <- err
		}()
		<-asked
		cancel()
		if err := <-gone; err == nil {
			t.Error("answered")
		}
		close(hold)
		if e := w.prepare(s); !slices.Equal(e.Places, []int64{4}) || s.Snapshot().Prepared != 1 {
			t.Errorf("%v, prepared %d times", e.Places, s.Snapshot().Prepared)
		}
		w.stop()
		if _, err := s.sum(wire.Digest(w.a), w.exclude(0, 4)); err == nil {
			t.Error("a closed aggregator sums")
		}
	})
}

// Old rounds leave memory, not the store.
func TestManyRounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.start()
		for round := int64(1); round <= 7; round++ {
			w.seeds, w.counts = nil, nil
			if round > 1 {
				w.a = w.announce(round)
				w.open(&w.a)
				w.closed = w.sh.Closed(wire.Digest(w.a))
			}
			w.prepare(s)
		}
		if len(s.rounds) > live || len(s.order) > live || len(w.store.Values) != 7 {
			t.Errorf("%d rounds in memory, %d in the store", len(s.rounds), len(w.store.Values))
		}
	})
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"format":1,"round":1,"n_min":2,"closed":"","own":"","summed":"","partial":""}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err == nil && (r.MinReports < 1 || r.Round < 1) {
			t.Errorf("%+v", r)
		}
	})
}

func FuzzPrepare(f *testing.F) {
	f.Add(body([]byte("task"), []byte("announcement"), []byte("closed")))
	f.Add([]byte{255, 255, 255, 255, 0})
	pub, _, _ := ed25519.GenerateKey(rand.Reader)
	s := &Service{config: Config{Coordinator: pub, Shuffler: batch.Source{Key: pub}}}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := s.parse(b); err == nil {
			t.Error("accepted without a signature")
		}
	})
}

// Whose halves there are is told of a prepared round, the same after a restart.
func TestReportIDs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		s := w.start()
		path := "/v1/rounds/" + hex.EncodeToString(digestOf(w.a)) + "/ids"
		get := func(s *Service) (int, []byte) {
			r := httptest.NewRecorder()
			s.PeerHandler().ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
			return r.Code, r.Body.Bytes()
		}
		if code, b := get(s); code != 404 {
			t.Errorf("before it is prepared: %d %s", code, b)
		}
		w.prepare(s)
		code, first := get(s)
		ids, err := wire.Decode[wire.ShareIDs](first)
		if code != 200 || err != nil || ids.Announcement != wire.Digest(w.a) || len(ids.IDs) != users {
			t.Fatalf("%d %v: %+v", code, err, ids)
		}
		for place, id := range ids.IDs {
			want, err := w.shares.ReportID(w.seeds[place], 0)
			if err != nil {
				t.Fatal(err)
			}
			if place == 2 {
				want = [16]byte{} // it cannot be summed
			}
			if id != want {
				t.Errorf("place %d: %x, want %x", place, id, want)
			}
		}
		if code, b := get(w.start()); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("after a restart: %d", code)
		}
		if code, _ := ask(s, w.sumPath(), w.exclude(2)); code != 200 {
			t.Errorf("summed: %d", code)
		}
	})
}

func digestOf(a wire.Announcement) []byte { d := wire.Digest(a); return d[:] }

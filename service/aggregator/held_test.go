package aggregator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/sealed"
)

// heldWorld is a task whose noise is correlated over rounds, seen from the coordinator.
type heldWorld struct {
	*provedWorld
	s      *Service
	log    *noiseLog
	weight []int64
	shares map[[32]byte][]int64 // the coordinator's, of the sums that were released
	bare   map[[32]byte][]int64 // sums without noise
	name   map[int64][32]byte   // the announcement of each round that was released
}

var bandOf3 = toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}

// newHeld returns the task's first round; byClients says who adds the noise, bad which clients' reports are spoilt.
func newHeld(t *testing.T, byClients bool, bad ...int) *heldWorld {
	t.Helper()
	p, err := vecsum.NewCorrelated(users, dim, 1, 2, bandOf3)
	if byClients {
		p, err = vecsum.NewCorrelatedByClients(users, 5, 1, dim, 1, 2, bandOf3)
	}
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(9)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, bandOf3, sigma, users)
	if err != nil {
		t.Fatal(err)
	}
	w := &heldWorld{provedWorld: newProvedOf(t, m, 3, bad...), weight: bandOf3.Weights,
		shares: map[[32]byte][]int64{}, bare: map[[32]byte][]int64{}, name: map[int64][32]byte{}}
	w.log = &noiseLog{storage: w.store, drawn: map[string][]byte{}}
	w.s = w.start(w.log)
	return w
}

// whoAdds runs a test of correlated noise with that of the aggregators, and with that of clients.
func whoAdds(t *testing.T, f func(t *testing.T, w *heldWorld)) {
	t.Helper()
	bubble(t, "noise by aggregators", func(t *testing.T) { f(t, newHeld(t, false)) })
	bubble(t, "noise by clients", func(t *testing.T) { f(t, newHeld(t, true)) })
}

// turn opens a round, and prepares it. It may have the number of another one.
func (w *heldWorld) turn(round int64) {
	w.t.Helper()
	w.announce(round)
	w.prepare(w.s)
}

func (w *heldWorld) announce(round int64) {
	w.t.Helper()
	w.vector, w.noise = nil, nil
	w.a.Round, w.a.Opens = round, w.a.Opens+1
	w.open(&w.a)
	w.closed = w.sh.Closed(wire.Digest(w.a))
	var err error
	if w.of, err = w.m.Proved(wire.Digest(w.a)); err != nil {
		w.t.Fatal(err)
	}
}

// mixed is a signed exclusion of no places that names earlier rounds.
func (w *heldWorld) mixed(earlier ...[32]byte) []byte {
	return w.sign(wire.LabelExclusion, wire.Encode(wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Earlier: earlier}))
}

// exchanged goes through the batch.
func (w *heldWorld) exchanged() *exchange.Exchange {
	w.t.Helper()
	return w.exchange(w.s)
}

// release has the open round released with the sums of earlier ones, and holds the release against them.
func (w *heldWorld) release(rounds ...int64) []byte {
	w.t.Helper()
	x := w.exchanged()
	var named [][32]byte
	for _, r := range rounds {
		named = append(named, w.name[r])
	}
	code, b := ask(w.s, w.path("sum"), w.mixed(named...))
	if code != 200 {
		w.t.Fatalf("round %d: %d %s", w.a.Round, code, b)
	}
	w.unmix(x, b, rounds...)
	return b
}

func (w *heldWorld) unmix(x *exchange.Exchange, b []byte, rounds ...int64) {
	w.t.Helper()
	digest := wire.Digest(w.a)
	own := make([]int64, dim)
	for _, v := range w.vector {
		for j := range v {
			own[j] += v[j]
		}
	}
	want := make([]int64, dim)
	var shares []proved.Earlier
	for _, r := range rounds {
		weight := w.weight[w.a.Round-r]
		shares = append(shares, proved.Earlier{Weight: weight, Share: w.shares[w.name[r]]})
		for j := range want {
			want[j] += weight * w.bare[w.name[r]][j]
		}
	}
	share, err := x.Mix(w.weight[0], shares)
	if err != nil {
		w.t.Fatal(err)
	}
	w.shares[digest], w.bare[digest], w.name[w.a.Round] = share, own, digest
	p, err := x.Close(w.none())
	if err != nil {
		w.t.Fatal(err)
	}
	_, rest, err := split(b)
	if err != nil {
		w.t.Fatal(err)
	}
	q, err := wire.Decode[wire.Partial](rest)
	if err != nil {
		w.t.Fatal(err)
	}
	got, _, err := w.of.Combine(p, vecsum.Partial{Tag: q.Tag, Index: int(q.Index), Clients: q.Clients, Reports: q.Reports, Sums: q.Sums})
	if err != nil {
		w.t.Fatal(err)
	}
	noise := w.added(w.log.drawn)
	for j := range want {
		want[j] += w.weight[0]*own[j] + noise[j]
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("round %d is released as %v, want %v", w.a.Round, got, want)
	}
}

// holds lists the rounds whose sums are held.
func (w *heldWorld) holds() (rounds []int64) {
	w.t.Helper()
	for _, name := range listedObjects(w.store, heldPrefix) {
		a, d, ok := parseNamed(heldPrefix, name)
		if !ok {
			w.t.Fatalf("object %s", name)
		}
		rec, _, err := w.s.load(w.t.Context(), a)
		if err != nil || rec.Held != d {
			w.t.Fatalf("object %s of round %d: %v", name, rec.Round, err)
		}
		rounds = append(rounds, rec.Round)
	}
	slices.Sort(rounds)
	return rounds
}

// refuse asks for a release and holds that it is refused without a trace.
func (w *heldWorld) refuse(what string, code int, body []byte) {
	w.t.Helper()
	values, entries, objects := maps.Clone(w.store.Values), len(w.store.Log), slices.Sorted(maps.Keys(w.store.Objects))
	if got, b := ask(w.s, w.path("sum"), body); got != code {
		w.t.Errorf("%s: %d %s, want %d", what, got, b, code)
	}
	if !maps.EqualFunc(values, w.store.Values, bytes.Equal) || entries != len(w.store.Log) || !slices.Equal(objects, slices.Sorted(maps.Keys(w.store.Objects))) {
		w.t.Errorf("%s: something was written", what)
	}
}

// Each round's release is made of the earlier sums that the coordinator names, as far as they have a weight,
// over restarts too; what no round needs is deleted.
func TestHeldSums(t *testing.T) { whoAdds(t, heldSums) }

func heldSums(t *testing.T, w *heldWorld) {
	w.prepare(w.s)
	for _, c := range []struct {
		round   int64
		earlier []int64
		holds   []int64
	}{{1, nil, []int64{1}}, {2, []int64{1}, []int64{1, 2}}, {3, []int64{1, 2}, []int64{1, 2, 3}}, {5, []int64{3}, []int64{3, 5}}, {6, nil, []int64{5, 6}}, {8, []int64{6}, []int64{6, 8}}} {
		if c.round > 1 {
			w.turn(c.round)
		}
		first := w.release(c.earlier...)
		if got := w.holds(); !slices.Equal(got, c.holds) {
			t.Errorf("after round %d the sums of %v are held, want %v", c.round, got, c.holds)
		}
		w.s = w.start(w.log)
		var named [][32]byte
		for _, r := range c.earlier {
			named = append(named, w.name[r])
		}
		if code, b := ask(w.s, w.path("sum"), w.mixed(named...)); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("round %d, asked again after a restart: %d", c.round, code)
		}
	}
	w.drew(w.log, 6)
	if found := w.found(); len(found) != 0 {
		t.Errorf("fsck: %q", found)
	}
}

// found is what fsck finds.
func (w *heldWorld) found() (found []string) {
	records := map[hash]record{}
	for k, v := range w.store.Values {
		a, err := hex.DecodeString(k[len(recordPrefix):])
		if err != nil {
			w.t.Fatal(err)
		}
		r, err := decodeRecord(v)
		if err != nil {
			w.t.Fatal(err)
		}
		records[hash(a)] = r
		if err := checkHeld(w.t.Context(), w.store, hash(a), r); err != nil {
			found = append(found, err.Error())
		}
	}
	checkHistory(w.t.Context(), w.store, w.mark, records, func(where, format string, args ...any) {
		found = append(found, where+": "+fmt.Sprintf(format, args...))
	})
	return found
}

// A coordinator that lies, with a shuffler that opens what it is told to, gets one release of a round of the
// task, made of one list of earlier rounds, and nothing is left of what it is refused.
func TestLyingCoordinatorMixesOnce(t *testing.T) { whoAdds(t, lyingCoordinatorMixesOnce) }

func lyingCoordinatorMixesOnce(t *testing.T, w *heldWorld) {
	w.sh.Anyway = true
	w.prepare(w.s)
	w.release()
	w.turn(2)
	w.release(1)
	w.turn(3)
	w.exchanged()
	one, two := w.name[1], w.name[2]
	w.refuse("a round that nobody knows", 409, w.mixed([32]byte{1}))
	w.refuse("the round itself", 400, w.mixed(wire.Digest(w.a)))
	w.refuse("twice", 400, w.mixed(two, two))
	w.refuse("out of order", 400, w.mixed(two, one))
	w.refuse("more than there are weights", 400, w.mixed(one, two, two))
	w.refuse("of another task", 400, w.mixed(w.foreign()))
	first := w.release(1, 2)
	for _, restart := range []bool{false, true} {
		if restart {
			w.s = w.start(w.log)
		}
		w.refuse("with another list", 409, w.mixed(two))
		w.refuse("with no list", 409, w.mixed())
		if code, b := ask(w.s, w.path("sum"), w.mixed(one, two)); code != 200 || !bytes.Equal(b, first) {
			t.Errorf("the same list, restart %t: %d", restart, code)
		}
	}
	third := w.a
	before := len(w.log.drawn)
	w.turn(3) // another announcement of the same round
	if wire.Digest(third) == wire.Digest(w.a) {
		t.Fatal("the same announcement")
	}
	for _, restart := range []bool{false, true} {
		if restart {
			w.s = w.start(w.log)
			w.prepare(w.s)
		}
		w.exchanged()
		w.refuse("a second announcement", 409, w.mixed(one, two))
		w.refuse("a second announcement alone", 409, w.mixed())
	}
	if len(w.log.drawn) != before {
		t.Error("noise was drawn")
	}
	if found := w.found(); len(found) != 0 {
		t.Errorf("fsck: %q", found)
	}
	// Its sum was never released, so no later round is made of it.
	second := wire.Digest(w.a)
	w.turn(4)
	w.exchanged()
	w.refuse("a sum that was not released", 409, w.mixed(two, second))
	w.release(2, 3)
	w.turn(6)
	w.exchanged()
	w.refuse("a round that has no weight", 400, w.mixed(w.name[3]))
	w.release(4)
	w.turn(5) // out of order: rounds that come later are none of its
	w.exchanged()
	w.refuse("a later round", 400, w.mixed(w.name[4], w.name[6]))
	w.release(4)
}

// Two processes on one store are asked at once for a round under two announcements: one of them is released.
func TestTwoProcessesBindOneAnnouncement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for i := range 4 {
			w := newHeld(t, i%2 == 1)
			w.sh.Anyway = true
			var paths []string
			var bodies [][]byte
			var both []*Service
			for i := range 2 {
				if w.s = w.start(w.log); i > 0 {
					w.announce(1)
				}
				w.prepare(w.s)
				w.exchanged()
				paths, bodies, both = append(paths, w.path("sum")), append(bodies, w.mixed()), append(both, w.s)
			}
			codes := make(chan int, 2)
			for i, s := range both {
				go func() {
					code, _ := ask(s, paths[i], bodies[i])
					codes <- code
				}()
			}
			a, b := <-codes, <-codes
			if min(a, b) != 200 || max(a, b) != 409 {
				t.Errorf("answered %d and %d", a, b)
			}
			if n := len(listedObjects(w.store, "partial/")); n != 1 {
				t.Errorf("%d partial sums", n)
			}
			w.drew(w.log, 1)
			if found := w.found(); len(found) != 0 {
				t.Errorf("fsck: %q", found)
			}
		}
	})
}

// foreign releases a round of another task and returns its announcement.
func (w *heldWorld) foreign() [32]byte {
	w.t.Helper()
	task, a, closed, of, vector, noise := w.task, w.a, w.closed, w.of, w.vector, w.noise
	name := maps.Clone(w.name)
	defer func() {
		w.task, w.a, w.closed, w.of, w.vector, w.noise, w.name = task, a, closed, of, vector, noise, name
	}()
	w.task.Name = "another"
	w.a.Task = wire.Digest(w.task)
	w.turn(2)
	w.release()
	return wire.Digest(w.a)
}

// A store that was restored from before a round was bound would bind it to another announcement.
func TestRestoredStoreBindsNoSecondAnnouncement(t *testing.T) {
	whoAdds(t, restoredStoreBindsNoSecondAnnouncement)
}

func restoredStoreBindsNoSecondAnnouncement(t *testing.T, w *heldWorld) {
	w.sh.Anyway = true
	w.prepare(w.s)
	w.exchanged()
	backup := copied(w.store)
	if code, b := ask(w.s, w.path("sum"), w.mixed()); code != 200 {
		t.Fatalf("%d %s", code, b)
	}
	w.store = backup
	if _, err := w.tryStart(); !errors.Is(err, mark.Err) {
		t.Errorf("a restored store: %v", err)
	}
}

// The row is bound before anything is signed or drawn, and the mark before the row counts.
func TestRowIsBoundFirst(t *testing.T) { whoAdds(t, rowIsBoundFirst) }

func rowIsBoundFirst(t *testing.T, w *heldWorld) {
	w.sh.Anyway = true
	broken := &brokenMark{}
	w.mark = broken
	w.s = w.start(w.log)
	w.prepare(w.s)
	w.exchanged()
	broken.err = errors.New("no space")
	if code, _ := ask(w.s, w.path("sum"), w.mixed()); code != 503 {
		t.Errorf("released without a mark: %d", code)
	}
	if r := w.record(); r.Summed != (hash{}) || len(w.log.drawn) != 0 {
		t.Errorf("%+v, %d draws", r, len(w.log.drawn))
	}
	broken.err = nil
	w.s = w.start(w.log)
	first, of := w.a, w.of
	w.turn(1)
	w.exchanged()
	// The entry was written before its mark failed, so the round is the first announcement's.
	w.refuse("another announcement", 409, w.mixed())
	w.a, w.of, w.closed = first, of, w.sh.Closed(wire.Digest(first))
	w.prepare(w.s)
	w.exchanged()
	if code, b := ask(w.s, w.path("sum"), w.mixed()); code != 200 {
		t.Errorf("the first announcement: %d %s", code, b)
	}
}

// fullStore takes no held sum the first time.
type fullStore struct {
	storage
	refused bool
}

func (f *fullStore) PutObject(ctx context.Context, name string, data []byte) error {
	if strings.HasPrefix(name, heldPrefix) && !f.refused {
		f.refused = true
		return errors.New("no space")
	}
	return f.storage.PutObject(ctx, name, data)
}

// A sum that cannot be held is not released. The coordinator begins again, with the same message where the whole
// batch is in one, and then it is.
func TestHeldSumsAreStoredFirst(t *testing.T) { whoAdds(t, heldSumsAreStoredFirst) }

func heldSumsAreStoredFirst(t *testing.T, w *heldWorld) {
	full := &fullStore{storage: w.log}
	w.s = w.start(full)
	w.prepare(w.s)
	whole := func() *exchange.Exchange {
		x := w.coordinator()
		w.say(w.s, x, w.begin(x, x.Left()))
		if !x.Complete() {
			t.Fatal("the batch is in several messages")
		}
		return x
	}
	whole()
	if code, b := ask(w.s, w.path("sum"), w.mixed()); code != 503 || !full.refused || w.record().Partial != (hash{}) {
		t.Fatalf("%d %s", code, b)
	}
	if code, b := ask(w.s, w.path("sum"), w.mixed()); code != 503 {
		t.Errorf("without another exchange: %d %s", code, b)
	}
	x := whole()
	code, b := ask(w.s, w.path("sum"), w.mixed())
	if code != 200 {
		t.Fatalf("%d %s", code, b)
	}
	w.drew(w.log, 1)
	w.unmix(x, b)
	if got := w.holds(); !slices.Equal(got, []int64{1}) {
		t.Errorf("held: %v", got)
	}
}

// Sums that were lost or changed are named as such, and the round can be released without them.
func TestHeldSumsAreLost(t *testing.T) {
	for _, byClients := range []bool{false, true} {
		bubble(t, fmt.Sprintf("noise by clients: %t", byClients), func(t *testing.T) { heldSumsAreLost(t, byClients) })
	}
}

func heldSumsAreLost(t *testing.T, byClients bool) {
	for what, spoil := range map[string]func(*heldWorld, string){
		"gone": func(w *heldWorld, name string) { delete(w.store.Objects, name) },
		"changed": func(w *heldWorld, name string) {
			w.store.Objects[name] = append(bytes.Clone(w.store.Objects[name]), 1)
		},
		"of another key": func(w *heldWorld, name string) {
			k, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
			if err != nil {
				w.t.Fatal(err)
			}
			ring, err := envelope.NewKeyring(k)
			if err != nil {
				w.t.Fatal(err)
			}
			b, err := sealed.Sum.SealVector(ring, envelope.Aggregator, w.name[1], make([]int64, dim))
			if err != nil {
				w.t.Fatal(err)
			}
			rec, revision, err := w.s.load(w.t.Context(), w.name[1])
			if err != nil {
				w.t.Fatal(err)
			}
			rec.Held = sha256.Sum256(b)
			if _, err := w.s.put(w.t.Context(), w.name[1], rec, revision); err != nil {
				w.t.Fatal(err)
			}
			w.store.Objects[heldName(w.name[1], rec.Held)] = b
		},
	} {
		w := newHeld(t, byClients)
		w.prepare(w.s)
		w.release()
		names := listedObjects(w.store, heldPrefix)
		if len(names) != 1 || len(w.found()) != 0 {
			t.Fatalf("%v, fsck %q", names, w.found())
		}
		spoil(w, names[0])
		if found := w.found(); (len(found) > 0) != (what == "changed") || len(found) > 0 && !strings.Contains(found[0], "not what its name says") {
			t.Errorf("%s: fsck %q", what, found)
		}
		w.turn(2)
		w.exchanged()
		w.refuse(what, 409, w.mixed(w.name[1]))
		w.release()
	}
}

// A held sum goes when it is old, when its record names another, and not before it is named.
func TestSweepHeld(t *testing.T) { whoAdds(t, sweepHeld) }

func sweepHeld(t *testing.T, w *heldWorld) {
	w.prepare(w.s)
	d := wire.Digest(w.a)
	early := heldName(d, hash{1})
	put := func(name string) {
		if err := w.store.PutObject(t.Context(), name, []byte("sum")); err != nil {
			t.Fatal(err)
		}
	}
	sweep := func(after time.Duration) []string {
		t.Helper()
		if err := w.s.sweepHeld(t.Context(), time.Now().Add(after), hash{}, 0); err != nil {
			t.Fatal(err)
		}
		return listedObjects(w.store, heldPrefix)
	}
	put(early)
	put(heldPrefix + "of nothing")
	if left := sweep(1000 * time.Hour); len(left) != 2 {
		t.Errorf("a sum that may be named yet is gone: %v", left)
	}
	w.release()
	delete(w.store.Objects, heldPrefix+"of nothing")
	own := heldName(d, w.record().Held)
	if left := sweep(0); !slices.Equal(left, []string{own}) {
		t.Errorf("left: %v, want %s", left, own)
	}
	if left := sweep(heldTime - time.Hour); len(left) != 1 {
		t.Error("a sum is deleted too early")
	}
	if left := sweep(heldTime + time.Hour); len(left) != 0 {
		t.Errorf("an old sum stays: %v", left)
	}
}

// An exclusion with earlier rounds is refused where noise is not correlated.
func TestEarlierRoundsOfAnotherKindOfTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newProved(t)
		s := w.start()
		w.prepare(s)
		w.exchange(s)
		before := maps.Clone(w.store.Values)
		e := wire.Exclusion{Announcement: wire.Digest(w.a), Reports: users, Earlier: [][32]byte{{1}}}
		if code, b := ask(s, w.path("sum"), w.sign(wire.LabelExclusion, wire.Encode(e))); code != 400 {
			t.Errorf("%d %s", code, b)
		}
		if !maps.EqualFunc(before, w.store.Values, bytes.Equal) || len(w.store.Log) != 1 {
			t.Error("something was written")
		}
		if code, b := ask(s, w.path("sum"), w.exclude()); code != 200 {
			t.Errorf("without: %d %s", code, b)
		}
		if w.record().Held != (hash{}) || len(listedObjects(w.store, heldPrefix)) != 0 {
			t.Error("a sum is held")
		}
	})
}

// fsck compares rows with the records: each is of the announcement that was released, and each release has one.
func TestRowsAreChecked(t *testing.T) { whoAdds(t, rowsAreChecked) }

func rowsAreChecked(t *testing.T, w *heldWorld) {
	w.prepare(w.s)
	w.release()
	w.turn(2)
	w.release(1)
	if found := w.found(); len(found) != 0 {
		t.Fatalf("fsck: %q", found)
	}
	rows := 0
	for _, b := range w.store.Log {
		if bytes.Contains(b, []byte(`"row"`)) {
			rows++
		}
	}
	if rows != 2 {
		t.Errorf("%d rows of 2 rounds", rows)
	}
	for what, change := range map[string]func(*record){
		"of another round": func(r *record) { r.Round += 5 },
		"of another task":  func(r *record) { r.Task[0] ^= 1 },
	} {
		k := key(w.name[2])
		whole := w.store.Values[k]
		rec, err := decodeRecord(whole)
		if err != nil {
			t.Fatal(err)
		}
		change(&rec)
		if _, err := w.s.put(t.Context(), w.name[2], rec, w.store.Revision[k]); err != nil {
			t.Fatal(err)
		}
		if len(w.found()) == 0 {
			t.Errorf("a record %s is not noticed", what)
		}
		w.store.Values[k] = whole
	}
}

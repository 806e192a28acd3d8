package shuffler

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/lab/memory"
	"github.com/riffle-dp/riffle/service/store"
)

// sharedRound is a kind of round that several processes shuffle.
type sharedRound struct {
	bucket  int64 // memory, in bytes
	plan    plan  // what is wanted of the stored plan
	apart   bool  // reports are not dealt as they come
	void    bool
	change  func(*wire.Announcement)
	reports int // that count
}

var sharedRounds = map[string]sharedRound{
	"one bucket":          {bucket: 1 << 20, reports: 11},
	"dealt":               {bucket: 500, plan: plan{Bits: 2}, reports: 11},
	"dealt twice":         {bucket: 60, plan: plan{Bits: 5, Deal: true}, reports: 11},
	"not dealt":           {bucket: 500, plan: plan{Bits: 2, Deal: true}, apart: true, reports: 11},
	"messages":            {bucket: 1500, plan: plan{Bits: 2, Deal: true}, reports: 11, change: func(a *wire.Announcement) { a.Messages = 3 }},
	"messages, not dealt": {bucket: 1500, plan: plan{Bits: 2, Deal: true}, apart: true, reports: 11, change: func(a *wire.Announcement) { a.Messages = 3 }},
	"void":                {bucket: 500, plan: plan{Bits: 2}, void: true, reports: 11, change: func(a *wire.Announcement) { a.MinReports = 12 }},
	"once":                {bucket: 500, plan: plan{Bits: 2}, reports: 11, change: func(a *wire.Announcement) { a.Participation, a.PerEpoch = dp.Once, 1 }},
}

// run takes a round through with three processes, of which the first has a fault. It checks that the
// batch is that of one process in memory, that there is one word, and that nothing is left. It
// returns the number of processes that have cut chunks.
func (r sharedRound) run(t *testing.T, fault func(op string, after bool) error, slow func(process int, op string)) int {
	t.Helper()
	w := newWorld(t, 12)
	w.counts = r.apart
	procs := make([]*node, 3)
	for i := range procs {
		c := w.config()
		c.Bucket, c.Poll = r.bucket, time.Second
		c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, after bool) error {
			if !after {
				slow(i, op)
			}
			if i == 0 && fault != nil {
				return fault(op, after)
			}
			return nil
		})}
		procs[i] = w.start(c)
	}
	ann := procs[1].announcement(1)
	if r.change != nil {
		r.change(&ann)
	}
	procs[1].open(ann)
	d := wire.Digest(ann)
	name := encodeName(d[:])
	if r.apart {
		w.edit(name, func(rec *record) { rec.Bits = 0 })
	}
	var sent [][2]int
	rejections := map[wire.Reason]int64{}
	for i := range 11 { // the last client does not come: the round closes at its deadline
		procs[1+i%2].send(w.report(ann, i, 0))
		sent = append(sent, [2]int{i, 0})
		if i%3 == 0 {
			procs[2-i%2].send(w.report(ann, i, byte(i%2))) // the same or another one, at another frontend
			sent = append(sent, [2]int{i, i % 2})
			rejections[map[bool]wire.Reason{true: wire.SecondReport, false: wire.Duplicate}[i%2 == 1]]++
		}
	}
	seen := plan{Bits: -1}
	var word wire.RoundClosed
	for range 40 {
		if b := procs[2].must(Coordinator, "GET", path(ann, "/closed?wait=10"), nil); len(b) > 0 {
			word = w.word(ann, b)
			break
		}
	}
	rec, err := procs[2].loadRecord(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	if rec.Plan != nil {
		seen = plan{Bits: rec.Plan.Bits, Deal: rec.Plan.Deal}
	}
	if seen != r.plan || word.Void != r.void || !maps.Equal(rejected(word), rejections) {
		t.Errorf("plan %+v, want %+v; word %+v, rejected %v, want %v", seen, r.plan, word, rejected(word), rejections)
	}
	if r.void {
		procs[2].refused(wire.Closed, Coordinator, "GET", path(ann, "/chunks"), nil)
		time.Sleep(time.Minute)
		w.destroyed(ann)
		return 0
	}
	want, _ := w.expected(ann, sent)
	check := func(n *node) {
		t.Helper()
		if got := n.fetch(Coordinator, ann, word); word.Reports != int64(r.reports) || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("another batch, of %d reports", word.Reports)
		}
	}
	check(procs[1])
	time.Sleep(time.Minute) // everybody has done all they will
	check(procs[2])
	if again := procs[1].closed(ann); fmt.Sprint(again) != fmt.Sprint(word) {
		t.Errorf("two words: %+v and %+v", word, again)
	}
	w.disk.Lock()
	for stream := range w.disk.Streams {
		if !slices.Contains(rec.streams(name), stream) {
			t.Errorf("left beside the batch: stream %s", stream)
		}
	}
	for key := range w.disk.Values {
		if strings.HasPrefix(key, keyWork("")[:4]) {
			t.Errorf("left beside the batch: %s", key)
		}
	}
	w.disk.Unlock()
	procs[2].must(Coordinator, "DELETE", path(ann, ""), nil)
	time.Sleep(time.Minute)
	w.destroyed(ann)
	if rec.Run == "" {
		t.Error("no run is named")
	}
	return len(rec.Runs) + 1
}

// edit changes a stored record as if another program had written it.
func (w *world) edit(name string, change func(*record)) {
	w.t.Helper()
	w.disk.Lock()
	defer w.disk.Unlock()
	rec, err := decodeRecord(store.Entry{Key: keyRecord(name), Value: w.disk.Values[keyRecord(name)], Revision: w.disk.Revision[keyRecord(name)]})
	if err != nil {
		w.t.Fatal(err)
	}
	change(rec)
	if w.disk.Values[keyRecord(name)], err = json.Marshal(rec); err != nil {
		w.t.Fatal(err)
	}
}

// reads makes what reads take time, so that processes are at work at the same time.
func reads(_ int, op string) {
	if strings.HasPrefix(op, "read ") {
		time.Sleep(300 * time.Millisecond)
	}
}

// Three processes shuffle a round together, and the batch is that of one.
func TestProcessesShareTheShuffling(t *testing.T) {
	for name, r := range sharedRounds {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := r.run(t, nil, reads)
				if r.plan.Bits > 0 && !r.void && n < 2 {
					t.Errorf("%d processes have cut chunks", n)
				}
			})
		})
	}
}

// One of three processes dies at any operation of the closing, before or after it, or stalls there for
// longer than its leases last and goes on as if nothing had happened: as the one that closes,
// and as one that helps.
func TestAProcessDiesOrStallsInTheShuffling(t *testing.T) {
	some := 0
	for _, name := range slices.Sorted(maps.Keys(sharedRounds)) {
		r := sharedRounds[name]
		t.Run(name, func(t *testing.T) {
			for _, first := range []bool{true, false} {
				for _, how := range []string{"dies before", "dies after", "stalls"} {
					if some++; !longtest.On && some%5 != 0 {
						continue
					}
					step := longtest.Pick(43, 3)
					if r.plan.Bits > 2 { // it has many more operations
						step = longtest.Pick(311, 17)
					}
					k := 1
					for reached := true; reached; k += step {
						reached = false
						synctest.Test(t, func(t *testing.T) {
							var mu sync.Mutex
							closing, dead, count := false, false, 0
							begun := map[int]bool{}
							fault := func(op string, after bool) error {
								mu.Lock()
								if dead {
									mu.Unlock()
									return errCrash
								}
								closing = closing || op == "acquire"
								hit := closing && counted(op) && (after == (how == "dies after"))
								if hit {
									count++
									hit = count == k
								}
								reached = reached || hit
								dead = hit && how != "stalls"
								dies := dead
								mu.Unlock()
								if dies {
									return errCrash
								}
								if hit {
									time.Sleep(10 * time.Second) // leases are of one second
								}
								return nil
							}
							r.run(t, fault, func(process int, op string) {
								mu.Lock()
								wait := op == "acquire" && !begun[process] && first != (process == 0)
								if op == "acquire" {
									begun[process] = true
								}
								mu.Unlock()
								if wait { // for the one that is to close the round
									time.Sleep(100 * time.Millisecond)
								}
								reads(process, op)
							})
						})
						if t.Failed() {
							t.Fatalf("first: %t; it %s operation %d", first, how, k)
						}
					}
					if least := map[bool]int{true: 15, false: 3}[first]; k < least {
						t.Errorf("first: %t, %s: only %d operations", first, how, k)
					}
				}
			}
		})
	}
}

// Parts and shares of several processes come in the same order.
func TestProcessesShareTheShufflingOfShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 12)
		c := w.config()
		c.Bucket = 100_000
		slowly := func(op string, after bool) error {
			if !after {
				reads(0, op)
			}
			return nil
		}
		c.Store = &memory.Store{Disk: w.disk, Do: failing(slowly)}
		n := w.start(c)
		c.Store = &memory.Store{Disk: w.disk, Do: failing(slowly)}
		other := w.start(c)
		ann := n.announcement(1, func(a *wire.Announcement) {
			a.Aggregator = w.second.Public
			a.ShareBytes = a.ReportBytes + 150_000 // three messages each
		})
		n.open(ann)
		var bodies [][]byte
		var sent [][2]int
		for i := range 11 {
			bodies, sent = append(bodies, w.report(ann, i, 0)), append(sent, [2]int{i, 0})
		}
		n.send(bodies...)
		word := n.closed(ann)
		want, _ := w.expected(ann, sent)
		parts, shares := n.fetch(Coordinator, ann, word), other.fetch(Aggregator, ann, word)
		if !slices.EqualFunc(parts, want, bytes.Equal) {
			t.Error("another batch")
		}
		for i := range shares {
			if !bytes.Equal(parts[i], shares[i][:partContent]) {
				t.Fatalf("place %d: part of %s, share of %s", i, parts[i], shares[i][:partContent])
			}
		}
		d := wire.Digest(ann)
		if rec, err := n.loadRecord(t.Context(), encodeName(d[:])); err != nil || len(rec.Runs) == 0 {
			t.Errorf("one process has cut all chunks: %v", err)
		}
	})
}

// Reports are dealt by how many are expected, and not at all if those fit a bucket.
func TestWhichRoundsAreDealt(t *testing.T) {
	w := newWorld(t, 2)
	c := w.config()
	c.Bucket = 1 << 20
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	size := int64(1024)
	for _, x := range []struct {
		want   int
		change func(*wire.Announcement)
	}{
		{0, func(a *wire.Announcement) { a.Population = 700 }},
		{1, func(a *wire.Announcement) { a.Population = 900 }},
		{3, func(a *wire.Announcement) { a.Population = 6000 }},
		{mostDealt, func(a *wire.Announcement) { a.Population = 1e9 }},
		{0, func(a *wire.Announcement) { a.Population, a.Participation, a.Sample = 1e9, dp.Sampled, 700 }},
		{0, func(a *wire.Announcement) { a.Population, a.Participation, a.Gamma = 7000, dp.CheckIn, .1 }},
		{1, func(a *wire.Announcement) { a.Population, a.Participation, a.PerEpoch = 9000, dp.Once, 10 }},
		{2, func(a *wire.Announcement) { a.Population, a.ShareBytes = 900, size }},
		{2, func(a *wire.Announcement) { a.Population, a.Messages = 900, 2 }},
	} {
		ann := wire.Announcement{Participation: dp.All, ReportBytes: size}
		x.change(&ann)
		if got := s.dealt(ann); got != x.want {
			t.Errorf("%+v: dealt by %d bits, want %d", ann, got, x.want)
		}
	}
	for _, bad := range []*record{{Bits: -1}, {Bits: mostDealt + 1}, {Plan: &plan{}}, {Cut: new(uint64), Plan: &plan{Bits: 13, Deal: true}}, {Cut: new(uint64), Plan: &plan{Bits: 1}}} {
		if bad.check() == nil {
			t.Errorf("took %+v with plan %+v", bad, bad.Plan)
		}
	}
}

// Reports that come at the same time to all buckets share blocks with those of their bucket, and
// each is answered.
func TestBlocksOfManyBuckets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 60)
		c := w.config()
		c.Bucket = 2000
		n := w.start(c)
		ann := n.announcement(1)
		n.open(ann)
		var bodies [][]byte
		for i := range w.clients {
			bodies = append(bodies, w.report(ann, i, 0))
		}
		n.send(bodies[:59]...)
		d := wire.Digest(ann)
		r := n.remembered(d)
		if r.bits < 2 {
			t.Fatalf("dealt by %d bits", r.bits)
		}
		in := w.disk.Streams[streamIn(r.name)]
		blocks := map[string]int{}
		for _, m := range in {
			blocks[m.Suffix]++
		}
		if len(in) != len(blocks) || len(blocks) > 1<<r.bits {
			t.Errorf("%d blocks of %d buckets", len(in), len(blocks))
		}
		n.send(bodies[59])
		if word := n.closed(ann); word.Reports != 60 {
			t.Errorf("%d reports", word.Reports)
		}
	})
}

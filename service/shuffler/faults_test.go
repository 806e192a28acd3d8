package shuffler

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
)

var errCrash = errors.New("the process has died")

// life is what a coordinator and clients see of a shuffler whose process dies and
// is started again: they ask again until they are answered.
type life struct {
	w     *world
	n     *node
	words map[string]bool // signed words that were seen
	dead  func() bool     // died since it was last asked
}

// failing is a store's Do; fault may be nil.
func failing(fault func(op string, after bool) error) func(op string, f func() error) error {
	if fault == nil {
		return nil
	}
	return memory.Failing(fault)
}

// boot starts a process that fails as fault says, until a start succeeds.
func (l *life) boot(fault func(op string, after bool) error) {
	c := l.w.config()
	c.Store, c.Bucket, c.Poll = &memory.Store{Disk: l.w.disk, Do: failing(fault)}, 300, time.Second // some buckets
	c.Keep = time.Minute
	s, err := New(c)
	if err != nil {
		l.w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	l.n = &node{Service: s, w: l.w, stop: func() { cancel(); <-done }, retry: l.ask}
	l.w.node = l.n
	go func() {
		defer close(done)
		if err := s.Run(ctx); err != nil && !errors.Is(err, errCrash) {
			l.w.t.Errorf("run: %v", err)
		}
	}()
	synctest.Wait() // it runs, or has died at the start
}

// ask repeats a request until it succeeds, and starts a new process after a crash.
func (l *life) ask(peer, method, path string, body []byte) []byte {
	l.w.t.Helper()
	crashed := false
	for range 100 {
		code, b := l.n.do(peer, method, path, body)
		if l.dead() {
			l.n.stop()
			l.boot(nil)
			crashed = true
			continue
		}
		if crashed && code == 410 && path == "/v1/report" {
			// It was stored and not answered, and was the last that the round waited
			// for. How many are in the batch is compared later.
			return nil
		}
		if code/100 == 2 {
			return b
		}
		if code != 503 && code != 409 {
			l.w.t.Fatalf("%s %s: %d %s", method, path, code, b)
		}
		time.Sleep(50 * time.Millisecond)
	}
	l.w.t.Fatalf("%s %s is never answered", method, path)
	return nil
}

// crashAt runs a whole round with a process that dies at its k-th operation on
// the store, before it or after it. It returns false if it never got that far.
func crashAt(t *testing.T, w *world, k int, after bool, reports int, abandon bool, change func(*wire.Announcement)) bool {
	t.Helper()
	var mu sync.Mutex
	count, died := 0, false
	dead := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return died
	}
	restarted := false
	once := func() bool { // dead, and not yet started again
		if dead() && !restarted {
			restarted = true
			return true
		}
		return false
	}
	l := &life{w: w, words: map[string]bool{}, dead: once}
	l.boot(func(op string, isAfter bool) error {
		mu.Lock()
		defer mu.Unlock()
		if died {
			return errCrash
		}
		if isAfter == after && counted(op) {
			count++
		}
		if count == k && isAfter == after {
			died = true
			return errCrash
		}
		return nil
	})
	defer func() { l.n.stop() }()
	if once() {
		l.n.stop()
		l.boot(nil)
	}
	ann := l.n.announcement(1, change)
	l.ask(Coordinator, "POST", "/v1/rounds", w.sign(ann))
	var sent [][2]int
	for i := range reports {
		l.ask("", "POST", "/v1/report", w.report(ann, i, 0))
		sent = append(sent, [2]int{i, 0})
	}
	var word wire.RoundClosed
	for range 40 {
		if b := l.ask(Coordinator, "GET", path(ann, "/closed?wait=10"), nil); len(b) > 0 {
			l.words[string(b)] = true
			word = w.word(ann, b)
			w.unlinked(ann)
			break
		}
	}
	if word.Round == 0 {
		t.Fatal("the round does not close")
	}
	if int64(reports) < ann.MinReports {
		if !word.Void {
			t.Errorf("word %+v", word)
		}
	} else {
		if word.Reports != int64(reports) {
			t.Errorf("%d reports of %d were acknowledged", word.Reports, reports)
		}
		want, _ := w.expected(ann, sent)
		if ann.Ledger != nil {
			told := wire.Encode(wire.HeadStatement{Population: l.n.config.Population, Head: wire.Head{Entries: ann.Ledger.Entries + 1, Digest: [32]byte{4}}})
			l.ask(Coordinator, "POST", "/v1/ledger", wire.Sign(w.coordinator, wire.LabelHead, told))
		}
		l.ask(Coordinator, "GET", path(ann, "/chunks"), nil)
		l.ask(Coordinator, "GET", path(ann, "/chunks/0"), nil)
		if got := l.n.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Error("another batch")
		}
		if !abandon {
			l.ask(Coordinator, "DELETE", path(ann, ""), nil)
		} else if time.Sleep(30 * time.Second); dead() && !restarted {
			restarted = true
			l.n.stop()
			l.boot(nil)
		}
	}
	if abandon {
		if code := l.fetched(ann); code != 200 && !dead() {
			t.Errorf("a batch is abandoned before its time: %d", code)
		}
		time.Sleep(2 * time.Minute)
	}
	b := l.ask(Coordinator, "GET", path(ann, "/closed"), nil)
	if l.words[string(b)] = true; len(l.words) != 1 {
		t.Error("two words on a round")
	}
	code, _ := l.n.do(Coordinator, "GET", path(ann, "/chunks/0"), nil)
	if code != 410 {
		if dead() {
			l.n.stop()
			l.boot(nil)
			code, _ = l.n.do(Coordinator, "GET", path(ann, "/chunks/0"), nil)
		}
		if code != 410 {
			t.Errorf("a second release: %d", code)
		}
	}
	// A round of the same number is not opened again, whatever was destroyed.
	second := l.n.announcement(1, change, func(a *wire.Announcement) { a.Eps0 = 3 })
	if code, _ := l.n.do(Coordinator, "POST", "/v1/rounds", w.sign(second)); code/100 == 2 && !dead() {
		t.Error("a round was opened twice")
	}
	if dead() && !restarted {
		l.n.stop()
		l.boot(nil)
	}
	time.Sleep(time.Second)
	w.destroyed(ann)
	if w.counts {
		l.n.stop()
		reader, err := New(w.config()) // of what is stored, whoever died
		if err != nil {
			t.Fatal(err)
		}
		for i := range w.clients {
			want := int64(0)
			if i < reports {
				want = ann.PerClient()
			}
			id := wire.ClientID(public(w.clients[i]))
			if l, _, _, err := reader.loadTaken(t.Context()); err != nil || l.of(id) != want {
				t.Errorf("%d messages of client %d are counted, want %d (%v)", l.of(id), i, want, err)
			}
		}
	}
	return dead()
}

// fetched is the answer to a request for the first chunk.
func (l *life) fetched(ann wire.Announcement) int {
	code, _ := l.n.do(Coordinator, "GET", path(ann, "/chunks/0"), nil)
	return code
}

// unlinked wants that nothing leads from a client to its place in the batch.
func (w *world) unlinked(ann wire.Announcement) {
	w.t.Helper()
	d := wire.Digest(ann)
	w.disk.Lock()
	defer w.disk.Unlock()
	if _, left := w.disk.Secrets[linksName(encodeName(d[:]))]; left {
		w.t.Error("a batch is offered while the keys of its order and draw are there")
	}
}

// counted leaves out what is only looked at, again and again while time passes:
// a crash there is one before the next operation.
func counted(op string) bool {
	return op != "list values" && !strings.HasPrefix(op, "get ") && !strings.HasPrefix(op, "look ")
}

// The store fails at every single operation of a round, before it and after it.
func TestCrashAtEveryStep(t *testing.T) {
	for name, c := range map[string]struct {
		reports int
		abandon bool
		change  func(*wire.Announcement)
	}{
		"released":  {5, false, func(*wire.Announcement) {}},
		"void":      {1, false, func(*wire.Announcement) {}},
		"once":      {5, false, func(a *wire.Announcement) { a.Participation, a.PerEpoch = dp.Once, 1 }},
		"messages":  {4, false, func(a *wire.Announcement) { a.Messages = 3 }},
		"ledger":    {4, false, func(a *wire.Announcement) { a.Ledger = &wire.Head{Entries: 3, Digest: [32]byte{3}} }},
		"abandoned": {5, true, func(*wire.Announcement) {}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, after := range []bool{false, true} {
				k := 1
				for reached := true; reached; k++ {
					step := longtest.Pick(17, 1)
					if name == "messages" {
						step = longtest.Pick(31, 1)
					}
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, 5)
						w.counts = name == "messages" || name == "void"
						reached = crashAt(t, w, k, after, c.reports, c.abandon, c.change)
					})
					if t.Failed() {
						t.Fatalf("operation %d, after it: %t", k, after)
					}
					k += step - 1
				}
				if k < 20 {
					t.Errorf("only %d operations", k)
				}
			}
		})
	}
}

// A process stalls in the middle of closing, another takes over, and then the
// first goes on as if nothing had happened.
func TestTakeover(t *testing.T) {
	step := longtest.Pick(4, 1)
	stall := 1
	for ; ; stall += step {
		stalled := false
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 5)
			var mu sync.Mutex
			count := 0
			closing := false
			slow := w.config()
			slow.Bucket, slow.Poll = 300, time.Second
			slow.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, after bool) error {
				mu.Lock()
				if op == "acquire" && after {
					closing = true
				}
				if closing && counted(op) {
					count++
				}
				hold := closing && counted(op) && count == stall
				mu.Unlock()
				if hold {
					stalled = true
					time.Sleep(10 * time.Second) // its lease is of one second
				}
				return nil
			})}
			a := w.start(slow)
			ann := a.announcement(1)
			a.open(ann)
			var sent [][2]int
			for i := range w.clients {
				if i == len(w.clients)-1 {
					break // it closes at the deadline
				}
				a.send(w.report(ann, i, 0))
				sent = append(sent, [2]int{i, 0})
			}
			fast := w.config()
			fast.Bucket, fast.Poll = 300, time.Second
			b := w.start(fast)
			word := b.closed(ann)
			want, _ := w.expected(ann, sent)
			check := func(n *node) {
				t.Helper()
				if got := n.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
					t.Errorf("stalled at %d: another batch", stall)
				}
			}
			check(b)
			time.Sleep(30 * time.Second) // both have done all they will
			if again := a.closed(ann); fmt.Sprint(again) != fmt.Sprint(word) {
				t.Errorf("stalled at %d: two words, %v and %v", stall, word, again)
			}
			check(a)
			a.must(Coordinator, "DELETE", path(ann, ""), nil)
			time.Sleep(time.Second)
			w.destroyed(ann)
		})
		if !stalled {
			break
		}
		if t.Failed() {
			t.Fatalf("stalled at operation %d", stall)
		}
	}
	if stall < 25 {
		t.Errorf("only %d operations", stall)
	}
}

// A frontend stalls between its look at the round and its write, while another
// process closes the round: it must not say that the report is stored.
func TestLateWriteIsNotAcknowledged(t *testing.T) {
	for _, after := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 4)
			worker := w.start(w.config())
			c := w.config()
			c.FrontendOnly = true
			var hold sync.Once
			armed := false
			c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, isAfter bool) error {
				if op == "append in" && isAfter == after && armed {
					hold.Do(func() { time.Sleep(3 * time.Minute) })
				}
				return nil
			})}
			front := w.start(c)
			ann := front.announcement(1)
			front.open(ann)
			front.send(w.report(ann, 0, 0), w.report(ann, 1, 0))
			// Before the write it is too late; after it, the report is in the batch.
			armed = true
			code, text := front.do("", "POST", "/v1/report", w.report(ann, 2, 0))
			word := worker.closed(ann)
			want := map[bool]int{false: 410, true: 204}[after]
			if code != want || word.Reports != map[bool]int64{false: 2, true: 3}[after] {
				t.Errorf("stalled after the write: %t: %d %s, the batch has %d", after, code, text, word.Reports)
			}
		})
	}
}

// A block that is written after the cut and before the stream is read is
// not in the batch, and its client is told so: another run would else make
// another batch.
func TestBlockAfterTheCutIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 4)
		written := make(chan struct{})
		passes := make(chan struct{})
		c := w.config()
		c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, after bool) error {
			if op == "create stream o" && !after { // the cut is made
				close(passes)
				<-written
			}
			return nil
		})}
		worker := w.start(c)
		c.FrontendOnly = true
		late := false
		c.Store = &memory.Store{Disk: w.disk, Do: memory.Failing(func(op string, after bool) error {
			if op == "append in" && late {
				if !after {
					<-passes
				} else {
					close(written)
				}
			}
			return nil
		})}
		front := w.start(c)
		ann := front.announcement(1)
		front.open(ann)
		front.send(w.report(ann, 0, 0), w.report(ann, 1, 0))
		late = true
		front.refused(wire.Closed, "", "POST", "/v1/report", w.report(ann, 2, 0))
		word := worker.closed(ann)
		want, _ := w.expected(ann, [][2]int{{0, 0}, {1, 0}})
		if got := worker.fetch(Coordinator, ann, word); !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("the batch holds %d reports", len(got))
		}
	})
}

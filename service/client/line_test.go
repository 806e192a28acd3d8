package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func someDecisions() []decision {
	charge := dp.Round{Report: dp.Report{Class: dp.Generic, Eps0: 2.0000000000000004, TV: .01}, Trust: dp.Shuffle, Participation: dp.All, Population: 100, Reports: 100}
	sum := dp.Round{Report: dp.Report{Class: dp.Gaussian, Sigma: .25}, Trust: dp.Distributed, Participation: dp.All, Population: 7, Reports: 7}
	krr := dp.Round{Report: dp.Report{Class: dp.KRR, Eps0: 1, Symbols: 10}, Trust: dp.Local, Participation: dp.All, Population: 1, Reports: 1}
	rising := charge
	rising.Report = dp.Report{Class: dp.Rising, Eps0: 2.835, Steps: dp.NewSteps(5.338, []float64{.171, .068, .0217}, 1.83e-7)}
	a, b := wire.ID{1}, wire.ID{2}
	return []decision{
		{client: a, task: [32]byte{9}, round: 1, announcement: [32]byte{3}, times: 1, sealed: [32]byte{4}, charge: charge},
		{client: b, task: [32]byte{9}, round: 1, announcement: [32]byte{3}},
		{client: a, task: [32]byte{8}, round: 1, announcement: [32]byte{5}, times: 1, sealed: [32]byte{6}, tail: 1e-8, charge: sum},
		{client: b, task: [32]byte{8}, round: 6, announcement: [32]byte{5}, times: 12, kept: true, tail: 1e-8, charge: sum},
		{client: b, task: [32]byte{8}, round: 6, announcement: [32]byte{5}, times: 1, kept: true, tail: 1e-8, charge: charge},
		{client: a, task: [32]byte{9}, round: 7, announcement: [32]byte{7}, times: 1, sealed: [32]byte{8}, charge: krr},
		{client: b, task: [32]byte{9}, round: 7, announcement: [32]byte{7}, times: 8, sealed: [32]byte{9}, charge: charge},
		{client: a, task: [32]byte{9}, round: 8, announcement: [32]byte{7}, times: 1, sealed: [32]byte{8}, charge: rising},
		{client: b, task: [32]byte{9}, round: 8, announcement: [32]byte{7}, times: 8, sealed: [32]byte{9}, charge: rising},
	}
}

func encodeBook(all []decision) []byte {
	b := []byte(bookHeader)
	c := check{}.next(b)
	for _, d := range all {
		b, c = d.append(b, c)
	}
	return b
}

func TestBookIsReadAsWritten(t *testing.T) {
	all := someDecisions()
	b := encodeBook(all)
	got, last, size, err := decodeBook(b)
	if err != nil || size != len(b) || len(got) != len(all) {
		t.Fatal(got, size, err)
	}
	for i := range all {
		if got[i] != all[i] {
			t.Errorf("line %d reads %+v, want %+v", i, got[i], all[i])
		}
	}
	next, _ := all[1].append(nil, last)
	if _, _, _, err := decodeBook(append(b, next...)); err == nil {
		t.Error("a round was decided twice")
	}
	// A torn end is dropped, wherever the last write stopped.
	for cut := 1; cut < 200; cut++ {
		got, _, size, err := decodeBook(b[:len(b)-cut])
		if err != nil || len(got) != len(all)-1 || size > len(b)-cut || b[size-1] != '\n' {
			t.Fatalf("cut by %d: %d lines, %v", cut, len(got), err)
		}
	}
	// Anything else is refused: a byte changed, a line taken out or put twice.
	for i := range b[:len(b)-1] {
		x := bytes.Clone(b)
		x[i] ^= 1
		if got, _, _, err := decodeBook(x); err == nil && len(got) == len(all) {
			t.Fatalf("byte %d was changed and nobody saw", i)
		} else if err == nil && i < bytes.LastIndexByte(b[:len(b)-1], '\n') {
			t.Fatalf("byte %d of an inner line was changed and nobody saw", i)
		}
	}
	lines := bytes.SplitAfter(b, []byte("\n"))
	for i := 1; i < len(all); i++ {
		without := bytes.Join(append(append([][]byte{}, lines[:i]...), lines[i+1:]...), nil)
		if _, _, _, err := decodeBook(without); !errors.Is(err, ErrDamaged) {
			t.Errorf("line %d was taken out: %v", i, err)
		}
	}
	if _, _, _, err := decodeBook([]byte("riffle-client-ledger 2\n")); err == nil || !strings.Contains(err.Error(), "this program reads") {
		t.Errorf("another version: %v", err)
	}
	if _, _, _, err := decodeBook(nil); !errors.Is(err, ErrDamaged) {
		t.Errorf("an empty file: %v", err)
	}
}

// A long ledger is written anew, shorter, and says as much: what was spent, and
// which round was the last.
func TestLongBooksAreShortened(t *testing.T) {
	dir := t.TempDir()
	if err := CreateLedger(dir); err != nil {
		t.Fatal(err)
	}
	var all []decision
	few := someDecisions()
	for round := int64(1); round <= shortenFrom; round++ {
		d := few[0]
		if round%3 == 0 {
			d.charge = few[2].charge
			d.tail = 1e-9 * float64(round%7)
		} else if round%5 == 0 {
			d = few[1]
			d.client = few[0].client
		}
		d.round, d.announcement = round, [32]byte{byte(round), byte(round >> 8)}
		all = append(all, d)
	}
	all = append(all, few[1])
	path := filepath.Join(dir, ledgerFile)
	if err := os.WriteFile(path, encodeBook(all), 0o600); err != nil {
		t.Fatal(err)
	}
	var states [3]string
	var sizes [3]int
	for i := range states {
		b, err := openBook(directory(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range []wire.ID{{1}, {2}} {
			for _, s := range b.history(id).Tasks {
				states[i] += fmt.Sprintf("%v %+v; ", id, *s)
			}
		}
		next := few[1] // and it can be continued
		next.round = 100000 + int64(i)
		if err := errors.Join(b.record(next), b.close()); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		sizes[i] = bytes.Count(content, []byte("\n"))
		states[i] = strings.ReplaceAll(states[i], fmt.Sprintf("Round:%d ", 99999+i), "Round:1 ")
	}
	if states[0] != states[1] || states[1] != states[2] {
		t.Errorf("states differ:\n%s\n%s\n%s", states[0], states[1], states[2])
	}
	if sizes[0] != 5 || sizes[2] != 7 {
		t.Errorf("ledgers of %v lines, want 5 and one more at a time", sizes)
	}
}

func FuzzBook(f *testing.F) {
	f.Add(encodeBook(someDecisions()))
	f.Add([]byte(bookHeader))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _, size, err := decodeBook(b)
		if err != nil {
			return
		}
		if again := encodeBook(all); !bytes.Equal(again, b[:size]) {
			t.Errorf("%q reads and writes as %q", b[:size], again)
		}
	})
}

// FuzzLine gives lines a check that fits, so that what is behind it is reached.
func FuzzLine(f *testing.F) {
	for _, d := range someDecisions() {
		line, _ := d.append(nil, check{})
		f.Add(string(line[:len(line)-18]))
		f.Add(string(line[:20]) + "\x00\x00")
	}
	f.Fuzz(func(t *testing.T, line string) {
		first := check{}.next([]byte(bookHeader))
		c := first.next([]byte(line))
		b := []byte(bookHeader + line + " " + string(hexOf(c)) + "\n")
		all, _, size, err := decodeBook(b)
		if err != nil {
			return
		}
		if torn := strings.Contains(line, "\x00"); len(all) != 1 && !torn || len(all) > 1 || !bytes.Equal(encodeBook(all), b[:size]) || size != len(b) && !torn {
			t.Errorf("%q reads as %+v", line, all)
		}
		for _, d := range all {
			if d.times > 0 && d.charge.Validate() != nil || !(d.tail >= 0) {
				t.Errorf("%+v", d)
			}
		}
	})
}

func hexOf(c check) []byte {
	const digits = "0123456789abcdef"
	var out []byte
	for _, b := range c {
		out = append(out, digits[b>>4], digits[b&15])
	}
	return out
}

func FuzzOutbox(f *testing.F) {
	o := outbox{deadline: time.UnixMilli(12345)}
	b := newSealed(wire.ID{1}, []byte("sealed")).append(o.header())
	b = newSealed(wire.ID{1}, nil).append(b)
	f.Add(b)
	f.Add(b[:len(b)-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		o, size, err := decodeOutbox(b)
		if err != nil {
			return
		}
		again := o.header()
		for _, r := range o.reports {
			again = r.append(again)
		}
		if !bytes.Equal(again, b[:size]) {
			t.Errorf("%x reads and writes as %x", b[:size], again)
		}
	})
}

// Many goroutines share syncs, and what is on disk is in the order of the chain.
func TestBookTakesManyAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := CreateLedger(dir); err != nil {
		t.Fatal(err)
	}
	b, err := openBook(directory(dir))
	if err != nil {
		t.Fatal(err)
	}
	ann := wire.Announcement{Task: [32]byte{1}, Round: 1, Deadline: time.Now().Add(time.Hour).UnixMilli()}
	charge := someDecisions()[0].charge
	b.hold([32]byte{2})
	var wg sync.WaitGroup
	for i := range 300 {
		wg.Go(func() {
			id := wire.ID{byte(i), byte(i >> 8)}
			if i%3 == 0 {
				if err := b.pass(id, ann.Task, 1, [32]byte{2}); err != nil {
					t.Error(err)
				}
				return
			}
			if err := b.charge(id, ann, [32]byte{2}, charge, 1, 0, []byte{byte(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if err := errors.Join(b.release([32]byte{2}, false), b.close()); err != nil {
		t.Fatal(err)
	}
	if b, err = openBook(directory(dir)); err != nil {
		t.Fatal(err)
	}
	if len(b.clients) != 300 || len(b.left) != 1 || len(b.left[[32]byte{2}].reports) != 200 {
		t.Errorf("%d clients, %d outboxes", len(b.clients), len(b.left))
	}
	if err := errors.Join(b.release([32]byte{2}, true), b.close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, outboxDir, strings.Repeat("02", 1)+strings.Repeat("00", 31))); err == nil {
		t.Error("the outbox is still there")
	}
}

func TestAppenderStopsAtTheFirstError(t *testing.T) {
	dir := t.TempDir()
	a := &appender{store: directory(dir), name: "no/such"}
	wait, err := a.add([]byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	if err := wait(); !errors.Is(err, errStore) {
		t.Errorf("wrote to nowhere: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, "no"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := a.add([]byte("y")); !errors.Is(err, errStore) {
		t.Errorf("went on after an error: %v", err)
	}
}

func TestCredentialsAreLines(t *testing.T) {
	c, err := NewCredential()
	if err != nil {
		t.Fatal(err)
	}
	text := c.Secret()
	if bytes.Count(text, []byte("\n")) != 1 {
		t.Fatalf("%q", text)
	}
	again, err := ParseCredential(text)
	if err != nil || !again.Public().Equal(c.Public()) {
		t.Fatal(err)
	}
	key, err := ParsePublic(MarshalPublic(c.Public()))
	if err != nil || !key.Equal(c.Public()) {
		t.Fatal(err)
	}
	secret := strings.Fields(string(text))[1]
	for _, bad := range []string{"", "riffle-client-1", string(text) + "x", "riffle-client-1 " + secret[:40], "riffle-client-2 " + secret,
		string(MarshalPublic(c.Public())), "riffle-client-1 " + strings.Repeat("!", 44)} {
		if _, err := ParseCredential([]byte(bad)); err == nil || strings.Contains(err.Error(), secret[:8]) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParsePublic(text); err == nil {
		t.Error("a secret was taken for a public key")
	}
	id := fmt.Sprintf("client %x", wire.ClientID(c.Public()))
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if got := fmt.Sprintf(verb+verb, c, *c); got != id+id {
			t.Errorf("%s: the credential prints %q", verb, got)
		}
	}
	if b, err := json.Marshal(map[string]any{"credential": c}); err != nil || strings.Contains(string(b), secret) {
		t.Errorf("the credential as JSON: %s, %v", b, err)
	}
}

// oracle is an accountant that says what it is told to.
type oracle func(ev dp.Event, delta float64) float64

func (a oracle) Eps(ev dp.Event, delta float64) (dp.Bound, error) {
	return dp.Bound{Kind: dp.Upper, Guarantee: dp.Guarantee{Eps: a(ev, delta), Delta: delta, Adjacency: dp.ReplaceOne}}, nil
}

// Tasks that spend at the same time do not spend more than one after the other.
func TestTasksSpendAtTheSameTime(t *testing.T) {
	charge := someDecisions()[0].charge
	times := func(ev dp.Event, _ float64) float64 {
		var n int64
		for _, e := range ev.(dp.Sequence) {
			n += e.(dp.Repeat).Times
		}
		return float64(n)
	}
	p := client.Policy{MaxEps0: 3, MaxEps: 20.5, MaxTaskEps: 10, Delta: 1e-6, MaxTasks: 2, MinReports: 1}
	f := &Fleet{counter: &client.Counter{Accountant: oracle(times)}}
	m := &member{history: &client.History{}}
	var wg sync.WaitGroup
	var mu sync.Mutex
	reserved := 0
	for task := range 2 {
		r := &rounds{fleet: f, terms: &client.Terms{ID: [32]byte{byte(task)}, Charge: charge, Policy: p}}
		wg.Go(func() {
			for round := range int64(40) {
				if r.reserve(m, wire.Announcement{Round: round + 1}, [32]byte{byte(round)}) == nil {
					mu.Lock()
					reserved++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if reserved != 20 {
		t.Errorf("%d reports of two tasks, the budget is of 20", reserved)
	}
}

// Zeros before lines that were stored are damage, and no end of a ledger: a charge would be forgotten.
func TestZerosBeforeStoredLinesAreDamage(t *testing.T) {
	all := someDecisions()
	b := encodeBook(all)
	first := bytes.Clone(b)
	first[len(bookHeader)+10] = 0 // in the first line
	if _, _, _, err := decodeBook(first); !errors.Is(err, ErrDamaged) {
		t.Errorf("the first of %d lines has a zero: %v", len(all), err)
	}
	last := bytes.Clone(b) // the lines of one round, which share a sync
	at := len(encodeBook(all[:len(all)-2]))
	last[at+10] = 0
	if got, _, size, err := decodeBook(last); err != nil || len(got) != len(all)-2 || size != at {
		t.Errorf("the last two lines: %d lines, %d bytes, %v", len(got), size, err)
	}
}

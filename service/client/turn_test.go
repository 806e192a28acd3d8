package client

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// turnTask is a task whose clients are in one of 3 rounds.
func turnTask(t *testing.T) wire.Task {
	t.Helper()
	s := toeplitz.Strategy{Bits: 4, Weights: []int64{16, 9, 5}}
	p, err := vecsum.NewCorrelated(9, 2, 1, 40, s)
	if err != nil {
		t.Fatal(err)
	}
	sigma, _, err := p.Sigma(100)
	if err != nil {
		t.Fatal(err)
	}
	m, err := mechanism.NewCorrelatedSum(p, s, sigma, 9)
	if err != nil {
		t.Fatal(err)
	}
	return wire.Task{Population: wire.ID{1}, Trust: dp.Distributed, Participation: dp.CheckIn, MinReports: 2, Rounds: 100, Delta: 1e-5,
		Mechanism: m.Describe(), Every: 3}
}

// taking is a client on a directory: it decides about announcements as one over a network does.
type taking struct {
	t     *testing.T
	dir   string
	key   *Credential
	terms *client.Terms
	fleet *Fleet
	turn  *rounds
}

func newTaking(t *testing.T) *taking {
	t.Helper()
	key, err := NewCredential()
	if err != nil {
		t.Fatal(err)
	}
	terms, err := (client.Policy{MaxEps0: 8, MaxEps: 300, Delta: 1e-3, MinReports: 2, MaxTasks: 3}).Agree(t.Context(), turnTask(t))
	if err != nil {
		t.Fatal(err)
	}
	w := &taking{t: t, dir: t.TempDir(), key: key, terms: terms}
	if err := CreateLedger(w.dir); err != nil {
		t.Fatal(err)
	}
	w.start()
	return w
}

// start begins a process.
func (w *taking) start() {
	w.t.Helper()
	b, err := openBook(directory(w.dir))
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{credential: w.key, id: wire.ClientID(w.key.Public())}
	m.history = b.history(m.id)
	w.fleet = &Fleet{book: b, counter: &client.Counter{Accountant: new(account.Accountant)}, members: []*member{m}}
	w.turn = &rounds{fleet: w.fleet, terms: w.terms}
}

// stop ends it.
func (w *taking) stop() {
	w.t.Helper()
	if err := w.fleet.book.close(); err != nil {
		w.t.Fatal(err)
	}
}

// announced says whether the client reports in an announcement of a round. It may die before its charge is stored.
func (w *taking) announced(round int64, digest [32]byte, dies bool) bool {
	w.t.Helper()
	m, book := w.fleet.members[0], w.fleet.book
	ann := wire.Announcement{Task: w.terms.ID, Round: round, Participation: dp.CheckIn, Gamma: 1. / 3, Deadline: time.Now().Add(time.Minute).UnixMilli()}
	if w.turn.ready(m, ann, digest) != nil {
		return false
	}
	in, err := w.turn.takesPart(w.t.Context(), m, ann, digest, session{})
	if err != nil {
		w.t.Fatal(err)
	}
	if !in {
		return false
	}
	if refused := w.turn.reserve(m, ann, digest); refused != nil {
		w.t.Errorf("round %d is taken part in, and then refused: %v", round, refused)
		return false
	}
	if dies {
		return false
	}
	book.hold(digest)
	err = book.charge(m.id, ann, digest, w.terms.Charge, 1, w.terms.Tail, []byte("sealed"))
	if err := errors.Join(err, book.release(digest, true)); err != nil {
		w.t.Fatal(err)
	}
	return true
}

// Whatever rounds a coordinator announces, in whatever order, again and under other announcements, and wherever
// the client starts again: it reports in at most one of any 3 rounds.
func TestTurnsOverRestarts(t *testing.T) {
	reports, restarts := 0, 0
	for seed := range uint64(longtest.Pick(6, 60)) {
		src := rng.Replay(seed)
		w := newTaking(t)
		first := client.OwnFirstRound(w.key.key.Seed(), w.terms.ID, 3)
		var in []int64
		var now int64
		for range 60 {
			switch src.Uint64() % 8 {
			case 0: // out of order
				now = max(1, now-int64(src.Uint64()%6))
			case 1: // the same number again
				now = max(1, now)
			case 2: // some are skipped
				now += 2 + int64(src.Uint64()%4)
			default:
				now++
			}
			dies := src.Uint64()%8 == 0
			if w.announced(now, [32]byte{byte(src.Uint64()), byte(src.Uint64())}, dies) {
				in = append(in, now)
			}
			if dies || src.Uint64()%8 == 0 {
				w.stop()
				w.start()
				restarts++
			}
		}
		w.stop()
		for i, round := range in {
			if i == 0 && round < first || i > 0 && round < in[i-1]+3 {
				t.Fatalf("seed %d: reports in rounds %v, the first may be in %d", seed, in, first)
			}
		}
		reports += len(in)
	}
	if reports < 20 || restarts < 20 {
		t.Errorf("%d reports, %d restarts", reports, restarts)
	}
}

// A client that has reported, and whose round comes at its number, reports in each third round: the rule takes no
// more than it must.
func TestTurnsAreTaken(t *testing.T) {
	w := newTaking(t)
	var in, want []int64
	for round := int64(1); round <= 20; round++ {
		if w.announced(round, [32]byte{byte(round)}, false) {
			in = append(in, round)
		}
		if round%4 == 0 {
			w.stop()
			w.start()
		}
	}
	w.stop()
	for round := client.OwnFirstRound(w.key.key.Seed(), w.terms.ID, 3); round <= 20; round += 3 {
		want = append(want, round)
	}
	if !slices.Equal(in, want) {
		t.Errorf("reports in rounds %v, want %v", in, want)
	}
}

// A ledger that was written anew, shorter, says when the client has reported last.
func TestShortenedBookKeepsTurns(t *testing.T) {
	w := newTaking(t)
	first := client.OwnFirstRound(w.key.key.Seed(), w.terms.ID, 3)
	if !w.announced(first, [32]byte{1}, false) || !w.announced(first+3, [32]byte{2}, false) {
		t.Fatal("no reports")
	}
	w.stop()
	path := filepath.Join(w.dir, ledgerFile)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	all, _, _, err := decodeBook(content)
	if err != nil {
		t.Fatal(err)
	}
	id := wire.ClientID(w.key.Public())
	for round := range int64(shortenFrom) { // coins in another task
		all = append(all, decision{client: id, task: [32]byte{5}, round: round + 1, announcement: [32]byte{byte(round), byte(round >> 8)}})
	}
	if err := os.WriteFile(path, encodeBook(all), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		w.start()
		content, err := os.ReadFile(path)
		if err != nil || bytes.Count(content, []byte("\n")) > 4 {
			t.Fatalf("%d lines, %v", bytes.Count(content, []byte("\n")), err)
		}
		for round := int64(1); round < first+6; round++ {
			if w.announced(round, [32]byte{3, byte(round)}, true) {
				t.Errorf("a report in round %d after one in round %d", round, first+3)
			}
		}
		w.stop()
	}
	w.start()
	if !w.announced(first+6, [32]byte{4}, false) {
		t.Errorf("no report in round %d", first+6)
	}
	s := w.fleet.members[0].history.Of(w.terms.ID)
	if s.Round != first+6 || len(s.Charges) != 1 || s.Charges[0].Times != 3 || s.Tail != w.terms.Tail {
		t.Errorf("%+v", s)
	}
	w.stop()
}

// Two announcements that are decided at once, of one round or of rounds that are near, get one report.
func TestTurnsAtOnce(t *testing.T) {
	for i := range 20 {
		w := newTaking(t)
		first := client.OwnFirstRound(w.key.key.Seed(), w.terms.ID, 3)
		got := make(chan bool, 3)
		var decided sync.WaitGroup
		decided.Add(3)
		for j := range 3 {
			m := w.fleet.members[0]
			ann := wire.Announcement{Task: w.terms.ID, Round: first + int64(j*(i%2)), Participation: dp.CheckIn, Gamma: 1. / 3}
			digest := [32]byte{byte(j)}
			go func() {
				in, err := w.turn.takesPart(t.Context(), m, ann, digest, session{})
				decided.Done()
				decided.Wait() // all three are to take part
				got <- err == nil && in && w.turn.reserve(m, ann, digest) == nil
			}()
		}
		n := 0
		for range 3 {
			if <-got {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d reports", n)
		}
		w.stop()
	}
}

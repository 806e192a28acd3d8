package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// memory is a Store that loses power at one of its changes: before it, after it, or, of an addition, in
// the middle. From then on no change happens.
type memory struct {
	mu      sync.Mutex
	files   map[string][]byte
	locked  bool
	changes int
	failAt  int // number of the change; 0: never
	how     string
	bad     string // the beginning of the names of files that cannot be changed, at any time; empty: none
}

var errPower = errors.New("the power is gone")

// change makes one change of a file; half makes a part of it.
func (m *memory) change(name string, whole, half func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changes++
	switch {
	case m.bad != "" && strings.HasPrefix(name, m.bad):
		return errPower
	case m.failAt == 0 || m.changes < m.failAt:
		whole()
		return nil
	case m.changes == m.failAt && m.how == "after":
		whole()
	case m.changes == m.failAt && m.how == "half":
		half()
	}
	return errPower
}

func (m *memory) Lock() (func() error, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked {
		return nil, errors.New("locked")
	}
	m.locked = true
	return func() error { m.mu.Lock(); defer m.mu.Unlock(); m.locked = false; return nil }, nil
}

func (m *memory) List(directory string) (names []string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name := range m.files {
		if rest, ok := strings.CutPrefix(name, directory+"/"); ok {
			names = append(names, rest)
		}
	}
	return names, nil
}

func (m *memory) Read(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.files[name]; ok {
		return bytes.Clone(b), nil
	}
	return nil, fs.ErrNotExist
}

func (m *memory) ReadAt(name string, b []byte, from int64) error {
	all, err := m.Read(name)
	if err == nil {
		copy(b, all[from:])
	}
	return err
}

func (m *memory) Write(name string, content []byte) error {
	return m.change(name, func() { m.files[name] = bytes.Clone(content) }, func() {})
}

func (m *memory) Append(name string, more []byte) error {
	add := func(b []byte) func() { return func() { m.files[name] = append(m.files[name], b...) } }
	return m.change(name, add(more), add(more[:len(more)/2]))
}

func (m *memory) Cut(name string, size int64) error {
	return m.change(name, func() { m.files[name] = m.files[name][:size] }, func() {})
}

func (m *memory) Zero(name string, from, to int64) error {
	return m.change(name, func() { clear(m.files[name][from:to]) }, func() {})
}

func (m *memory) Remove(name string) error {
	return m.change(name, func() { delete(m.files, name) }, func() {})
}

func (m *memory) Path(name string) string { return "memory: " + name }

// The power goes at every change of a client's store in turn. Whatever was stored then, the client sends
// the bytes of one report only, it has charged them before, and the next process with what is stored
// goes on: the report arrives, once.
func TestPowerFailsAtEachChange(t *testing.T) {
	for _, how := range []string{"before", "after", "half"} {
		for failAt, fails := 1, true; fails; failAt++ {
			synctest.Test(t, func(t *testing.T) {
				task := shuffleTask()
				task.Receipts = true
				w := newWorld(t, 4, task)
				w.members = w.members[:1]
				theta := make([]float32, dim)
				w.publish(w.announcement(1, theta), theta, nil)
				p := &posts{answer: func(int) int { return 204 }}
				w.set(p.before)
				m := &memory{files: map[string][]byte{}}
				if err := client.CreateLedgerIn(m); err != nil {
					t.Fatal(err)
				}
				m.changes, m.failAt, m.how = 0, failAt, how
				name := fmt.Sprintf("%s change %d", how, failAt)
				process(t, name, w, m, p)
				fails = m.changes >= failAt
				posted := len(p.all())
				if m.failAt = 0; fails {
					process(t, name+", next process", w, m, p)
				}
				all := p.all()
				for _, b := range all {
					if !bytes.Equal(b, all[0]) {
						t.Errorf("%s: the client sends two reports", name)
					}
				}
				if len(all) == 0 {
					t.Errorf("%s: no report arrives", name)
				}
				t.Logf("%s: %d posts, then %d", name, posted, len(all)-posted)
			})
		}
	}
}

// One of a client's files cannot be written, and all others can, as where its owner or a limit differs. The client
// sends nothing that should have been written there before. With the file mended the report arrives, once.
func TestEachFileFails(t *testing.T) {
	for _, name := range []string{"ledger", "outbox", "heads", "receipts"} {
		synctest.Test(t, func(t *testing.T) {
			task := shuffleTask()
			task.Receipts = true
			w := newWorld(t, 4, task)
			w.members = w.members[:1]
			theta := make([]float32, dim)
			a := w.announcement(1, theta)
			a.Ledger = &wire.Head{Entries: 1, Digest: [32]byte{1}}
			w.publish(a, theta, nil)
			p := &posts{answer: func(int) int { return 204 }}
			w.set(p.before)
			m := &memory{files: map[string][]byte{}}
			if err := client.CreateLedgerIn(m); err != nil {
				t.Fatal(err)
			}
			m.bad = name
			process(t, name, w, m, p)
			if n := len(p.all()); n != 0 {
				t.Errorf("%s cannot be written, and %d reports are sent", name, n)
			}
			m.bad = ""
			process(t, name+", mended", w, m, p)
			if n := len(p.all()); n != 1 {
				t.Errorf("%s is mended, and %d reports were sent", name, n)
			}
		})
	}
}

// process runs a client on a store for half of a round.
func process(t *testing.T, name string, w *world, m *memory, p *posts) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	c := w.config()
	c.Directory, c.Store = "", m
	fleet, err := client.NewFleet(c, w.members)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	time.Sleep(roundTime / 2)
	cancel()
	if err := <-done; err != nil && !strings.Contains(err.Error(), errPower.Error()) && !errors.Is(err, context.Canceled) {
		t.Errorf("%s: %v", name, err)
	}
	cost, err := fleet.Spent(wire.ClientID(w.members[0].Credential.Public()))
	if posted := int64(len(p.all())); err != nil || cost.Messages > 1 || posted > 0 && cost.Messages != 1 {
		t.Errorf("%s: %d messages are charged, %d reports sent: %v", name, cost.Messages, posted, err)
	}
	if err := fleet.Close(); err != nil {
		t.Error(err)
	}
}

// carrier is a Transport that carries nothing.
type carrier struct{ client.Transport }

func (carrier) Close() {}

package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Files of a client's directory.
const (
	ledgerFile = "ledger"
	lockFile   = "lock"
	outboxDir  = "outbox"
)

// ErrNoLedger is wrapped where a directory has no ledger. A new one would forget what
// was spent, so only CreateLedger makes one.
var ErrNoLedger = errors.New("there is no client's ledger")

// CreateLedger makes a directory for clients that have never reported. It refuses a directory
// that has a ledger, also one that another process is making: the error wraps fs.ErrExist then.
func CreateLedger(dir string) (err error) {
	s := directory(dir)
	if err := s.make(); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	// No other process makes a ledger, or uses one, while this one has looked and not written yet.
	unlock, err := s.Lock()
	if err != nil {
		return fmt.Errorf("client: %w", err)
	}
	defer func() { err = errors.Join(err, unlock()) }()
	return CreateLedgerIn(s)
}

// CreateLedgerIn makes the ledger of clients that have never reported. It refuses a store that has
// one. The caller holds the store's lock, if others may use it.
func CreateLedgerIn(s Store) error {
	if _, err := s.Read(ledgerFile); err == nil {
		return fmt.Errorf("client: %s: a ledger exists already: %w", s.Path(""), fs.ErrExist)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("client: %v", err)
	}
	if err := s.Write(ledgerFile, []byte(bookHeader)); err != nil {
		return fmt.Errorf("client: %v", err)
	}
	return nil
}

// book is the durable ledger of a process's clients. It records a decision before the
// client acts upon it. One process at a time holds it.
type book struct {
	store  Store
	unlock func() error
	lines  *appender

	mu       sync.Mutex
	last     check
	clients  map[wire.ID]*client.History
	outboxes map[[32]byte]*outbox
	left     map[[32]byte]*outbox // left by an earlier process; does not change
	kept     map[[32]byte]kept    // receipts of rounds that an earlier process has not compared
	findings Findings
}

func openBook(store Store) (b *book, err error) {
	if _, err := store.Read(ledgerFile); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("client: %s: %w", store.Path(""), ErrNoLedger)
	}
	unlock, err := store.Lock()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unlock())
		}
	}()
	content, err := store.Read(ledgerFile)
	if err != nil {
		return nil, fmt.Errorf("client: %v", err)
	}
	all, last, size, err := decodeBook(content)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", store.Path(ledgerFile), err)
	}
	if size < len(content) {
		if err := store.Cut(ledgerFile, int64(size)); err != nil {
			return nil, fmt.Errorf("client: %v", err)
		}
	}
	b = &book{store: store, unlock: unlock, last: last, lines: &appender{store: store, name: ledgerFile},
		clients: map[wire.ID]*client.History{}, outboxes: map[[32]byte]*outbox{}, left: map[[32]byte]*outbox{}}
	charged := map[[32]byte]map[wire.ID][32]byte{}
	for _, d := range all {
		s := b.history(d.client).Decide(d.task, d.round, d.announcement)
		if d.times == 0 {
			continue
		}
		s.Charge(d.charge, d.times, d.tail)
		if d.kept {
			continue
		}
		if charged[d.announcement] == nil {
			charged[d.announcement] = map[wire.ID][32]byte{}
		}
		charged[d.announcement][d.client] = d.sealed
	}
	if err := b.openOutboxes(charged); err != nil {
		return nil, err
	}
	if err := b.openFindings(); err != nil {
		return nil, err
	}
	if err := b.openReceipts(charged); err != nil {
		return nil, err
	}
	return b, b.shorten(len(all))
}

// shortenFrom is the number of lines from which on a ledger is shortened.
const shortenFrom = 1 << 12

// shorten replaces a long ledger by a shorter one with the same meaning. It does nothing while
// a line is needed for a report that is still to be sent, or for a receipt to be looked for.
func (b *book) shorten(lines int) error {
	if lines < shortenFrom || len(b.left) > 0 || len(b.kept) > 0 {
		return nil
	}
	out, last, short := []byte(bookHeader), bookStart(), 0
	for _, id := range slices.SortedFunc(maps.Keys(b.clients), func(a, b wire.ID) int { return bytes.Compare(a[:], b[:]) }) {
		for _, d := range keep(id, b.clients[id]) {
			out, last = d.append(out, last)
			short++
		}
	}
	if short > lines/2 {
		return nil
	}
	if err := b.store.Write(ledgerFile, out); err != nil {
		return fmt.Errorf("client: %v", err)
	}
	b.last = last
	return nil
}

// openOutboxes reads the sealed reports that were charged and may not have been sent.
func (b *book) openOutboxes(charged map[[32]byte]map[wire.ID][32]byte) error {
	names, err := b.store.List(outboxDir)
	if err != nil {
		return fmt.Errorf("client: %v", err)
	}
	for _, name := range names {
		path := outboxDir + "/" + name
		var announcement [32]byte
		if raw, err := hex.DecodeString(name); err != nil || len(raw) != 32 {
			if strings.HasPrefix(name, ".") { // a temporary file of a write that was cut off
				if err := b.store.Remove(path); err != nil {
					return fmt.Errorf("client: %v", err)
				}
			}
			continue
		} else {
			copy(announcement[:], raw)
		}
		content, err := b.store.Read(path)
		if err != nil {
			return fmt.Errorf("client: %v", err)
		}
		o, size, err := decodeOutbox(content)
		if err != nil {
			return fmt.Errorf("%s: %w", b.store.Path(path), err)
		}
		if size < len(content) {
			if err := b.store.Cut(path, int64(size)); err != nil {
				return fmt.Errorf("client: %v", err)
			}
		}
		o.file.store, o.file.name, o.made = b.store, path, true
		// A report that was sealed and never charged is never sent.
		o.reports = slices.DeleteFunc(o.reports, func(r sealedReport) bool {
			want, ok := charged[announcement][r.client]
			return !ok || want != r.digest
		})
		o.holders = 1 // resend
		b.outboxes[announcement], b.left[announcement] = o, o
	}
	return nil
}

// close releases the lock. No decision may be under way.
func (b *book) close() error { return b.unlock() }

// history returns a client's history. The caller guards it with a lock of its own.
func (b *book) history(id wire.ID) *client.History {
	h := b.clients[id]
	if h == nil {
		h = &client.History{}
		b.clients[id] = h
	}
	return h
}

// record appends a decision and returns once it is durable.
func (b *book) record(d decision) error {
	b.mu.Lock()
	line, next := d.append(nil, b.last)
	wait, err := b.lines.add(line)
	if err == nil {
		b.last = next
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	return wait()
}

// pass records that a coin said no.
func (b *book) pass(id wire.ID, task [32]byte, round int64, announcement [32]byte) error {
	return b.record(decision{client: id, task: task, round: round, announcement: announcement})
}

// charge stores a sealed report, and then its charge, so many times. Only when it has returned nil may
// these bytes be sent, and no others.
func (b *book) charge(id wire.ID, ann wire.Announcement, announcement [32]byte, r dp.Round, times int64, tail float64, sealed []byte) error {
	o, err := b.outbox(announcement, time.UnixMilli(ann.Deadline))
	if err != nil {
		return err
	}
	rec := newSealed(id, sealed)
	wait, err := o.file.add(rec.append(nil))
	if err == nil {
		err = wait()
	}
	if err != nil {
		return err
	}
	return b.record(decision{client: id, task: ann.Task, round: ann.Round, announcement: announcement,
		times: times, sealed: rec.digest, tail: tail, charge: r})
}

// hold keeps a round's outbox open until release was called as often as hold.
func (b *book) hold(announcement [32]byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.outboxes[announcement]
	if o == nil {
		o = &outbox{file: appender{store: b.store, name: outboxDir + "/" + hex.EncodeToString(announcement[:])}}
		b.outboxes[announcement] = o
	}
	o.holders++
}

// outbox returns the outbox of a round that is held, and makes its file if need be.
func (b *book) outbox(announcement [32]byte, deadline time.Time) (*outbox, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.outboxes[announcement]
	if o == nil || o.made {
		return o, nil
	}
	o.deadline = deadline
	if err := b.store.Write(o.file.name, o.header()); err != nil {
		return nil, fmt.Errorf("client: %w: %v", errStore, err)
	}
	o.made = true
	return o, nil
}

// release ends one holder's use of a round's outbox; over says that the holder needs the
// sealed reports no more. When all holders have released it and none needs them, they
// are removed.
func (b *book) release(announcement [32]byte, over bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.outboxes[announcement]
	o.holders--
	o.needed = o.needed || !over
	if o.holders > 0 {
		return nil
	}
	delete(b.outboxes, announcement)
	if o.needed || !o.made {
		return nil
	}
	if err := b.store.Remove(o.file.name); err != nil {
		return fmt.Errorf("client: %v", err)
	}
	return nil
}

// errStore is wrapped when the files cannot be written. The process then sends nothing
// more: what the files hold is known only after they have been read again.
var errStore = errors.New("cannot write")

// appender appends records to a file, many with one sync. After an error it takes no more
// records, because the end of the file is then unknown.
type appender struct {
	store Store
	name  string

	mu      sync.Mutex
	batch   *batch
	writing bool
	failed  error
}

// batch is records that are synced together.
type batch struct {
	data []byte
	done chan struct{}
	err  error
}

// add appends a record, in the order of the calls. The record is durable once wait has
// returned nil.
func (a *appender) add(record []byte) (wait func() error, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.failed != nil {
		return nil, a.failed
	}
	if a.batch == nil {
		a.batch = &batch{done: make(chan struct{})}
	}
	mine := a.batch
	mine.data = append(mine.data, record...)
	return func() error {
		a.mu.Lock()
		if !a.writing {
			a.writing = true
			for a.batch != nil {
				a.write()
			}
			a.writing = false
		}
		a.mu.Unlock()
		<-mine.done
		return mine.err
	}, nil
}

// write appends and syncs the current batch. a.mu is held on entry and on return.
func (a *appender) write() {
	b := a.batch
	a.batch = nil
	if a.failed == nil {
		a.mu.Unlock()
		err := a.store.Append(a.name, b.data)
		a.mu.Lock()
		if err != nil {
			a.failed = fmt.Errorf("client: %w: %v", errStore, err)
		}
	}
	b.err = a.failed
	close(b.done)
}

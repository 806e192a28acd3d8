package client

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Replay gives clients' coins and noise sources that can be played again. It
// exists in tests only.
func (f *Fleet) Replay(coin, noise func(id wire.ID, round int64) rng.Source) {
	f.coin, f.noise = coin, noise
}

// BeforeSend runs between the charge of a report and its first sending.
func (f *Fleet) BeforeSend(g func()) { f.beforeSend = g }

// Planned is told when a gradient is asked for, when the report is made, from when on it may
// leave, and when it leaves.
func (f *Fleet) Planned(g func(begun, by, from, at time.Time)) { f.planned = g }

// DirectEvery is how long clients take it from a cache that there is nothing new. Whatever round it does
// not tell of then, it has held back.
func (f *Fleet) DirectEvery(d time.Duration) { f.cache.every, f.cache.held = d, 0 }

// Remembered is how many tasks clients look at in some time, after which they forget those that are listed no more.
func (f *Fleet) Remembered(most int, d time.Duration) { f.most, f.remembered = most, d }

// Coin is flipped for a large list of receipts.
func (f *Fleet) Coin(coin func() bool) { f.witness.coin = coin }

// Took has all members have taken part in a task.
func (f *Fleet) Took(task [32]byte) {
	for _, m := range f.members {
		m.history.Decide(task, 1, [32]byte{})
	}
}

// Held is for how many tasks some member has data.
func (f *Fleet) Held() int {
	held := map[[32]byte]bool{}
	for _, m := range f.members {
		m.mu.Lock()
		for id := range m.gradients {
			held[id] = true
		}
		m.mu.Unlock()
	}
	return len(held)
}

// MostAccepted is the most of them.
const MostAccepted = mostAccepted

// ReadList reads a list of receipts, and returns how many of the own ones are in it.
func (f *Fleet) ReadList(from io.Reader, ann wire.Announcement, c wire.RoundClosed, own map[wire.ID]bool) (int, error) {
	s, err := f.readList(from, ann, c, own)
	if err != nil {
		return 0, err
	}
	return len(s.own), nil
}

// DirectoryStore is the store of a directory.
func DirectoryStore(dir string) Store { return directory(dir) }

// OpenedBook is what a process finds in a client's directory, by the digests of sealed reports.
type OpenedBook struct {
	Charged, Left map[[32]byte]bool
	Head          int64 // entries of the furthest head
}

// OpenBook opens a client's directory as a process does that starts.
func OpenBook(dir string) (o OpenedBook, err error) {
	s := directory(dir)
	b, err := openBook(s)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	h, err := openHeads(s)
	if err != nil {
		return o, err
	}
	for _, t := range h.last {
		o.Head = max(o.Head, t.Entries)
	}
	raw, err := s.Read(ledgerFile)
	if err != nil {
		return o, err
	}
	all, _, _, err := decodeBook(raw)
	if err != nil {
		return o, err
	}
	o.Charged, o.Left = map[[32]byte]bool{}, map[[32]byte]bool{}
	for _, d := range all {
		if d.times > 0 {
			o.Charged[d.sealed] = true
			if b.clients[d.client].Of(d.task).Round < d.round {
				return o, fmt.Errorf("round %d is not decided", d.round)
			}
		}
	}
	for _, box := range b.left {
		for _, r := range box.reports {
			o.Left[r.digest] = true
		}
	}
	return o, nil
}

// TokenFiles checks that a directory's files of tokens can be read.
func TokenFiles(dir string) error {
	names, err := directory(dir).List(tokensDir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		b, err := directory(dir).Read(tokensDir + "/" + name)
		if rest := len(b) - len(tokensHeader) - 1; err != nil || name[0] != '.' && rest != 32 && (rest <= 0 || rest%wire.TokenBytes != 0) {
			return fmt.Errorf("%s has %d bytes, %v", name, len(b), err)
		}
	}
	return nil
}

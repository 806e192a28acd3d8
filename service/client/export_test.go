package client

import (
	"io"
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

package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
)

// The history is the list of what may happen once in a round, in the append-only ledger of the
// aggregator's store: that the key of its proofs is fixed, and that it is summed. Each entry holds
// the digest of the one before. A mark outside the store says how long the list is, so a store that
// was restored from an old copy is refused: it may have forgotten which set of reports a round was
// summed over, the noise that was added, or the key, and reports that are prepared under two keys
// show more of their vectors than they should.

// historyFormat is the version of the entries; others are refused.
const historyFormat = 1

// once is an entry of the history: of a key, or of a sum. Of a round's entries the one of the key is
// the first.
type once struct {
	Format       int  `json:"format"`
	After        hash `json:"after"` // SHA-256 of the entry before
	Announcement hash `json:"announcement"`
	Summed       hash `json:"summed"`         // digest of the exclusion; zero in an entry of a key
	Noise        hash `json:"noise,omitzero"` // digest of the noise that was added, if any was
	Key          hash `json:"key,omitzero"`   // SHA-256 of the sealed key of the proofs; zero in an entry of a sum
	// Row, if not 0, says that this entry is not of an announcement but of a round of a task whose noise is
	// correlated: Announcement is rowOf them, and Summed the one announcement by which the round is summed.
	Row int64 `json:"row,omitempty"`
}

// follows says whether e may come after what is known of its round.
func (e once) follows(known once) bool {
	if e.Key != (hash{}) {
		return e.Summed == (hash{}) && e.Noise == (hash{}) && known == (once{})
	}
	return e.Summed != (hash{}) && known.Summed == (hash{})
}

// history is what is known of each round: both entries of a round in one.
type history struct {
	mark.List[hash, once]
}

func newHistory(s mark.Log, m mark.Keeper) *history {
	return &history{mark.List[hash, once]{Name: "aggregator: list of rounds", Log: s, Mark: m, Apply: applyOnce}}
}

// applyOnce adds an entry that was read.
func applyOnce(rounds map[hash]once, head [32]byte, data []byte) error {
	var e once
	if err := document.Decode(data, historyFormat, &e); err != nil {
		return err
	}
	known := rounds[e.Announcement]
	if e.After != head || !e.follows(known) {
		return errors.New("it does not follow from those before")
	}
	if e.Key == (hash{}) {
		e.Key = known.Key
	}
	rounds[e.Announcement] = e
	return nil
}

// add notes that a round is summed, once. When it returns nil, entry and mark are durable.
func (h *history) add(ctx context.Context, announcement [32]byte, r record) error {
	return h.note(ctx, once{Announcement: announcement, Summed: r.Summed, Noise: r.Noise})
}

// fix notes the sealed key of a round's proofs, once, as add does. No report may be prepared before.
func (h *history) fix(ctx context.Context, announcement [32]byte, key []byte) error {
	return h.note(ctx, once{Announcement: announcement, Key: sha256.Sum256(key)})
}

// rowOf names a round of a task.
func rowOf(task hash, round int64) hash {
	b := append([]byte("riffle/1 row of a task"), task[:]...)
	return sha256.Sum256(binary.LittleEndian.AppendUint64(b, uint64(round)))
}

// bind notes by which announcement a round of a task is summed, once: what is released of it is charged once.
// A client takes part in one announcement of a round at most, but earlier rounds' vectors would be
// released twice. When it returns nil, entry and mark are durable.
func (h *history) bind(ctx context.Context, task hash, round int64, announcement [32]byte) error {
	return h.Add(ctx, rowOf(task, round), func(known once, head [32]byte) ([]byte, error) {
		switch {
		case known.Summed == hash(announcement):
			return nil, nil
		case known.Summed == (hash{}):
			return json.Marshal(once{Format: historyFormat, After: head, Announcement: rowOf(task, round), Summed: announcement, Row: round})
		}
		return nil, no(wire.SecondReport, "round %d of the task was summed for another announcement", round)
	})
}

func (h *history) note(ctx context.Context, want once) error {
	want.Format = historyFormat
	return h.Add(ctx, want.Announcement, func(known once, head [32]byte) ([]byte, error) {
		if want.Key != (hash{}) && known.Key == want.Key || want.Summed != (hash{}) && known.Summed == want.Summed && known.Noise == want.Noise {
			return nil, nil
		}
		if !want.follows(known) {
			return nil, fmt.Errorf("aggregator: %w: round %s was prepared or summed otherwise", mark.Err, hex.EncodeToString(want.Announcement[:8]))
		}
		want.After = head
		return json.Marshal(want)
	})
}

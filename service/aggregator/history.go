package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// The history is the list of what may happen once in a round, in the append-only ledger of the
// aggregator's store: that the key of its proofs is fixed, and that it is summed. Each entry holds
// the digest of the one before. A mark outside the store says how long the list is, so a store that
// was restored from an old copy is refused: it may have forgotten which set of reports a round was
// summed over, the noise that was added, or the key, and reports that are prepared under two keys
// show more of their vectors than they should.

// markStore keeps the high-water mark of the history; it is a mark.File, except in tests.
type markStore interface {
	Load() (mark.Mark, error)
	Save(mark.Mark) error
}

// historyStore is what the history needs of a store.
type historyStore interface {
	// AppendEntry adds entry after+1. If there are not exactly after entries it adds nothing and
	// returns store.ErrConflict; after any other error data may or may not have been added.
	AppendEntry(ctx context.Context, after uint64, data []byte) (uint64, error)
	Entries(ctx context.Context) iter.Seq2[store.Message, error]
}

// historyFormat is the version of the entries; newer ones are refused.
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
}

// follows says whether e may come after what is known of its round.
func (e once) follows(known once) bool {
	if e.Key != (hash{}) {
		return e.Summed == (hash{}) && e.Noise == (hash{}) && known == (once{})
	}
	return e.Summed != (hash{}) && known.Summed == (hash{})
}

type history struct {
	store historyStore
	marks markStore // nil only in Check

	mu     sync.Mutex
	rounds map[hash]once // both entries of a round in one
	count  int64
	head   hash
	stale  bool // the store may hold entries that were not read
}

func newHistory(s historyStore, m markStore) *history {
	return &history{store: s, marks: m, rounds: map[hash]once{}, stale: true}
}

// reload reads the history and compares it with its mark. The mark is written after the entry,
// so the history may be ahead of it, never behind.
func (h *history) reload(ctx context.Context) error {
	var m mark.Mark
	if h.marks != nil {
		var err error
		if m, err = h.marks.Load(); err != nil {
			return fmt.Errorf("aggregator: %w", err)
		}
	}
	if h.count > m.Entries { // it must not be shorter than this process has seen it, either
		m.Entries, m.Digest = h.count, h.head
	}
	next := newHistory(h.store, h.marks)
	agrees := m.Entries == 0
	for e, err := range h.store.Entries(ctx) {
		if err != nil {
			return fmt.Errorf("aggregator: list of rounds: %w", err)
		}
		if err := next.apply(e.Data); err != nil {
			return err
		}
		if next.count == m.Entries {
			agrees = next.head == m.Digest
		}
	}
	if next.count < m.Entries {
		return fmt.Errorf("aggregator: %w: the store's list of rounds has %d entries, the mark is at %d: the store is an old copy", mark.Err, next.count, m.Entries)
	}
	if !agrees {
		return fmt.Errorf("aggregator: %w: entry %d of the list of rounds differs from the mark's", mark.Err, m.Entries)
	}
	h.rounds, h.count, h.head, h.stale = next.rounds, next.count, next.head, false
	return nil
}

// apply adds an entry that was read.
func (h *history) apply(data []byte) error {
	var e once
	if err := document.Decode(data, historyFormat, &e); err != nil {
		return fmt.Errorf("aggregator: entry %d of the list of rounds: %v", h.count+1, err)
	}
	known := h.rounds[e.Announcement]
	if e.After != h.head || !e.follows(known) {
		return fmt.Errorf("aggregator: entry %d of the list of rounds does not follow from those before", h.count+1)
	}
	if e.Key == (hash{}) {
		e.Key = known.Key
	}
	h.rounds[e.Announcement] = e
	h.count, h.head = h.count+1, sha256.Sum256(data)
	return nil
}

// open reads the history at start, and brings a mark up to date that a crash has left behind.
func (h *history) open(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reload(ctx); err != nil {
		return err
	}
	return h.mark()
}

// add notes that a round is summed, once. When it returns nil, entry and mark are durable.
func (h *history) add(ctx context.Context, announcement [32]byte, r record) error {
	return h.note(ctx, once{Announcement: announcement, Summed: r.Summed, Noise: r.Noise})
}

// fix notes the sealed key of a round's proofs, once, as add does. No report may be prepared before.
func (h *history) fix(ctx context.Context, announcement [32]byte, key []byte) error {
	return h.note(ctx, once{Announcement: announcement, Key: sha256.Sum256(key)})
}

func (h *history) note(ctx context.Context, want once) error {
	want.Format = historyFormat
	h.mu.Lock()
	defer h.mu.Unlock()
	for tries := 0; ; tries++ {
		if h.stale {
			if err := h.reload(ctx); err != nil {
				return err
			}
		}
		known := h.rounds[want.Announcement]
		if want.Key != (hash{}) && known.Key == want.Key || want.Summed != (hash{}) && known.Summed == want.Summed && known.Noise == want.Noise {
			return h.mark()
		}
		if !want.follows(known) {
			return fmt.Errorf("aggregator: %w: round %s was prepared or summed otherwise", mark.Err, hex.EncodeToString(want.Announcement[:8]))
		}
		want.After = h.head
		data, err := json.Marshal(want)
		if err != nil {
			return err
		}
		h.stale = true // until the entry is known to be there
		if _, err = h.store.AppendEntry(ctx, uint64(h.count), data); errors.Is(err, store.ErrConflict) && tries < 100 {
			continue
		}
		if err != nil {
			return err
		}
		if err := h.apply(data); err != nil {
			return err
		}
		h.stale = false
		return h.mark()
	}
}

// mark brings the mark up to date.
func (h *history) mark() error {
	old, err := h.marks.Load()
	if err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	if old.Entries >= h.count {
		return nil
	}
	if err := h.marks.Save(mark.Mark{Entries: h.count, Digest: h.head}); err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	return nil
}

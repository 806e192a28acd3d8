package registrar

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// The grants are the list of all tokens that were asked for, in the append-only ledger of the
// registrar's store. Each entry holds the digest of the one before. A mark outside the store says
// how long the list is: a store that was restored from an old copy is refused, because it may have
// forgotten grants, and a client could get other tokens for the same rounds.

// markStore keeps the high-water mark of the grants; it is a mark.File, except in tests.
type markStore interface {
	Load() (mark.Mark, error)
	Save(mark.Mark) error
}

const grantFormat = 1

// grant is an entry of the list: what a client asked to be signed.
type grant struct {
	Format  int           `json:"format"`
	After   document.Hash `json:"after"` // SHA-256 of the entry before
	Client  []byte        `json:"client"`
	Epoch   []byte        `json:"epoch"`
	First   int64         `json:"first"`
	Blinded document.Hash `json:"blinded"` // SHA-256 of the blinded messages
}

// granted names a grant: a client's tokens of an epoch from a place on.
type granted struct {
	client, epoch wire.ID
	first         int64
}

type grants struct {
	store storage
	marks markStore // nil in Check, if there is none

	mu    sync.Mutex
	all   map[granted]document.Hash
	count int64
	head  document.Hash
	stale bool // the store may hold entries that were not read
}

func newGrants(s storage, m markStore) *grants {
	return &grants{store: s, marks: m, all: map[granted]document.Hash{}, stale: true}
}

// apply adds an entry that was stored.
func (g *grants) apply(b []byte) error {
	var e grant
	if err := document.Decode(b, grantFormat, &e); err != nil {
		return fmt.Errorf("registrar: grant %d: %w", g.count+1, err)
	}
	if len(e.Client) != len(wire.ID{}) || len(e.Epoch) != len(wire.ID{}) {
		return fmt.Errorf("registrar: grant %d names no client", g.count+1)
	}
	name := granted{wire.ID(e.Client), wire.ID(e.Epoch), e.First}
	if _, twice := g.all[name]; twice || e.After != g.head {
		return fmt.Errorf("registrar: grant %d does not follow grant %d", g.count+1, g.count)
	}
	g.all[name] = e.Blinded
	g.count, g.head = g.count+1, sha256.Sum256(b)
	return nil
}

// reload reads the grants and compares them with their mark. The mark is written after the entry,
// so the grants may be ahead of it, never behind.
func (g *grants) reload(ctx context.Context) error {
	var m mark.Mark
	if g.marks != nil {
		var err error
		if m, err = g.marks.Load(); err != nil {
			return fmt.Errorf("registrar: %w", err)
		}
	}
	if g.count > m.Entries { // it must not be shorter than this process has seen it, either
		m.Entries, m.Digest = g.count, g.head
	}
	next := newGrants(g.store, g.marks)
	agrees := m.Entries == 0
	for e, err := range g.store.Entries(ctx) {
		if err != nil {
			return fmt.Errorf("registrar: grants: %w", err)
		}
		if err := next.apply(e.Data); err != nil {
			return err
		}
		if next.count == m.Entries {
			agrees = next.head == m.Digest
		}
	}
	if next.count < m.Entries {
		return fmt.Errorf("registrar: %w: the store has %d grants of tokens, the mark is at %d: the store is an old copy", mark.Err, next.count, m.Entries)
	}
	if !agrees {
		return fmt.Errorf("registrar: %w: grant %d differs from the mark's", mark.Err, m.Entries)
	}
	g.all, g.count, g.head, g.stale = next.all, next.count, next.head, false
	return nil
}

// errOther says that a client was granted tokens for other blinded messages.
var errOther = errors.New("registrar: the client has asked for other tokens of this epoch")

// find returns what a grant is known to be for; zero if it is not known.
func (g *grants) find(name granted) document.Hash {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.all[name]
}

// give makes a grant durable, once. It returns nil if the client was granted the same before, and
// errOther if it was granted something else.
func (g *grants) give(ctx context.Context, name granted, blinded document.Hash) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for range 100 {
		if g.stale {
			if err := g.reload(ctx); err != nil {
				return err
			}
		}
		if before, ok := g.all[name]; ok {
			if before != blinded {
				return errOther
			}
			return g.mark()
		}
		b, err := json.Marshal(grant{grantFormat, g.head, name.client[:], name.epoch[:], name.first, blinded})
		if err != nil {
			return fmt.Errorf("registrar: %v", err)
		}
		g.stale = true // until the written entry has been read
		switch _, err := g.store.AppendEntry(ctx, uint64(g.count), b); {
		case errors.Is(err, store.ErrConflict):
			continue // another process has granted something
		case err != nil:
			return err
		}
		if err := g.apply(b); err != nil {
			return err
		}
		g.stale = false
		return g.mark()
	}
	return errors.New("registrar: others are granting tokens")
}

// mark brings the mark up to date.
func (g *grants) mark() error {
	old, err := g.marks.Load()
	if err != nil {
		return fmt.Errorf("registrar: %w", err)
	}
	if old.Entries >= g.count {
		return nil
	}
	if err := g.marks.Save(mark.Mark{Entries: g.count, Digest: g.head}); err != nil {
		return fmt.Errorf("registrar: %w", err)
	}
	return nil
}

// total returns the number of grants.
func (g *grants) total() int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.count
}

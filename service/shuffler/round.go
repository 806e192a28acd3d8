package shuffler

import (
	"context"
	"crypto/cipher"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// round is what a frontend holds of a round in memory. Everything in it can be read again from
// the store, or may be lost.
type round struct {
	ann      wire.Announcement
	digest   [32]byte
	name     string
	deadline time.Time
	item     int // bytes of an item in the stream of reports
	bits     int // of the tag, that name an item's bucket in the stream of reports
	closed   atomic.Bool

	// The following fields are for an open round only:
	roster    *roster           // clients who may report, unless they are revoked; places in what follows are places in it
	block     *roster           // in Once: the epoch's clients, among whom the round's block was drawn
	enrolment []byte            // signed; nil without a registrar
	sizes     map[[8]byte]int64 // size of a sealed report
	order     cipher.Block
	drawn     pure.Drawn
	vault     *vault
	pack      *packer
	// seen holds, for each enrolled client, a part of the tag of the report that this
	// process stored, so that a repetition need not be stored; 0 if there is none.
	seen     []atomic.Uint64
	passes   passes
	accepted atomic.Int64 // clients whose report this process stored
	counts   tally
	sharing  sync.Mutex // held while counts are shared
	version  uint64     // version of the counts that were shared last; guarded by sharing
	// prior is the number of clients whose stored reports were missing from all frontends'
	// shared counts when this process first asked whether the round is complete. There are
	// such reports after a frontend was killed. Before that question prior is −1. Only the
	// goroutine that attends to the round uses it.
	prior int64
}

func itemSize(ann wire.Announcement) int { return int(pure.TagSize + ann.PartBytes() + ann.ShareBytes) }

var errUnknown = pure.Refuse(wire.UnknownRound, "")

// remembered returns a round in memory, or nil.
func (s *Service) remembered(digest [32]byte) *round {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds[digest]
}

// round returns a round announced to this shuffler, from memory or from the store.
func (s *Service) round(ctx context.Context, digest [32]byte) (*round, error) {
	if r := s.remembered(digest); r != nil {
		return r, nil
	}
	select { // one request at a time looks in the store
	case s.lookup <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.lookup }()
	return s.loadRound(ctx, digest)
}

// loadRound is round for a caller that holds lookup.
func (s *Service) loadRound(ctx context.Context, digest [32]byte) (*round, error) {
	if r := s.remembered(digest); r != nil {
		return r, nil
	}
	rec, err := s.loadRecord(ctx, encodeName(digest[:]))
	if errors.Is(err, store.ErrNotFound) {
		return nil, errUnknown
	}
	if err != nil {
		return nil, err
	}
	r, err := s.newRound(ctx, digest, rec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.rounds[digest] = r
	s.mu.Unlock()
	s.learnPasses(r) // a session that begins later adds its pass itself
	return r, nil
}

// markPause is the shortest time between two reads of the marks in the store.
const markPause = 100 * time.Millisecond

// marks are the rounds under way, as last read from the store.
type marks struct {
	at    time.Time // when they were read
	names map[string]bool
}

// roundForStranger returns the round that a stranger names. All invented names that come
// within markPause cost one read of the store together.
func (s *Service) roundForStranger(ctx context.Context, digest [32]byte) (*round, error) {
	if r := s.remembered(digest); r != nil {
		return r, nil
	}
	asked := time.Now()
	select {
	case s.lookup <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.lookup }()
	key := keyOpen(encodeName(digest[:]))
	if m := &s.marks; m.at.Before(asked) && !m.names[key] {
		if s.remembered(digest) == nil {
			if wait := markPause - time.Since(m.at); wait > 0 {
				timer := time.NewTimer(wait)
				defer timer.Stop()
				select {
				case <-timer.C:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
		}
		at := time.Now()
		keys, err := s.store.List(ctx, store.Values, keyOpen(""))
		if err != nil {
			return nil, err
		}
		m.at, m.names = at, make(map[string]bool, len(keys))
		for _, k := range keys {
			m.names[k] = true
		}
	}
	if !s.marks.names[key] {
		if r := s.remembered(digest); r != nil {
			return r, nil // the round is known, and has ended
		}
		return nil, errUnknown
	}
	return s.loadRound(ctx, digest)
}

func (s *Service) newRound(ctx context.Context, digest [32]byte, rec *record) (*round, error) {
	ann, err := s.announcement(rec.Announcement)
	if err != nil {
		return nil, fmt.Errorf("shuffler: a stored announcement: %v", err)
	}
	if wire.Digest(ann) != digest {
		return nil, errors.New("shuffler: a stored announcement is another round's")
	}
	r := &round{ann: ann, digest: digest, name: encodeName(digest[:]), deadline: time.UnixMilli(ann.Deadline), item: itemSize(ann), bits: rec.Bits, prior: -1}
	if rec.State != Open {
		r.closed.Store(true)
		return r, nil
	}
	if r.roster, err = s.rosterOf(ctx, rec.Roster); err != nil {
		return nil, err
	}
	r.enrolment = rec.Enrolment
	if r.vault, err = s.openVault(ctx, digest); err != nil {
		return nil, err
	}
	keys, err := s.links(ctx, r.name)
	if err != nil {
		return nil, err
	}
	r.order = pure.NewOrder(keys.order)
	if r.drawn, err = s.draw(ctx, r, keys); err != nil {
		return nil, err
	}
	r.sizes = map[[8]byte]int64{}
	for id, suite := range s.sizes {
		if r.sizes[id], err = envelope.ReportSize(suite, ann.PartBytes(), ann.ShareBytes); err != nil {
			return nil, err
		}
	}
	r.seen = make([]atomic.Uint64, len(r.roster.ids))
	r.pack = newPacker(s, r)
	return r, nil
}

// draw returns who may report. The draw is a function of the announcement, of keys in the store, and
// of the roster that the round counts on; in Once, of the roster at the begin of the epoch.
func (s *Service) draw(ctx context.Context, r *round, keys links) (pure.Drawn, error) {
	key, ann, among := keys.draw, r.ann, r.roster
	if ann.Participation == dp.Once {
		e, err := s.epoch(ctx, ann, r.roster.digest)
		if err != nil {
			return pure.Drawn{}, err
		}
		copy(key[:], e.Key)
		if e.Roster != r.roster.digest {
			if among, err = s.rosterOf(ctx, e.Roster); err != nil {
				return pure.Drawn{}, err
			}
			r.block, ann.Population = among, int64(len(among.ids))
		}
	}
	return pure.NewDrawn(ann, key, among.ids)
}

// has says whether a client of the round's roster is drawn. Who joined during an epoch waits for the
// next one: the same person may have been in an earlier block by another key.
func (r *round) has(id wire.ID) bool {
	if r.block != nil {
		if _, _, ok := r.block.find(id); !ok {
			return false
		}
	}
	return r.drawn.Has(id)
}

// forget frees the memory, and so the keys, of rounds that have ended, and drops rounds
// that nobody will send a report to any more.
func (s *Service) forget(now time.Time) {
	s.waiting.Range(func(name, until any) bool {
		if now.After(until.(time.Time)) {
			s.waiting.Delete(name) // the next look decides whether it is abandoned
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for d, r := range s.rounds {
		switch {
		case now.After(r.deadline.Add(time.Hour)):
			delete(s.rounds, d)
		case r.seen != nil && (r.closed.Load() || now.After(r.deadline.Add(patience))):
			r = &round{ann: r.ann, digest: r.digest, name: r.name, deadline: r.deadline, item: r.item}
			r.closed.Store(true)
			s.rounds[d] = r
		}
	}
	for key, r := range s.readers {
		if now.Sub(time.Unix(0, r.used.Load())) > time.Minute {
			delete(s.readers, key) // its chunks can be read from the store again
		}
	}
}

// live returns the rounds that this process takes reports for.
func (s *Service) live() []*round {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*round
	for _, r := range s.rounds {
		if r.seen != nil {
			out = append(out, r)
		}
	}
	return out
}

// end notes that a round takes no more reports; forget then frees its memory.
func (r *round) end() { r.closed.Store(true) }

// tally counts reports by reason.
type tally struct {
	mu sync.Mutex
	by map[wire.Reason]int64
	// version increases with every change.
	version uint64
}

func (t *tally) add(reason wire.Reason, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.by == nil {
		t.by = map[wire.Reason]int64{}
	}
	t.by[reason] += n
	t.version++
}

func (t *tally) snapshot() (map[wire.Reason]int64, uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[wire.Reason]int64, len(t.by))
	for k, v := range t.by {
		out[k] = v
	}
	return out, t.version
}

// frontendCounts is what a frontend tells other processes about its part of a round.
type frontendCounts struct {
	Accepted int64                 `json:"accepted"`
	Rejected map[wire.Reason]int64 `json:"rejected"`
}

// shareCounts stores this frontend's counts, for the process that closes the round. Only
// this process writes this key.
func (s *Service) shareCounts(ctx context.Context, r *round) error {
	r.sharing.Lock()
	defer r.sharing.Unlock()
	rejected, version := r.counts.snapshot()
	now := frontendCounts{r.accepted.Load(), rejected}
	version += uint64(now.Accepted) + 1
	if version == r.version {
		return nil
	}
	b, err := json.Marshal(now)
	if err != nil {
		return fmt.Errorf("shuffler: %v", err)
	}
	key := keyCounts(r.name) + s.name
	e, err := s.store.Get(ctx, key)
	if err == nil || errors.Is(err, store.ErrNotFound) {
		_, err = s.store.Put(ctx, key, b, e.Revision)
	}
	if err == nil {
		r.version = version
	}
	return err
}

// sharedCounts adds up the frontends' counts.
func (s *Service) sharedCounts(ctx context.Context, name string) (sum frontendCounts, frontends int, err error) {
	sum.Rejected = map[wire.Reason]int64{}
	keys, err := s.store.List(ctx, store.Values, keyCounts(name))
	if err != nil {
		return sum, 0, err
	}
	for _, k := range keys {
		e, err := s.store.Get(ctx, k)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return sum, 0, err
		}
		var one frontendCounts
		if err := json.Unmarshal(e.Value, &one); err != nil {
			return sum, 0, fmt.Errorf("shuffler: the counts of a frontend: %v", err)
		}
		frontends++
		sum.Accepted += one.Accepted
		for reason, n := range one.Rejected {
			sum.Rejected[reason] += n
		}
	}
	return sum, frontends, nil
}

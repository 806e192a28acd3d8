package shuffler

import (
	"context"
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

// round is a frontend's cache of a round: everything in it comes from the store or may be
// forgotten.
type round struct {
	ann      wire.Announcement
	digest   [32]byte
	name     string
	deadline time.Time
	item     int // bytes of an item in the stream of reports
	closed   atomic.Bool

	// The following fields are for an open round only:
	sizes  map[wire.KeyID]int64 // size of a sealed report
	tagger pure.Tagger
	drawn  pure.Drawn
	vault  *vault
	pack   *packer
	// seen holds, for each enrolled client, a part of the tag of its report that was stored
	// here, so that a repetition is not stored again. 0: none.
	seen     []atomic.Uint64
	passes   passes
	accepted atomic.Int64 // number of clients whose report was stored here
	counts   tally
	flushed  sync.Mutex // guards counts
	version  uint64     // version of the counts in the store
	// prior is the number of clients whose reports were stored but not shared by any frontend
	// when this process first asked whether the round is complete; it is above 0 after a
	// kill. Only the goroutine that attends to the round uses it; −1 until then.
	prior int64
}

func itemSize(ann wire.Announcement) int { return int(pure.TagSize + ann.ReportBytes + ann.ShareBytes) }

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
	select { // one request at a time looks it up
	case s.finding <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.finding }()
	return s.find(ctx, digest)
}

// find is round for a caller that holds finding.
func (s *Service) find(ctx context.Context, digest [32]byte) (*round, error) {
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
	s.learnPasses(r) // from here on new sessions add their own passes
	return r, nil
}

// markPause is the shortest time between two questions to the store which rounds are under
// way.
const markPause = 100 * time.Millisecond

// marks lists the rounds under way, by the store's last answer.
type marks struct {
	at    time.Time // time of the question
	names map[string]bool
}

// wanted returns a round named by a stranger. All invented names within markPause together
// cost one question to the store.
func (s *Service) wanted(ctx context.Context, digest [32]byte) (*round, error) {
	if r := s.remembered(digest); r != nil {
		return r, nil
	}
	asked := time.Now()
	select {
	case s.finding <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.finding }()
	key := keyOpen(encodeName(digest[:]))
	if m := &s.marked; m.at.Before(asked) && !m.names[key] {
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
		keys, err := s.store.Keys(ctx, keyOpen(""))
		if err != nil {
			return nil, err
		}
		m.at, m.names = at, make(map[string]bool, len(keys))
		for _, k := range keys {
			m.names[k] = true
		}
	}
	if !s.marked.names[key] {
		if r := s.remembered(digest); r != nil {
			return r, nil // it has ended in the meantime
		}
		return nil, errUnknown
	}
	return s.find(ctx, digest)
}

func (s *Service) newRound(ctx context.Context, digest [32]byte, rec *record) (*round, error) {
	ann, err := s.announcement(rec.Announcement)
	if err != nil {
		return nil, fmt.Errorf("shuffler: a stored announcement: %v", err)
	}
	if ann.Digest() != digest {
		return nil, errors.New("shuffler: a stored announcement is another round's")
	}
	r := &round{ann: ann, digest: digest, name: encodeName(digest[:]), deadline: time.UnixMilli(ann.Deadline), item: itemSize(ann), prior: -1}
	if rec.State != Open {
		r.closed.Store(true)
		return r, nil
	}
	if rec.Roster != s.roster.digest {
		return nil, errors.New("shuffler: the roster has changed since the round was opened")
	}
	if r.vault, err = s.openVault(ctx, digest); err != nil {
		return nil, err
	}
	keys, err := s.links(ctx, r.name)
	if err != nil {
		return nil, err
	}
	r.tagger = pure.NewTagger(keys.order)
	if r.drawn, err = s.draw(ctx, ann, keys); err != nil {
		return nil, err
	}
	r.sizes = map[wire.KeyID]int64{}
	for id, suite := range s.sizes {
		if r.sizes[id], err = envelope.ReportSize(suite, ann.ReportBytes, ann.ShareBytes); err != nil {
			return nil, err
		}
	}
	r.seen = make([]atomic.Uint64, len(s.roster.ids))
	r.pack = newPacker(s, r)
	return r, nil
}

// draw returns who may report. The draw is a function of keys in the store.
func (s *Service) draw(ctx context.Context, ann wire.Announcement, keys links) (pure.Drawn, error) {
	key := keys.draw
	if ann.Participation == dp.Once {
		e, err := s.epoch(ctx, ann)
		if err != nil {
			return pure.Drawn{}, err
		}
		copy(key[:], e.Key)
	}
	return pure.NewDrawn(ann, key, s.roster.ids)
}

// forget frees the memory of rounds that have ended, including their keys, and drops rounds
// that get no more reports.
func (s *Service) forget(now time.Time) {
	s.waiting.Range(func(name, until any) bool {
		if now.After(until.(time.Time)) {
			s.waiting.Delete(name) // batches still offered then are checked again
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
		if now.Unix()-r.used.Load() > 60 {
			delete(s.readers, key) // it is read again if needed
		}
	}
}

// live returns the open rounds for which this process has accepted reports.
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

// end records that a round accepts no more reports, and frees its memory.
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

// shared is a frontend's counts of its part of a round, for the other processes.
type shared struct {
	Accepted int64                 `json:"accepted"`
	Rejected map[wire.Reason]int64 `json:"rejected"`
}

// share stores a frontend's counts for the process that closes the round. Only this process
// writes this key.
func (s *Service) share(ctx context.Context, r *round) error {
	r.flushed.Lock()
	defer r.flushed.Unlock()
	rejected, version := r.counts.snapshot()
	now := shared{r.accepted.Load(), rejected}
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

// gathered adds up the frontends' shared counts.
func (s *Service) gathered(ctx context.Context, name string) (sum shared, frontends int, err error) {
	sum.Rejected = map[wire.Reason]int64{}
	keys, err := s.store.Keys(ctx, keyCounts(name))
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
		var one shared
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

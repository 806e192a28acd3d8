package shuffler

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// If the operator asks for it, the shuffler counts how many messages it has taken from each client,
// over all rounds of all tasks since it began to count. A round counts when it is cut, once,
// whatever becomes of it. A client that has charged itself for fewer has lost a part of its ledger.
// The count may be too low, never too high: what is not known is not counted.

const takenFormat = 1

// taken is the value that names the counts.
type taken struct {
	Format int    `json:"format"`
	Object string `json:"object"` // digest of the counts
	// Rounds are the rounds in the counts that may still be closing. One that is closed again after
	// a crash is not counted twice.
	Rounds []string `json:"rounds"`
}

func (s *Service) keyTaken() string    { return fmt.Sprintf("taken.%x", s.config.Population) }
func takenObject(digest string) string { return "taken/" + digest }
func takenDigest(counts takenList) string {
	d := sha256.Sum256(counts)
	return hex.EncodeToString(d[:])
}

// takenList holds an id (16 bytes) and a count (8 bytes, little endian) for each client, in the
// order of ids.
type takenList []byte

const takenSize = len(wire.ID{}) + 8

// at returns the place of a client's entry, and whether it is there.
func (l takenList) at(id wire.ID) (int, bool) {
	n := len(l) / takenSize
	return sort.Find(n, func(i int) int { return bytes.Compare(id[:], l[i*takenSize:][:len(id)]) })
}

func (l takenList) of(id wire.ID) int64 {
	i, ok := l.at(id)
	if !ok {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(l[i*takenSize+len(id):]))
}

// with returns the list with n more for each of the ids, which ascend.
func (l takenList) with(ids []wire.ID, n int64) takenList {
	out := make(takenList, 0, len(l)+takenSize*len(ids))
	add := func(id, count []byte, more int64) {
		out = append(out, id...)
		out = binary.LittleEndian.AppendUint64(out, binary.LittleEndian.Uint64(count)+uint64(more))
	}
	for len(l) > 0 || len(ids) > 0 {
		c := 1 // of the list's first id and of the ids' first
		if len(ids) == 0 {
			c = -1
		} else if len(l) > 0 {
			c = bytes.Compare(l[:len(wire.ID{})], ids[0][:])
		}
		switch {
		case c < 0:
			add(l[:len(wire.ID{})], l[len(wire.ID{}):], 0)
			l = l[takenSize:]
		case c == 0:
			add(ids[0][:], l[len(wire.ID{}):], n)
			l, ids = l[takenSize:], ids[1:]
		default:
			add(ids[0][:], make([]byte, 8), n)
			ids = ids[1:]
		}
	}
	return out
}

// loadTaken returns the counts, the value that names them, and its revision.
func (s *Service) loadTaken(ctx context.Context) (l takenList, have taken, revision uint64, err error) {
	e, err := s.store.Get(ctx, s.keyTaken())
	if errors.Is(err, store.ErrNotFound) {
		return nil, taken{}, 0, nil
	}
	if err != nil {
		return nil, have, 0, err
	}
	if err := document.Decode(e.Value, takenFormat, &have); err != nil {
		return nil, have, 0, fmt.Errorf("shuffler: %s: %w", s.keyTaken(), err)
	}
	if l, err = s.store.GetObject(ctx, takenObject(have.Object)); err != nil {
		return nil, have, e.Revision, err
	}
	if takenDigest(l) != have.Object || len(l)%takenSize != 0 {
		return nil, have, 0, errors.New("shuffler: the counts of messages are not what their name says")
	}
	return l, have, e.Revision, nil
}

// countTaken counts the reports of a round before the cut, while the key that leads from a report
// to its client is still there.
func (s *Service) countTaken(ctx context.Context, name string, ann wire.Announcement, rec *record) error {
	if !s.config.CountReports || *rec.Cut == 0 {
		return nil
	}
	keys, err := s.links(ctx, name)
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, errUnavailable) {
		return nil // they were destroyed, so this round was counted
	}
	if err != nil {
		return err
	}
	ids, err := s.senders(ctx, ann, keys, rec)
	if errors.Is(err, errRosterGone) {
		return nil
	}
	if err != nil {
		return err
	}
	missing := ""
	for range 100 {
		l, have, revision, err := s.loadTaken(ctx)
		if lost(err) && have.Object != missing {
			missing = have.Object
			continue // another process may have replaced the counts meanwhile
		}
		if lost(err) {
			s.config.Log.Warn("the counts of the clients' messages are lost: they begin anew")
			l, err = nil, nil
		}
		if err != nil {
			return err
		}
		if slices.Contains(have.Rounds, name) {
			return nil
		}
		next := taken{Format: takenFormat, Rounds: []string{name}}
		for _, other := range have.Rounds {
			rec, err := s.loadRecord(ctx, other)
			if gone(err) != nil {
				return err
			}
			if err == nil && rec.State == Closing {
				next.Rounds = append(next.Rounds, other)
			}
		}
		more := l.with(ids, ann.PerClient())
		next.Object = takenDigest(more)
		if err := s.store.PutObject(ctx, takenObject(next.Object), more); err != nil {
			return err
		}
		b, err := json.Marshal(next)
		if err != nil {
			return fmt.Errorf("shuffler: %v", err)
		}
		_, err = s.store.Put(ctx, s.keyTaken(), b, revision)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		s.counts.forget()
		if err == nil {
			if have.Object != "" && have.Object != next.Object {
				_ = s.store.Delete(ctx, store.Objects, takenObject(have.Object))
			}
			s.dropCounts(ctx, next.Object)
		}
		return err
	}
	return errUnavailable
}

// dropCounts deletes older counts that a crash or a failed deletion has left: between two lists it shows
// who reported. Another process may be about to name a list, so one is deleted only if two rounds in
// turn have found it unnamed: if it was written before the first of them, it is never named.
func (s *Service) dropCounts(ctx context.Context, named string) {
	names, err := s.store.List(ctx, store.Objects, takenObject(""))
	if err != nil {
		return // the next round looks again
	}
	s.counts.mu.Lock()
	defer s.counts.mu.Unlock()
	seen := s.counts.unnamed
	s.counts.unnamed = map[string]bool{}
	for _, name := range names {
		switch {
		case name == takenObject(named):
		case seen[name]:
			_ = s.store.Delete(ctx, store.Objects, name)
		default:
			s.counts.unnamed[name] = true
		}
	}
}

// senders returns the clients with a report before the cut, in the order of their ids.
func (s *Service) senders(ctx context.Context, ann wire.Announcement, keys links, rec *record) (ids []wire.ID, err error) {
	v, err := s.openVault(ctx, wire.Digest(ann))
	if err != nil {
		return nil, err
	}
	tags, size := map[[16]byte]struct{}{}, itemSize(ann)
	name := wire.Digest(ann)
	for items, err := range v.reported(ctx, s.store, encodeName(name[:]), "", *rec.Cut) {
		if err != nil {
			return nil, err
		}
		for ; len(items) >= size; items = items[size:] {
			tags[[16]byte(items)] = struct{}{}
		}
	}
	members, err := s.rosterOf(ctx, rec.Roster)
	if err != nil {
		return nil, err
	}
	order := pure.NewOrder(keys.order)
	var tag [pure.TagSize]byte
	for _, id := range members.ids {
		pure.Tag(order, tag[:0], id, wire.ID{})
		if _, reported := tags[[16]byte(tag[:])]; reported {
			ids = append(ids, id)
		}
	}
	return ids, nil
}

// takenPause is how old the counts may be that sessions are answered with.
const takenPause = time.Second

// takenCache is the counts as last read.
type takenCache struct {
	mu   sync.Mutex
	list takenList
	at   time.Time
	// unnamed are the lists that nothing named when a round was last counted.
	unnamed map[string]bool
}

// forget makes the next session be answered with the counts as stored then.
func (c *takenCache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Time{}
}

// takenOf returns how many messages the shuffler has taken from a client; nil if it does not count,
// or cannot tell.
func (s *Service) takenOf(ctx context.Context, id wire.ID, now time.Time) *int64 {
	if !s.config.CountReports {
		return nil
	}
	c := &s.counts
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.at) > takenPause {
		l, _, _, err := s.loadTaken(context.WithoutCancel(ctx))
		if err != nil {
			s.config.Log.Warn("the counts of the clients' messages cannot be read", "error", err)
			return nil
		}
		c.list, c.at = l, now
	}
	n := c.list.of(id)
	return &n
}

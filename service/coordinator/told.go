package coordinator

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// told is what clients may ask of a round that has ended.
type told struct {
	Announcement hash   `json:"announcement"` // digest
	Closed       []byte `json:"closed"`       // the shuffler's signed word on the round
	// Receipts is the SHA-256 of the signed list of receipts; zero: there is none. The numbers
	// are those of its head.
	Receipts hash  `json:"receipts,omitzero"`
	Whole    int64 `json:"whole,omitempty"`
	Half     int64 `json:"half,omitempty"`
	Unopened int64 `json:"unopened,omitempty"`
}

// lastTold returns the word on the last round, and the numbers of its receipts; nil if there is
// none.
func (r record) lastTold() (*wire.RoundClosed, *wire.Receipts) {
	if len(r.Told) == 0 {
		return nil, nil
	}
	t := r.Told[len(r.Told)-1]
	c, err := wire.Decode[wire.RoundClosed](t.Closed[min(len(t.Closed), ed25519.SignatureSize):])
	if err != nil {
		return nil, nil // it was checked before it was stored
	}
	if t.Receipts == (hash{}) {
		return &c, nil
	}
	return &c, &wire.Receipts{Announcement: t.Announcement, Whole: t.Whole, Half: t.Half, Unopened: t.Unopened}
}

// keepTold is the number of a task's last rounds of which clients may ask.
const keepTold = 16

// receiptsName names the list of receipts of a round.
func receiptsName(task [32]byte, d hash) string { return fmt.Sprintf("receipts/%x/%x", task, d[:]) }

// list is a round's list of receipts, as it is stored and published.
type list struct {
	head wire.Receipts
	body []byte // the signed head and the receipts
}

// listReceipts ends the collection of receipts, and makes the round's list of them. theirs are the
// receipts that the aggregator found in its shares, ascending; without an aggregator every
// message has one part. A receipt that is there twice counts twice.
func (r *runner) listReceipts(a *wire.Announcement, c *wire.RoundClosed, theirs []byte, shares bool) {
	if r.detached == nil {
		return
	}
	own := r.detached.Sorted()
	r.detached = nil
	whole, half := own, []byte(nil)
	if shares {
		whole, half = common(own, theirs)
	}
	const size = int64(len(wire.ID{}))
	l := &list{head: wire.Receipts{Announcement: c.Announcement, Closed: wire.Digest(*c), Whole: int64(len(whole)) / size, Half: int64(len(half)) / size}}
	l.head.Unopened = c.Reports*a.PerClient() - l.head.Len()
	all := append(whole, half...)
	l.head.List = sha256.Sum256(all)
	l.body = append(wire.Sign(r.s.config.Key, wire.LabelReceipts, wire.Encode(l.head)), all...)
	r.list = l
}

// common divides own into the receipts that are also in theirs, and the others. All ascend.
func common(own, theirs []byte) (both, alone []byte) {
	const size = len(wire.ID{})
	both = make([]byte, 0, len(own))
	for ; len(own) > 0; own = own[size:] {
		for len(theirs) > 0 && string(theirs[:size]) < string(own[:size]) {
			theirs = theirs[size:]
		}
		if len(theirs) > 0 && string(theirs[:size]) == string(own[:size]) {
			both, theirs = append(both, own[:size]...), theirs[size:]
		} else {
			alone = append(alone, own[:size]...)
		}
	}
	return both, alone
}

// theirReceipts asks the aggregator for the receipts in its shares of a prepared round.
func (r *runner) theirReceipts(ctx context.Context, c *wire.RoundClosed) ([]byte, error) {
	if r.detached == nil {
		return nil, nil
	}
	const size = int64(len(wire.ID{}))
	b, err := r.aggregator(ctx, http.MethodGet, fmt.Sprintf("/v1/rounds/%x/receipts", c.Announcement), nil, size*c.Reports)
	if err != nil {
		return nil, err
	}
	if err := wire.CheckReceipts(b); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	return b, nil
}

// tell adds the round that ends to what clients may ask for, and stores its list of receipts. It
// returns the digests of the lists that are kept no longer.
func (r *runner) tell(ctx context.Context, next *record, announcement hash) (dropped []hash, err error) {
	open := r.record.Open
	if open == nil || open.Closed == nil {
		return nil, nil
	}
	t := told{Announcement: announcement, Closed: open.Closed}
	if r.list != nil {
		t.Receipts, t.Whole, t.Half, t.Unopened = digestOf(r.list.body), r.list.head.Whole, r.list.head.Half, r.list.head.Unopened
		if err := r.s.config.Store.PutObject(ctx, receiptsName(r.id, t.Receipts), r.list.body); err != nil {
			return nil, err
		}
		r.s.lists.put(t.Receipts, r.list.body)
	}
	r.list = nil
	next.Told = append(append([]told(nil), next.Told...), t)
	for n := len(next.Told) - keepTold; n > 0; n-- {
		if old := next.Told[0].Receipts; old != (hash{}) {
			dropped = append(dropped, old)
		}
		next.Told = next.Told[1:]
	}
	return dropped, nil
}

// endedRound is a round of which clients may ask, and its task.
type endedRound struct {
	told
	r *runner
}

// showTold has the service answer for the task's last rounds.
func (r *runner) showTold() {
	s := r.s
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range r.shown {
		delete(s.told, a)
	}
	r.shown, r.knows = r.shown[:0], true
	for _, t := range r.record.Told {
		if s.told == nil {
			s.told = map[hash]endedRound{}
		}
		s.told[t.Announcement] = endedRound{t, r}
		r.shown = append(r.shown, t.Announcement)
	}
}

// askedFor looks up the round that a request names. If clients may not ask for it, it answers the
// request; that takes no more than a look in memory.
func (s *Service) askedFor(w http.ResponseWriter, q *http.Request) (endedRound, bool) {
	d, ok := digest(w, q.PathValue("announcement"))
	if !ok {
		return endedRound{}, false
	}
	s.mu.Lock()
	t, ok := s.told[d]
	known := true
	for i := 0; !ok && known && i < len(s.runners); i++ {
		known = s.runners[i].knows
	}
	s.mu.Unlock()
	switch {
	case !known:
		endpoint.Refuse(w, wire.Unavailable, "this coordinator does not lead all tasks now")
	case !ok:
		endpoint.Refuse(w, wire.UnknownRound, "no round that has ended lately")
	}
	return t, ok
}

func (s *Service) serveClosed(w http.ResponseWriter, q *http.Request) {
	if t, ok := s.askedFor(w, q); ok {
		endpoint.Lasting(w, q, digestOf(t.Closed), t.Closed)
	}
}

func (s *Service) serveReceipts(w http.ResponseWriter, q *http.Request) {
	t, ok := s.askedFor(w, q)
	if !ok {
		return
	}
	if t.Receipts == (hash{}) {
		endpoint.Refuse(w, wire.Closed, "the round has no list of receipts")
		return
	}
	b := s.lists.get(t.Receipts)
	if b == nil {
		var err error
		if b, err = s.oldList(q.Context(), t); err != nil {
			endpoint.Refuse(w, wire.Unavailable, "the list cannot be read now")
			return
		}
		defer s.oldLists.release(t.Receipts)
	}
	endpoint.Lasting(w, q, t.Receipts, b)
}

// oldList reads a list that is not in memory. All who read it share its memory; the caller must
// release it. One list is read at a time, and lookShare limits how often.
func (s *Service) oldList(ctx context.Context, t endedRound) ([]byte, error) {
	if b := s.oldLists.share(t.Receipts, nil); b != nil {
		return b, nil
	}
	if !s.listing.TryLock() {
		return nil, errLooking
	}
	defer s.listing.Unlock()
	if time.Now().Before(s.listAgain) || s.oldLists.full() {
		return nil, errLooking
	}
	began := time.Now()
	defer func() { s.listAgain = time.Now().Add((lookShare - 1) * time.Since(began)) }()
	b, err := s.config.Store.GetObject(ctx, receiptsName(t.r.id, t.Receipts))
	if err != nil {
		return nil, err
	}
	if digestOf(b) != t.Receipts {
		return nil, errors.New("coordinator: a list of receipts is not what its name says")
	}
	if len(b) <= cachedBytes/cached {
		s.lists.put(t.Receipts, b)
	}
	return s.oldLists.share(t.Receipts, b), nil
}

// dropLists deletes lists that clients may no longer ask for. A list that is not deleted only
// takes space.
func (r *runner) dropLists(ctx context.Context, dropped []hash) {
	for _, d := range dropped {
		_ = r.s.config.Store.Delete(ctx, store.Objects, receiptsName(r.id, d))
	}
}

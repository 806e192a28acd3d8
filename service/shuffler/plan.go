package shuffler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// A round is shuffled in tasks, which the processes on the store share. Each is done under a
// lease of its own, so that usually one process does it. If two do, because one stalled, both
// write under tokens of their own, and the record that is stored first counts. What a task makes is
// a function of the stream of reports, the cut and the plan, so it is the same whoever makes it.
//
// A bucket task collects the items of one bucket of the batch's order, and stores how many there are
// and the last of them. When this is known of all buckets before it, it cuts the chunks that end in
// its bucket. Deal tasks come first if the stream of reports is not dealt into these buckets: in a
// round of more reports than were expected, and for the parts of reports of several messages, which
// have an order of their own.

// plan says how a closing round is shuffled. It is stored once the cut is.
type plan struct {
	Bits int   `json:"bits"`           // the batch has 2^Bits buckets
	Deal bool  `json:"deal,omitempty"` // the buckets of the stream of reports are dealt into these first
	Most int64 `json:"most"`           // bounds the number of reports that the batch can have
}

// makePlan returns the plan of a round whose cut is stored.
func (s *Service) makePlan(ctx context.Context, name string, ann wire.Announcement, rec *record) (*plan, error) {
	stored, _, err := s.store.StreamSize(ctx, streamIn(name))
	if gone(err) != nil {
		return nil, err
	}
	size, m := int64(itemSize(ann)), ann.PerClient()
	p := &plan{Most: min(ann.Population, int64(stored)/size)} // at most one report per client; copies are dropped on the way
	if m > 1 {
		p.Bits, p.Deal = pure.BucketBits(m*p.Most, pure.TagSize+ann.ReportBytes, s.config.Bucket), true
		return p, nil
	}
	p.Bits = max(rec.Bits, pure.BucketBits(p.Most, size, s.config.Bucket))
	p.Deal = p.Bits > rec.Bits
	return p, nil
}

// job names a task of a round.
type job struct {
	deal bool
	at   int // bucket of the stream of reports, or of the batch
}

// jobs lists the tasks of a round whose reports are dealt by the given bits, in the order in which
// they are begun.
func (p *plan) jobs(dealt int) (all []job) {
	if p.Deal {
		for i := range 1 << dealt {
			all = append(all, job{true, i})
		}
	}
	for i := range 1 << p.Bits {
		all = append(all, job{false, i})
	}
	return all
}

func (j job) String() string {
	if j.deal {
		return "d" + strconv.Itoa(j.at)
	}
	return "b" + strconv.Itoa(j.at)
}

func keyWork(name string) string { return "work." + name + "." }

const workFormat = 1

// output says where a task has written: Run names the stream, and Token, the fencing token of the
// task's lease, is in the suffixes there, so that no two attempts mix.
type output struct {
	Run   string `json:"run"`
	Token string `json:"token"`
}

// work is what is stored of a task.
type work struct {
	Format int `json:"format"`
	output     // of a deal: the buckets; else the last items
	// Count is the number of items that stay: of a deal, reports of several messages.
	Count      int64 `json:"count"`
	Duplicates int64 `json:"duplicates,omitempty"`
	Second     int64 `json:"second,omitempty"`
	// End is the place of the message after a deal's last in its stream.
	End uint64 `json:"end,omitempty"`
	// Chunks says where the chunks are; nil before they are cut, and in a deal.
	Chunks *chunks `json:"chunks,omitempty"`
}

// chunks are those that one bucket's task has cut.
type chunks struct {
	output
	Parts  span `json:"parts"`
	Shares span `json:"shares"`
}

// span is a run of chunks.
type span struct {
	First int64 `json:"first"`
	Count int64 `json:"count"`
}

// loadWork returns what is stored of a task, and its revision; nil and 0 if there is nothing.
func (s *Service) loadWork(ctx context.Context, name string, j job) (*work, uint64, error) {
	key := keyWork(name) + j.String()
	e, err := s.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	w := &work{}
	if err := document.Decode(e.Value, workFormat, w); err != nil {
		return nil, 0, fmt.Errorf("shuffler: %s: %w", key, err)
	}
	return w, e.Revision, nil
}

// saveWork stores what a task has done, unless another process has stored it meanwhile. It returns
// what is stored then.
func (s *Service) saveWork(ctx context.Context, name string, j job, w *work, revision uint64) (*work, uint64, error) {
	w.Format = workFormat
	b, err := json.Marshal(w)
	if err != nil {
		return nil, 0, fmt.Errorf("shuffler: %v", err)
	}
	revision, err = s.store.Put(ctx, keyWork(name)+j.String(), b, revision)
	if errors.Is(err, store.ErrConflict) {
		w, revision, err = s.loadWork(ctx, name, j)
		if err == nil && w == nil {
			err = errUnavailable // the round has ended
		}
	}
	return w, revision, err
}

// done says whether nothing of the task is left to do.
func (w *work) done(j job) bool { return w != nil && (j.deal || w.Chunks != nil) }

// index says where the chunks of a batch are. It lies beside their digests.
type index struct {
	Format int       `json:"format"`
	Pieces []*chunks `json:"pieces"` // in the order of the batch
}

const indexFormat = 1

// of returns the chunks of one reader.
func (c *chunks) of(kind string) span {
	if kind == suffixShares {
		return c.Shares
	}
	return c.Parts
}

// runs returns the names of all streams that have chunks of the batch, sorted.
func (x index) runs() (all []string) {
	for _, c := range x.Pieces {
		all = append(all, c.Run)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

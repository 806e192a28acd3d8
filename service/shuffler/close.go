package shuffler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// complete says whether a round may close before its deadline. It may if it is public which
// clients were asked, and all of them have reported. The stream of reports is read only if the
// frontends' counts, which are cheap to read, say that all may have reported.
func (s *Service) complete(ctx context.Context, name string) (bool, error) {
	digest, err := decodeName(name)
	if err != nil {
		return false, err
	}
	r, err := s.round(ctx, digest)
	if err != nil {
		return false, err
	}
	if r.seen == nil {
		return true, nil // the round is closing already
	}
	switch r.ann.Participation {
	case dp.CheckIn:
		return false, nil // nobody knows which clients will come
	case dp.Sampled:
		// A coordinator may keep the announcement from some clients, or give it to them
		// late: an early close would tell it that they are not drawn.
		return false, nil
	}
	if r.accepted.Load() >= r.drawn.Size {
		return true, nil // this process has counted each client once
	}
	sum, _, err := s.sharedCounts(ctx, name)
	if err != nil {
		return false, err
	}
	if r.prior < 0 {
		// A process that was killed has not shared its last counts.
		n, err := s.reported(ctx, r)
		if err != nil {
			return false, err
		}
		r.prior = max(0, n-sum.Accepted)
	}
	if max(sum.Accepted, r.accepted.Load())+r.prior < r.drawn.Size {
		return false, nil
	}
	// Two frontends may both have counted the same client.
	n, err := s.reported(ctx, r)
	return err == nil && n >= r.drawn.Size, err
}

// reported counts the clients that have a report in the stream.
func (s *Service) reported(ctx context.Context, r *round) (int64, error) {
	distinct := map[[16]byte]struct{}{}
	for items, err := range r.vault.blobs(ctx, s.store, streamIn(r.name), "in", "") {
		if err != nil {
			return 0, err
		}
		for ; len(items) >= r.item; items = items[r.item:] {
			distinct[[16]byte(items)] = struct{}{}
		}
	}
	return int64(len(distinct)), nil
}

// close ends a round. The process that holds the lease of the round's task cuts the stream of
// reports, shares the shuffling with others, and offers the batch or makes the round void. A process
// that finds the lease taken does tasks of the shuffling until the round is closed. The batch is a
// function of the stream, the cut and the round's keys.
func (s *Service) close(ctx context.Context, name string, ann wire.Announcement) error {
	var h *worker
	pause := 5 * time.Millisecond
	for {
		err := s.tryHolding(ctx, leaseClose(ann.Task), func(ctx context.Context, run string) error {
			return s.closeHeld(ctx, name, ann, run)
		})
		if !errors.Is(err, store.ErrHeld) {
			return err
		}
		rec, err := s.loadRecord(ctx, name)
		if err != nil {
			return err
		}
		switch rec.State {
		case Open, Closing:
		case Closed:
			return s.tidyAndWait(ctx, name, ann, rec)
		default:
			return s.finish(ctx, name)
		}
		did := false
		if rec.Plan != nil {
			s.leave(wire.Digest(ann))
			if h == nil {
				if h, err = s.newWorker(ctx, name, ann, rec, ""); err != nil {
					return err
				}
			}
			if _, did, err = h.pass(ctx); err != nil {
				return err
			}
		}
		if did {
			pause = 5 * time.Millisecond
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		pause = min(2*pause, s.config.Poll, 200*time.Millisecond)
	}
}

// leave forgets what this process holds of a round that is over for clients.
func (s *Service) leave(digest [32]byte) {
	if r := s.remembered(digest); r != nil {
		r.end()
	}
	s.forget(time.Now())
}

func (s *Service) closeHeld(ctx context.Context, name string, ann wire.Announcement, run string) error {
	rec, err := s.loadRecord(ctx, name)
	if err != nil {
		return err
	}
	if rec.State == Open {
		rec.State = Closing
		if err := s.saveRecord(ctx, name, rec); err != nil {
			return err
		}
	}
	if rec.State != Closing {
		return nil // another process has closed it
	}
	digest := wire.Digest(ann)
	if mine := s.remembered(digest); mine != nil {
		mine.end()
		if mine.seen != nil {
			if err := s.shareCounts(ctx, mine); err != nil {
				return err
			}
		}
	}
	if rec.Cut == nil {
		place, err := s.cut(ctx, name, digest)
		if err != nil {
			return err
		}
		rec.Cut = &place
		if err := s.saveRecord(ctx, name, rec); err != nil {
			return err
		}
	}
	if err := s.countTaken(ctx, name, ann, rec); err != nil {
		return err
	}
	if err := gone(s.store.Delete(ctx, store.Secrets, linksName(name))); err != nil {
		return err
	}
	s.leave(digest)
	if rec.Plan == nil {
		if rec.Plan, err = s.makePlan(ctx, name, ann, rec); err != nil {
			return err
		}
		if err := s.saveRecord(ctx, name, rec); err != nil {
			return err
		}
	}
	began := time.Now()
	b, err := s.shuffle(ctx, name, ann, rec, run)
	if err != nil {
		return err
	}
	word := wire.RoundClosed{Announcement: digest, Round: ann.Round, Reports: b.reports, Digest: b.digest, Shares: b.shares, Chunks: b.chunks}
	few, err := s.tooFewStay(ctx, rec, ann)
	if err != nil {
		return err
	}
	if word.Reports < ann.MinReports || few {
		word = wire.RoundClosed{Announcement: digest, Round: ann.Round, Void: true}
	}
	if word.Rejected, err = s.rejected(ctx, name, b.dropped); err != nil {
		return err
	}
	rec.Closed = wire.Sign(s.config.Operator, wire.LabelClosed, wire.Encode(word))
	rec.State, rec.Run, rec.Runs = Closed, run, b.runs
	if word.Void {
		rec.State, rec.Run, rec.Runs = Void, "", nil
	}
	if err := s.saveRecord(ctx, name, rec); err != nil {
		return err
	}
	s.config.Log.Info("round closed", "task", hex.EncodeToString(ann.Task[:8]), "round", ann.Round, "void", word.Void,
		"reports", word.Reports, "seconds", time.Since(began).Seconds())
	if word.Void {
		s.metrics.void.Add(1)
		return s.finish(ctx, name)
	}
	s.metrics.closed.Add(1)
	// The streams that the tasks have read are no longer needed.
	return s.tidyAndWait(ctx, name, ann, rec)
}

// cut writes the barrier into the stream of reports, unless it is there, and returns its place; 0
// if the stream is gone.
//
// No report behind it is acknowledged: a frontend acknowledges one after beforeCut has looked for
// the barrier in a state of the stream that holds the report. All that was acknowledged counts,
// because every process that closes the round, whatever became of others, finds the one
// barrier and stores its place.
func (s *Service) cut(ctx context.Context, name string, digest [32]byte) (uint64, error) {
	v, err := s.openVault(ctx, digest)
	if err != nil {
		return 0, err
	}
	var place uint64
	for _, sealed := range v.cut("in", suffixCut, nil) { // one message: for readers it has no items
		place, err = s.store.AppendOnce(ctx, streamIn(name), suffixCut, sealed)
	}
	return place, gone(err)
}

// tooFewStay says whether so many clients of the round's roster were revoked until now that fewer are
// left than the round counts on: its charge would be too small for the others. Nobody is told of
// the round before its end is stored, so a later look, after a crash, only finds fewer.
func (s *Service) tooFewStay(ctx context.Context, rec *record, ann wire.Announcement) (bool, error) {
	counted := pure.CountsOn(ann)
	if s.config.Registrar == nil || counted == 0 {
		return false, nil
	}
	stay, err := s.stillEnrolled(ctx, rec.Roster)
	if err == nil && stay < counted {
		s.config.Log.Warn("a round is void: clients were revoked while it was open", "round", ann.Round, "stay", stay, "counted", counted)
	}
	return stay < counted, err
}

// rejected adds up the reports that frontends refused and the permutation dropped.
func (s *Service) rejected(ctx context.Context, name string, dropped pure.Dropped) ([]wire.Rejection, error) {
	sum, frontends, err := s.sharedCounts(ctx, name)
	if err != nil {
		return nil, err
	}
	if frontends > 1 {
		// Other frontends notice within this time that the round has ended.
		select {
		case <-time.After(2 * s.config.Poll):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if sum, _, err = s.sharedCounts(ctx, name); err != nil {
			return nil, err
		}
	}
	sum.Rejected[wire.Duplicate] += dropped.Duplicates
	sum.Rejected[wire.SecondReport] += dropped.Second
	var out []wire.Rejection
	for _, reason := range wire.Reasons() {
		if n := sum.Rejected[reason]; n > 0 {
			out = append(out, wire.Rejection{Reason: reason, Count: n})
		}
	}
	return out, nil
}

// batch is what all tasks of a round have made together.
type batch struct {
	reports, chunks int64
	digest, shares  [32]byte
	dropped         pure.Dropped
	runs            []string // the streams with its chunks, other than the one that has their digests
}

// Suffixes of the streams of a batch: chunks of parts and of shares, before a task's token and an
// index; the digests of both, also of a task's before its token; and the index of all.
const (
	suffixParts, suffixShares               = "p", "s"
	suffixPartsDigests, suffixSharesDigests = "dp", "ds"
	suffixIndex                             = "i"
)

// shuffle does the tasks of a round, as far as others do not, and puts their results together in the
// run's own stream.
func (s *Service) shuffle(ctx context.Context, name string, ann wire.Announcement, rec *record, run string) (b batch, err error) {
	if *rec.Cut == 0 {
		return b, nil
	}
	h, err := s.newWorker(ctx, name, ann, rec, run)
	if err != nil {
		return b, err
	}
	for pause := time.Millisecond; ; {
		all, did, err := h.pass(ctx)
		if err != nil {
			return b, err
		}
		if all {
			return h.join(ctx)
		}
		if did {
			pause = time.Millisecond
			continue
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return b, ctx.Err()
		}
		pause = min(2*pause, 50*time.Millisecond, s.config.Poll)
	}
}

// join puts the results of all tasks together: counts, and the index and the digests of all chunks.
func (h *worker) join(ctx context.Context) (b batch, err error) {
	x := index{Format: indexFormat}
	var items int64
	for _, j := range h.plan.jobs(h.dealt) {
		w := h.ended[j]
		if h.ann.PerClient() == 1 || j.deal {
			b.dropped.Duplicates += w.Duplicates
			b.dropped.Second += w.Second
		}
		if j.deal {
			b.reports += w.Count
			continue
		}
		x.Pieces = append(x.Pieces, w.Chunks)
		items += w.Count
	}
	switch m := h.ann.PerClient(); {
	case m == 1:
		b.reports = items
	case items != m*b.reports:
		return b, fmt.Errorf("shuffler: %d messages of %d reports of %d each", items, b.reports, m)
	}
	to, err := h.writer(ctx, streamOut(h.name, h.run), "out")
	if err != nil {
		return b, err
	}
	for _, r := range h.readers() {
		digest, n, err := h.joinDigests(ctx, to, r, x, items, b.reports)
		if err != nil {
			return b, err
		}
		if r.chunks == suffixShares {
			b.shares = digest
		} else {
			b.digest, b.chunks = digest, n
		}
	}
	text, err := json.Marshal(x)
	if err != nil {
		return b, fmt.Errorf("shuffler: %v", err)
	}
	if err := to.put(suffixIndex, text); err != nil {
		return b, err
	}
	b.runs = slices.DeleteFunc(x.runs(), func(run string) bool { return run == h.run })
	return b, to.to.Flush(ctx)
}

// joinDigests writes the digests of one reader's chunks as one blob, and returns the batch's digest
// and the number of chunks. It fails unless the tasks' chunks are all those of so many items.
func (h *worker) joinDigests(ctx context.Context, to *writer, r part, x index, items, reports int64) (d [32]byte, n int64, err error) {
	var flat []byte
	for _, c := range x.Pieces {
		own, err := h.v.single(ctx, h.s.store, streamOut(h.name, c.Run), r.digests+"."+c.Token)
		if err != nil {
			return d, 0, err
		}
		span := c.of(r.chunks)
		if span.First != n || int64(len(own)) != sha256.Size*span.Count {
			return d, 0, fmt.Errorf("shuffler: %d digests of %d chunks from %d, want them from %d", len(own)/sha256.Size, span.Count, span.First, n)
		}
		flat, n = append(flat, own...), n+span.Count
	}
	if per := pure.PerChunk(r.size()); n != (items+per-1)/per {
		return d, 0, fmt.Errorf("shuffler: %d chunks of %d items", n, items)
	}
	digests := make([][32]byte, n)
	for i := range digests {
		digests[i] = [32]byte(flat[sha256.Size*i:])
	}
	return wire.BatchDigest(wire.Digest(h.ann), reports, digests), n, to.put(r.digests, flat)
}

// newStream makes an empty stream to write to.
func (s *Service) newStream(ctx context.Context, stream string) (store.Appender, error) {
	if err := gone(s.store.Delete(ctx, store.Streams, stream)); err != nil {
		return nil, err
	}
	return s.store.CreateStream(ctx, stream)
}

// writer writes blobs to a stream.
type writer struct {
	ctx  context.Context
	v    *vault
	kind string
	to   store.Appender
}

func (w *writer) put(suffix string, blob []byte) error {
	for id, sealed := range w.v.cut(w.kind, suffix, blob) {
		if err := w.to.Append(w.ctx, id, suffix, sealed); err != nil {
			return err
		}
	}
	return nil
}

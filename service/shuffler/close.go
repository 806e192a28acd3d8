package shuffler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
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

// close ends a round. The process that holds the task's lease cuts the stream of reports,
// permutes the reports before the cut, and offers them or makes the round void. The batch
// is a function of the stream, the cut and the round's keys.
func (s *Service) close(ctx context.Context, name string, ann wire.Announcement) error {
	lease, token, err := s.store.Acquire(ctx, "close."+hex.EncodeToString(ann.Task[:]), s.name, s.config.Lease)
	if err != nil {
		return err
	}
	held, lost := context.WithCancel(ctx)
	defer lost()
	renewed := make(chan struct{})
	go func() {
		defer close(renewed)
		for {
			select {
			case <-held.Done():
				return
			case <-time.After(s.config.Lease / 3):
			}
			if err := lease.Renew(held); errors.Is(err, store.ErrLost) {
				lost()
			}
		}
	}()
	err = s.closeHeld(held, name, ann, strconv.FormatUint(token, 36))
	lost()
	<-renewed
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if e := lease.Release(release); e != nil && !errors.Is(e, store.ErrLost) {
		s.config.Log.Warn("a lease was not given back", "error", e)
	}
	return err
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
	s.mu.Lock()
	mine := s.rounds[digest]
	s.mu.Unlock()
	if mine != nil {
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
	s.forget(time.Now())
	select {
	case s.shuffling <- struct{}{}:
		defer func() { <-s.shuffling }()
	case <-ctx.Done():
		return ctx.Err()
	}
	began := time.Now()
	b, err := s.shuffle(ctx, name, ann, *rec.Cut, run)
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
	rec.State, rec.Run = Closed, run
	if word.Void {
		rec.State, rec.Run = Void, ""
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
	// The streams that pass 2 has read are no longer needed.
	return s.tidyAndWait(ctx, name, ann, run)
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

// batch is the result of pass 2.
type batch struct {
	reports, chunks int64
	digest, shares  [32]byte
	dropped         pure.Dropped
}

// Suffixes of the stream of a batch: chunks of parts and of shares, before an index; and
// the digests of both.
const (
	suffixParts, suffixShares               = "p", "s"
	suffixPartsDigests, suffixSharesDigests = "dp", "ds"
)

// shuffle makes the batch of the reports up to the cut, in the run's own streams.
func (s *Service) shuffle(ctx context.Context, name string, ann wire.Announcement, cut uint64, run string) (b batch, err error) {
	if cut == 0 {
		return b, nil
	}
	v, err := s.openVault(ctx, wire.Digest(ann))
	if err != nil {
		return b, err
	}
	stored, _, err := s.store.StreamSize(ctx, streamIn(name))
	if err != nil {
		return b, err
	}
	size := itemSize(ann)
	most := min(ann.Population, int64(stored)/int64(size)) // at most one report per client; copies are dropped on the way

	began := time.Now()
	in := v.reported(ctx, s.store, name, "", cut)
	items := sorting{s: s, v: v, kind: "bucket", stream: streamBuckets(name, run), size: size}
	if err := items.scatter(ctx, in, most); err != nil {
		return b, err
	}
	s.metrics.pass1.since(began)

	began = time.Now()
	out := &writer{ctx: ctx, v: v, kind: "out"}
	if out.to, err = s.newStream(ctx, streamOut(name, run)); err != nil {
		return b, err
	}
	parts := newCut(out, suffixParts, ann.ReportBytes)
	shares := parts
	if ann.ShareBytes > 0 {
		shares = newCut(out, suffixShares, ann.ShareBytes)
	}
	split := pure.TagSize + ann.ReportBytes
	if m := ann.PerClient(); m > 1 {
		err = s.shuffleParts(ctx, items, sorting{s: s, v: v, kind: "parts", stream: streamParts(name, run), size: int(split)}, m, most, &b, parts)
	} else {
		b.dropped, err = items.gather(func(item []byte) error {
			b.reports++
			if err := parts.Add(item[pure.TagSize:split]); err != nil || ann.ShareBytes == 0 {
				return err
			}
			return shares.Add(item[split:])
		})
	}
	if err != nil {
		return b, err
	}
	if b.digest, err = parts.end(wire.Digest(ann), b.reports, suffixPartsDigests); err != nil {
		return b, err
	}
	if ann.ShareBytes > 0 {
		if b.shares, err = shares.end(wire.Digest(ann), b.reports, suffixSharesDigests); err != nil {
			return b, err
		}
	}
	b.chunks = int64(len(parts.digests))
	err = out.to.Flush(ctx)
	s.metrics.pass2.since(began)
	return b, err
}

// shuffleParts orders the parts of reports of m messages, each by a key of its own. It keeps one
// report of each client, and passes the parts on as items of their own, which it sorts.
func (s *Service) shuffleParts(ctx context.Context, reports, items sorting, m, most int64, b *batch, out *cut) error {
	order := pure.NewParts(reports.v.order, m)
	stopped := errors.New("stopped")
	split := func(yield func([]byte, error) bool) {
		var err error
		b.reports = 0
		b.dropped, err = reports.gather(func(item []byte) error {
			b.reports++
			if !order.Split(item, func(part []byte) bool { return yield(part, nil) }) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(nil, err)
		}
	}
	if err := items.scatter(ctx, split, m*most); err != nil {
		return err
	}
	lost, err := items.gather(func(item []byte) error { return out.Add(item[pure.TagSize:]) })
	if err == nil && lost != (pure.Dropped{}) {
		err = errors.New("shuffler: parts of two clients have one tag")
	}
	return err
}

// sorting sorts items by their tags, in memory or by way of a stream of buckets.
type sorting struct {
	s      *Service
	v      *vault
	kind   string // of the stream's blobs
	stream string
	size   int // bytes of an item

	ctx  context.Context
	in   iter.Seq2[[]byte, error]
	bits int
}

// scatter takes the items, of which at most n will be kept. It is pass 1.
func (o *sorting) scatter(ctx context.Context, in iter.Seq2[[]byte, error], n int64) error {
	o.ctx, o.in, o.bits = ctx, in, pure.BucketBits(n, int64(o.size), o.s.config.Bucket)
	if o.bits == 0 {
		return nil
	}
	to, err := o.s.newStream(ctx, o.stream)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, v: o.v, kind: o.kind, to: to}
	err = pure.Scatter(in, o.size, o.bits, store.MaxBlock, func(bucket int, items []byte) error {
		return w.put(strconv.Itoa(bucket), items)
	})
	if err != nil {
		return err
	}
	return to.Flush(ctx)
}

// gather yields one item of each client in order. It is pass 2.
func (o *sorting) gather(yield func(item []byte) error) (dropped pure.Dropped, err error) {
	for i := range 1 << o.bits {
		bucket := o.in
		if o.bits > 0 {
			bucket = o.v.blobs(o.ctx, o.s.store, o.stream, o.kind, strconv.Itoa(i))
		}
		d, err := pure.Gather(bucket, o.size, o.s.config.Bucket, yield)
		if err != nil {
			return dropped, err
		}
		dropped.Duplicates += d.Duplicates
		dropped.Second += d.Second
	}
	return dropped, nil
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

// cut writes one reader's chunks and collects their digests.
type cut struct {
	pure.Cutter
	to      *writer
	digests [][32]byte
}

func newCut(to *writer, suffix string, size int64) *cut {
	c := &cut{to: to}
	c.Cutter = pure.Cutter{Size: size, Emit: func(chunk wire.Chunk) error {
		c.digests = append(c.digests, sha256.Sum256(chunk.Items))
		return to.put(fmt.Sprintf("%s.%d", suffix, chunk.Index), wire.Encode(chunk))
	}}
	return c
}

func (c *cut) end(announcement [32]byte, reports int64, suffix string) ([32]byte, error) {
	if err := c.Flush(); err != nil {
		return [32]byte{}, err
	}
	flat := make([]byte, 0, 32*len(c.digests))
	for _, d := range c.digests {
		flat = append(flat, d[:]...)
	}
	return wire.BatchDigest(announcement, reports, c.digests), c.to.put(suffix, flat)
}

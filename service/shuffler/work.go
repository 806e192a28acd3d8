package shuffler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"strings"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// worker is a process's part in shuffling one round. One goroutine uses it.
type worker struct {
	s     *Service
	name  string
	ann   wire.Announcement
	v     *vault
	plan  plan
	dealt int // bits by which the stream of reports is dealt
	cut   uint64
	run   string                    // names this worker's streams
	to    map[string]store.Appender // this worker's streams
	ended map[job]*work             // the tasks that are known to be done
}

// newWorker returns a worker whose streams are named by run, which no other has had; if it is "",
// the first token that the worker gets names them.
func (s *Service) newWorker(ctx context.Context, name string, ann wire.Announcement, rec *record, run string) (*worker, error) {
	v, err := s.openVault(ctx, wire.Digest(ann))
	if err != nil {
		return nil, err
	}
	return &worker{s: s, name: name, ann: ann, v: v, plan: *rec.Plan, dealt: rec.Bits, cut: *rec.Cut, run: run,
		to: map[string]store.Appender{}, ended: map[job]*work{}}, nil
}

// pass tries each task that is not done once. It says whether all are done, and whether it was at
// any of them.
func (h *worker) pass(ctx context.Context) (all, did bool, err error) {
	all = true
	waiting := false
	for _, j := range h.plan.jobs(h.dealt) {
		if h.ended[j] != nil {
			continue
		}
		if !j.deal && waiting {
			return false, did, nil // buckets need all deals
		}
		w, _, err := h.s.loadWork(ctx, h.name, j)
		if err == nil && !w.done(j) {
			w, err = h.try(ctx, j)
			did = did || w != nil
		}
		if err != nil {
			return false, did, err
		}
		switch {
		case w.done(j):
			h.ended[j] = w
		case w != nil:
			return false, true, nil // begin again with the buckets before it
		default:
			all, waiting = false, waiting || j.deal
		}
	}
	return all, did, nil
}

// try does a task if nobody else is at it. It returns what is stored of it; nil if it is left to
// another process.
func (h *worker) try(ctx context.Context, j job) (w *work, err error) {
	select { // a process holds one bucket in memory at a time
	case h.s.shuffling <- struct{}{}:
		defer func() { <-h.s.shuffling }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	err = h.s.tryHolding(ctx, h.lease(j), func(ctx context.Context, token string) error {
		if h.run == "" {
			h.run = token
		}
		if j.deal {
			w, err = h.deal(ctx, j, token)
		} else {
			w, err = h.bucket(ctx, j, token)
		}
		return err
	})
	if errors.Is(err, store.ErrHeld) {
		return nil, nil
	}
	return w, err
}

// lease is the name of a task's lease. It is the same for all rounds of the round's task, because
// a lease's record stays.
func (h *worker) lease(j job) string { return leaseClose(h.ann.Task) + "." + j.String() }

func leaseClose(task [32]byte) string { return "close." + hex.EncodeToString(task[:]) }

// tryHolding runs f under a lease if it is free, renews the lease meanwhile, and gives it back. It
// returns ErrHeld if another has the lease. f's context ends when the lease is lost.
func (s *Service) tryHolding(ctx context.Context, name string, f func(ctx context.Context, token string) error) error {
	lease, token, err := s.store.TryAcquire(ctx, name, s.name, s.config.Lease)
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
	err = f(held, strconv.FormatUint(token, 36))
	lost()
	<-renewed
	release, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if e := lease.Release(release); e != nil && !errors.Is(e, store.ErrLost) {
		s.config.Log.Warn("a lease was not given back", "error", e)
	}
	return err
}

// writer returns a writer to one of this worker's streams, which it makes if it is the first.
func (h *worker) writer(ctx context.Context, stream, kind string) (*writer, error) {
	to := h.to[stream]
	if to == nil {
		var err error
		if to, err = h.s.newStream(ctx, stream); err != nil {
			return nil, err
		}
		h.to[stream] = to
	}
	return &writer{ctx: ctx, v: h.v, kind: kind, to: to}, nil
}

// deal deals one bucket of the stream of reports into the batch's buckets. Of reports of several
// messages it keeps one of each client, and deals their parts.
func (h *worker) deal(ctx context.Context, j job, token string) (*work, error) {
	began := time.Now()
	defer func() { h.s.metrics.pass1.since(began) }()
	stream := streamBuckets(h.name, h.run)
	to, err := h.writer(ctx, stream, "deal")
	if err != nil {
		return nil, err
	}
	w := &work{output: output{h.run, token}}
	in, size, dealt := h.v.reported(ctx, h.s.store, h.name, bucketSuffix(j.at, h.dealt), h.cut), itemSize(h.ann), &w.Count
	var parts partition
	if m := h.ann.PerClient(); m > 1 {
		parts = partition{h: h, in: in, bucket: j.at, stream: streamBuckets(h.name, token) + "_", order: pure.NewParts(h.v.order, m)}
		in, size = parts.items(ctx), int(pure.TagSize+h.ann.ReportBytes)
	} else {
		in = counting(in, size, dealt)
	}
	err = pure.Scatter(in, size, h.plan.Bits, store.MaxBlock, func(bucket int, items []byte) error {
		return to.put(token+"."+strconv.Itoa(bucket), items)
	})
	if err != nil {
		return nil, err
	}
	if parts.h != nil {
		w.Count, w.Duplicates, w.Second = parts.reports, parts.dropped.Duplicates, parts.dropped.Second
		if err := gone(h.s.store.Delete(ctx, store.Streams, parts.stream)); err != nil {
			return nil, err
		}
	}
	if err := to.to.Flush(ctx); err != nil {
		return nil, err
	}
	for _, sealed := range h.v.cut("deal", token+"."+suffixCut, nil) {
		if w.End, err = h.s.store.AppendOnce(ctx, stream, token+"."+suffixCut, sealed); err != nil {
			return nil, err
		}
	}
	w, _, err = h.s.saveWork(ctx, h.name, j, w, 0)
	return w, err
}

// counting counts the items that it passes on.
func counting(in iter.Seq2[[]byte, error], size int, n *int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for items, err := range in {
			*n += int64(len(items) / size)
			if !yield(items, err) {
				return
			}
		}
	}
}

// source yields the items of one of the batch's buckets.
func (h *worker) source(ctx context.Context, bucket int) iter.Seq2[[]byte, error] {
	if !h.plan.Deal {
		return h.v.reported(ctx, h.s.store, h.name, bucketSuffix(bucket, h.dealt), h.cut)
	}
	first, last := 0, 1<<h.dealt-1
	if h.ann.PerClient() == 1 {
		first = bucket >> (h.plan.Bits - h.dealt) // all of its items were in one
		last = first
	}
	return func(yield func([]byte, error) bool) {
		for at := first; at <= last; at++ {
			d := h.ended[job{true, at}]
			messages := h.s.store.ReadTo(ctx, streamBuckets(h.name, d.Run), d.End, d.Token+"."+strconv.Itoa(bucket), d.Token+"."+suffixCut)
			for b, err := range h.v.decode("deal", messages) {
				if !yield(b.data, err) {
					return
				}
			}
		}
	}
}

// bucket does a bucket's task, or as much as is left of it. What it returns has no chunks if it
// gave up, because nobody is at a bucket before it.
func (h *worker) bucket(ctx context.Context, j job, token string) (*work, error) {
	began := time.Now()
	defer func() { h.s.metrics.pass2.since(began) }()
	w, revision, err := h.s.loadWork(ctx, h.name, j)
	if err != nil || w.done(j) {
		return w, err
	}
	size, several := itemSize(h.ann), h.ann.PerClient() > 1
	if several {
		size = int(pure.TagSize + h.ann.ReportBytes)
	}
	items, dropped, err := pure.Collect(h.source(ctx, j.at), size, h.s.config.Bucket)
	if err != nil {
		return nil, err
	}
	if several && dropped != (pure.Dropped{}) {
		return nil, errors.New("shuffler: parts of two clients have one tag")
	}
	to, err := h.writer(ctx, streamOut(h.name, h.run), "out")
	if err != nil {
		return nil, err
	}
	if w == nil {
		for _, r := range h.readers() {
			if err := to.put(r.last+"."+token, r.tail(items)); err != nil {
				return nil, err
			}
		}
		if err := to.to.Flush(ctx); err != nil {
			return nil, err
		}
		w = &work{output: output{h.run, token}, Count: int64(items.Len()), Duplicates: dropped.Duplicates, Second: dropped.Second}
		if w, revision, err = h.s.saveWork(ctx, h.name, j, w, 0); err != nil || w.done(j) {
			return w, err
		}
	}
	if w.Count != int64(items.Len()) {
		return nil, fmt.Errorf("shuffler: bucket %d has %d items, and %d were counted", j.at, items.Len(), w.Count)
	}
	before, err := h.before(ctx, j.at)
	if err != nil || before == nil {
		return w, err
	}
	w.Chunks = &chunks{output: output{h.run, token}}
	for _, r := range h.readers() {
		spanned, err := h.cutChunks(ctx, to, r, items, before, token)
		if err != nil {
			return nil, err
		}
		if r.chunks == suffixShares {
			w.Chunks.Shares = spanned
		} else {
			w.Chunks.Parts = spanned
		}
	}
	if err := to.to.Flush(ctx); err != nil {
		return nil, err
	}
	w, _, err = h.s.saveWork(ctx, h.name, j, w, revision)
	return w, err
}

// reader of a batch: what it gets of an item, and the suffixes of its chunks, of their digests and of
// a bucket's last items.
type part struct {
	chunks, digests, last string
	from, to              int
}

func (h *worker) readers() []part {
	split := pure.TagSize + int(h.ann.ReportBytes)
	all := []part{{suffixParts, suffixPartsDigests, "t", pure.TagSize, split}}
	if h.ann.ShareBytes > 0 {
		all = append(all, part{suffixShares, suffixSharesDigests, "ts", split, split + int(h.ann.ShareBytes)})
	}
	return all
}

func (r part) size() int64 { return int64(r.to - r.from) }

// tail returns the last items of a bucket, as many as a chunk that ends in a later one may have.
func (r part) tail(items pure.Bucket) (out []byte) {
	for i := max(0, items.Len()-int(pure.PerChunk(r.size()))+1); i < items.Len(); i++ {
		out = append(out, items.Item(i)[r.from:r.to]...)
	}
	return out
}

// cutChunks cuts one reader's chunks that end in a bucket. before has the buckets before it.
func (h *worker) cutChunks(ctx context.Context, to *writer, r part, items pure.Bucket, before []*work, token string) (span, error) {
	var at int64
	for _, w := range before {
		at += w.Count
	}
	var head []byte
	missing := at % pure.PerChunk(r.size()) * r.size()
	for i := len(before) - 1; int64(len(head)) < missing; i-- {
		if before[i].Count == 0 {
			continue
		}
		tail, err := h.v.single(ctx, h.s.store, streamOut(h.name, before[i].Run), r.last+"."+before[i].Token)
		if err != nil {
			return span{}, err
		}
		tail = tail[max(0, int64(len(tail))-(missing-int64(len(head)))):]
		head = slices.Concat(tail, head)
	}
	out := span{First: at / pure.PerChunk(r.size())}
	var digests []byte
	c := pure.Cutter{Size: r.size(), Emit: func(chunk wire.Chunk) error {
		digest := sha256.Sum256(chunk.Items)
		digests = append(digests, digest[:]...)
		out.Count++
		return to.put(fmt.Sprintf("%s.%s.%d", r.chunks, token, chunk.Index), wire.Encode(chunk))
	}}
	if err := c.Start(at, head); err != nil {
		return out, err
	}
	for i := range items.Len() {
		if err := c.Add(items.Item(i)[r.from:r.to]); err != nil {
			return out, err
		}
	}
	if len(before) == 1<<h.plan.Bits-1 {
		if err := c.Flush(); err != nil {
			return out, err
		}
	}
	return out, to.put(r.digests+"."+token, digests)
}

// before waits until all buckets before one are counted, and returns them. It returns nil if nobody
// is at one of them: then that one is to be done first, and this one, whose items take memory, again
// after it.
func (h *worker) before(ctx context.Context, bucket int) ([]*work, error) {
	all := make([]*work, bucket)
	pause := time.Millisecond
	for at := 0; at < bucket; {
		j := job{false, at}
		w, _, err := h.s.loadWork(ctx, h.name, j)
		if err != nil {
			return nil, err
		}
		if w != nil {
			all[at], at = w, at+1
			continue
		}
		free := errors.New("free")
		err = h.s.tryHolding(ctx, h.lease(j), func(context.Context, string) error { return free })
		if errors.Is(err, free) {
			if w, _, err = h.s.loadWork(ctx, h.name, j); err != nil || w == nil {
				return nil, err
			}
			continue // it was counted meanwhile
		}
		if !errors.Is(err, store.ErrHeld) {
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		pause = min(2*pause, 50*time.Millisecond, h.s.config.Poll)
	}
	return all, nil
}

// single returns the one blob that has this suffix.
func (v *vault) single(ctx context.Context, s storage, stream, suffix string) ([]byte, error) {
	for b, err := range v.blobs(ctx, s, stream, "out", suffix) {
		return b, err
	}
	return nil, fmt.Errorf("shuffler: nothing is found under %s of a batch: %w", strings.SplitN(suffix, ".", 2)[0], store.ErrUnavailable)
}

// partition takes the reports of several messages of one bucket of the stream of reports, keeps one
// of each client, and yields their parts.
type partition struct {
	h       *worker
	in      iter.Seq2[[]byte, error]
	bucket  int
	stream  string // where reports are sorted that do not fit the memory
	order   pure.Parts
	reports int64
	dropped pure.Dropped
}

func (p *partition) items(ctx context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		stopped := errors.New("stopped")
		p.reports, p.dropped = 0, pure.Dropped{}
		err := p.gather(ctx, func(item []byte) error {
			p.reports++
			if !p.order.Split(item, func(part []byte) bool { return yield(part, nil) }) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(nil, err)
		}
	}
}

// gather yields one report of each client in order, by way of the stream if they take more memory
// than a bucket may.
func (p *partition) gather(ctx context.Context, yield func(item []byte) error) (err error) {
	h, size := p.h, itemSize(p.h.ann)
	more := pure.BucketBits((h.plan.Most+1<<h.dealt-1)>>h.dealt, int64(size), h.s.config.Bucket)
	if more == 0 {
		p.dropped, err = pure.Gather(p.in, size, h.s.config.Bucket, yield)
		return err
	}
	to, err := h.s.newStream(ctx, p.stream)
	if err != nil {
		return err
	}
	w := &writer{ctx: ctx, v: h.v, kind: "bucket", to: to}
	bits := min(pure.MaxBits, h.dealt+more)
	err = pure.Scatter(p.in, size, bits, store.MaxBlock, func(bucket int, items []byte) error {
		return w.put(strconv.Itoa(bucket), items)
	})
	if err == nil {
		err = to.Flush(ctx)
	}
	if err != nil {
		return err
	}
	for i := range 1 << (bits - h.dealt) {
		suffix := strconv.Itoa(p.bucket<<(bits-h.dealt) + i)
		d, err := pure.Gather(h.v.blobs(ctx, h.s.store, p.stream, "bucket", suffix), size, h.s.config.Bucket, yield)
		if err != nil {
			return err
		}
		p.dropped.Duplicates += d.Duplicates
		p.dropped.Second += d.Second
	}
	return nil
}

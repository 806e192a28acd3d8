package shuffler

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// named returns the round named by a path.
func (s *Service) named(r *http.Request) (string, *record, error) {
	if !s.running.Load() {
		return "", nil, errNotRunning
	}
	b, err := hex.DecodeString(r.PathValue("announcement"))
	if err != nil || len(b) != 32 {
		return "", nil, pure.Refuse(wire.Malformed, "a round is named by 64 hexadecimal digits")
	}
	name := encodeName(b)
	rec, err := s.loadRecord(r.Context(), name)
	if errors.Is(err, store.ErrNotFound) {
		err = errUnknown
	}
	return name, rec, err
}

// longestWait is the longest time for which an answer is held back.
const longestWait = 60 * time.Second

func (s *Service) serveClosed(w http.ResponseWriter, r *http.Request) {
	var wait int64
	if text := r.URL.Query().Get("wait"); text != "" {
		var err error
		if wait, err = strconv.ParseInt(text, 10, 32); err != nil || wait < 0 {
			endpoint.Refuse(w, wire.Malformed, "wait is a number of seconds")
			return
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), min(longestWait, time.Duration(wait)*time.Second))
	defer cancel()
	name, rec, err := s.named(r)
	pause := min(s.config.Poll, 20*time.Millisecond)
	for err == nil && rec.Closed == nil {
		select {
		case <-time.After(pause):
		case <-s.stopped:
			cancel()
		case <-ctx.Done():
		}
		if ctx.Err() != nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		pause = min(2*pause, s.config.Poll)
		rec, err = s.loadRecord(r.Context(), name)
	}
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeBytes(w, rec.Closed)
}

func (s *Service) serveDigests(w http.ResponseWriter, r *http.Request) {
	suffix := suffixPartsDigests
	if endpoint.Peer(r) == Aggregator {
		suffix = suffixSharesDigests
	}
	s.serveBlob(w, r, suffix, -1)
}

func (s *Service) serveChunk(w http.ResponseWriter, r *http.Request) {
	index, err := strconv.ParseInt(r.PathValue("index"), 10, 64)
	if err != nil || index < 0 {
		endpoint.Refuse(w, wire.Malformed, "a chunk has a number")
		return
	}
	suffix := suffixParts
	if endpoint.Peer(r) == Aggregator {
		suffix = suffixShares
	}
	s.serveBlob(w, r, suffix, index)
}

func (s *Service) serveBlob(w http.ResponseWriter, r *http.Request, kind string, index int64) {
	name, rec, err := s.named(r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	switch rec.State {
	case Open, Closing:
		endpoint.Refuse(w, wire.Unavailable, "the round is not closed")
		return
	case Void, Released, Abandoned:
		endpoint.Refuse(w, wire.Closed, "the round is destroyed")
		return
	}
	if peer := endpoint.Peer(r); peer == Coordinator || peer == Worker {
		if err := s.knownCharged(r.Context(), name, rec); err != nil {
			s.refuse(w, err)
			return
		}
	}
	blob, err := s.blob(r.Context(), name, rec, kind, index)
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeBytes(w, blob)
}

// reader serves the chunks of a round to one peer, who asks for them nearly in order. Many
// are read from the store at a time.
type reader struct {
	mu    sync.Mutex
	where []stretch // nil: not known yet
	from  int64     // index of the first chunk that is held
	held  [][]byte
	at    int          // stretch of the last held chunk
	next  uint64       // place in its stream after the held chunks
	used  atomic.Int64 // time of the last use, in Unix nanoseconds
	last  int64        // index that was wanted last; Service.mu guards it
}

// Several may read a batch at a time, each in its own range: a coordinator's workers. Each has a reader of
// its own, if there are not too many.
const (
	mostReaders = 8  // of a batch
	near        = 32 // chunks from the last wanted one: a reader's caller asks for several at a time
)

// reader returns the reader of a batch that was nearest to a chunk, or one that begins there.
func (s *Service) reader(batch string, index int64) *reader {
	s.mu.Lock()
	defer s.mu.Unlock()
	var best, oldest *reader
	free := ""
	for k := range mostReaders {
		key := batch + "/" + strconv.Itoa(k)
		r := s.readers[key]
		switch {
		case r == nil:
			free = key
			continue
		case max(index-r.last, r.last-index) <= near && (best == nil || max(index-r.last, r.last-index) < max(index-best.last, best.last-index)):
			best = r
		}
		if oldest == nil || r.used.Load() < oldest.used.Load() {
			oldest = r
		}
	}
	if best == nil && free != "" {
		best = &reader{}
		s.readers[free] = best
	} else if best == nil {
		best = oldest
	}
	best.last = index
	best.used.Store(time.Now().UnixNano())
	return best
}

// stretch is a run of chunks that lie in one stream, in order.
type stretch struct {
	stream, filter string
	end            int64 // index after the last
}

// ahead is how many bytes of chunks a reader holds, unless one chunk is larger.
const ahead = 8 << 20

// chunk returns a chunk, from memory or from the streams.
func (r *reader) chunk(index int64, find func() ([]stretch, error), read func(s stretch, from uint64) iter.Seq2[blob, error]) (_ []byte, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := index - r.from; at >= 0 && at < int64(len(r.held)) {
		return r.held[at], nil
	}
	if r.where == nil {
		if r.where, err = find(); err != nil {
			return nil, err
		}
	}
	at, _ := slices.BinarySearchFunc(r.where, index+1, func(s stretch, end int64) int { return cmp.Compare(s.end, end) })
	if at == len(r.where) {
		return nil, pure.Refuse(wire.Malformed, "the batch has no such chunk")
	}
	// Parallel requests may be a little behind, so half of the chunks stay.
	var from uint64
	keep := 0
	if len(r.held) > 0 && index == r.from+int64(len(r.held)) {
		keep = len(r.held) / 2
		if at == r.at {
			from = r.next
		}
	}
	held, total := append([][]byte(nil), r.held[len(r.held)-keep:]...), 0
	first, next := index-int64(keep), from
	wanted := ahead / 2
	if from == 0 {
		// Elsewhere: the chunk is found by its name, and what comes after it may not be wanted.
		wanted = ahead / 16
		one := r.where[at]
		one.filter = strings.TrimSuffix(one.filter, "*") + strconv.FormatInt(index, 10)
		for b, err := range read(one, 0) {
			if err != nil {
				return nil, err
			}
			held, next, total = append(held, b.data), b.place+1, len(b.data)
			break
		}
		from = next
	}
	if from != 0 && total <= wanted && first+int64(len(held)) < r.where[at].end {
		for b, err := range read(r.where[at], from) {
			if err != nil {
				return nil, err
			}
			i, err := strconv.ParseInt(b.suffix[strings.LastIndexByte(b.suffix, '.')+1:], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("shuffler: a chunk under %q", b.suffix)
			}
			if i != first+int64(len(held)) {
				continue // it comes before the wanted one, or was stored twice
			}
			held, next, total = append(held, b.data), b.place+1, total+len(b.data)
			if total > wanted || i == r.where[at].end-1 {
				break
			}
		}
	}
	if len(held) == keep {
		return nil, pure.Refuse(wire.Malformed, "the batch has no such chunk")
	}
	r.from, r.held, r.at, r.next = first, held, at, next
	return held[keep], nil
}

// stretches says where the chunks of one reader of a batch are.
func (s *Service) stretches(ctx context.Context, v *vault, name string, rec *record, kind string) (all []stretch, err error) {
	text, err := v.single(ctx, s.store, streamOut(name, rec.Run), suffixIndex)
	if err != nil {
		return nil, err
	}
	var x index
	if err := document.Decode(text, indexFormat, &x); err != nil {
		return nil, fmt.Errorf("shuffler: the index of a batch: %w", err)
	}
	for _, c := range x.Pieces {
		if span := c.of(kind); span.Count > 0 {
			all = append(all, stretch{streamOut(name, c.Run), kind + "." + c.Token + ".*", span.First + span.Count})
		}
	}
	return all, nil
}

// blob returns one blob of a batch.
func (s *Service) blob(ctx context.Context, name string, rec *record, kind string, index int64) ([]byte, error) {
	digest, err := decodeName(name)
	if err != nil {
		return nil, err
	}
	v, err := s.openVault(ctx, digest)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errClosed // released in the meantime
	}
	if err != nil {
		return nil, err
	}
	stream := streamOut(name, rec.Run)
	if index < 0 {
		for b, err := range v.blobs(ctx, s.store, stream, "out", kind) {
			if errors.Is(err, store.ErrNotFound) {
				return nil, errClosed
			}
			return b, err
		}
		return nil, pure.Refuse(wire.Malformed, "the batch has no such part")
	}
	at := s.reader(stream+kind, index)
	b, err := at.chunk(index, func() ([]stretch, error) { return s.stretches(ctx, v, name, rec, kind) },
		func(w stretch, from uint64) iter.Seq2[blob, error] {
			return v.blobsFrom(ctx, s.store, w.stream, "out", w.filter, from)
		})
	if errors.Is(err, store.ErrNotFound) {
		return nil, errClosed
	}
	return b, err
}

// serveRelease ends a round for good, because its model is released or it was void.
func (s *Service) serveRelease(w http.ResponseWriter, r *http.Request) {
	if err := s.release(r); err != nil {
		s.refuse(w, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Service) release(r *http.Request) error {
	name, rec, err := s.named(r)
	if err != nil {
		return err
	}
	switch rec.State {
	case Open, Closing:
		return pure.Refuse(wire.Unavailable, "the round is not closed")
	case Closed:
		rec.State = Released
		err := s.saveRecord(r.Context(), name, rec)
		if errors.Is(err, store.ErrConflict) {
			return errUnavailable // another process changed it at the same time: try again
		}
		if err != nil {
			return err
		}
		s.metrics.released.Add(1)
	}
	s.mu.Lock()
	for key := range s.readers {
		if strings.HasPrefix(key, streamOut(name, "")) {
			delete(s.readers, key)
		}
	}
	s.mu.Unlock()
	return s.finish(r.Context(), name)
}

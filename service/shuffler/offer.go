package shuffler

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
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
	if index < 0 && endpoint.Peer(r) == Coordinator {
		if err := s.checkCharged(r.Context(), rec); err != nil {
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
	mu   sync.Mutex
	from int64 // index of the first chunk that is held
	held [][]byte
	next uint64       // place in the stream after the held chunks
	used atomic.Int64 // time of the last use, in Unix seconds
}

// ahead is how many bytes of chunks a reader holds, unless one chunk is larger.
const ahead = 8 << 20

// chunk returns a chunk, from memory or from the stream.
func (r *reader) chunk(index int64, read func(from uint64) iter.Seq2[blob, error]) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at := index - r.from; at >= 0 && at < int64(len(r.held)) {
		return r.held[at], nil
	}
	var from uint64
	if index == r.from+int64(len(r.held)) {
		from = r.next
	}
	// Parallel requests may be a little behind, so half of the chunks stay.
	keep := 0
	if from != 0 {
		keep = len(r.held) / 2
	}
	held, total := append([][]byte(nil), r.held[len(r.held)-keep:]...), 0
	first, next := index-int64(keep), from
	for b, err := range read(from) {
		if err != nil {
			return nil, err
		}
		_, text, _ := strings.Cut(b.suffix, ".")
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("shuffler: a chunk under %q", b.suffix)
		}
		if i != first+int64(len(held)) {
			continue // it comes before the wanted one, or was stored twice
		}
		held, next, total = append(held, b.data), b.place+1, total+len(b.data)
		if total > ahead/2 {
			break
		}
	}
	if len(held) == keep {
		return nil, pure.Refuse(wire.Malformed, "the batch has no such chunk")
	}
	r.from, r.held, r.next = first, held, next
	return held[keep], nil
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
	s.mu.Lock()
	at := s.readers[stream+kind]
	if at == nil {
		at = &reader{}
		s.readers[stream+kind] = at
	}
	s.mu.Unlock()
	at.used.Store(time.Now().Unix())
	b, err := at.chunk(index, func(from uint64) iter.Seq2[blob, error] {
		return v.blobsFrom(ctx, s.store, stream, "out", kind+".*", from)
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

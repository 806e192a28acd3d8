package shuffler

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/riffle-dp/riffle/endpoint"
	pure "github.com/riffle-dp/riffle/shuffler"
	"github.com/riffle-dp/riffle/store"
	"github.com/riffle-dp/riffle/wire"
)

// named returns the round that a path names.
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

// longestWait bounds how long an answer is held back.
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
	s.serveBlob(w, r, suffix)
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
	s.serveBlob(w, r, fmt.Sprintf("%s.%d", suffix, index))
}

func (s *Service) serveBlob(w http.ResponseWriter, r *http.Request, suffix string) {
	name, rec, err := s.named(r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	switch rec.State {
	case Open, Closing:
		endpoint.Refuse(w, wire.Unavailable, "the round is not closed")
		return
	case Void, Released:
		endpoint.Refuse(w, wire.Closed, "the round is destroyed")
		return
	}
	blob, err := s.blob(r.Context(), name, rec, suffix)
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeBytes(w, blob)
}

// blob returns one blob of a batch.
func (s *Service) blob(ctx context.Context, name string, rec *record, suffix string) ([]byte, error) {
	keys, err := s.secrets(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return nil, errClosed // released meanwhile
	}
	if err != nil {
		return nil, err
	}
	digest, err := decodeName(name)
	if err != nil {
		return nil, err
	}
	v, err := newVault(keys.block, digest)
	if err != nil {
		return nil, err
	}
	for b, err := range v.blobs(ctx, s.store, streamOut(name, rec.Run), "out", suffix, 0) {
		if errors.Is(err, store.ErrNotFound) {
			return nil, errClosed
		}
		return b, err
	}
	return nil, pure.Refuse(wire.Malformed, "the batch has no such part")
}

// serveRelease ends a round for good: its model is released, or it was void.
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
			return errUnavailable // at the same time: the next attempt finds it
		}
		if err != nil {
			return err
		}
		s.metrics.released.Add(1)
	}
	return s.finish(r.Context(), name)
}

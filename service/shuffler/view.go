package shuffler

import (
	"context"
	"errors"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// listed is what the relay is told of a round that was marked as under way.
type listed struct {
	digest    [32]byte
	enrolment string    // signed; "": none, or the round takes no reports
	until     time.Time // its deadline
}

// serveRelay tells the relay what it needs to answer by itself who asks for enrolments, and to know passes.
func (s *Service) serveRelay(w http.ResponseWriter, r *http.Request) {
	view, err := s.relayView(r.Context())
	if err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeBytes(w, view)
}

// relayView reads what the relay is told, at most every markPause, however often it asks.
func (s *Service) relayView(ctx context.Context) ([]byte, error) {
	select {
	case s.viewing <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-s.viewing }()
	if wait := markPause - time.Since(s.viewed); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	s.viewed = time.Now()
	newest := s.enrolment.Load()
	if !s.running.Load() || newest == nil {
		return nil, errNotRunning
	}
	marks, err := s.store.List(ctx, store.Values, keyOpen(""))
	if err != nil {
		return nil, err
	}
	view := wire.RelayView{Enrolments: [][]byte{newest.signed}}
	if known := s.masters.known.Load(); known != nil {
		for _, end := range slices.Sorted(maps.Keys(*known)) {
			view.Keys = append(view.Keys, (*known)[end].relay)
		}
	}
	places := map[string]byte{string(view.Enrolments[0]): 0}
	next := map[string]listed{}
	for _, key := range marks {
		name := strings.TrimPrefix(key, keyOpen(""))
		one, ok := s.listed[name]
		if !ok {
			if one, err = s.listedRound(ctx, name); errors.Is(err, store.ErrNotFound) {
				continue // it is being opened, and nobody was told of it yet
			}
			if err != nil {
				return nil, err
			}
		}
		next[name] = one
		if one.enrolment == "" || time.Now().After(one.until) {
			continue
		}
		place, ok := places[one.enrolment]
		if !ok {
			if len(view.Enrolments) > math.MaxUint8-1 {
				continue // more rosters than any relay's clients can know
			}
			place = byte(len(view.Enrolments))
			places[one.enrolment] = place
			view.Enrolments = append(view.Enrolments, []byte(one.enrolment))
		}
		view.Rounds = append(view.Rounds, wire.RelayRound{Announcement: one.digest, Enrolment: place})
	}
	s.listed = next
	return wire.Encode(view), nil
}

func (s *Service) listedRound(ctx context.Context, name string) (one listed, err error) {
	rec, err := s.loadRecord(ctx, name)
	if err != nil {
		return one, err
	}
	ann, err := s.announcement(rec.Announcement)
	if err != nil {
		return one, nil // of a coordinator whose key is gone
	}
	one = listed{digest: wire.Digest(ann), until: time.UnixMilli(ann.Deadline)}
	if rec.State == Open {
		one.enrolment = string(rec.Enrolment)
	}
	return one, nil
}

package aggregator

import (
	"encoding/hex"
	"errors"
	"net/http"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/exchange"
)

// Limits on what the coordinator sends: a task, an announcement and the shuffler's statement on
// the closed round; the places of excluded reports.
const (
	maxRound     = 4 << 20
	maxExclusion = 16 << 20
)

// PeerHandler answers the coordinator's requests of SPEC.md. A stranger who reaches it can do
// nothing. All requests are signed, except those for what the aggregator has, and for report ids and
// receipts, which are random and mean nothing without the shares.
func (s *Service) PeerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/rounds", func(w http.ResponseWriter, q *http.Request) {
		body, ok := endpoint.ReadBody(w, q, maxRound)
		if !ok {
			return
		}
		e, err := s.prepare(body)
		s.answer(w, wire.Encode(e), err)
	})
	mux.HandleFunc("GET "+exchange.AbilitiesPath, s.serveAbilities)
	mux.HandleFunc("POST /v1/tokens", func(w http.ResponseWriter, q *http.Request) {
		if body, ok := endpoint.ReadBody(w, q, maxTokenKeys); ok {
			s.answer(w, nil, s.learnKeys(body))
		}
	})
	mux.HandleFunc("GET /v1/rounds/{announcement}/ids", func(w http.ResponseWriter, q *http.Request) {
		if announcement, ok := s.named(w, q); ok {
			ids, err := s.shareIDs(announcement)
			s.answer(w, wire.Encode(ids), err)
		}
	})
	mux.HandleFunc("GET /v1/rounds/{announcement}/receipts", func(w http.ResponseWriter, q *http.Request) {
		if announcement, ok := s.named(w, q); ok {
			receipts, err := s.receipts(announcement)
			s.answer(w, receipts, err)
		}
	})
	mux.HandleFunc("POST /v1/rounds/{announcement}/sum", func(w http.ResponseWriter, q *http.Request) {
		announcement, ok := s.named(w, q)
		if !ok {
			return
		}
		body, ok := endpoint.ReadBody(w, q, maxExclusion)
		if !ok {
			return
		}
		b, err := s.sum(announcement, body)
		s.answer(w, b, err)
	})
	mux.HandleFunc("POST /v1/rounds/{announcement}/proofs", func(w http.ResponseWriter, q *http.Request) {
		announcement, ok := s.named(w, q)
		if !ok {
			return
		}
		limit, err := s.proofsLimit(announcement)
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		body, ok := endpoint.ReadBody(w, q, limit)
		if !ok {
			return
		}
		p, err := s.proofs(announcement, body)
		if err != nil {
			s.answer(w, nil, err)
			return
		}
		s.answer(w, wire.Encode(p), nil)
	})
	return mux
}

// named reads the announcement's digest in a path. If there is none it answers the request
// and returns false.
func (s *Service) named(w http.ResponseWriter, q *http.Request) (announcement [32]byte, ok bool) {
	b, err := hex.DecodeString(q.PathValue("announcement"))
	if err != nil || len(b) != len(announcement) {
		s.answer(w, nil, no(wire.Malformed, "a digest has 64 hexadecimal digits"))
		return announcement, false
	}
	return [32]byte(b), true
}

func (s *Service) answer(w http.ResponseWriter, message []byte, err error) {
	if err == nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(message)
		return
	}
	var r *endpoint.Refusal
	if !errors.As(err, &r) {
		s.config.Log.Warn("a request failed", "error", err)
		r = &endpoint.Refusal{Reason: wire.Unavailable, Detail: "try again"}
	} else if r.Code != 0 { // the shuffler's refusal of our own request
		s.config.Log.Warn("the shuffler refuses", "reason", string(r.Reason), "detail", r.Detail)
		r = &endpoint.Refusal{Reason: wire.Unavailable, Detail: "the shuffler cannot be read now"}
		if batch.IsRefused(err) != nil {
			r = &endpoint.Refusal{Reason: wire.UnknownRound, Detail: "the shuffler does not have the round"}
		}
	}
	s.count(func(c *Counts) { c.Refused[r.Reason]++ })
	endpoint.RefuseAs(w, r)
}

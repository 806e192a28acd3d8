package aggregator

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/wire"
)

// maxBody bounds a request: three signed messages, or an exclusion of a million.
const maxBody = 16 << 20

// PeerHandler answers the coordinator's requests of SPEC.md. Whoever else reaches
// it can do nothing: all requests are signed.
func (s *Service) PeerHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/rounds", func(w http.ResponseWriter, q *http.Request) {
		body, ok := s.body(w, q)
		if !ok {
			return
		}
		e, err := s.Prepare(q.Context(), body)
		s.answer(w, e.Append, err)
	})
	mux.HandleFunc("POST /v1/rounds/{announcement}/sum", func(w http.ResponseWriter, q *http.Request) {
		var announcement [32]byte
		b, err := hex.DecodeString(q.PathValue("announcement"))
		if err != nil || len(b) != len(announcement) {
			s.answer(w, nil, no(400, wire.Malformed, "a digest has 64 hexadecimal digits"))
			return
		}
		copy(announcement[:], b)
		body, ok := s.body(w, q)
		if !ok {
			return
		}
		p, err := s.Sum(q.Context(), announcement, body)
		s.answer(w, p.Append, err)
	})
	return mux
}

func (s *Service) body(w http.ResponseWriter, q *http.Request) ([]byte, bool) {
	b, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody))
	if err == nil {
		return b, true
	}
	var long *http.MaxBytesError
	if errors.As(err, &long) {
		s.answer(w, nil, no(413, wire.TooMany, "the request is too long"))
	} else {
		s.answer(w, nil, no(400, wire.Malformed, "the request ends early"))
	}
	return nil, false
}

func (s *Service) answer(w http.ResponseWriter, message func([]byte) []byte, err error) {
	if err == nil {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write(message(nil))
		return
	}
	var r *refusal
	if !errors.As(err, &r) {
		s.config.Log.Warn("a request failed", "error", err)
		r = &refusal{http.StatusServiceUnavailable, wire.Unavailable, "try again"}
		if batch.IsRefused(err) != nil {
			r = &refusal{http.StatusNotFound, wire.UnknownRound, "the shuffler does not have the round"}
		}
	}
	s.count(func(c *Counts) { c.Refused[r.reason]++ })
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(r.status)
	_ = json.NewEncoder(w).Encode(map[string]string{"reason": string(r.reason), "detail": r.detail})
}

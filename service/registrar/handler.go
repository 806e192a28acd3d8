package registrar

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// Shuffler names the peer that may fetch the clients' keys, as in endpoint.Peer.
const Shuffler = "shuffler"

// Handlers returns what serves clients, what serves the other roles, and what serves the
// operator, on a socket that only the operator may open.
func (s *Service) Handlers() (clients, peers, operator http.Handler) {
	c, p, o := http.NewServeMux(), http.NewServeMux(), http.NewServeMux()
	c.HandleFunc("GET /v1/statement", s.serveStatement)
	c.HandleFunc("GET /v1/epochs/{epoch}", s.serveKeys)
	c.HandleFunc("POST /v1/tokens", s.serveTokens)
	p.HandleFunc("PUT /v1/epochs/{epoch}", s.serveAsk)
	p.HandleFunc("GET /v1/statement", s.serveStatement)
	p.HandleFunc("GET /v1/roster", s.serveRoster)
	o.HandleFunc("GET /registrar/roster", s.serveList)
	o.HandleFunc("GET /registrar/signed", s.serveSigned)
	o.HandleFunc("POST /registrar/change", s.serveChange)
	return c, p, o
}

// now returns the state to answer with.
func (s *Service) now(w http.ResponseWriter) *state {
	st := s.current.Load()
	if !s.running.Load() || st == nil {
		endpoint.Refuse(w, wire.Unavailable, "no roster")
		return nil
	}
	return st
}

func write(w http.ResponseWriter, b []byte) {
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // fails if the caller has gone
}

// serveStatement answers with the signed statement, which names no client.
func (s *Service) serveStatement(w http.ResponseWriter, _ *http.Request) {
	if st := s.now(w); st != nil {
		write(w, st.Signed)
	}
}

// serveRoster answers with the statement and the clients' keys, for the shuffler alone. It
// answers 204 if the shuffler has this statement.
func (s *Service) serveRoster(w http.ResponseWriter, r *http.Request) {
	if endpoint.Peer(r) != Shuffler {
		endpoint.Refuse(w, wire.NotEnrolled, "this peer may not ask that")
		return
	}
	st := s.now(w)
	if st == nil {
		return
	}
	digest := wire.Digest(st.statement)
	if r.URL.Query().Get("have") == hex.EncodeToString(digest[:]) {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.metrics.fetched.Add(1)
	write(w, wire.EncodeMembers(st.Signed, st.keys()))
}

// Listing is the answer to the operator who asks for the roster.
type Listing struct {
	Serial  int64    `json:"serial"`
	Clients int64    `json:"clients"`
	Digest  string   `json:"digest"`
	From    int64    `json:"from"`
	To      int64    `json:"to"`
	Keys    [][]byte `json:"keys"`    // public keys of the enrolled clients
	Revoked []string `json:"revoked"` // ids
}

func (s *Service) serveList(w http.ResponseWriter, _ *http.Request) {
	out := Listing{Keys: [][]byte{}, Revoked: []string{}}
	if st := s.current.Load(); st != nil {
		r := st.statement
		out.Serial, out.Clients, out.Digest, out.From, out.To = r.Serial, r.Clients, hex.EncodeToString(r.Digest[:]), r.From, r.To
		for _, m := range st.enrolled {
			out.Keys = append(out.Keys, m.key[:])
		}
		for _, id := range st.revoked {
			out.Revoked = append(out.Revoked, hex.EncodeToString(id[:]))
		}
	}
	answer(w, http.StatusOK, out)
}

// serveSigned answers with what a shuffler may read from a file in place of fetching it.
func (s *Service) serveSigned(w http.ResponseWriter, _ *http.Request) {
	if st := s.now(w); st != nil {
		write(w, wire.EncodeMembers(st.Signed, st.keys()))
	}
}

// Request is an operator's change of the roster: all of it is done or nothing.
type Request struct {
	Add    [][]byte `json:"add,omitempty"`    // public keys
	Revoke []string `json:"revoke,omitempty"` // ids
	// Above, if it is not 0, makes the next serial larger than it, as after a backup was restored.
	Above int64 `json:"above,omitempty"`
}

// maxChange bounds the size of an operator's request.
const maxChange = 128 << 20

// Failure is the answer to a change that was refused.
type Failure struct {
	Error string `json:"error"`
	Wrong bool   `json:"wrong"` // whether the request is at fault
}

func (s *Service) serveChange(w http.ResponseWriter, r *http.Request) {
	var q Request
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxChange))
	d.DisallowUnknownFields()
	if err := d.Decode(&q); err != nil {
		answer(w, http.StatusBadRequest, Failure{"registrar: no request: " + err.Error(), true})
		return
	}
	var add []ed25519.PublicKey
	for _, k := range q.Add {
		add = append(add, k)
	}
	var revoke []wire.ID
	for _, text := range q.Revoke {
		b, err := hex.DecodeString(text)
		if err != nil || len(b) != len(wire.ID{}) {
			answer(w, http.StatusBadRequest, Failure{"registrar: " + strconv.Quote(text) + " is not a client's id: 32 hex digits", true})
			return
		}
		revoke = append(revoke, wire.ID(b))
	}
	if !s.running.Load() {
		answer(w, http.StatusServiceUnavailable, Failure{"registrar: not started", false})
		return
	}
	c, err := s.change(r.Context(), time.Now(), q.Above, add, revoke)
	switch {
	case errors.Is(err, errKey) || errors.Is(err, errRevoked) || errors.Is(err, errUnknown) || errors.Is(err, errEmpty) || errors.Is(err, errAbove):
		answer(w, http.StatusConflict, Failure{err.Error(), true})
	case err != nil:
		answer(w, http.StatusServiceUnavailable, Failure{err.Error(), false})
	default:
		answer(w, http.StatusOK, c)
	}
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // fails if the caller has gone
}

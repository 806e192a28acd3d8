// Package batchtest is a shuffler for tests of the roles that read from one. It speaks the
// peers' side of the protocol and closes a round as soon as it is opened, with reports that
// the test makes. It lies or fails where the test says so.
package batchtest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Shuffler holds rounds in memory. Set its fields before using it.
type Shuffler struct {
	Key        ed25519.PrivateKey
	Public     ed25519.PublicKey // of Key
	Enrolment  wire.Enrolment
	PerChunk   int // items per chunk; default 3
	MinReports int64
	// Anyway opens rounds of any number, also again under another announcement.
	Anyway bool
	// Keeps destroys no round that it was told to destroy.
	Keeps bool
	// Fill returns a round's sealed parts and shares, in the batch's order: of several messages one
	// run after the other.
	Fill func(a wire.Announcement) (parts, shares [][]byte)
	// Word, Digests and Chunk, if not nil, change the answers.
	Word    func(c *wire.RoundClosed)
	Digests func(b []byte) []byte
	Chunk   func(c *wire.Chunk)
	// Asked, if not nil, is called with each request before it is answered.
	Asked func(method, path string)

	mu        sync.Mutex
	head      wire.Head // the furthest that the coordinator told
	told      bool      // whether it told any
	rounds    map[[32]byte]*round
	last      map[[32]byte]int64
	Opened    []wire.Announcement // in order, without repetitions
	Destroyed map[[32]byte]int
}

type round struct {
	a             wire.Announcement
	closed        wire.RoundClosed
	parts, shares []wire.Chunk
	gone          atomic.Bool
}

// New returns a shuffler of n clients with a fresh operator key.
func New(n, minReports int64, aggregator ...wire.Key) *Shuffler {
	public, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		panic(err)
	}
	now := time.Now()
	e := wire.Enrolment{Population: wire.ID{1}, Serial: 1, Clients: n, Roster: [32]byte{9}, MinReports: minReports,
		Shuffler:   []wire.Key{{Suite: wire.X25519, Public: make([]byte, 32), Expires: now.Add(time.Hour).Unix()}},
		Aggregator: aggregator, From: now.Add(-time.Minute).Unix(), To: now.Add(time.Hour).Unix()}
	return &Shuffler{Key: key, Public: public, Enrolment: e, PerChunk: 3, MinReports: minReports, rounds: map[[32]byte]*round{},
		last: map[[32]byte]int64{}, Destroyed: map[[32]byte]int{}}
}

func (s *Shuffler) cut(items [][]byte) (chunks []wire.Chunk, digests [][32]byte) {
	for start := 0; start < len(items); start += s.PerChunk {
		c := wire.Chunk{Index: int64(len(chunks)), Size: int64(len(items[start]))}
		for _, item := range items[start:min(len(items), start+s.PerChunk)] {
			c.Items = append(c.Items, item...)
		}
		chunks, digests = append(chunks, c), append(digests, sha256.Sum256(c.Items))
	}
	return chunks, digests
}

// Open takes a signed announcement, like POST /v1/rounds.
func (s *Shuffler) Open(coordinator ed25519.PublicKey, signed []byte) (status int, reason wire.Reason) {
	message, err := wire.Verify(coordinator, wire.LabelAnnouncement, signed)
	if err != nil {
		return 401, wire.BadSignature
	}
	a, err := wire.Decode[wire.Announcement](message)
	if err != nil {
		return 400, wire.Malformed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	digest := wire.Digest(a)
	if s.rounds[digest] != nil {
		return 204, ""
	}
	switch {
	case a.Round <= s.last[a.Task] && !s.Anyway:
		return 410, wire.Closed
	case a.Enrolment != wire.Digest(s.Enrolment) || a.Population != s.Enrolment.Clients || a.MinReports < s.Enrolment.MinReports:
		return 403, wire.NotEnrolled
	}
	if a.Ledger == nil && s.told || a.Ledger != nil && !s.keep(*a.Ledger) {
		return 412, wire.OldLedger
	}
	r := &round{a: a, closed: wire.RoundClosed{Announcement: digest, Round: a.Round}}
	parts, shares := s.Fill(a)
	if k := int64(len(parts)) / a.PerClient(); k < a.MinReports {
		r.closed.Void = true
	} else {
		var digests [][32]byte
		r.closed.Reports = k
		r.parts, digests = s.cut(parts)
		r.closed.Chunks = int64(len(digests))
		r.closed.Digest = wire.BatchDigest(digest, k, digests)
		if a.ShareBytes > 0 {
			r.shares, digests = s.cut(shares)
			r.closed.Shares = wire.BatchDigest(digest, k, digests)
		}
	}
	s.rounds[digest], s.last[a.Task] = r, a.Round
	s.Opened = append(s.Opened, a)
	return 204, ""
}

// Tell has the shuffler keep a head, as if the coordinator had told it.
func (s *Shuffler) Tell(h wire.Head) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.head, s.told = h, true
}

// keep keeps a further head, and returns whether one could be what the told one became.
func (s *Shuffler) keep(h wire.Head) bool {
	if s.told && h.Follows(s.head) != nil {
		return false
	}
	s.head, s.told = h, true
	return true
}

// Closed returns the signed statement on a round that was opened.
func (s *Shuffler) Closed(announcement [32]byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rounds[announcement]
	if r == nil {
		return nil
	}
	c := r.closed
	if s.Word != nil {
		s.Word(&c)
	}
	return wire.Sign(s.Key, wire.LabelClosed, wire.Encode(c))
}

// Handler answers the coordinator with the given key or, if aggregator is true, the
// aggregator.
func (s *Shuffler) Handler(coordinator ed25519.PublicKey, aggregator bool) http.Handler {
	mux := http.NewServeMux()
	refuse := func(w http.ResponseWriter, status int, reason wire.Reason) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		fmt.Fprintf(w, `{"reason":%q,"detail":"double"}`, reason)
	}
	find := func(w http.ResponseWriter, q *http.Request) (d [32]byte, r *round) {
		b, err := hex.DecodeString(q.PathValue("a"))
		if err != nil || len(b) != 32 {
			refuse(w, 400, wire.Malformed)
			return d, nil
		}
		copy(d[:], b)
		s.mu.Lock()
		defer s.mu.Unlock()
		if r = s.rounds[d]; r == nil {
			refuse(w, 404, wire.UnknownRound)
		}
		return d, r
	}
	mux.HandleFunc("GET /v1/enrolment", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, _ = w.Write(wire.Sign(s.Key, wire.LabelEnrolment, wire.Encode(s.Enrolment)))
	})
	mux.HandleFunc("POST /v1/rounds", func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		if status, reason := s.Open(coordinator, b); reason != "" {
			refuse(w, status, reason)
		} else {
			w.WriteHeader(status)
		}
	})
	mux.HandleFunc("POST /v1/ledger", func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		message, err := wire.Verify(coordinator, wire.LabelHead, b)
		m, broken := wire.Decode[wire.HeadStatement](message)
		if err != nil || broken != nil {
			refuse(w, 401, wire.BadSignature)
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.keep(m.Head)
		m.Head = s.head
		_, _ = w.Write(wire.Encode(m))
	})
	mux.HandleFunc("GET /v1/rounds/{a}/closed", func(w http.ResponseWriter, q *http.Request) {
		if d, r := find(w, q); r != nil {
			_, _ = w.Write(s.Closed(d))
		}
	})
	chunks := func(r *round) []wire.Chunk {
		if aggregator {
			return r.shares
		}
		return r.parts
	}
	mux.HandleFunc("GET /v1/rounds/{a}/chunks", func(w http.ResponseWriter, q *http.Request) {
		_, r := find(w, q)
		if r == nil {
			return
		}
		if r.gone.Load() {
			refuse(w, 410, wire.Closed)
			return
		}
		var b []byte
		for _, c := range chunks(r) {
			d := sha256.Sum256(c.Items)
			b = append(b, d[:]...)
		}
		if s.Digests != nil {
			b = s.Digests(b)
		}
		_, _ = w.Write(b)
	})
	mux.HandleFunc("GET /v1/rounds/{a}/chunks/{i}", func(w http.ResponseWriter, q *http.Request) {
		_, r := find(w, q)
		if r == nil {
			return
		}
		i, err := strconv.Atoi(q.PathValue("i"))
		if err != nil || r.gone.Load() || i < 0 || i >= len(chunks(r)) {
			refuse(w, 410, wire.Closed)
			return
		}
		c := chunks(r)[i]
		if s.Chunk != nil {
			c.Items = append([]byte(nil), c.Items...)
			s.Chunk(&c)
		}
		_, _ = w.Write(wire.Encode(c))
	})
	mux.HandleFunc("DELETE /v1/rounds/{a}", func(w http.ResponseWriter, q *http.Request) {
		d, r := find(w, q)
		if r == nil {
			return
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		r.gone.Store(!s.Keeps)
		s.Destroyed[d]++
		w.WriteHeader(204)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if s.Asked != nil {
			s.Asked(q.Method, q.URL.Path)
		}
		mux.ServeHTTP(w, q)
	})
}

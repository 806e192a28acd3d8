package registrar

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/token"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// This file issues tokens: the coordinator asks for the keys of an epoch, clients ask for their
// tokens of it.

// Coordinator names the peer that may ask for keys, as in endpoint.Peer.
const Coordinator = "coordinator"

const (
	epochPrefix = "epoch."
	epochFormat = 1
	// mostEpochs bounds the epochs of a registrar, so that a coordinator cannot fill its store.
	mostEpochs = 1 << 10
	// mostLoaded is the number of epochs whose keys are in memory.
	mostLoaded = 4
)

// epochRecord is the value of the key epoch.<epoch>.
type epochRecord struct {
	Format   int   `json:"format"`
	Rounds   int64 `json:"rounds"`
	Messages int64 `json:"messages"`
	// Keys is the SHA-256 of the object that holds the keys; zero until they are made.
	Keys document.Hash `json:"keys,omitzero"`
}

// issuing is what a registrar needs to issue tokens.
type issuing struct {
	grants *grants
	slots  chan struct{} // one for each token that is signed at a time
	wake   chan struct{} // filled when keys are to be made
	repeat chan struct{} // filled by who gets tokens that were granted before: nobody new waits for more than one of them

	loading chan struct{} // filled by who reads an epoch from the store
	again   time.Time     // when a stranger may replace a loaded epoch again; for who fills loading

	mu     sync.Mutex
	loaded map[wire.ID]*epoch
	order  []wire.ID        // of the loaded; the one that a client asked for last is last
	busy   map[wire.ID]bool // clients whose request is being answered
}

// loadShare bounds the time that goes into epochs that strangers want loaded in place of others: at
// most 1/loadShare.
const loadShare = 20

// epoch is an epoch with its keys.
type epoch struct {
	issuer *token.Issuer
	signed []byte   // its public keys
	digest [32]byte // SHA-256 of signed
	total  int64    // number of keys
}

func newIssuing(s storage, m mark.Keeper) *issuing {
	return &issuing{grants: newGrants(s, m), slots: make(chan struct{}, runtime.GOMAXPROCS(0)), wake: make(chan struct{}, 1), repeat: make(chan struct{}, 1),
		loading: make(chan struct{}, 1), loaded: map[wire.ID]*epoch{}, busy: map[wire.ID]bool{}}
}

func epochKey(id wire.ID) string             { return epochPrefix + hex.EncodeToString(id[:]) }
func keysObject(digest document.Hash) string { return "tokens/" + hex.EncodeToString(digest[:]) }

func (s *Service) readEpoch(ctx context.Context, id wire.ID) (r epochRecord, revision uint64, err error) {
	e, err := s.config.Store.Get(ctx, epochKey(id))
	if err != nil {
		return r, 0, err
	}
	if err := document.Decode(e.Value, epochFormat, &r); err != nil {
		return r, 0, fmt.Errorf("registrar: %s: %w", e.Key, err)
	}
	return r, e.Revision, nil
}

// errMaking says that an epoch's keys are being made.
var errMaking = errors.New("registrar: the keys are being made")

// errLoading says that too many epochs are asked for in turn.
var errLoading = errors.New("registrar: another epoch's keys were loaded just now")

// find returns an epoch if it is in memory. Strangers do not decide which epoch was used last.
func (t *issuing) find(id wire.ID, stranger bool) *epoch {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.loaded[id]
	if e != nil && !stranger {
		at := slices.Index(t.order, id)
		t.order = append(slices.Delete(t.order, at, at+1), id)
	}
	return e
}

// full says whether one more epoch takes the place of another.
func (t *issuing) full() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.order) == mostLoaded
}

// epoch returns an epoch with its keys. One epoch is read at a time, because that takes a
// processor's time and the memory of all its keys: those who want the same one wait for it.
func (s *Service) epoch(ctx context.Context, id wire.ID, stranger bool) (*epoch, error) {
	t := s.tokens
	if e := t.find(id, stranger); e != nil {
		return e, nil
	}
	select {
	case t.loading <- struct{}{}:
		defer func() { <-t.loading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if e := t.find(id, stranger); e != nil {
		return e, nil
	}
	r, _, err := s.readEpoch(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Keys == (document.Hash{}) {
		return nil, errMaking
	}
	if began := time.Now(); stranger && t.full() {
		if began.Before(t.again) {
			return nil, errLoading
		}
		defer func() { t.again = time.Now().Add((loadShare - 1) * time.Since(began)) }()
	}
	return s.loadKeys(ctx, id, r)
}

// loadKeys reads an epoch's keys, and keeps them in memory in place of those that were used least
// lately.
func (s *Service) loadKeys(ctx context.Context, id wire.ID, r epochRecord) (*epoch, error) {
	b, err := s.config.Store.GetObject(ctx, keysObject(r.Keys))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(b) != r.Keys {
		return nil, errors.New("registrar: the stored keys are not those of the record")
	}
	e := &epoch{}
	if e.issuer, err = token.ParseSecret(b); err != nil {
		return nil, err
	}
	keys := e.issuer.Keys()
	if keys.Epoch != id || keys.Population != s.config.Population || keys.Rounds() != r.Rounds || keys.Messages != r.Messages {
		return nil, errors.New("registrar: the stored keys are of another epoch")
	}
	e.total = int64(len(keys.Moduli))
	e.signed = wire.Sign(s.config.Key, wire.LabelTokenKeys, wire.Encode(keys))
	e.digest = sha256.Sum256(e.signed)
	t := s.tokens
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.order) == mostLoaded {
		delete(t.loaded, t.order[0])
		t.order = t.order[1:]
	}
	t.loaded[id] = e
	t.order = append(t.order, id)
	return e, nil
}

// makeKeys makes the keys that were asked for, one epoch after the other, until ctx ends. Keys
// that a crash interrupts are made anew: the record names none until they are stored.
func (s *Service) makeKeys(ctx context.Context) {
	for {
		names, err := s.config.Store.List(ctx, store.Values, epochPrefix)
		if err != nil && ctx.Err() == nil {
			s.config.Log.Warn("epochs cannot be read", "error", err)
		}
		for _, name := range names {
			if err := s.makeEpoch(ctx, name); err != nil && ctx.Err() == nil {
				s.config.Log.Warn("keys of tokens are not made", "epoch", name, "error", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-s.tokens.wake:
		}
	}
}

func (s *Service) makeEpoch(ctx context.Context, name string) error {
	b, err := hex.DecodeString(strings.TrimPrefix(name, epochPrefix))
	if err != nil || len(b) != len(wire.ID{}) {
		return fmt.Errorf("registrar: key %s names no epoch", name)
	}
	id := wire.ID(b)
	r, revision, err := s.readEpoch(ctx, id)
	if err != nil || r.Keys != (document.Hash{}) {
		return err
	}
	s.config.Log.Info("keys of tokens are being made", "rounds", r.Rounds, "messages", r.Messages)
	issuer, err := token.Generate(ctx, s.config.Population, id, r.Rounds, r.Messages, runtime.GOMAXPROCS(0))
	if err != nil {
		return err
	}
	secret := issuer.Secret()
	r.Keys = sha256.Sum256(secret)
	if err := s.config.Store.PutObject(ctx, keysObject(r.Keys), secret); err != nil {
		return err
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("registrar: %v", err)
	}
	// Of two processes that made keys one wins here; nobody has seen the other's.
	if _, err := s.config.Store.Put(ctx, name, value, revision); err != nil {
		if !errors.Is(err, store.ErrConflict) {
			return err // the record may name these keys all the same
		}
		_ = s.config.Store.Delete(ctx, store.Objects, keysObject(r.Keys)) // if it stays it only takes space
	}
	s.config.Log.Info("keys of tokens are ready", "keys", r.Rounds*r.Messages)
	return nil
}

func parseID(text string) (id wire.ID, ok bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(id) {
		return id, false
	}
	return wire.ID(b), true
}

// serveAsk begins an epoch, for the coordinator alone: PUT /v1/epochs/{epoch}?rounds=R&messages=M.
// It answers with the signed keys once they are made, and is asked again until then.
func (s *Service) serveAsk(w http.ResponseWriter, r *http.Request) {
	id, ok := parseID(r.PathValue("epoch"))
	rounds, err1 := strconv.ParseInt(r.URL.Query().Get("rounds"), 10, 64)
	messages, err2 := strconv.ParseInt(r.URL.Query().Get("messages"), 10, 64)
	switch {
	case endpoint.Peer(r) != Coordinator:
		endpoint.Refuse(w, wire.NotEnrolled, "this peer may not ask that")
		return
	case !ok || err1 != nil || err2 != nil || rounds < 1 || messages < 1 || messages > wire.MaxMessages || rounds > wire.MaxTokens/messages:
		endpoint.Refuse(w, wire.Malformed, fmt.Sprintf("an epoch has %d keys at most", wire.MaxTokens))
		return
	case s.tokens == nil:
		endpoint.Refuse(w, wire.Refused, "this registrar has no mark, and issues no tokens")
		return
	}
	have, _, err := s.readEpoch(r.Context(), id)
	if errors.Is(err, store.ErrNotFound) {
		have = epochRecord{Format: epochFormat, Rounds: rounds, Messages: messages}
		err = s.begin(r.Context(), id, have)
	}
	switch {
	case errors.Is(err, errMany):
		endpoint.Refuse(w, wire.Refused, err.Error())
	case err != nil:
		s.config.Log.Warn("an epoch is not begun", "error", err)
		endpoint.Refuse(w, wire.Unavailable, "try again")
	case have.Rounds != rounds || have.Messages != messages:
		endpoint.Refuse(w, wire.SecondReport, "the epoch has other numbers")
	default:
		if have.Keys == (document.Hash{}) {
			s.wakeMaker() // it may have failed
		}
		s.serveEpoch(w, r, id, false)
	}
}

// wakeMaker has the keys made that are missing.
func (s *Service) wakeMaker() {
	select {
	case s.tokens.wake <- struct{}{}:
	default:
	}
}

var errMany = errors.New("too many epochs")

func (s *Service) begin(ctx context.Context, id wire.ID, r epochRecord) error {
	names, err := s.config.Store.List(ctx, store.Values, epochPrefix)
	if err != nil {
		return err
	}
	if len(names) >= mostEpochs && !slices.Contains(names, epochKey(id)) {
		return errMany
	}
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("registrar: %v", err)
	}
	_, err = s.config.Store.Put(ctx, epochKey(id), value, 0)
	return err
}

// serveKeys answers anyone with an epoch's signed keys.
func (s *Service) serveKeys(w http.ResponseWriter, r *http.Request) {
	id, ok := parseID(r.PathValue("epoch"))
	if !ok || s.tokens == nil {
		endpoint.Refuse(w, wire.UnknownRound, "no such epoch")
		return
	}
	s.serveEpoch(w, r, id, true)
}

func (s *Service) serveEpoch(w http.ResponseWriter, r *http.Request, id wire.ID, stranger bool) {
	e, err := s.epoch(r.Context(), id, stranger)
	switch {
	case errors.Is(err, store.ErrNotFound):
		endpoint.Refuse(w, wire.UnknownRound, "no such epoch")
	case errors.Is(err, errMaking):
		endpoint.Refuse(w, wire.Unavailable, "the keys are being made")
	case errors.Is(err, errLoading) || r.Context().Err() != nil:
		endpoint.Refuse(w, wire.Unavailable, "try again")
	case err != nil:
		s.config.Log.Warn("keys cannot be read", "error", err)
		endpoint.Refuse(w, wire.Unavailable, "try again")
	case stranger:
		endpoint.Lasting(w, r, e.digest, e.signed)
	default:
		write(w, e.signed)
	}
}

// serveTokens signs a client's blinded messages. What a stranger sends is refused after the first
// bytes: the request, signed by an enrolled client, comes before the blinded messages.
func (s *Service) serveTokens(w http.ResponseWriter, r *http.Request) {
	head := make([]byte, wire.SignedTokenRequest)
	if _, err := io.ReadFull(r.Body, head); err != nil {
		s.refuse(w, wire.Malformed, "shorter than a request")
		return
	}
	q, err := wire.Decode[wire.TokenRequest](head[64:])
	if err != nil {
		s.refuse(w, wire.Malformed, "no request for tokens")
		return
	}
	key, ok := s.Find(q.Client)
	if s.tokens == nil || !s.running.Load() || !ok || q.Population != s.config.Population {
		s.refuse(w, wire.NotEnrolled, "")
		return
	}
	if _, err := wire.Verify(key, wire.LabelTokens, head); err != nil {
		s.refuse(w, wire.BadSignature, "")
		return
	}
	endpoint.Prove(r.Context(), endpoint.Client(q.Client))
	if !s.tokens.enter(q.Client) {
		s.refuse(w, wire.TooMany, "another request of the client is being answered")
		return
	}
	defer s.tokens.leave(q.Client)
	e, err := s.epoch(r.Context(), q.Epoch, false)
	switch {
	case errors.Is(err, store.ErrNotFound):
		s.refuse(w, wire.UnknownRound, "no such epoch")
		return
	case err != nil:
		s.refuse(w, wire.Unavailable, "the keys are not ready")
		return
	case q.First >= e.total || q.Count != min(e.total-q.First, wire.MaxGrant):
		s.refuse(w, wire.Malformed, "tokens are asked for in full")
		return
	}
	blinded, ok := endpoint.ReadBody(w, r, q.Count*wire.TokenModulus+wire.SignedTokenRequest) // Content-Length counts the request, too
	if !ok {
		return
	}
	if int64(len(blinded)) != q.Count*wire.TokenModulus || sha256.Sum256(blinded) != q.Blinded {
		s.refuse(w, wire.Malformed, "other blinded messages than the request names")
		return
	}
	if e.issuer.Check(q.First, blinded) != nil { // before the grant, which is for good
		s.refuse(w, wire.Malformed, "a blinded message is out of range")
		return
	}
	s.issue(w, r, e, &q, blinded)
}

// issue makes the grant durable, and then signs. The same request gets the same answer.
func (s *Service) issue(w http.ResponseWriter, r *http.Request, e *epoch, q *wire.TokenRequest, blinded []byte) {
	t, name := s.tokens, granted{q.Client, q.Epoch, q.First}
	switch before := t.grants.Find(name); {
	case before == (document.Hash{}):
	case before != q.Blinded:
		s.refuse(w, wire.SecondReport, "these tokens were granted for another request")
		return
	default:
		select {
		case t.repeat <- struct{}{}:
			defer func() { <-t.repeat }()
		case <-r.Context().Done():
			return
		}
	}
	select {
	case t.slots <- struct{}{}:
		defer func() { <-t.slots }()
	case <-r.Context().Done():
		return
	}
	switch err := t.grants.give(r.Context(), name, q.Blinded); {
	case errors.Is(err, errOther):
		s.refuse(w, wire.SecondReport, "these tokens were granted for another request")
		return
	case err != nil:
		s.config.Log.Warn("tokens are not granted", "error", err)
		s.refuse(w, wire.Unavailable, "try again")
		return
	}
	signatures, err := e.issuer.Sign(r.Context(), q.First, blinded)
	if err != nil {
		if r.Context().Err() == nil {
			s.config.Log.Warn("tokens are not signed", "error", err)
			s.refuse(w, wire.Unavailable, "try again")
		}
		return
	}
	s.metrics.tokens.Add(q.Count)
	write(w, signatures)
}

func (s *Service) refuse(w http.ResponseWriter, reason wire.Reason, detail string) {
	s.metrics.refused.Add(1)
	endpoint.Refuse(w, reason, detail)
}

// enter lets one request of a client in at a time: signing is dear.
func (t *issuing) enter(c wire.ID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.busy[c] {
		return false
	}
	t.busy[c] = true
	return true
}

func (t *issuing) leave(c wire.ID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.busy, c)
}

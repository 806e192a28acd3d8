// Package registrar is the role that enrols clients. Its key is pinned by all other roles: it
// alone signs the roster, so the shuffler's operator can add nobody to it. It is for the
// program.
//
// The registrar sees who is enrolled and no report. Its state is one record in the store, with
// the signed statement, and one object with the clients' keys; DATA_MODEL.md says in which order
// they are written.
package registrar

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// storage is where the service keeps its state: a *store.Store, except in tests.
type storage interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	// Put is compare-and-swap.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	PutObject(ctx context.Context, name string, data []byte) error
	GetObject(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, k store.Kind, name string) error
	List(ctx context.Context, k store.Kind, prefix string) ([]string, error)
	mark.Log
}

// Config has the decisions of the registrar's operator.
type Config struct {
	Population wire.ID            // Required.
	Key        ed25519.PrivateKey // signs rosters. Required.
	// Validity is the time for which a statement is valid; it is renewed after half of that
	// time. Default 30 days.
	Validity time.Duration
	Store    storage // Required.
	// Mark is the high-water mark of the tokens that were granted, a mark.File outside the store.
	// nil: no tokens are issued.
	Mark mark.Keeper
	// Poll is how often the store is read for what other processes did. Default 1 s.
	Poll time.Duration
	Log  *slog.Logger // Default: none.
}

// Service is a registrar. Its handlers answer while Run runs.
type Service struct {
	config  Config
	running atomic.Bool
	current atomic.Pointer[state]

	changing sync.Mutex // held while a change is made
	tokens   *issuing   // nil: no tokens are issued
	metrics  struct{ added, revoked, signed, fetched, tokens, refused atomic.Int64 }
}

const (
	keyRoster    = "roster"
	recordFormat = 1
	membersName  = "members/"
)

// record is the value of the key roster.
type record struct {
	Format  int           `json:"format"`
	Members document.Hash `json:"members"` // SHA-256 of the object that holds them
	Signed  []byte        `json:"signed"`  // the statement
}

// state is a record with its members, in memory. It does not change.
type state struct {
	record
	*members
	statement wire.Roster
	revision  uint64
}

// New checks the configuration. It reads and writes nothing.
func New(c Config) (*Service, error) {
	switch {
	case len(c.Key) != ed25519.PrivateKeySize:
		return nil, errors.New("registrar: a signing key is required")
	case c.Store == nil:
		return nil, errors.New("registrar: a store is required")
	case c.Validity < 0 || c.Poll < 0:
		return nil, errors.New("registrar: a time below 0")
	}
	c.Validity = cmp.Or(c.Validity, 30*24*time.Hour)
	c.Poll = cmp.Or(c.Poll, time.Second)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	s := &Service{config: c}
	if c.Mark != nil {
		s.tokens = newIssuing(c.Store, c.Mark)
	}
	return s, nil
}

func (s *Service) public() ed25519.PublicKey { return s.config.Key.Public().(ed25519.PublicKey) }

// Run renews the statement in time and reads what other processes on the store changed, until
// ctx ends. It is called once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	if s.tokens != nil {
		if err := s.tokens.grants.Open(ctx); err != nil {
			return err
		}
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { s.makeKeys(ctx) })
	}
	s.running.Store(true)
	defer s.running.Store(false)
	tick := time.NewTicker(s.config.Poll)
	defer tick.Stop()
	for {
		if err := s.renew(ctx, time.Now()); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("the roster is not renewed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// load reads the state; it is nil before the first client is enrolled.
func (s *Service) load(ctx context.Context) (*state, error) {
	e, err := s.config.Store.Get(ctx, keyRoster)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if now := s.current.Load(); now != nil && now.revision == e.Revision {
		return now, nil
	}
	return readState(ctx, s.config.Store, s.public(), s.config.Population, e)
}

func objectOf(digest document.Hash) string { return membersName + hex.EncodeToString(digest[:]) }

func readState(ctx context.Context, from storage, key ed25519.PublicKey, p wire.ID, e store.Entry) (*state, error) {
	st := &state{revision: e.Revision}
	err := document.Decode(e.Value, recordFormat, &st.record)
	if err == nil {
		st.statement, err = wire.VerifyRoster(key, p, st.Signed)
	}
	if err != nil {
		return nil, fmt.Errorf("registrar: the stored roster: %w: %w", store.ErrDamaged, err)
	}
	b, err := from.GetObject(ctx, objectOf(st.Members))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(b) != st.Members {
		return nil, fmt.Errorf("registrar: %w: the stored members are not those of the record", store.ErrDamaged)
	}
	if st.members, err = decodeMembers(b); err != nil {
		return nil, err
	}
	if st.digest() != st.statement.Digest || int64(len(st.enrolled)) != st.statement.Clients {
		return nil, fmt.Errorf("registrar: %w: the signed roster is about other clients than those stored", store.ErrDamaged)
	}
	return st, nil
}

func (s *Service) refresh(ctx context.Context) error {
	st, err := s.load(ctx)
	if err != nil {
		return err
	}
	// The answers of one process never go back.
	if now := s.current.Load(); st != nil && (now == nil || st.statement.Serial >= now.statement.Serial) {
		s.current.Store(st)
	}
	return nil
}

// renew signs the same clients again when half of the statement's time is over.
func (s *Service) renew(ctx context.Context, now time.Time) error {
	if err := s.refresh(ctx); err != nil {
		return err
	}
	st := s.current.Load()
	if st == nil || st.statement.To-now.Unix() > int64(s.config.Validity/time.Second)/2 {
		return nil
	}
	_, err := s.change(ctx, now, 0, nil, nil)
	return err
}

// Change is what a change did.
type Change struct {
	Added   int   `json:"added"`
	Revoked int   `json:"revoked"`
	Clients int64 `json:"clients"` // n afterwards
	Serial  int64 `json:"serial"`
}

// change enrols and revokes clients, all of them or none, and signs the roster if something has
// changed, half of its time is over, or above is at least its serial: then the next serial is
// above that one.
func (s *Service) change(ctx context.Context, now time.Time, above int64, add []ed25519.PublicKey, revoke []wire.ID) (Change, error) {
	s.changing.Lock()
	defer s.changing.Unlock()
	for range 100 {
		st, err := s.load(ctx)
		if err != nil {
			return Change{}, err
		}
		have := &state{members: &members{}}
		if st != nil {
			have = st
		}
		next, added, revoked, err := have.members.change(add, revoke)
		if err != nil {
			return Change{}, err
		}
		if len(next.enrolled) == 0 {
			return Change{}, errEmpty
		}
		out := Change{added, revoked, int64(len(next.enrolled)), have.statement.Serial}
		old := have.statement.To-now.Unix() <= int64(s.config.Validity/time.Second)/2
		if next == have.members && !old && above < out.Serial {
			s.current.Store(have)
			return out, nil
		}
		if above > MostSerial {
			return Change{}, errAbove
		}
		out.Serial = max(out.Serial, above) + 1
		err = s.write(ctx, have, next, wire.Roster{Population: s.config.Population, Serial: out.Serial, Clients: out.Clients, Digest: next.digest(),
			From: now.Unix(), To: now.Add(s.config.Validity).Unix()})
		if errors.Is(err, store.ErrConflict) {
			continue // another process has changed it
		}
		if err != nil {
			return Change{}, err
		}
		s.metrics.added.Add(int64(added))
		s.metrics.revoked.Add(int64(revoked))
		s.metrics.signed.Add(1)
		s.config.Log.Info("roster signed", "serial", out.Serial, "clients", out.Clients, "added", added, "revoked", revoked)
		return out, nil
	}
	return Change{}, errors.New("registrar: the roster is being changed by others")
}

// MostSerial bounds the serial that a renewal may be above, so that serials never run out: others refuse
// a lower one than they have seen, for good.
const MostSerial = 1 << 53

var errAbove = fmt.Errorf("registrar: a serial of more than %d was never signed", int64(MostSerial))

// write makes a statement durable: first the members as an object, then the record that names
// them. Nobody is given a statement that is not stored. Members that no record names, after a
// crash, only take space; the same change writes them again.
func (s *Service) write(ctx context.Context, have *state, next *members, r wire.Roster) error {
	b := next.encode()
	st := &state{members: next, statement: r}
	st.record = record{recordFormat, sha256.Sum256(b), wire.Sign(s.config.Key, wire.LabelRegistrar, wire.Encode(r))}
	if st.Members != have.Members {
		if err := s.config.Store.PutObject(ctx, objectOf(st.Members), b); err != nil {
			return err
		}
	}
	value, err := json.Marshal(st.record)
	if err != nil {
		return fmt.Errorf("registrar: %v", err)
	}
	if st.revision, err = s.config.Store.Put(ctx, keyRoster, value, have.revision); err != nil {
		return err
	}
	s.current.Store(st)
	if have.Members != st.Members && have.Members != (document.Hash{}) {
		// A process that reads the old record meanwhile tries again. What stays only takes space.
		_ = s.config.Store.Delete(ctx, store.Objects, objectOf(have.Members))
	}
	return nil
}

// Find returns the key of an enrolled client.
func (s *Service) Find(id wire.ID) (ed25519.PublicKey, bool) {
	st := s.current.Load()
	if st == nil {
		return nil, false
	}
	return st.find(id)
}

// Ready returns why requests cannot be served now; nil if they can.
func (s *Service) Ready(ctx context.Context) error {
	switch {
	case !s.running.Load():
		return errors.New("registrar: not started")
	case s.current.Load() == nil:
		return errors.New("registrar: nobody is enrolled yet: riffle registrar add")
	}
	if _, err := s.config.Store.Get(ctx, keyRoster); err != nil {
		return errors.New("registrar: the store does not answer")
	}
	if s.tokens != nil {
		return s.tokens.grants.Lag()
	}
	return nil
}

// Counts are what happened since the start, and the roster's size now.
type Counts struct {
	Clients, Serial, Until          int64
	Added, Revoked, Signed, Fetched int64
	// Tokens were signed, again or for the first time, and Refused requests for tokens were refused.
	// Grants is the number of requests for tokens that were ever granted.
	Tokens, Refused, Grants int64
}

// Snapshot returns the counts.
func (s *Service) Snapshot() Counts {
	c := Counts{Added: s.metrics.added.Load(), Revoked: s.metrics.revoked.Load(), Signed: s.metrics.signed.Load(), Fetched: s.metrics.fetched.Load(), Tokens: s.metrics.tokens.Load(), Refused: s.metrics.refused.Load()}
	if s.tokens != nil {
		c.Grants = s.tokens.grants.Len()
	}
	if st := s.current.Load(); st != nil {
		c.Clients, c.Serial, c.Until = st.statement.Clients, st.statement.Serial, st.statement.To
	}
	return c
}

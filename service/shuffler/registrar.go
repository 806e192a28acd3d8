package shuffler

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// Registrar enrols the clients in place of the shuffler's operator. The newest roster that it
// signed is in the store, so that all processes on the store have it, and none goes back to an
// older one.
type Registrar struct {
	Key ed25519.PublicKey // Required.
	// Fetch returns what the registrar has signed, as wire.EncodeMembers writes it; nil if that is
	// the statement with the digest have. Required.
	Fetch func(ctx context.Context, have [32]byte) ([]byte, error)
	// Every is the time between two fetches. Default 5 s.
	Every time.Duration
}

const (
	keyRoster    = "roster"
	rosterFormat = 1
)

// takenRoster is the value of the key roster: the statement that was taken last.
type takenRoster struct {
	Format int    `json:"format"`
	Signed []byte `json:"signed"`
}

// rosterPrefix begins the names of objects that hold the clients of a roster.
const rosterPrefix = "roster/"

func rosterName(digest [32]byte) string { return rosterPrefix + hex.EncodeToString(digest[:]) }

// members is the roster that is valid now; nil before the registrar's first was taken.
func (s *Service) members() *roster { return s.current.Load() }

// enrolled returns the roster that is valid now, or a refusal if there is none yet.
func (s *Service) enrolled() (*roster, error) {
	if r := s.members(); r != nil {
		return r, nil
	}
	return nil, errUnavailable
}

// followRegistrar takes the registrar's rosters until ctx ends. What is wrong with one is logged once;
// the shuffler goes on with the roster that it has, until that one's end.
func (s *Service) followRegistrar(ctx context.Context) {
	tick := time.NewTicker(s.config.Registrar.Every)
	defer tick.Stop()
	logged := ""
	for {
		err := s.fetchRoster(ctx, time.Now())
		if err == nil {
			err = s.enrol(ctx, time.Now())
		}
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			logged = ""
		case endpoint.Cause(err) != logged:
			logged = endpoint.Cause(err)
			s.config.Log.Warn("no new roster is taken from the registrar", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// errOldRoster is wrapped if the registrar gives a roster that is older than, or contradicts, the
// one that was taken from it last.
var errOldRoster = errors.New("shuffler: the registrar's roster is not newer than the one taken last")

// fetchRoster fetches a roster, checks it and makes it durable: its clients first, then the
// statement.
func (s *Service) fetchRoster(ctx context.Context, now time.Time) error {
	var have [32]byte
	before := s.members()
	if before != nil {
		have = wire.Digest(before.statement)
	}
	b, err := s.config.Registrar.Fetch(ctx, have)
	if err != nil || b == nil {
		return err
	}
	r, signed, keys, err := wire.DecodeMembers(s.config.Registrar.Key, s.config.Population, b)
	if err != nil {
		return err
	}
	if now.Unix() >= r.To {
		return fmt.Errorf("shuffler: the registrar's roster %d has ended", r.Serial)
	}
	e, last, err := s.takenRoster(ctx)
	if err != nil {
		return err
	}
	switch {
	case r.Serial < last.Serial:
		return fmt.Errorf("%w: serial %d after %d", errOldRoster, r.Serial, last.Serial)
	case r.Serial == last.Serial && wire.Digest(r) != wire.Digest(last):
		return fmt.Errorf("%w: two statements of serial %d", errOldRoster, r.Serial)
	}
	if before == nil || r.Digest != before.digest {
		if err := s.store.PutObject(ctx, rosterName(r.Digest), slices.Concat(asBytes(keys)...)); err != nil {
			return err
		}
	}
	if r.Serial == last.Serial {
		return nil
	}
	value, err := json.Marshal(takenRoster{rosterFormat, signed})
	if err != nil {
		return fmt.Errorf("shuffler: %v", err)
	}
	if _, err := s.store.Put(ctx, keyRoster, value, e.Revision); err != nil && !errors.Is(err, store.ErrConflict) {
		return err // after a conflict the next look finds what another process has taken
	}
	return nil
}

func asBytes(keys []ed25519.PublicKey) (out [][]byte) {
	for _, k := range keys {
		out = append(out, k)
	}
	return out
}

// takenRoster reads the statement that was taken last; its serial is 0 if none was.
func (s *Service) takenRoster(ctx context.Context) (e store.Entry, r wire.Roster, err error) {
	e, err = s.store.Get(ctx, keyRoster)
	if errors.Is(err, store.ErrNotFound) {
		return store.Entry{}, wire.Roster{}, nil
	}
	if err != nil {
		return e, r, err
	}
	r, err = readTaken(s.config.Registrar.Key, s.config.Population, e.Value)
	return e, r, err
}

func readTaken(key ed25519.PublicKey, p wire.ID, value []byte) (r wire.Roster, err error) {
	var t takenRoster
	if err = document.Decode(value, rosterFormat, &t); err == nil {
		r, err = wire.VerifyRoster(key, p, t.Signed)
	}
	if err != nil {
		return r, fmt.Errorf("shuffler: the stored roster: %w", err)
	}
	return r, nil
}

// readRoster brings the roster in memory up to date with the store.
func (s *Service) readRoster(ctx context.Context) error {
	if s.config.Registrar == nil {
		return nil
	}
	s.reading.Lock()
	defer s.reading.Unlock()
	e, r, err := s.takenRoster(ctx)
	if err != nil || r.Serial == 0 {
		return err
	}
	have := s.members()
	if have != nil && have.statement.Serial >= r.Serial {
		return nil
	}
	var t takenRoster
	if err := document.Decode(e.Value, rosterFormat, &t); err != nil {
		return err
	}
	next := have
	if have == nil || have.digest != r.Digest {
		if next, err = s.loadRoster(ctx, r.Digest); err != nil {
			return err
		}
		next.inherit(have)
	} else {
		next = have.clone()
	}
	next.statement, next.signed = r, t.Signed
	s.current.Store(next) // from here on no report of a client who was revoked is taken
	s.config.Log.Info("roster taken", "serial", r.Serial, "clients", r.Clients)
	return nil
}

// loadRoster reads the clients of a roster from the store.
func (s *Service) loadRoster(ctx context.Context, digest [32]byte) (*roster, error) {
	return readMembers(ctx, s.store, digest)
}

func readMembers(ctx context.Context, from interface {
	GetObject(ctx context.Context, name string) ([]byte, error)
}, digest [32]byte) (*roster, error) {
	b, err := from.GetObject(ctx, rosterName(digest))
	if err != nil {
		return nil, err
	}
	r, err := newRoster(b)
	if err == nil && r.digest != digest {
		err = errors.New("shuffler: a stored roster is not what its name says")
	}
	return r, err
}

var errRosterGone = errors.New("shuffler: the roster has changed since the round was opened")

// rosterOf returns the roster with a digest: the one that is valid now, that of an open round, or
// one from the store.
func (s *Service) rosterOf(ctx context.Context, digest [32]byte) (*roster, error) {
	if now := s.members(); now != nil && now.digest == digest {
		return now, nil
	}
	if s.config.Registrar == nil {
		return nil, errRosterGone
	}
	for _, r := range s.live() {
		if r.roster.digest == digest {
			return r.roster, nil
		}
	}
	return s.loadRoster(ctx, digest)
}

// dropEvery is the time between two looks for rosters that nothing needs.
const dropEvery = 30 * time.Second

// dropRosters deletes the rosters that nothing needs any more: not valid now, of no open round and
// of no epoch. A round that is being opened checks after its mark is stored that its roster is
// still valid, so either its mark is found here, or it is not opened.
func (s *Service) dropRosters(ctx context.Context, now time.Time) error {
	if s.config.Registrar == nil || s.config.FrontendOnly || now.Before(s.dropNext) {
		return nil
	}
	s.dropNext = now.Add(dropEvery)
	names, err := s.store.List(ctx, store.Objects, rosterPrefix)
	if err != nil || len(names) < 2 {
		return err
	}
	_, valid, err := s.takenRoster(ctx) // after the list: a roster that is being taken is not in it, or valid
	if err != nil {
		return err
	}
	needed := map[string]bool{rosterName(valid.Digest): true}
	marks, err := s.store.List(ctx, store.Values, keyOpen(""))
	if err != nil {
		return err
	}
	for _, mark := range marks {
		rec, err := s.loadRecord(ctx, strings.TrimPrefix(mark, keyOpen("")))
		if err != nil {
			return gone(err) // it is being opened: look again later
		}
		needed[rosterName(rec.Roster)] = true
	}
	epochs, err := s.store.List(ctx, store.Values, "epoch.")
	if err != nil {
		return err
	}
	for _, key := range epochs {
		var e epoch
		if _, err := s.getJSON(ctx, key, &e); err != nil {
			return err
		}
		needed[rosterName(e.Roster)] = true
	}
	for _, name := range names {
		if !needed[name] && !s.dropping[name] {
			// Another process may be taking it: it is deleted only if it is still here and not
			// needed the next time.
			s.dropping[name] = true
		} else if !needed[name] {
			delete(s.dropping, name)
			if err := gone(s.store.Delete(ctx, store.Objects, name)); err != nil {
				return err
			}
		}
	}
	maps.DeleteFunc(s.dropping, func(name string, _ bool) bool { return needed[name] })
	return nil
}

// stillEnrolled counts the clients of a round's roster that are enrolled now.
func (s *Service) stillEnrolled(ctx context.Context, digest [32]byte) (int64, error) {
	if err := s.readRoster(ctx); err != nil {
		return 0, err
	}
	now, err := s.enrolled()
	if err != nil {
		return 0, err
	}
	then, err := s.rosterOf(ctx, digest)
	if err != nil {
		return 0, err
	}
	return int64(common(then.ids, now.ids)), nil
}

// common counts the ids in both of two ascending lists.
func common(a, b []wire.ID) (n int) {
	for len(a) > 0 && len(b) > 0 {
		switch c := bytes.Compare(a[0][:], b[0][:]); {
		case c < 0:
			a = a[1:]
		case c > 0:
			b = b[1:]
		default:
			n, a, b = n+1, a[1:], b[1:]
		}
	}
	return n
}

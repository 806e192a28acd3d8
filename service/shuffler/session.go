package shuffler

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// A client proves once by its signature who it is, and gets a session: a key that
// authenticates its reports until the session ends. Nothing of it is stored. The key is a
// function of the client, the session's end and a master secret, which all sessions of one
// end have in common. The end follows from the day that the client's request names, so
// that a repeated request gets the same session and tells nothing new.

// Times of sessions. They end at multiples of sessionDay, and last at least for the longest
// round and sessionSpare, though a client's clock may differ by sessionSkew.
const (
	sessionDay   = 24 * time.Hour
	sessionSkew  = time.Hour
	sessionSpare = time.Hour
)

// sessionEnd returns the end of a session that a client asked for at the time asked; both are
// in Unix seconds.
func (s *Service) sessionEnd(asked int64) int64 {
	const day = int64(sessionDay / time.Second)
	least := asked + int64((s.config.Limits.MaxDuration+sessionSkew+sessionSpare)/time.Second)
	return (least/day + 1) * day
}

const masterPrefix = "session-"

func masterName(end int64) string { return masterPrefix + strconv.FormatInt(end, 10) }

// master makes the keys of the sessions that end at one time.
type master struct {
	macs   sync.Pool       // pool of hash.Hash keyed with the secret
	ticket [32]byte        // seals tickets of TLS
	relay  wire.SessionKey // makes passes for the relay
}

func newMaster(secret []byte) *master {
	m := &master{macs: sync.Pool{New: func() any { return hmac.New(sha256.New, secret) }}}
	derive := func(into []byte, label string) {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(label))
		h.Sum(into[:0])
	}
	derive(m.ticket[:], labelTicketKey)
	derive(m.relay[:], labelRelayKey)
	return m
}

const (
	labelSessionKey = "riffle/1 session key\x00"
	labelTicketKey  = "riffle/1 TLS ticket key\x00"
	labelRelayKey   = "riffle/1 relay key\x00"
	labelRelayNonce = "riffle/1 relay nonce\x00"
)

// TicketKeys returns the keys of TLS tickets, as [endpoint.ServerConfig] wants them: a key of each
// master secret, first that of the sessions that are given out now. So all processes on the
// store resume each other's connections, and the keys change and are destroyed as the masters.
// There are none before Run has read the masters.
func (s *Service) TicketKeys() [][32]byte {
	known := s.masters.known.Load()
	if known == nil {
		return nil
	}
	ends, now := slices.Sorted(maps.Keys(*known)), s.sessionEnd(time.Now().Unix())
	if i := slices.Index(ends, now); i > 0 {
		ends[0], ends[i] = ends[i], ends[0]
	}
	keys := make([][32]byte, len(ends))
	for i, end := range ends {
		keys[i] = (*known)[end].ticket
	}
	return keys
}

// of returns the HMAC-SHA-256 of a label, the population, the client and a number, all of
// fixed length.
func (m *master) of(label string, p wire.ID, c wire.ID, number int64) (sum [sha256.Size]byte) {
	h := m.macs.Get().(hash.Hash)
	defer m.macs.Put(h)
	h.Reset()
	var room [96]byte
	b := append(room[:0], label...)
	b = append(append(b, p[:]...), c[:]...)
	h.Write(binary.LittleEndian.AppendUint64(b, uint64(number)))
	h.Sum(sum[:0])
	return sum
}

// key returns the key of a client's session with the given end.
func (m *master) key(p wire.ID, c wire.ID, end int64) wire.SessionKey {
	return m.of(labelSessionKey, p, c, end)
}

// passes returns a client's passes for the relay, from the day of a request on until the session ends. They are a
// function of client and day, so that asking again gives no further ones, and the relay cannot tell that
// those of two days are one client's.
func (m *master) passes(p wire.ID, c wire.ID, asked, end int64) []wire.ID {
	first := asked / wire.PassDay
	all := make([]wire.ID, min(end/wire.PassDay-first, wire.MaxPasses))
	for i := range all {
		day := first + int64(i)
		nonce := m.of(labelRelayNonce, p, c, day)
		all[i] = m.relay.RelayPass(day, [8]byte(nonce[:8]))
	}
	return all
}

// masters is this process's cache of the store's master secrets.
type masters struct {
	known  atomic.Pointer[map[int64]*master] // masters by their sessions' end; the map never changes, it is replaced
	mu     sync.Mutex                        // held to replace known; guards missed
	missed time.Time                         // when the store was last searched for an unknown master
}

func (m *masters) get(end int64) *master {
	if known := m.known.Load(); known != nil {
		return (*known)[end]
	}
	return nil
}

// set adds a master, or removes it if it is nil. The caller holds the lock.
func (m *masters) set(end int64, one *master) {
	next := map[int64]*master{}
	if known := m.known.Load(); known != nil {
		next = maps.Clone(*known)
	}
	if one == nil {
		delete(next, end)
	} else {
		next[end] = one
	}
	m.known.Store(&next)
}

// loadMaster reads a master from the store and caches it. The caller holds the lock.
func (s *Service) loadMaster(ctx context.Context, end int64) (*master, error) {
	secret, err := s.store.Secret(ctx, masterName(end))
	if err != nil {
		return nil, err
	}
	if len(secret) != sha256.Size {
		return nil, fmt.Errorf("shuffler: a session secret of %d bytes, want %d", len(secret), sha256.Size)
	}
	one := newMaster(secret)
	s.masters.set(end, one)
	return one, nil
}

// startMasters is keepMasters for a process whose cache is empty.
func (s *Service) startMasters(ctx context.Context, now time.Time) error {
	s.masters.mu.Lock()
	err := s.findMasters(ctx)
	s.masters.mu.Unlock()
	if err != nil {
		return err
	}
	return s.keepMasters(ctx, now)
}

// keepMasters makes the masters of all sessions that can be asked for within the next day,
// so that every process on the store knows them in time, and destroys those of sessions
// that are over.
func (s *Service) keepMasters(ctx context.Context, now time.Time) error {
	m := &s.masters
	m.mu.Lock()
	defer m.mu.Unlock()
	last := s.sessionEnd(now.Add(sessionSkew + sessionDay).Unix())
	for end := s.sessionEnd(now.Add(-sessionSkew).Unix()); end <= last; end += int64(sessionDay / time.Second) {
		if m.get(end) != nil {
			continue
		}
		_, err := s.loadMaster(ctx, end)
		if errors.Is(err, store.ErrNotFound) {
			secret := make([]byte, sha256.Size)
			rand.Read(secret) // never fails
			if err := s.store.PutSecret(ctx, masterName(end), secret); err != nil && !errors.Is(err, store.ErrExists) {
				return err
			}
			_, err = s.loadMaster(ctx, end) // another process may have been first
		}
		if err != nil {
			return err
		}
	}
	for end := range *m.known.Load() {
		if over(end, now) {
			if err := gone(s.store.Delete(ctx, store.Secrets, masterName(end))); err != nil {
				return err
			}
			m.set(end, nil)
		}
	}
	return nil
}

// over says whether a session that ends at end is past its use: no process takes reports with
// it any more.
func over(end int64, now time.Time) bool { return now.Unix() >= end+int64(sessionSpare/time.Second) }

// findMasters reads all masters in the store, also those of a process that allows longer
// rounds. The caller holds the lock.
func (s *Service) findMasters(ctx context.Context) error {
	names, err := s.store.List(ctx, store.Secrets, masterPrefix)
	if err != nil {
		return err
	}
	for _, name := range names {
		end, err := strconv.ParseInt(strings.TrimPrefix(name, masterPrefix), 10, 64)
		if err != nil || masterName(end) != name {
			return fmt.Errorf("shuffler: the store has a secret %q", name)
		}
		if s.masters.get(end) != nil {
			continue
		}
		// Half-created or half-destroyed secrets count as missing.
		if _, err := s.loadMaster(ctx, end); gone(err) != nil {
			return err
		}
	}
	return nil
}

// masterPause is the least time between two searches for unknown masters, so that invented
// sessions do not cost a read of the store each.
const masterPause = time.Second

// sessionKey returns the key of a client's session with the given end.
func (s *Service) sessionKey(ctx context.Context, c wire.ID, end int64, now time.Time) (wire.SessionKey, error) {
	if now.Unix() >= end {
		return wire.SessionKey{}, errExpired
	}
	one := s.masters.get(end)
	if one == nil {
		var err error
		if one, err = s.lookForMaster(ctx, end, now); err != nil {
			return wire.SessionKey{}, err
		}
	}
	return one.key(s.config.Population, c, end), nil
}

var (
	errExpired = pure.Refuse(wire.Expired, "")
	errMAC     = pure.Refuse(wire.BadSignature, "")
)

// lookForMaster looks in the store for a master that this process does not know: a process
// that allows longer rounds may have made it.
func (s *Service) lookForMaster(ctx context.Context, end int64, now time.Time) (*master, error) {
	if end%int64(sessionDay/time.Second) != 0 {
		return nil, errMAC
	}
	m := &s.masters
	if !m.mu.TryLock() {
		return nil, errUnavailable // another request is looking: the client may try again
	}
	defer m.mu.Unlock()
	if one := m.get(end); one != nil {
		return one, nil
	}
	if now.Sub(m.missed) < masterPause {
		return nil, errUnavailable
	}
	m.missed = now
	// The context is not the request's context, because other requests need the result too.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if err := s.findMasters(ctx); err != nil {
		return nil, err
	}
	if one := m.get(end); one != nil {
		return one, nil
	}
	return nil, errMAC
}

// serveSession answers a client's signed request with its session.
func (s *Service) serveSession(w http.ResponseWriter, r *http.Request) {
	body, ok := endpoint.ReadBody(w, r, maxSmall)
	if !ok {
		return
	}
	session, err := s.session(r.Context(), body, time.Now())
	if err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	writeBytes(w, session)
}

// session returns a session that is sealed to the client, so that a proxy that ends the
// TLS connection does not get it.
func (s *Service) session(ctx context.Context, signed []byte, now time.Time) ([]byte, error) {
	if !s.running.Load() {
		return nil, errNotRunning
	}
	if len(signed) < 64 {
		return nil, pure.Refuse(wire.Malformed, "no signed request")
	}
	m, err := wire.Decode[wire.SessionRequest](signed[64:])
	if err != nil {
		return nil, pure.Refuse(wire.Malformed, "no request of this version")
	}
	members, err := s.enrolled()
	if err != nil {
		return nil, err
	}
	_, public, ok := members.find(m.Client)
	if !ok || m.Population != s.config.Population {
		return nil, pure.Refuse(wire.NotEnrolled, "")
	}
	if _, err := wire.Verify(public, wire.LabelSession, signed); err != nil {
		return nil, pure.Refuse(wire.BadSignature, "")
	}
	if d := m.Time - now.Unix(); d > int64(sessionSkew/time.Second) || d < -int64(sessionSkew/time.Second) {
		return nil, pure.Refuse(wire.Expired, "the clocks differ by more than %v", sessionSkew)
	}
	end := s.sessionEnd(m.Time)
	key, err := s.sessionKey(ctx, m.Client, end, now)
	if errors.Is(err, errMAC) {
		// This process's clock has jumped; keepMasters will make the master.
		err = errUnavailable
	}
	if err != nil {
		return nil, err
	}
	endpoint.Prove(ctx, endpoint.Client(m.Client))
	s.noteSession(m.Client, end)
	answer := wire.Session{Expires: end, Key: key, Taken: s.takenOf(ctx, m.Client, now)}
	if one := s.masters.get(end); one != nil && s.config.Relay {
		answer.Passes = one.passes(m.Population, m.Client, m.Time, end)
	}
	sealed, err := envelope.SealSession(m, answer)
	if err != nil {
		return nil, pure.Refuse(wire.Malformed, "nothing can be sealed to the key of the request")
	}
	return sealed, nil
}

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease makes one holder at a time do a piece of work. A holder that stalls
// beyond its ttl may find another at work when it wakes: a lease alone does not
// exclude that. What must not be done twice is therefore written under the
// lease's token, by compare-and-swap on what an earlier token left.
//
// Lease and Appender are interfaces, so that a Store satisfies the interfaces that the roles
// define, and tests can put something else in its place.
type Lease interface {
	// Renew extends the lease by its ttl from now. It returns ErrLost if another holder has
	// it, and from then on always. After other errors the caller may try again while the ttl
	// lasts.
	Renew(ctx context.Context) error
	// Release gives the lease up, so that the next holder need not wait.
	Release(ctx context.Context) error
}

type lease struct {
	s      *Store
	name   string
	holder string
	ttl    time.Duration
	token  uint64

	mu       sync.Mutex
	revision uint64
	lost     bool
}

type leaseRecord struct {
	Holder  string        `json:"holder"` // empty: the lease is free
	Session string        `json:"session"`
	TTL     time.Duration `json:"ttl"`
	Token   uint64        `json:"token,omitempty"` // the holder's fencing token; 0 in its first record
}

// Acquire waits for the lease until ctx ends, and then returns ErrHeld with the holder's
// name. A waiter takes a lease over when its record has not changed for its ttl by the
// waiter's own clock, so clocks need not agree. A lease from an earlier opening of an
// embedded store is free at once, because its holder is gone.
//
// The fencing token grows from holder to holder, over restarts and migrations, and stays the
// same through renewals.
func (s *Store) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (_ Lease, token uint64, err error) {
	var seen observation
	for {
		l, err := s.take(ctx, name, holder, ttl, &seen)
		switch {
		case err == nil:
			return l, l.token, nil
		case ctx.Err() != nil && seen.by != "":
			return nil, 0, fmt.Errorf("store: lease %s: %w by %s: %w", name, ErrHeld, seen.by, ctx.Err())
		case errors.Is(err, ErrConflict):
			continue
		case !errors.Is(err, ErrHeld):
			return nil, 0, err
		}
		if !sleep(ctx, min(max(seen.ttl/10, 5*time.Millisecond), 500*time.Millisecond)) {
			return nil, 0, fmt.Errorf("store: lease %s: %w by %s: %w", name, ErrHeld, seen.by, ctx.Err())
		}
	}
}

// TryAcquire takes the lease if it is free, and else returns ErrHeld at once. It remembers when
// it saw a holder's record first, so a lease whose holder is gone is free to who tries again
// after its ttl.
func (s *Store) TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (_ Lease, token uint64, err error) {
	s.mu.Lock()
	seen := s.tried[name]
	s.mu.Unlock()
	l, err := s.take(ctx, name, holder, ttl, &seen)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		delete(s.tried, name)
		return l, l.token, nil
	case errors.Is(err, ErrConflict):
		err = fmt.Errorf("store: lease %s: %w by another that took it now", name, ErrHeld)
	case errors.Is(err, ErrHeld):
		for other, o := range s.tried {
			if len(s.tried) >= mostTried && time.Since(o.last) > 2*o.ttl {
				delete(s.tried, other) // nobody tries it any more
			}
		}
		s.tried[name] = seen
	}
	return nil, 0, err
}

// mostTried is the number of leases that TryAcquire remembers before it looks for some to forget.
const mostTried = 1024

// observation is what was seen of a lease that another holds.
type observation struct {
	revision uint64
	since    time.Time // when this revision was seen first
	last     time.Time // when the lease was looked at last
	by       string
	ttl      time.Duration
}

// take looks at the lease once. It returns ErrHeld if another has it, and ErrConflict if another
// took it at the same time.
func (s *Store) take(ctx context.Context, name, holder string, ttl time.Duration, seen *observation) (*lease, error) {
	if err := checkKey(name); err != nil {
		return nil, err
	}
	if holder == "" || ttl <= 0 {
		return nil, fmt.Errorf("store: lease %s: a holder and a ttl above 0 are required", name)
	}
	begin := time.Now()
	e, err := s.get(ctx, "l."+name)
	var r leaseRecord
	switch {
	case errors.Is(err, ErrNotFound):
	case err != nil:
		return nil, err
	default:
		if err := strictJSON(e.Value, &r); err != nil {
			return nil, fmt.Errorf("store: lease %s: %w", name, err)
		}
		if e.Revision != seen.revision {
			seen.revision, seen.since = e.Revision, begin
		}
	}
	seen.last = begin
	dead := s.server != nil && r.Session != s.session
	if r.Holder != "" && !dead && begin.Sub(seen.since) < r.TTL {
		seen.by, seen.ttl = r.Holder, r.TTL
		return nil, fmt.Errorf("store: lease %s: %w by %s", name, ErrHeld, r.Holder)
	}
	l := &lease{s: s, name: name, holder: holder, ttl: ttl}
	rev, err := l.write(ctx, leaseRecord{Holder: holder, Session: s.session, TTL: ttl}, e.Revision)
	if err != nil {
		return nil, err
	}
	l.token, l.revision = rev, rev
	return l, nil
}

func (l *lease) write(ctx context.Context, r leaseRecord, revision uint64) (uint64, error) {
	done, err := l.s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	data, err := json.Marshal(r)
	if err != nil {
		return 0, fmt.Errorf("store: lease: %w", err)
	}
	return l.s.put(ctx, "l."+l.name, data, revision)
}

func (l *lease) Renew(ctx context.Context) error {
	return l.next(ctx, leaseRecord{Holder: l.holder, Session: l.s.session, TTL: l.ttl, Token: l.token}, false)
}

func (l *lease) Release(ctx context.Context) error {
	return l.next(ctx, leaseRecord{Session: l.s.session, TTL: l.ttl, Token: l.token}, true)
}

func (l *lease) next(ctx context.Context, r leaseRecord, last bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lost {
		return fmt.Errorf("store: lease %s of %s: %w", l.name, l.holder, ErrLost)
	}
	rev, err := l.write(ctx, r, l.revision)
	if errors.Is(err, ErrConflict) {
		l.lost = true
		return fmt.Errorf("store: lease %s of %s: %w", l.name, l.holder, ErrLost)
	}
	if err != nil {
		return err
	}
	l.revision, l.lost = rev, last
	return nil
}

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
	if err := checkKey(name); err != nil {
		return nil, 0, err
	}
	if holder == "" || ttl <= 0 {
		return nil, 0, fmt.Errorf("store: lease %s: a holder and a ttl above 0 are required", name)
	}
	var seen uint64
	var since time.Time
	var by string
	for {
		begin := time.Now()
		e, err := s.get(ctx, "l."+name)
		var r leaseRecord
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil && ctx.Err() != nil && by != "":
			return nil, 0, fmt.Errorf("store: lease %s: %w by %s: %w", name, ErrHeld, by, ctx.Err())
		case err != nil:
			return nil, 0, err
		default:
			if err := strictJSON(e.Value, &r); err != nil {
				return nil, 0, fmt.Errorf("store: lease %s: %w", name, err)
			}
			if e.Revision != seen {
				seen, since = e.Revision, begin
			}
		}
		dead := s.server != nil && r.Session != s.session
		if r.Holder == "" || dead || begin.Sub(since) >= r.TTL {
			l := &lease{s: s, name: name, holder: holder, ttl: ttl}
			rev, err := l.write(ctx, leaseRecord{Holder: holder, Session: s.session, TTL: ttl}, e.Revision)
			if err == nil {
				l.token, l.revision = rev, rev
				return l, rev, nil
			}
			if !errors.Is(err, ErrConflict) {
				return nil, 0, err
			}
			continue
		}
		by = r.Holder
		if !sleep(ctx, min(max(r.TTL/10, 5*time.Millisecond), 500*time.Millisecond)) {
			return nil, 0, fmt.Errorf("store: lease %s: %w by %s: %w", name, ErrHeld, by, ctx.Err())
		}
	}
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

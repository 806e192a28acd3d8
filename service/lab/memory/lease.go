package memory

import (
	"context"
	"errors"
	"time"

	"github.com/riffle-dp/riffle/service/store"
)

// Lease is a lease that is held, or was.
type Lease struct {
	s       *Store
	name    string
	ttl     time.Duration
	expires time.Time
}

func (s *Store) TryAcquire(_ context.Context, name, _ string, ttl time.Duration) (_ store.Lease, token uint64, err error) {
	var l *Lease
	err = s.do("acquire", func() error {
		if now := s.Leases[name]; now != nil && time.Now().Before(now.expires) {
			return store.ErrHeld
		}
		s.next++
		token = s.next
		l = &Lease{s, name, ttl, time.Now().Add(ttl)}
		s.Leases[name] = l
		return nil
	})
	return l, token, err
}

// Acquire looks for a lease again and again, each ten milliseconds.
func (s *Store) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, uint64, error) {
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		l, token, err := s.TryAcquire(ctx, name, holder, ttl)
		if !errors.Is(err, store.ErrHeld) {
			return l, token, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, 0, ctx.Err()
		}
	}
}

// set moves the end of a lease that is still held.
func (l *Lease) set(op string, expires time.Time) error {
	return l.s.do(op, func() error {
		if l.s.Leases[l.name] != l {
			return store.ErrLost
		}
		l.expires = expires
		return nil
	})
}

// Renew and Release are as of a store.Lease.
func (l *Lease) Renew(context.Context) error { return l.set("renew", time.Now().Add(l.ttl)) }

func (l *Lease) Release(context.Context) error { return l.set("release", time.Time{}) }

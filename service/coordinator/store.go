package coordinator

import (
	"context"
	"errors"
	"time"
)

// Errors of a Store.
var (
	ErrNotFound = errors.New("coordinator: not found in the store")
	// ErrConflict is wrapped by a write that found another value than it expected.
	ErrConflict = errors.New("coordinator: changed by another")
	// ErrLost is wrapped where a lease went to another holder.
	ErrLost = errors.New("coordinator: lease is lost")
)

// Store keeps tasks, models and who leads. What returned nil is durable; after an
// error that wraps none of the above it is not known whether it was written. Safe
// for concurrent use. Keys hold letters, digits, dots and dashes.
type Store interface {
	// Get returns a key's value and its revision, which is above 0.
	Get(ctx context.Context, key string) (value []byte, revision uint64, err error)
	// Put replaces the value of a revision, 0 for a key that has none.
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// PutObject stores data under a name that says what it is: the same name is
	// never given other data.
	PutObject(ctx context.Context, name string, data []byte) error
	GetObject(ctx context.Context, name string) ([]byte, error)
	DeleteObject(ctx context.Context, name string) error
	// Acquire waits for a lease until ctx ends.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (Lease, error)
}

// Lease is the right to run a task, for a time.
type Lease interface {
	Token() uint64 // grows from holder to holder
	Renew(ctx context.Context) error
	Release(ctx context.Context) error
}

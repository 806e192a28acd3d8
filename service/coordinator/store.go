package coordinator

import (
	"context"
	"time"

	"github.com/riffle-dp/riffle/service/store"
)

// storage keeps tasks, models and the leader's lease; it is a *store.Store, except in tests.
// A write that returned nil is durable. Errors are those of package store; after any other
// error it is not known whether the data was written. Safe for concurrent use.
type storage interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// PutObject stores data under a name that says what it is: the same name is
	// never given other data.
	PutObject(ctx context.Context, name string, data []byte) error
	GetObject(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, k store.Kind, name string) error
	List(ctx context.Context, k store.Kind, prefix string) ([]string, error)
	// Acquire waits for a lease until ctx ends.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (_ store.Lease, token uint64, err error)
}

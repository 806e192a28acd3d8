package shuffler

import (
	"context"
	"iter"
	"time"

	"github.com/riffle-dp/riffle/service/store"
)

// storage is where the service keeps its state: a *store.Store, except in tests. Writes are
// durable on return, errors are those of package store, and several goroutines and processes
// may use it.
type storage interface {
	values
	secrets
	streams
	// Acquire waits for a lease until ctx ends.
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, error)
}

// values are small, with compare-and-swap.
type values interface {
	Get(ctx context.Context, key string) (store.Entry, error)
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	DeleteKey(ctx context.Context, key string, revision uint64) error
	Keys(ctx context.Context, prefix string) ([]string, error)
}

// secrets can be destroyed.
type secrets interface {
	PutSecret(ctx context.Context, name string, value []byte) error
	Secret(ctx context.Context, name string) ([]byte, error)
	DestroySecret(ctx context.Context, name string) error
	Secrets(ctx context.Context, prefix string) ([]string, error)
}

// streams are append-only.
type streams interface {
	CreateStream(ctx context.Context, name string, c store.StreamConfig) error
	DeleteStream(ctx context.Context, name string) error
	ListStreams(ctx context.Context, prefix string) ([]string, error)
	StreamInfo(ctx context.Context, name string) (store.StreamInfo, error)
	Append(ctx context.Context, stream, msgID, suffix string, data []byte, o store.AppendOptions) (uint64, error)
	Read(ctx context.Context, stream, filter string, from uint64) iter.Seq2[store.Message, error]
	// NewAppender returns a writer for one goroutine that does not wait for each message.
	NewAppender(stream string) store.Appender
}

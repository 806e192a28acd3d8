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
	// Get and Put are of small values, with compare-and-swap.
	Get(ctx context.Context, key string) (store.Entry, error)
	Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error)
	// Secrets can be destroyed, by Delete.
	PutSecret(ctx context.Context, name string, value []byte) error
	Secret(ctx context.Context, name string) ([]byte, error)
	// Streams are append-only. The appender that CreateStream returns is for one goroutine and
	// does not wait for each message.
	CreateStream(ctx context.Context, name string) (store.Appender, error)
	StreamSize(ctx context.Context, name string) (bytes, last uint64, err error)
	Append(ctx context.Context, stream, msgID, suffix string, data []byte) (uint64, error)
	Read(ctx context.Context, stream, filter string, from uint64) iter.Seq2[store.Message, error]
	// A barrier is the one message of a stream that has its suffix; see store.AppendOnce.
	AppendOnce(ctx context.Context, stream, suffix string, data []byte) (uint64, error)
	Before(ctx context.Context, stream, suffix string, place uint64) (bool, error)
	ReadTo(ctx context.Context, stream string, to uint64, filters ...string) iter.Seq2[store.Message, error]

	// Objects are large; they are the rosters that a registrar has signed, and counts.
	PutObject(ctx context.Context, name string, data []byte) error
	GetObject(ctx context.Context, name string) ([]byte, error)
	List(ctx context.Context, k store.Kind, prefix string) ([]string, error)
	Delete(ctx context.Context, k store.Kind, name string) error
	// TryAcquire takes a lease, or fails with store.ErrHeld.
	TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (_ store.Lease, token uint64, err error)
}

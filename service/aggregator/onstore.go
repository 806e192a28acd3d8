package aggregator

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/service/store"
)

// OnStore is the Store that a deployment uses.
func OnStore(s *store.Store) Store { return onStore{s} }

type onStore struct{ s *store.Store }

// ours adds this package's errors to a store's.
func ours(err error) error {
	switch {
	case errors.Is(err, store.ErrNotFound):
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists):
		return fmt.Errorf("%w: %w", ErrConflict, err)
	}
	return err
}

func (o onStore) Get(ctx context.Context, key string) ([]byte, uint64, error) {
	e, err := o.s.Get(ctx, key)
	return e.Value, e.Revision, ours(err)
}

func (o onStore) Put(ctx context.Context, key string, value []byte, revision uint64) (n uint64, err error) {
	if revision == 0 {
		n, err = o.s.CreateKey(ctx, key, value)
	} else {
		n, err = o.s.UpdateKey(ctx, key, value, revision)
	}
	return n, ours(err)
}

func (o onStore) PutObject(ctx context.Context, name string, data []byte) error {
	_, err := o.s.PutObject(ctx, name, bytes.NewReader(data))
	return ours(err)
}

func (o onStore) GetObject(ctx context.Context, name string) ([]byte, error) {
	b, err := o.s.GetObject(ctx, name)
	return b, ours(err)
}

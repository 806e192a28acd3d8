package batch

import (
	"context"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Feed reads a batch ahead of a consumer that takes its parts in their order, some at a time.
type Feed[T any] struct {
	parts  chan T
	cancel context.CancelFunc
	done   chan struct{}
	err    error // of the reading; set when done is closed
}

// NewFeed begins to read, up to ahead parts before they are taken. open is called as by Read and
// returns one result for each part of the chunk. The caller must Close the feed.
func NewFeed[T any](ctx context.Context, r Reader, ahead int, open func(worker int, c wire.Chunk) ([]T, error)) *Feed[T] {
	ctx, cancel := context.WithCancel(ctx)
	f := &Feed[T]{parts: make(chan T, max(1, ahead)), cancel: cancel, done: make(chan struct{})}
	then := func(place int64, c wire.Chunk, opened []T) error {
		if len(opened) != c.Len() || place+int64(len(opened)) > r.items() {
			return fmt.Errorf("%w: more than the %d parts that were signed", ErrLie, r.items())
		}
		for _, p := range opened {
			select {
			case f.parts <- p:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	}
	go func() {
		defer close(f.done)
		f.err = Read(ctx, r, open, then)
	}()
	return f
}

// Take returns the next n parts. After an error the feed has no further use.
func (f *Feed[T]) Take(ctx context.Context, n int) ([]T, error) {
	out := make([]T, 0, n)
	for len(out) < n {
		select {
		case p := <-f.parts:
			out = append(out, p)
			continue
		default:
		}
		select {
		case p := <-f.parts:
			out = append(out, p)
		case <-f.done:
			if len(f.parts) > 0 {
				continue
			}
			if f.err != nil {
				return nil, f.err
			}
			return nil, errors.New("batch: there are no further parts")
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return out, nil
}

// End waits until the batch was read, after all its parts were taken. Without an error they
// were those that were signed, and no others.
func (f *Feed[T]) End(ctx context.Context) error {
	select {
	case <-f.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if f.err == nil && len(f.parts) > 0 {
		return errors.New("batch: parts are left")
	}
	return f.err
}

// Close ends the reading, and waits until it has ended.
func (f *Feed[T]) Close() {
	f.cancel()
	<-f.done
}

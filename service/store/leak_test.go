package store

import (
	"context"
	"testing"

	"go.uber.org/goleak"
)

// cancelling is a reader whose first Read ends the write's context.
type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "part"), nil
}

// An object's write that is cut short leaves nothing running and nothing stored.
func TestCutObjectLeavesNothing(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	s, err := Open(t.Context(), c)
	must(t, err)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.putObject(ctx, "cut", cancelling{cancel})
		is(t, err, context.Canceled)
	}
	_, err = s.GetObject(t.Context(), "cut")
	is(t, err, ErrNotFound)
	closed(t, s)
	goleak.VerifyNone(t)
}

// A store that is closed right after a write is left by everything that the
// write started.
func TestCloseAfterWriteLeavesNothing(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	for i := range 10 {
		s, err := Open(t.Context(), c)
		must(t, err)
		if i == 0 {
			must(t, s.createStream(t.Context(), "log", streamConfig{}))
		}
		must(t, s.appender("log").Append(t.Context(), "", "", []byte("last")))
		closed(t, s)
	}
	goleak.VerifyNone(t)
}

package store

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Errors that callers branch on.
var (
	ErrExists    = errors.New("exists already")
	ErrConflict  = errors.New("was changed by another")
	ErrNotFound  = errors.New("not found")
	ErrNoLedger  = errors.New("missing ledger: refusing; only `riffle init` creates one")
	ErrSealed    = errors.New("store is sealed")
	ErrClustered = errors.New("directory was used by a cluster")
	ErrLocked    = errors.New("directory is open in another process")
	ErrNewer     = errors.New("format is newer than this program")
	ErrLost      = errors.New("lease lost")
	ErrHeld      = errors.New("lease is held")
	ErrDamaged   = errors.New("store is damaged")
	ErrTooLarge  = errors.New("too large")
	// ErrFull means that there was no space and that nothing was acknowledged. After a full
	// disk an embedded store takes no writes until it is opened again.
	ErrFull = errors.New("no space left in the store")
	// ErrUnavailable means that no answer came in time. The write may or may not have been
	// stored.
	ErrUnavailable = errors.New("store does not answer")
)

// ErrNoStore is the ErrNotFound for a whole store.
var ErrNoStore = fmt.Errorf("%w: this is not its place, or it was lost; only `riffle init` makes one, for a new population", ErrNotFound)

// JetStream error codes that its client does not name.
const (
	codeAccountFull    = 10002
	codeNoPeers        = 10005
	codeNotAvailable   = 10008
	codeNotLeader      = 10009
	codeInsufficient   = 10023
	codeStorageFull    = 10047
	codeSequence       = 10063
	codeStoreFailed    = 10077
	codeTooManyPending = 10167
)

// fail adds what failed to the broker's error, and maps it to an error of this package.
func (s *Store) fail(what string, err error) error {
	if err == nil {
		return nil
	}
	for _, known := range []error{ErrNotFound, ErrConflict, ErrExists, ErrFull, ErrUnavailable, ErrNoLedger, ErrSealed, ErrTooLarge} {
		if errors.Is(err, known) {
			return err
		}
	}
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeAccountFull, codeInsufficient, codeStorageFull:
			return fmt.Errorf("store: %s: %w (%s)", what, ErrFull, api.Description)
		case codeStoreFailed:
			text := strings.ToLower(api.Description)
			if strings.Contains(text, "space") || strings.Contains(text, "maximum bytes") || strings.Contains(text, "resource") {
				return fmt.Errorf("store: %s: %w (%s)", what, ErrFull, api.Description)
			}
		case jetstream.JSErrCodeStreamWrongLastSequence, jetstream.JSErrCodeStreamWrongLastSequenceConstant:
			return fmt.Errorf("store: %s: %w", what, ErrConflict)
		case jetstream.JSErrCodeStreamNotFound, jetstream.JSErrCodeMessageNotFound:
			return fmt.Errorf("store: %s: %w", what, ErrNotFound)
		case jetstream.JSErrCodeStreamNameInUse:
			return fmt.Errorf("store: %s: %w", what, ErrExists)
		case jetstream.JSErrCodeStreamMessageExceedsMaximum:
			return fmt.Errorf("store: %s: %w", what, ErrTooLarge)
		}
		return fmt.Errorf("store: %s: %w", what, err)
	}
	if s.log != nil {
		if text, full := s.log.lastError(); full {
			return fmt.Errorf("store: %s: %w (%s)", what, ErrFull, text)
		}
	}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound), errors.Is(err, jetstream.ErrStreamNotFound), errors.Is(err, jetstream.ErrObjectNotFound):
		return fmt.Errorf("store: %s: %w", what, ErrNotFound)
	case errors.Is(err, nats.ErrMaxPayload):
		return fmt.Errorf("store: %s: %w", what, ErrTooLarge)
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("store: %s: %w", what, err)
	case unanswered(err) || unreached(err):
		return fmt.Errorf("store: %s: %w: %w", what, ErrUnavailable, err)
	}
	return fmt.Errorf("store: %s: %w", what, err)
}

// unreached says whether a request was certainly not carried out and may be sent again.
func unreached(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		switch api.ErrorCode {
		case codeNoPeers, codeNotAvailable, codeNotLeader, codeTooManyPending:
			return true
		}
		return false
	}
	return errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrNoServers)
}

// unanswered says whether it is unknown if a request was carried out.
func unanswered(err error) bool {
	var api *jetstream.APIError
	if errors.As(err, &api) {
		return api.ErrorCode == codeSequence
	}
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, nats.ErrTimeout) ||
		errors.Is(err, nats.ErrDisconnected) || errors.Is(err, nats.ErrConnectionClosed) || errors.Is(err, nats.ErrConnectionReconnecting) ||
		errors.Is(err, nats.ErrStaleConnection) || errors.Is(err, jetstream.ErrAsyncPublishTimeout) ||
		errors.Is(err, jetstream.ErrInvalidJSAck)
}

// patience bounds the retries of one operation.
func (s *Store) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.server != nil {
		// An embedded server that has stopped does not come back, so retrying longer is
		// useless.
		return context.WithTimeout(ctx, min(s.config.Timeout, 2*attemptTimeout))
	}
	return context.WithTimeout(ctx, s.config.Timeout)
}

// hopeless says whether an embedded server has given up.
func (s *Store) hopeless() bool {
	return s.nc.IsClosed() || s.server != nil && !s.server.JetStreamEnabled()
}

// retry runs a request that may be repeated, such as a read, until it is answered.
func retry[T any](ctx context.Context, s *Store, f func(context.Context) (T, error)) (T, error) {
	ctx, cancel := s.patience(ctx)
	defer cancel()
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		attempt, done := context.WithTimeout(ctx, attemptTimeout)
		v, err := f(attempt)
		done()
		if err == nil || !unreached(err) && !unanswered(err) || ctx.Err() != nil || s.hopeless() {
			return v, err
		}
		if !sleep(ctx, wait) {
			return v, err
		}
	}
}

// sleep waits for d. It returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// redact removes user and password from a list of URLs.
func redact(list string) string {
	parts := strings.Split(list, ",")
	for i, p := range parts {
		u, err := url.Parse(strings.TrimSpace(p))
		if err != nil {
			return "the cluster"
		}
		u.User = nil
		parts[i] = u.String()
	}
	return strings.Join(parts, ",")
}

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// asyncWindow is the largest number of messages that all Appenders of a store have in flight:
// at most 4 MB of blocks.
const asyncWindow = 64

var errClosed = errors.New("the store is closed")

// Appender writes many messages to one stream without waiting for each. One goroutine may use
// it. Messages are stored in the order of the calls as long as the broker answers. A message
// that has to be repeated comes later, and may be stored twice if the outage was longer than
// the stream's window; readers that care recognise repetitions by the messages' content.
type Appender interface {
	// Append sends a message and waits only while the window is full. Nothing is durable
	// before Flush has returned nil, and until then the caller must not change the data.
	// After an error, for this or an earlier message, the appender takes no more messages.
	Append(ctx context.Context, msgID, suffix string, data []byte) error
	// Flush waits until every message was answered and returns the first error. If it returns
	// nil, everything appended is durable; after an error, some of it may be.
	Flush(ctx context.Context) error
}

type appender struct {
	s      *Store
	stream string
	wg     sync.WaitGroup
	mu     sync.Mutex
	err    error // the first error
}

func (s *Store) appender(stream string) Appender { return &appender{s: s, stream: stream} }

func (a *appender) Append(ctx context.Context, msgID, suffix string, data []byte) error {
	if err := a.failed(); err != nil {
		return err
	}
	m, err := a.s.message(a.stream, msgID, suffix, data)
	if err != nil {
		return err
	}
	full := a.s.logName(a.stream)
	if m.Header == nil {
		m.Header = nats.Header{}
	}
	m.Header.Set(jetstream.ExpectedStreamHeader, full)
	select {
	case a.s.async <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("store: append to %s: %w", a.stream, ctx.Err())
	case <-a.s.open.Done():
		return fmt.Errorf("store: append to %s: %w", a.stream, errClosed)
	}
	done, err := a.s.writing()
	if err != nil {
		<-a.s.async
		return err
	}
	ack, sendErr := a.s.js.PublishMsgAsync(m, jetstream.WithRetryAttempts(0))
	a.wg.Add(1)
	go func() {
		defer func() { done(); <-a.s.async; a.wg.Done() }()
		err := sendErr
		if err == nil {
			select {
			case <-ack.Ok():
				a.note(nil)
				return
			case err = <-ack.Err():
			case <-a.s.open.Done():
				a.note(fmt.Errorf("store: append to %s: %w", a.stream, errClosed))
				return
			}
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(a.s.open, cancel)()
		if unreached(err) || unanswered(err) && msgID != "" {
			again := &nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}
			_, err = a.s.publish(ctx, write{stream: full, msg: again, repeat: msgID != ""})
		}
		a.note(a.s.fail("write to "+full, err))
	}()
	return nil
}

func (a *appender) note(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err == nil {
	} else if a.err == nil {
		a.err = err
	}
}

func (a *appender) failed() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *appender) Flush(ctx context.Context) error {
	answered := make(chan struct{})
	go func() { a.wg.Wait(); close(answered) }()
	select {
	case <-answered:
		if err := a.failed(); err != nil {
			return err
		}
		return a.s.settle(a.s.logName(a.stream))
	case <-ctx.Done():
		// The waiting goroutine ends by itself, because each message has its own time limit.
		return errors.Join(fmt.Errorf("store: flush of %s: %w", a.stream, ctx.Err()), a.failed())
	}
}

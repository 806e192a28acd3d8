package relay

import (
	"context"
	"sync"
	"time"
)

// looks lets many callers see something as it is now by few looks at it: a caller gets what the first look found
// that began after the caller asked. One look runs at a time, and a pause lies between the beginnings of two.
type looks[T any] struct {
	look        func(context.Context) (T, error)
	pause, most time.Duration
	turn        chan struct{} // filled by who looks or waits for the pause

	mu     sync.Mutex
	begun  int64     // number of looks
	at     time.Time // when the last one began
	done   int64     // the last look that has ended
	last   T         // what it found
	failed error
	some   bool
	good   T // what the last look without an error found
}

// newLooks makes looks. A look may take the time most.
func newLooks[T any](pause, most time.Duration, look func(context.Context) (T, error)) *looks[T] {
	return &looks[T]{look: look, pause: pause, most: most, turn: make(chan struct{}, 1)}
}

// before returns what the last look found that did not fail; ok is false if there was none.
func (l *looks[T]) before() (found T, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.good, l.some
}

// now returns what a look finds that begins after the call.
func (l *looks[T]) now(ctx context.Context) (found T, err error) {
	l.mu.Lock()
	asked := l.begun
	l.mu.Unlock()
	select {
	case l.turn <- struct{}{}:
	case <-ctx.Done():
		return found, ctx.Err()
	}
	defer func() { <-l.turn }()
	l.mu.Lock()
	done, wait := l.done > asked, l.pause-time.Since(l.at)
	found, err = l.last, l.failed
	l.mu.Unlock()
	if done {
		return found, err
	}
	if wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return found, ctx.Err()
		}
	}
	// A caller that leaves does not end the look: others wait for it.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.most)
	defer cancel()
	l.mu.Lock()
	l.begun++
	number := l.begun
	l.at = time.Now()
	l.mu.Unlock()
	found, err = l.look(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done, l.last, l.failed = number, found, err
	if err == nil {
		l.good, l.some = found, true
	}
	return found, err
}

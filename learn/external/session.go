package external

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

// Session is a conversation with a program. Its methods may be called by several goroutines;
// one is served at a time. After an error other than a context's, or one of the caller's own
// functions, it is of no more use.
type Session struct {
	About About

	config  Config
	peer    *peer
	answers *reader
	turn    chan struct{} // holds a token while nobody converses
	odd     atomic.Int64
	rows    [][]float32 // memory of batches that no call uses; with the turn

	mu     sync.Mutex
	cause  error // why the session is of no more use
	closed bool
}

// Open starts the program, or connects to it, and opens the session. If ctx ends later the
// session goes on.
func Open(ctx context.Context, c Config) (*Session, error) {
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	s := &Session{config: c, turn: make(chan struct{}, 1)}
	var err error
	if s.peer, err = dial(c); err != nil {
		return nil, s.named("%v", err)
	}
	s.answers = newReader(s.peer.out)
	s.turn <- struct{}{}
	err = s.once(ctx, opOpen, 4*MaxDim, func(w io.Writer) error {
		ask, err := c.openRequest()
		if err == nil {
			_, err = w.Write(ask)
		}
		return err
	}, func(f safetensors.File) error {
		about, err := c.about(f)
		if err != nil {
			return badAnswer("%v", err)
		}
		if len(f.Tensors) > 0 {
			var odd int64
			if about.Initial, odd, err = s.answers.grown(about.Dim); err == nil && odd > 0 {
				err = badAnswer("%d of the initial parameters are not finite", odd)
			}
		}
		s.About = about
		return err
	})
	if err != nil {
		s.peer.abort()
		s.Close()
		return nil, err
	}
	return s, nil
}

// Odd returns how many values of rows were NaN or infinite, and counted as 0.
func (s *Session) Odd() int64 { return s.odd.Load() }

// size returns the largest number of rows of an answer.
func (s *Session) size() int { return max(1, min(maxRows, maxRowBytes/(4*s.About.Dim))) }

// Close ends the session: the program gets a close, if no answer is outstanding, and then the
// end of its input. A program that was started is ended if it does not end.
func (s *Session) Close() {
	s.mu.Lock()
	again, broken := s.closed, s.cause != nil
	s.closed = true
	if !broken {
		s.cause = s.named("the session is closed")
	}
	s.mu.Unlock()
	if again || broken { // what broke it has ended the program
		return
	}
	select {
	case <-s.turn:
		if ask, err := request(map[string]string{"op": opClose}); err == nil {
			timer := time.AfterFunc(graceful, s.peer.abort)
			_, _ = s.peer.in.Write(ask) // the program may have ended
			timer.Stop()
		}
		s.peer.close()
		s.turn <- struct{}{} // whoever comes later is told
	default:
		s.peer.abort()
	}
}

// take waits for the turn to converse.
func (s *Session) take(ctx context.Context) error {
	select {
	case <-s.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	s.mu.Lock()
	err := s.cause
	s.mu.Unlock()
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		s.turn <- struct{}{}
	}
	return err
}

// once makes one request and reads its answer, whose tensors have at most most bytes. If ctx
// ends the answer is still read, before the next turn.
func (s *Session) once(ctx context.Context, op string, most int, write func(io.Writer) error, read func(safetensors.File) error) error {
	if err := s.take(ctx); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		defer func() { s.turn <- struct{}{} }()
		timer := s.watch(op)
		defer timer.Stop()
		// The answer has the better error: a program that has ended may have said why.
		wrong := write(s.peer.in)
		f, err := s.answers.head(op, most)
		if err == nil {
			err = read(f)
		}
		if err == nil {
			err = wrong
		}
		if err != nil {
			err = s.fail(op, err)
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errLate is the error of an answer that takes too long.
var errLate = errors.New("late")

// watch ends the program if an answer takes too long.
func (s *Session) watch(op string) *time.Timer {
	return time.AfterFunc(s.config.Timeout, func() { _ = s.fail(op, errLate) })
}

func (s *Session) named(format string, args ...any) error {
	return fmt.Errorf("external: program %q: %s", s.config.Program, fmt.Sprintf(format, args...))
}

// fail ends the program, and returns why the session is of no more use: the first reason there
// was.
func (s *Session) fail(op string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cause != nil {
		s.peer.abort()
		return s.cause
	}
	var what, lines string
	switch {
	case errors.Is(err, errLate):
		what = fmt.Sprintf("it gave no answer within %v, the time that answer-seconds sets", s.config.Timeout)
	case errors.Is(err, errAnswer):
		what = err.Error()
	default: // the stream has ended, or broke
		how, _ := s.peer.fate()
		what = "it " + how
		if errors.Is(err, io.ErrUnexpectedEOF) {
			what += " in the middle of its answer"
		}
	}
	s.peer.abort()
	if s.peer.cmd != nil {
		switch lines = s.peer.last.text(); {
		case lines == "" && errors.Is(err, errAnswer): // the answer says it all
		case lines == "":
			lines = " (it wrote nothing to standard error)"
		case s.config.Stderr != nil:
			lines = "; what it wrote to standard error is above"
		default:
			lines = "; its last lines:\n  | " + strings.ReplaceAll(lines, "\n", "\n  | ")
		}
	}
	s.cause = &sessionError{fmt.Sprintf("external: program %q, asked for %s: ", s.config.Program, op), what, lines}
	return s.cause
}

// sessionError is why a session is of no more use.
type sessionError struct{ who, what, lines string }

func (e *sessionError) Error() string { return e.who + e.what + e.lines }

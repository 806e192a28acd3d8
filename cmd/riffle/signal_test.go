package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/spf13/cobra"

	"github.com/riffle-dp/riffle/service/operate"
)

// A server that is told to end while it starts has failed at nothing; an error that
// has another reason is told all the same.
func TestToldToEndWhileStarting(t *testing.T) {
	trouble := errors.New("the disk is gone")
	for _, c := range []struct {
		by   os.Signal
		err  error
		code int
	}{
		{syscall.SIGTERM, nil, exitDone},
		{syscall.SIGTERM, fmt.Errorf("store: key enrolment: %w", context.Canceled), exitDone},
		{os.Interrupt, fmt.Errorf("store: key enrolment: %w", context.Canceled), exitInterrupted},
		{syscall.SIGTERM, trouble, exitFailed},
		{nil, nil, exitDone},
		{nil, trouble, exitFailed},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		cmd := &cobra.Command{}
		cmd.SetContext(ctx)
		err := service(cmd, func(inner context.Context, _ operate.Options) error {
			if c.by != nil {
				cancel(signalled{c.by})
				<-inner.Done()
			}
			return c.err
		})
		code := exitDone
		if err != nil {
			code = exitCode(err)
		}
		if code != c.code {
			t.Errorf("by %v with %v: exit %d (%v), want %d", c.by, c.err, code, err, c.code)
		}
		cancel(nil)
	}
}

// Ctrl-C while a command waits, as for a program, is told in words.
func TestInterruptedIsTold(t *testing.T) {
	for _, c := range []struct {
		err  error
		want string
	}{
		{context.Canceled, "interrupted"},
		{errors.Join(context.Canceled, nil), "interrupted"},
		{fmt.Errorf("interrupted (%w); nothing is kept", context.Canceled), "interrupted (context canceled); nothing is kept"},
		{errors.New("context canceled"), "context canceled"},
	} {
		if got := told(c.err, nil); got != c.want {
			t.Errorf("%v is told as %q, want %q", c.err, got, c.want)
		}
	}
}

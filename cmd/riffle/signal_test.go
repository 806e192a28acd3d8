package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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

// A signal ends a command that looks at no context: it reads from a pipe, or computes for hours. Before, it went on
// for ever after SIGTERM, however often that came.
func TestSignalsEndCommandsThatDoNotListen(t *testing.T) {
	type at struct {
		after  time.Duration
		signal os.Signal
	}
	for name, c := range map[string]struct {
		signals []at
		done    time.Duration // when the command ends by itself; 0: never
		want    time.Duration // when it is ended; 0: it is not
		by      string
	}{
		"once":                      {signals: []at{{0, syscall.SIGTERM}}, want: 10 * time.Second, by: "it was told to end (terminated), and went on for 10s"},
		"interrupted":               {signals: []at{{0, os.Interrupt}}, want: 10 * time.Second, by: "went on for 10s"},
		"it ends in time":           {signals: []at{{0, syscall.SIGTERM}}, done: 9 * time.Second},
		"no signal":                 {done: time.Hour},
		"twice at once, by timeout": {signals: []at{{0, syscall.SIGTERM}, {time.Millisecond, syscall.SIGTERM}}, want: 10 * time.Second, by: "went on for 10s"},
		"again":                     {signals: []at{{0, syscall.SIGTERM}, {2 * time.Second, syscall.SIGTERM}}, want: 2 * time.Second, by: "twice"},
		"Ctrl-C twice":              {signals: []at{{0, os.Interrupt}, {time.Millisecond, os.Interrupt}}, want: time.Millisecond, by: "twice"},
		"Ctrl-C after SIGTERM":      {signals: []at{{0, syscall.SIGTERM}, {time.Millisecond, os.Interrupt}}, want: time.Millisecond, by: "twice"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals, done := make(chan os.Signal, 1), make(chan struct{})
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				begun, ended, why := time.Now(), time.Duration(0), ""
				returned := make(chan struct{})
				go func() {
					defer close(returned)
					attend(signals, done, patienceWith("eps"), cancel, func(text string) { ended, why = time.Since(begun), text })
				}()
				if c.done > 0 {
					time.AfterFunc(c.done, func() { close(done) })
				}
				for _, s := range c.signals {
					time.AfterFunc(s.after, func() { signals <- s.signal })
				}
				<-returned
				if ended != c.want || !strings.Contains(why, c.by) {
					t.Errorf("ended after %v: %s", ended, why)
				}
				if cancelled := ctx.Err() != nil; cancelled != (len(c.signals) > 0) {
					t.Errorf("its context has ended: %v", cancelled)
				}
			})
		})
	}
	for args, want := range map[string]time.Duration{"eval x": 10 * time.Second, "train --rounds 3": time.Minute, "serve shuffler": 5 * time.Minute, "ledger verify": 10 * time.Second, "nonsense": 10 * time.Second} {
		if got := patienceWith(topCommand(newRoot(), strings.Fields(args))); got != want {
			t.Errorf("%s: %v, want %v", args, got, want)
		}
	}
}

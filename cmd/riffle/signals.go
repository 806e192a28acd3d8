package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// signalled is the cause of a command's ended context: a signal.
type signalled struct{ os.Signal }

// Is makes a signal count as a cancellation for callers that do not ask for the cause.
func (s signalled) Is(target error) bool { return target == context.Canceled }

func (s signalled) Error() string { return "it was told to end (" + s.String() + ")" }

// terminated says whether SIGTERM ended a command's context.
func terminated(ctx context.Context) bool {
	var by signalled
	return errors.As(context.Cause(ctx), &by) && by.Signal == syscall.SIGTERM
}

// patienceWith returns how long a command may take to end after a signal. Some save their state or stop others first;
// the rest only stop to compute.
func patienceWith(command string) time.Duration {
	switch command {
	case "serve", "client", "demo":
		return 5 * time.Minute
	case "train", "experiment":
		return time.Minute
	}
	return 10 * time.Second
}

// attend ends a command by signals, until done is closed. The first one cancels its context. The command may then wait
// for something that knows no context, or compute: if it goes on when patience is over, or at a second signal, end is
// called.
func attend(signals <-chan os.Signal, done <-chan struct{}, patience time.Duration, cancel context.CancelCauseFunc, end func(why string)) {
	var first os.Signal
	select {
	case first = <-signals:
	case <-done:
		return
	}
	cancel(signalled{first})
	told, over := time.Now(), time.After(patience)
	for {
		select {
		case <-done:
			return
		case <-over:
			end(fmt.Sprintf("%v, and went on for %v: it is ended without more ado", signalled{first}, patience))
			return
		case again := <-signals:
			// SIGTERM may come twice: timeout sends it to its command, and then to the command's group.
			if first == syscall.SIGTERM && again == syscall.SIGTERM && time.Since(told) < time.Second {
				continue
			}
			end(fmt.Sprintf("%v twice", signalled{first}))
			return
		}
	}
}

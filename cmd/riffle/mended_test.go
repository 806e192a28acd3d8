package main

import (
	"fmt"
	"testing"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// What another start does not mend has exit code 3, which keeps a unit from starting the role again. What time
// may mend has 1.
func TestExitCodeOfWhatAPersonMends(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{{mark.ErrNone, exitRefused}, {ledger.ErrBudget, exitRefused}, {store.ErrLocked, exitFailed}, {store.ErrFull, exitFailed}, {store.ErrUnavailable, exitFailed},
		{store.ErrNoStore, exitFailed}, {store.ErrExists, exitUsage}, {config.Errorf("%w", store.ErrNoStore), exitUsage},
		{fmt.Errorf("%w: %w", ledger.ErrMark, config.ErrInvalid), exitRefused}} {
		if code := exitCode(operateError(fmt.Errorf("role: %w", c.err))); code != c.code {
			t.Errorf("%v: exit code %d, want %d", c.err, code, c.code)
		}
	}
	for _, err := range mended {
		if code := exitCode(operateError(fmt.Errorf("role: %w", err))); code != exitRefused {
			t.Errorf("%v: exit code %d", err, code)
		}
	}
}

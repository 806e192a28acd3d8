package operate

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
)

// A role that is told to end at whatever point of its start says no more than that,
// and logs no trouble.
func TestEndWhileStarting(t *testing.T) {
	embedded(t)
	l := Loopback{Dir: t.TempDir(), Clients: 2, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{RoleShuffler, RoleCoordinator} {
		for after := time.Duration(0); after < 100*time.Millisecond; after = 3*after/2 + 3*time.Millisecond {
			var log bytes.Buffer
			ctx, cancel := context.WithTimeoutCause(t.Context(), after, errors.New("told to end"))
			err := Serve(ctx, role, l.Config(role), Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s after %v: %v", role, after, err)
			}
			for line := range strings.Lines(log.String()) {
				if !strings.Contains(line, "level=INFO") && !strings.Contains(line, "a peer does not answer") { // there is none
					t.Errorf("%s after %v: %s", role, after, line)
				}
			}
		}
	}
}

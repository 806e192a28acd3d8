package operate

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/registrar"
)

// The roles as processes would run them: the shuffler takes the registrar's roster over HTTPS, and
// then from a file, and all configurations are found right.
func TestRegistrarAmongTheRoles(t *testing.T) {
	embedded(t)
	l := Loopback{Dir: t.TempDir(), Clients: 4, Processes: 1, Registrar: true, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	serve := func(role string) (stop func()) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, role, l.Config(role), Options{Log: slog.New(slog.DiscardHandler)}) }()
		stopped := false
		stop = func() {
			if stopped {
				return
			}
			stopped = true
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", role, err)
			}
		}
		t.Cleanup(stop)
		return stop
	}
	serve(RoleRegistrar)
	stopShuffler := serve(RoleShuffler)
	browsertest.Until(t, func() error { return l.EnrolAll(t.Context()) })
	c, err := config.Load[config.Coordinator](l.Config(RoleCoordinator))
	if err != nil {
		t.Fatal(err)
	}
	source, err := (&server{process: c.Process}).source(c.Shuffler, c.Registrar)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Client.CloseIdleConnections()
	enrolled := func(n int64) func() error {
		return func() error {
			e, err := source.Enrolment(t.Context(), c.ID, time.Now())
			if err == nil && e.Clients != n {
				err = fmt.Errorf("n = %d, want %d", e.Clients, n)
			}
			return err
		}
	}
	browsertest.Until(t, enrolled(4))
	for _, role := range []string{RoleRegistrar, RoleShuffler, RoleCoordinator} {
		found, err := Inspect(t.Context(), role, l.Config(role), "")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			if f.Error != "" {
				t.Errorf("%s: %s: %s", role, f.What, f.Error)
			}
		}
	}
	r, err := config.Load[config.Registrar](l.Config(RoleRegistrar))
	if err != nil {
		t.Fatal(err)
	}
	operator := NewRegistrarClient(r.Operator)
	list, err := operator.List(t.Context())
	if err != nil || len(list.Keys) != 4 {
		t.Fatalf("%+v, %v", list, err)
	}
	id := wire.ClientID(list.Keys[0])
	if done, err := operator.Change(t.Context(), registrar.Request{Revoke: []string{fmt.Sprintf("%x", id)}}); err != nil || done.Clients != 3 {
		t.Fatalf("%+v, %v", done, err)
	}
	browsertest.Until(t, enrolled(3))
	if _, err := operator.Change(t.Context(), registrar.Request{Add: [][]byte{list.Keys[0]}}); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a revoked key: %v", err)
	}

	// The same from a file.
	stopShuffler()
	signed, err := operator.Signed(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(l.Dir, RoleShuffler, "roster.signed")
	if err := os.WriteFile(file, signed, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := config.Load[config.Shuffler](l.Config(RoleShuffler))
	if err != nil {
		t.Fatal(err)
	}
	s.Roster, s.Registrar = file, &config.Party{Key: s.Registrar.Key}
	if err := writeYAML(l.Config(RoleShuffler), s); err != nil {
		t.Fatal(err)
	}
	found, err := Inspect(t.Context(), RoleShuffler, l.Config(RoleShuffler), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		if f.Error != "" {
			t.Errorf("%s: %s", f.What, f.Error)
		}
	}
	stopShuffler = serve(RoleShuffler)
	browsertest.Until(t, enrolled(3))
	if _, err := operator.Change(t.Context(), registrar.Request{Add: [][]byte{make([]byte, 32)}}); err != nil {
		t.Fatal(err)
	}
	if signed, err = operator.Signed(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, signed, 0o644); err != nil {
		t.Fatal(err)
	}
	browsertest.Until(t, enrolled(4))
	stopShuffler()
	report, err := Check(t.Context(), RoleShuffler, l.Config(RoleShuffler))
	if err != nil || !report.Clean {
		t.Errorf("%+v, %v", report, err)
	}
}

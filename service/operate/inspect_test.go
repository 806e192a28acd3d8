package operate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
)

// found lists what an inspection says is not right.
func found(t *testing.T, role, path string) (text string, wrong, away bool) {
	t.Helper()
	list, err := Inspect(t.Context(), role, path, "")
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, f := range list {
		if strings.Contains(f.Error, "\n") {
			t.Errorf("more than a line: %q", f.Error)
		}
		wrong, away = wrong || f.Error != "" && !f.Unreachable, away || f.Unreachable
		if f.Error != "" {
			b.WriteString(f.What + ": " + f.Error + "\n")
		}
	}
	return b.String(), wrong, away
}

// Every value of an example that has to be replaced is found, a line each, and nothing
// is served with one.
func TestExamplesAreRefused(t *testing.T) {
	for name, want := range map[string]int{RoleShuffler: 6, RoleCoordinator: 8, RoleAggregator: 7, RoleClient: 5, RoleRegistrar: 3} {
		path := filepath.Join("..", "..", "docs", "deploy", name+".yaml")
		text, wrong, _ := found(t, name, path)
		if n := strings.Count(text, "is the example's"); n != want || !wrong {
			t.Errorf("%s: %d values of the example, want %d:\n%s", name, n, want, text)
		}
		err := Serve(t.Context(), name, path, Options{Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), "is the example's") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// syncLog is a log that is read while it is written.
type syncLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *syncLog) Write(p []byte) (int, error) { l.mu.Lock(); defer l.mu.Unlock(); return l.b.Write(p) }
func (l *syncLog) String() string              { l.mu.Lock(); defer l.mu.Unlock(); return l.b.String() }

func TestInspect(t *testing.T) {
	embedded(t)
	l := Loopback{Dir: t.TempDir(), Clients: 3, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist", Aggregator: true,
		Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	coordinator := l.Config(RoleCoordinator)
	check := func(role, path, want string, isWrong, isAway bool) {
		t.Helper()
		text, wrong, away := found(t, role, path)
		if wrong != isWrong || away != isAway || !strings.Contains(text, want) || want == "" && text != "" {
			t.Errorf("%s: wrong %v, away %v, want %v, %v and %q:\n%s", role, wrong, away, isWrong, isAway, want, text)
		}
	}
	check(RoleShuffler, l.Config(RoleShuffler), "", false, false) // it calls nobody
	check(RoleCoordinator, coordinator, "shuffler https://", false, true)
	check(RoleAggregator, l.Config(RoleAggregator), "cannot be reached", false, true)
	check(RoleClient, l.Config("clients-0"), "coordinator https://", false, true)

	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer func() { cancel(); wg.Wait() }()
	serve := func(ctx context.Context, role string, log *slog.Logger) {
		wg.Go(func() {
			if err := Serve(ctx, role, l.Config(role), Options{Log: log}); err != nil {
				t.Error(err)
			}
		})
	}
	quiet := slog.New(slog.DiscardHandler)
	serve(ctx, RoleShuffler, quiet)
	serve(ctx, RoleAggregator, quiet)
	browsertest.Until(t, func() error {
		if text, _, _ := found(t, RoleCoordinator, coordinator); text != "" {
			return errors.New(text)
		}
		return nil
	})
	check(RoleCoordinator, coordinator, "", false, false)
	check(RoleAggregator, l.Config(RoleAggregator), "", false, false) // while it runs

	b, err := os.ReadFile(coordinator)
	if err != nil {
		t.Fatal(err)
	}
	var c config.Coordinator
	if c, err = config.Load[config.Coordinator](coordinator); err != nil {
		t.Fatal(err)
	}
	change := func(old, new string) string {
		t.Helper()
		if !strings.Contains(string(b), old) {
			t.Fatalf("no %q", old)
		}
		path := filepath.Join(filepath.Dir(coordinator), "changed.yaml")
		if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(b), old, new)), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, err := os.ReadFile(filepath.Join(filepath.Dir(coordinator), "keys", config.PinFile))
	if err != nil {
		t.Fatal(err)
	}
	check(RoleCoordinator, change(c.Shuffler.Pins[0], strings.TrimSpace(string(own))), "is not pinned", true, false)
	check(RoleCoordinator, change(c.Shuffler.Key, config.FormatVerifying(make([]byte, 31, 32)[:32])), "is the example's", true, false)
	check(RoleCoordinator, change(c.Population, strings.Repeat("ab", 16)), "key or population", true, false)
	if _, err := config.GenerateTLS(filepath.Join(filepath.Dir(coordinator), "other"), []string{"127.0.0.1"}, time.Now().Add(-time.Hour), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	check(RoleCoordinator, change("keys/tls.", "other/tls."), "its operator must list the pin", true, false)
	check(RoleCoordinator, change("dir: data", "dir: elsewhere"), "no store", true, false)
	if err := os.Chmod(c.SigningKey, 0o644); err != nil {
		t.Fatal(err)
	}
	check(RoleCoordinator, coordinator, "signing key: ", true, false)
	if err := os.Chmod(c.SigningKey, 0o600); err != nil {
		t.Fatal(err)
	}

	// What answers is what a coordinator that runs is ready by.
	log := &syncLog{}
	serve(ctx, RoleCoordinator, slog.New(slog.NewTextHandler(log, nil)))
	browsertest.Until(t, func() error {
		if text := readyText(c.Admin); text != "ready\n" {
			return fmt.Errorf("it says %q\n%s", text, log.String())
		}
		return nil
	})
}

func readyText(address string) string {
	resp, err := http.Get("http://" + address + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// A peer that does not answer is logged once for a cause, and once that it is back.
func TestPeersAreLoggedOnce(t *testing.T) {
	log := &syncLog{}
	var answer error
	p := newPeers(slog.New(slog.NewTextHandler(log, nil)), peer{"shuffler", "https://s", func(context.Context) error { return answer }})
	if err := p.trouble(); err == nil {
		t.Error("ready before it was asked")
	}
	for _, c := range []struct {
		answer error
		lines  int
	}{
		{errors.New("connection refused"), 1}, {errors.New("connection refused"), 1}, {errors.New("no route"), 2},
		{nil, 3}, {nil, 3}, {errors.New("no route"), 4},
	} {
		answer = c.answer
		if all := p.askAll(t.Context()); all != (answer == nil) || (p.trouble() == nil) != all {
			t.Errorf("%v: %v, %v", answer, all, p.trouble())
		}
		if n := strings.Count(log.String(), "\n"); n != c.lines {
			t.Errorf("%v: %d lines, want %d:\n%s", c.answer, n, c.lines, log.String())
		}
	}
	if s := p.status(); len(s) != 1 || s[0].Trouble != "no route" {
		t.Error(s)
	}
	if m := p.metrics(); m[0].Samples[0].Value != 0 {
		t.Error(m)
	}
}

package operate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// An aggregator with a mark starts only with it, and its store gets one mark only.
func TestAggregatorsMark(t *testing.T) {
	embedded(t)
	dir := filepath.Join(t.TempDir(), "deployment")
	l := Loopback{Dir: dir, Clients: 4, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist", Aggregator: true}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := l.Config(RoleAggregator)
	file := mark.File(filepath.Join(filepath.Dir(path), "rounds.json"))
	if m, err := file.Load(); err != nil || m != (mark.Mark{}) {
		t.Fatalf("%+v, %v", m, err)
	}
	if err := Init(t.Context(), RoleAggregator, path); !errors.Is(err, store.ErrExists) {
		t.Errorf("init made another mark: %v", err)
	}
	check := func() string {
		t.Helper()
		r, err := Check(t.Context(), RoleAggregator, path)
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, p := range r.Problems {
			all = append(all, p.What)
		}
		return strings.Join(all, "; ")
	}
	if found := check(); found != "" {
		t.Error(found)
	}
	start := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		return serveAggregator(ctx, path, Options{Log: slog.New(slog.DiscardHandler)})
	}
	// A mark that counts a round which the store does not have: the store is an old copy.
	if err := file.Save(mark.Mark{Entries: 1, Digest: [32]byte{1}}); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, mark.Err) {
		t.Errorf("an old store was started: %v", err)
	}
	if found := check(); !strings.Contains(found, "old copy") {
		t.Errorf("fsck finds %q", found)
	}
	if err := os.Rename(filepath.Join(filepath.Dir(path), "data"), filepath.Join(dir, "away")); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, mark.Err) {
		t.Errorf("a lost store: %v", err)
	}
	if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(filepath.Dir(path), "data")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(string(file)); err != nil {
		t.Fatal(err)
	}
	if err := start(); !errors.Is(err, mark.ErrNone) {
		t.Errorf("without its mark: %v", err)
	}
	// An aggregator that has summed nothing yet, as one of a version without marks, gets one.
	if err := Init(t.Context(), RoleAggregator, path); err != nil {
		t.Error(err)
	}
	if found := check(); found != "" {
		t.Error(found)
	}
}

package operate

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/service/load"
)

// loaded returns a configuration of the same clients without a ledger.
func (a *asked) loaded() string {
	a.t.Helper()
	from := a.l.Config("clients-0")
	b, err := os.ReadFile(from)
	if err != nil {
		a.t.Fatal(err)
	}
	dir := regexp.MustCompile(`(?m)^dir: .*$`)
	if !dir.Match(b) {
		a.t.Fatalf("no dir: in %s", b)
	}
	path := filepath.Join(filepath.Dir(from), "load.yaml")
	if err := os.WriteFile(path, dir.ReplaceAll(b, []byte("dir: nowhere")), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

// A load of a shuffler and a coordinator in each mode: every client reports once, all requests of
// a client are made and measured, and the round's answer counts the zeros.
func TestLoad(t *testing.T) {
	embedded(t)
	const n, more = 20, 2
	a := newAsked(t, n, 100)
	defer a.serve(RoleShuffler, RoleShuffler)()
	defer a.serve(RoleCoordinator, RoleCoordinator)()
	path := a.loaded()
	for _, mode := range []string{load.Each, load.Resumed, load.Kept} {
		task, err := a.create(mode, "measure: mean\ncolumn: age\nrange: 0..100\ntrust: local\nepsilon: 8\ndelta: 1e-5\nn-min: 20\n")
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		r, err := Load(t.Context(), path, task.Id, load.Config{Connections: mode, HTTP1: mode == load.Resumed, AtOnce: 4, Repeat: more, Fetch: true,
			Progress: func(*load.Result) { seen++ }})
		if err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		late := r.Errors["again"]["closed"] // the round ends with its last report
		if r.Reports != n || r.Again+late != more*n || r.Rounds != 1 || r.Clients != n || !(r.Rate > 0) || len(r.Declined) != 0 || r.Sent < r.Reports*300 || r.Received == 0 || len(r.Errors["report"]) > 0 {
			t.Errorf("%s: %+v", mode, r)
		}
		for kind, want := range map[string]int64{"report": n, "again": more*n - late, "session": n, "announcement": n, "model": n} {
			got := r.Requests[kind]
			if got.Count < want || !(0 < got.Median && got.Median <= got.P90 && got.P90 <= got.P99 && got.P99 <= got.Longest) {
				t.Errorf("%s: %d × %s: %+v", mode, want, kind, got)
			}
		}
		// A session, a report and its repetitions have a connection each, and a client's fetches one.
		own := int64(n * (3 + more))
		switch {
		case mode == load.Kept && r.Opened >= own:
			t.Errorf("kept: %d connections", r.Opened)
		case mode != load.Kept && r.Opened < own:
			t.Errorf("%s: %d connections, want %d", mode, r.Opened, own)
		case mode == load.Each && r.Resumed != 0, mode == load.Resumed && r.Resumed < n:
			t.Errorf("%s: %d connections resumed", mode, r.Resumed)
		}
		answer, _ := a.answer(mode)
		if answer.Reports != n || answer.Mean == nil || !(answer.Mean.Low95 < answer.Mean.High95) {
			t.Errorf("%s: the answer %+v", mode, answer)
		}
	}
}

// Who has a ledger is no virtual client, a task must be named in full, and a load that is
// interrupted tells what it measured.
func TestLoadIsRefused(t *testing.T) {
	embedded(t)
	a := newAsked(t, 2, 30)
	const some = "0000000000000000000000000000000000000000000000000000000000000000"
	good := load.Config{Connections: load.Kept, AtOnce: 1}
	if _, err := Load(t.Context(), a.l.Config("clients-0"), some, good); err == nil || !strings.Contains(err.Error(), "ledger") {
		t.Errorf("clients with a ledger: %v", err)
	}
	path := a.loaded()
	if _, err := Load(t.Context(), path, some[:16], good); err == nil || !strings.Contains(err.Error(), "64 hex digits") {
		t.Errorf("a part of a digest: %v", err)
	}
	bad := good
	bad.Connections = "some"
	if _, err := Load(t.Context(), path, some, bad); err == nil || !strings.Contains(err.Error(), "connections") {
		t.Errorf("an unknown mode: %v", err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	good.Progress = func(*load.Result) { cancel() } // no server runs
	r, err := Load(ctx, path, some, good)
	if r == nil || err != nil || r.Reports != 0 || len(r.Errors["other"]) == 0 {
		t.Errorf("interrupted: %+v, %v", r, err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the configuration has changed: %v", err)
	}
	if _, err := os.Lstat(filepath.Join(filepath.Dir(path), "nowhere")); err == nil {
		t.Error("a load made the directory of a ledger")
	}
}

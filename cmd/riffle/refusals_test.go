package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/store"
)

// TestWhatIsNotBelieved stops a deployment after its rounds and starts servers and
// clients on what an operator, a backup or an attacker could have made of its files.
func TestWhatIsNotBelieved(t *testing.T) {
	longtest.Only(t, "opens real stores; the services have their own tests")
	// Further rounds follow the copy of the first ones, also if the coordinator stops late. They are odd
	// in number, so that the middle of the ledger is that of an entry.
	d := deploy(t, scenario{clients: 6, processes: 1, rounds: 9})
	file := d.configs[operate.RoleCoordinator]
	dir := filepath.Dir(file)
	data := filepath.Join(dir, "data")
	d.reach(1, patience)
	d.stop(operate.RoleCoordinator)
	copyTree(t, data, filepath.Join(dir, "backup"))
	d.start(operate.RoleCoordinator)
	d.whole(patience)

	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	// variant makes a configuration with another store.
	variant := func(name string, edit ...string) (path, store string) {
		store = strings.ReplaceAll(name, " ", "-")
		b := bytes.Replace(text, []byte("dir: data"), []byte("dir: "+store), 1)
		for i := 0; i < len(edit); i += 2 {
			b = bytes.Replace(b, []byte(edit[i]), []byte(edit[i+1]), 1)
		}
		path = filepath.Join(dir, store+".yaml")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path, filepath.Join(dir, store)
	}
	key := func(path, prefix, old, new string) {
		t.Helper()
		c, err := config.Load[config.Coordinator](path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := store.Open(t.Context(), c.Store)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e, err := s.Get(t.Context(), prefix+d.task)
		if err != nil {
			t.Fatal(err)
		}
		b := bytes.Replace(e.Value, []byte(old), []byte(new), 1)
		if bytes.Equal(b, e.Value) {
			t.Fatalf("no %s in %s", old, e.Value)
		}
		if _, err := s.Put(t.Context(), prefix+d.task, b, e.Revision); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		make func(store, path string)
		code int
		text string
	}{
		{"no store", func(string, string) {}, exitRefused, "the mark"},
		{"no ledger", func(store, _ string) {
			copyTree(t, data, store)
			found, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "coordinator_ledger"))
			if err != nil || len(found) != 1 {
				t.Fatal(found, err)
			}
			if err := os.RemoveAll(found[0]); err != nil {
				t.Fatal(err)
			}
		}, exitRefused, "ledger"},
		{"older than its mark", func(store, _ string) { copyTree(t, filepath.Join(dir, "backup"), store) }, exitRefused, "mark"},
		{"bytes changed", func(store, _ string) {
			copyTree(t, data, store)
			found, err := filepath.Glob(filepath.Join(store, "jetstream", "*", "streams", "coordinator_ledger", "msgs", "*.blk"))
			if err != nil || len(found) == 0 {
				t.Fatal(found, err)
			}
			b, err := os.ReadFile(found[0])
			if err != nil {
				t.Fatal(err)
			}
			b[len(b)/2] ^= 1
			if err := os.WriteFile(found[0], b, 0o600); err != nil {
				t.Fatal(err)
			}
		}, exitRefused, "ledger entry"},
		{"newer store", func(store, _ string) {
			copyTree(t, data, store)
			replaceInFile(t, filepath.Join(store, "riffle-store.json"), `"format": 1`, `"format": 2`)
		}, exitRefused, "has format 2, this program reads up to 1"},
		{"newer task", func(store, path string) {
			copyTree(t, data, store)
			key(path, "created.", `"format":1`, `"format":2`)
		}, exitRefused, "format 2"},
		{"newer state", func(store, path string) {
			copyTree(t, data, store)
			key(path, "state.", `"format":1`, `"format":2`)
			key(path, "task.", `"state":"done"`, `"state":"running"`)
		}, exitRefused, "format 2"},
		// A state that is older than the ledger: its rounds would be run twice.
		{"state rolled back", func(store, path string) {
			copyTree(t, data, store)
			key(path, "state.", `"round":9`, `"round":1`)
			key(path, "task.", `"state":"done"`, `"state":"running"`)
		}, exitRefused, "older than the ledger"},
	} {
		path, store := variant(c.name)
		c.make(store, path)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		cmd := process(t, "serve", "coordinator", "--config", path)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // the exit code says it
		stop()
		cancel()
		if code := cmd.ProcessState.ExitCode(); code != c.code || !strings.Contains(out.String(), c.text) {
			t.Errorf("%s: exit %d, want %d with %q\n%s", c.name, code, c.code, c.text, &out)
		}
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		t.Logf("%s: %v, %s", c.name, time.Since(begin).Round(time.Millisecond), lines[len(lines)-1])
	}
	// Without its mark a ledger could be cut short.
	path, _ := variant("data", "mark: ledger.json", "mark: nothing.json")
	want(t, exitRefused, "high-water mark", "serve", "coordinator", "--config", path)

	clients := filepath.Dir(d.l.Config("clients-0"))
	book := filepath.Join(clients, "ledger", "ledger")
	good, err := os.ReadFile(book)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, new, text string
	}{
		"newer":  {"riffle-client-ledger 1", "riffle-client-ledger 2", "this program reads"},
		"edited": {" shuffle ", " local ", "was changed"},
		"absent": {string(good), "", "ledger"},
	} {
		b := bytes.Replace(good, []byte(c.old), []byte(c.new), 1)
		err := os.WriteFile(book, b, 0o600)
		if len(b) == 0 {
			err = os.Remove(book)
		}
		if err != nil {
			t.Fatal(err)
		}
		if code, _, text := outcome(t, "client", "--config", d.l.Config("clients-0")); code != exitRefused || !strings.Contains(text, c.text) {
			t.Errorf("%s: exit %d, want %d with %q\n%s", name, code, exitRefused, c.text, text)
		}
	}
}

func replaceInFile(t *testing.T, path, old, new string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(b, []byte(old), []byte(new), 1)
	if bytes.Equal(b, changed) {
		t.Fatalf("no %q in %s", old, path)
	}
	if err := os.WriteFile(path, changed, 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(to, 0o700); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyKeepsQuiet has half of the clients with a policy below the task's ε₀:
// nothing of them reaches the shuffler, and the round goes on without them.
func TestPolicyKeepsQuiet(t *testing.T) {
	longtest.Only(t, "waits for a round's end")
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	d := deploy(t, scenario{clients: 12, processes: 2, rounds: 1, round: 15 * time.Second, edit: func(d *deployment) {
		replaceInFile(t, d.l.Config("clients-1"), "max-eps0: 2.1", "max-eps0: 1.9")
	}})
	strict := d.running["clients-1"]
	select {
	case <-strict.done: // it has no other task
	case <-time.After(patience):
		t.Fatal("the clients that refuse the task do not end")
	}
	if code := strict.cmd.ProcessState.ExitCode(); code != exitRefused && code != exitFailed {
		t.Errorf("exit %d\n%s", code, d.tail("clients-1"))
	}
	delete(d.running, "clients-1")
	d.reach(1, patience)
	if got := d.metric(operate.RoleShuffler, "riffle_reports_accepted_total"); got != "6" {
		t.Errorf("the shuffler accepted %s reports", got)
	}
	for _, reason := range []string{"malformed", "not-enrolled", "closed", "bad-signature"} {
		if got := d.metric(operate.RoleShuffler, fmt.Sprintf("riffle_reports_refused_total{reason=%q}", reason)); got != "0" {
			t.Errorf("the shuffler refused %s reports as %s", got, reason)
		}
	}
	if o := d.finish(patience); o != (taskOutcome{released: 1, reports: 6, sent: 6}) {
		t.Errorf("%+v", o)
	}
	if text := d.tail("clients-1"); !strings.Contains(text, "eps0") || strings.Contains(text, `"sent":6`) {
		t.Errorf("%s", text)
	}
}

// metric reads a role's sample.
func (d *deployment) metric(role, name string) string {
	d.t.Helper()
	c, err := config.Load[config.Shuffler](d.configs[role])
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := http.Get("http://" + c.Admin + "/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(rest)
		}
	}
	return "no " + name
}

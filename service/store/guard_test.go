package store

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{
		{}, {Domain: "shuffler"}, {Domain: "shuffler", Dir: "d", URL: "u"}, {Domain: "Shuffler", Dir: "d"}, {Domain: "a_b", Dir: "d"},
		{Domain: "a.b", Dir: "d"}, {Domain: "a", Dir: "d", Replicas: 3}, {Domain: "a", Dir: "d", TLSCA: "f"}, {Domain: "a", URL: "u", MaxBytes: 1},
		{Domain: "a", URL: "u", TLSCert: "f"}, {Domain: "a", URL: "u", Replicas: 6}, {Domain: "a", Dir: "d", Timeout: -1},
	} {
		if _, err := c.check(); err == nil {
			t.Errorf("%+v was taken", c)
		}
		if _, err := Open(t.Context(), c); err == nil {
			t.Errorf("%+v was opened", c)
		}
	}
}

func TestMessagesHideThePassword(t *testing.T) {
	c := Config{Domain: "shuffler", URL: "nats://user:hunter2@127.0.0.1:1,nats://user:hunter2@127.0.0.1:2"}
	_, err := Open(t.Context(), c)
	if err == nil || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "127.0.0.1:2") {
		t.Errorf("got %v", err)
	}
}

func TestNamesAreChecked(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	for _, name := range []string{"", "a.b", "A", "a b", "*", ">", "../x", strings.Repeat("a", 65)} {
		if s.createStream(ctx, name, streamConfig{}) == nil || s.PutSecret(ctx, name, nil) == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	must(t, s.createStream(ctx, "s", streamConfig{}))
	for _, suffix := range []string{".", "a.", ".a", "a..b", "*", ">", "a b", "a\r\nb", "ä"} {
		if _, err := s.Append(ctx, "s", "", suffix, nil); err == nil {
			t.Errorf("suffix %q was taken", suffix)
		}
		if _, err := s.Put(ctx, suffix, nil, 0); err == nil {
			t.Errorf("key %q was taken", suffix)
		}
	}
	if _, err := s.Append(ctx, "s", "a\r\nNats-Rollup: all", "", nil); err == nil {
		t.Error("an id with a line end was taken")
	}
	_, err := s.Append(ctx, "s", "", "", make([]byte, MaxData+1))
	is(t, err, ErrTooLarge)
	_, err = s.Append(ctx, "s", strings.Repeat("i", 128), strings.Repeat("s", 512), make([]byte, MaxData))
	must(t, err)
}

func TestInitRefuses(t *testing.T) {
	c, ctx := config(filepath.Join(t.TempDir(), "new")), t.Context()
	_, err := Open(ctx, c)
	is(t, err, ErrNotFound)
	if !strings.Contains(err.Error(), "riffle init") {
		t.Errorf("%v does not say what to do", err)
	}
	if _, err := os.Stat(c.Dir); err == nil {
		t.Error("Open made the directory")
	}
	must(t, Init(ctx, c))
	is(t, Init(ctx, c), ErrExists)
	if runtime.GOOS != "windows" {
		for _, dir := range []string{c.Dir, filepath.Join(c.Dir, "jetstream")} {
			info, err := os.Stat(dir)
			must(t, err)
			if info.Mode().Perm() != 0o700 {
				t.Errorf("%s has mode %v", dir, info.Mode())
			}
		}
	}
	other := c
	other.Domain = "coordinator"
	if _, err := Open(ctx, other); err == nil || !strings.Contains(err.Error(), `"shuffler"`) {
		t.Errorf("opened as another domain: %v", err)
	}
	// An interrupted Init has no marker and an empty ledger.
	must(t, os.Remove(filepath.Join(c.Dir, markerFile)))
	must(t, Init(ctx, c))
	s, err := Open(ctx, c)
	must(t, err)
	_, err = s.AppendEntry(ctx, 0, []byte("spent"))
	must(t, err)
	closed(t, s)
	// A lost marker does not make a new budget.
	must(t, os.Remove(filepath.Join(c.Dir, markerFile)))
	is(t, Init(ctx, c), ErrExists)
}

func TestMissingLedger(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	must(t, s.js.DeleteStream(ctx, s.ledgerName()))
	closed(t, s)
	s = opened(t, s.config)
	_, err := s.LastEntry(ctx)
	is(t, err, ErrNoLedger)
	_, err = s.AppendEntry(ctx, 0, nil)
	is(t, err, ErrNoLedger)
}

func TestOpenRefusesForeignFormats(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	c := s.config
	closed(t, s)
	path := filepath.Join(c.Dir, markerFile)
	good, err := os.ReadFile(path)
	must(t, err)
	for _, edit := range []struct{ old, new, want string }{
		{`"format": 1`, `"format": 2, "unknown": true`, "has format 2, this program reads up to 1"},
		{`"format": 1`, `"format": 0`, "has format 0"},
		{`"format": 1`, `"format": 1, "unknown": true`, "unknown"},
		{`"standalone"`, `"cluster"`, "cluster marker"},
		{`"open"`, `"ajar"`, "ajar"},
		{`"open"`, `"sealed"`, "without the other"},
		{`}`, `} {}`, "invalid character"},
	} {
		bad := strings.Replace(string(good), edit.old, edit.new, 1)
		if bad == string(good) {
			t.Fatalf("nothing to replace: %q in %s", edit.old, good)
		}
		must(t, os.WriteFile(path, []byte(bad), 0o600))
		_, err := Open(ctx, c)
		if err == nil || !strings.Contains(err.Error(), edit.want) {
			t.Errorf("%q: got %v", edit.new, err)
		}
		if strings.Contains(edit.new, "2") {
			is(t, err, ErrNewer)
		}
	}
}

func TestClusteredDirectoryIsRefused(t *testing.T) {
	s := fresh(t)
	closed(t, s)
	nodes := newNodes(t, 3)
	nodes[0].Options.StoreDir = s.config.Dir
	nodes[0].start(t)
	nodes[0].server.Shutdown()
	nodes[0].server.WaitForShutdown()
	_, err := Open(t.Context(), s.config)
	is(t, err, ErrClustered)
}

func TestLedger(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	for i := range 5 {
		data := fmt.Appendf(nil, "round %d", i)
		seq, err := s.AppendEntry(ctx, uint64(i), data)
		must(t, err)
		if seq != uint64(i)+1 {
			t.Errorf("sequence %d", seq)
		}
	}
	_, err := s.AppendEntry(ctx, 3, []byte("in between"))
	is(t, err, ErrConflict)
	_, err = s.AppendEntry(ctx, 9, []byte("beyond"))
	is(t, err, ErrConflict)
	// Nothing removes an entry, not even the broker's own calls.
	h, err := s.js.Stream(ctx, s.ledgerName())
	must(t, err)
	if h.DeleteMsg(ctx, 1) == nil || h.Purge(ctx) == nil {
		t.Error("an entry was deleted")
	}
}

func FuzzMarker(f *testing.F) {
	c := Config{Domain: "shuffler", Dir: "d"}
	good, err := newMarker(c).encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(bytes.Replace(good, []byte(`"open"`), []byte(`"sealed", "peer": "x"`), 1))
	f.Add([]byte(`{"format":2}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMarker(data)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil {
			t.Skip() // a year that JSON does not write
		}
		if back, err := parseMarker(again); err != nil || !back.Created.Equal(m.Created) || back.ID != m.ID || back.State != m.State || back.Base != m.Base {
			t.Errorf("%+v became %+v, %v", m, back, err)
		}
	})
}

// A store that others could replace is refused, before anything is written.
func TestDirectoryOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no modes")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := Init(t.Context(), Config{Dir: dir, Domain: "test"}); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("init: %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
	must(t, os.WriteFile(filepath.Join(dir, markerFile), nil, 0o600))
	s, err := Open(t.Context(), Config{Dir: dir, Domain: "test"})
	if err == nil {
		must(t, s.Close())
	}
	if err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("open: %v", err)
	}
}

package store

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"math"
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
		if s.CreateStream(ctx, name, StreamConfig{}) == nil || s.PutSecret(ctx, name, nil) == nil {
			t.Errorf("name %q was taken", name)
		}
	}
	must(t, s.CreateStream(ctx, "s", StreamConfig{}))
	for _, suffix := range []string{".", "a.", ".a", "a..b", "*", ">", "a b", "a\r\nb", "ä"} {
		if _, err := s.Append(ctx, "s", "", suffix, nil, AppendOptions{}); err == nil {
			t.Errorf("suffix %q was taken", suffix)
		}
		if _, err := s.Put(ctx, suffix, nil, 0); err == nil {
			t.Errorf("key %q was taken", suffix)
		}
	}
	if _, err := s.Append(ctx, "s", "a\r\nNats-Rollup: all", "", nil, AppendOptions{}); err == nil {
		t.Error("an id with a line end was taken")
	}
	_, err := s.Append(ctx, "s", "", "", make([]byte, MaxData+1), AppendOptions{})
	is(t, err, ErrTooLarge)
	_, err = s.Append(ctx, "s", strings.Repeat("i", 128), strings.Repeat("s", 512), make([]byte, MaxData), AppendOptions{})
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
	l, err := s.OpenLedger(ctx)
	must(t, err)
	_, err = l.Append(ctx, 0, []byte("spent"))
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
	_, err := s.OpenLedger(ctx)
	is(t, err, ErrNoLedger)
	_, err = (&Ledger{s}).Append(ctx, 0, nil)
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
	nodes[0].Dir = s.config.Dir
	nodes[0].start(t)
	nodes[0].server.Shutdown()
	nodes[0].server.WaitForShutdown()
	_, err := Open(t.Context(), s.config)
	is(t, err, ErrClustered)
}

func TestLedgerAndMark(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	l, err := s.OpenLedger(ctx)
	must(t, err)
	path := filepath.Join(t.TempDir(), "ledger.mark")
	_, err = ReadMark(path)
	is(t, err, ErrNotFound)
	must(t, WriteMark(path, Mark{}))
	var marks []Mark
	for i := range 5 {
		data := fmt.Appendf(nil, "round %d", i)
		seq, err := l.Append(ctx, uint64(i), data)
		must(t, err)
		if seq != uint64(i)+1 {
			t.Errorf("sequence %d", seq)
		}
		marks = append(marks, Mark{seq, sha256.Sum256(data), float64(i) / 3})
		must(t, WriteMark(path, marks[i]))
	}
	_, err = l.Append(ctx, 3, []byte("in between"))
	is(t, err, ErrConflict)
	_, err = l.Append(ctx, 9, []byte("beyond"))
	is(t, err, ErrConflict)
	m, err := ReadMark(path)
	must(t, err)
	if m != marks[4] {
		t.Errorf("mark %+v, want %+v", m, marks[4])
	}
	is(t, WriteMark(path, marks[2]), ErrRollback) // never lowered
	// Nothing removes an entry, not even the broker's own calls.
	h, err := s.js.Stream(ctx, s.ledgerName())
	must(t, err)
	if h.DeleteMsg(ctx, 1) == nil || h.Purge(ctx) == nil {
		t.Error("an entry was deleted")
	}
	for _, eps := range []float64{math.NaN(), -1, math.Inf(-1)} {
		if WriteMark(path, Mark{9, marks[0].Digest, eps}) == nil {
			t.Errorf("epsilon %v was taken", eps)
		}
	}
	must(t, WriteMark(path, Mark{9, marks[0].Digest, math.Inf(1)}))
	m, err = ReadMark(path)
	must(t, err)
	if !math.IsInf(m.Epsilon, 1) {
		t.Errorf("epsilon %v", m.Epsilon)
	}
}

func testKey() []byte {
	key := make([]byte, KeySize)
	rand.Read(key) // never fails
	return key
}

func TestSealer(t *testing.T) {
	key := testKey()
	s, err := NewSealer(key)
	must(t, err)
	block := bytes.Repeat([]byte("report"), 1000)
	sealed, err := s.Seal([]byte("head"), block, []byte("round 1"))
	must(t, err)
	if len(sealed) != len("head")+len(block)+SealOverhead || bytes.Contains(sealed, []byte("report")) {
		t.Errorf("%d bytes", len(sealed))
	}
	sealed = sealed[4:]
	got, err := s.Open(nil, sealed, []byte("round 1"))
	must(t, err)
	if !bytes.Equal(got, block) {
		t.Error("another block came out")
	}
	again, err := s.Seal(nil, block, []byte("round 1"))
	must(t, err)
	if bytes.Equal(again, sealed) {
		t.Error("a nonce was used twice")
	}
	other, err := NewSealer(testKey())
	must(t, err)
	changed := bytes.Clone(sealed)
	changed[len(changed)/2] ^= 1
	_, e1 := s.Open(nil, sealed, []byte("round 2"))
	_, e2 := s.Open(nil, changed, []byte("round 1"))
	_, e3 := s.Open(nil, sealed[:10], []byte("round 1"))
	_, e4 := other.Open(nil, sealed, []byte("round 1"))
	if e1 == nil || e2 == nil || e3 == nil || e4 == nil {
		t.Error("a wrong block was opened:", e1, e2, e3, e4)
	}
	if text := fmt.Sprintf("%v %+v %#v %s", s, s, s, s); strings.ReplaceAll(text, "store.Sealer", "") != "   " {
		t.Errorf("prints as %q", text)
	}
	if _, err := NewSealer(key[:16]); err == nil {
		t.Error("a short key was taken")
	}
	s.count.Store(1 << 32)
	if _, err := s.Seal(nil, block, nil); err == nil {
		t.Error("sealed beyond the limit")
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

func FuzzMark(f *testing.F) {
	digest := sha256.Sum256([]byte("entry"))
	for _, m := range []Mark{{}, {1, digest, 1.25}, {1, digest, math.Inf(1)}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"count":1,"last":1,"digest":"","epsilon":"NaN"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseMark(data)
		if err != nil {
			return
		}
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parseMark(b); err != nil || back != m {
			t.Errorf("%+v became %+v, %v", m, back, err)
		}
	})
}

package mark

import (
	"crypto/sha256"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/riffle-dp/riffle/service/lab/memory"
)

func TestFile(t *testing.T) {
	f := File(filepath.Join(t.TempDir(), "rounds.json"))
	if _, err := f.Load(); !errors.Is(err, ErrNone) || !errors.Is(err, Err) {
		t.Error("without a file:", err)
	}
	one, two := sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))
	for _, m := range []Mark{{}, {Entries: 1, Digest: one}, {Entries: 1, Digest: one}, {Entries: 3, Digest: two}} {
		if err := f.Save(m); err != nil {
			t.Fatal(err)
		}
		if got, err := f.Load(); err != nil || got != m {
			t.Errorf("%+v is read as %+v, %v", m, got, err)
		}
	}
	for _, m := range []Mark{{}, {Entries: 2, Digest: one}, {Entries: 3, Digest: one}} {
		if err := f.Save(m); !errors.Is(err, Err) {
			t.Errorf("%+v replaces a higher mark: %v", m, err)
		}
	}
	for _, m := range []Mark{{Entries: 4}, {Entries: -1, Digest: one}, {Entries: 4, Digest: one, Epsilon: "NaN"}, {Entries: 4, Digest: one, Epsilon: "-1"}} {
		if f.Save(m) == nil {
			t.Errorf("%+v was taken", m)
		}
	}
	b, err := os.ReadFile(string(f))
	if err != nil || strings.Contains(string(b), "epsilon") {
		t.Errorf("%s, %v", b, err)
	}
	if err := os.WriteFile(string(f), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f.Save(Mark{Entries: 4, Digest: one}) == nil {
		t.Error("a mark that cannot be read was replaced")
	}
}

// Of those that make a mark at the same time one does: another one's first mark replaces none that counts
// entries already.
func TestMarkIsMadeOnce(t *testing.T) {
	for trial := range 40 {
		f := File(filepath.Join(t.TempDir(), "mark"))
		var wg sync.WaitGroup
		var made atomic.Int64
		for range 3 {
			wg.Go(func() {
				switch err := f.Save(Mark{}); {
				case err == nil:
					made.Add(1)
					if err := f.Save(Mark{Entries: 40, Digest: [32]byte{1}}); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, os.ErrExist) && !errors.Is(err, Err):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if m, err := f.Load(); made.Load() != 1 || m.Entries != 40 || err != nil {
			t.Fatalf("trial %d: made %d times, %+v, %v", trial, made.Load(), m, err)
		}
	}
}

// While a list's mark cannot be written nothing that is added counts as added, and the list says so. The next
// that is added, or the same again, brings the mark up to date.
func TestListWhoseMarkFails(t *testing.T) {
	var at Mark
	failing := false
	l := &List[string, bool]{Name: "test", Log: &memory.Store{Disk: memory.NewDisk()}, Mark: memory.Mark[Mark]{At: &at, Do: func(op string, f func() error) error {
		if failing && op == "write mark" {
			return os.ErrPermission
		}
		return f()
	}}, Apply: func(known map[string]bool, _ [32]byte, data []byte) error { known[string(data)] = true; return nil }}
	add := func(key string) error {
		return l.Add(t.Context(), key, func(known bool, _ [32]byte) ([]byte, error) {
			if known {
				return nil, nil
			}
			return []byte(key), nil
		})
	}
	if err := errors.Join(l.Open(t.Context()), add("a"), l.Lag()); err != nil {
		t.Fatal(err)
	}
	failing = true
	for _, key := range []string{"b", "b", "a", "c"} {
		if err := add(key); !errors.Is(err, os.ErrPermission) || at.Entries != 1 {
			t.Errorf("%s: %v, the mark is at %d", key, err, at.Entries)
		}
	}
	if err := l.Lag(); err == nil || !strings.Contains(err.Error(), "at entry 1 of 3") {
		t.Errorf("it says %v", err)
	}
	failing = false
	if err := errors.Join(add("b"), l.Lag()); err != nil || at.Entries != 3 {
		t.Errorf("%v, the mark is at %d", err, at.Entries)
	}
}

func FuzzMark(f *testing.F) {
	digest := sha256.Sum256([]byte("entry"))
	for _, m := range []Mark{{}, {Entries: 1, Digest: digest}, {Entries: 1, Digest: digest, Epsilon: "1.25"}, {Entries: 1, Digest: digest, Epsilon: "+Inf"}} {
		b, err := m.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte(`{"format":1,"count":1,"last":1,"digest":"","epsilon":"NaN"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parse(data)
		if err != nil {
			return
		}
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if back, err := parse(b); err != nil || back != m {
			t.Errorf("%+v became %+v, %v", m, back, err)
		}
	})
}

// A mark in a directory in which others may put another file is not believed, and not written.
func TestDirectoryOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no modes")
	}
	dir := t.TempDir()
	f, one := File(filepath.Join(dir, "rounds.json")), Mark{Entries: 1, Digest: sha256.Sum256([]byte("one"))}
	if err := errors.Join(f.Save(one), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Load(); err == nil || errors.Is(err, ErrNone) || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("read: %v", err)
	}
	if err := f.Save(Mark{Entries: 2, Digest: one.Digest}); err == nil {
		t.Error("written")
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if m, err := f.Load(); err != nil || m != one {
		t.Errorf("%+v, %v", m, err)
	}
}

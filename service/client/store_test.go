package client

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/riffle-dp/riffle/internal/durable"
)

// Of processes that make a ledger at the same time one does. What its clients have charged meanwhile stays.
func TestLedgerIsMadeOnce(t *testing.T) {
	for trial := range 40 {
		dir := filepath.Join(t.TempDir(), "clients")
		var wg sync.WaitGroup
		var made atomic.Int64
		for range 3 {
			wg.Go(func() {
				switch err := CreateLedger(dir); {
				case err == nil:
					made.Add(1)
					if err := directory(dir).Append(ledgerFile, []byte("charged")); err != nil {
						t.Error(err)
					}
				case !errors.Is(err, fs.ErrExist) && !errors.Is(err, durable.ErrLocked):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if b, err := directory(dir).Read(ledgerFile); made.Load() != 1 || string(b) != bookHeader+"charged" || err != nil {
			t.Fatalf("trial %d: made %d times, it holds %q, %v", trial, made.Load(), b, err)
		}
	}
}

// The contract of Store, on a directory. web/store_test.go has the same for a browser's database.
func TestDirectoryIsAStore(t *testing.T) {
	root := t.TempDir()
	var s Store = directory(filepath.Join(root, "clients"))
	if err := CreateLedger(filepath.Join(root, "clients")); err != nil {
		t.Fatal(err)
	}
	if err := CreateLedgerIn(s); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a second ledger: %v", err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	is := func(what, name, want string) {
		t.Helper()
		if b, err := s.Read(name); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v, want %q", what, b, err, want)
		}
	}
	missing := func(what string, err error) {
		t.Helper()
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := s.Read("receipts/a")
	missing("read of nothing", err)
	missing("removal of nothing", s.Remove("receipts/a"))
	_, err = s.List("receipts")
	missing("names of no directory", err)
	must(s.Write("receipts/a", []byte("first, and longer"))) // makes the directory
	must(s.Write("receipts/a", []byte("second")))
	is("a file replaced", "receipts/a", "second")
	must(s.Append("receipts/a", []byte(" more")))
	is("a file with more", "receipts/a", "second more")
	must(s.Cut("receipts/a", 8))
	is("a file cut", "receipts/a", "second m")
	must(s.Zero("receipts/a", 1, 3))
	is("bytes overwritten", "receipts/a", "s\x00\x00ond m")
	b := make([]byte, 3)
	must(s.ReadAt("receipts/a", b, 3))
	if string(b) != "ond" {
		t.Errorf("bytes %q", b)
	}
	if err := s.ReadAt("receipts/a", b, 7); err == nil {
		t.Error("bytes after the end are read")
	}
	large := bytes.Repeat([]byte{1}, 200_000)
	must(s.Write("large", large))
	must(s.Zero("large", 10, 150_000))
	clear(large[10:150_000])
	is("many bytes overwritten", "large", string(large))
	must(s.Write("receipts/b", nil))
	if names, err := s.List("receipts"); err != nil || !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("names %q, %v", names, err)
	}
	must(s.Remove("receipts/b"))
	missing("a file that was removed", s.Remove("receipts/b"))
	unlock, err := s.Lock()
	must(err)
	if _, err := s.Lock(); err == nil {
		t.Error("locked twice")
	}
	must(unlock())
	unlock, err = s.Lock()
	must(err)
	must(unlock())
	if runtime.GOOS == "windows" {
		return
	}
	must(filepath.WalkDir(filepath.Join(root, "clients"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
	// A link to a ledger that is not there now, as on a disk that is not mounted, is no empty place.
	other := filepath.Join(root, "other")
	must(os.MkdirAll(other, 0o700))
	must(os.Symlink(filepath.Join(root, "nowhere"), filepath.Join(other, ledgerFile)))
	if err := CreateLedger(other); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a ledger in place of a link: %v", err)
	}
}

// A ledger in a directory in which others may put another file is refused.
func TestDirectoryOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no modes")
	}
	dir := filepath.Join(t.TempDir(), "ledger")
	if err := errors.Join(CreateLedger(dir), os.Chmod(dir, 0o777)); err != nil {
		t.Fatal(err)
	}
	if _, err := directory(dir).Lock(); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("error %v", err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	unlock, err := directory(dir).Lock()
	if err != nil {
		t.Fatal(err)
	}
	if err := unlock(); err != nil {
		t.Error(err)
	}
}

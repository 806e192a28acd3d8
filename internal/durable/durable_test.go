package durable

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestWriteFileReplacesAndLeavesNothingBehind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	for _, text := range []string{"first, and longer", "second", ""} {
		if err := WriteFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := read(t, path); got != text {
			t.Errorf("wrote %q, read %q", text, got)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%d files left: %v", len(entries), err)
	}
}

func TestFailedWriteKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	// A directory in the file's place makes the rename fail after the write.
	if err := os.MkdirAll(filepath.Join(path, "child"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(path, []byte("new")); err == nil {
		t.Fatal("replaced a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || !entries[0].IsDir() {
		t.Errorf("left %v, %v", entries, err)
	}
	if err := WriteFile(filepath.Join(dir, "missing", "f"), nil); err == nil {
		t.Error("wrote into a directory that does not exist")
	}
}

func TestAppend(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	for _, line := range []string{"a\n", "b\n"} {
		if err := Append(path, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, path); got != "a\nb\n" {
		t.Errorf("read %q", got)
	}
}

func TestModes(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("files have no modes")
	}
	path := filepath.Join(t.TempDir(), "f")
	for _, c := range []struct {
		write func(string, []byte) error
		want  os.FileMode
	}{{WriteFile, 0o644}, {WritePrivate, 0o600}, {Append, 0o600}} {
		if err := c.write(path, []byte("x")); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode() != c.want {
			t.Errorf("mode %v, %v, want %v", info.Mode(), err, c.want)
		}
	}
}

func TestTextEndsAtZeros(t *testing.T) {
	for in, want := range map[string]string{"": "", "a\nb": "a\nb", "a\n\x00\x00b\n": "a\n", "\x00": ""} {
		if got := string(Text([]byte(in))); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestMkdirAllAndRemove(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a", "b", "c")
	for range 2 {
		if err := MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "f")
	if err := Append(file, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := MkdirAll(filepath.Join(file, "d"), 0o700); err == nil {
		t.Error("a directory inside a file")
	}
	if err := MkdirAll(file, 0o700); err == nil {
		t.Error("a directory in a file's place")
	}
	if err := errors.Join(Sync(file), SyncTree(root), Remove(file)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{file, filepath.Join(root, "none", "f")} {
		if err := Remove(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("removed what is not there: %v", err)
		}
	}
	if err := Remove(filepath.Join(root, "a")); err == nil {
		t.Error("removed a full directory")
	}
	if err := SyncTree(filepath.Join(root, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("synced what is not there: %v", err)
	}
}

// Of those that make a file at the same time one does, and the file is its own, whole.
func TestCreateIsOnes(t *testing.T) {
	dir := t.TempDir()
	for trial := range 40 {
		path := filepath.Join(dir, fmt.Sprint(trial))
		var wg sync.WaitGroup
		made := make(chan string, 4)
		for i := range 4 {
			wg.Go(func() {
				text := strings.Repeat(fmt.Sprint(i), 1000)
				switch err := Create(path, []byte(text), 0o600); {
				case err == nil:
					made <- text
				case !errors.Is(err, os.ErrExist):
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if len(made) != 1 {
			t.Fatalf("trial %d: %d made it", trial, len(made))
		}
		if got := read(t, path); got != <-made {
			t.Fatalf("trial %d: it holds %.9q", trial, got)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 40 {
		t.Errorf("%d files are left: %v", len(left), err)
	}
}

//go:build unix

package durable

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What has no end is refused at once: nobody writes into the pipe, and /dev/zero is read for ever.
func TestOnlyFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	pipe, link, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "link"), filepath.Join(dir, "s")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(pipe, link)); err != nil {
		t.Fatal(err)
	}
	refused := map[string]string{pipe: "it is a pipe: want a file", link: "it is a pipe: want a file", "/dev/zero": "it is a device: want a file"}
	if l, err := net.Listen("unix", socket); err == nil { // else the path is too long
		defer l.Close()
		refused[socket] = "it is a socket: want a file"
	}
	for path, want := range refused {
		_, err := ReadFile(path)
		if err == nil || err.Error() != "open "+path+": "+want || !errors.Is(err, ErrNoFile) {
			t.Errorf("%s: %v", path, err)
		}
		if f, err := Open(path); err == nil {
			f.Close()
			t.Errorf("%s was opened", path)
		}
	}
	if _, err := ReadFile(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := ReadFile(dir); !errors.Is(err, syscall.EISDIR) {
		t.Errorf("a directory: %v", err)
	}
	// Nor does writing wait for somebody who reads.
	if err := Append(pipe, []byte("x")); err == nil {
		t.Error("appended to a pipe")
	}
	if err := Truncate(pipe, 0); err == nil {
		t.Error("truncated a pipe")
	}
}

//go:build amd64 || arm64

package localsocket

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// A socket on which another user listens is refused, though its file is this user's own, as it is for a moment where
// somebody renames sockets.
func TestOthersAreRefused(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	dir, err := os.MkdirTemp("", "ls") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "s")
	if err := os.Chmod(dir, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	type made struct {
		net.Listener
		err error
	}
	out := make(chan made)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread is another user's, and ends with this function
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), 12345, ^uintptr(0)); errno != 0 {
			out <- made{nil, errno}
			return
		}
		l, err := net.Listen("unix", path)
		out <- made{l, err}
	}()
	l := <-out
	if l.err != nil {
		t.Skip(l.err)
	}
	defer l.Close()
	if err := errors.Join(os.Chown(path, 0, 0), os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	c, err := Dial(t.Context(), path)
	if err == nil {
		c.Close()
	}
	if !errors.Is(err, ErrOther) {
		t.Errorf("error %v", err)
	}
}

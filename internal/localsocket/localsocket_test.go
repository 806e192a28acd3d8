package localsocket

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Whoever listens is asked for, not who owns the file.
func TestOwnListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Skip(err) // a directory's path may be too long for a socket
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, _ = io.WriteString(c, "own")
			_ = c.Close()
		}
	}()
	c, err := Dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); err != nil || string(b) != "own" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestAllowed(t *testing.T) {
	for _, uid := range []int{-1, 0, os.Getuid()} {
		if err := allowed(uid); err != nil {
			t.Errorf("user %d: %v", uid, err)
		}
	}
	if err := allowed(os.Getuid() + 12345); !errors.Is(err, ErrOther) {
		t.Errorf("another user: %v", err)
	}
}

// A name that any user may take is refused, though its own user listens there.
func TestNamesAreRefused(t *testing.T) {
	for _, name := range []string{"@riffle-test-own", "\x00riffle-test-own", ""} {
		if l, err := net.Listen("unix", name); err == nil && name != "" {
			defer l.Close()
		}
		if c, err := Dial(t.Context(), name); err == nil {
			c.Close()
			t.Errorf("%q is taken", name)
		}
	}
}

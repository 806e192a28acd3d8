package externaltest

import (
	"net"
	"os"
	"path/filepath"
	"testing"
)

// Listen answers on a socket in a mode until the test ends, and returns unix:PATH.
func Listen(t testing.TB, mode string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "rf") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close()
		_ = os.RemoveAll(dir)
	})
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				serve(mode, conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "unix:" + path
}

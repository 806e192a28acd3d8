package external

import (
	"net"
	"os"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

const programDim, programClients = externaltest.Dim, externaltest.Clients

var program, gradientOf, answer = externaltest.Program, externaltest.Gradient, externaltest.Answer

func TestMain(m *testing.M) {
	externaltest.Main()
	os.Exit(m.Run())
}

// listen serves a mode on a socket, and returns unix:PATH.
func listen(t *testing.T, mode string) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "riffle") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", dir+"/s")
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
				externaltest.Serve(mode, conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return "unix:" + dir + "/s"
}

package endpoint

import (
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/internal/memnet"
)

// Connections leave files to the store, whatever is configured.
func TestConnectionsLeaveFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var limit syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		low := limit
		low.Cur = min(limit.Cur, 600)
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
				t.Error(err)
			}
		}()
		for configured, want := range map[int][2]int64{0: {200, 200}, 10: {10, 1}, 1000: {200, 125}} { // in all, of an address's strangers
			s, _, _ := start(t, network, ServerConfig{MaxConns: configured, Handler: http.NotFoundHandler()})
			if got := [2]int64{s.gate.most[connections], s.gate.share[connections]}; got != want {
				t.Errorf("%d connections of %d, want %d", got, configured, want)
			}
		}
	})
}

package operate

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// A thousand clients that cannot reach their shuffler in a hundred rounds say it once,
// and how often it was at the end.
func TestClientsLogACauseOnce(t *testing.T) {
	var b bytes.Buffer
	c := newCauses(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelInfo})))
	now := time.Unix(1e9, 0)
	down := func(i int64) error {
		return fmt.Errorf("client: %w", &url.Error{Op: "Post", URL: fmt.Sprintf("https://shuffler:8443/v1/report?x=%d", i),
			Err: &net.OpError{Op: "read", Net: "tcp", Source: &net.TCPAddr{Port: int(i)}, Err: errors.New("connection reset")}})
	}
	task := [32]byte{1}
	const clients, rounds = 1000, 100
	for round := range int64(rounds) {
		for i := range int64(clients) {
			c.told(client.Notice{What: client.Retrying, Task: task, Round: round, Err: down(round*clients + i)}, now)
			c.told(client.Notice{What: client.Declined, Task: task, Round: round, Client: wire.ID{byte(i)},
				Err: &pure.Refused{Cause: pure.CauseBudget, Task: task, Round: round, Detail: fmt.Sprint("spent ", i)}}, now)
			c.told(client.Notice{What: client.Sent, Task: task, Round: round}, now)
		}
		c.told(client.Notice{What: client.Retrying, Task: task, Err: fmt.Errorf("client: announcement: status %d, unavailable", 503)}, now)
		now = now.Add(time.Second)
	}
	if n := strings.Count(b.String(), "\n"); n != 3 {
		t.Errorf("%d lines:\n%s", n, b.String())
	}
	now = now.Add(2 * time.Hour)
	c.told(client.Notice{What: client.Retrying, Task: task, Err: down(1)}, now)
	if n := strings.Count(b.String(), "\n"); n != 4 || !strings.Contains(b.String(), fmt.Sprint("times=", clients*rounds)) {
		t.Errorf("%d lines after hours:\n%s", n, b.String())
	}
	c.end(now)
	if !strings.Contains(b.String(), fmt.Sprint("times=", clients*rounds-1)) {
		t.Errorf("not counted:\n%s", b.String())
	}
	b.Reset()
	for i := range 5 * mostCauses { // memory stays what it is
		c.told(client.Notice{What: client.Lost, Err: errors.New(strings.Repeat("x", i))}, now)
	}
	if n := strings.Count(b.String(), "\n"); n > mostCauses || len(c.seen) > mostCauses+1 {
		t.Errorf("%d lines, %d causes", n, len(c.seen))
	}
}

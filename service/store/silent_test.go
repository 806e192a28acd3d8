package store

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// A connection to a server that has gone silent is left for a new one long before the server's
// own two minutes between pings are over.
func TestSilentServerIsLeft(t *testing.T) {
	longtest.Only(t, "waits for pings")
	s, err := server.NewServer(&server.Options{ServerName: "one", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true, StoreDir: t.TempDir(), SyncAlways: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	defer s.WaitForShutdown()
	defer s.Shutdown()
	if !s.ReadyForConnections(time.Minute) {
		t.Fatal("the server does not start")
	}
	// Between them stands what passes bytes on until it forgets the connection.
	front, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer front.Close()
	var connections, forgotten atomic.Int64 // those up to this number pass nothing
	go func() {
		for {
			c, err := front.Accept()
			if err != nil {
				return
			}
			me := connections.Add(1)
			to, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				c.Close()
				continue
			}
			pass := func(from, to net.Conn) {
				b := make([]byte, 1<<16)
				for {
					n, err := from.Read(b)
					if forgotten.Load() >= me {
						_, _ = io.Copy(io.Discard, from)
						return
					}
					if _, werr := to.Write(b[:n]); err != nil || werr != nil {
						to.Close()
						return
					}
				}
			}
			go pass(c, to)
			go pass(to, c)
		}
	}()
	c := Config{URL: "nats://" + front.Addr().String(), Replicas: 1, Domain: "shuffler", Timeout: 5 * time.Second}
	must(t, Init(t.Context(), c))
	db, err := Open(t.Context(), c)
	must(t, err)
	defer db.Close()
	_, err = db.Put(t.Context(), "round.1", []byte("open"), 0)
	must(t, err)
	forgotten.Store(connections.Load())
	begin := time.Now()
	for {
		_, err := db.Get(t.Context(), "round.1")
		if err == nil {
			break
		}
		if time.Since(begin) > 3*time.Minute {
			t.Fatalf("after %v: %v", time.Since(begin), err)
		}
	}
	_, err = db.Put(t.Context(), "round.2", []byte("open"), 0)
	must(t, err)
	t.Logf("left after %v", time.Since(begin).Round(time.Second))
}

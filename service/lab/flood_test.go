package lab_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/lab"
)

// flood is what one host does to a relay: by so many connections from each address it asks, again and again, twice
// at a time.
type flood struct {
	from  []string
	conns int
	post  bool // bodies that never end, in place of questions for rounds that nobody opened
}

// begin floods until the function that it returns is called.
func (f flood) begin(l *lab.Lab) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, ip := range f.from {
		for range f.conns {
			all.Go(func() {
				for ctx.Err() == nil {
					f.connect(ctx, l, ip)
					time.Sleep(250 * time.Millisecond)
				}
			})
		}
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// connect asks by one connection until that is closed.
func (f flood) connect(ctx context.Context, l *lab.Lab, ip string) {
	c := &http.Transport{DialContext: l.Net.From(net.ParseIP(ip)), TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer c.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() {
			defer cancel()
			for f.ask(ctx, c, l.RelayURL()) == nil {
				time.Sleep(20 * time.Millisecond)
			}
		})
	}
	both.Wait()
}

func (f flood) ask(ctx context.Context, c *http.Transport, url string) error {
	var round [32]byte
	rand.Read(round[:])
	method, path, body := http.MethodGet, fmt.Sprintf("/v1/enrolment?round=%x", round), io.Reader(nil)
	if f.post {
		method, path, body = http.MethodPost, "/v1/relay", io.MultiReader(bytes.NewReader(round[:]), endless{ctx})
	}
	q, err := http.NewRequestWithContext(ctx, method, url+path, body)
	if err != nil {
		return err
	}
	a, err := c.RoundTrip(q)
	if err != nil {
		return err
	}
	defer a.Body.Close()
	_, err = io.Copy(io.Discard, a.Body)
	return err
}

// endless is a body of which no byte comes.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, e.ctx.Err()
}

// While one host floods a relay, no honest report is lost, and rounds take less than twice as long.
func TestFloodOfARelay(t *testing.T) {
	const (
		share   = 2 // connections of an address's strangers, as 1,250 are by default
		clients = 8
		way     = 1500 * time.Millisecond // that a post takes to the gateway
	)
	took := func(t *testing.T, f flood) time.Duration {
		l := lab.New(t, lab.Config{Clients: clients, Relay: true, Registrar: true,
			Job:  func(j *coordinator.Job) { j.Round = 20 * time.Second },
			Join: func(c *client.JoinConfig) { c.Spread = -1 },
			Front: func(c *endpoint.ServerConfig) {
				c.MaxConns = int(share / endpoint.DefaultShare)
				next := c.Handler
				c.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPost && r.ContentLength > 0 {
						time.Sleep(way)
					}
					next.ServeHTTP(w, r)
				})
			}})
		l.Await(func(s wire.Status) bool { return s.Released == 1 })
		begun := time.Now()
		defer f.begin(l)()
		s := l.Await(func(s wire.Status) bool { return s.State != coordinator.Running })
		if s.State != coordinator.Done || s.Released != l.Task.Rounds || s.Reports != clients*l.Task.Rounds {
			t.Errorf("%+v: %s, %d rounds, %d reports", f, s.State, s.Released, s.Reports)
		}
		if n := l.Fleet.Snapshot(); len(n.Declined) != 0 || n.Reports[client.Lost] != 0 {
			t.Errorf("%+v: the clients: %+v", f, n)
		}
		return time.Since(begun)
	}
	var quiet time.Duration
	synctest.Test(t, func(t *testing.T) { quiet = took(t, flood{}) })
	for name, f := range map[string]flood{
		"the clients' own network":           {from: []string{"127.0.0.9"}, conns: share},
		"five others":                        {from: []string{"10.0.1.1", "10.0.2.1", "10.0.3.1", "10.0.4.1", "10.0.5.1"}, conns: share},
		"all connections of another address": {from: []string{"10.0.1.1"}, conns: share / endpoint.DefaultShare},
		"bodies that stall":                  {from: []string{"127.0.0.9"}, conns: share, post: true},
	} {
		bubble(t, name, func(t *testing.T) {
			if d := took(t, f); d > 2*quiet {
				t.Errorf("it took %v, %v without the flood", d, quiet)
			}
		})
	}
}

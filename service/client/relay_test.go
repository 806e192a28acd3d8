package client_test

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/bhttp"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/relay"
)

// relayed is a relay between clients and the world's shuffler.
type relayed struct {
	*world
	gateway, relay *httptest.Server
	mu             sync.Mutex
	sizes          map[int]int                                       // sealed requests at the relay, by size
	bodies         [][]byte                                          // as the relay got them
	tamper         func(w http.ResponseWriter, q *http.Request) bool // answers in the relay's place
}

func newRelayed(t *testing.T, w *world) (*relayed, client.JoinConfig) {
	t.Helper()
	r := &relayed{world: w, sizes: map[int]int{}}
	inside := relay.Gateway(w.rings[envelope.Shuffler], http.HandlerFunc(w.serveShuffler), 1<<20)
	r.gateway = w.network.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if q.URL.Path == relay.Path {
			for name := range q.Header {
				if name != "Content-Type" && name != "User-Agent" && name != "Content-Length" && name != "Accept-Encoding" {
					t.Errorf("the gateway is told %s: %s", name, q.Header.Get(name))
				}
			}
			if q.Method == http.MethodGet {
				rw.Write(wire.Encode(w.relayView()))
				return
			}
			inside.ServeHTTP(rw, q)
			return
		}
		t.Errorf("the relay asks its gateway for %s", q.URL)
	}))
	service, err := relay.New(relay.Config{Gateway: r.gateway.URL, Client: r.gateway.Client()})
	if err != nil {
		t.Fatal(err)
	}
	h := service.Handler()
	r.relay = w.network.ServeTLS(t, http.HandlerFunc(func(rw http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPost {
			b, _ := io.ReadAll(q.Body)
			q.Body = io.NopCloser(bytes.NewReader(b))
			r.mu.Lock()
			r.sizes[len(b)]++
			r.bodies = append(r.bodies, b)
			r.mu.Unlock()
		}
		r.mu.Lock()
		tamper := r.tamper
		r.mu.Unlock()
		if tamper == nil || !tamper(rw, q) {
			h.ServeHTTP(rw, q)
		}
	}))
	c := w.config()
	c.Relay = r.relay.URL
	c.Roots = x509.NewCertPool()
	c.Roots.AddCert(w.servers[0].Certificate())
	c.Roots.AddCert(r.relay.Certificate())
	w.servers[1].Close() // nobody needs the shuffler's own address
	return r, c
}

// relayView is what the shuffler tells its relay.
func (w *world) relayView() wire.RelayView {
	w.mu.Lock()
	defer w.mu.Unlock()
	v := wire.RelayView{Enrolments: [][]byte{wire.Sign(w.operator, wire.LabelEnrolment, wire.Encode(w.enrolment))}}
	if w.ann != nil {
		v.Rounds = []wire.RelayRound{{Announcement: w.digest}}
	}
	return v
}

// run has clients take part in one round.
func (r *relayed) run(c client.JoinConfig, until func(ctx context.Context, seen watch)) {
	r.t.Helper()
	seen := newWatch()
	c.Watch = seen.tell
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Minute)
	defer cancel()
	f, err := client.NewFleet(c, r.members)
	if err != nil {
		r.t.Fatal(err)
	}
	running, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.Run(running) }()
	until(ctx, seen)
	stop()
	if err := errors.Join(<-done, f.Close()); err != nil {
		r.t.Error(err)
	}
}

func (r *relayed) sent(ctx context.Context, seen watch) {
	r.t.Helper()
	for range r.members {
		seen.next(ctx, r.t, client.Sent)
	}
}

// Clients report through a relay, which sees requests of one size only and none of what is in them.
func TestThroughRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, suite := range []wire.Suite{wire.X25519, wire.X25519MLKEM768} {
			theta := []float32{1, 2, 3, 4, 5}
			task := shuffleTask()
			w := newWorldOf(t, suite, 3, task)
			r, c := newRelayed(t, w)
			w.publish(w.announcement(1, theta), theta, nil)
			r.run(c, r.sent)
			if len(r.sizes) != 1 || len(r.bodies) != 6 {
				t.Errorf("%d requests of sizes %v, want 6 of one size: 3 for sessions and 3 reports", len(r.bodies), r.sizes)
			}
			for _, m := range w.members {
				id := wire.ClientID(m.Credential.Public())
				for _, b := range r.bodies {
					if bytes.Contains(b, id[:]) {
						t.Error("the relay sees a client's id")
					}
				}
			}
			if len(w.reports) != 3 {
				t.Errorf("%d reports", len(w.reports))
			}
		}
	})
}

// A relay that changes, drops, repeats or answers for itself gets nothing taken that a client did not
// send, and nothing taken twice. What it spoils is sent again.
func TestEvilRelay(t *testing.T) {
	for name, tamper := range map[string]func(r *relayed, n int, w http.ResponseWriter, q *http.Request) bool{
		"drops the first": func(_ *relayed, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 6 {
				w.WriteHeader(503)
			}
			return n < 6
		},
		"changes a byte": func(_ *relayed, n int, _ http.ResponseWriter, q *http.Request) bool {
			if n < 6 {
				b, _ := io.ReadAll(q.Body)
				b[len(b)/2] ^= 1
				q.Body = io.NopCloser(bytes.NewReader(b))
			}
			return false
		},
		"says that all is well": func(_ *relayed, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 6 {
				w.WriteHeader(204)
			}
			return n < 6
		},
		"answers with rubbish": func(_ *relayed, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 6 {
				w.Write(bytes.Repeat([]byte{7}, 4096))
			}
			return n < 6
		},
		"refuses for the shuffler": func(_ *relayed, n int, w http.ResponseWriter, _ *http.Request) bool {
			if n < 6 {
				w.WriteHeader(403)
				fmt.Fprint(w, `{"reason":"not-enrolled"}`)
			}
			return n < 6
		},
		"repeats everything": func(r *relayed, n int, _ http.ResponseWriter, q *http.Request) bool {
			b, _ := io.ReadAll(q.Body)
			q.Body = io.NopCloser(bytes.NewReader(b))
			for range 3 {
				res, err := r.gateway.Client().Post(r.gateway.URL+relay.Path, "message/ohttp-req", bytes.NewReader(b))
				if err != nil {
					r.t.Error(err)
					continue
				}
				res.Body.Close()
			}
			return false
		},
		"gives an answer to another": func() func(r *relayed, n int, w http.ResponseWriter, q *http.Request) bool {
			return func(r *relayed, n int, w http.ResponseWriter, _ *http.Request) bool {
				if n < 3 || n > 9 {
					return false
				}
				r.mu.Lock()
				old := r.bodies[0]
				r.mu.Unlock()
				res, err := r.gateway.Client().Post(r.gateway.URL+relay.Path, "message/ohttp-req", bytes.NewReader(old))
				if err != nil {
					r.t.Error(err)
					return false
				}
				defer res.Body.Close()
				io.Copy(w, res.Body)
				return true
			}
		}(),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				theta := []float32{1, 2, 3, 4, 5}
				w := newWorld(t, 3, shuffleTask())
				r, c := newRelayed(t, w)
				n := 0
				r.tamper = func(w http.ResponseWriter, q *http.Request) bool {
					if q.Method != http.MethodPost {
						return false
					}
					r.mu.Lock()
					n++
					now := n - 1
					r.mu.Unlock()
					return tamper(r, now, w, q)
				}
				w.publish(w.announcement(1, theta), theta, nil)
				r.run(c, r.sent)
				if len(w.reports) != 3 {
					t.Errorf("%d reports", len(w.reports))
				}
			})
		})
	}
}

// The relay cannot give clients a key of its own: the shuffler's operator signs its keys.
func TestGatewaysKeyIsSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theta := []float32{1, 2, 3, 4, 5}
		w := newWorld(t, 3, shuffleTask())
		r, c := newRelayed(t, w)
		own, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		forged := w.enrolment
		forged.Shuffler = []wire.Key{own.Public}
		r.tamper = func(rw http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet {
				return false
			}
			rw.Write(wire.Sign(w.coordinator, wire.LabelEnrolment, wire.Encode(forged)))
			return true
		}
		w.publish(w.announcement(1, theta), theta, nil)
		r.run(c, func(ctx context.Context, seen watch) {
			refused := (*pure.Refused)(nil)
			if n := seen.next(ctx, t, client.Declined); !errors.As(n.Err, &refused) || refused.Cause != pure.CauseSignature {
				t.Errorf("declined for %v", n.Err)
			}
		})
		if len(r.bodies) != 0 {
			t.Errorf("%d requests went through the relay", len(r.bodies))
		}
	})
}

// The relay's gateway has other keys by now: clients fetch the new enrolment and go on.
func TestGatewaysKeyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theta := []float32{1, 2, 3, 4, 5}
		w := newWorld(t, 3, shuffleTask())
		r, c := newRelayed(t, w)
		old := w.enrolment
		stale, err := envelope.GenerateKey(wire.X25519, time.Now().Add(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		old.Serial, old.Shuffler = 0, []wire.Key{stale.Public}
		asked := 0
		c.Prepare = true // sessions are asked for before any announcement names an enrolment
		r.tamper = func(rw http.ResponseWriter, q *http.Request) bool {
			if q.Method != http.MethodGet {
				return false
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if asked++; asked > 1 {
				return false
			}
			rw.Write(wire.Sign(w.operator, wire.LabelEnrolment, wire.Encode(old)))
			return true
		}
		w.publish(w.announcement(1, theta), theta, nil)
		r.run(c, r.sent)
	})
}

// Nobody gets the relay to ask another server, or the gateway for what is not for clients.
func TestRelayAsksItsGatewayOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3, shuffleTask())
		other := w.network.Serve(t, http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) { t.Errorf("another server was asked for %s", q.URL) }))
		r, _ := newRelayed(t, w)
		ask := func(method, path, host string, body []byte) int {
			t.Helper()
			q, err := http.NewRequest(method, r.relay.URL+path, bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			if host != "" {
				q.Host = host
			}
			q.Header.Set("X-Forwarded-For", "203.0.113.7")
			q.Header.Set("Cookie", "who=me")
			res, err := r.relay.Client().Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			return res.StatusCode
		}
		for path, want := range map[string]int{
			"/v1/enrolment": 200, "/v1/enrolment?round=" + hex.EncodeToString(make([]byte, 32)): 404, "/v1/enrolment?round=../x": 400,
			"/v1/enrolment?url=" + other.URL: 200, "/v1/rounds": 404, "/v1/ledger": 404, "//" + other.Listener.Addr().String() + "/": 404, "/v1/relay": 405,
		} {
			if got := ask("GET", path, "", nil); got != want {
				t.Errorf("GET %s: %d, want %d", path, got, want)
			}
		}
		if got := ask("GET", "/v1/enrolment", other.Listener.Addr().String(), nil); got != 200 {
			t.Errorf("another Host: %d", got)
		}
		before := w.asked("POST session") + w.asked("POST report") + w.asked("POST ask")
		for name, body := range map[string][]byte{"rubbish": bytes.Repeat([]byte{9}, 3000), "nothing": nil, "too much": make([]byte, 2<<20)} {
			if got := ask("POST", relay.Path, "", body); got/100 != 4 {
				t.Errorf("%s: %d", name, got)
			}
		}
		for _, inside := range []string{"GET /v1/enrolment", "POST /v1/rounds", "DELETE /v1/rounds/00", "POST http://" + other.Listener.Addr().String() + "/v1/report", "POST /v1/report?x", "POST /v1/../v1/report"} {
			if got := r.inside(inside); got != 404 {
				t.Errorf("%s inside: %d", inside, got)
			}
		}
		if after := w.asked("POST session") + w.asked("POST report") + w.asked("POST ask"); after != before {
			t.Errorf("%d requests reached the shuffler", after-before)
		}
	})
}

// inside seals a request to the gateway and returns the status in its answer.
func (r *relayed) inside(line string) int {
	r.t.Helper()
	var method, path string
	fmt.Sscanf(line, "%s %s", &method, &path)
	return insideStatus(r.t, r.gateway, r.opens[envelope.Shuffler].Public, method, path)
}

func insideStatus(t *testing.T, gateway *httptest.Server, key wire.Key, method, path string) int {
	t.Helper()
	q := bhttp.Request{Method: method, Scheme: "https", Authority: "elsewhere.example", Path: path, Body: []byte("x")}
	sealed, open, err := envelope.SealRequest(key, q.Append(nil, 0))
	if err != nil {
		t.Fatal(err)
	}
	res, err := gateway.Client().Post(gateway.URL+relay.Path, "message/ohttp-req", bytes.NewReader(sealed))
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != 200 {
		t.Fatalf("%s %s: %d %s (%v)", method, path, res.StatusCode, b, err)
	}
	inside, err := open(b)
	if err != nil {
		t.Fatal(err)
	}
	m, err := bhttp.DecodeResponse(inside)
	if err != nil {
		t.Fatal(err)
	}
	return m.Status
}

package endpoint

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// line is a connection from an address.
type line struct {
	net.Conn
	from   string
	closed bool
}

func (l *line) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(l.from))
}
func (l *line) Close() error { l.closed = true; return nil }

// street is a gate and its callers, at a time that the test sets.
type street struct {
	t    *testing.T
	gate *gate
	now  time.Time
}

func (s *street) come(from string) (*guest, *line) {
	l := &line{from: from}
	return s.gate.arrive(l, s.now), l
}

func (s *street) must(from string) (*guest, *line) {
	s.t.Helper()
	g, l := s.come(from)
	if g == nil {
		s.t.Fatalf("%s was turned away", from)
	}
	return g, l
}

func (s *street) later(d time.Duration) { s.now = s.now.Add(d) }

func (s *street) take(g *guest, what int, n int64) bool {
	s.gate.mu.Lock()
	closing, ok := s.gate.take(g, what, n, s.now)
	s.gate.mu.Unlock()
	s.gate.close(closing)
	return ok
}

func newStreet(t *testing.T, most amounts, share float64) *street {
	g := newGate(most, share)
	g.body = most[bytesHeld]
	return &street{t, g, time.Now()}
}

func TestAddressesOfAShare(t *testing.T) {
	for a, want := range map[string]string{"10.1.2.3:5": "10.1.2.0/24", "[::ffff:10.1.2.9]:6": "10.1.2.0/24", "[2001:db8:1:2ff::1]:7": "2001:db8:1:200::/56", "[fe80::1%eth0]:8": "fe80::/56"} {
		if got := prefixOf(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(a))).String(); got != want {
			t.Errorf("%s: %s, want %s", a, got, want)
		}
	}
	if prefixOf(&net.UnixAddr{Name: "socket"}) != (netip.Prefix{}) || prefixOf(nil) != (netip.Prefix{}) {
		t.Error("what is no address has one")
	}
}

// A newcomer closes who of its own address has been idle longest, and nobody else.
func TestNewcomersAreServed(t *testing.T) {
	s := newStreet(t, amounts{80, 1000, 1000}, 1.0/8)
	_, other := s.must("10.9.9.9:1")
	var lines []*line
	var guests []*guest
	for i := range 10 {
		g, l := s.must(fmt.Sprintf("10.0.0.%d:1", i))
		guests, lines = append(guests, g), append(lines, l)
	}
	// All have just come: the next has to try again.
	if g, _ := s.come("10.0.0.77:1"); g != nil {
		t.Error("one more than the share, at once")
	}
	s.later(welcome)
	guests[0].speak(s.now) // is in a handshake, and so not the oldest any more
	s.must("10.0.0.78:1")
	if lines[0].closed || !lines[1].closed || lines[2].closed || other.closed {
		t.Error("another than the oldest was closed")
	}
	guests[1].leave() // its server is done with it: nothing is given back twice
	if s.gate.used[connections] != 11 || s.gate.closed.Load() != 1 || s.gate.turned.Load() != 1 {
		t.Errorf("%d connections, %d closed, %d turned away", s.gate.used[connections], s.gate.closed.Load(), s.gate.turned.Load())
	}
	for _, g := range guests {
		g.leave()
	}
	if p := s.gate.all[netip.MustParsePrefix("10.0.0.0/24")]; p.used != (amounts{1}) || p.unproven != (amounts{1}) {
		t.Errorf("left over: %+v", p.used)
	}
}

// Behind one address, those who have shown who they are do not count among the
// strangers, in nothing, and are not closed for them.
func TestTheProvenAreNoStrangers(t *testing.T) {
	s := newStreet(t, amounts{80, 80, 8000}, 1.0/8)
	var known []*line
	for range 20 {
		g, l := s.must("10.0.0.1:1")
		if !s.take(g, posts, 1) || !s.take(g, bytesHeld, 100) {
			t.Fatal("no room")
		}
		g.prove(nobody)
		known = append(known, l)
	}
	for range 100 {
		s.later(time.Second)
		g, _ := s.must("10.0.0.1:2")
		if !s.take(g, posts, 1) || !s.take(g, bytesHeld, 100) {
			t.Fatal("a newcomer has no room")
		}
	}
	for i, l := range known {
		if l.closed {
			t.Errorf("the known %d was closed for a stranger", i)
		}
	}
	p := s.gate.all[netip.MustParsePrefix("10.0.0.0/24")]
	if p.unproven != (amounts{10, 10, 1000}) || p.used != (amounts{30, 30, 3000}) {
		t.Errorf("strangers have %v of %v", p.unproven, p.used)
	}
}

// Requests and bytes have a share of their own; who holds most of them for longest
// gives way, with all that it has.
func TestRequestsAndBytesAreShared(t *testing.T) {
	s := newStreet(t, amounts{800, 80, 8000}, 1.0/8)
	idle, idleLine := s.must("10.0.0.1:1")
	hog, hogLine := s.must("10.0.0.1:2")
	for range 10 {
		if !s.take(hog, posts, 1) {
			t.Fatal("less than the share")
		}
	}
	if s.take(hog, posts, 1) || hogLine.closed {
		t.Error("one takes more than the share, or is closed for itself")
	}
	if s.take(idle, posts, 1) {
		t.Error("the hog has just come")
	}
	s.later(welcome)
	if !s.take(idle, posts, 1) || !hogLine.closed || idleLine.closed {
		t.Error("the hog was not closed for another")
	}
	if s.gate.used[posts] != 1 {
		t.Errorf("%d requests", s.gate.used[posts])
	}
	if !s.take(idle, bytesHeld, 1000) || s.take(idle, bytesHeld, 1) {
		t.Error("bytes")
	}
	if s.take(hog, bytesHeld, 1) {
		t.Error("who is gone takes bytes")
	}
}

// Where all room is taken, the address with most makes way for a newcomer, and
// strangers before those who are known.
func TestFullHouse(t *testing.T) {
	s := newStreet(t, amounts{20, 1000, 1000}, 1)
	var crowd, few, known []*line
	for range 10 {
		_, l := s.must("10.0.0.1:1")
		crowd = append(crowd, l)
	}
	for range 4 {
		_, l := s.must("10.0.1.1:1")
		few = append(few, l)
	}
	for range 6 {
		g, l := s.must("10.0.2.1:1")
		g.prove(nobody)
		known = append(known, l)
	}
	closed := func(all []*line) (n int) {
		for _, l := range all {
			if l.closed {
				n++
			}
		}
		return n
	}
	s.must("10.0.3.1:1") // though all have just come
	if closed(crowd) != 1 || closed(few)+closed(known) != 0 || !crowd[0].closed {
		t.Errorf("closed: %d %d %d", closed(crowd), closed(few), closed(known))
	}
	// All known: the address that has most of them.
	s = newStreet(t, amounts{20, 1000, 1000}, 1)
	known = nil
	for range 20 {
		g, l := s.must("10.0.2.1:1")
		g.prove(nobody)
		known = append(known, l)
	}
	if g, _ := s.come("10.0.2.1:1"); g != nil {
		t.Error("an address makes way for itself")
	}
	s.must("10.0.3.1:1")
	if closed(known) != 1 {
		t.Errorf("%d closed", closed(known))
	}
}

// One caller that is known has some connections apart from strangers; the rest count as
// theirs, from wherever they come.
func TestConnectionsOfOneCaller(t *testing.T) {
	s := newStreet(t, amounts{100, 1000, 1000}, 1)
	var one []*guest
	var lines []*line
	for i := range 100 {
		g, l := s.must(fmt.Sprintf("10.0.%d.1:1", i))
		g.prove(7)
		one, lines = append(one, g), append(lines, l)
	}
	s.later(time.Minute)
	other, otherLine := s.must("10.1.0.1:1")
	other.prove(8)
	for i := range 83 { // newcomers, all of whom keep their places
		s.must(fmt.Sprintf("10.2.%d.1:1", i))
	}
	closed := 0
	for _, l := range lines {
		if l.closed {
			closed++
		}
	}
	if closed != 100-mostOfOne || otherLine.closed {
		t.Errorf("%d of one caller's connections were closed, want %d; another's: %t", closed, 100-mostOfOne, otherLine.closed)
	}
	if n := s.gate.callers[7][connections]; n != mostOfOne {
		t.Errorf("%d of its connections are known, want %d", n, mostOfOne)
	}
	for _, g := range one {
		g.leave()
	}
	again, _ := s.must("10.0.1.1:1")
	if again.prove(7); !again.proven || s.gate.callers[7][connections] != 1 {
		t.Errorf("it comes again: %t, %d", again.proven, s.gate.callers[7])
	}
	again.leave()
	other.leave()
	if len(s.gate.callers) != 0 {
		t.Errorf("%d callers are kept", len(s.gate.callers))
	}
}

// Who is known does not hold all the room for bodies, on which strangers would close
// one another.
func TestBodiesOfOneCaller(t *testing.T) {
	s := newStreet(t, amounts{100, 1000, 64}, 1.0/8)
	s.gate.body = 1
	for range 2 * mostOfOne {
		g, _ := s.must("10.0.0.1:1")
		for g.prove(7); s.take(g, bytesHeld, 1); {
		}
		s.later(time.Minute)
	}
	if n := s.gate.used[bytesHeld]; n > 64/2+64/8 {
		t.Errorf("one caller holds %d bytes of 64", n)
	}
	var lines []*line
	for i := range 3 {
		g, l := s.must(fmt.Sprintf("10.0.%d.1:1", 1+i))
		lines = append(lines, l)
		if !s.take(g, bytesHeld, int64(8-i)) {
			t.Error("a stranger has no room")
		}
	}
	for i, l := range lines {
		if l.closed {
			t.Errorf("stranger %d was closed", i)
		}
	}
}

// What is kept of addresses is bounded by how many connections there may be.
func TestAddressesAreForgotten(t *testing.T) {
	s := newStreet(t, amounts{10, 10, 10}, 1.0/8)
	s.gate.rates, s.gate.ofRate = rates{newBucket(1e-6, 10), newBucket(1e-6, 10)}, 1.0/8
	for i := range 1000 {
		g, _ := s.must(fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))
		v := &visit{guest: g}
		v.begin(s.now)
		v.end()
		g.leave()
	}
	if len(s.gate.all) > 2*10+2 {
		t.Errorf("%d addresses are kept", len(s.gate.all))
	}
}

// One address's strangers do not use up the rate; the known take of all of it.
func TestRateIsShared(t *testing.T) {
	s := newStreet(t, amounts{1000, 1000, 1000}, 1.0/8)
	s.gate.rates, s.gate.ofRate = rates{newBucket(1e-6, 80), newBucket(1e-6, 80)}, 1.0/8
	ask := func(g *guest) bool {
		v := &visit{guest: g}
		why := v.begin(s.now)
		if why == "" {
			v.end()
		}
		return why == ""
	}
	served := func(g *guest) (n int) {
		for ask(g) {
			n++
		}
		return n
	}
	a, _ := s.must("10.0.0.1:1")
	again, _ := s.must("10.0.0.2:1")
	if n := served(a) + served(again); n != 10 {
		t.Errorf("an address was served %d times, want 10", n)
	}
	b, _ := s.must("10.0.1.1:1")
	if n := served(b); n != 10 {
		t.Errorf("another was served %d times, want 10", n)
	}
	// However many addresses they come from, strangers leave half.
	n := 0
	for i := range 10 {
		g, _ := s.must(fmt.Sprintf("10.0.%d.1:1", 2+i))
		n += served(g)
	}
	if n != 20 {
		t.Errorf("all others were served %d times, want 20", n)
	}
	a.prove(nobody)
	if n := served(a); n != 40 {
		t.Errorf("one that is known was served %d times, want 40", n)
	}
}

// What is announced takes no memory.
func TestAnnouncedBodiesTakeNoMemory(t *testing.T) {
	r := httptest.NewRequest("POST", "/", strings.NewReader(""))
	r.ContentLength = 1 << 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	w := httptest.NewRecorder()
	_, ok := ReadBody(w, r, 1<<20)
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 64<<10 {
		t.Errorf("%d bytes for a body of none", n)
	}
	_ = ok // a body that ends early is the connection's fault to tell
	for most, want := range map[int64]bool{3: false, 4: true, 5: true} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("body"))) // of no known length
		b, ok := ReadBody(w, r, most)
		if ok != want || ok && string(b) != "body" || !ok && w.Code != http.StatusRequestEntityTooLarge {
			t.Errorf("%d: %q %t %d", most, b, ok, w.Code)
		}
	}
}

// settings are what a server tells over HTTP/2 first.
func settings(t *testing.T, network *memnet.Network, address string) map[uint16]uint32 {
	t.Helper()
	c, err := dialTLS(t, network, address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	_, err = c.Write(append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 0, 4, 0, 0, 0, 0, 0))
	var head [9]byte
	if err == nil {
		_, err = io.ReadFull(c, head[:])
	}
	b := make([]byte, int(head[1])<<8|int(head[2]))
	if err == nil {
		_, err = io.ReadFull(c, b)
	}
	if err != nil || head[3] != 4 {
		t.Fatalf("frame %d: %v", head[3], err)
	}
	out := map[uint16]uint32{}
	for ; len(b) >= 6; b = b[6:] {
		out[binary.BigEndian.Uint16(b)] = binary.BigEndian.Uint32(b[2:])
	}
	return out
}

func TestHTTP2IsSmall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		s, _, _ := start(t, network, ServerConfig{Handler: http.NotFoundHandler()})
		got := settings(t, network, s.Address)
		for id, want := range map[uint16]uint32{3: 8, 4: 64 << 10, 5: 16 << 10} { // streams, window, frame
			if got[id] != want {
				t.Errorf("setting %d is %d, want %d", id, got[id], want)
			}
		}
	})
}

// heldBody gives one byte, and the other when it may.
type heldBody struct {
	held chan struct{}
	sent bool
}

func (b *heldBody) Read(p []byte) (int, error) {
	if !b.sent {
		b.sent = true
		p[0] = 'a'
		return 1, nil
	}
	<-b.held
	p[0] = 'b'
	return 1, io.EOF
}

// A body slower than the least rate is cut, and not a handler that waits.
func TestLeastRateOfABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		got := make(chan error, 1)
		_, url, _ := start(t, network, ServerConfig{Certificate: server, Handler: afterBody(bodyGrace*2, got)})
		for _, two := range []bool{false, true} {
			c := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
			if !two {
				onlyHTTP1(c)
			}
			for path, slow := range map[string]bool{"/": true, "/slow": false} {
				var body io.Reader = strings.NewReader("ab")
				held, sent := make(chan struct{}), make(chan struct{})
				if slow {
					body = &heldBody{held: held}
				}
				req, err := http.NewRequestWithContext(t.Context(), "POST", url+path, body)
				if err != nil {
					t.Fatal(err)
				}
				req.ContentLength = 2
				go func() {
					defer close(sent)
					if resp, err := c.Do(req); err == nil {
						resp.Body.Close()
					}
				}()
				if err = <-got; slow != (err != nil) {
					t.Errorf("HTTP/2 %t, slow %t: %v", two, slow, err)
				}
				close(held)
				<-sent
			}
		}
	})
}

// Strangers who fill their share do not keep a newcomer of their own address out,
// and who has proved itself keeps its connection.
func TestStrangersOfOneAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		server, pin := certificate(t)
		s, url, _ := start(t, network, ServerConfig{Certificate: server, MaxConns: 80, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			Prove(r.Context(), 1)
			_, _ = io.WriteString(w, r.RemoteAddr)
		})})
		known := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		ask := func(c *http.Client) (string, error) {
			resp, err := c.Get(url)
			if err != nil {
				return "", err
			}
			defer resp.Body.Close()
			b, err := io.ReadAll(resp.Body)
			return string(b), err
		}
		first, err := ask(known)
		if err != nil {
			t.Fatal(err)
		}
		for range 40 { // four shares
			c, err := network.DialContext(t.Context(), "tcp", s.Address)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		newcomer := newClient(t, network, ClientConfig{Pins: []Pin{pin}})
		begun := time.Now()
		for {
			if _, err = ask(newcomer); err == nil || time.Since(begun) > 2*time.Minute {
				break
			}
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Errorf("a newcomer was not served: %v", err)
		}
		if again, err := ask(known); err != nil || again != first {
			t.Errorf("who was known has lost its connection: %q, before %q, %v", again, first, err)
		}
		if s.gate.closed.Load()+s.gate.turned.Load() < 30 {
			t.Errorf("%d closed, %d turned away", s.gate.closed.Load(), s.gate.turned.Load())
		}
	})
}

// What strangers of an address send is read at their part of its rate, each at an
// equal part of that; of who is known, at once.
func TestStrangersAreReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(strangers int, known bool) time.Duration {
			g := newGate(amounts{100, 100, 100}, 1)
			g.ofBytes = 64 << 10
			var one *guestConn
			near, far := net.Pipe()
			for range strangers {
				one = &guestConn{Conn: near, guest: g.arrive(near, time.Now()), ended: make(chan struct{})}
			}
			if known {
				one.guest.prove(nobody)
			}
			go func() {
				_, _ = far.Write(make([]byte, firstRead+64<<10))
			}()
			begun := time.Now()
			if _, err := io.ReadFull(one, make([]byte, firstRead)); err != nil || time.Since(begun) != 0 {
				t.Errorf("a handshake took %v: %v", time.Since(begun), err)
			}
			if _, err := io.ReadFull(one, make([]byte, 64<<10)); err != nil {
				t.Error(err)
			}
			took := time.Since(begun)
			near.Close()
			return took
		}
		for _, c := range []struct {
			strangers int
			known     bool
			want      time.Duration
		}{{1, false, time.Second}, {4, false, 4 * time.Second}, {4, true, 0}} {
			if took := read(c.strangers, c.known); took != c.want {
				t.Errorf("%d strangers, known %t: 64 KiB in %v, want %v", c.strangers, c.known, took, c.want)
			}
		}
	})
}

// Answers that are not taken in are requests under way: an address has no more of
// them than its share.
func TestUnreadAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		s, _, _ := start(t, network, ServerConfig{MaxConns: 80, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "answer") })})
		c, err := dialTLS(t, network, s.Address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		// A window of 0, and two requests: method GET, scheme https, path /, authority a.
		b := append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0)
		for id := byte(1); id <= 3; id += 2 {
			b = append(b, 0, 0, 6, 1, 5, 0, 0, 0, id, 0x82, 0x87, 0x84, 0x01, 1, 'a')
		}
		if _, err := c.Write(b); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		for headers := 0; headers < 2; { // of both answers
			var head [9]byte
			if _, err := io.ReadFull(c, head[:]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.CopyN(io.Discard, c, int64(head[0])<<16|int64(head[1])<<8|int64(head[2])); err != nil {
				t.Fatal(err)
			}
			if head[3] == 1 {
				headers++
			}
		}
		synctest.Wait() // the handlers have returned
		s.gate.mu.Lock()
		under := s.gate.used[questions]
		s.gate.mu.Unlock()
		if under != 2 {
			t.Errorf("%d requests are under way, want 2", under)
		}
	})
}

// No request passes the limits by, also none that net/http would answer itself.
func TestOptionsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var asked atomic.Int64
		s, _, _ := start(t, network, ServerConfig{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			if visitOf(r.Context()) == nil {
				t.Error("a request that is not counted")
			}
		})})
		c, err := dialTLS(t, network, s.Address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
		if _, err := io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Fatal(err)
		}
		if asked.Load() != 1 {
			t.Errorf("OPTIONS * reached the handler %d times", asked.Load())
		}
	})
}

// What nobody reads is not taken in: a poll that waits would keep it in memory.
func TestQuestionsHaveNoBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		_, url, _ := start(t, network, ServerConfig{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a body that nobody reads") })})
		for _, version := range []string{"h2", "http/1.1"} {
			transport := &http.Transport{DialContext: network.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: version == "h2"}
			for _, body := range []io.Reader{strings.NewReader("body"), io.MultiReader(strings.NewReader("body"))} { // of known length, and not
				q, err := http.NewRequest(http.MethodGet, url, body)
				if err != nil {
					t.Fatal(err)
				}
				resp, err := transport.RoundTrip(q)
				if err != nil {
					t.Fatal(err)
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s: %s", version, resp.Status)
				}
			}
			transport.CloseIdleConnections()
		}
	})
}

// Hold and Prove of a request that came over no server are allowed all.
func TestHandlersAlone(t *testing.T) {
	Prove(context.Background(), 1)
	if !Hold(context.Background(), 1<<40) {
		t.Error("a test of a handler is bounded")
	}
}

// On this machine only, one connection more closes the oldest.
func TestLimitListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		l := network.Listen()
		limited := LimitListener(l, 2)
		defer limited.Close()
		accepted := make(chan net.Conn, 3)
		go func() {
			for {
				c, err := limited.Accept()
				if err != nil {
					return
				}
				accepted <- c
			}
		}()
		var mine []net.Conn
		for i := range 3 {
			if i == 2 {
				time.Sleep(welcome)
			}
			c, err := network.DialContext(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			mine = append(mine, c)
			defer (<-accepted).Close()
		}
		_ = mine[0].SetReadDeadline(time.Now().Add(2 * time.Minute))
		if _, err := mine[0].Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "timeout") {
			t.Errorf("the oldest is open: %v", err)
		}
	})
}

// What a refused body is called does not end a client's part: it comes again.
func TestTornBodiesComeAgain(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/", io.MultiReader(strings.NewReader("bo"), tornReader{}))
	if _, ok := ReadBody(w, r, 10); ok || w.Code != status(wire.Unavailable) {
		t.Errorf("%d", w.Code)
	}
}

type tornReader struct{}

func (tornReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// A connection with a post under way is closed for no question, and for another connection only if all
// of its address's have one.
func TestPostsAreFinished(t *testing.T) {
	s := newStreet(t, amounts{connections: 80, posts: 800, bytesHeld: 1000, questions: 80}, 1.0/8)
	poster, kept := s.must("10.0.0.1:1")
	if !s.take(poster, posts, 1) || !s.take(poster, questions, 1) {
		t.Fatal("no room")
	}
	for range 100 {
		s.later(time.Second)
		g, _ := s.must("10.0.0.2:1")
		if !s.take(g, questions, 1) {
			t.Fatal("a newcomer may not ask")
		}
	}
	if kept.closed {
		t.Error("a connection was closed with a post under way")
	}
	// Of a full house, too.
	for i := range 79 {
		s.later(time.Second)
		s.must(fmt.Sprintf("10.1.%d.1:1", i))
	}
	if kept.closed {
		t.Error("a connection was closed with a post under way, in a full house")
	}
	s.gate.give(poster, posts, 1)
	for range 10 {
		s.later(time.Second)
		s.must("10.0.0.2:1")
	}
	if !kept.closed {
		t.Error("a connection without a post keeps its place")
	}
	// Where all have one, a newcomer gets in, and a question does not.
	s = newStreet(t, amounts{connections: 80, posts: 800, bytesHeld: 1000, questions: 80}, 1.0/8)
	var all []*guest
	var lines []*line
	for range 10 {
		g, l := s.must("10.0.0.1:1")
		if !s.take(g, posts, 1) || !s.take(g, questions, 1) {
			t.Fatal("no room")
		}
		all, lines = append(all, g), append(lines, l)
	}
	s.later(time.Minute)
	if s.take(all[3], questions, 1) {
		t.Error("one closes another with a post under way, to ask")
	}
	if s.must("10.0.0.2:1"); !lines[0].closed || lines[1].closed {
		t.Error("a newcomer did not close the oldest")
	}
}

// Questions do not use up the rate of posts, nor their room.
func TestQuestionsApart(t *testing.T) {
	s := newStreet(t, amounts{connections: 80, posts: 80, bytesHeld: 80, questions: 80}, 1.0/8)
	s.gate.rates, s.gate.ofRate = rates{newBucket(1e-6, 80), newBucket(1e-6, 80)}, 1.0/8
	g, _ := s.must("10.0.0.1:1")
	for n := 0; ; n++ {
		if v := (&visit{guest: g, question: true}); v.begin(s.now) != "" {
			if n != 10 {
				t.Errorf("%d questions, want 10", n)
			}
			break
		}
	}
	if v := (&visit{guest: g}); v.begin(s.now) != "" {
		t.Error("no post after all questions")
	}
}

// Who shows by a header that it is known needs no room among strangers.
func TestKnownByAHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		hold := make(chan struct{})
		server, pin := certificate(t)
		s, url, _ := start(t, network, ServerConfig{Certificate: server, MaxConns: 16, Known: func(r *http.Request) (int, bool) { return 7, r.Header.Get("Name") == "known" },
			Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/hold" {
					<-hold
				}
			})})
		client := newClient(t, network, ClientConfig{Pins: []Pin{pin}, Conns: 1})
		post := func(path, name string) int {
			q, err := http.NewRequest(http.MethodPost, url+path, strings.NewReader("x"))
			if err != nil {
				t.Fatal(err)
			}
			q.Header.Set("Name", name)
			a, err := client.Do(q)
			if err != nil {
				t.Error(err)
				return 0
			}
			a.Body.Close()
			return a.StatusCode
		}
		done := make(chan int, 2)
		for range 2 { // the share
			go func() { done <- post("/hold", "") }()
		}
		synctest.Wait()
		if code := post("/", ""); code != http.StatusServiceUnavailable {
			t.Errorf("a stranger beyond the share: %d", code)
		}
		if code := post("/", "known"); code != http.StatusOK {
			t.Errorf("who is known: %d", code)
		}
		s.gate.mu.Lock()
		if n := s.gate.callers[7][connections]; n != 1 {
			t.Errorf("%d connections are the known caller's", n)
		}
		s.gate.mu.Unlock()
		close(hold)
		<-done
		<-done
	})
}

//go:build linux && (long || soak)

package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// What strangers may do to a running system.
const (
	strangerClients = 200
	strangerGrowth  = 200 << 20 // bytes that a process may grow by
	strangerWait    = time.Second
	strangerEnough  = 2 << 30 // the attack stops here: the machine is others' too
)

// hall is the system under attack.
type hall struct {
	t            *testing.T
	shuffler     string // addresses
	coordinator  string
	peers, admin string // of the shuffler
	task         string
	pids         map[string]int
	others       []int            // its other processes: clients and newcomers
	base         map[string]int64 // memory before
	grown        atomic.Bool      // more than strangerEnough

	quiet time.Duration // what a newcomer takes without an attack

	in  io.Writer // of the process of newcomers
	out *bufio.Scanner
}

// standing is what the coordinator says of the task.
type standing struct {
	State    string           `json:"state"`
	Released int64            `json:"rounds_released"`
	Void     int64            `json:"rounds_void"`
	Failed   int64            `json:"rounds_failed"`
	Reports  int64            `json:"reports_accepted"`
	Rejected map[string]int64 `json:"reports_rejected"`
}

// show asks the operator's way, which no stranger can stand in.
func (h *hall) show(config string) (s standing) {
	h.t.Helper()
	if err := json.Unmarshal([]byte(want(h.t, exitDone, "", "task", "show", "crowd", "--config", config, "--json")), &s); err != nil {
		h.t.Fatal(err)
	}
	return s
}

// dialer is one from a loopback address.
func dialer(from string) *net.Dialer {
	return &net.Dialer{Timeout: 5 * time.Second, LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
}

// TestNewcomer is a process of its own, so that it does not wait for the attackers
// within theirs: for each line of addresses it is served once by each of them, and
// says how long the slower took, and how long a server of its own that nobody else asks.
func TestNewcomer(t *testing.T) {
	if os.Getenv("RIFFLE_NEWCOMER") == "" {
		t.Skip("is run by TestStrangers")
	}
	own := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer own.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		idle, err := arrive("127.99.0.1", []string{own.URL})
		if err != nil {
			t.Fatal(err)
		}
		took, err := arrive("127.99.0.1", strings.Fields(lines.Text()))
		fmt.Printf("newcomer %d %d %v\n", took, idle, err)
	}
}

// arrive fetches each address by a connection of its own.
func arrive(from string, urls []string) (slowest time.Duration, err error) {
	for _, url := range urls {
		transport := &http.Transport{DialContext: dialer(from).DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, DisableKeepAlives: true}
		begun := time.Now()
		resp, err := (&http.Client{Transport: transport, Timeout: 20 * time.Second}).Get(url)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				err = errors.Join(err, errors.New(resp.Status))
			}
		}
		transport.CloseIdleConnections()
		slowest = max(slowest, time.Since(begun))
		if err != nil {
			return slowest, err
		}
	}
	return slowest, nil
}

// newcomers starts the process of those who come from an address of their own.
func (h *hall) newcomers() {
	h.t.Helper()
	self, err := os.Executable()
	if err != nil {
		h.t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestNewcomer$", "-test.timeout=1h")
	cmd.Env = append(os.Environ(), "RIFFLE_NEWCOMER=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		h.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	h.others = append(h.others, cmd.Process.Pid)
	h.in, h.out = in, bufio.NewScanner(out)
}

// newcomer fetches the enrolment, and the list of tasks, from an address that nobody
// else has, each by a connection of its own. It returns how long the slower took, and an idle
// server, which waits for the machine only.
func (h *hall) newcomer() (took, idle time.Duration, err error) {
	h.t.Helper()
	if _, err := fmt.Fprintf(h.in, "https://%s/v1/enrolment https://%s/v1/tasks\n", h.shuffler, h.coordinator); err != nil {
		h.t.Fatal(err)
	}
	for h.out.Scan() {
		text, ours := strings.CutPrefix(h.out.Text(), "newcomer ")
		if !ours {
			continue
		}
		fields := strings.SplitN(text, " ", 3)
		for i, into := range []*time.Duration{&took, &idle} {
			n, err := strconv.ParseInt(fields[i], 10, 64)
			if err != nil {
				h.t.Fatal(err)
			}
			*into = time.Duration(n)
		}
		if fields[2] != "<nil>" {
			return took, idle, errors.New(fields[2])
		}
		return took, idle, nil
	}
	h.t.Fatalf("newcomers have ended: %v", h.out.Err())
	return 0, 0, nil
}

// attack is what one stranger does until ctx ends; again and again, when it is
// thrown out.
type attack struct {
	name     string
	from     string
	callers  int
	one      func(ctx context.Context, h *hall, from string) error
	patience time.Duration // before a caller comes again
	wait     time.Duration // of a newcomer at most; 0: strangerWait
	growth   int64         // of a process at most; 0: strangerGrowth
}

// frames speaks just enough HTTP/2.
type frames struct {
	net.Conn
	granted atomic.Int64 // streams
	settled chan struct{}
	ended   chan struct{}
}

func openFrames(ctx context.Context, from, address string) (*frames, error) {
	c, err := dialTLS(ctx, from, address, "h2")
	if err != nil {
		return nil, err
	}
	f := &frames{Conn: c, settled: make(chan struct{}), ended: make(chan struct{})}
	f.granted.Store(100)
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	if err := f.write(4, 0, 0, nil); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	go f.read()
	return f, nil
}

func dialTLS(ctx context.Context, from, address, proto string) (net.Conn, error) {
	return (&tls.Dialer{NetDialer: dialer(from), Config: &tls.Config{InsecureSkipVerify: true, NextProtos: []string{proto}}}).DialContext(ctx, "tcp", address)
}

func (f *frames) write(kind, flags byte, stream uint32, payload []byte) error {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	_, err := f.Write(append(head, payload...))
	return err
}

// read drops what comes, but for how many streams are granted.
func (f *frames) read() {
	defer close(f.ended)
	var once sync.Once
	for {
		var head [9]byte
		if _, err := io.ReadFull(f.Conn, head[:]); err != nil {
			return
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(f.Conn, payload); err != nil {
			return
		}
		if head[3] != 4 || head[4]&1 != 0 {
			continue
		}
		for p := payload; len(p) >= 6; p = p[6:] {
			if binary.BigEndian.Uint16(p) == 3 {
				f.granted.Store(int64(binary.BigEndian.Uint32(p[2:])))
			}
		}
		_ = f.write(4, 1, 0, nil)
		once.Do(func() { close(f.settled) })
	}
}

// literal is a header field that is not indexed (RFC 7541, 6.2.2).
func literal(dst []byte, name, value string) []byte {
	dst = append(dst, 0, byte(len(name)))
	dst = append(append(dst, name...), byte(len(value)))
	return append(dst, value...)
}

func request(method, path string, size int64) []byte {
	b := literal(nil, ":method", method)
	b = literal(literal(literal(b, ":scheme", "https"), ":authority", "riffle"), ":path", path)
	if size > 0 {
		b = literal(b, "content-length", strconv.FormatInt(size, 10))
	}
	return b
}

// meant is the start of a report for the open round, and a report's size.
func (h *hall) meant(ctx context.Context, from string) (header []byte, size int64, err error) {
	transport := &http.Transport{DialContext: dialer(from).DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 5 * time.Second}
	get := func(url string) ([]byte, error) {
		resp, err := client.Get(url)
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if len(b) < 64 {
			return nil, errors.Join(err, errors.New(resp.Status))
		}
		return b[64:], err
	}
	b, err := get("https://" + h.shuffler + "/v1/enrolment")
	if err != nil {
		return nil, 0, err
	}
	e, err := wire.Decode[wire.Enrolment](b)
	if err != nil {
		return nil, 0, err
	}
	if b, err = get("https://" + h.coordinator + "/v1/tasks/" + h.task + "/announcement?after=0"); err != nil {
		return nil, 0, err
	}
	ann, err := wire.Decode[wire.Announcement](b)
	if err != nil {
		return nil, 0, err
	}
	size, err = envelope.ReportSize(e.Shuffler[0].Suite, ann.ReportBytes, ann.ShareBytes)
	return wire.Encode(wire.Header{Key: e.Shuffler[0].ID(), Announcement: wire.Digest(ann)}), size, err
}

// stalled opens as many streams as are granted, and gives each its beginning.
func stalled(path string, size int64, report bool) func(context.Context, *hall, string) error {
	return func(ctx context.Context, h *hall, from string) error {
		begin := []byte{1}
		if report {
			var err error
			if begin, size, err = h.meant(ctx, from); err != nil {
				return err
			}
		}
		f, err := openFrames(ctx, from, h.shuffler)
		if err != nil {
			return err
		}
		defer f.Close()
		select {
		case <-f.settled:
		case <-f.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		for i := range f.granted.Load() {
			if h.grown.Load() || ctx.Err() != nil {
				break
			}
			id := uint32(2*i + 1)
			if err := errors.Join(f.write(1, 4, id, request("POST", path, size)), f.write(0, 0, id, begin)); err != nil {
				return err
			}
		}
		select {
		case <-f.ended:
		case <-ctx.Done():
		}
		return nil
	}
}

// junk sends whole reports of the right size for the open round that nobody sealed,
// as fast as they are taken.
func junk(ctx context.Context, h *hall, from string) error {
	header, size, err := h.meant(ctx, from)
	if err != nil {
		return err
	}
	body := make([]byte, size)
	rand.Read(body)
	copy(body, header)
	transport := &http.Transport{DialContext: dialer(from).DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 20 { // then it asks for the open round again
				if ctx.Err() != nil {
					return
				}
				resp, err := client.Post("https://"+h.shuffler+"/v1/report", "", strings.NewReader(string(body)))
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	return nil
}

// slowHeader sends a request's header a byte at a time.
func slowHeader(ctx context.Context, h *hall, from string) error {
	c, err := dialTLS(ctx, from, h.shuffler, "http/1.1")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "POST /v1/report HTTP/1.1\r\nHost: riffle\r\n"); err != nil {
		return err
	}
	for i := 0; ctx.Err() == nil; i++ {
		if _, err := fmt.Fprintf(c, "x"); err != nil {
			return nil
		}
		pause(ctx, 500*time.Millisecond)
	}
	return nil
}

// halfOpen begins a handshake.
func halfOpen(ctx context.Context, h *hall, from string) error {
	c, err := dialer(from).DialContext(ctx, "tcp", h.shuffler)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.Write([]byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}); err != nil {
		return err
	}
	return untilClosed(ctx, c)
}

// silent does nothing, after a handshake or before it.
func silent(role string, handshake bool) func(context.Context, *hall, string) error {
	return func(ctx context.Context, h *hall, from string) (err error) {
		address := map[string]string{"shuffler": h.shuffler, "coordinator": h.coordinator, "peers": h.peers, "admin": h.admin}[role]
		var c net.Conn
		if handshake {
			c, err = dialTLS(ctx, from, address, "h2")
		} else {
			c, err = dialer(from).DialContext(ctx, "tcp", address)
		}
		if err != nil {
			return err
		}
		defer c.Close()
		return untilClosed(ctx, c)
	}
}

func untilClosed(ctx context.Context, c net.Conn) error {
	defer context.AfterFunc(ctx, func() { c.Close() })()
	_, _ = io.Copy(io.Discard, c)
	return nil
}

// polls holds as many questions for announcements as are granted.
func polls(ctx context.Context, h *hall, from string) error {
	f, err := openFrames(ctx, from, h.coordinator)
	if err != nil {
		return err
	}
	defer f.Close()
	select {
	case <-f.settled:
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return nil
	}
	for i := range f.granted.Load() {
		if err := f.write(1, 5, uint32(2*i+1), request("GET", "/v1/tasks/"+h.task+"/announcement?after=100000&wait=60", 0)); err != nil {
			return err
		}
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
	}
	return nil
}

// unreadPings sends pings and reads no answer.
func unreadPings(ctx context.Context, h *hall, from string) error {
	c, err := dialTLS(ctx, from, h.shuffler, "h2")
	if err != nil {
		return err
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if tcp, ok := c.(*tls.Conn).NetConn().(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4 << 10)
	}
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"); err != nil {
		return nil
	}
	ping := []byte{0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8}
	pings := bytes.Repeat(ping, 500)
	for range 24 { // some thousand wait in buffers, and HTTP/2 of Go allows 10,000 more
		if _, err := c.Write(pings); err != nil {
			return nil
		}
	}
	pause(ctx, time.Minute)
	return nil
}

// unreadAnswers asks what the coordinator answers at length, and lets none of it in.
func unreadAnswers(ctx context.Context, h *hall, from string) error {
	c, err := dialTLS(ctx, from, h.coordinator, "h2")
	if err != nil {
		return err
	}
	f := &frames{Conn: c, settled: make(chan struct{}), ended: make(chan struct{})}
	defer c.Close()
	_, err = io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	if err = errors.Join(err, f.write(4, 0, 0, []byte{0, 4, 0, 0, 0, 0})); err != nil { // a window of 0
		return nil
	}
	go f.read()
	pause(ctx, 100*time.Millisecond)
	for i := range uint32(32) {
		path := []string{"/v1/status", "/v1/tasks/" + h.task}[i%2]
		if err := f.write(1, 5, 2*i+1, request("GET", path, 0)); err != nil {
			return nil
		}
	}
	select {
	case <-f.ended:
	case <-ctx.Done():
	}
	return nil
}

// largeFrame announces a frame of a mebibyte.
func largeFrame(ctx context.Context, h *hall, from string) error {
	c, err := dialTLS(ctx, from, h.shuffler, "h2")
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00\x0f\xff\xff\x00\x00\x00\x00\x00\x01"); err != nil {
		return nil
	}
	return untilClosed(ctx, c)
}

// invented asks for rounds and models that never were.
func invented(ctx context.Context, h *hall, from string) error {
	header, size, err := h.meant(ctx, from)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: dialer(from).DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxConnsPerHost: 1}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: 10 * time.Second}
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			body := make([]byte, size)
			for range 50 {
				if ctx.Err() != nil {
					return
				}
				copy(body, header)
				rand.Read(body[10:42])
				resp, err := client.Post("https://"+h.shuffler+"/v1/report", "", strings.NewReader(string(body)))
				if err != nil {
					return
				}
				resp.Body.Close()
				if resp, err = client.Get("https://" + h.coordinator + "/v1/models/" + hex.EncodeToString(body[10:42])); err != nil {
					return
				}
				resp.Body.Close()
			}
		})
	}
	wg.Wait()
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// suffer runs one attack while rounds go on, and checks what came of them. It says whether newcomers
// were let in as soon as they may expect.
func (h *hall) suffer(a attack, config string) (soon bool) {
	t := h.t
	ctx, cancel := context.WithCancel(t.Context())
	for name, pid := range h.pids { // what an attack has left is in its own figure
		h.base[name] = max(h.base[name], h.resident(pid))
	}
	before := h.show(config)
	begun, worked := time.Now(), h.worked(h.pids["shuffler"])
	busy, most, own := h.processors()
	var wg sync.WaitGroup
	var tries, failed atomic.Int64
	for range a.callers {
		wg.Go(func() {
			for ctx.Err() == nil && !h.grown.Load() {
				tries.Add(1)
				if a.one(ctx, h, a.from) != nil {
					failed.Add(1)
				}
				pause(ctx, a.patience)
			}
		})
	}
	peak := map[string]int64{}
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for ctx.Err() == nil {
			for name, pid := range h.pids {
				peak[name] = max(peak[name], h.resident(pid)-h.base[name])
				if peak[name] > strangerEnough {
					h.grown.Store(true)
				}
			}
			pause(ctx, 50*time.Millisecond)
		}
	}()
	pause(ctx, time.Second)
	var slowest time.Duration
	quiet := h.quiet
	var late error
	now := before
	for time.Since(begun) < strangerTime || now.Released < before.Released+2 && time.Since(begun) < 5*time.Minute {
		took, idle, err := h.newcomer()
		slowest, quiet = max(slowest, took), max(quiet, idle)
		if err != nil {
			late = err
		}
		pause(ctx, 200*time.Millisecond)
		now = h.show(config)
		if h.grown.Load() {
			break
		}
	}
	took := time.Since(begun)
	worked = h.worked(h.pids["shuffler"]) - worked
	busyNow, mostNow, ownNow := h.processors()
	busy, most, own = busyNow-busy, max(1, mostNow-most), ownNow-own
	now = h.show(config)
	cancel()
	wg.Wait()
	<-watched
	t.Logf("%-30s from %-10s %6d tries, %6d failed; growth: shuffler %4d MB, coordinator %4d MB; shuffler worked %4.1f s; newcomer %6.3f s (%v), of an idle server %.3f s; %d rounds in %.0f s, %d void, %d failed, %d of %d reports",
		a.name, a.from, tries.Load(), failed.Load(), peak["shuffler"]>>20, peak["coordinator"]>>20, float64(worked)/100, slowest.Seconds(), late, quiet.Seconds(),
		now.Released-before.Released, took.Seconds(), now.Void-before.Void, now.Failed-before.Failed, now.Reports-before.Reports, strangerClients*(now.Released-before.Released))
	for name, n := range peak {
		if n > max(strangerGrowth, a.growth) {
			t.Errorf("%s from %s: the %s grew by %d MB", a.name, a.from, name, n>>20)
		}
	}
	if now.State != "running" || now.Released < before.Released+2 || now.Void != before.Void || now.Failed != before.Failed || now.Reports != strangerClients*now.Released {
		t.Errorf("%s from %s: %+v, before %+v", a.name, a.from, now, before)
	}
	h.grown.Store(false)
	// Where the machine has other work, a newcomer waits for that too: by what others leave of its processors.
	left := math.Max(.1, math.Min(1, 1-float64(busy-own)/float64(most)))
	patience := time.Duration(float64(max(strangerWait, a.wait, 20*quiet)) / left)
	soon = slowest <= patience && late == nil
	if !soon {
		t.Logf("%s from %s: a newcomer waited %v, more than %v, while others left %.0f %% of the processors: %v", a.name, a.from, slowest, patience, 100*left, late)
	}
	return soon
}

// TestStrangers attacks a running system of 200 clients, from another address and
// from the clients' own, as if behind one NAT.
func TestStrangers(t *testing.T) {
	dir := shortDir(t)
	l := operate.Loopback{Dir: dir, Clients: strangerClients, Processes: 2, MinReports: 2, Suite: wire.X25519, Epsilon: 1e4, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 3, MaxEps: 1e4, Delta: 1e-5, MinReports: 2, MaxTasks: 1}, Spread: -1, Origins: []string{listedPage}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	shuffler, coordinator := l.Config("shuffler"), l.Config("coordinator")
	shufflerCmd, _ := background(t, "serve", "shuffler", "--config", shuffler)
	coordinatorCmd, _ := background(t, "serve", "coordinator", "--config", coordinator)
	until(t, "the coordinator serves", func() bool {
		code, _, _ := outcome(t, "task", "list", "--config", coordinator)
		return code == exitDone
	})
	sh, err := config.Load[config.Shuffler](shuffler)
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load[config.Coordinator](coordinator)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the shuffler is ready", func() bool { return get(t, "http://"+sh.Admin+"/readyz") == http.StatusOK })
	created := want(t, exitDone, `"state": "running"`, "task", "create", "--config", coordinator, "--name", "crowd", "--data", "mnist", "--model", "hog-linear", "--eps0", "2",
		"--examples-per-client", "5", "--rounds", "100000", "--round", "5m", "--n-min", "2", "--json")
	h := &hall{t: t, shuffler: sh.Listen, coordinator: c.Listen, peers: sh.PeersListen, admin: sh.Admin,
		pids: map[string]int{"shuffler": shufflerCmd.Process.Pid, "coordinator": coordinatorCmd.Process.Pid}, base: map[string]int64{}}
	var task struct{ Task string }
	if err := json.Unmarshal([]byte(created), &task); err != nil {
		t.Fatal(err)
	}
	h.task = task.Task
	for i := range l.Processes {
		clients, _ := background(t, "client", "--config", l.Config(fmt.Sprint("clients-", i)))
		h.others = append(h.others, clients.Process.Pid)
	}
	h.newcomers()
	begun := time.Now()
	until(t, "five rounds", func() bool { return h.show(coordinator).Released >= 5 })
	t.Logf("five rounds after %.1f s", time.Since(begun).Seconds())
	for range 10 {
		took, idle, err := h.newcomer()
		if err != nil {
			t.Fatal(err)
		}
		h.quiet = max(h.quiet, took, idle)
	}
	t.Logf("a newcomer takes %.3f s without an attack", h.quiet.Seconds())
	for name, pid := range h.pids {
		h.base[name] = h.resident(pid)
	}
	attacks := []attack{
		{name: "stalled reports", callers: 50, one: stalled("/v1/report", 0, true), patience: 50 * time.Millisecond},
		{name: "stalled sessions of 1 MiB", callers: 50, one: stalled("/v1/session", 1<<20, false), patience: 50 * time.Millisecond},
		{name: "junk reports", callers: 50, one: junk, patience: 50 * time.Millisecond},
		{name: "invented rounds and models", callers: 50, one: invented, patience: 50 * time.Millisecond},
		{name: "slow headers", callers: 500, one: slowHeader, patience: 50 * time.Millisecond},
		{name: "half-open TLS", callers: 2000, one: halfOpen, patience: 200 * time.Millisecond},
		{name: "silent TCP", callers: 2000, one: silent("shuffler", false), patience: 200 * time.Millisecond},
		{name: "silent TLS", callers: 2000, one: silent("shuffler", true), patience: time.Second},
		{name: "a full house of silent TCP", callers: 11000, one: silent("shuffler", false), patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "frames of a mebibyte", callers: 1200, one: largeFrame, patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "unread pings", callers: 1200, one: unreadPings, patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "unread answers, coordinator", callers: 1200, one: unreadAnswers, patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "silent TLS, coordinator", callers: 2000, one: silent("coordinator", true), patience: time.Second},
		{name: "silent TCP, peers", callers: 2000, one: silent("peers", false), patience: 200 * time.Millisecond},
		{name: "silent TLS, peers", callers: 500, one: silent("peers", true), patience: 200 * time.Millisecond},
		{name: "silent TCP, admin", callers: 500, one: silent("admin", false), patience: 200 * time.Millisecond},
		{name: "bodies for OPTIONS *", callers: 1200, one: unheard(true, request("OPTIONS", "*", 4096), []byte{1}), patience: time.Second, wait: 5 * time.Second},
		{name: "unread refusals of HTTP/2", callers: 1200, one: unheard(false, literal(request("GET", "/v1/enrolment", 0), "connection", "x"), nil), patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "unread preflights", callers: 1200, one: unheard(false, preflight(listedPage), nil), patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "preflights of another page", callers: 1200, one: unheard(true, preflight("https://evil.test"), nil), patience: time.Second, wait: 5 * time.Second, growth: 2 * strangerGrowth},
		{name: "requests taken back", callers: 50, one: resets, patience: 50 * time.Millisecond},
		{name: "the same hello", callers: 50, one: hellos, patience: 0},
		{name: "polls, coordinator", callers: 50, one: polls, patience: 50 * time.Millisecond},
	}
	only := os.Getenv("RIFFLE_ATTACK")
	if !everyAttack && only == "" {
		attacks = slices.DeleteFunc(attacks, func(a attack) bool {
			return !slices.Contains([]string{"stalled reports", "junk reports", "silent TLS"}, a.name)
		})
	}
	for _, from := range []string{"127.66.0.1", "127.0.0.1"} {
		for _, a := range attacks {
			a.from = from
			if slices.ContainsFunc(strings.Split(only, "|"), func(one string) bool { return strings.Contains(a.name+" "+from, one) }) {
				// An attack that keeps newcomers waiting does so each time; a busy machine may once.
				if !h.suffer(a, coordinator) && !h.suffer(a, coordinator) && !h.suffer(a, coordinator) && !h.suffer(a, coordinator) {
					t.Errorf("%s from %s: newcomers waited each of four times", a.name, a.from)
				}
			}
		}
	}
}

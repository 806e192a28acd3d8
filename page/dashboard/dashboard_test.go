package dashboard

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const token = "0123456789abcdef-token"

func request(t *testing.T, d *dashboard, method, target string, change func(*http.Request)) *http.Response {
	t.Helper()
	r := httptest.NewRequest(method, "http://127.0.0.1:8080"+target, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	d.ServeHTTP(w, r)
	return w.Result()
}

func newDashboard(t testing.TB, c Config) *dashboard {
	t.Helper()
	if c.Board == nil {
		c.Board = exampleBoard(3)
	}
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestAddressAndToken(t *testing.T) {
	for _, c := range []struct {
		token    string
		loopback bool
		ok       bool
	}{{"", true, true}, {"", false, false}, {"short", true, false}, {"short", false, false}, {token, false, true}, {token, true, true},
		{"with a space in the middle", false, false}, {strings.Repeat("é", 20), false, false}, {NewToken(), false, true}} {
		if _, err := New(Config{Board: &Board{}, Token: c.token, Loopback: c.loopback}); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if first := NewToken(); first == NewToken() {
		t.Error("two tokens are the same")
	}
	for _, name := range []string{"", "a/b", "api", "report", "app.js", "Plan", "../x"} {
		if _, err := New(Config{Board: &Board{}, Loopback: true, Extra: map[string]http.Handler{name: extraPage}}); err == nil {
			t.Errorf("a page named %q", name)
		}
	}
}

// On loopback a foreign name for it gets nothing: a page elsewhere could have
// given itself that name.
func TestHostsOnLoopback(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true})
	for host, want := range map[string]int{"127.0.0.1:8080": 200, "localhost:9999": 200, "localhost": 200, "[::1]:1": 200, "127.0.0.1": 200,
		"evil.example:8080": 421, "evil.example": 421, "": 421, "10.0.0.1:8080": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example:8080": 421} {
		for _, target := range []string{"/", "/api/tasks", "/api/ledger", "/app.js"} {
			if target == "/api/ledger" && want == 200 {
				continue
			}
			if got := request(t, d, http.MethodGet, target, func(r *http.Request) { r.Host = host }).StatusCode; got != want {
				t.Errorf("%s of %q: %d, want %d", target, host, got, want)
			}
		}
	}
	// Behind another address the token guards, and any name will do.
	d = newDashboard(t, Config{Token: token})
	if got := request(t, d, http.MethodGet, "/", func(r *http.Request) { r.Host = "box.example"; r.Header.Set("Authorization", "Bearer "+token) }).StatusCode; got != 200 {
		t.Errorf("with a token: %d", got)
	}
}

func TestTokenOpensTheDoor(t *testing.T) {
	d := newDashboard(t, Config{Token: token, Extra: map[string]http.Handler{"plan": extraPage}, Report: func() ([]byte, error) { return []byte("report"), nil },
		Ledger: func(context.Context) (Ledger, error) { return Ledger{}, nil }})
	everything := []string{"/", "/app.js", "/app.css", "/uplot.js", "/api/tasks", "/api/history?task=run", "/api/events", "/api/statement?task=run", "/api/ledger", "/report", "/plan", "/plan/", "/plan/ask", "/nothing"}
	if resp := request(t, d, http.MethodPost, "/plan/ask", nil); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a question without a token: %d", resp.StatusCode)
	}
	for _, target := range everything {
		for name, change := range map[string]func(*http.Request){
			"nothing":      nil,
			"a wrong one":  func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token+"x") },
			"an empty one": func(r *http.Request) { r.Header.Set("Authorization", "Bearer ") },
			"Basic":        func(r *http.Request) { r.Header.Set("Authorization", "Basic "+token) },
			"a cookie":     func(r *http.Request) { r.AddCookie(&http.Cookie{Name: d.door.cookie, Value: token}) },
			"a query":      func(r *http.Request) { r.URL.RawQuery = "token=" + token[1:] },
		} {
			if resp := request(t, d, http.MethodGet, target, change); resp.StatusCode != http.StatusUnauthorized {
				t.Errorf("%s with %s: %d", target, name, resp.StatusCode)
			}
		}
	}
	resp := request(t, d, http.MethodGet, "/api/tasks?token="+token+"&x=1", nil)
	cookies := resp.Cookies()
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/api/tasks?x=1" || len(cookies) != 1 {
		t.Fatalf("%d to %q with %v", resp.StatusCode, resp.Header.Get("Location"), cookies)
	}
	c := cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteLaxMode || c.Secure || c.Path != "/" || strings.Contains(c.Value, token) || c.Value == "" {
		t.Errorf("%+v", c)
	}
	if got := request(t, d, http.MethodGet, "/api/tasks", func(r *http.Request) { r.AddCookie(c) }).StatusCode; got != 200 {
		t.Errorf("with the cookie: %d", got)
	}
	if got := request(t, d, http.MethodGet, "/?token=wrong", func(r *http.Request) { r.AddCookie(c) }); got.StatusCode != http.StatusSeeOther {
		t.Errorf("a token stays in the address: %d", got.StatusCode)
	}
	// It leads nowhere else.
	if got := request(t, d, http.MethodGet, "/?token="+token, func(r *http.Request) { r.URL.Path = "//evil.example/" }); got.Header.Get("Location") != "/" {
		t.Errorf("it leads to %q", got.Header.Get("Location"))
	}
	other := newDashboard(t, Config{Token: token + "2"})
	if got := request(t, other, http.MethodGet, "/", func(r *http.Request) { r.AddCookie(c) }).StatusCode; got != http.StatusUnauthorized {
		t.Errorf("another page's cookie: %d", got)
	}
}

func TestOnlyForLooking(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true, Extra: map[string]http.Handler{"plan": extraPage}})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions, "PROPFIND"} {
		for _, target := range []string{"/", "/api/tasks", "/api/events", "/plan/", "/plan/x/ask", "/ask", "/app.js/ask"} {
			if resp := request(t, d, method, target, nil); resp.StatusCode != http.StatusMethodNotAllowed || resp.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %d", method, target, resp.StatusCode)
			}
		}
	}
	if resp := request(t, d, http.MethodHead, "/api/events", nil); resp.StatusCode != 200 {
		t.Errorf("HEAD of events: %d", resp.StatusCode)
	}
	// Only a further page may be asked.
	if resp := request(t, d, http.MethodPost, "/plan/ask", nil); resp.StatusCode != 200 {
		t.Errorf("a question: %d", resp.StatusCode)
	}
}

// Nothing gets through as a question but a post to the very path, by loopback's name: no other spelling of the path,
// no other method's name, no name that was pointed here, and no page of another origin that asks first.
func TestOnlyQuestionsPass(t *testing.T) {
	posts := 0
	extra := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			posts++
		}
	})
	server := httptest.NewServer(newDashboard(t, Config{Loopback: true, Extra: map[string]http.Handler{"plan": extra}}))
	defer server.Close()
	send := func(line, host string, headers ...string) *http.Response {
		t.Helper()
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: %s\r\nContent-Length: 0\r\nConnection: close\r\n%s\r\n", line, host, strings.Join(append(headers, ""), "\r\n"))
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		resp.Body.Close()
		return resp
	}
	for _, path := range []string{"//plan/ask", "/plan//ask", "/plan%2fask", "/plan/%61sk/", "/plan/ask/", "/plan/ask/x", "/plan/./ask", "/plan/../plan/ask", "/x/../plan/ask", "/plan/ask%00", "/plan/ask;x",
		"/PLAN/ask", "/plan\\ask", "/plan/x/ask", "/plan/ask/ask", "/ask", "//ask", "plan/ask", "*", "/api/tasks?/plan/ask", "http://127.0.0.1//plan/ask"} {
		if resp := send("POST "+path, "127.0.0.1"); resp.StatusCode < 300 || posts != 0 {
			t.Fatalf("%s: %d", path, resp.StatusCode)
		}
	}
	for _, method := range []string{"PUT", "post", "CONNECT", "TRACE", "OPTIONS", "QUERY"} {
		resp := send(method+" /plan/ask", "127.0.0.1", "Origin: https://evil.example", "Access-Control-Request-Method: POST", "Access-Control-Request-Headers: content-type", "Access-Control-Request-Private-Network: true")
		for name := range resp.Header {
			if strings.HasPrefix(name, "Access-Control") {
				t.Errorf("%s is answered with %s", method, name)
			}
		}
		if resp.StatusCode < 300 || posts != 0 {
			t.Fatalf("%s: %d", method, resp.StatusCode)
		}
	}
	if send("GET /plan/ask", "127.0.0.1", "X-HTTP-Method-Override: POST", "X-HTTP-Method: POST", "X-Method-Override: POST"); posts != 0 {
		t.Fatal("a header names the method")
	}
	for _, host := range []string{"evil.example", "evil.example:8463", "127.0.0.1.evil.example", "127.0.0.1@evil.example", "localhost.", "0.0.0.0", ""} {
		for _, line := range []string{"POST /plan/ask", "POST http://" + host + "/plan/ask"} {
			if resp := send(line, host, "Origin: http://"+host, "Sec-Fetch-Site: same-origin"); resp.StatusCode < 300 || posts != 0 {
				t.Fatalf("%s as %q: %d", line, host, resp.StatusCode)
			}
		}
	}
	if resp := send("POST http://evil.example/plan/ask", "127.0.0.1"); resp.StatusCode != http.StatusMisdirectedRequest || posts != 0 {
		t.Fatalf("another name in the request's line: %d", resp.StatusCode)
	}
	if resp := send("POST /plan/ask", "localhost:8463"); resp.StatusCode != 200 || posts != 1 {
		t.Errorf("a question: %d, %d posts", resp.StatusCode, posts)
	}
}

func TestHeaders(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true, Extra: map[string]http.Handler{"plan": extraPage}, Report: func() ([]byte, error) { return []byte("<html>"), nil }})
	for target, script := range map[string]string{"/": "script-src 'self';", "/api/tasks": "script-src 'self';", "/plan": "script-src 'self';", "/plan/x": "script-src 'self';", "/report": "default-src 'none'; script-src 'unsafe-inline'"} {
		resp := request(t, d, http.MethodGet, target, nil)
		csp := resp.Header.Get("Content-Security-Policy")
		if resp.StatusCode != 200 || !strings.Contains(csp, script) || !strings.Contains(csp, "frame-ancestors 'none'") || !strings.Contains(csp, "base-uri 'none'") {
			t.Errorf("%s: %d, %s", target, resp.StatusCode, csp)
		}
		if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Referrer-Policy") != "no-referrer" || resp.Header.Get("Cross-Origin-Resource-Policy") != "same-origin" {
			t.Errorf("%s: %v", target, resp.Header)
		}
	}
	// What the page is made of is not sent twice.
	resp := request(t, d, http.MethodGet, "/app.js", nil)
	again := request(t, d, http.MethodGet, "/app.js", func(r *http.Request) { r.Header.Set("If-None-Match", resp.Header.Get("ETag")) })
	if again.StatusCode != http.StatusNotModified {
		t.Errorf("%d", again.StatusCode)
	}
	// The page names nothing of another origin, and has no inline script or style.
	for name, a := range d.assets {
		text := string(a.body)
		if strings.HasPrefix(name, "uplot") {
			continue
		}
		for _, bad := range []string{"http://", "https://", "//cdn", "onclick", "style=", "<style", "innerHTML", "eval("} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	reported, failed := []byte(nil), errors.New("no")
	var ledgerErr error
	asked := 0
	d := newDashboard(t, Config{Loopback: true, Report: func() ([]byte, error) { return reported, failed },
		Ledger: func(context.Context) (Ledger, error) { asked++; return Ledger{Entries: 5, Eps: .5}, ledgerErr }})
	status := func(target string) int { return request(t, d, http.MethodGet, target, nil).StatusCode }
	if got := status("/report"); got != 500 {
		t.Errorf("a report that cannot be read: %d", got)
	}
	failed = fs.ErrNotExist
	if got := status("/report"); got != 404 {
		t.Errorf("no report: %d", got)
	}
	reported, failed = []byte("x"), nil
	if got := status("/report"); got != 200 {
		t.Errorf("a report: %d", got)
	}
	ledgerErr = errors.New("down")
	if got := status("/api/ledger"); got != 503 {
		t.Errorf("no ledger: %d", got)
	}
	ledgerErr = nil
	for range 5 {
		if got := status("/api/ledger"); got != 200 {
			t.Errorf("a ledger: %d", got)
		}
	}
	if asked != 2 {
		t.Errorf("the ledger was asked %d times", asked)
	}
	for _, target := range []string{"/api/history?task=x", "/api/statement?task=x", "/api/nothing", "/index.html", "/page/app.js", "/plan"} {
		if got := status(target); got != 404 {
			t.Errorf("%s: %d", target, got)
		}
	}
	d.config.Board.Set(View{ID: "new"})
	if got := status("/api/statement?task=new"); got != 503 {
		t.Errorf("a statement that is not known: %d", got)
	}
	var s struct{ Lead string }
	if err := json.NewDecoder(request(t, d, http.MethodGet, "/api/statement?task=run", nil).Body).Decode(&s); err != nil || !strings.Contains(s.Lead, "3 rounds so far") {
		t.Errorf("%q, %v", s.Lead, err)
	}
}

// maxPage and maxHistory bound what a page loads, whatever the rounds behind it.
const (
	maxPage    = 120 << 10
	maxHistory = 48 << 10
)

func TestPageIsSmall(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true, Board: exampleBoard(10_000)})
	total := 0
	for name, a := range d.assets {
		total += len(a.body)
		t.Logf("%s: %d bytes", name, len(a.body))
	}
	if total > maxPage {
		t.Errorf("the page has %d bytes, at most %d", total, maxPage)
	}
	body, err := io.ReadAll(request(t, d, http.MethodGet, "/api/history?task=run", nil).Body)
	t.Logf("history of 10,000 rounds: %d bytes", len(body))
	if err != nil || len(body) > maxHistory || len(body) < 4<<10 {
		t.Errorf("%d bytes of history, at most %d: %v", len(body), maxHistory, err)
	}
}

// follow opens a stream and returns its events.
type event struct{ name, data string }

func follow(t *testing.T, ctx context.Context, n *memnet.Network, url string) (<-chan event, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DialContext: n.DialContext, DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("%s, %s", resp.Status, resp.Header.Get("Content-Type"))
	}
	events := make(chan event, 100)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(events)
		defer resp.Body.Close()
		var e event
		for lines := bufio.NewReader(resp.Body); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			switch {
			case strings.HasPrefix(line, "event: "):
				e.name = strings.TrimSpace(line[7:])
			case strings.HasPrefix(line, "data: "):
				e.data = strings.TrimSpace(line[6:])
			case line == "\n" && e.name != "":
				select {
				case events <- e:
				case <-ctx.Done():
					return
				}
				e = event{}
			}
		}
	}()
	return events, func() { cancel(); <-done }
}

func next(t *testing.T, events <-chan event, name string) event {
	t.Helper()
	for e := range events {
		if e.name == name {
			return e
		}
	}
	t.Fatalf("the stream ended before %q", name)
	return event{}
}

func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := exampleBoard(3)
		network := memnet.New()
		l := network.Listen()
		d := newDashboard(t, Config{Loopback: true, Board: b, Title: "x", Version: "1"})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Serve(ctx, l) }()
		events, stop := follow(t, t.Context(), network, "http://"+l.Addr().String()+"/api/events")
		defer stop()
		if e := next(t, events, "about"); !strings.Contains(e.data, `"id":"run"`) || !strings.Contains(e.data, `"title":"x"`) {
			t.Errorf("about is %s", e.data)
		}
		if e := next(t, events, "history"); !strings.Contains(e.data, `"from":0,"round":[1,2,3]`) {
			t.Errorf("history is %s", e.data)
		}
		exampleRound(b, "run", 4, 10)
		for {
			e := next(t, events, "history")
			if strings.Contains(e.data, `"from":2,"round":[3,4],"epsilon"`) {
				break
			}
		}
		b.Set(View{ID: "other", Status: wire.Status{Task: wire.Task{Name: "second"}, State: Running}})
		if e := next(t, events, "task"); !strings.Contains(e.data, `"id":"other"`) && !strings.Contains(next(t, events, "task").data, `"id":"other"`) {
			t.Errorf("task is %s", e.data)
		}
		b.Remove("other")
		if e := next(t, events, "removed"); e.data != `"other"` || len(b.list()) != 1 {
			t.Errorf("removed is %s, %d tasks are left", e.data, len(b.list()))
		}
		// The last news come before the end, and the end comes.
		last := exampleTask("run", "first", 10, 10)
		last.State = Done
		b.Set(last)
		cancel()
		for state := ""; ; {
			e, ok := <-events
			if !ok {
				t.Fatal("the stream broke off")
			}
			if e.name == "task" && strings.Contains(e.data, `"id":"run"`) && strings.Contains(e.data, `"state":"done"`) {
				state = "done"
			}
			if e.name == "end" {
				if state != "done" {
					t.Error("the end came before the last news")
				}
				break
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := len(b.watchers); n != 0 {
			t.Errorf("%d watchers are left", n)
		}
	})
}

func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := exampleBoard(3)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b.Drain(ctx) // nobody looks
		w := b.watch()
		go func() {
			time.Sleep(time.Second)
			version, _, _, _ := b.news(0, "", seen{})
			b.told(w, version)
		}()
		b.Drain(ctx)
		if ctx.Err() != nil {
			t.Error("it waits for a page that has everything")
		}
		b.Set(View{ID: "y"})
		short, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		b.Drain(short)
		if short.Err() == nil {
			t.Error("it did not wait")
		}
	})
}

// pipes is a listener of connections without any buffer: who does not read holds
// up who writes.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A page that does not read is dropped, and those who write to the board never
// notice.
func TestSlowPageIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := exampleBoard(50)
		d := newDashboard(t, Config{Loopback: true, Board: b})
		l := &pipes{make(chan net.Conn), make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- d.Serve(ctx, l) }()
		near, far := net.Pipe()
		defer near.Close()
		l.conns <- far
		if _, err := io.WriteString(near, "GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		watched := func() int { b.mu.Lock(); defer b.mu.Unlock(); return len(b.watchers) }
		// An answer's first byte says that the page is watched: it is dropped so soon that it may not be seen.
		if n, err := near.Read(make([]byte, 1)); n != 1 || err != nil {
			t.Fatal(n, err)
		}
		begun := time.Now()
		for i := int64(51); i < 1051; i++ {
			exampleRound(b, "run", i, 2000)
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("writing took %v", took)
		}
		if time.Sleep(2 * writeTime); watched() != 0 {
			t.Error("the page is not dropped")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// One address has half of the streams, and a stream that ends makes room.
func TestStreamsAreBounded(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true})
	from := func(address string) int {
		return request(t, d, http.MethodHead, "/api/events", func(r *http.Request) { r.RemoteAddr = address }).StatusCode
	}
	var leave []func()
	fill := func(address string) {
		for range maxStreams / 2 {
			one, ok := d.streams.open(address)
			if !ok {
				t.Fatal("no room")
			}
			leave = append(leave, one)
		}
	}
	fill("10.0.0.1:1")
	if one, other := from("10.0.0.1:2"), from("10.0.0.2:1"); one != http.StatusServiceUnavailable || other != http.StatusOK {
		t.Errorf("%d to the address that has half, %d to another", one, other)
	}
	fill("10.0.0.2:1")
	if code := from("10.0.0.3:1"); code != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %d", code)
	}
	for _, end := range leave {
		end()
	}
	if one := from("10.0.0.1:2"); one != http.StatusOK || d.streams.all != 0 || len(d.streams.of) != 0 {
		t.Errorf("%d after all have left: %+v", one, d.streams.of)
	}
}

// Another site's page gets nothing but the pages that it links to.
func TestOtherSitesAreRefused(t *testing.T) {
	d := newDashboard(t, Config{Loopback: true, Extra: map[string]http.Handler{"plan": extraPage}, Report: func() ([]byte, error) { return []byte("report"), nil },
		Ledger: func(context.Context) (Ledger, error) { return Ledger{}, nil }})
	for target, page := range map[string]bool{"/": true, "/report": true, "/plan": true, "/plan/": true, "/app.js": true, "/app.css": true, "/uplot.js": true, "/api/tasks": false,
		"/api/history?task=run": false, "/api/events": false, "/api/statement?task=run": false, "/api/examined?task=run": false, "/api/ledger": false} {
		for name, c := range map[string]struct {
			header map[string]string
			want   bool
		}{
			"an EventSource":         {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Origin": "https://evil.example"}, false},
			"an image":               {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}, false},
			"a frame":                {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, false},
			"another port":           {map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty", "Origin": "http://127.0.0.1:9999"}, false},
			"an old browser":         {map[string]string{"Origin": "https://evil.example"}, false},
			"a sandbox":              {map[string]string{"Origin": "null"}, false},
			"a link":                 {map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, page},
			"the page":               {map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"}, true},
			"who types the address":  {map[string]string{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, true},
			"the page in an old one": {map[string]string{"Origin": "http://127.0.0.1:8080"}, true},
			"a program":              {nil, true},
		} {
			method := http.MethodGet
			if target == "/api/events" && c.want {
				method = http.MethodHead // whose stream ends at once
			}
			resp := request(t, d, method, target, func(r *http.Request) {
				for k, v := range c.header {
					r.Header.Set(k, v)
				}
			})
			if refused := resp.StatusCode == http.StatusForbidden; refused == c.want {
				t.Errorf("%s by %s: %d", target, name, resp.StatusCode)
			}
		}
	}
	if n := d.streams.all; n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// The types of a board have no place for a client; what pages get names counts and
// bounds only.
func TestKeysOfATask(t *testing.T) {
	body, err := io.ReadAll(request(t, newDashboard(t, Config{Loopback: true}), http.MethodGet, "/api/tasks", nil).Body)
	if err != nil {
		t.Fatal(err)
	}
	var a struct{ Tasks []map[string]any }
	if err := json.Unmarshal(body, &a); err != nil || len(a.Tasks) != 1 {
		t.Fatal(err)
	}
	for key := range a.Tasks[0] {
		if strings.Contains(key, "client") || strings.Contains(key, "address") || strings.Contains(key, "peer") {
			t.Errorf("key %s", key)
		}
	}
}

func BenchmarkHistory(b *testing.B) {
	d := newDashboard(b, Config{Loopback: true, Board: exampleBoard(10_000)})
	size := 0
	for b.Loop() {
		w := httptest.NewRecorder()
		d.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/history?task=run", nil))
		size = w.Body.Len()
	}
	b.ReportMetric(float64(size), "B/page")
}

func BenchmarkRound(b *testing.B) {
	board := exampleBoard(10)
	for i := int64(11); b.Loop(); i++ {
		exampleRound(board, "run", i, 1_000_000)
	}
}

func ExampleBoard() {
	b := &Board{}
	b.Set(View{ID: "a", Status: wire.Status{Task: wire.Task{Name: "first"}, State: Running, Until: 2}})
	b.Ended("a", Round{Round: 1, Reports: 1000, Rejected: 3})
	b.Measured("a", Measure{Round: 1, Eps: .1, Accuracy: .9, Loss: .3})
	for _, t := range b.list() {
		fmt.Println(t.Task.Name, t.State)
	}
	// Output: first running
}

// The page says what every reason means.
func TestReasonsAreExplained(t *testing.T) {
	b, err := fs.ReadFile(page, "page/app.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, reason := range wire.Reasons() {
		if !strings.Contains(string(b), `"`+string(reason)+`": "`) {
			t.Errorf("the page does not say what %s means", reason)
		}
	}
}

package operate

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
)

// page is a web page with an origin, as the services see it: a browser that sends what the page asks for.
type page struct {
	t      *testing.T
	client *http.Client
	origin string
}

func newPage(t *testing.T, origin string) page {
	c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}, Timeout: 2 * time.Minute}
	t.Cleanup(c.CloseIdleConnections)
	return page{t, c, origin}
}

func (p page) ask(method, url, body string, more ...string) (status int, header http.Header, text string) {
	p.t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, url, from)
	if err != nil {
		p.t.Fatal(err)
	}
	if p.origin != "" {
		r.Header.Set("Origin", p.origin)
	}
	for i := 0; i < len(more); i += 2 {
		r.Header.Set(more[i], more[i+1])
	}
	resp, err := p.client.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, string(b)
}

// uncounted are lines of metrics that change by themselves, and the count of refused pages.
var uncounted = regexp.MustCompile(`^#|_seconds|_fetched_|goroutines|_bytes|gc_cycles|peer_answers|origins_refused`)

// Pages against all services that clients talk to: the listed page gets what a program gets, and may
// read it. Any other page is refused in the same words whatever it asks for, also with requests that
// browsers send without a question before, and nothing is counted but the refusal.
func TestPagesAmongTheRoles(t *testing.T) {
	embedded(t)
	const shop = "https://shop.test"
	l := Loopback{Dir: t.TempDir(), Clients: 4, Processes: 1, Registrar: true, Relay: true, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}, Origins: []string{shop}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	var admins []string
	urls, paths := map[string]string{}, map[string][]string{}
	add := func(role, listen, admin string, of ...string) {
		urls[role], paths[role] = "https://"+listen, of
		admins = append(admins, "http://"+admin+"/metrics")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- Serve(ctx, role, l.Config(role), Options{Log: slog.New(slog.DiscardHandler)}) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("%s: %v", role, err)
			}
		})
	}
	none := strings.Repeat("0", 64)
	r, err := config.Load[config.Registrar](l.Config(RoleRegistrar))
	if err != nil {
		t.Fatal(err)
	}
	add(RoleRegistrar, r.Listen, r.Admin, "GET /v1/statement", "GET /v1/epochs/1", "POST /v1/tokens")
	s, err := config.Load[config.Shuffler](l.Config(RoleShuffler))
	if err != nil {
		t.Fatal(err)
	}
	add(RoleShuffler, s.Listen, s.Admin, "GET /v1/enrolment", "POST /v1/session", "POST /v1/report", "POST /v1/ask")
	c, err := config.Load[config.Coordinator](l.Config(RoleCoordinator))
	if err != nil {
		t.Fatal(err)
	}
	add(RoleCoordinator, c.Listen, c.Admin, "GET /v1/tasks", "GET /v1/tasks/"+none, "GET /v1/tasks/"+none+"/announcement", "GET /v1/models/"+none, "GET /v1/rounds/"+none+"/receipts")
	y, err := config.Load[config.Relay](l.Config(RoleRelay))
	if err != nil {
		t.Fatal(err)
	}
	add(RoleRelay, y.Listen, y.Admin, "POST /v1/relay", "GET /v1/enrolment")

	program, enrolled := newPage(t, ""), false
	browsertest.Until(t, func() error { // all serve
		left := 0
		for role, path := range map[string]string{RoleRegistrar: "/v1/statement", RoleShuffler: "/v1/enrolment", RoleCoordinator: "/v1/tasks", RoleRelay: "/v1/enrolment"} {
			if resp, err := program.client.Get(urls[role] + path); err != nil {
				left++
			} else {
				if resp.Body.Close(); resp.StatusCode != http.StatusOK {
					left++
				}
			}
		}
		if left == 0 {
			return nil
		}
		if !enrolled {
			enrolled = l.EnrolAll(t.Context()) == nil
		}
		return fmt.Errorf("%d roles do not serve", left)
	})
	// counted is all that the services count, but for time and for what their own peers ask.
	counted := func() (text string) {
		for _, url := range admins {
			resp, err := http.Get(url)
			if err != nil {
				t.Fatal(err)
			}
			b, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(b)) {
				if !uncounted.MatchString(line) {
					text += line
				}
			}
		}
		return text
	}
	each := func(do func(url, method string)) {
		for role, list := range paths {
			for _, path := range list {
				method, path, _ := strings.Cut(path, " ")
				do(urls[role]+path, method)
			}
		}
	}

	before := counted()
	refused := ""
	for _, origin := range []string{"https://evil.example", "null", "http://shop.test", "https://shop.test:8443", "https://shop.test.evil.example", "https://evil-shop.test", "https://localhost", "https://127.0.0.1"} {
		stranger := newPage(t, origin)
		each(func(url, method string) {
			for _, with := range []struct {
				method, body string
				more         []string
			}{
				{http.MethodOptions, "", []string{"Access-Control-Request-Method", method, "Access-Control-Request-Headers", "content-type"}},
				{method, map[string]string{http.MethodPost: "x"}[method], []string{"Content-Type", "text/plain"}}, // sent without a preflight
				{http.MethodPost, "x", []string{"Content-Type", "application/octet-stream"}},
				{http.MethodDelete, "", nil},
				{http.MethodGet, "", []string{"Range", "bytes=0-1"}},
			} {
				status, header, text := stranger.ask(with.method, url, with.body, with.more...)
				refused = cmp.Or(refused, text)
				if status != http.StatusForbidden || text != refused || header.Get("Access-Control-Allow-Origin") != "" || header.Get("Vary") != "Origin" {
					t.Errorf("%s %s from %s is answered %d %q, %v", with.method, url, origin, status, text, header)
				}
			}
		})
	}
	if after := counted(); after != before {
		t.Errorf("strangers' pages are counted: before\n%s\nafter\n%s", before, after)
	}

	listed := newPage(t, shop)
	each(func(url, method string) {
		status, header, text := listed.ask(http.MethodOptions, url, "", "Access-Control-Request-Method", method, "Access-Control-Request-Headers", "content-type")
		if status != http.StatusNoContent || text != "" || header.Get("Access-Control-Allow-Origin") != shop || header.Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("preflight of %s: %d %q, %v", url, status, text, header)
		}
	})
	if after := counted(); after != before {
		t.Errorf("preflights are counted: before\n%s\nafter\n%s", before, after)
	}
	each(func(url, method string) {
		body := map[string]string{http.MethodPost: "x"}[method]
		wantStatus, _, wantText := program.ask(method, url, body)
		status, header, text := listed.ask(method, url, body)
		if status != wantStatus || text != wantText || header.Get("Access-Control-Allow-Origin") != shop || header.Get("Access-Control-Allow-Credentials") != "" || header.Get("Set-Cookie") != "" {
			t.Errorf("%s %s of the listed page: %d %q, a program gets %d %q; %v", method, url, status, text, wantStatus, wantText, header)
		}
	})

	// What only peers or the operator may see has no list: no page reads it.
	for _, admin := range admins {
		if _, header, _ := listed.ask(http.MethodGet, admin, ""); header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("pages may read %s", admin)
		}
	}
	if resp, err := listed.client.Get("https://" + s.PeersListen + "/v1/enrolment"); err == nil {
		resp.Body.Close()
		t.Error("a page reached the address for peers")
	}
	// A name that an attacker points at a service: the certificate is not that name's, so a browser ends the
	// handshake; and there is no plain HTTP, where no certificate would be asked for.
	roots, err := loadRoots(s.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	_, err = tls.Dial("tcp", s.Listen, &tls.Config{ServerName: "evil.example", RootCAs: roots})
	if err == nil || !strings.Contains(err.Error(), "not evil.example") {
		t.Errorf("a browser that was told that evil.example is here: %v", err)
	}
	if resp, err := http.Get("http://" + s.Listen + "/v1/enrolment"); err == nil {
		if resp.Body.Close(); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("plain HTTP is answered %s", resp.Status)
		}
	}
}

package endpoint

import (
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/internal/memnet"
)

const shop, local = "https://shop.example", "http://127.0.0.1:8080"

func TestOriginsThatMayBeListed(t *testing.T) {
	own, _ := certificate(t)
	for _, good := range []string{shop, local, "https://shop.example:8443", "http://localhost", "http://[::1]:3000", "https://xn--bcher-kva.example", "https://10.0.0.1", "https://localhost:1"} {
		if err := CheckOrigin(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", "*", "null", "https://*.example", "https://", "shop.example", "https://shop.example/", "https://shop.example/a", "https://shop.example?", "https://shop.example#",
		"http://shop.example", "https://Shop.example", "HTTPS://shop.example", "https://shop.example:443", "http://localhost:80", "https://shop.example:", "https://shop.example:0", "https://shop.example:070",
		"https://shop.example:65536", "https://me@shop.example", "https://shop.example https://other.example", "https://bücher.example", "https://-shop.example", "https://shop..example", "https://[0:0::1]",
		"https://::1", "ftp://shop.example", "wss://shop.example", "file://", "https://shop.example\n", " https://shop.example", "https://shop%2eexample", "http://127.0.0.1.evil.example", "chrome-extension://abc"} {
		if CheckOrigin(bad) == nil {
			t.Errorf("%q is an origin", bad)
		}
		c := ServerConfig{Origins: []string{shop, bad}, Certificate: own, Handler: http.NotFoundHandler(), Log: slog.New(slog.DiscardHandler), Address: "127.0.0.1:0"}
		if _, err := NewServer(c); err == nil || !strings.Contains(err.Error(), "origin") {
			t.Errorf("a server has %q: %v", bad, err)
		}
	}
}

// askAs sends a request as a browser would, and returns the answer and its body.
func askAs(t *testing.T, client *http.Client, method, url string, header http.Header, body string) (*http.Response, string) {
	t.Helper()
	var from io.Reader
	if body != "" {
		from = strings.NewReader(body)
	}
	r, err := http.NewRequest(method, url, from)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(b)
}

// accessHeaders returns the names of all headers by which a server gives pages a right.
func accessHeaders(h http.Header) (names []string) {
	for name := range h {
		if strings.HasPrefix(name, "Access-Control-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func preflightOf(origin string) http.Header {
	return http.Header{"Origin": {origin}, "Access-Control-Request-Method": {"POST"}, "Access-Control-Request-Headers": {"content-type"}}
}

// strangers are origins that somebody might hope to be taken for shop or local.
var strangers = []string{"null", "https://evil.example", "http://shop.example", "https://shop.example:444", "https://shop.example:443", "https://shop.example.evil.example", "https://evilshop.example", "https://a.shop.example",
	"https://shop.example/", "https://SHOP.example", "https://shop.example@evil.example", "https://shop.example, https://evil.example", shop + " ", "*", "", "https://shop.example.", "http://127.0.0.1", "http://127.0.0.1:80800",
	"http://localhost:8080", "https://127.0.0.1:8080", "file://", "https://shop.exampl", "https://shop.example%00"}

func TestOnlyListedOriginsAreAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var asked atomic.Int64
		s, url, _ := start(t, network, ServerConfig{Origins: []string{shop, local}, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			fmt.Fprint(w, r.Method)
		})})
		for _, protocol := range []string{"h2", "http/1.1"} {
			client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
			t.Cleanup(client.CloseIdleConnections)
			if protocol == "http/1.1" {
				onlyHTTP1(client)
			}
			for _, origin := range []string{shop, local} {
				before := asked.Load()
				resp, body := askAs(t, client, http.MethodOptions, url+"/any", preflightOf(origin), "")
				if resp.StatusCode != http.StatusNoContent || body != "" || asked.Load() != before {
					t.Errorf("%s: a preflight is answered %d %q, the handler was asked %d times", protocol, resp.StatusCode, body, asked.Load()-before)
				}
				want := map[string]string{"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": "GET, POST", "Access-Control-Max-Age": "7200", "Vary": "Origin",
					"Access-Control-Allow-Headers": "Content-Type, If-None-Match, Range, Riffle-Pass"}
				for name, value := range want {
					if got := resp.Header.Values(name); len(got) != 1 || got[0] != value {
						t.Errorf("%s: preflight: %s is %q, want %q", protocol, name, got, value)
					}
				}
				if got := accessHeaders(resp.Header); len(got) != len(want)-1 {
					t.Errorf("%s: a preflight has %q", protocol, got)
				}
				for _, method := range []string{http.MethodGet, http.MethodPost} {
					resp, body := askAs(t, client, method, url, http.Header{"Origin": {origin}}, map[string]string{http.MethodPost: "x"}[method])
					if resp.StatusCode != http.StatusOK || body != method || resp.Header.Get("Access-Control-Allow-Origin") != origin || resp.Header.Get("Vary") != "Origin" ||
						!slices.Equal(accessHeaders(resp.Header), []string{"Access-Control-Allow-Origin", "Access-Control-Expose-Headers"}) {
						t.Errorf("%s: %s of a page is answered %d %q, %v", protocol, method, resp.StatusCode, body, resp.Header)
					}
				}
			}
			before, refused := asked.Load(), s.pages.refused.Load()
			for _, origin := range strangers {
				for _, h := range []http.Header{{"Origin": {origin}}, preflightOf(origin), {"Origin": {shop, origin}}} {
					for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions, http.MethodHead, http.MethodDelete} {
						if strings.TrimSpace(origin) == shop && len(h["Origin"]) == 1 {
							continue // a header's value has no space at its end
						}
						resp, _ := askAs(t, client, method, url, h, map[string]string{http.MethodPost: "x"}[method])
						if resp.StatusCode != http.StatusForbidden || len(accessHeaders(resp.Header)) > 0 || resp.Header.Get("Vary") != "Origin" {
							t.Errorf("%s: %s from %q is answered %d, %v", protocol, method, h["Origin"], resp.StatusCode, resp.Header)
						}
					}
				}
			}
			if asked.Load() != before || s.pages.refused.Load() <= refused {
				t.Errorf("%s: strangers' pages reached the handler %d times; %d refusals are counted", protocol, asked.Load()-before, s.pages.refused.Load()-refused)
			}
			// Programs name no origin. What they ask reaches the handler as before.
			for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
				if resp, body := askAs(t, client, method, url, http.Header{}, ""); body != method || len(accessHeaders(resp.Header)) > 0 || resp.Header.Get("Vary") != "Origin" {
					t.Errorf("%s: %s without an origin: %q, %v", protocol, method, body, resp.Header)
				}
			}
		}
	})
}

// Without a list nothing changes: origins are not looked at, and no header tells of them.
func TestNoOriginsNoChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		s, url, _ := start(t, network, ServerConfig{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.Method) })})
		client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
		t.Cleanup(client.CloseIdleConnections)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodOptions} {
			resp, body := askAs(t, client, method, url, preflightOf(shop), "")
			if body != method || len(accessHeaders(resp.Header)) > 0 || resp.Header.Get("Vary") != "" {
				t.Errorf("%s: %q, %v", method, body, resp.Header)
			}
		}
		for _, m := range s.Metrics() {
			if strings.Contains(m.Name, "origin") {
				t.Errorf("there is %s", m.Name)
			}
		}
		if _, err := NewServer(ServerConfig{Certificate: s.config.Certificate, Handler: s.config.Handler, Log: s.config.Log, Peers: map[string][]Pin{"a": {{1}}}, Origins: []string{shop}}); err == nil {
			t.Error("pages may call a server for peers")
		}
	})
}

// A preflight costs what any request costs: it is counted in the rate and among the requests of its
// address, and it has no body.
func TestPreflightsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := memnet.New()
		var asked atomic.Int64
		s, url, _ := start(t, network, ServerConfig{Origins: []string{shop}, Rate: 1e-9, Burst: 40, Share: .25, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })})
		client := &http.Client{Transport: &http.Transport{DialContext: network.DialContext, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		t.Cleanup(client.CloseIdleConnections)
		taken := 0
		for range 60 {
			resp, _ := askAs(t, client, http.MethodOptions, url, preflightOf(shop), "")
			switch resp.StatusCode {
			case http.StatusNoContent:
				taken++
			case http.StatusTooManyRequests: // the page may read that too, so that it waits
				if resp.Header.Get("Access-Control-Allow-Origin") != shop {
					t.Errorf("the refusal has %v", resp.Header)
				}
			default:
				t.Errorf("a preflight is answered %s", resp.Status)
			}
		}
		if taken != 10 || s.counts.limited.Load() != 50 || asked.Load() != 0 { // a quarter of the burst
			t.Errorf("%d of 60 preflights were answered, %d are counted, the handler was asked %d times", taken, s.counts.limited.Load(), asked.Load())
		}
		_, url, _ = start(t, network, ServerConfig{Origins: []string{shop}, Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) })})
		if resp, _ := askAs(t, client, http.MethodOptions, url, preflightOf(shop), "body"); resp.StatusCode != http.StatusBadRequest || asked.Load() != 0 {
			t.Errorf("a preflight with a body is answered %s", resp.Status)
		}
	})
}

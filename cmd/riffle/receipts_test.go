package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
)

// TestDroppedReportIsNoticed has a shuffler say that it has reports, and drop some of one process's:
// that process says so, the other one does not, and a round without dropped reports is in order.
func TestDroppedReportIsNoticed(t *testing.T) {
	longtest.Only(t, "runs all roles as processes")
	if testing.Short() {
		t.Skip("runs processes; the services have their own tests")
	}
	for _, trust := range []string{"shuffle", "vector-sum"} {
		t.Run(trust, func(t *testing.T) {
			var drop, dropped atomic.Int64
			drop.Store(2)
			d := deploy(t, scenario{clients: 12, processes: 2, trust: dp.Trust(trust), rounds: 2, round: 15 * time.Second, receipts: true, edit: func(d *deployment) {
				infront(t, d, "clients-1", func(w http.ResponseWriter, q *http.Request) bool {
					if q.URL.Path != "/v1/report" || drop.Add(-1) < 0 {
						return false
					}
					dropped.Add(1)
					w.WriteHeader(http.StatusNoContent)
					return true
				})
			}})
			d.wait("both rounds have ended", patience, func() bool {
				now := d.look(d.api())
				return now != nil && now.Released == 2
			})
			want := map[string]client.Findings{
				"clients-0": {Format: 1, Compared: 2, Listed: 2, Found: 12},
				"clients-1": {Format: 1, Compared: 2, Listed: 2, Found: 10, Missing: 2},
			}
			for name, want := range want {
				var got client.Findings
				d.wait(name+" have compared", patience, func() bool {
					got = d.findings(name)
					return got.Compared == 2
				})
				last := got.Last
				got.Last, got.Done = nil, nil
				if fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s: %+v, want %+v", name, got, want)
				}
				if want.Missing > 0 && (len(last) != 1 || last[0].Round != 1 || last[0].What != client.Missing) {
					t.Errorf("%s: %+v", name, last)
				}
			}
			if dropped.Load() != 2 {
				t.Errorf("%d reports were dropped", dropped.Load())
			}
			if text := d.tail("clients-1"); strings.Count(text, "receipts are not among") != 1 {
				t.Errorf("the log says it %d times\n%s", strings.Count(text, "receipts are not among"), text)
			}
			code, out, _ := outcome(t, "client", "--config", d.configs["clients-1"], "--check")
			if !strings.Contains(out, "2 receipts of reports missing") || code != exitDone {
				t.Errorf("exit %d\n%s", code, out)
			}
		})
	}
}

// findings is what a process's clients have found.
func (d *deployment) findings(name string) client.Findings {
	d.t.Helper()
	c, err := config.Load[config.Client](d.configs[name])
	if err != nil {
		d.t.Fatal(err)
	}
	f, err := client.ReadFindings(c.Dir)
	if err != nil {
		d.t.Fatal(err)
	}
	return f
}

// nothingWrong holds that all clients found what they looked for in the lists of receipts. The last
// round may not be compared yet, and the killed process may not know of one report.
func (d *deployment) nothingWrong() {
	d.t.Helper()
	each := int64(d.l.Clients / d.l.Processes)
	for _, name := range d.clients() {
		if got := d.findings(name); got.Compared < d.rounds-1 || got.Found < each*(d.rounds-2) || got.Missing+got.Half+got.Unfit+got.Untold > 0 {
			d.t.Errorf("%s: of %d rounds %+v", name, d.rounds, got)
		}
	}
}

// infront puts a server before the shuffler for a process of clients, which answers first.
func infront(t *testing.T, d *deployment, name string, first func(http.ResponseWriter, *http.Request) bool) {
	t.Helper()
	c, err := config.Load[config.Client](d.configs[name])
	if err != nil {
		t.Fatal(err)
	}
	roots, err := os.ReadFile(c.Roots)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	to, err := url.Parse(c.Shuffler.URL)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}
	t.Cleanup(transport.CloseIdleConnections)
	proxy.Transport = transport
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if !first(w, q) {
			q.Host = to.Host
			proxy.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(d.l.Dir, name+"-roots.pem")
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, append(roots, block...), 0o600); err != nil {
		t.Fatal(err)
	}
	replaceInFile(t, d.configs[name], c.Shuffler.URL, server.URL)
	b, err := os.ReadFile(d.configs[name])
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(strings.TrimSpace(line), "roots:") {
			replaceInFile(t, d.configs[name], strings.TrimSpace(line), "roots: "+file)
		}
	}
}

package operate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/endpoint"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/registrar"
	"github.com/riffle-dp/riffle/web"
)

// browserWorld is a deployment of all roles whose clients are native ones and the tabs of a page. The
// page reaches each service through a way of TLS that records what is asked, and can be cut.
type browserWorld struct {
	client   fs.FS // the npm package
	t        *testing.T
	l        Loopback
	chromium *browsertest.Browser
	origin   string
	data     string
	task     string            // its digest in hex
	keys     map[string]string // the roles' signing keys
	direct   map[string]string // the roles' addresses
	ways     map[string]string // the same, with a way before each
	api      operatorv1.OperatorServiceClient

	mu    sync.Mutex
	asked []pageRequest
	// before is called with each request, before the service gets it; it answers itself if it returns true.
	before func(w http.ResponseWriter, r *http.Request, body []byte) bool
	// after is called with the service's answer; what it returns false for is cut off.
	after func(r *http.Request, status int) bool
}

// pageRequest is a request that a page made.
type pageRequest struct {
	role, method, path, head string
	body                     []byte
}

const worldColumns = 20 // features of a row; the model has 2·(worldColumns + 1) parameters

// worldPage is the page of the tests: it has data of its own, and keeps what its client tells.
const worldPage = `<!doctype html><html lang="en"><head><title>a page</title><link rel="icon" href="data:,"></head><body><script type="module">
import {join, newCredential, publicLine} from "/client/index.js";
window.make = storage => newCredential({storage});
window.line = storage => publicLine({storage});
window.clients = {};
window.start = async (storage, options, row) => {
  const c = window.clients[storage] = {events: [], asked: 0};
  const gradient = ({theta}) => { c.asked++; return Float32Array.from(theta, (v, i) => v - row[i % row.length]); };
  try {
    const client = await join({...options, storage, gradient, onEvent: e => c.events.push(e)});
    c.client = client;
    client.done.then(() => c.ended = "done", e => c.ended = (e.reason ?? "") + "|" + e.message);
    return "";
  } catch (e) {
    return c.ended = (e.reason ?? "") + "|" + e.message;
  }
};
window.ready = true;
</script></body></html>`

// compiledClient is the client for browsers, compiled once.
var compiledClient = sync.OnceValues(func() ([]byte, error) { return wasmbuild.Client.Compile(context.Background(), "../..", nil) })

// newBrowserWorld serves all roles with so many native clients.
func newBrowserWorld(t *testing.T, natives int) *browserWorld {
	t.Helper()
	longtest.Only(t, "compiles the client for browsers")
	program, err := compiledClient()
	if err != nil {
		t.Fatal(err)
	}
	w := &browserWorld{t: t, client: web.Files(program), keys: map[string]string{}}
	dir, err := os.MkdirTemp("", "riffle-b")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var table strings.Builder
	for i := range worldColumns {
		fmt.Fprintf(&table, "x%d,", i)
	}
	table.WriteString("label\n")
	for i := range 300 {
		for j := range worldColumns {
			fmt.Fprintf(&table, "%.2f,", float64((i*j)%7)/7)
		}
		fmt.Fprintf(&table, "%s\n", []string{"no", "yes"}[i%2])
	}
	w.data = filepath.Join(dir, "table.csv")
	if err := os.WriteFile(w.data, []byte(table.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	own, pin := worldCertificate(t)
	trusted := []string{pin}
	pages := httptest.NewUnstartedServer(http.HandlerFunc(w.servePage))
	pages.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
	pages.Config.ErrorLog = log.New(io.Discard, "", 0)
	pages.StartTLS()
	t.Cleanup(pages.Close)
	w.origin = pages.URL
	w.l = Loopback{Dir: filepath.Join(dir, "all"), Clients: natives, Processes: 1, Registrar: true, Relay: true, Kept: true, MinReports: 2, Suite: wire.X25519, Epsilon: 100, Delta: 1e-5, Data: w.data,
		Policy: config.Policy{MaxEps0: 3, MaxEps: 100, Delta: 1e-5, MinReports: 2, MaxTasks: 3}, Spread: -1, Origins: []string{w.origin}}
	if err := w.l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	roles := []string{RoleRegistrar, RoleShuffler, RoleCoordinator, RoleRelay}
	for _, role := range roles {
		dir := filepath.Join(w.l.Dir, role, "keys")
		_, pin, err := endpoint.LoadCertificate(filepath.Join(dir, config.CertificateFile), filepath.Join(dir, config.CertificateKey))
		if err != nil {
			t.Fatal(err)
		}
		trusted = append(trusted, strings.TrimPrefix(pin.String(), "sha256:"))
	}
	w.chromium = browsertest.Start(t, trusted...)
	for _, role := range roles {
		w.serve(role, role)
	}
	w.until("the registrar answers", func() bool { return w.l.EnrolAll(t.Context()) == nil })
	w.addresses(own)
	return w
}

func (w *browserWorld) until(what string, f func() bool) {
	w.t.Helper()
	browsertest.Until(w.t, func() error {
		if !f() {
			return errors.New(what)
		}
		return nil
	})
}

// pause lets a browser do, or forget, what it tells nobody.
func (w *browserWorld) pause(d time.Duration) { time.Sleep(d) }

// serve runs a process until the test ends.
func (w *browserWorld) serve(role, process string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, role, w.l.Config(process), Options{Log: slog.New(slog.DiscardHandler)}) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("%s: %v", process, err)
		}
	})
}

// addresses finds out where the services are, and makes a way to each.
func (w *browserWorld) addresses(own tls.Certificate) {
	w.t.Helper()
	c, err := config.Load[config.Client](w.l.Config("clients-0"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.direct = map[string]string{RoleShuffler: c.Shuffler.URL, RoleCoordinator: c.Coordinator.URL, RoleRegistrar: c.Registrar.URL, RoleRelay: c.Relay}
	w.keys = map[string]string{RoleShuffler: c.Shuffler.Key, RoleCoordinator: c.Coordinator.Key, RoleRegistrar: c.Registrar.Key}
	w.ways = map[string]string{}
	for role, to := range w.direct {
		u, err := url.Parse(to)
		if err != nil {
			w.t.Fatal(err)
		}
		proxy := &httputil.ReverseProxy{ErrorLog: log.New(io.Discard, "", 0),
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
			Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 64},
		}
		s := httptest.NewUnstartedServer(w.way(role, proxy))
		s.TLS, s.EnableHTTP2 = &tls.Config{Certificates: []tls.Certificate{own}}, true
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		s.StartTLS()
		w.t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
		w.ways[role] = s.URL
	}
}

// way records what is asked of a service.
func (w *browserWorld) way(role string, to http.Handler) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		var head strings.Builder
		_ = r.Header.Write(&head)
		w.mu.Lock()
		w.asked = append(w.asked, pageRequest{role, r.Method, r.URL.String(), head.String(), body})
		before, after := w.before, w.after
		w.mu.Unlock()
		if before != nil && before(out, r, body) {
			return
		}
		if after == nil {
			to.ServeHTTP(out, r)
			return
		}
		got := httptest.NewRecorder()
		to.ServeHTTP(got, r)
		if !after(r, got.Code) {
			panic(http.ErrAbortHandler)
		}
		for name, values := range got.Header() {
			out.Header()[name] = values
		}
		out.WriteHeader(got.Code)
		_, _ = out.Write(got.Body.Bytes())
	})
}

// intercept sets before and after.
func (w *browserWorld) intercept(before func(http.ResponseWriter, *http.Request, []byte) bool, after func(*http.Request, int) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before, w.after = before, after
}

// posts returns the bodies that were posted to a path.
func (w *browserWorld) posts(path string) (all [][]byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, a := range w.asked {
		if a.method == http.MethodPost && a.path == path {
			all = append(all, a.body)
		}
	}
	return all
}

// servePage serves the page, and the client's package as it is published. The client of a path that begins
// with /late has a clock that is an hour slow, with /early one that is an hour fast.
func (w *browserWorld) servePage(out http.ResponseWriter, r *http.Request) {
	path, late := strings.CutPrefix(r.URL.Path, "/late")
	hours := -1
	if !late {
		path, late = strings.CutPrefix(path, "/early")
		hours = 1
	}
	name := map[int]string{-1: "/late", 1: "/early"}[hours]
	if rest, ok := strings.CutPrefix(path, "/client/"); ok {
		if late && rest == "worker.js" {
			out.Header().Set("Content-Type", "text/javascript")
			fmt.Fprintf(out, wrongClock, hours*3_600_000)
			b, _ := fs.ReadFile(w.client, rest)
			_, _ = out.Write(b)
			return
		}
		http.StripPrefix("/client/", http.FileServerFS(w.client)).ServeHTTP(out, &http.Request{Method: r.Method, URL: &url.URL{Path: path}, Header: r.Header})
		return
	}
	text := worldPage
	if late {
		text = strings.ReplaceAll(text, "/client/", name+"/client/")
	}
	out.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprint(out, text)
}

// wrongClock makes a Worker's clock wrong by so many milliseconds.
const wrongClock = `{
  const Right = Date, by = %d;
  globalThis.Date = class extends Right {
    constructor(...a) { super(...(a.length ? a : [Right.now() + by])) }
    static now() { return Right.now() + by }
  };
}
`

// options are what a page gives to join. change, if not nil, changes them.
func (w *browserWorld) options(to map[string]string, change func(o, policy map[string]any)) string {
	policy := map[string]any{"maxEps0": 3, "maxEpsilon": 100, "delta": 1e-5, "minReports": 2, "maxTasks": 3}
	o := map[string]any{"coordinator": to[RoleCoordinator], "shuffler": to[RoleShuffler], "registrar": to[RoleRegistrar], "keys": w.keys,
		"policy": policy, "tasks": []string{w.task}, "spread": -1, "answer": .3}
	if change != nil {
		change(o, policy)
	}
	b, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// tab opens the page.
func (w *browserWorld) tab(v *browsertest.Visitor, path string) *browsertest.Page {
	w.t.Helper()
	p := v.Tab()
	p.Open(w.origin + path)
	p.Until("window.ready")
	return p
}

// enrol makes a client in a tab's storage, and has the registrar enrol it.
func (w *browserWorld) enrol(p *browsertest.Page, storage string) ed25519.PublicKey {
	w.t.Helper()
	line := browsertest.Value[string](p, fmt.Sprintf("make(%q)", storage))
	key, err := client.ParsePublic([]byte(line))
	if err != nil {
		w.t.Fatalf("%q: %v", line, err)
	}
	r, err := config.Load[config.Registrar](w.l.Config(RoleRegistrar))
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := NewRegistrarClient(r.Operator).Change(w.t.Context(), registrar.Request{Add: [][]byte{key}}); err != nil {
		w.t.Fatal(err)
	}
	return key
}

// row is the data of a page: values that nothing else has.
func row(i int) []float32 {
	x := make([]float32, worldColumns)
	for j := range x {
		x[j] = float32(1e-3 * (1.2345678 + float64(i)) * (1 + float64(j)*.0123457))
	}
	return x
}

// start has a tab's client take part; it returns why it cannot.
func (w *browserWorld) start(p *browsertest.Page, storage, options string, i int) string {
	w.t.Helper()
	data, err := json.Marshal(row(i))
	if err != nil {
		w.t.Fatal(err)
	}
	return browsertest.Value[string](p, fmt.Sprintf("start(%q, %s, %s)", storage, options, data))
}

// events returns what a client has told of a kind.
func events(p *browsertest.Page, storage, kind string) []map[string]any {
	return browsertest.Value[[]map[string]any](p, fmt.Sprintf("clients[%q].events.filter(e => e.type === %q)", storage, kind))
}

// enrolled waits until the shuffler has enrolled n clients.
func (w *browserWorld) enrolled(n int) {
	w.t.Helper()
	c, err := config.Load[config.Coordinator](w.l.Config(RoleCoordinator))
	if err != nil {
		w.t.Fatal(err)
	}
	w.api = OperatorClient(c.Operator)
	source, err := (&server{process: c.Process}).source(c.Shuffler, c.Registrar)
	if err != nil {
		w.t.Fatal(err)
	}
	defer source.Client.CloseIdleConnections()
	w.until("all are enrolled", func() bool {
		e, err := source.Enrolment(w.t.Context(), c.ID, time.Now())
		return err == nil && e.Clients == int64(n)
	})
}

// begin creates a task of so many rounds when n clients are enrolled, and starts the native clients.
func (w *browserWorld) begin(n, rounds int, seconds float64, more string) {
	w.t.Helper()
	w.enrolled(n)
	settings := fmt.Sprintf("data: %s\nlabel: label\nmodel: softmax\nrounds: %d\ntrust: shuffle\neps0: 2\nparticipation: all\nn-min: 2\n%s", w.data, rounds, more)
	w.until("the task is created", func() bool {
		got, err := w.api.CreateTask(w.t.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: "first", Config: settings, RoundSeconds: seconds}))
		if err != nil {
			w.t.Log(err)
			return false
		}
		w.task = got.Msg.Task.Id
		return true
	})
	if err := w.l.SetTasks(w.task); err != nil {
		w.t.Fatal(err)
	}
	if w.l.Clients > 0 {
		w.serve(RoleClient, "clients-0")
	}
}

// status is the task's.
func (w *browserWorld) status() *operatorv1.Task {
	w.t.Helper()
	got, err := w.api.GetTask(w.t.Context(), connect.NewRequest(&operatorv1.GetTaskRequest{Task: w.task}))
	if err != nil {
		w.t.Fatal(err)
	}
	return got.Msg.Task
}

// silent checks that pages have logged nothing wrong, and asked for nothing but what they should. If
// requests are meant to fail, the browser's own words on that do not count.
func (w *browserWorld) silent(fail bool, pages ...*browsertest.Page) {
	w.t.Helper()
	for i, p := range pages {
		for _, line := range p.Trouble(w.origin) {
			if !strings.HasPrefix(line, "asks for https://127.0.0.1:") && !(fail && strings.HasPrefix(line, "log error: Failed to load resource: ")) {
				w.t.Errorf("page %d: %s", i, line)
			}
		}
	}
}

// noData checks that no request has a page's data in it, in bytes or as text.
func (w *browserWorld) noData(pages int, more ...string) {
	w.t.Helper()
	marks := append([]string{"gradient", "label"}, more...)
	for i := range pages {
		x := row(i)
		var all []byte
		for j, v := range x {
			all = binary.LittleEndian.AppendUint32(all, math.Float32bits(v))
			marks = append(marks, string(binary.LittleEndian.AppendUint64(nil, math.Float64bits(float64(v)))), fmt.Sprint(v)[:6], hex.EncodeToString(all[4*j:]))
			if j > 0 { // two at a time: four bytes are there by chance
				pair := binary.LittleEndian.AppendUint32(nil, math.Float32bits(-x[j-1]))
				marks = append(marks, string(all[4*j-4:]), string(binary.LittleEndian.AppendUint32(pair, math.Float32bits(-v))))
			}
		}
		marks = append(marks, base64.StdEncoding.EncodeToString(all)[:16])
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.asked) == 0 {
		w.t.Error("no request was recorded")
	}
	for _, a := range w.asked {
		for _, m := range marks {
			if strings.Contains(a.path+a.head, m) || bytes.Contains(a.body, []byte(m)) {
				w.t.Errorf("%s %s %s has %q", a.role, a.method, a.path, m)
			}
		}
	}
}

// worldCertificate makes a certificate for this machine, and its key's digest.
func worldCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	cert, key, pin, err := endpoint.GenerateCertificate([]string{"127.0.0.1", "localhost"}, time.Now().Add(-2*time.Hour), time.Now().Add(24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return pair, strings.TrimPrefix(pin.String(), "sha256:")
}

// holdSecondRound holds back the announcement of the second round until goOn is called.
func (w *browserWorld) holdSecondRound() (goOn func()) {
	wait := make(chan struct{})
	w.intercept(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if strings.HasSuffix(r.URL.Path, "/announcement") && strings.Contains(r.URL.RawQuery, "after=1") {
			select {
			case <-wait:
			case <-r.Context().Done():
			}
		}
		return false
	}, nil)
	return func() { close(wait) }
}

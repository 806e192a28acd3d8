// Package dashboard serves the program's live page. The page shows a run or a coordinator
// while it works: tasks, rounds, accuracy, loss, ε against its budget, how many took part and
// what was refused, the ledger, and the promise in plain words.
//
// The page only shows. The server answers GET and holds no key. All it shows comes from a
// Board, whose types hold counts, sums and bounds and have no place for a client. Nothing on
// the page comes from another origin. A page that reads slowly is dropped, never waited for.
//
// On loopback anyone on this machine may look, unless there is a token. Elsewhere a token is
// required. Upper bounds (ε) are rounded up when they are shown.
package dashboard

import (
	"bytes"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/internal/loopback"
	"github.com/riffle-dp/riffle/page/report"
	"github.com/riffle-dp/riffle/page/third_party/uplot"
)

//go:embed page
var page embed.FS

// Config configures a dashboard. Board is required.
type Config struct {
	Board *Board
	// Title names what the page shows. Version is riffle's version.
	Title   string
	Version string
	// Ledger returns the charges; nil: there is no ledger to show. It is called when a page
	// asks, at most once a second.
	Ledger func(context.Context) (Ledger, error)
	// Report returns a finished run's report page, or an error that wraps fs.ErrNotExist if
	// there is none yet. nil: the page has no report.
	Report func() ([]byte, error)
	// Extra are further pages by name: "plan" serves /plan and all paths below, and the
	// navigation links to it. They may state a policy of their own. Posts go to /plan/ask only; whether
	// they are from the page itself is the page's to check.
	Extra map[string]http.Handler

	// Loopback says that the page is served on loopback. The Host of a request must then be
	// loopback's too; otherwise a name that an attacker points here could read the page
	// through a browser on this machine.
	Loopback bool
	// Token, if not empty, is required of every visitor. It has at least MinToken characters
	// and is required unless the page is served on loopback.
	Token string
}

// dashboard is the HTTP handler of the page.
type dashboard struct {
	config  Config
	mux     *http.ServeMux
	door    door
	ledger  cachedLedger
	assets  map[string]asset
	streams streams
}

const (
	gapTime   = 200 * time.Millisecond // least time between two messages to a page
	beatTime  = 15 * time.Second       // longest time without a message
	writeTime = 10 * time.Second       // longest time that sending a message may take
)

type asset struct {
	kind, tag string
	body      []byte
}

// New checks the configuration and returns the page's handler.
func New(c Config) (*dashboard, error) {
	if c.Board == nil {
		return nil, errors.New("dashboard: a board is required")
	}
	if err := checkToken(c.Token, c.Loopback); err != nil {
		return nil, err
	}
	d := &dashboard{config: c, mux: http.NewServeMux(), door: newDoor(c.Token, c.Loopback)}
	d.ledger.get = c.Ledger
	if err := d.load(); err != nil {
		return nil, err
	}
	d.mux.HandleFunc("GET /{$}", d.serveAsset("index.html"))
	for name := range d.assets {
		if name != "index.html" {
			d.mux.HandleFunc("GET /"+name, d.serveAsset(name))
		}
	}
	d.mux.HandleFunc("GET /api/tasks", d.serveTasks)
	d.mux.HandleFunc("GET /api/history", d.serveHistory)
	d.mux.HandleFunc("GET /api/events", d.serveEvents)
	d.mux.HandleFunc("GET /api/statement", d.serveStatement)
	d.mux.HandleFunc("GET /api/examined", d.serveExamined)
	d.mux.HandleFunc("GET /api/ledger", d.serveLedger)
	if c.Report != nil {
		d.mux.HandleFunc("GET /report", d.serveReport)
	}
	for name, h := range c.Extra {
		if !plainName(name) || d.assets[name].body != nil || name == "api" || name == "report" || h == nil {
			return nil, fmt.Errorf("dashboard: %q is not a name for a further page", name)
		}
		d.mux.Handle("GET /"+name, h)
		d.mux.Handle("GET /"+name+"/", h)
		d.mux.Handle("POST /"+name+"/ask", h)
	}
	return d, nil
}

func plainName(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// load reads the page's embedded files.
func (d *dashboard) load() error {
	d.assets = map[string]asset{}
	add := func(name, kind string, body []byte) {
		sum := sha256.Sum256(body)
		d.assets[name] = asset{kind, `"` + hex.EncodeToString(sum[:12]) + `"`, body}
	}
	for name, kind := range map[string]string{"index.html": "text/html", "app.css": "text/css", "app.js": "text/javascript"} {
		body, err := fs.ReadFile(page, "page/"+name)
		if err != nil {
			return fmt.Errorf("dashboard: %w", err)
		}
		add(name, kind, body)
	}
	add("uplot.js", "text/javascript", []byte("/*!\n"+uplot.Licence+"*/\n"+uplot.Script))
	add("uplot.css", "text/css", []byte(uplot.Style))
	return nil
}

const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	// A report states a policy of its own in the page, which names its style and script by
	// hash; a browser applies both policies.
	reportPolicy = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// ServeHTTP answers visitors who may look.
func (d *dashboard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	if r.Method != http.MethodGet && r.Method != http.MethodHead && !(r.Method == http.MethodPost && d.asked(r.URL.Path)) {
		h.Set("Allow", "GET, HEAD")
		refuse(w, http.StatusMethodNotAllowed, "this page is for looking only")
		return
	}
	// Others may link to the page, but not use what it uses: their visitors' browsers would take its streams.
	if loopback.Foreign(r, !strings.HasPrefix(r.URL.Path, "/api/")) {
		refuse(w, http.StatusForbidden, "this is for the page itself, not for those of other origins")
		return
	}
	if d.door.admit(w, r) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(time.Minute)) // fails for a test's recorder, which has no deadlines
		d.mux.ServeHTTP(w, r)
	}
}

// asked says whether a path is where one of the further pages is asked.
func (d *dashboard) asked(path string) bool {
	name, ok := strings.CutSuffix(strings.TrimPrefix(path, "/"), "/ask")
	return ok && d.config.Extra[name] != nil
}

func refuse(w http.ResponseWriter, code int, text string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte("riffle: " + text + "\n"))
}

func (d *dashboard) serveAsset(name string) http.HandlerFunc {
	a := d.assets[name]
	return func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", a.kind+"; charset=utf-8")
		h.Set("Cache-Control", "no-cache") // a browser may keep it, but revalidates it by its tag
		h.Set("ETag", a.tag)
		if strings.Contains(r.Header.Get("If-None-Match"), a.tag) {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Length", strconv.Itoa(len(a.body)))
		_, _ = w.Write(a.body)
	}
}

func (d *dashboard) serveReport(w http.ResponseWriter, _ *http.Request) {
	b, err := d.config.Report()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		refuse(w, http.StatusNotFound, "there is no report yet: it is written when the run ends")
	case err != nil:
		refuse(w, http.StatusInternalServerError, "the report cannot be read")
	default:
		w.Header().Set("Content-Security-Policy", reportPolicy)
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(b)
	}
}

// about is the first message to a page.
type about struct {
	Title   string   `json:"title"`
	Version string   `json:"version"`
	Ledger  bool     `json:"ledger"`
	Extra   []string `json:"extra"`
	Tasks   []View   `json:"tasks"`
}

func (d *dashboard) about(tasks []View) about {
	a := about{Title: d.config.Title, Version: d.config.Version, Ledger: d.config.Ledger != nil, Tasks: append([]View{}, tasks...),
		Extra: slices.AppendSeq([]string{}, maps.Keys(d.config.Extra))}
	slices.Sort(a.Extra)
	return a
}

func answer(w http.ResponseWriter, v any) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(v); err != nil {
		refuse(w, http.StatusInternalServerError, "what is known cannot be written")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(b.Bytes())
}

func (d *dashboard) serveTasks(w http.ResponseWriter, _ *http.Request) {
	answer(w, d.about(d.config.Board.list()))
}

func (d *dashboard) serveHistory(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("task")
	h, ok := d.config.Board.history(id, seen{})
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such task")
		return
	}
	answer(w, h)
}

func (d *dashboard) serveExamined(w http.ResponseWriter, r *http.Request) {
	t, ok := d.config.Board.task(r.URL.Query().Get("task"))
	switch {
	case !ok:
		refuse(w, http.StatusNotFound, "there is no such task")
	case t.Examined == nil:
		refuse(w, http.StatusServiceUnavailable, "what the model makes of its examples is not known")
	default:
		answer(w, struct {
			Round int64 `json:"round"`
			*report.Examined
		}{t.ExaminedAt, t.Examined})
	}
}

func (d *dashboard) serveStatement(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("task")
	t, ok := d.config.Board.task(id)
	if !ok {
		refuse(w, http.StatusNotFound, "there is no such task")
		return
	}
	s, err := report.Explain(t.Privacy)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "what is promised is not known yet")
		return
	}
	answer(w, s)
}

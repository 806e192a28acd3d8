// Package draw is the page of riffle demo --browser: a visitor draws digits, and the tab is one more
// client of the demonstration, whose data they are. The page has the model's gradient in JavaScript; the
// client is the npm package's.
package draw

import (
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"strings"

	"github.com/riffle-dp/riffle/internal/loopback"
)

//go:embed page
var page embed.FS

// policy lets the page run its own files and the client, and ask any service of the demonstration.
const policy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'; style-src 'self'; img-src data:; connect-src 'self' https://127.0.0.1:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// visited is what a page asks of the demonstration that serves it.
type visited interface {
	// Demo returns what the page has to know now, which is written as JSON.
	Demo() any
	// Enrol enrols a tab's key, given as its public line. The same line again is no error.
	Enrol(line string) error
	// Ready says that the tab has agreed to the task, Ended that it takes no part any more.
	Ready(line string)
	Ended()
}

// maxBody bounds what a page may send.
const maxBody = 4 << 10

// Handler serves the page on loopback at origin, with the files of the npm package. It refuses requests
// to any other host, and those of other pages but a link: a web site whose name was made to point here can
// neither read the page nor enrol itself.
func Handler(origin string, client fs.FS, v visited) http.Handler {
	own, err := fs.Sub(page, "page")
	if err != nil {
		panic(err) // the name is constant
	}
	mux := http.NewServeMux()
	mux.Handle("GET /client/", http.StripPrefix("/client/", http.FileServerFS(client)))
	mux.Handle("GET /", http.FileServerFS(own))
	mux.HandleFunc("GET /demo.json", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v.Demo()) // fails if the page has gone
	})
	post := func(path string, do func(line string) error) {
		mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				Line string `json:"line"`
			}
			b, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
			if err == nil {
				err = json.Unmarshal(b, &q)
			}
			if err == nil {
				err = do(q.Line)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusConflict)
				return
			}
			w.WriteHeader(http.StatusNoContent)
		})
	}
	post("/enrol", v.Enrol)
	post("/ready", func(line string) error { v.Ready(line); return nil })
	post("/ended", func(string) error { v.Ended(); return nil })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		switch {
		case !loopback.Host(r.Host) || "http://"+r.Host != origin:
			http.Error(w, "this page is on "+origin, http.StatusForbidden)
		case r.Method == http.MethodPost && (r.Header.Get("Origin") != origin || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json")):
			http.Error(w, "not from this page", http.StatusForbidden)
		case loopback.Foreign(r, r.URL.Path == "/"):
			http.Error(w, "not for other pages", http.StatusForbidden)
		default:
			mux.ServeHTTP(w, r)
		}
	})
}

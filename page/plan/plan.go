// Package plan is the program's page /plan, which answers what a protocol costs. A visitor
// moves n, ε₀, rounds and so on, and riffle's accountant computes the bounds. Behind [Handler]
// the page asks its server. Of the static files that [Site] writes, it computes in the browser,
// with the accountant compiled to WebAssembly (page/plan/wasm), and talks to nobody.
package plan

import (
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/page/third_party/uplot"
	"github.com/riffle-dp/riffle/page/third_party/wasmexec"
)

//go:embed page
var page embed.FS

// The content security policies that the page needs and states itself. A server with a policy of its own must
// allow as much as served does. The static page runs WebAssembly, also in a worker from a script's text.
const (
	served = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
	static = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data:; " +
		"connect-src 'self'; worker-src 'self' blob:; base-uri 'none'; form-action 'none'"
)

// What the page says of where it computes.
const (
	servedSays = "on the server that this page is from. Your settings are sent to it, and nothing else"
	staticSays = "in this browser. Nothing is sent anywhere"
)

const (
	index   = "index.html"
	offline = "offline.js"
	asker   = "asker.js"
)

// types are the content types by suffix. They are fixed here because those of operating
// systems differ.
var types = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".gz": "application/octet-stream"}

// files returns the page's files by name; all lie in one directory. The page computes with program, that of
// [wasmbuild.Accountant], in the browser. Without a program it asks its server.
func files(program []byte) (map[string][]byte, error) {
	comment := func(licence string) string { return "/*!\n" + licence + "*/\n" }
	out := map[string][]byte{
		"uplot.js":  []byte(comment(uplot.Licence) + uplot.Script),
		"uplot.css": []byte(comment(uplot.Licence) + uplot.Style),
	}
	classes, err := json.Marshal(choices())
	if err != nil {
		return nil, err
	}
	out["classes.js"] = fmt.Appendf(nil, "const riffleServed = %v, riffleClasses = %s;\n", program == nil, classes)
	entries, err := fs.ReadDir(page, "page")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		text, err := fs.ReadFile(page, "page/"+e.Name())
		if err != nil {
			return nil, err
		}
		out[e.Name()] = text
	}
	policy, says := served, servedSays
	if program != nil {
		policy, says = static, staticSays
		out[wasmbuild.Accountant.Packed] = program
		out["wasm_exec.js"] = []byte(comment(wasmexec.Licence) + wasmexec.Script)
	} else { // the worker that asks the server is in the place of the one that computes
		out["worker.js"] = out[asker]
	}
	delete(out, asker)
	for place, text := range map[string]string{"{{policy}}": policy, "{{where}}": says} {
		if n := strings.Count(string(out[index]), place); n != 1 {
			return nil, fmt.Errorf("plan: %s has %d places for %s, not one", index, n, place)
		}
		out[index] = []byte(strings.Replace(string(out[index]), place, text, 1))
	}
	return out, nil
}

// Handler serves the page at any path that ends in /plan/, and redirects from /plan; mount it
// at both. The page's questions are posts to ask, beside it. command is a program that runs
// [Accountant]; it is started when somebody asks.
func Handler(command func() (*exec.Cmd, error)) http.Handler {
	all, err := files(nil)
	if err != nil {
		panic(err) // the files are embedded, so the binary is broken
	}
	tags := map[string]string{}
	for name, text := range all {
		tags[name] = fmt.Sprintf(`"%x"`, sha256.Sum256(text))
	}
	d := newDesk(command)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/plan/ask") {
			d.ServeHTTP(w, r)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
			return
		}
		dir, name := path.Split(r.URL.Path)
		if name == "plan" {
			// The redirect is relative, so that a proxy's prefix stays.
			w.Header().Set("Location", "plan/")
			w.WriteHeader(http.StatusMovedPermanently)
			return
		}
		if name == "" {
			name = index
		}
		text, ok := all[name]
		if !ok || path.Base(dir) != "plan" {
			http.NotFound(w, r)
			return
		}
		h := w.Header()
		h.Set("Content-Type", types[path.Ext(name)])
		h.Set("Content-Security-Policy", served+"; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-cache") // a browser asks each time and is told that the file is unchanged
		h.Set("ETag", tags[name])
		if r.Header.Get("If-None-Match") == tags[name] {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		h.Set("Content-Length", fmt.Sprint(len(text)))
		if r.Method == http.MethodGet {
			_, _ = w.Write(text) // fails if the visitor has gone
		}
	})
}

// Site writes the page to dir/plan, for any server of static files or for opening index.html
// as a file. program is that of [wasmbuild.Accountant].
func Site(dir string, program []byte) error {
	written, err := files(program)
	if err != nil {
		return err
	}
	if written[offline], err = bundle(written); err != nil {
		return err
	}
	dir = filepath.Join(dir, "plan")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(written)) {
		if err := durable.WriteFile(filepath.Join(dir, name), written[name]); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
	}
	return nil
}

// bundle returns a script with the files that a page opened as a file may not fetch.
func bundle(files map[string][]byte) ([]byte, error) {
	text, err := json.Marshal(map[string]string{
		"worker":     string(files["wasm_exec.js"]) + "\n" + string(files["worker.js"]),
		"accountant": base64.StdEncoding.EncodeToString(files[wasmbuild.Accountant.Packed]),
	})
	if err != nil {
		return nil, err
	}
	return append([]byte("window.riffleOffline = "), append(text, ";\n"...)...), nil
}

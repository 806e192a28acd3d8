package plan

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/page/third_party/wasmexec"
)

func TestHandler(t *testing.T) {
	mux := http.NewServeMux()
	mux.Handle("/plan", Handler(nil))
	mux.Handle("/plan/", Handler(nil))
	get := func(method, path, tag string) *http.Response {
		t.Helper()
		r := httptest.NewRequest(method, path, nil)
		if tag != "" {
			r.Header.Set("If-None-Match", tag)
		}
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, r)
		return w.Result()
	}
	for _, c := range []struct {
		method, path string
		status       int
		kind         string
	}{
		{"GET", "/plan/", 200, "text/html; charset=utf-8"},
		{"HEAD", "/plan/", 200, "text/html; charset=utf-8"},
		{"GET", "/plan/plan.css", 200, "text/css; charset=utf-8"},
		{"GET", "/plan/worker.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/plan/uplot.js", 200, "text/javascript; charset=utf-8"},
		{"GET", "/plan/accountant.wasm.gz", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/wasm_exec.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/asker.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/ask", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/plan.go", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/offline.js", 404, "text/plain; charset=utf-8"},
		{"GET", "/plan/x/plan.css", 404, "text/plain; charset=utf-8"},
		{"POST", "/plan/", 405, "text/plain; charset=utf-8"},
	} {
		r := get(c.method, c.path, "")
		if r.StatusCode != c.status || r.Header.Get("Content-Type") != c.kind {
			t.Errorf("%s %s: %d %q, want %d %q", c.method, c.path, r.StatusCode, r.Header.Get("Content-Type"), c.status, c.kind)
		}
		if c.status != 200 {
			continue
		}
		if p := r.Header.Get("Content-Security-Policy"); !strings.HasPrefix(p, served) {
			t.Errorf("%s: policy %q", c.path, p)
		}
		if again := get(c.method, c.path, r.Header.Get("ETag")); again.StatusCode != http.StatusNotModified {
			t.Errorf("%s asked again: %d", c.path, again.StatusCode)
		}
	}
	if text, _ := io.ReadAll(get("GET", "/plan/", "").Body); !bytes.Contains(text, []byte(served)) || !bytes.Contains(text, []byte(servedSays)) {
		t.Errorf("the page states neither its policy nor where it computes: %s", text)
	}
	if r := get("GET", "/plan", ""); r.StatusCode != 301 || r.Header.Get("Location") != "plan/" {
		t.Errorf("/plan: %d to %q", r.StatusCode, r.Header.Get("Location"))
	}
}

// The page needs nothing but what lies beside it, and states its policy.
func TestSite(t *testing.T) {
	dir, program := t.TempDir(), []byte("program")
	for range 2 { // also over an older one
		if err := Site(dir, program); err != nil {
			t.Fatal(err)
		}
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(dir, "plan", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	html := read("index.html")
	if !strings.Contains(html, `content="`+static+`"`) {
		t.Error("index.html does not state the policy")
	}
	for _, bad := range []string{"://", " style=", " onclick=", "<style", "<script>"} {
		if strings.Contains(html, bad) {
			t.Errorf("index.html contains %q", bad)
		}
	}
	for _, name := range []string{"plan.css", "plan.js", "chart.js", "settings.js", "accountant.js", "worker.js"} {
		if text := read(name); strings.Contains(text, "://") || strings.Contains(text, "eval(") {
			t.Errorf("%s names another place or evaluates text", name)
		}
	}
	for _, link := range []string{`src="`, `href="`} {
		for _, rest := range strings.Split(html, link)[1:] {
			name, _, _ := strings.Cut(rest, `"`)
			if !strings.HasPrefix(name, "#") && !strings.HasPrefix(name, "data:") && read(name) == "" {
				t.Errorf("%s is empty", name)
			}
		}
	}
	if !strings.Contains(read("wasm_exec.js"), strings.TrimSpace(wasmexec.Licence)) {
		t.Error("wasm_exec.js without its licence")
	}
	if !strings.Contains(html, staticSays) || read("accountant.wasm.gz") != string(program) || strings.Contains(read("worker.js"), "fetch") {
		t.Error("the page does not compute by itself")
	}
	if err := Site(filepath.Join(dir, "plan", "index.html"), program); err == nil {
		t.Error("a file in place of the directory: no error")
	}
}

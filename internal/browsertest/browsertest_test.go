package browsertest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// bad has one fault of each kind that an audit looks for.
const bad = `<!doctype html><html><head><link rel="icon" href="data:,"></head><body style="background:#fff;color:#000">
<h2>one</h2><h4>deep</h4><p id="x">some text</p><p id="x" style="color:#999">pale</p>
<button></button><input><select><option>1</option></select><img src="data:,"><table><tr><td>1</td></tr></table>
<a href="#" style="display:block;width:10px;height:10px;overflow:hidden">tiny</a><div style="width:5000px">wide</div>
<p onclick="1">text</p><script>console.error("trouble")</script></body></html>`

const good = `<!doctype html><html lang="en"><head><title>t</title><meta name="viewport" content="width=device-width"><link rel="icon" href="data:,"></head>
<body><main><h1>one</h1><h2>two</h2><p>a</p><p>b</p><p>c</p><label for="i">i</label> <input id="i" style="height:30px"></main></body></html>`

// An audit that finds nothing wrong with a bad page would be worth nothing.
func TestAuditFindsFaults(t *testing.T) {
	p := Open(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		page := good
		if r.URL.Path == "/bad" {
			page = bad
		}
		_, _ = w.Write([]byte(page))
	}))
	defer s.Close()
	p.Open(s.URL + "/")
	if found := p.Audit("good"); len(found) != 0 || len(p.Trouble(s.URL)) != 0 {
		t.Errorf("of a good page: %q, %q", found, p.Trouble(s.URL))
	}
	p.Open(s.URL + "/bad")
	found := strings.Join(p.Audit("bad"), "\n")
	for _, want := range []string{"no lang", "no title", "no viewport", "no main", "0 h1", "heading level 4 after 2", "id twice: x", "contrast 2.8", "no name: button",
		"no name: input", "no name: select", "no alt", "a table without headers", "small target: a", "wider than the window", "inline handler"} {
		if !strings.Contains(found, want) {
			t.Errorf("not found: %s, in\n%s", want, found)
		}
	}
	if !slices.ContainsFunc(p.Trouble(s.URL), func(s string) bool { return strings.Contains(s, "trouble") }) {
		t.Errorf("the console's error is not kept: %q", p.Trouble(s.URL))
	}
	if got := p.Trouble("http://elsewhere.example"); !slices.Contains(got, "asks for "+s.URL+"/bad") {
		t.Error("requests to another origin are not kept")
	}
}

// What a worker logs and asks for is kept, too. Visitors have storages of their own, which outlive their
// tabs.
func TestWorkersAndVisitors(t *testing.T) {
	b := Start(t)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/worker.js" {
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(`onmessage = () => { console.error("trouble"); fetch("/asked").then(() => postMessage(1)) }`))
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!doctype html><link rel="icon" href="data:,"><script>
const w = new Worker("/worker.js"); w.onmessage = () => window.done = true; localStorage.tabs = (localStorage.tabs || "") + "x"</script>`))
	}))
	defer s.Close()
	visitor := b.Visitor()
	p := visitor.Tab()
	p.Open(s.URL)
	p.Until(`(w.postMessage(1), window.done)`)
	Until(t, func() error {
		found := strings.Join(p.Trouble("http://elsewhere.example"), "\n")
		if strings.Contains(found, "trouble") && strings.Contains(found, "asks for "+s.URL+"/asked") {
			return nil
		}
		return fmt.Errorf("of a worker is kept: %s", found)
	})
	p.Close()
	for want, p := range map[string]*Page{"xx": visitor.Tab(), "x": b.Visitor().Tab()} {
		if p.Open(s.URL); Value[string](p, "localStorage.tabs") != want {
			t.Errorf("the storage has %q, want %q", Value[string](p, "localStorage.tabs"), want)
		}
	}
}

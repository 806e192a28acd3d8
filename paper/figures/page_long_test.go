//go:build long

package figures

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// Nothing on the page is cut, on a phone, a tablet and a desk: no table is wider than
// its place, and a legend fits its picture in another font than the one it was drawn with.
func TestNothingIsCut(t *testing.T) {
	dir, _ := drawTo(t, Config{Only: []string{"g21-2a", "eab-table1", "cjmp-table1", "noise-table", "noise-trust-table", "claims"}, Results: os.DirFS("testdata")})
	s := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer s.Close()
	p := browsertest.Open(t)
	for _, width := range []int64{375, 800, 1280} {
		p.Look(width, 900, width < 500, false)
		p.Open(s.URL + "/index.html")
		p.Until(`document.querySelectorAll(".scroll").length === 5 && document.querySelector("img").complete`)
		if cut := browsertest.Value[[]string](p, `Array.prototype.filter.call(document.querySelectorAll(".scroll"), function (e) { return e.scrollWidth > e.clientWidth; }).map(function (e) { return e.getAttribute("aria-label") + ": " + e.scrollWidth + " in " + e.clientWidth; })`); len(cut) > 0 {
			t.Errorf("at %d: %q", width, cut)
		}
		if narrow := browsertest.Value[bool](p, `document.querySelector("img").currentSrc.endsWith("-narrow.svg")`); narrow != (width < 500) {
			t.Errorf("at %d the narrow picture is shown: %v", width, narrow)
		}
		for _, wrong := range p.Audit("figures-" + map[int64]string{375: "phone", 800: "tablet", 1280: "desk"}[width]) {
			t.Errorf("at %d: %s", width, wrong)
		}
	}
	for _, name := range []string{"g21-2a.svg", "g21-2a-narrow.svg"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		text = regexp.MustCompile(`font-family:[^;]*;`).ReplaceAll(text, []byte("font-family:monospace;"))
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
		p.Look(1000, 900, false, false)
		p.Open(s.URL + "/" + name)
		if cut := browsertest.Value[[]string](p, `Array.prototype.filter.call(document.querySelectorAll("text"), function (e) { return e.getBoundingClientRect().right > document.documentElement.getBoundingClientRect().right; }).map(function (e) { return e.textContent; })`); len(cut) > 0 {
			t.Errorf("%s in a wide font cuts %q", name, cut)
		}
	}
}

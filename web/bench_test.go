package web_test

import (
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/page/third_party/wasmexec"
)

// From the page's first call until the program answers it takes less than 5 s: a Worker, the program's
// bytes, its compilation.
func TestStartTime(t *testing.T) {
	s := httptest.NewServer(site(t))
	t.Cleanup(s.Close)
	tab := browsertest.Start(t).Visitor().Tab()
	tab.Open(s.URL)
	tab.Until("window.riffle")
	quickest := math.Inf(1)
	for range 3 {
		ms := browsertest.Value[float64](tab, `(async () => { const begun = performance.now(); await riffle.publicLine(); return performance.now() - begun; })()`)
		t.Logf("%.0f ms", ms)
		quickest = min(quickest, ms)
	}
	if !(quickest > 0 && quickest < 5000) {
		t.Errorf("the program answers after %.0f ms", quickest)
	}
}

// A report of 1,930 parameters takes no more than 50 ms in a tab, but for proofs.
func TestReportTime(t *testing.T) {
	b := browsertest.Start(t)
	program, err := wasmbuild.Client.Build(t.Context(), "..", "github.com/riffle-dp/riffle/web/benchmark", nil)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/exec.js":
			w.Header().Set("Content-Type", "text/javascript")
			_, _ = w.Write([]byte(wasmexec.Script))
		case "/benchmark.wasm":
			w.Header().Set("Content-Type", "application/wasm")
			_, _ = w.Write(program)
		default:
			w.Header().Set("Content-Type", "text/html")
			_, _ = w.Write([]byte(`<!doctype html><title>times</title><script src="exec.js"></script><script type="module">
				const go = new Go();
				const {instance} = await WebAssembly.instantiateStreaming(fetch("benchmark.wasm"), go.importObject);
				go.run(instance);
			</script>`))
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	tab := b.Visitor().Tab()
	tab.Open(s.URL)
	tab.Until("window.riffleReport")
	// All randomness is the browser's.
	browsertest.Value[bool](tab, `(() => { window.drawn = 0; const draw = crypto.getRandomValues.bind(crypto); crypto.getRandomValues = a => { drawn += a.byteLength; return draw(a); }; return true; })()`)
	most := map[string]float64{"privunit": 50, "stepunit": 50, "sum": 50, "proved": 500}
	for _, name := range []string{"privunit", "stepunit", "sum", "proved"} {
		ms := browsertest.Value[[]float64](tab, `riffleReport("`+name+`")`)
		slices.Sort(ms)
		t.Logf("%s: median %.3g ms, slowest %.3g ms of %d", name, ms[len(ms)/2], ms[len(ms)-1], len(ms))
		if median := ms[len(ms)/2]; median > most[name] || math.IsNaN(median) {
			t.Errorf("%s: a report takes %v ms", name, median)
		}
		if drawn := browsertest.Value[int](tab, "drawn"); drawn < 32*len(ms) {
			t.Errorf("%s: %d reports took %d random bytes of the browser", name, len(ms), drawn)
		}
	}
}

package web_test

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/web"
)

// site serves the package, and a page that has imported it.
func site(t testing.TB) http.Handler {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle("/riffle/", http.StripPrefix("/riffle/", http.FileServerFS(web.Files(program(t)))))
	mux.HandleFunc("/favicon.ico", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprint(w, `<!doctype html><title>page</title><script type="module">
			import * as riffle from "./riffle/index.js";
			window.riffle = riffle;
			window.events = [];
		</script>`)
	})
	return mux
}

// said is an event of a page.
type said struct {
	Type, Task, Reason, Message string
	Round, Messages             int64
	Epsilon                     json.Number
}

// A tab takes part beside native clients, also in rounds in which its page has no gradient.
func TestATabTakesPart(t *testing.T) {
	w := newWorld(t, 3, site(t))
	b := browsertest.Start(t, w.pins...)
	tab := b.Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	line := browsertest.Value[string](tab, "riffle.newCredential()")
	if !strings.HasPrefix(line, "riffle-client-public-1 ") {
		t.Fatalf("public line %q", line)
	}
	if again := browsertest.Value[string](tab, "riffle.publicLine()"); again != line {
		t.Errorf("the line is %q, was %q", again, line)
	}
	w.enrol(line)
	id := w.serve(3, "trust: shuffle\neps0: 2\nparticipation: all\n")
	w.run(operate.RoleClient, "clients-0")
	browsertest.Value[bool](tab, `(async () => {
		window.part = await riffle.join(`+w.options(`
			answer: 4,
			gradient: ({round, theta, dim}) => {
				if (dim !== theta.length) throw new Error("dim is " + dim);
				if (round === 2) throw new Error("out of pencils");
				return round === 3 ? [1] : theta.map((_, i) => Math.sin(i));
			},
			onEvent: e => events.push(e)`)+`);
		return true;
	})()`)
	tab.Until(`events.some(e => e.type === "ended")`)
	browsertest.Value[bool](tab, `part.stop().then(() => true)`)
	events := browsertest.Value[[]said](tab, "events")
	counts := map[string]int{}
	for _, e := range events {
		counts[e.Type]++
		if e.Type == "no-gradient" && e.Message != map[int64]string{2: "out of pencils", 3: "client: gradient: want a Float32Array of 2"}[e.Round] {
			t.Errorf("round %d: %q", e.Round, e.Message)
		}
	}
	if counts["agreed"] != 1 || counts["round"] != 3 || counts["sent"] != 3 || counts["spent"] != 4 || counts["declined"] != 0 || counts["no-gradient"] != 2 {
		t.Errorf("events %v", counts)
	}
	if task := w.task(id); task.Released != 3 {
		t.Errorf("%+v", task)
	}
	for _, trouble := range tab.Trouble(w.site.URL) {
		if !strings.HasPrefix(trouble, "asks for "+w.native.Coordinator.URL) && !strings.HasPrefix(trouble, "asks for "+w.native.Shuffler.URL) {
			t.Error(trouble)
		}
	}
}

// A tab's row answers a question, as those of native clients do, also if the page computes gradients,
// and a tab without rows declines it.
func TestATabAnswers(t *testing.T) {
	w := newWorld(t, 40, site(t), func(l *operate.Loopback) {
		l.Aggregator = true
		l.Policy = config.Policy{MaxEps: 100, Delta: 1e-5, MinReports: 40, MaxTasks: 1, Trusts: []dp.Trust{dp.Trust(dp.TrustNames(dp.SumsOnly)[0])}}
		l.Data = filepath.Join(l.Dir, "ages.csv")
		if err := os.WriteFile(l.Data, []byte("age\n"+strings.Repeat("15\n", 20)+strings.Repeat("25\n", 20)), 0o600); err != nil {
			t.Fatal(err)
		}
	})
	b := browsertest.Start(t, w.pins...)
	tab, both, other := b.Visitor().Tab(), b.Visitor().Tab(), b.Visitor().Tab()
	for _, p := range []*browsertest.Page{tab, both, other} {
		p.Open(w.site.URL)
		p.Until("window.riffle")
		w.enrol(browsertest.Value[string](p, "riffle.newCredential()"))
	}
	w.round = 60 // not all report
	id := w.ask("measure: histogram\ncolumn: age\nbins: 0..100:10\nepsilon: 50\ndelta: 1e-6\nn-min: 42\n")
	w.run(operate.RoleClient, "clients-0")
	policy := `policy: {maxEpsilon: 100, delta: 1e-5, minReports: 42, trusts: ["` + dp.TrustNames(dp.SumsOnly)[0] + `"], measure: ["histogram"]}, onEvent: e => events.push(e)`
	browsertest.Value[bool](other, `(async () => { window.part = await riffle.join(`+w.options(`gradient: () => [0], tasks: ["`+id+`"], `+policy)+`); return true; })()`)
	const row = `row: {age: 95, city: "berlin"}`
	for p, data := range map[*browsertest.Page]string{tab: row, both: row + `, gradient: () => { throw new Error("asked") }`} {
		browsertest.Value[bool](p, `(async () => { window.part = await riffle.join(`+w.options(data+`, tasks: ["`+id+`"], `+policy)+`); return true; })()`)
	}
	if why := browsertest.Value[string](other, `part.done.then(() => "ended", e => e.reason)`); why != "source" {
		t.Errorf("a tab without a row ends with %q: %v", why, browsertest.Value[[]said](other, "events"))
	}
	for _, p := range []*browsertest.Page{tab, both} {
		browsertest.Value[bool](p, `part.done.then(() => true)`)
		types := browsertest.Value[string](p, `events.map(e => e.type).filter(x => !["retrying", "compared", "untold"].includes(x)).join()`)
		if types != "spent,agreed,round,sent,spent,ended" {
			t.Errorf("events %s", types)
		}
	}
	var answer struct {
		Reports int64
		Bins    []struct{ Lower, Count float64 }
	}
	w.until("answer", func() error {
		resp, err := w.api.GetAnswer(t.Context(), connect.NewRequest(&operatorv1.GetAnswerRequest{Task: id}))
		if err != nil {
			return err
		}
		return json.Unmarshal(resp.Msg.Json, &answer)
	})
	if answer.Reports != 42 || len(answer.Bins) != 10 {
		t.Fatalf("%+v", answer)
	}
	for i, want := range []float64{0, 20, 20, 0, 0, 0, 0, 0, 0, 2} { // the noise's deviation is a third
		if got := answer.Bins[i].Count; !(math.Abs(got-want) < 5) {
			t.Errorf("bin %d: %v, want about %v", i, got, want)
		}
	}
}

// Examples of one model have no part in a task that publishes another one, also if its reports are as
// long: those of private evaluation are longer than the model.
func TestATabWithExamplesOfAnotherModel(t *testing.T) {
	w := newWorld(t, 40, site(t), func(l *operate.Loopback) { l.Aggregator = true })
	b := browsertest.Start(t, w.pins...)
	tab := b.Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	w.enrol(browsertest.Value[string](tab, "riffle.newCredential()"))
	id := w.serve(2, "trust: vector-sum\nparticipation: all\nevaluate: private\nepsilon: 50\ndelta: 1e-6\nn-min: 41\n")
	trust := dp.TrustNames(dp.SumsOnly)[0]
	// Logistic regression on one input has 2 parameters, and reports of 5 numbers, as many as one on 4.
	browsertest.Value[bool](tab, `(async () => { window.part = await riffle.join(`+w.options(`tasks: ["`+id+`"], onEvent: e => events.push(e),
		data: {model: "linear", loss: "logistic", width: 4, inputs: [1, 0, 0, 1], targets: [1]},
		policy: {maxEpsilon: 100, delta: 1e-5, minReports: 41, maxTasks: 1, trusts: ["`+trust+`"]}`)+`); return true; })()`)
	if why := browsertest.Value[string](tab, `part.done.then(() => "ended", e => e.reason)`); why != "source" {
		t.Errorf("the tab ends with %q: %v", why, browsertest.Value[[]said](tab, "events"))
	}
}

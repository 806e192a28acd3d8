package dashboard

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// serveFor serves a dashboard for a test and returns its URL.
func serveFor(t testing.TB, c Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Loopback = true
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- d.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + l.Addr().String() + "/"
}

// extraPage stands for a page that is mounted beside the dashboard.
var extraPage = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = w.Write([]byte(`<!doctype html><html lang="en"><title>Plan</title><link rel="icon" href="data:,"><h1>Plan</h1></html>`))
})

func exampleConfig(b *Board) Config {
	return Config{Board: b, Title: "Coordinator", Version: "1.0", Extra: map[string]http.Handler{"plan": extraPage},
		Report: func() ([]byte, error) { return nil, fs.ErrNotExist },
		Ledger: func(context.Context) (Ledger, error) {
			l := Ledger{Digest: strings.Repeat("5eed", 16), Eps: 1.2345678, Budget: 4, Delta: 1e-5, Method: "blanket-pld",
				Tasks: []LedgerTask{{ID: "run", Name: "first", Eps: 1, Delta: 1e-5, Entries: 80, Round: 80}, {ID: "b2", Name: "second", Eps: .4, Delta: 1e-5, Entries: 12, Round: 12}}}
			for i := int64(1); i <= 80; i++ {
				l.Charge("first", i, "shuffle all k=60000 n=60000 privunit eps0=2")
			}
			for i := int64(1); i <= 12; i++ {
				l.Charge("second", i, fmt.Sprintf("shuffle sampled k=%d n=60000 privunit eps0=2", 9000+i*37))
			}
			return l, nil
		}}
}

// twoTasks is a board with a task that has ended and a newer one in its course.
func twoTasks() *Board {
	b := &Board{}
	second := exampleTask("b2", "second", 12, 12)
	second.State, second.Phase, second.Opened, second.Privacy.Running = Stopped, "", 0, false
	second.Why = "stopped by the operator"
	b.Set(second)
	for r := int64(1); r <= 12; r++ {
		exampleRound(b, "b2", r, 12)
	}
	b.Set(exampleTask("run", "first", 62, 80))
	for r := int64(1); r <= 62; r++ {
		exampleRound(b, "run", r, 80)
	}
	return b
}

var allViews = []string{"overview", "rounds", "mistakes", "reports", "ledger", "privacy"}

// ready is true when a view shows what it fetches.
var ready = map[string]string{
	"overview": "document.querySelectorAll('#view-overview .plot canvas').length === 2",
	"rounds":   "document.querySelectorAll('#view-rounds .plot canvas').length === 4 && document.querySelectorAll('#latest tr').length > 3",
	"mistakes": "document.querySelectorAll('#matrix tbody tr').length === 3 && document.querySelectorAll('#samples img').length === 2",
	"reports":  "document.querySelectorAll('#view-reports .plot canvas').length === 2 && document.querySelectorAll('#stages tr').length > 3",
	"ledger":   "document.querySelectorAll('#ledger-lines tr').length > 3",
	"privacy":  "document.querySelectorAll('#parts .part').length === 5",
}

// Every view, by clicking, in light and dark and on a phone: shown, complete,
// readable, no wider than the window, and nothing from elsewhere.
func TestViewsInABrowser(t *testing.T) {
	p := browsertest.Open(t)
	url := serveFor(t, exampleConfig(twoTasks()))
	for _, look := range []struct {
		name          string
		width, height int64
		phone, dark   bool
	}{{"light", 1200, 900, false, false}, {"dark", 1200, 900, false, true}, {"phone", 360, 740, true, false}, {"phone-dark", 360, 740, true, true}} {
		p.Look(look.width, look.height, look.phone, look.dark)
		p.Open(url)
		for _, view := range allViews {
			p.Until(fmt.Sprintf("document.querySelector('#nav a[href^=\"#/%s\"]').offsetParent", view))
			p.Click(fmt.Sprintf(`#nav a[href^="#/%s"]`, view))
			p.Until(ready[view])
			for _, wrong := range p.Audit(look.name + "-" + view) {
				t.Errorf("%s, %s: %s", look.name, view, wrong)
			}
			if got := browsertest.Value[string](p, `document.querySelector('[aria-current]').textContent`); !strings.EqualFold(got, view) {
				t.Errorf("%s: the current view is %q", view, got)
			}
			if n := browsertest.Value[int](p, `document.querySelectorAll('.view:not([hidden])').length`); n != 1 {
				t.Errorf("%s: %d views are shown", view, n)
			}
		}
	}
	// The other task, and the page beside.
	p.Look(1200, 900, false, false)
	p.Click(`#nav a[href^="#/overview"]`)
	p.Until(ready["overview"])
	p.Click(`#tasks a[href="#/overview/b2"]`)
	p.Until(`document.getElementById("title").textContent.includes("second") && document.getElementById("state").textContent.includes("by the operator")`)
	p.Until(`document.getElementById("progress-text").textContent.includes("Round 12 of 12")`)
	p.Click("#nav-plan a")
	p.Until(`document.querySelector("h1").textContent === "Plan"`)
	for _, line := range p.Trouble(url) {
		t.Errorf("the page: %s", line)
	}
}

// Everything is reached and used without a mouse.
func TestKeyboard(t *testing.T) {
	p := browsertest.Open(t)
	url := serveFor(t, exampleConfig(twoTasks()))
	p.Look(1200, 900, false, false)
	p.Open(url)
	p.Until(ready["overview"])
	press := func(keys string) {
		t.Helper()
		if _, err := chromedp.Run(p.Context, chromedp.KeyEvent(keys)); err != nil {
			t.Fatal(err)
		}
	}
	focus := func() string {
		return browsertest.Value[string](p, `(function () { var e = document.activeElement; return e === document.body ? "" : (e.id || e.getAttribute("aria-label") || e.textContent).trim(); })()`)
	}
	var reached []string
	for range 30 {
		press(kb.Tab)
		at := focus()
		if at == "" {
			break
		}
		if !browsertest.Value[bool](p, `(function () { var e = document.activeElement, s = getComputedStyle(e); return s.outlineStyle !== "none" && parseFloat(s.outlineWidth) >= 2; })()`) {
			t.Errorf("focus on %q does not show", at)
		}
		reached = append(reached, at)
		if at == "Skip to the figures" {
			for _, wrong := range p.Audit("skip") {
				t.Errorf("with focus on the first link: %s", wrong)
			}
		}
	}
	all := strings.Join(reached, "\n")
	for _, want := range []string{"Skip to the figures", "Overview", "Rounds", "Reports", "Ledger", "Privacy", "Plan", "task", "Accuracy by round", "ε spent by round", "All tasks"} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not reached by Tab:\n%s", want, all)
		}
	}
	if reached[0] != "Skip to the figures" {
		t.Errorf("first is %q", reached[0])
	}

	// A view by Enter, a chart by arrow keys, the tasks' list by its own keys.
	browsertest.Value[bool](p, `(document.querySelector('#nav a[href^="#/rounds"]').focus(), true)`)
	press(kb.Enter)
	p.Until(ready["rounds"])
	browsertest.Value[bool](p, `(document.querySelector('#view-rounds [data-chart=epsilon]').focus(), true)`)
	press(kb.Home)
	p.Until(`document.getElementById("spoken").textContent.includes("at round 1") && /ε 0\.11/.test(document.getElementById("spoken").textContent)`)
	press(kb.ArrowRight)
	p.Until(`document.getElementById("spoken").textContent.endsWith("at round 2")`)
	press(kb.End)
	press(kb.ArrowLeft)
	p.Until(`document.getElementById("spoken").textContent.endsWith("at round 61")`)
	p.Until(`document.querySelector('#view-rounds .violet .readout').textContent.endsWith("at round 61")`)
	press(kb.Escape)
	p.Until(`document.querySelector('#view-rounds .violet .readout').textContent.endsWith("at round 62")`)
	browsertest.Value[bool](p, `(document.getElementById("task").focus(), true)`)
	press(kb.ArrowDown)
	p.Until(`location.hash === "#/rounds/b2" && document.getElementById("title").textContent.includes("second")`)
	for _, line := range p.Trouble(url) {
		t.Errorf("the page complains: %s", line)
	}
}

// A page that is open sees a task come, its rounds, its end, and the process's.
func TestLiveInABrowser(t *testing.T) {
	p := browsertest.Open(t)
	b := &Board{}
	url := serveFor(t, exampleConfig(b))
	p.Open(url)
	p.Until(`document.getElementById("none").offsetParent`)
	for _, wrong := range p.Audit("no-task") {
		t.Errorf("without a task: %s", wrong)
	}
	for round := int64(1); round <= 30; round++ {
		exampleRound(b, "run", round, 30)
		b.Set(exampleTask("run", "first", round, 30))
		if round%10 == 0 {
			p.Until(fmt.Sprintf(`document.getElementById("progress-text").textContent.includes("Round %d of 30")`, round))
			p.Until(fmt.Sprintf(`document.querySelector("#view-overview .violet .readout").textContent.endsWith("at round %d")`, round))
		}
	}
	p.Until(`document.getElementById("live").textContent === "live"`)
	done := exampleTask("run", "first", 30, 30)
	done.State, done.Phase, done.Report = Done, "", true
	b.Set(done)
	p.Until(`document.getElementById("live").textContent === "finished"`)
	p.Until(`document.getElementById("state").textContent === "finished" && document.querySelector('#files a[href=report]')`)
	if got := browsertest.Value[string](p, `document.title`); got != "first · round 30 of 30 · riffle" {
		t.Errorf("the title is %q", got)
	}
	for _, line := range p.Trouble(url) {
		t.Errorf("the page complains: %s", line)
	}
}

// With 10,000 rounds behind it a page loads and draws as with ten.
func TestLoadWithALongHistory(t *testing.T) {
	p := browsertest.Open(t)
	url := serveFor(t, exampleConfig(exampleBoard(10_000)))
	best, load := math.Inf(1), 0.0
	for range 4 { // the first also starts the browser's machinery
		p.Open("about:blank")
		p.Open(url)
		p.Until(ready["overview"])
		if ms := browsertest.Value[float64](p, `performance.getEntriesByName("riffle-drawn")[0].startTime`); ms < best {
			best, load = ms, browsertest.Value[float64](p, `performance.getEntriesByType("navigation")[0].loadEventEnd`)
		}
	}
	// How long it took depends on the machine, what is asked for does not; how much
	// that is, TestPageIsSmall bounds.
	t.Logf("loaded %.0f ms, charts drawn %.0f ms after navigation began", load, best)
	if n := browsertest.Value[int](p, `performance.getEntriesByType("resource").length`); n > 5 {
		t.Errorf("%d requests", n)
	}
}

// A task's page shows what clients measured on their own rows, which is no answer to a question.
func TestPageShowsWhatClientsMeasured(t *testing.T) {
	b := &Board{}
	v := exampleTask("run", "first", 62, 80)
	v.Answer = &Answer{What: "Measured by clients", Note: "Round 62 measured the model that it began with.", Rows: []Figure{{Name: "accuracy", Value: .9123, Low: .9012, High: .9234, JointLow: .9, JointHigh: .925}}}
	b.Set(v)
	exampleRound(b, "run", 62, 80)
	url := serveFor(t, exampleConfig(b))
	p := browsertest.Open(t)
	p.Look(1280, 900, false, false)
	p.Open(url)
	p.Until(`document.querySelector("#answer-block:not([hidden])") && document.body.innerText.includes("On clients' own rows")`)
	for _, text := range []string{"Measured by clients", "0.912", "0.901", "0.923", "Round 62 measured"} {
		p.Until(fmt.Sprintf("document.querySelector('#answer-block').innerText.includes(%q)", text))
	}
	if odd := append(p.Audit("measured"), p.Trouble(url)...); len(odd) > 0 {
		t.Error(odd)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// grown is a buffer that one goroutine writes and another reads.
type grown struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (g *grown) Write(b []byte) (int, error) { g.mu.Lock(); defer g.mu.Unlock(); return g.b.Write(b) }
func (g *grown) String() string              { g.mu.Lock(); defer g.mu.Unlock(); return g.b.String() }

// drawOne draws a line on the page's pad and says which digit it is.
func drawOne(t *testing.T, p *browsertest.Page, digit int) {
	t.Helper()
	type box struct{ X, Y, W, H float64 }
	b := browsertest.Value[box](p, `(b => ({X: b.x, Y: b.y, W: b.width, H: b.height}))(document.getElementById("pad").getBoundingClientRect())`)
	mouse := func(kind input.DispatchMouseEventType, x, y float64, pressed int64) {
		t.Helper()
		q := input.DispatchMouseEventParams{Type: kind, X: b.X + x*b.W, Y: b.Y + y*b.H, Button: "left", Buttons: pressed}
		if _, err := chromedp.Call(p.Context, input.DispatchMouseEvent, q); err != nil {
			t.Fatal(err)
		}
	}
	mouse(input.DispatchMouseEventTypeMousePressed, .5, .15, 1)
	for y := .2; y < .9; y += .1 {
		mouse(input.DispatchMouseEventTypeMouseMoved, .5+.1*(y-.5), y, 1)
	}
	mouse(input.DispatchMouseEventTypeMouseReleased, .5, .85, 0)
	p.Click(fmt.Sprintf(`input[value="%d"]`, digit))
	p.Until(`!document.getElementById("add").disabled`)
	p.Click("#add")
}

// demoPage is a demo that serves a page for tabs.
type demoPage struct {
	t      *testing.T
	cmd    *exec.Cmd
	origin string
	pins   []string
	stdout bytes.Buffer
	stderr *grown
	ended  chan error
}

func startDemoPage(t *testing.T, args ...string) *demoPage {
	t.Helper()
	d := &demoPage{t: t, cmd: process(t, append([]string{"demo", "--json"}, args...)...), stderr: &grown{}, ended: make(chan error, 1)}
	d.cmd.Stdout, d.cmd.Stderr = &d.stdout, d.stderr
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.ended <- d.cmd.Wait() }()
	t.Cleanup(func() { _ = d.cmd.Process.Kill() })
	printed := regexp.MustCompile(`--ignore-certificate-errors-spki-list=(\S+) (http://127\.0\.0\.1:\d+)/`)
	until(t, "the page's address is printed", func() bool {
		found := printed.FindStringSubmatch(d.stderr.String())
		select {
		case err := <-d.ended:
			t.Fatalf("the demo has ended: %v\n%s", err, d.stderr)
		default:
		}
		if found != nil {
			d.pins, d.origin = strings.Split(found[1], ","), found[2]
		}
		return found != nil
	})
	return d
}

// tab opens the page.
func (d *demoPage) tab(v *browsertest.Visitor) *browsertest.Page {
	p := v.Tab()
	p.Open(d.origin + "/")
	p.Until(`document.querySelectorAll("#labels input").length === 10`)
	return p
}

// result waits for the demo's end.
func (d *demoPage) result(p *browsertest.Page) (r demoResult) {
	d.t.Helper()
	var err error
	select {
	case err = <-d.ended:
	case <-time.After(2 * patience):
		err = errors.New("the demo does not end")
	}
	if err == nil {
		err = json.Unmarshal(d.stdout.Bytes(), &r)
	}
	if err != nil {
		d.t.Fatalf("%v\n%s\n%s", err, d.stderr, browsertest.Value[string](p, "document.body.innerText"))
	}
	return r
}

// A visitor follows the printed lines, draws digits, and takes part in all rounds; the model that the
// demo computes again has the tab's reports in it.
func TestDemoWithATab(t *testing.T) {
	browsertest.Start(t) // skips
	d := startDemoPage(t, "--browser", "--clients", "20", "--rounds", "3", "--out", shortDir(t))
	origin := d.origin

	// Another site can neither read the page nor enrol itself.
	for name, h := range map[string]map[string]string{
		"another name":   {"Host": "evil.example", "Origin": origin, "Content-Type": "application/json"},
		"another origin": {"Origin": "https://evil.example", "Content-Type": "application/json"},
		"a null origin":  {"Origin": "null", "Content-Type": "application/json"},
		"no origin":      {"Content-Type": "application/json"},
		"a form":         {"Origin": origin, "Content-Type": "text/plain"},
	} {
		q, err := http.NewRequest(http.MethodPost, origin+"/enrol", strings.NewReader(`{"line":"riffle-client-public-1 `+strings.Repeat("A", 43)+`="}`))
		if err != nil {
			t.Fatal(err)
		}
		for key, value := range h {
			q.Header.Set(key, value)
		}
		if host := h["Host"]; host != "" {
			q.Host = host
		}
		resp, err := http.DefaultClient.Do(q)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %s %s", name, resp.Status, b)
		}
	}

	p := d.tab(browsertest.Start(t, d.pins...).Visitor())
	drawOne(t, p, 1)
	drawOne(t, p, 7)
	if wrong := p.Audit("draw"); len(wrong) > 0 {
		t.Errorf("the page: %q", wrong)
	}
	p.Click("#join")
	r := d.result(p)
	p.Until(`document.getElementById("state").textContent.startsWith("The demo has ended")`)
	if r.Released != 3 || r.Accepted != 63 || r.Clients != 21 || !r.Replayed || !r.Clean {
		t.Errorf("%+v\n%s", r, d.stderr)
	}
	if sent := browsertest.Value[string](p, `document.getElementById("sent").textContent`); sent != "3" {
		t.Errorf("the page has sent %s reports:\n%s", sent, browsertest.Value[string](p, "document.body.innerText"))
	}
	if spent := browsertest.Value[float64](p, `parseFloat(document.getElementById("spent").textContent)`); !(spent > 0) {
		t.Errorf("the page has spent %v", spent)
	}
	p.Audit("draw-ended")
	for _, line := range p.Trouble(origin) {
		if !strings.HasPrefix(line, "asks for https://127.0.0.1:") && !strings.Contains(line, "ERR_CONNECTION_REFUSED") { // the demo has ended
			t.Error(line)
		}
	}
}

// In a browser that was not started for the demo the visitor lets it know the certificates, as the page
// tells. A demo that was stopped goes on with the same tab, which the page starts by itself.
func TestDemoWithATabGoesOn(t *testing.T) {
	b := browsertest.Start(t)
	out := shortDir(t)
	d := startDemoPage(t, "--browser", "--clients", "10", "--rounds", "6", "--out", out)
	v := b.Visitor()
	p := d.tab(v)
	drawOne(t, p, 1)
	p.Click("#join")
	p.Until(`document.querySelectorAll("#services a").length > 0`)
	if wrong := p.Audit("draw-certificates"); len(wrong) > 0 {
		t.Errorf("the page: %q", wrong)
	}
	for _, link := range browsertest.Value[[]string](p, `[...document.querySelectorAll("#services a")].map(a => a.href)`) {
		q := v.Tab()
		if _, err := chromedp.Run(q.Context, chromedp.Navigate(link)); err == nil || !strings.Contains(err.Error(), "ERR_CERT_AUTHORITY_INVALID") {
			t.Errorf("%s: %v", link, err)
		}
		until(t, "the page behind the warning is shown", func() bool {
			if _, err := chromedp.Run(q.Context, chromedp.KeyEvent("thisisunsafe")); err != nil { // what the warning's button does
				t.Fatal(err)
			}
			shown, err := chromedp.Run(q.Context, chromedp.Evaluate[bool](`document.body.innerText.includes("404")`))
			return err == nil && shown
		})
		q.Close()
	}
	p.Click("#again")
	p.Until(`Number(document.getElementById("sent").textContent) > 0`)
	if err := d.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := <-d.ended; err == nil || d.cmd.ProcessState.ExitCode() != exitInterrupted {
		t.Fatalf("an interrupted demo: %v\n%s", err, d.stderr)
	}
	p.Close()
	again := startDemoPage(t, "--resume", out)
	if again.origin != d.origin {
		t.Errorf("the page was on %s, and is on %s", d.origin, again.origin)
	}
	p = again.tab(v)
	r := again.result(p)
	if r.Released != 6 || r.Accepted < 61 || r.Accepted > 66 || !r.Replayed || !r.Clean {
		t.Errorf("%+v\n%s", r, again.stderr)
	}
	p.Until(`document.getElementById("state").textContent.startsWith("The demo has ended")`)
	t.Logf("%d reports; %s", r.Accepted, browsertest.Value[string](p, `document.getElementById("log").innerText`))
}

// Two tabs of one browser take part with all that keeps liars and operators honest: proofs of norms,
// tokens, receipts and the relay. There is no room for a third.
func TestFullDemoWithTabs(t *testing.T) {
	browsertest.Start(t) // skips
	d := startDemoPage(t, "--full", "--browser=2", "--clients", "10", "--rounds", "2", "--out", shortDir(t))
	b := browsertest.Start(t, d.pins...)
	var pages []*browsertest.Page
	for i := range 3 {
		p := d.tab(b.Visitor())
		drawOne(t, p, i)
		p.Click("#join")
		text := `document.getElementById("state").textContent`
		if i < 2 {
			p.Until(text + `.startsWith("Enrolled") || ` + text + ` === "Taking part…"`)
			pages = append(pages, p)
		} else {
			p.Until(text + `.includes("all are taken") || ` + text + `.includes("the demo has begun")`)
		}
	}
	r := d.result(pages[0])
	if r.Released != 2 || r.Accepted != 24 || r.Clients != 12 || r.Proofs != "pine" || !r.Tokens || !r.Relay || !r.Replayed || !r.Clean {
		t.Errorf("%+v\n%s", r, d.stderr)
	}
	for i, p := range pages {
		p.Until(`document.getElementById("state").textContent.startsWith("The demo has ended")`)
		if sent := browsertest.Value[string](p, `document.getElementById("sent").textContent`); sent != "2" {
			t.Errorf("tab %d has sent %s reports", i, sent)
		}
	}
}

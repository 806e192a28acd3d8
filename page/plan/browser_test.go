package plan

import (
	"context"
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// tab is a browser's page that fails the test on complaints and on requests to
// anywhere else.
type tab struct {
	t     *testing.T
	ctx   context.Context
	base  string // of the server
	files bool   // pages may come from files
}

func browser(t *testing.T, width, height int, dark bool) *tab {
	t.Helper()
	ctx := browsertest.Open(t).Context
	server := httptest.NewServer(Handler(program("")))
	t.Cleanup(server.Close)

	b := &tab{t: t, ctx: ctx, base: server.URL}
	if err := chromedp.Listen(ctx, b.heard); err != nil {
		t.Fatal(err)
	}
	b.look(width, height, dark)
	return b
}

// look sets the size of the window, that of a phone if narrow, and the colours.
func (b *tab) look(width, height int, dark bool) {
	b.t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	call(b, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
		Width: int64(width), Height: int64(height), DeviceScaleFactor: 1, Mobile: width < 600})
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}})
}

// heard runs in the loop that reads the browser's messages.
func (b *tab) heard(ev any) {
	switch ev := ev.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(ev.Request.URL)
		local := err == nil && (u.Scheme == "data" || u.Scheme == "blob" || u.Scheme == "about" || b.files && u.Scheme == "file")
		if !local && !strings.HasPrefix(ev.Request.URL, b.base+"/plan") {
			b.t.Errorf("the page asks for %s", ev.Request.URL)
		}
	case *log.EventEntryAdded:
		b.t.Errorf("browser: %s: %s %s", ev.Entry.Level, ev.Entry.Text, ev.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		if ev.Type == "error" || ev.Type == "warning" {
			b.t.Errorf("console: %s", ev.Args[0].Value)
		}
	case *runtime.EventExceptionThrown:
		b.t.Errorf("page: %s", ev.ExceptionDetails.Text)
	}
}

func call[P, R any](b *tab, c cdp.Command[P, R], params P) R {
	b.t.Helper()
	out, err := chromedp.Call(b.ctx, c, params)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

func navigate(to string) chromedp.Action[chromedp.Void] { return chromedp.Navigate(to) }

// evaluate is value for goroutines.
func evaluate[T any](b *tab, script string) (T, error) {
	return chromedp.Run(b.ctx, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

func do[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	out, err := chromedp.Run(b.ctx, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return out
}

// value is what a script evaluates to; promises are awaited.
func value[T any](b *tab, script string, args ...any) T {
	b.t.Helper()
	if len(args) > 0 {
		script = fmt.Sprintf(script, args...)
	}
	return do(b, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// until waits for a script to be true. It asks again and again: a page that is
// just being replaced has no answer.
func (b *tab) until(script string) {
	b.t.Helper()
	browsertest.Until(b.t, func() error {
		ok, err := evaluate[bool](b, script)
		if ok && err == nil {
			return nil
		}
		if b.ctx.Err() != nil {
			b.t.Fatalf("%s: %v", script, err)
		}
		said, _ := evaluate[string](b, `JSON.stringify(window.said ?? []) + document.body.innerText.slice(0, 400)`)
		return fmt.Errorf("%s: %v; the page: %s", script, err, said)
	})
}

const (
	numberShown = `document.getElementById("upper").dataset.eps !== undefined && !document.querySelector(".stale")`
	allShown    = `document.getElementById("answer").getAttribute("aria-busy") === "false"`
)

// open waits for all of an answer, visit for its number.
func (b *tab) open(hash string) {
	b.t.Helper()
	b.load(b.base + "/plan/" + hash)
	b.until(allShown)
}

func (b *tab) visit(hash string) {
	b.t.Helper()
	b.load(b.base + "/plan/" + hash)
	b.until(numberShown)
}

func (b *tab) load(url string) {
	b.t.Helper()
	do(b, navigate("about:blank")) // else only the fragment changes
	do(b, navigate(url))
}

// Package browsertest drives a headless Chromium in tests of pages. No program imports it.
package browsertest

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/cdproto/storage"
	"github.com/chromedp/cdproto/target"
	"github.com/chromedp/chromedp"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// audit is a script that returns what is wrong with the page as shown, one line each.
//
//go:embed audit.js
var audit string

// Page is a browser's tab. It records the errors that the page logs and the addresses it
// requests.
type Page struct {
	// Context is the tab's context, for actions that this package does not offer.
	Context context.Context
	t       testing.TB
	end     func()

	mu       sync.Mutex
	trouble  []string
	requests []string
	workers  []context.Context
}

// names are the names under which a browser may be installed.
var names = []string{"chromium", "chromium-browser", "google-chrome", "chrome", "headless-shell"}

// Browser is a running Chromium.
type Browser struct {
	t   testing.TB
	ctx context.Context
}

// Start starts a browser. It makes the test one of the long ones, and skips it with a reason if no
// browser is installed. The browser trusts the certificates of servers with the given keys, each the
// SHA-256 of a SubjectPublicKeyInfo in base64, and checks all others as always.
func Start(t testing.TB, trusted ...string) *Browser {
	t.Helper()
	longtest.Only(t, "drives a browser")
	if testing.Short() {
		t.Skip("drives a browser")
	}
	path := os.Getenv("RIFFLE_CHROMIUM")
	for _, name := range names {
		if path == "" {
			path, _ = exec.LookPath(name)
		}
	}
	if path == "" {
		t.Skip("no Chromium: install one, or name it in RIFFLE_CHROMIUM")
	}
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.ExecPath(path), chromedp.WindowSize(1200, 900))
	if os.Geteuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	if len(trusted) > 0 {
		options = append(options, chromedp.Flag("ignore-certificate-errors-spki-list", strings.Join(trusted, ",")))
	}
	ctx, stop := context.WithTimeout(context.Background(), 25*time.Minute)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(stop)
	ctx, stop = chromedp.NewContext(ctx)
	t.Cleanup(stop)
	return &Browser{t, ctx}
}

// Open starts a browser and returns its tab, which records the errors that its page logs: see Start.
func Open(t testing.TB) *Page {
	t.Helper()
	return newPage(t, Start(t).ctx, func() {})
}

// Visitor is somebody who uses the browser: tabs with a storage of their own.
type Visitor struct {
	b   *Browser
	ctx context.Context
}

// Visitor returns a visitor whose storage is empty.
func (b *Browser) Visitor() *Visitor {
	b.t.Helper()
	if _, err := chromedp.Run(b.ctx, chromedp.Navigate("about:blank")); err != nil { // starts it
		b.t.Fatal(err)
	}
	ctx, stop := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	b.t.Cleanup(stop)
	if _, err := chromedp.Run(ctx, chromedp.Navigate("about:blank")); err != nil {
		b.t.Fatal(err)
	}
	return &Visitor{b, ctx}
}

// Tab opens a tab.
func (v *Visitor) Tab() *Page {
	v.b.t.Helper()
	ctx, stop := chromedp.NewContext(v.ctx)
	v.b.t.Cleanup(stop)
	return newPage(v.b.t, ctx, stop)
}

func newPage(t testing.TB, ctx context.Context, end func()) *Page {
	t.Helper()
	p := &Page{Context: ctx, t: t, end: end}
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		t.Fatal(err)
	}
	call(p, network.Enable, network.EnableParams{})
	call(p, log.Enable, cdp.Empty{})
	return p
}

// Offline cuts the page and its workers off from the network, or connects them again.
func (p *Page) Offline(off bool) {
	p.t.Helper()
	p.mu.Lock()
	all := append([]context.Context{p.Context}, p.workers...)
	p.mu.Unlock()
	rules := []*network.Conditions{}
	if off {
		rules = append(rules, &network.Conditions{Offline: true, DownloadThroughput: -1, UploadThroughput: -1})
	}
	for _, ctx := range all {
		if _, err := chromedp.Call(ctx, network.EmulateNetworkConditionsByRule, network.EmulateNetworkConditionsByRuleParams{MatchedNetworkConditions: rules}); err != nil && ctx == p.Context {
			p.t.Fatal(err)
		}
	}
}

// Quota sets how many bytes an origin may store; below 0 it is the browser's own choice again.
func (p *Page) Quota(origin string, most float64) {
	p.t.Helper()
	q := storage.OverrideQuotaForOriginParams{Origin: origin}
	if most >= 0 {
		q.QuotaSize = &most
	}
	call(p, storage.OverrideQuotaForOrigin, q)
}

// Clear deletes all that an origin has stored.
func (p *Page) Clear(origin string) {
	p.t.Helper()
	call(p, storage.ClearDataForOrigin, storage.ClearDataForOriginParams{Origin: origin, StorageTypes: "all"})
}

// Close closes the tab, at once.
func (p *Page) Close() { p.end() }

func call[P, R any](p *Page, c cdp.Command[P, R], params P) {
	p.t.Helper()
	if _, err := chromedp.Call(p.Context, c, params); err != nil {
		p.t.Fatal(err)
	}
}

func do[T any](p *Page, what string, a chromedp.Action[T]) T {
	p.t.Helper()
	v, err := chromedp.Run(p.Context, a)
	if err != nil {
		p.t.Fatalf("browser: %s: %v; it says %q", what, err, p.said())
	}
	return v
}

// Value returns the value of a JavaScript expression; it awaits promises.
func Value[T any](p *Page, expression string) T {
	p.t.Helper()
	return do(p, expression, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
}

func (p *Page) listen(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(format string, args ...any) { p.trouble = append(p.trouble, fmt.Sprintf(format, args...)) }
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		var words []string
		for _, a := range e.Args {
			words = append(words, fmt.Sprint(a.Value, a.Description))
		}
		add("console.%s: %s", e.Type, strings.Join(words, " "))
	case *runtime.EventExceptionThrown:
		text := e.ExceptionDetails.Text
		if x := e.ExceptionDetails.Exception; x != nil {
			text += " " + x.Description
		}
		add("exception: %s", text)
	case *log.EventEntryAdded:
		add("log %s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *target.EventAttachedToTarget:
		if e.TargetInfo.Type == "worker" {
			go p.follow(e.TargetInfo.TargetID)
		}
	}
}

// follow records what a worker of the page logs and requests, too.
func (p *Page) follow(id target.ID) {
	ctx, stop := chromedp.NewContext(p.Context, chromedp.WithTargetID(id))
	if err := chromedp.Listen(ctx, p.listen); err != nil {
		stop() // it has ended already, as the page has
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.workers = append(p.workers, ctx)
}

// Open goes to an address.
func (p *Page) Open(url string) {
	p.t.Helper()
	do(p, url, chromedp.Navigate(url))
}

// Click clicks on the first element that a CSS selector finds.
func (p *Page) Click(selector string) {
	p.t.Helper()
	do(p, selector, chromedp.Click(chromedp.CSS(selector)))
}

// Until waits until a JavaScript expression is true. While the page loads, the expression may
// fail because elements are missing; only a failure at the end is an error.
func (p *Page) Until(expression string) {
	p.t.Helper()
	Until(p.t, func() error {
		ok, err := chromedp.Run(p.Context, chromedp.Evaluate[bool]("!!("+expression+")"))
		if err == nil && ok {
			return nil
		}
		if p.Context.Err() != nil {
			p.t.Fatalf("%s: %v", expression, err)
		}
		return later(func() string {
			return fmt.Sprintf("never true: %s (%v); the page reads\n%s\nand says %q", expression, err, Value[string](p, "document.body.innerText"), p.said())
		})
	})
}

// later is an error whose text is asked for when it is shown.
type later func() string

func (l later) Error() string { return l() }

// Until tries f until it returns no error. What browsers and other processes have done shows in no event.
func Until(t testing.TB, f func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// Look sets the viewport, in CSS pixels, whether it is a phone's, and the colour scheme that
// the user prefers.
func (p *Page) Look(width, height int64, phone, dark bool) {
	p.t.Helper()
	call(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: phone})
	call(p, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: map[bool]string{true: "dark", false: "light"}[dark]}}})
}

// Audit returns what is wrong with the page as it is now: names of controls, contrast below
// 4.5, order of headings, language, title, size of targets, width. It writes the whole page
// to name.png in the directory that RIFFLE_SHOTS names, if it is set, for people to look at.
func (p *Page) Audit(name string) []string {
	p.t.Helper()
	if dir := os.Getenv("RIFFLE_SHOTS"); dir != "" {
		time.Sleep(400 * time.Millisecond) // until charts are drawn
		png := do(p, name, chromedp.FullScreenshot(100))
		if err := os.WriteFile(dir+"/"+name+".png", png, 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	return Value[[]string](p, audit)
}

func (p *Page) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.trouble)
}

// Trouble returns the errors that the page has logged so far, and its requests to addresses
// of other origins.
func (p *Page) Trouble(origin string) []string {
	out := p.said()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, url := range p.requests {
		if !strings.HasPrefix(url, strings.TrimSuffix(origin, "/")+"/") && !strings.HasPrefix(url, "data:") {
			out = append(out, "asks for "+url)
		}
	}
	return out
}

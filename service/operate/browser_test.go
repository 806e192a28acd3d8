package operate

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// ended waits for the task's end, and checks how many reports were summed.
func (w *browserWorld) ended(rounds, reports int64) {
	w.t.Helper()
	w.until("the task ends", func() bool { return w.status().State != "running" })
	if s := w.status(); s.State != "done" || s.Released != rounds || s.Reports != reports {
		w.t.Errorf("%s (%s): %d reports in %d rounds, want %d in %d", s.State, s.Why, s.Reports, s.Released, reports, rounds)
	}
}

// finished waits until a page's client has ended, and returns how.
func finished(p *browsertest.Page, storage string) string {
	p.Until(fmt.Sprintf("clients[%q].ended", storage))
	return browsertest.Value[string](p, fmt.Sprintf("clients[%q].ended", storage))
}

// Twenty tabs of five visitors take part beside native clients, over the services' own TLS.
func TestTabsBesideNativeClients(t *testing.T) {
	const natives, visitors, each, rounds = 5, 5, 4, 3
	w := newBrowserWorld(t, natives)
	var pages []*browsertest.Page
	for range visitors {
		v := w.chromium.Visitor()
		for i := range each {
			p := w.tab(v, "/")
			w.enrol(p, fmt.Sprint("client-", i))
			pages = append(pages, p)
		}
	}
	w.begin(natives+len(pages), rounds, 600, "")
	for i, p := range pages {
		if why := w.start(p, fmt.Sprint("client-", i%each), w.options(w.direct, nil), i); why != "" {
			t.Fatal(why)
		}
	}
	w.ended(rounds, rounds*int64(natives+len(pages)))
	for i, p := range pages {
		storage := fmt.Sprint("client-", i%each)
		if how, sent := finished(p, storage), events(p, storage, "sent"); how != "done" || len(sent) != rounds {
			t.Errorf("tab %d: %s, sent %v", i, how, sent)
		}
	}
	w.silent(false, pages...)
}

// Tabs send nothing of their data: not in a session, a token, a report, an address or a header, with
// tokens and with a relay as well.
func TestTabsSendNoData(t *testing.T) {
	w := newBrowserWorld(t, 2)
	var pages []*browsertest.Page
	for range 3 {
		p := w.tab(w.chromium.Visitor(), "/")
		w.enrol(p, "secret-storage")
		pages = append(pages, p)
	}
	w.begin(5, 3, 600, "tokens: true\n")
	for i, p := range pages {
		o := w.options(w.ways, func(o, policy map[string]any) {
			policy["requireTokens"] = true
			if i == 0 {
				o["relay"] = w.ways[RoleRelay]
			}
		})
		if why := w.start(p, "secret-storage", o, i); why != "" {
			t.Fatal(why)
		}
	}
	w.ended(3, 15)
	for i, p := range pages {
		if how := finished(p, "secret-storage"); how != "done" {
			t.Errorf("tab %d: %s", i, how)
		}
	}
	if n := len(w.posts("/v1/report")); n != 6 {
		t.Errorf("%d reports were posted, want 6", n)
	}
	if len(w.posts("/v1/tokens")) != 3 || len(w.posts("/v1/relay")) < 4 {
		t.Errorf("%d requests for tokens, %d through the relay", len(w.posts("/v1/tokens")), len(w.posts("/v1/relay")))
	}
	w.noData(len(pages), "secret-storage")
	w.silent(false, pages...)
}

// A policy that does not allow the task keeps the client from asking for anything but what is public.
func TestTabRefusesByPolicy(t *testing.T) {
	w := newBrowserWorld(t, 2)
	p := w.tab(w.chromium.Visitor(), "/")
	w.enrol(p, "client")
	w.begin(3, 1, 20, "")
	if why := w.start(p, "client", w.options(w.ways, func(_, policy map[string]any) { policy["maxEps0"] = 1 }), 0); why != "" {
		t.Fatal(why)
	}
	w.ended(1, 2)
	how := finished(p, "client")
	declined := events(p, "client", "declined")
	if len(declined) == 0 || declined[0]["reason"] != "policy" || !strings.Contains(fmt.Sprint(declined[0]["message"]), "eps0") {
		t.Errorf("the page is told %v; the client has ended: %s", declined, how)
	}
	if n := len(w.posts("/v1/session")) + len(w.posts("/v1/report")); n != 0 || browsertest.Value[int](p, "clients.client.asked") != 0 {
		t.Errorf("%d requests of a client that refuses", n)
	}
	w.silent(false, p)
}

// A tab that is closed in the middle of a round goes on when it is opened again: it sends the same bytes,
// also if the service had them already, and one report counts.
func TestTabClosedInARound(t *testing.T) {
	w := newBrowserWorld(t, 2)
	v, late := w.chromium.Visitor(), w.tab(w.chromium.Visitor(), "/")
	p := w.tab(v, "/")
	w.enrol(p, "client")
	w.enrol(late, "client")
	w.begin(4, 2, 600, "")
	report := func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Path == "/v1/report" }
	lose := func(out http.ResponseWriter, r *http.Request, _ []byte) bool {
		if report(r) {
			panic(http.ErrAbortHandler)
		}
		return false
	}
	w.intercept(lose, nil)
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	w.until("a report is on its way", func() bool { return len(w.posts("/v1/report")) > 0 })
	w.silent(true, p)
	p.Close()
	w.pause(time.Second)
	lost := len(w.posts("/v1/report"))

	// The service takes it, and the answer is lost.
	taken := 0
	w.intercept(nil, func(r *http.Request, status int) bool {
		if report(r) && status == http.StatusNoContent {
			taken++
			return false
		}
		return true
	})
	p = w.tab(v, "/")
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	w.until("the report is taken", func() bool { w.mu.Lock(); defer w.mu.Unlock(); return taken > 0 })
	p.Close()
	w.pause(time.Second)
	w.intercept(nil, nil)
	before := len(w.posts("/v1/report"))
	p = w.tab(v, "/")
	if why := w.start(p, "client", w.options(w.ways, nil), 1); why != "" { // other data, which make no other report
		t.Fatal(why)
	}
	p.Until(`clients.client.events.some(e => e.type === "sent")`)
	posts := w.posts("/v1/report")
	if len(posts) <= before || lost < 1 || before <= lost {
		t.Errorf("%d posts before the tab was closed, %d before it was closed again, %d at the end", lost, before, len(posts))
	}
	for i, b := range posts {
		if !bytes.Equal(b, posts[0]) {
			t.Errorf("post %d has other bytes", i)
		}
	}
	if n := browsertest.Value[int](p, "clients.client.asked"); n != 0 {
		t.Errorf("the page was asked for %d gradients more of the same round", n)
	}
	if why := w.start(late, "client", w.options(w.direct, nil), 2); why != "" {
		t.Fatal(why)
	}
	w.ended(2, 8)
	if how, sent := finished(p, "client"), events(p, "client", "sent"); how != "done" || len(sent) != 2 {
		t.Errorf("%s; sent %v", how, sent)
	}
	spent := events(p, "client", "spent")
	if len(spent) == 0 || spent[len(spent)-1]["messages"] != 2. {
		t.Errorf("two rounds are charged as %v", spent)
	}
	w.noData(3)
	w.silent(false, p, late)
}

// Who clears the storage has lost the client, with what it has spent: nothing goes on, and no client with
// a fresh budget takes its place.
func TestTabWhoseStorageIsCleared(t *testing.T) {
	w := newBrowserWorld(t, 2)
	v := w.chromium.Visitor()
	p := w.tab(v, "/")
	w.enrol(p, "client")
	line := browsertest.Value[string](p, `line("client")`)
	w.begin(3, 3, 25, "")
	goOn := w.holdSecondRound()
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	p.Until(`clients.client.events.some(e => e.type === "sent")`)
	p.Clear(w.origin)
	sent := len(w.posts("/v1/report"))
	goOn()
	p.Until(`clients.client.ended || clients.client.events.some(e => e.round === 2 && /cannot (write|read)/.test(e.message))`)
	w.until("the second round ends", func() bool { return w.status().Released == 2 })
	if n := len(w.posts("/v1/report")); n != sent {
		t.Errorf("%d reports after the storage was cleared", n-sent)
	}
	p.Close()
	p = w.tab(v, "/")
	if why := w.start(p, "client", w.options(w.ways, nil), 0); !strings.HasPrefix(why, "no-client|") {
		t.Errorf("after the storage was cleared the client starts: %q", why)
	}
	again := browsertest.Value[string](p, `make("client")`)
	if again == line {
		t.Error("the same client is there again")
	}
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	w.ended(3, 7) // the natives' six, and one
	if n := len(w.posts("/v1/report")); n != sent {
		t.Errorf("a client that nobody has enrolled posts %d reports", n-sent)
	}
	if sent := events(p, "client", "sent"); len(sent) > 0 {
		t.Errorf("it says that it has sent %v", sent)
	}
}

// A browser whose profile was restored from a copy has forgotten what it spent. The shuffler tells it how
// many messages it has taken, so the client reports no more.
func TestTabRestoredFromACopy(t *testing.T) {
	w := newBrowserWorld(t, 2)
	p := w.tab(w.chromium.Visitor(), "/")
	w.enrol(p, "client")
	const open = `new Promise((done, failed) => { const q = indexedDB.open("riffle:client"); q.onsuccess = () => done(q.result); q.onerror = failed })`
	const ended = `new Promise((done, failed) => { t.oncomplete = () => { db.close(); done(true) }; t.onabort = failed })`
	if !browsertest.Value[bool](p, `(async () => { const db = await `+open+`, t = db.transaction("pieces"), s = t.objectStore("pieces"), keys = s.getAllKeys(), all = s.getAll();
		await `+ended+`; window.copy = keys.result.map((k, i) => [k, all.result[i]]); return window.copy.length > 0 })()`) {
		t.Fatal("nothing is stored")
	}
	w.begin(3, 3, 20, "")
	goOn := w.holdSecondRound()
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	p.Until(`clients.client.events.some(e => e.type === "sent")`)
	w.until("the first round ends", func() bool { return w.status().Released >= 1 })
	browsertest.Value[bool](p, `clients.client.client.stop().then(() => true)`)
	sent := len(w.posts("/v1/report"))
	goOn()
	browsertest.Value[bool](p, `(async () => { const db = await `+open+`, t = db.transaction("pieces", "readwrite"), s = t.objectStore("pieces");
		s.clear(); for (const [k, v] of copy) s.put(v, k); return `+ended+` })()`)
	why := w.start(p, "client", w.options(w.ways, nil), 0)
	w.ended(3, 7)
	if n := len(w.posts("/v1/report")); n != sent {
		t.Errorf("a client that has forgotten its charge posts %d reports", n-sent)
	}
	if told := browsertest.Value[string](p, "JSON.stringify(clients.client)"); !strings.Contains(why+told, `"ledger"`) || !strings.Contains(told, "has taken 1 message") {
		t.Errorf("the page is told %q, %s", why, told)
	}
	w.silent(false, p)
}

// A client that cannot store its charge does not report, and says so. When there is room again it does.
func TestTabWhoseStorageIsFull(t *testing.T) {
	w := newBrowserWorld(t, 2)
	v := w.chromium.Visitor()
	p := w.tab(v, "/")
	p.Quota(w.origin, 1)
	if why := browsertest.Value[string](p, `make("client").then(() => "", e => e.message)`); !strings.Contains(why, "storage is full") {
		t.Errorf("a client without room is made: %q", why)
	}
	if line := browsertest.Value[bool](p, `line("client").then(l => l !== null && l !== undefined, () => false)`); line {
		t.Error("half a client was stored")
	}
	p.Quota(w.origin, -1)
	w.enrol(p, "client")
	p.Quota(w.origin, 1)
	w.pause(35 * time.Second) // the browser remembers for half a minute how much room there was
	w.begin(3, 2, 25, "")
	why := w.start(p, "client", w.options(w.ways, nil), 0)
	w.until("the first round ends", func() bool { return w.status().Released >= 1 })
	if n := len(w.posts("/v1/report")); n != 0 {
		t.Errorf("%d reports without a charge", n)
	}
	told := browsertest.Value[string](p, "JSON.stringify(clients.client)")
	if !strings.Contains(why+told, "storage is full") {
		t.Errorf("the page is told %q, %s", why, told)
	}
	w.silent(false, p)
	p.Quota(w.origin, -1)
	p.Close() // as somebody would who has read that
	p = w.tab(v, "/")
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	w.ended(2, 5)
	if sent := events(p, "client", "sent"); len(sent) != 1 || len(w.posts("/v1/report")) != 1 {
		t.Errorf("sent %v, in %d requests", sent, len(w.posts("/v1/report")))
	}
}

// A tab that is offline sends its report when it is connected again, once.
func TestTabOffline(t *testing.T) {
	w := newBrowserWorld(t, 2)
	p := w.tab(w.chromium.Visitor(), "/")
	w.enrol(p, "client")
	w.begin(3, 2, 600, "")
	off := make(chan struct{}, 1)
	w.intercept(func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
		if r.URL.Path == "/v1/session" { // the report comes next
			select {
			case off <- struct{}{}:
				p.Offline(true)
			default:
			}
		}
		return false
	}, nil)
	if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
		t.Fatal(why)
	}
	p.Until(`clients.client.events.some(e => e.type === "retrying")`)
	if n := len(w.posts("/v1/report")); n != 0 {
		t.Errorf("%d reports while offline", n)
	}
	p.Offline(false)
	w.ended(2, 6)
	if how, sent := finished(p, "client"), events(p, "client", "sent"); how != "done" || len(sent) != 2 {
		t.Errorf("%s; sent %v", how, sent)
	}
	w.silent(true, p)
}

// A tab whose clock is an hour off takes no part, says so, and spends nothing.
func TestTabWithAWrongClock(t *testing.T) {
	w := newBrowserWorld(t, 2)
	pages := map[string]*browsertest.Page{}
	for _, path := range []string{"/late", "/early"} {
		pages[path] = w.tab(w.chromium.Visitor(), path)
		w.enrol(pages[path], "client")
	}
	w.begin(4, 1, 20, "")
	for path, p := range pages {
		if why := w.start(p, "client", w.options(w.ways, nil), 0); why != "" {
			t.Errorf("%s: %s", path, why)
		}
	}
	w.ended(1, 2)
	if n := len(w.posts("/v1/report")); n != 0 {
		t.Errorf("%d reports", n)
	}
	for path, p := range pages {
		how, declined, spent := finished(p, "client"), events(p, "client", "declined"), events(p, "client", "spent")
		if len(declined) == 0 || declined[0]["reason"] != "clock" && declined[0]["reason"] != "enrolment" {
			t.Errorf("%s: the page is told %v; it ends as %s", path, declined, how)
		}
		for _, s := range spent {
			if s["messages"] != 0. {
				t.Errorf("%s: spent %v", path, s)
			}
		}
		w.silent(false, p)
	}
}

// A page of another origin, as Chromium runs it: it reads nothing, and the requests that a browser sends
// without asking first are refused as the others are.
func TestStrangersPageInABrowser(t *testing.T) {
	w := newBrowserWorld(t, 2)
	w.enrolled(2)
	const ask = `async (base, role) => {
		const out = {}, path = {shuffler: "/v1/enrolment", coordinator: "/v1/tasks", registrar: "/v1/statement", relay: "/v1/enrolment"}[role];
		const post = {shuffler: "/v1/report", coordinator: "/v1/tasks", registrar: "/v1/tokens", relay: "/v1/relay"}[role];
		const say = async f => { try { const r = await f(); return r.type === "opaque" ? "opaque" : r.status + " " + (await r.arrayBuffer()).byteLength } catch (e) { return e.name } };
		out.get = await say(() => fetch(base + path));
		out.post = await say(() => fetch(base + post, {method: "POST", headers: {"Content-Type": "application/octet-stream"}, body: "x"}));
		out.simple = await say(() => fetch(base + post, {method: "POST", headers: {"Content-Type": "text/plain"}, body: "x"}));
		out.blind = await say(() => fetch(base + post, {method: "POST", mode: "no-cors", body: "x"}));
		out.cookies = await say(() => fetch(base + path, {credentials: "include"}));
		out.method = await say(() => fetch(base + post, {method: "PUT", body: "x"}));
		out.header = await say(() => fetch(base + path, {headers: {"X-Other": "1"}}));
		out.etag = await fetch(base + path).then(r => !!r.headers.get("etag"), () => false);
		return out;
	}`
	listed := w.tab(w.chromium.Visitor(), "/")
	stranger := w.chromium.Visitor().Tab()
	stranger.Open(strings.Replace(w.origin, "127.0.0.1", "localhost", 1) + "/") // the same server and port
	stranger.Until("window.ready")
	for role, base := range w.direct {
		run := fmt.Sprintf("(%s)(%q, %q)", ask, base, role)
		got := browsertest.Value[map[string]any](listed, run)
		// With cookies a page may not read an answer that does not say so, and of methods and headers it may send those that clients do.
		// The shuffler's roster and the coordinator's tasks have tags.
		want := map[string]any{"cookies": "TypeError", "method": "TypeError", "header": "TypeError", "blind": "opaque",
			"etag": role == RoleShuffler || role == RoleCoordinator}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s, the listed page: %s is %v, want %v", role, name, got[name], value)
			}
		}
		for _, name := range []string{"get", "post", "simple"} {
			if text := fmt.Sprint(got[name]); !strings.HasPrefix(text, "200 ") && !strings.HasPrefix(text, "4") {
				t.Errorf("%s, the listed page: %s is %v", role, name, got[name])
			}
		}
		for name, value := range browsertest.Value[map[string]any](stranger, run) {
			if want := map[string]any{"blind": "opaque", "etag": false}[name]; value != want && (want != nil || value != "TypeError") {
				t.Errorf("%s, a stranger's page: %s is %v", role, name, value)
			}
		}
	}
}

package web_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/service/operate"
)

// copyScript defines copied(), which returns all of a client's database, and put(copy), which puts it
// back, as who restores a browser's profile does.
const copyScript = `(() => {
	const open = () => new Promise((resolve, reject) => { const r = indexedDB.open("riffle:client"); r.onsuccess = () => resolve(r.result); r.onerror = reject; });
	const got = r => new Promise((resolve, reject) => { r.onsuccess = () => resolve(r.result); r.onerror = () => reject(r.error); });
	window.copied = async () => {
		const db = await open(), s = db.transaction("pieces").objectStore("pieces");
		const all = [await got(s.getAllKeys()), await got(s.getAll())];
		db.close();
		return all;
	};
	window.put = async ([keys, values]) => {
		const db = await open(), t = db.transaction("pieces", "readwrite"), s = t.objectStore("pieces");
		s.clear();
		keys.forEach((k, i) => s.put(values[i], k));
		await new Promise((resolve, reject) => { t.oncomplete = resolve; t.onabort = reject; });
		db.close();
	};
	return true;
})()`

// A store that is restored from an old copy forgets what was spent. The shuffler tells how much it has
// taken, and the client stops. A ledger in which a line is missing is refused before that.
func TestARestoredStoreStops(t *testing.T) {
	w := newWorld(t, 3, site(t))
	tab := browsertest.Start(t, w.pins...).Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	w.enrol(browsertest.Value[string](tab, "riffle.newCredential()"))
	browsertest.Value[bool](tab, copyScript)
	w.serve(200, "trust: shuffle\neps0: 2\nparticipation: all\n")
	w.run(operate.RoleClient, "clients-0")
	join := `riffle.join(` + w.options(`gradient: ({theta}) => theta, onEvent: e => events.push(e)`) + `)`
	// sent waits until so many reports are sent, and the next round has begun: the shuffler has counted them.
	sent := func(reports int) {
		browsertest.Value[bool](tab, `(async () => { events.length = 0; window.part = await `+join+`; return true; })()`)
		tab.Until(fmt.Sprintf(`events.some(e => e.type === "round" && events.filter(f => f.type === "sent" && f.round < e.round).length >= %d)`, reports))
		browsertest.Value[bool](tab, `part.stop().then(() => true)`)
	}
	sent(1)
	browsertest.Value[bool](tab, `copied().then(c => { window.old = c; return true; })`)
	// With the right ledger it goes on. The first report may be one that was charged before.
	sent(2)
	browsertest.Value[bool](tab, `copied().then(c => { window.newest = c; return put(old); }).then(() => true)`)
	browsertest.Value[bool](tab, `(async () => { events.length = 0; window.part = await `+join+`; return true; })()`)
	tab.Until(`events.some(e => e.type === "declined" || e.type === "sent" || e.type === "ended")`)
	if all := browsertest.Value[string](tab, `events.map(e => e.type + " " + (e.message ?? "")).join(", ")`); !strings.Contains(all, "declined") {
		t.Fatalf("a restored ledger's client: %s", all)
	}
	why := browsertest.Value[said](tab, `events.find(e => e.type === "declined")`)
	if why.Reason != "ledger" || !strings.Contains(why.Message, "the shuffler has taken") {
		t.Errorf("%+v", why)
	}
	if browsertest.Value[bool](tab, `part.stop().then(() => events.some(e => e.type === "sent"))`) {
		t.Error("a client reports after its ledger was restored")
	}
	// The ledger's pieces: its header, then a line for each decision.
	if why := browsertest.Value[string](tab, `(async () => {
		const [keys, values] = newest, i = keys.findIndex(k => k[0] === "ledger" && k[1] === 1);
		await put([keys.toSpliced(i, 1), values.toSpliced(i, 1)]);
		return `+join+`.then(() => "joined", e => e.message);
	})()`); !strings.Contains(why, "the ledger is damaged") {
		t.Errorf("a ledger without a line: %s", why)
	}
	// Without the credential there is no client, whatever the ledger says; without the ledger neither.
	for file, want := range map[string]string{"credential": "no-client", "ledger": "there is no client's ledger"} {
		if why := browsertest.Value[string](tab, `(async () => {
			const [keys, values] = newest, left = keys.map((k, i) => i).filter(i => keys[i][0] !== "`+file+`");
			await put([left.map(i => keys[i]), left.map(i => values[i])]);
			const made = await riffle.newCredential().then(() => "made", () => "");
			return made + await `+join+`.then(() => "joined", e => e.reason ?? e.message);
		})()`); !strings.Contains(why, want) || strings.HasPrefix(why, "made") {
			t.Errorf("without its %s: %s", file, why)
		}
	}
}

// A page that keeps secrets and calls one new that was used gives its visitor no fresh budget while the
// shuffler counts.
func TestAUsedCredentialIsNotNew(t *testing.T) {
	w := newWorld(t, 3, site(t))
	tab := browsertest.Start(t, w.pins...).Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	w.enrol(browsertest.Value[string](tab, "riffle.newCredential()"))
	browsertest.Value[bool](tab, copyScript)
	w.serve(200, "trust: shuffle\neps0: 2\nparticipation: all\n")
	w.run(operate.RoleClient, "clients-0")
	join := `riffle.join(` + w.options(`data: {model: "linear", loss: "logistic", width: 1, inputs: [1, 0], targets: [0, 1]}, onEvent: e => events.push(e), credential`) + `)`
	browsertest.Value[bool](tab, `(async () => { let credential; window.part = await `+join+`; return true; })()`)
	// The shuffler counts a round's reports before it ends, so before the next one opens.
	tab.Until(`events.some(e => e.type === "round" && events.some(f => f.type === "sent" && f.round < e.round))`)
	browsertest.Value[bool](tab, `(async () => {
		await part.stop();
		const [keys, values] = await copied();
		const credential = {secret: new TextDecoder().decode(values[keys.findIndex(k => k[0] === "credential")]), new: true};
		await new Promise((resolve, reject) => { const r = indexedDB.deleteDatabase("riffle:client"); r.onsuccess = resolve; r.onerror = reject; });
		events.length = 0;
		window.part = await `+join+`;
		return true;
	})()`)
	tab.Until(`events.some(e => e.type === "declined" || e.type === "sent")`)
	if why := browsertest.Value[said](tab, `events.find(e => e.type === "declined") ?? {}`); why.Reason != "ledger" {
		t.Errorf("events %+v", browsertest.Value[[]said](tab, "events"))
	}
}

// A page that cannot load the program is told so.
func TestMissingProgram(t *testing.T) {
	w := newWorld(t, 2, without(site(t), "/riffle/client.wasm.gz"))
	tab := browsertest.Start(t, w.pins...).Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	for _, call := range []string{`riffle.newCredential()`, `riffle.join(` + w.options(`row: {}`) + `)`} {
		if why := browsertest.Value[string](tab, call+`.then(() => "", e => e.message)`); why != "client.wasm.gz: status 404" {
			t.Errorf("%.30s: %q", call, why)
		}
	}
	w = newWorld(t, 2, without(site(t), "/riffle/worker.js"))
	tab = browsertest.Start(t, w.pins...).Visitor().Tab()
	tab.Open(w.site.URL)
	tab.Until("window.riffle")
	if why := browsertest.Value[string](tab, `riffle.publicLine().then(() => "", e => e.message)`); !strings.HasPrefix(why, "the client's Worker cannot run") {
		t.Errorf("%q", why)
	}
}

// without leaves out a path.
func without(h http.Handler, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			http.NotFound(w, r)
			return
		}
		h.ServeHTTP(w, r)
	})
}

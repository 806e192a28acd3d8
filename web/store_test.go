package web_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/riffle-dp/riffle/internal/browsertest"
)

// storeScript is the contract of client.Store, on IndexedDB. It returns what does not hold.
const storeScript = `(async () => {
	const {Store} = await import("./riffle/store.js");
	const wrong = [], text = new TextEncoder(), read = new TextDecoder();
	const s = new Store("contract");
	const is = async (what, got, want) => { got = await got; if (got !== want) wrong.push(what + ": " + got + ", want " + want); };
	const fails = async (what, name, f) => { try { await f(); wrong.push(what + " did not fail"); } catch (e) { if (e.name !== name) wrong.push(what + ": " + e.name + " " + e.message); } };
	const of = async name => read.decode(await s.read(name));
	await fails("read of nothing", "NotFoundError", () => s.read("a"));
	await fails("append to nothing", "NotFoundError", () => s.append("a", text.encode("x")));
	await fails("removal of nothing", "NotFoundError", () => s.remove("a"));
	await s.write("a", text.encode(""));
	await is("an empty file", of("a"), "");
	await s.write("a", text.encode("first, and longer"));
	await s.write("a", text.encode("second"));
	await is("a file replaced", of("a"), "second");
	let want = "second";
	for (let i = 0; i < 600; i++) { await s.append("a", text.encode(i + " ")); want += i + " "; }
	await is("a file with more", of("a"), want);
	await s.cut("a", 8);
	await is("a file cut", of("a"), want.slice(0, 8));
	await s.zero("a", 1, 3);
	await is("bytes overwritten", of("a"), "s\0\0ond0 ");
	await s.append("a", text.encode("!"));
	await is("more after that", of("a"), "s\0\0ond0 !");
	// Names that begin like others, and directories.
	for (const name of ["outbox/1", "outbox/2", "outbox", "outbox-3", "outboxes/4", "outbo"]) await s.write(name, text.encode(name));
	await s.append("outbox/1", text.encode("+"));
	await is("names of a directory", s.list("outbox").then(n => n.join()), "1,2");
	await is("names of no directory", s.list("receipts").then(n => n.length), 0);
	await s.remove("outbox/1");
	await fails("read of what was removed", "NotFoundError", () => s.read("outbox/1"));
	await is("a file beside it", of("outbox"), "outbox");
	// Two files are made together or not at all.
	await fails("creation over a file", "Error", () => s.create("new", text.encode("1"), "a", text.encode("2")));
	await fails("half a creation", "NotFoundError", () => s.read("new"));
	await s.create("one", text.encode("1"), "two", text.encode("2"));
	await is("two files", Promise.all([of("one"), of("two")]).then(x => x.join()), "1,2");
	// A change that fails leaves all as it was.
	await fails("a content that cannot be stored", "DataCloneError", () => s.write("one", () => {}));
	await is("a file after a failed change", of("one"), "1");
	// Changes at the same time.
	await Promise.all([1, 2, 3, 4, 5, 6, 7, 8].map(i => s.append("two", text.encode(i))));
	await is("appended at the same time", of("two").then(x => [...x].sort().join("")), "122345678".split("").sort().join(""));
	// The lock is one's, and is given back.
	const again = new Store("contract");
	const release = await s.lock();
	await fails("a second lock", "LockedError", () => again.lock());
	release();
	(await again.lock())();
	// What was written is there for the next one.
	await is("read by another", again.read("one").then(b => read.decode(b)), "1");
	// A store that was cleared while it was open fails from then on, and makes no new one.
	await new Promise((resolve, reject) => { const r = indexedDB.deleteDatabase("riffle:contract"); r.onsuccess = resolve; r.onerror = reject; });
	for (const f of [() => s.read("one"), () => s.write("one", text.encode("x")), () => s.append("two", text.encode("x"))]) await fails("a cleared store", "InvalidStateError", f);
	await is("databases", indexedDB.databases().then(l => l.filter(d => d.name === "riffle:contract").length), 0);
	return wrong;
})()`

func TestStoreInTheBrowser(t *testing.T) {
	s := httptest.NewServer(site(t))
	t.Cleanup(s.Close)
	tab := browsertest.Start(t).Visitor().Tab()
	tab.Open(s.URL)
	tab.Until("window.riffle")
	for _, wrong := range browsertest.Value[[]string](tab, storeScript) {
		t.Error(wrong)
	}
	if trouble := tab.Trouble(s.URL); len(trouble) > 0 {
		t.Errorf("the page says %q", trouble)
	}
}

// A credential counts with its ledger only, and a store has one client.
func TestCredentialsGoWithTheirLedger(t *testing.T) {
	s := httptest.NewServer(site(t))
	t.Cleanup(s.Close)
	tab := browsertest.Start(t).Visitor().Tab()
	tab.Open(s.URL)
	tab.Until("window.riffle")
	const script = `(async () => {
		const key = c => "ed25519:" + btoa(String.fromCharCode(...new Uint8Array(32).fill(c)));
		const secret = c => "riffle-client-1 " + btoa(String.fromCharCode(...new Uint8Array(32).fill(c)));
		const options = {coordinator: "https://127.0.0.1:1", shuffler: "https://127.0.0.1:1", keys: {coordinator: key(1), shuffler: key(2)}, row: {},
			policy: {maxEps0: 1, maxEpsilon: 1, delta: 1e-6, minReports: 2}};
		const said = [];
		const attempt = async (what, more) => {
			try {
				const part = await riffle.join({...options, ...more});
				await part.stop();
				said.push(what + ": joined");
			} catch (e) {
				said.push(what + ": " + (e.reason ?? e.message));
			}
		};
		await attempt("no client", {});
		await attempt("a used credential without its ledger", {credential: secret(3)});
		await attempt("a secret that is none", {credential: {secret: "x", new: true}});
		await attempt("a wrong option beside a new one", {credential: {secret: secret(3), new: true}, keys: {coordinator: "x", shuffler: key(2)}});
		await attempt("nothing was stored by these", {});
		await attempt("a new one", {credential: {secret: secret(3), new: true}});
		await attempt("the store's", {});
		await attempt("the same again", {credential: secret(3)});
		await attempt("the same as new again", {credential: {secret: secret(3), new: true}});
		await attempt("another one as new", {credential: {secret: secret(4), new: true}});
		try { await riffle.newCredential(); said.push("made twice"); } catch (e) { said.push("a second: " + e.reason); }
		const line = await riffle.newCredential({storage: "other"});
		said.push("another storage: " + (line !== await riffle.publicLine() && line === await riffle.publicLine({storage: "other"})));
		await attempt("another storage's", {storage: "other"});
		// Two tabs: the second gets nothing, and the first goes on.
		const first = await riffle.join(options);
		await attempt("a second tab", {});
		await first.stop();
		await attempt("after the first", {});
		for (const wrong of [{policy: {...options.policy, delta: 0}}, {shuffler: "http://127.0.0.1:1"}, {polcy: {}}, {row: undefined}, {tasks: ["ab"]}, {row: {a: [1]}},
			...[{}, {width: 2}, {model: "tree"}, {targets: [0, 1, 1]}, {inputs: [1, NaN]}, {targets: [0, 2], model: "softmax", classes: 2, loss: undefined}, {loss: "zero"}, {classes: 2}]
				.map(d => ({data: {model: "linear", loss: "logistic", width: 1, inputs: [1, 2], targets: [0, 1], ...d}}))]) await attempt(Object.keys(wrong)[0], wrong);
		return said;
	})()`
	got := browsertest.Value[[]string](tab, script)
	want := []string{
		"no client: no-client",
		"a used credential without its ledger: no-ledger",
		`a secret that is none: client: no key: want a line "riffle-client-1" and the key`,
		`a wrong option beside a new one: client: options: keys: coordinator: want "ed25519:" and 32 bytes in base64`,
		"nothing was stored by these: no-client",
		"a new one: joined", "the store's: joined", "the same again: joined", "the same as new again: joined",
		"another one as new: client-exists", "a second: client-exists", "another storage: true", "another storage's: joined",
		"a second tab: locked", "after the first: joined",
		"policy: client: policy: dp: delta = 0 must lie strictly between 0 and 1",
		"shuffler: client: shuffler: want an https:// address",
		`polcy: client: options: json: unknown field "polcy"`,
		"row: client: options: gradient, data or row is required",
		"tasks: client: options: task \"ab\" must be 64 hex digits",
		"row: client: options: a cell is a string or a finite number",
		"data: joined",
		"data: client: options: data: 2 targets for 2 inputs in rows of 2",
		`data: client: options: data: model "tree" must be softmax or linear`,
		"data: client: options: data: 3 targets for 2 inputs in rows of 1",
		"data: client: options: data: an input or a target is no finite number",
		"data: client: options: data: a target is no class from 0 to 1",
		`data: client: options: data: model: loss = "zero" must be hinge, logistic, absolute or pinball:τ`,
		"data: client: options: data: classes are for the model softmax",
	}
	if !slices.Equal(got, want) {
		for i := range max(len(got), len(want)) {
			switch {
			case i >= len(got):
				t.Errorf("missing %q", want[i])
			case i >= len(want) || got[i] != want[i]:
				t.Errorf("%q, want %q", got[i], append(want, make([]string, len(got))...)[i])
			}
		}
	}
}

package plan

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
)

func (b *tab) press(keys string) { b.t.Helper(); do(b, chromedp.KeyEvent(keys)) }

// shown is what the page says.
type shown struct {
	Upper, Command, Status, Problem, Hash string
	Eps                                   string // of the number shown, all digits
}

func (b *tab) shown() shown {
	b.t.Helper()
	return value[shown](b, `(() => {
		const text = id => document.getElementById(id).textContent;
		return {Upper: text("upper"), Command: text("command"), Status: text("status"), Problem: text("problem"), Hash: location.hash,
			Eps: document.getElementById("upper").dataset.eps ?? ""};
	})()`)
}

// buildRiffle returns a function that runs a command line of the page.
func buildRiffle(t *testing.T) func(command string) account.Document {
	t.Helper()
	program := filepath.Join(t.TempDir(), "riffle")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/riffle").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return func(command string) account.Document {
		t.Helper()
		words := strings.Fields(command)
		if len(words) < 2 || words[0] != "riffle" {
			t.Fatalf("command %q", command)
		}
		out, err := exec.Command(program, append(words[1:], "--json", "--bounds", "best")...).Output()
		if err != nil {
			t.Fatalf("%s: %v", command, err)
		}
		var d account.Document
		if err := json.Unmarshal(out, &d); err != nil {
			t.Fatal(err)
		}
		return d
	}
}

// matches compares the number shown with that of the command shown.
func (b *tab) matches(what string, riffle func(string) account.Document) {
	b.t.Helper()
	s := b.shown()
	d := riffle(s.Command)
	eps, err := strconv.ParseFloat(s.Eps, 64)
	if err != nil || d.Upper == nil {
		b.t.Errorf("%s: %q shows %q (%s)", what, s.Command, s.Upper, s.Problem)
		return
	}
	want := float64(*d.Upper.Eps)
	if math.Abs(eps-want) > 1e-9*want {
		b.t.Errorf("%s: %q: the page has %v, riffle %v", what, s.Command, eps, want)
	}
	text, err := strconv.ParseFloat(strings.TrimPrefix(s.Upper, "ε ≤ "), 64)
	if err != nil || text < eps || text > eps*1.001 {
		b.t.Errorf("%s: %v is shown as %q", what, eps, s.Upper)
	}
}

func TestEverySliderAgainstRiffle(t *testing.T) {
	b := browser(t, 1280, 900, false)
	riffle := buildRiffle(t)
	moved := map[string]bool{}
	for _, c := range []struct{ hash, fields string }{
		{"#participation=sampled&randomizer=generic&eps0=2&n=1e4&k=200&rounds=50&delta=1e-6", "eps0 n k rounds delta"},
		{"#participation=check-in&randomizer=krr&symbols=5&eps0=1&n=500&gamma=0.1&rounds=20&delta=1e-5", "symbols gamma"},
		{"#participation=all&randomizer=gaussian&sigma=2&n=1e4&rounds=50&delta=1e-6", "sigma n dropout"},
		{"#participation=all&randomizer=generic&eps0=2&n=1e4&rounds=50&delta=1e-6&tv=0.01", "tv dropout eps0"},
		{"#participation=sampled&randomizer=generic&eps0=2&n=1e4&k=200&rounds=50&delta=1e-6&dropout=0.3", "colluders dropout"},
		{"#participation=all&randomizer=vecsum&dim=50&grid=200&bits=700&n=1e4&rounds=2&delta=1e-6", "dim grid bits"},
		{"#participation=sampled&randomizer=vecsum-by-aggregators&sumSigma=50&dim=50&n=1e4&k=1000&rounds=20&delta=1e-6", "sumSigma dim"},
		{"#participation=once&randomizer=laplace&eps0=2&n=1e4&k=200&rounds=20&delta=1e-6", "k eps0"},
		{"#participation=all&randomizer=rr2&eps0=2&n=1e4&rounds=20&delta=1e-6", "rounds messages"},
		{"#participation=all&randomizer=stepunit&eps0=2.8&dim=1930&n=60000&rounds=160&messages=8&delta=1e-5", "steps dim messages"},
		{"#participation=sampled&randomizer=privunit&eps0=2.5&dim=100&n=60000&k=1000&rounds=160&delta=1e-5", "messages"},
	} {
		b.visit(c.hash)
		b.matches(c.hash, riffle)
		for _, field := range strings.Fields(c.fields) {
			before := b.shown()
			value[bool](b, `(() => {
				const s = document.getElementById(%q + "-slider");
				s.value = Number(s.value) + 7;
				s.dispatchEvent(new Event("input", {bubbles: true}));
				return !s.closest("[hidden]");
			})()`, field)
			b.until(numberShown)
			after := b.shown()
			if after.Hash == before.Hash || after.Command == before.Command {
				t.Errorf("%s moved: the link is still %q, the command %q", field, after.Hash, after.Command)
			}
			b.matches(field, riffle)
			moved[field] = true
		}
		// A link is the whole setting.
		last := b.shown()
		b.visit(last.Hash)
		if again := b.shown(); again.Command != last.Command || again.Eps != last.Eps {
			t.Errorf("link %s: %+v, was %+v", last.Hash, again, last)
		}
	}
	for _, c := range []struct{ hash, field, to, part string }{
		{"#participation=all&randomizer=stepunit&eps0=2.8&dim=1930&n=60000&rounds=160&delta=1e-5", "edges", "1; 1.5 2.25", "--edges 1,1.5,2.25"},
		{"#participation=all&randomizer=stepunit&eps0=2.8&dim=1930&edges=.9,1.8&n=60000&rounds=160&delta=1e-5", "encoding", "seed", "--edges 0.9,1.8 --encoding seed"},
	} {
		b.visit(c.hash)
		b.matches(c.hash, riffle)
		before := b.shown()
		value[bool](b, `(() => {
			const e = document.getElementById(%q);
			e.value = %q;
			e.dispatchEvent(new Event(e.tagName === "SELECT" ? "change" : "input", {bubbles: true}));
			return !e.closest("[hidden]");
		})()`, c.field, c.to)
		b.until(numberShown)
		after := b.shown()
		if after.Eps == before.Eps || !strings.Contains(after.Command, c.part) || strings.Contains(after.Command, "--steps") {
			t.Errorf("%s set to %s: %+v", c.field, c.to, after)
		}
		b.matches(c.field, riffle)
		moved[c.field] = true
		b.visit(after.Hash)
		if again := b.shown(); again.Command != after.Command || again.Eps != after.Eps {
			t.Errorf("link %s: %+v, was %+v", after.Hash, again, after)
		}
	}
	for _, field := range value[[]string](b, `Object.keys(riffleSettings.fields)`) {
		if !moved[field] {
			t.Errorf("field %s was not changed", field)
		}
	}
	// What is chosen, and what the messages promise without the shuffle, is said.
	b.open("#participation=all&randomizer=stepunit&eps0=2.834&dim=1930&n=60000&rounds=160&messages=8&delta=1e-5")
	if hint := value[string](b, `document.getElementById("edges-hint").textContent`); !strings.HasPrefix(hint, "Chosen for this ε₀: 0.9") {
		t.Errorf("of edges the page says %q", hint)
	}
	local := riffle(b.shown().Command).Local
	if text := value[string](b, `document.getElementById("local").textContent`); text != "ε ≤ 22.68 a round" || !(local > 22.67 && local <= 22.68) {
		t.Errorf("without the shuffle %q, riffle has %v", text, local)
	}
	// The list has what riffle lists, the curve what it says of other rounds.
	b.open("#participation=all&randomizer=generic&eps0=2&n=1000&rounds=10&delta=1e-5")
	s := b.shown()
	listed := value[[]string](b, `[...document.querySelectorAll("#bounds tr")].map(r => r.dataset.method + " " + r.cells[0].textContent)`)
	if len(listed) < 8 || !strings.HasPrefix(listed[0], "blanket-pld "+strings.TrimPrefix(s.Upper, "ε ≤ ")) {
		t.Errorf("the list begins %q", listed)
	}
	for _, row := range value[[][]string](b, `[...document.querySelectorAll("#point-rows tr")].slice(0, 6).map(r => [...r.cells].map(c => c.textContent))`) {
		d := riffle(strings.Replace(s.Command, "--rounds 10", "--rounds "+row[0], 1))
		eps, err := strconv.ParseFloat(row[1], 64)
		if want := float64(*d.Upper.Eps); err != nil || eps < want*(1-1e-9) || eps > want*1.001 || row[2] != d.Upper.Method {
			t.Errorf("curve at %s rounds: %q, riffle has %v by %s", row[0], row[1], want, d.Upper.Method)
		}
	}
}

func TestKeyboardAndErrors(t *testing.T) {
	b := browser(t, 1000, 800, false)
	b.open("#participation=all&randomizer=generic&eps0=2&n=1e4&rounds=20&delta=1e-6")
	focused := func() string {
		return value[string](b, `document.activeElement.id || document.activeElement.className`)
	}
	var order []string
	for range 16 {
		b.press(kb.Tab)
		order = append(order, focused())
	}
	want := "skip participation randomizer eps0 eps0-slider n n-slider rounds rounds-slider messages messages-slider delta delta-slider share reset"
	if got := strings.Join(order, " "); !strings.HasPrefix(got, want) {
		t.Errorf("tab goes %s, want %s", got, want)
	}
	focus := func(id string) {
		value[bool](b, `(document.getElementById(%q).focus(), document.getElementById(%q).select?.(), true)`, id, id)
	}
	ring := value[string](b, `getComputedStyle(document.activeElement).outlineStyle`)
	if ring == "none" {
		t.Error("what has the focus does not show it")
	}
	// settled presses keys and waits for the link to have part and for its number.
	settled := func(keys, part string) shown {
		t.Helper()
		before := b.shown()
		b.press(keys)
		b.until(`location.hash.includes(` + strconv.Quote(part) + `) && ` + numberShown)
		after := b.shown()
		if after.Eps == before.Eps {
			t.Errorf("%s and %s: both %s", before.Hash, after.Hash, after.Eps)
		}
		return after
	}
	focus("eps0-slider")
	settled(kb.ArrowRight, "eps0=2.05&")
	focus("n")
	settled(kb.ArrowUp, "n=11000&")
	focus("n")
	settled("60 000", "n=6e4&")
	focus("participation")
	if s := settled("k", "participation=sampled&"); !strings.Contains(s.Command, "--k 1000") {
		t.Errorf("chosen by key: %+v", s)
	}

	// What cannot be is said in words, beside the control, and no number stays.
	for _, text := range []string{"many", "1.5", "0", "-3", "1e99", ""} {
		focus("n")
		b.press(kb.Delete + text)
		b.until(`document.getElementById("n").getAttribute("aria-invalid") === "true"`)
		if s := b.shown(); s.Eps != "" || s.Problem == "" {
			t.Errorf("n = %q: %+v", text, s)
		}
		if said := value[string](b, `document.getElementById("n-problem").textContent`); !strings.HasPrefix(said, "Give ") {
			t.Errorf("n = %q: %q", text, said)
		}
	}
	focus("n")
	b.press("500")
	b.until(`document.getElementById("problem").textContent.includes("n = 500.")`)
	if s := b.shown(); s.Eps != "" || !strings.Contains(s.Problem, "500") || strings.Contains(s.Problem, "account:") {
		t.Errorf("k above n: %+v", s)
	}
	b.open("#participation=once&n=1e3&k=100&rounds=11")
	if s := b.shown(); s.Eps != "" || s.Problem != "11 rounds of k = 100 disjoint reports need more than n = 1000 clients." {
		t.Errorf("too many rounds: %+v", s)
	}
	b.open("#participation=all&randomizer=stepunit&eps0=2&dim=100&edges=2,1&n=1e3&rounds=11")
	if s := b.shown(); s.Eps != "" || s.Problem != "Edges [2 1] must rise from 0 at least to 6 at most." {
		t.Errorf("edges that fall: %+v", s)
	}
	focus("edges")
	b.press("a")
	b.until(`document.getElementById("edges").getAttribute("aria-invalid") === "true"`)
	if said := value[string](b, `document.getElementById("edges-problem").textContent`); said != "Give numbers, such as 0.95, 1.49, 2.02, or nothing." {
		t.Errorf("edges: %q", said)
	}
	b.open("#participation=many&eps0=-1&n=1e4&foo=2&rounds=5")
	said := value[string](b, `document.getElementById("link-problem").hidden ? "" : document.getElementById("link-problem").textContent`)
	for _, part := range []string{"participation “many”", "eps0 “-1”", "“foo”"} {
		if !strings.Contains(said, part) {
			t.Errorf("a link that makes no sense: %q lacks %s", said, part)
		}
	}
	if s := b.shown(); s.Eps == "" || !strings.Contains(s.Hash, "n=1e4&k=1000&rounds=5") {
		t.Errorf("what makes sense of it: %+v", s)
	}
}

// A slow question leaves the page free, and gives way to the next.
func TestLastSettingWins(t *testing.T) {
	b := browser(t, 1000, 800, false)
	b.open("#participation=all&randomizer=generic&eps0=2&n=1000&rounds=10&delta=1e-5")
	want := b.shown()
	// Once the slow question tells of its progress, several follow in one step: however slow the browser is, the question
	// takes seconds longer than that.
	value[bool](b, `(() => {
		window.started = 0;
		const Old = Worker;
		Worker = class extends Old { constructor(u) { super(u); window.started++; } };
		const text = id => document.getElementById(id).textContent;
		new MutationObserver(() => {
			if (window.during || !text("status").includes("rr2-pld")) return;
			window.during = {Old: document.querySelectorAll(".old").length, Status: text("status"), Command: text("command")};
			for (let i = 0; i < 5; i++) document.getElementById("eps0-slider").dispatchEvent(new Event("input"));
			location.hash = `+strconv.Quote(want.Hash)+`;
		}).observe(document.getElementById("status"), {childList: true, characterData: true, subtree: true});
		location.hash = "#participation=check-in&randomizer=rr2&eps0=4&n=1e6&gamma=0.5&rounds=1e5&delta=1e-9";
		return true;
	})()`)
	b.until(`!!window.during`)
	during := value[struct {
		Old             int
		Status, Command string
	}](b, `window.during`)
	if during.Old == 0 || !strings.HasPrefix(during.Status, "computing…") || !strings.HasPrefix(during.Command, "riffle eps --randomizer rr2") {
		t.Errorf("while computing, with what is of the setting before marked: %+v", during)
	}
	b.until(`location.hash === ` + strconv.Quote(want.Hash) + ` && ` + allShown)
	if s := b.shown(); s.Eps != want.Eps || value[int](b, `document.querySelectorAll(".old, .stale").length`) != 0 {
		t.Errorf("after a slow question: %+v, want %s", s, want.Eps)
	}
	if n := value[int](b, `window.started`); n < 1 || n > 4 {
		t.Errorf("%d accountants were started for one that was stopped", n)
	}
}

// audit lists what is unlabelled or too faint; text below 4.5 to 1, large text
// and controls' edges below 3 to 1.
const audit = `(() => {
	const bad = [];
	const rgb = text => (text.match(/[\d.]+/g) ?? []).map(Number);
	const linear = c => (c /= 255) <= .04045 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4;
	const light = ([r, g, b]) => .2126 * linear(r) + .7152 * linear(g) + .0722 * linear(b);
	const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + .05) / (y + .05); };
	const ground = e => {
		for (; e; e = e.parentElement) {
			const c = rgb(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c;
			if (c[3] > 0) bad.push("half-transparent ground: " + e.className);
		}
		return [255, 255, 255];
	};
	const name = e => e.tagName + (e.id ? "#" + e.id : "") + (e.className ? "." + e.className : "");
	const ids = [...document.querySelectorAll("[id]")].map(e => e.id);
	for (const id of ids) if (ids.filter(i => i === id).length > 1) bad.push("id twice: " + id);
	for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], [for]"))
		for (const id of [e.getAttribute("aria-labelledby"), e.getAttribute("aria-describedby"), e.getAttribute("for")].join(" ").split(/\s+/))
			if (id && !ids.includes(id)) bad.push(name(e) + " refers to " + id);
	for (const e of document.querySelectorAll("input, select, button, summary, progress, [role=img], [role=region], section")) {
		const by = e.getAttribute("aria-labelledby");
		const label = e.getAttribute("aria-label") || (by && document.getElementById(by).textContent) || e.labels?.[0]?.textContent || (/^(BUTTON|SUMMARY)$/.test(e.tagName) ? e.textContent : "");
		if (!label.trim() && !e.closest("[hidden]")) bad.push("no label: " + name(e));
	}
	if (!document.documentElement.lang || !document.title || document.querySelectorAll("h1, main").length !== 2) bad.push("lang, title, h1 or main");
	const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	let texts = 0;
	while (walk.nextNode()) {
		const e = walk.currentNode.parentElement, s = getComputedStyle(e);
		if (!walk.currentNode.data.trim() || !e.getClientRects().length || s.visibility === "hidden" || e.closest("script, noscript, .skip")) continue;
		const size = parseFloat(s.fontSize), large = size >= 24 || size >= 18.66 && s.fontWeight >= 700;
		const r = ratio(rgb(s.color), ground(e));
		texts++;
		if (r < (large ? 3 : 4.5)) bad.push("contrast " + r.toFixed(2) + ": " + name(e) + " " + walk.currentNode.data.trim().slice(0, 30));
	}
	for (const e of document.querySelectorAll("input[type=text], select, button")) {
		const s = getComputedStyle(e);
		if (e.getClientRects().length && ratio(rgb(s.borderTopColor), ground(e.parentElement)) < 3) bad.push("edge of " + name(e));
		if (e.getClientRects().length && (s.display !== "none") && e.getBoundingClientRect().height < 24) bad.push("small: " + name(e));
	}
	if (document.documentElement.scrollWidth > innerWidth) bad.push("wider than the window: " + document.documentElement.scrollWidth);
	if (texts < 60) bad.push("only " + texts + " texts seen");
	return bad;
})()`

func TestLabelsContrastAndWidth(t *testing.T) {
	b := browser(t, 1280, 844, false)
	for _, c := range []struct {
		width int
		dark  bool
	}{{1280, false}, {1280, true}, {390, false}, {320, true}} {
		b.look(c.width, 844, c.dark)
		for _, hash := range []string{"#participation=all&eps0=2&n=1000&rounds=10&delta=1e-5", "#participation=once&n=1000&k=100&rounds=100&foo=1",
			"#participation=sampled&randomizer=vecsum&n=1000&k=100&rounds=10", "#participation=all&randomizer=stepunit&n=1000&rounds=10&messages=2&delta=1e-5"} {
			b.open(hash)
			value[bool](b, `(document.querySelectorAll("details").forEach(d => d.open = true), true)`)
			for _, state := range []string{"working", "stale"} {
				for _, bad := range value[[]string](b, audit) {
					t.Errorf("%d wide, dark %v, %s: %s", c.width, c.dark, hash, bad)
				}
				value[bool](b, `(document.getElementById("answer").classList.toggle(%q),
					["words", "curve", "bounds"].forEach(id => document.getElementById(id + "-card").classList.toggle("old")), true)`, state)
			}
		}
	}
}

// The static page works behind any server of files, also one that declares the
// accountant's packing, and opened as a file.
func TestStaticPage(t *testing.T) {
	b := browser(t, 1000, 800, false)
	dir := site(t)
	files := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer files.Close()
	unpacking := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, ".gz") {
			w.Header().Set("Content-Encoding", "gzip")
		}
		http.FileServer(http.Dir(dir)).ServeHTTP(w, r)
	}))
	defer unpacking.Close()
	const hash = "#participation=all&randomizer=generic&eps0=2&n=1000&rounds=10&delta=1e-5"
	b.open(hash)
	want := b.shown().Eps
	for _, base := range []string{files.URL + "/plan/", unpacking.URL + "/plan/", "file://" + filepath.ToSlash(dir) + "/plan/index.html"} {
		do(b, navigate("about:blank")) // ends the page before, which may still start a worker
		b.base, b.files = strings.TrimSuffix(base, "/plan/"), strings.HasPrefix(base, "file:")
		do(b, navigate(base+hash))
		b.until(allShown)
		if s := b.shown(); s.Eps != want || want == "" {
			t.Errorf("%s: %+v, want %s", base, s, want)
		}
	}
}

// compiled is the accountant for browsers, compiled once.
var compiled = sync.OnceValues(func() ([]byte, error) { return wasmbuild.Accountant.Compile(context.Background(), "../..", nil) })

// site writes the static page.
func site(t *testing.T) (dir string) {
	t.Helper()
	longtest.Only(t, "compiles the accountant for browsers")
	program, err := compiled()
	if dir = t.TempDir(); err == nil {
		err = Site(dir, program)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestAccountantIsSmall(t *testing.T) {
	site(t)
	program, _ := compiled()
	z, err := gzip.NewReader(bytes.NewReader(program))
	if err != nil {
		t.Fatal(err)
	}
	wasm, err := io.ReadAll(z)
	if err != nil || !strings.HasPrefix(string(wasm), "\x00asm\x01\x00\x00\x00") {
		t.Errorf("not a WebAssembly program: %v", err)
	}
	if len(program) > 2<<20 {
		t.Errorf("%d bytes are too many to load", len(program))
	}
}

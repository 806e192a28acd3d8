package report

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

var update = flag.Bool("update", false, "rewrite testdata/outline.golden")

// example is a small run with every section.
func example() Run {
	img := image.NewGray(image.Rect(0, 0, 4, 4))
	img.SetGray(1, 2, color.Gray{Y: 200})
	return Run{
		Title: "MNIST, hog-linear", Command: "riffle train --eps0 3", Version: "0.1.0",
		Started: "2026-03-14 09:26 UTC", Seconds: 134,
		TestAccuracy: 0.75, TestLoss: 0.5,
		Privacy: Privacy{
			Trust: dp.Shuffle, Participation: dp.All, Adjacency: dp.ReplaceOne,
			Population: 60000, ReportsPerRound: 60000, Rounds: 80, PlannedRounds: 80,
			Randomizer: "privunit", Eps0: 3, Epsilon: 0.78412, Delta: 1e-5,
			Method: "blanket-pld", Source: "a theorem", Status: dp.Proved, Simulated: true,
		},
		Points: []Point{
			{Round: 1, Epsilon: 0.1, Loss: 2.2, Accuracy: 0.3, Seconds: 1.5},
			{Round: 40, Epsilon: 0.5, Loss: math.NaN(), Accuracy: 0.8, Seconds: 60},
			{Round: 80, Epsilon: 0.78412, Loss: 0.5, Accuracy: 0.75, Seconds: 120},
		},
		Evaluated: "20 test examples",
		Classes:   []string{"a", "b", "c"},
		Confusion: [][]int64{{8, 2, 0}, {1, 4, 0}, {2, 0, 3}},
		Samples: []Sample{
			{Image: img, Label: 0, Predicted: 0, Confidence: 0.9},
			{Image: img, Label: 0, Predicted: 1, Confidence: math.NaN()},
			{Label: 2, Predicted: 0, Confidence: 0.5},
		},
		Config: []Setting{{"eps0", "3", "flag"}, {"rounds", "80", "default"}},
	}
}

func TestOutline(t *testing.T) {
	var b strings.Builder
	parse(t, write(t, example())).named("body")[0].outline(&b, 0)
	const golden = "testdata/outline.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	got, lines := strings.Split(b.String(), "\n"), strings.Split(string(want), "\n")
	for i := range max(len(got), len(lines)) {
		g, w := "(end)", "(end)"
		if i < len(got) {
			g = got[i]
		}
		if i < len(lines) {
			w = lines[i]
		}
		if g != w {
			t.Fatalf("%s:%d: got %q, want %q (go test -update rewrites it)", golden, i+1, g, w)
		}
	}
}

func TestDeterministic(t *testing.T) {
	if !bytes.Equal(write(t, example()), write(t, example())) {
		t.Error("two pages of the same run differ")
	}
}

// The page may name one address, in the library's own comment, and load none.
func TestLoadsNothing(t *testing.T) {
	page := write(t, example())
	rest := strings.Replace(string(page), "/*! https://github.com/leeoniya/uPlot (v1.6.32) */", "", 1)
	if at := regexp.MustCompile(`(?i)(https?:|wss?:|ftp:)?//[a-z0-9]+[.:]`).FindString(rest); at != "" {
		t.Errorf("page names the address %q", at)
	}
	for _, n := range parse(t, page).all(func(*node) bool { return true }) {
		for _, a := range []string{"src", "href", "srcset", "action", "data", "poster", "formaction", "xlink:href", "background"} {
			v, ok := n.Attr[a]
			if ok && !strings.HasPrefix(v, "data:") && !strings.HasPrefix(v, "#") {
				t.Errorf("<%s %s=%q> leads out of the page", n.Name, a, v)
			}
		}
		for a := range n.Attr {
			if strings.HasPrefix(a, "on") || a == "style" {
				t.Errorf("<%s %s>: the policy would block it", n.Name, a)
			}
		}
	}
	for _, call := range []string{"fetch(", "XMLHttpRequest", "WebSocket", "EventSource", "sendBeacon", "import("} {
		if strings.Contains(string(page), call) {
			t.Errorf("page contains %s", call)
		}
	}
}

// The policy must allow exactly the styles and the script that are there.
func TestPolicy(t *testing.T) {
	doc := parse(t, write(t, example()))
	var policy string
	for _, m := range doc.named("meta") {
		if m.Attr["http-equiv"] == "Content-Security-Policy" {
			policy = m.Attr["content"]
		}
	}
	directives := map[string][]string{}
	for d := range strings.SplitSeq(policy, ";") {
		words := strings.Fields(d)
		directives[words[0]] = words[1:]
	}
	if fmt.Sprint(directives["default-src"]) != "['none']" || fmt.Sprint(directives["img-src"]) != "[data:]" {
		t.Errorf("policy %q lets something load", policy)
	}
	got := map[string][]string{}
	for _, n := range doc.all(func(n *node) bool { return n.Name == "script" || n.Name == "style" }) {
		if n.Attr["type"] == "application/json" {
			continue // not executed
		}
		sum := sha256.Sum256([]byte(n.Text))
		got[n.Name+"-src"] = append(got[n.Name+"-src"], "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	for _, d := range []string{"script-src", "style-src"} {
		if fmt.Sprint(got[d]) != fmt.Sprint(directives[d]) {
			t.Errorf("%s: policy has %v, page needs %v", d, directives[d], got[d])
		}
	}
	script := doc.named("script")[1].Text
	if !strings.Contains(script, "MIT License") || !strings.Contains(script, "Leon Sorokin") {
		t.Error("uPlot's licence is not on the page")
	}
}

// Whatever a title, a command, a class name or a setting holds must arrive as
// text: the page has the same elements and attributes as with plain words.
func TestInjection(t *testing.T) {
	shape := func(n *node) string {
		var b strings.Builder
		for _, e := range n.all(func(*node) bool { return true }) {
			fmt.Fprintf(&b, "%s %d\n", e.Name, len(e.Attr))
		}
		return b.String()
	}
	fill := func(s string) Run {
		r := example()
		r.Title, r.Command, r.Resume, r.Version, r.Started, r.Evaluated = s, s, s, s, s, s
		r.Interrupted = true
		r.Classes = []string{s, s, s}
		r.Config = []Setting{{s, s, s}}
		r.Privacy.Randomizer, r.Privacy.Method, r.Privacy.Source = s, s, s
		return r
	}
	want := shape(parse(t, write(t, fill("plain"))))
	for _, s := range []string{
		`</script><script>alert(1)</script>`, `</title><img/src=x/onerror=alert(1)>`, `"><svg/onload=alert(1)>`,
		`'"autofocus/onfocus='alert(1)`, `<!--`, `]]>`, `{{.Command}}`, `javascript:alert(1)`, `&lt;b&gt;`, "</style>", "a\x00b\xffc",
	} {
		doc := parse(t, write(t, fill(s)))
		if got := shape(doc); got != want {
			t.Errorf("%q changes the page's elements", s)
		}
		visible := strings.NewReplacer("\x00", "\uFFFD", "\xff", "\uFFFD").Replace(s)
		if got := doc.named("h1")[0].text(); got != visible {
			t.Errorf("title %q reads %q", s, got)
		}
		if got := doc.id(t, "command").text(); got != visible {
			t.Errorf("command %q reads %q", s, got)
		}
	}
}

// What the button copies is the element's text: it must be the command itself.
func TestCommandIsExact(t *testing.T) {
	for _, c := range []string{"riffle train", "a  b   c ", "riffle train --data 'my dir'\\\n  --lr 0.3,0.18@420", " lead"} {
		r := example()
		r.Command = c
		if got := parse(t, write(t, r)).id(t, "command").text(); got != c {
			t.Errorf("command %q reads %q", c, got)
		}
	}
}

func TestPointsReachTheScript(t *testing.T) {
	r := example()
	r.Points[1].Epsilon = math.Inf(1)
	var got map[string][]any
	if err := json.Unmarshal([]byte(parse(t, write(t, r)).id(t, "data").Text), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string][]any{
		"round":    {1.0, 40.0, 80.0},
		"epsilon":  {0.1, "inf", 0.78412},
		"loss":     {2.2, nil, 0.5},
		"accuracy": {0.3, 0.8, 0.75},
		"seconds":  {1.5, 60.0, 120.0},
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestWithoutScripts(t *testing.T) {
	doc := parse(t, write(t, example()))
	var rows []string
	for _, n := range doc.named("noscript") {
		for _, tr := range n.named("tr") {
			var cells []string
			for _, c := range tr.Kids {
				cells = append(cells, c.text())
			}
			rows = append(rows, strings.Join(cells, "|"))
		}
	}
	want := []string{"Round|ε|Accuracy|Loss|Seconds", "1|0.1|30.00 %|2.2|1.5", "40|0.5|80.00 %|—|60", "80|0.7842|75.00 %|0.5|120"}
	if fmt.Sprint(rows) != fmt.Sprint(want) {
		t.Errorf("got %q, want %q", rows, want)
	}
}

// Labels must point somewhere, images need words, ids must be unique.
func TestAccessible(t *testing.T) {
	doc := parse(t, write(t, example()))
	ids := map[string]int{}
	everything := doc.all(func(*node) bool { return true })
	for _, n := range everything {
		if id := n.Attr["id"]; id != "" {
			ids[id]++
			if ids[id] > 1 {
				t.Errorf("id %q twice", id)
			}
		}
	}
	for _, n := range everything {
		if to := n.Attr["aria-labelledby"]; to != "" && ids[to] == 0 {
			t.Errorf("label %q is missing", to)
		}
		if to := n.Attr["data-copy"]; to != "" && ids[to] == 0 {
			t.Errorf("button copies %q, which is missing", to)
		}
		if n.Name == "img" && n.Attr["alt"] == "" {
			t.Error("image without words")
		}
		if (n.Attr["role"] == "img" || n.Attr["role"] == "region") && n.Attr["aria-label"] == "" {
			t.Errorf("<%s> %s without words", n.Name, n.Attr["class"])
		}
		if n.Name == "th" && n.Attr["scope"] == "" {
			t.Errorf("heading %q without scope", n.text())
		}
	}
	if doc.named("html")[0].Attr["lang"] == "" {
		t.Error("no language")
	}
}

func TestSamplesKeepTheirPixels(t *testing.T) {
	r := example()
	images := parse(t, write(t, r)).named("img")
	if len(images) != 2 {
		t.Fatalf("%d images, want 2", len(images))
	}
	for _, n := range images {
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(n.Attr["src"], "data:image/png;base64,"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		for y := range 4 {
			for x := range 4 {
				if g, w := color.GrayModel.Convert(got.At(x, y)), r.Samples[0].Image.At(x, y); g != w {
					t.Errorf("pixel (%d, %d) = %v, want %v", x, y, g, w)
				}
			}
		}
	}
}

type failing struct{ error }

func (f failing) Write([]byte) (int, error) { return 0, f.error }

func TestWriterError(t *testing.T) {
	full := errors.New("disk full")
	if err := Write(failing{full}, example()); !errors.Is(err, full) {
		t.Errorf("got %v, want %v", err, full)
	}
}

func BenchmarkWrite(b *testing.B) {
	r := example()
	for i := int64(81); i < 1000; i++ {
		r.Points = append(r.Points, Point{Round: i, Epsilon: 1, Loss: 1, Accuracy: .5, Seconds: 1})
	}
	var out bytes.Buffer
	for b.Loop() {
		out.Reset()
		if err := Write(&out, r); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(out.Len()))
}

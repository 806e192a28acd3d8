package riffle_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// constants reads the table of measured constants of docs/capacity.md.
func constants(t *testing.T, text string) map[string]float64 {
	t.Helper()
	all := map[string]float64{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9-]+)` \\| ([0-9.,e]+) \\|").FindAllStringSubmatch(text, -1) {
		x, err := strconv.ParseFloat(strings.ReplaceAll(row[2], ",", ""), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[row[1]] = x
	}
	for _, name := range []string{"take-kept", "take-each", "take-resumed", "http2", "session", "fetch", "close", "open", "wire-in", "wire-out", "model", "disk", "client-memory",
		"process-memory", "garbage", "use", "part", "cores"} {
		if all[name] <= 0 {
			t.Fatalf("docs/capacity.md: no constant %s", name)
		}
	}
	return all
}

// capacity is the formula of docs/capacity.md: a row of its table for n clients a round of so many
// minutes.
func capacity(c map[string]float64, n, minutes float64) string {
	coming := minutes * 60 * c["part"] // seconds in which reports come
	after := minutes*60 - coming       // seconds for closing and opening
	session := c["session"] * math.Min(1, minutes*60/86400)
	cores := func(micros, seconds float64) float64 { return n * micros * 1e-6 / seconds / c["use"] }
	each, resumed, kept := cores(c["take-each"]+c["http2"]+session, coming), cores(c["take-resumed"]+c["http2"]+session, coming), cores(c["take-kept"]+session, coming)
	fetch, work := cores(c["fetch"]+c["http2"], coming), cores(c["close"]+c["open"], after)
	machines := func(cores float64) float64 { return math.Ceil(cores / c["cores"]) }
	frontends := machines(resumed)
	memory := n * c["client-memory"] * c["garbage"] / 1e9 // a frontend knows every enrolled client
	frontend := c["process-memory"]/1e3 + memory
	return fmt.Sprintf("| %.0e | %.0f | %s | %s | %s | %s | %s | %.0f + %.0f + %.0f | %s | %s | %s | %s |", n, minutes,
		digits(each), digits(resumed), digits(kept), digits(fetch), digits(work), frontends, machines(fetch), machines(work), digits(frontend),
		digits(n*(c["wire-in"]+c["wire-out"])*8/coming/1e6), digits(n*c["disk"]/1e9), digits(n*c["model"]*8/coming/1e9))
}

// digits writes two significant digits.
func digits(x float64) string {
	if x >= 100 {
		step := math.Pow(10, math.Floor(math.Log10(x))-1)
		return fmt.Sprintf("%.0f", math.Round(x/step)*step)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

// The worked table follows from the constants that the document states.
func TestCapacityTable(t *testing.T) {
	b, err := os.ReadFile("docs/capacity.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	c := constants(t, text)
	rows := regexp.MustCompile(`(?m)^\| 1e\+0[678] \|.*$`).FindAllString(text, -1)
	var want []string
	for _, minutes := range []float64{10, 60} {
		for _, n := range []float64{1e6, 1e7, 1e8} {
			want = append(want, capacity(c, n, minutes))
		}
	}
	if strings.Join(rows, "\n") != strings.Join(want, "\n") {
		t.Errorf("the table of docs/capacity.md is not what its constants give:\n%s", strings.Join(want, "\n"))
	}
	// What the formula must say of itself: more clients, shorter rounds and more connections cost more.
	less := capacity(c, 1e6, 60)
	if less == capacity(c, 1e7, 60) || less == capacity(c, 1e6, 10) || c["take-each"] <= c["take-resumed"] || c["take-resumed"] <= c["take-kept"] {
		t.Error("the constants are in the wrong order")
	}
}

package account

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// TestGoldenPairs: never below an independent program's composition without
// merging (testdata/pairs.py), and at most .2 % above.
func TestGoldenPairs(t *testing.T) {
	data, err := os.ReadFile("testdata/pairs.tsv")
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line)
		if len(f) != 5 {
			t.Fatalf("row %q", line)
		}
		number := func(s string) float64 {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		q := settingA
		q.Class, q.Symbols, q.TV = dp.Class(f[0]), int(number(f[1])), number(f[2])
		want := number(f[4])
		got := ask(t, q, f[3])[f[3]]
		if !got.Applies || !(got.Eps >= want*(1-2e-5)) || got.Eps > want*1.002 {
			t.Errorf("%s: %v (%s), the golden value is %v", strings.TrimSpace(line), got.Eps, got.Note, want)
		}
		rows++
	}
	if rows < 5 {
		t.Errorf("only %d rows", rows)
	}
}

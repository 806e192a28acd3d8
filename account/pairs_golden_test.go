package account

import (
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/golden"
	"github.com/riffle-dp/riffle/internal/longtest"
)

// TestGoldenPairs: never below an independent program's composition without
// merging (testdata/pairs.py), and at most .2 % above.
func TestGoldenPairs(t *testing.T) {
	for _, row := range golden.Rows(t, "pairs.tsv", 5) {
		if !longtest.On && row[1] == "20" {
			continue // as of 3 symbols
		}
		v := golden.Numbers(t, []string{row[1], row[2], row[4]})
		q, want := settingA, v[2]
		q.Class, q.Symbols, q.TV = dp.Class(row[0]), int(v[0]), v[1]
		got := ask(t, q, row[3])[row[3]]
		if !got.Applies || !(got.Eps >= want*(1-2e-5)) || got.Eps > want*1.002 {
			t.Errorf("%v: %v (%s), the golden value is %v", row, got.Eps, got.Note, want)
		}
	}
}

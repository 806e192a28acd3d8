package measure

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// words writes a table of n rows: "often" has a tenth of them, "rare" a thousandth, and the others
// have texts of their own.
func words(t testing.TB, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("word\n")
	for i := range n {
		switch {
		case i%10 == 0:
			b.WriteString("often\n")
		case i%10 == 1:
			b.WriteString("oft日\n")
		case i%1000 == 2:
			b.WriteString("rare\n")
		case i%10 == 3:
			b.WriteString("too long for a word\n")
		default:
			fmt.Fprintf(&b, "o%06d\n", i)
		}
	}
	path := filepath.Join(t.TempDir(), "words.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A search costs a client one round, whatever the number of rounds, and finds what is there. The same
// question is charged again, and refused when the budget ends.
func TestSearchIsChargedOnce(t *testing.T) {
	for _, by := range longtest.Pick([]vecsum.NoiseBy{vecsum.ByClients}, []vecsum.NoiseBy{vecsum.ByClients, vecsum.ByAggregators}) {
		ctx := context.Background()
		q := statistic.Question{Measure: statistic.HeavyHitters, Column: "word", Longest: 8, Share: .1}
		rows, err := Read(words(t, 20000), q, "")
		if err != nil {
			t.Fatal(err)
		}
		p, err := New(ctx, Config{Question: q, Trust: dp.VectorSum, Epsilon: 1, Delta: 1e-5, NoiseBy: by, Clients: int64(rows.Rows)})
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "ledger")
		l, err := OpenLedger(ctx, path, Budget{2.2, 1e-5})
		if err != nil {
			t.Fatal(err)
		}
		r, err := p.Run(ctx, RunConfig{Rows: rows, Seed: 1, Ledger: l})
		if err != nil {
			t.Fatal(err)
		}
		if l.Questions() != 1 || !(r.Spent.Eps <= 1) || !(r.Spent.Eps > .9) {
			t.Errorf("%d charges, epsilon %v", l.Questions(), r.Spent.Eps)
		}
		if len(r.Items) != 2 || r.Search.Rounds != 9 || r.Search.Counted < 1 {
			t.Fatalf("%+v, %+v", r.Items, r.Search)
		}
		for _, item := range r.Items {
			if item.Text == nil || *item.Text != "often" && *item.Text != "oft日" {
				t.Errorf("found %v, %q", item.Text, item.Bytes)
			}
			if !near(item.Count, item.Interval, 2000) || item.JointHigh95-item.JointLow95 >= 1000 {
				t.Errorf("2000 clients have %+v", item)
			}
		}
		if o := r.Search.Others; !near(o.Value, o.Interval, 2000) {
			t.Errorf("2000 clients have others: %+v", o)
		}
		if _, err := p.Run(ctx, RunConfig{Rows: rows, Seed: 2, Ledger: l}); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(ctx, RunConfig{Rows: rows, Seed: 3, Ledger: l}); err == nil || !strings.Contains(err.Error(), ledger.ErrBudget.Error()) {
			t.Errorf("a third question: %v", err)
		}
		if l.Questions() != 2 {
			t.Errorf("%d charges", l.Questions())
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSearchRefusals(t *testing.T) {
	q := statistic.Question{Measure: statistic.HeavyHitters, Column: "word", Longest: 8, Share: .1}
	good := Config{Question: q, Trust: dp.VectorSum, Epsilon: 1, Delta: 1e-5, Clients: 60000}
	if _, err := New(context.Background(), good); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"fewer than the 9 rounds": func(c *Config) { c.Clients = 8 },
		"try share":               func(c *Config) { c.Clients = 3000 },
		"larger epsilon":          func(c *Config) { c.Epsilon = .01 },
		"sample = 100":            func(c *Config) { c.Sample = 100 },
		"trust":                   func(c *Config) { c.Trust = dp.Shuffle },
	} {
		c := good
		change(&c)
		if _, err := New(context.Background(), c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// near says whether a truth is within the width of the joint interval of a value, twice as far as the
// interval goes: all but once in 1e4 or more.
func near(value float64, i statistic.Interval, truth float64) bool {
	return math.Abs(truth-value) <= i.JointHigh95-i.JointLow95
}

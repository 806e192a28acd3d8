package measure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/dataset"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// people writes a table of n rows: ages 0 … 99 in turn, cities of which berlin has every third.
func people(t *testing.T, n int) string {
	t.Helper()
	var b strings.Builder
	b.WriteString("age,city\n")
	for i := range n {
		fmt.Fprintf(&b, "%d,%s\n", i%100, []string{"berlin", "paris", "rome"}[i%3])
	}
	path := filepath.Join(t.TempDir(), "people.csv")
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// plan plans a question about the table at path, with its rows.
func plan(t *testing.T, path string, asked Asked, c Config) (*Plan, *dataset.Cells) {
	t.Helper()
	q, err := asked.Question()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := Read(path, q, "")
	if err != nil {
		t.Fatal(err)
	}
	c.Question, c.Clients = q, int64(rows.Rows)
	if c.Trust == "" {
		c.Trust = "vector-sum"
	}
	if c.Epsilon == 0 {
		c.Epsilon = 1
	}
	if c.Delta == 0 {
		c.Delta = 1e-5
	}
	p, err := New(context.Background(), c)
	if err != nil {
		t.Fatal(err)
	}
	return p, rows
}

func TestAnswersAreNearTheTruth(t *testing.T) {
	path := people(t, 6000)
	for _, c := range []Config{{}, {NoiseBy: vecsum.ByAggregators}, {Sample: 3000}} {
		p, rows := plan(t, path, Asked{Measure: "histogram", Column: "age", Bins: "0..100:5"}, c)
		r, err := p.Run(context.Background(), RunConfig{Rows: rows, Seed: 3})
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if len(r.Bins) != 5 || !(r.Spent.Eps <= 1 && r.Spent.Eps > .9) || r.All != r.Spent {
			t.Fatalf("%+v: %d bins, spent %v of %v", c, len(r.Bins), r.Spent, r.All)
		}
		for _, b := range r.Bins {
			wide := b.High95 - b.Low95
			if !(math.Abs(b.Count-1200) < 3*wide && wide > 0 && wide < 300) || b.JointHigh95-b.JointLow95 <= wide {
				t.Errorf("%+v: bin %v: %v in %v..%v", c, *b.Lower, b.Count, b.Low95, b.High95)
			}
		}
	}
	p, rows := plan(t, path, Asked{Measure: "mean", Column: "age", Range: "0..100"}, Config{})
	r, err := p.Run(context.Background(), RunConfig{Rows: rows, Seed: 1})
	if err != nil || !(math.Abs(r.Mean.Value-49.5) < 3) {
		t.Errorf("mean %+v, %v", r, err)
	}
}

// The same seed gives the same answer, whatever the number of workers.
func TestAnswersFollowTheSeed(t *testing.T) {
	p, rows := plan(t, people(t, 500), Asked{Measure: "histogram", Column: "city", Categories: "berlin|*"}, Config{})
	of := func(seed uint64, workers int) float64 {
		r, err := p.Run(context.Background(), RunConfig{Rows: rows, Seed: seed, Workers: workers})
		if err != nil {
			t.Fatal(err)
		}
		return r.Bins[0].Count
	}
	if of(1, 1) != of(1, 3) || of(1, 1) == of(2, 1) {
		t.Error("answers do not follow the seed")
	}
}

func TestLedgerChargesEachQuestion(t *testing.T) {
	ctx := context.Background()
	path := people(t, 500)
	file := filepath.Join(t.TempDir(), "budget")
	asked := Asked{Measure: "count", Where: "age>=40"}
	p, rows := plan(t, path, asked, Config{})
	ask := func(l *Ledger) (*Result, error) { return p.Run(ctx, RunConfig{Rows: rows, Seed: 1, Ledger: l}) }
	budget := Budget{Epsilon: 2.5, Delta: 1e-5}
	last := 0.0
	var err error
	n := 0
	for ; n < 10; n++ {
		l, openErr := OpenLedger(ctx, file, budget)
		if openErr != nil {
			t.Fatal(openErr)
		}
		if int(l.Questions()) != n {
			t.Fatalf("%d questions, want %d", l.Questions(), n)
		}
		var r *Result
		if r, err = ask(l); err != nil {
			break
		}
		if !(r.All.Eps > last && r.All.Eps <= 2.5) {
			t.Errorf("question %d: all cost %v, before %v", n+1, r.All.Eps, last)
		}
		if last = r.All.Eps; l.Close() != nil {
			t.Fatal("not closed")
		}
	}
	if !errors.Is(err, ledger.ErrBudget) || n < 2 {
		t.Errorf("after %d questions: %v", n, err)
	}
}

// A question that is asked again in a ledger has other noise, and so have two questions with one seed.
func TestNoiseIsFresh(t *testing.T) {
	ctx := context.Background()
	path := people(t, 500)
	l, err := OpenLedger(ctx, filepath.Join(t.TempDir(), "budget"), Budget{Epsilon: 9, Delta: 1e-5})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	seen := map[float64]bool{}
	for _, where := range []string{"age>=0", "age>=-1", "age>=-2"} { // all 500 meet them
		p, rows := plan(t, path, Asked{Measure: "count", Where: where}, Config{})
		for _, book := range []*Ledger{nil, l, l} {
			r, err := p.Run(ctx, RunConfig{Rows: rows, Seed: 1, Ledger: book})
			if err != nil {
				t.Fatal(err)
			}
			seen[r.Count.Value] = true
		}
	}
	if len(seen) < 7 { // nine answers of a noise of some four clients, in steps of an eighth or so
		t.Errorf("only %d answers of nine differ: %v", len(seen), seen)
	}
}

// A question of the whole budget fits an empty ledger.
func TestOneQuestionMayTakeTheBudget(t *testing.T) {
	ctx := context.Background()
	path := people(t, 500)
	for _, c := range []Config{{}, {NoiseBy: vecsum.ByAggregators}, {Trust: "central"}, {Trust: "local"}} {
		p, rows := plan(t, path, Asked{Measure: "histogram", Column: "city", Categories: "berlin|*"}, c)
		l, err := OpenLedger(ctx, filepath.Join(t.TempDir(), "budget"), Budget{Epsilon: 1, Delta: 1e-5})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Run(ctx, RunConfig{Rows: rows, Ledger: l}); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := p.Run(ctx, RunConfig{Rows: rows, Ledger: l}); !errors.Is(err, ledger.ErrBudget) {
			t.Errorf("%+v: a second one: %v", c, err)
		}
		l.Close()
	}
}

// What has no sound answer is refused before anything is charged, with the trust that has one.
func TestRefusedBeforeTheCharge(t *testing.T) {
	line, err := Asked{Measure: "linear-regression", Column: "age", Range: "0..100", Features: "height=0..2"}.Question()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		config Config
		want   string
	}{
		{Config{Trust: "vector-sum", Sample: 50}, "sample = 50"},
		{Config{Trust: "shuffle"}, "use trust vector-sum"},
		{Config{Trust: "local"}, "use trust vector-sum"},
		{Config{Trust: "distributed"}, "use trust vector-sum"},
		{Config{Trust: "none"}, "protects nobody"},
		{Config{Trust: "hope"}, `trust "hope": questions are asked with shuffle, local, vector-sum or central`},
		{Config{Trust: "central", NoiseBy: "aggregators"}, "nobody but the curator"},
		{Config{Trust: "vector-sum", NoiseBy: "me"}, `noise-by "me"`},
		{Config{Trust: "vector-sum", Delta: 1}, "delta"},
		{Config{Trust: "vector-sum", Epsilon: math.NaN()}, "epsilon = NaN"},
		{Config{Trust: "vector-sum", Clients: -1}, "-1 clients"},
		{Config{Trust: "vector-sum", MinReports: 101}, "n-min = 101"},
	} {
		c := test.config
		c.Question = line
		c.Epsilon, c.Delta, c.Clients = cmp.Or(c.Epsilon, 1), cmp.Or(c.Delta, 1e-5), cmp.Or(c.Clients, 100)
		if _, err := New(context.Background(), c); !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.config, err, test.want)
		}
	}
}

// TestBudgetsWithoutAPlan: who asks with a budget that no mechanism meets reads what to change.
func TestBudgetsWithoutAPlan(t *testing.T) {
	q, err := Asked{Measure: "mean", Column: "age", Range: "0..100"}.Question()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		config     Config
		why, helps string
	}{
		{Config{Trust: "vector-sum", Epsilon: 1e-9}, "exceed a report's 32 bits", "a larger epsilon or delta needs less noise"},
		{Config{Trust: "vector-sum", Epsilon: 1e-9, Delta: 1e-9}, "noise bits", "a larger epsilon or delta needs less noise"},
		{Config{Trust: "central", Epsilon: 1e-9, Delta: 1e-9}, "more noise than", "a larger epsilon or delta needs less noise"},
		{Config{Trust: "local", Epsilon: 1e-9}, "eps0", "a larger epsilon needs less noise"},
		{Config{Trust: "shuffle", Epsilon: 1e-9, Delta: 1e-9}, "no eps0 meets", "a larger epsilon or delta, or more clients, need less noise"},
		{Config{Trust: "local", Epsilon: 50}, "eps0", "a smaller epsilon fits"},
	} {
		c := test.config
		c.Question, c.Delta, c.Clients = q, cmp.Or(c.Delta, 1e-5), 1000
		_, err := New(t.Context(), c)
		if !errors.Is(err, ErrInput) || !strings.Contains(err.Error(), test.why) || !strings.HasSuffix(err.Error(), "; "+test.helps) {
			t.Errorf("%+v: %v, want %q and %q", test.config, err, test.why, test.helps)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := New(ctx, c); !errors.Is(err, context.Canceled) {
			t.Errorf("%+v, interrupted: %v", test.config, err)
		}
	}
}

package measure

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
)

// counted is a question that costs eps, and its rows.
func counted(t *testing.T, eps float64) (*Plan, RunConfig) {
	p, rows := plan(t, people(t, 300), Asked{Measure: "count", Where: "age>=40"}, Config{Epsilon: eps})
	return p, RunConfig{Rows: rows, Seed: 1}
}

func opened(t *testing.T, path string, eps float64) *Ledger {
	t.Helper()
	l, err := OpenLedger(context.Background(), path, Budget{Epsilon: eps, Delta: 1e-5})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// While one process has the file open no other does, so what is spent is not counted twice.
func TestLedgerHasOneProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget")
	l := opened(t, path, 3)
	if _, err := OpenLedger(context.Background(), path, Budget{}); !errors.Is(err, durable.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	again := opened(t, path, 0)
	if again.Budget.Epsilon != 3 || again.Questions() != 0 {
		t.Errorf("%+v after %d questions", again.Budget, again.Questions())
	}
}

// What ends a question after its charge loses the answer, and the charge stays.
func TestLedgerKeepsTheChargeOfALostAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget")
	p, c := counted(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	c.Ledger = opened(t, path, 1.2)
	c.Progress = func(int64) { // called when the first reports were opened
		raw, err := os.ReadFile(path)
		if err != nil || bytes.Count(raw, []byte("\n")) != 2 {
			t.Errorf("reports are opened before the charge is on disk: %q, %v", raw, err)
		}
		cancel()
	}
	c.Workers = 1
	if _, err := p.Run(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("not interrupted: %v", err)
	}
	c.Ledger.Close()
	c.Ledger, c.Progress = opened(t, path, 0), nil
	if n := c.Ledger.Questions(); n != 1 {
		t.Errorf("%d questions are charged", n)
	}
	if _, err := p.Run(context.Background(), c); !errors.Is(err, ledger.ErrBudget) {
		t.Errorf("asked again within a budget that is spent: %v", err)
	}
}

// A refused question computes nothing and writes nothing.
func TestLedgerRefusesBeforeItComputes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget")
	p, c := counted(t, 2)
	c.Ledger = opened(t, path, 1)
	c.Progress = func(int64) { t.Error("reports are opened") }
	before, _ := os.ReadFile(path)
	if _, err := p.Run(context.Background(), c); !errors.Is(err, ledger.ErrBudget) || !strings.Contains(err.Error(), "question 1 would bring epsilon") {
		t.Errorf("%v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(before, after) {
		t.Error("a refused question is written")
	}
}

// A first line that could not be written leaves no file behind, which would be refused for good.
func TestLedgerThatCannotBegin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget")
	if err := os.Symlink("/dev/full", path); err != nil {
		t.Skip(err)
	}
	if _, err := begin(path, Budget{Epsilon: 1, Delta: 1e-5}); !errors.Is(err, syscall.ENOSPC) {
		t.Skipf("there is no full device: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
	opened(t, path, 1).Close()
}

// A line without its end was never acknowledged: it is cut off, and its place is free.
func TestLedgerCutsAnUnfinishedLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "budget")
	p, c := counted(t, .5)
	c.Ledger = opened(t, path, 3)
	if _, err := p.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	c.Ledger.Close()
	whole, _ := os.ReadFile(path)
	// The second and third are what a power failure may leave of a line.
	for _, torn := range []string{`{"question":{"mea`, "\x00\x00\x00\"}\n", `{"question"` + "\x00\x00}\n{}\n"} {
		if err := durable.Append(path, []byte(torn)); err != nil {
			t.Fatal(err)
		}
		c.Ledger = opened(t, path, 3)
		if raw, _ := os.ReadFile(path); !bytes.Equal(raw, whole) || c.Ledger.Questions() != 1 {
			t.Errorf("%d questions in %q", c.Ledger.Questions(), raw)
		}
		c.Ledger.Close()
	}
	c.Ledger = opened(t, path, 3)
	if _, err := p.Run(context.Background(), c); err != nil || c.Ledger.Questions() != 2 {
		t.Errorf("%d questions, %v", c.Ledger.Questions(), err)
	}
	c.Ledger.Close()
	// A whole line whose end an editor took off was answered: it counts.
	whole, _ = os.ReadFile(path)
	if err := os.Truncate(path, int64(len(whole))-1); err != nil {
		t.Fatal(err)
	}
	c.Ledger = opened(t, path, 3)
	defer c.Ledger.Close()
	if raw, _ := os.ReadFile(path); !bytes.Equal(raw, whole) || c.Ledger.Questions() != 2 {
		t.Errorf("%d questions in %q", c.Ledger.Questions(), raw)
	}
}

// A file that was edited is refused: a line taken out, changed, doubled or moved, another budget's
// lines, and a file that is none.
func TestLedgerRefusesEdits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "budget")
	p, c := counted(t, .5)
	c.Ledger = opened(t, path, 5)
	for range 3 {
		if _, err := p.Run(context.Background(), c); err != nil {
			t.Fatal(err)
		}
	}
	c.Ledger.Close()
	raw, _ := os.ReadFile(path)
	lines := bytes.SplitAfter(raw, []byte("\n"))[:4]
	other := filepath.Join(dir, "other")
	opened(t, other, 5).Close()
	head, _ := os.ReadFile(other)
	join := func(parts ...[]byte) string { return string(bytes.Join(parts, nil)) }
	for name, text := range map[string]string{
		"the first question out": join(lines[0], lines[2], lines[3]),
		"one in the middle out":  join(lines[0], lines[1], lines[3]),
		"doubled":                join(lines[0], lines[1], lines[1]),
		"moved":                  join(lines[0], lines[2], lines[1], lines[3]),
		"of another file":        join(head, lines[1]),
		"a changed entry":        strings.Replace(string(raw), `"entry":"AQ`, `"entry":"AR`, 1),
		"a raised budget":        strings.Replace(string(raw), `"epsilon":5`, `"epsilon":50`, 1),
		"another version":        strings.Replace(string(raw), `"version":1`, `"version":2`, 1),
		"zeros in a line":        strings.Replace(string(raw), `"tail":`, "\x00\x00\x00\x00\x00\x00\x00", 1),
		"an unknown key":         strings.Replace(string(raw), `"tail":`, `"tale":`, 1),
		"no ledger":              "age\n40\n",
		"no line":                "age",
		"nothing":                "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if l, err := OpenLedger(context.Background(), path, Budget{}); err == nil {
			t.Errorf("%s: opened with %d questions", name, l.Questions())
			l.Close()
		}
		if left, _ := os.ReadFile(path); string(left) != text {
			t.Errorf("%s: the file was changed", name)
		}
	}
	if _, err := OpenLedger(context.Background(), dir, Budget{}); err == nil {
		t.Error("a folder is opened")
	}
	for _, b := range []Budget{{}, {Epsilon: -1, Delta: 1e-5}, {Epsilon: 1}, {Epsilon: 1, Delta: 1}} {
		if _, err := OpenLedger(context.Background(), filepath.Join(dir, "new"), b); !errors.Is(err, ErrInput) {
			t.Errorf("%+v begins a ledger: %v", b, err)
		}
	}
}

// The cost in a ledger covers what each question costs alone, and questions of other trusts add up.
func TestLedgerAddsTrustsUp(t *testing.T) {
	path := people(t, 300)
	l := opened(t, filepath.Join(t.TempDir(), "budget"), 8)
	last := 0.0
	for _, c := range []Config{{}, {NoiseBy: "aggregators"}, {Trust: "central"}, {Trust: "local"}, {Sample: 200}} {
		c.Epsilon = 1
		p, rows := plan(t, path, Asked{Measure: "count", Where: "age>=40"}, c)
		r, err := p.Run(context.Background(), RunConfig{Rows: rows, Ledger: l})
		if err != nil {
			t.Fatalf("%+v: %v", c, err)
		}
		if !(r.All.Eps > last && r.All.Eps >= r.Spent.Eps && r.Spent.Eps <= 1) {
			t.Errorf("%+v: %v alone, all %v, before %v", c, r.Spent.Eps, r.All.Eps, last)
		}
		last = r.All.Eps
	}
}

// The refusal of the second question says once that the budget is exceeded, and why its figure is so high.
func TestLedgerRefusesTheSecondQuestion(t *testing.T) {
	p, c := counted(t, .5)
	c.Ledger = opened(t, filepath.Join(t.TempDir(), "budget"), .6)
	if _, err := p.Run(context.Background(), c); err != nil {
		t.Fatal(err)
	}
	p, _ = counted(t, .4)
	_, err := p.Run(context.Background(), c)
	if want := "above 0.6: budget exceeded; from the second question on all are counted as if chosen upon earlier answers"; !errors.Is(err, ledger.ErrBudget) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// Who could put an older file into the place of the ledger could raise the budget.
func TestLedgerInADirectoryOfOthers(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("directories have no modes")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenLedger(context.Background(), filepath.Join(dir, "budget"), Budget{Epsilon: 3, Delta: 1e-5}); err == nil || !strings.Contains(err.Error(), "others may write") {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left %v, %v", left, err)
	}
}

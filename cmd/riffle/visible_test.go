package main

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/learn/external/externaltest"
)

func TestVisible(t *testing.T) {
	for text, want := range map[string]string{
		"plain äöü ≤ ε\n\tx":    "plain äöü ≤ ε\n\tx",
		"\x1b[1;31mred\x1b[0m.": "red.",
		"\x1b]0;title\abell\b":  "]0;titlebell",
		"\u009b2Jc1":            "2Jc1",
		"open\x1b[12":           "open",
		"\x1b[1\n2m":            "\n2m",
		"back\rline\x7f":        "backline",
		"a\u202eb\u2066c":       "abc",
		"bad \xff\x1b[m\xfe":    "bad \xff\xfe",
		"latin \x9b2J \xe9":     "latin 2J \xe9",
		"\x1b":                  "",
	} {
		if got := visible(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// A program's errors, its standard error and a file's names do not steer the terminal.
func TestNothingSteersTheTerminal(t *testing.T) {
	var out, errs bytes.Buffer
	if code := run([]string{"gradients", "check", externaltest.Program("steers")}, &out, &errs); code != 1 {
		t.Fatal(code, errs.String())
	}
	for _, want := range []string{"  | ]0;titlered 2Jnwod\n", "it says: no data"} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("%q is missing in %q", want, errs.String())
		}
	}
	if text := out.String() + errs.String(); strings.ContainsAny(text, "\x1b\a\u009b\u202e") {
		t.Errorf("%q", text)
	}
	var p printer
	p.w = &out
	out.Reset()
	p.row("\x1b[5mlabel", "%s", "\x1b[6mvalue")
	p.line("%s", "\x1b[7mline")
	output{}.note(&out, "%s", "\x1b[8mnote")
	if got, want := out.String(), "label                value\nline\nriffle: note\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// A writer passes on whole characters, however its text is cut.
func TestWritersAreVisible(t *testing.T) {
	text := "name \u202e\x1b[31mred\x1b[0m ≤ \u009bx\tend\n"
	for cut := 1; cut < 5; cut++ {
		var out bytes.Buffer
		w := &visibleWriter{w: &out}
		for part := range slices.Chunk([]byte(text), cut) {
			if n, err := w.Write(part); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got := out.String(); steering(got) >= 0 || !strings.HasPrefix(got, "name ") || !strings.HasSuffix(got, " ≤ x\tend\n") {
			t.Errorf("in pieces of %d: %q", cut, got)
		}
	}
}

// The names of a table's columns and classes, and those in a model's file, reach no terminal as they are. JSON says
// them whole.
func TestNamesInFilesDoNotSteer(t *testing.T) {
	dir := t.TempDir()
	column, yes := "age\x1b]0;owned\a\u202e", "yes\u009b2J\ntest accuracy        99.99 %"
	var table strings.Builder
	w := csv.NewWriter(&table)
	err := w.Write([]string{column, "y"})
	for i := range 40 {
		err = errors.Join(err, w.Write([]string{fmt.Sprint(i % 10), []string{"no\x1b[8m", yes}[i%10/5]}))
	}
	w.Flush()
	path := filepath.Join(dir, "t.csv")
	if err := errors.Join(err, w.Error(), os.WriteFile(path, []byte(table.String()), 0o600)); err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(dir, "run")
	for _, args := range [][]string{
		{"data", "info", "--data", path, "--label", "y", "--ranges"},
		{"train", "--data", path, "--label", "y", "--trust", "none", "--rounds", "3", "--out", own},
		{"predict", own, "--coefficients"},
		{"predict", own, "--data", path},
		{"eval", own},
		{"eval", own, "--json"},
		{"train", "--data", path, "--label", column, "--trust", "none"},
		{"train", "--data", path, "--label", "y", "--classes", "a|b", "--trust", "none"},
		{"data", "info", "--data", path, "--label", "x\x1b[2J"},
	} {
		var out, errs bytes.Buffer
		code := run(args, &out, &errs)
		if text := out.String() + errs.String(); steering(text) >= 0 || code != exitDone && code != exitUsage || strings.Contains(text, "\ntest accuracy        99.99 %\n") {
			t.Errorf("%q: exit %d, %q", args, code, text)
		}
	}
	info := jsonOf(t, "data", "info", "--data", path, "--label", "y", "--json")
	if names := fmt.Sprintf("%q %q", info["columns"], info["classes"]); names != fmt.Sprintf("%q %q", []string{column}, []string{"no\x1b[8m", yes}) {
		t.Errorf("%s", names)
	}
	// A file has the names as they are.
	if code := run([]string{"predict", own, "--coefficients", "--out", filepath.Join(dir, "c.csv")}, io.Discard, io.Discard); code != 0 {
		t.Fatal(code)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "c.csv")); err != nil || !strings.Contains(string(raw), column) {
		t.Errorf("%q, %v", raw, err)
	}
}

package main

import (
	"bytes"
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

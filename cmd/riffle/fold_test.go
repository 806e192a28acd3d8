package main

import "testing"

func TestFold(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"one two three\nfour", 9, "one two\nthree\nfour"},
		{"one two three\nfour", 80, "one two three four"},
		{"ε₀ of a report", 5, "ε₀ of\na\nreport"},
		{"a long word stands\n\nalone   here", 7, "a long\nword\nstands\n\nalone\nhere"},
		{"before:\n\n  riffle  eps   # kept\n  riffle plan\n\nafter it", 6, "before:\n\n  riffle  eps   # kept\n  riffle plan\n\nafter\nit"},
		{"text then\n  indented\n", 80, "text then\n  indented"},
		{"", 80, ""},
	} {
		if got := fold(c.text, c.width); got != c.want {
			t.Errorf("fold(%q, %d) = %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

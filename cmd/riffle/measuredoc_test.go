package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestMeasureDocument runs the commands riffle measure and data that docs/measure.md shows, one after
// the other, and compares what it shows below a command with what that prints. A line of … stands for
// anything.
func TestMeasureDocument(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "measure.md"))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	var printed []string // by the last command, without what was shown of it
	commands := 0
	lines := strings.Split(string(raw), "\n")
	for i := 0; i < len(lines); i++ {
		line, ok := strings.CutPrefix(lines[i], "    ")
		if !ok {
			printed = nil
			continue
		}
		if strings.HasPrefix(line, "riffle ") && !strings.HasPrefix(line, "riffle measure ") && !strings.HasPrefix(line, "riffle data ") {
			printed = nil // of a network, whose processes other tests start
			continue
		}
		if !strings.HasPrefix(line, "riffle ") {
			for line != "…" && printed != nil {
				if len(printed) == 0 {
					t.Fatalf("line %d: %q is not printed", i+1, line)
				}
				next := printed[0]
				if printed = printed[1:]; next == line {
					break
				}
			}
			continue
		}
		for strings.HasSuffix(line, "\\") {
			i++
			line = strings.TrimSuffix(line, "\\") + strings.TrimSpace(lines[i])
		}
		line, exits, _ := strings.Cut(line, "   # exit ")
		want := exitDone
		if exits != "" {
			want = int(exits[0] - '0')
		}
		args, err := shellWords(line)
		if err != nil {
			t.Fatalf("line %d: %v", i+1, err)
		}
		var out, problems bytes.Buffer
		if code := run(args[1:], &out, &problems); code != want {
			t.Fatalf("line %d: %s: exit code %d, want %d: %s", i+1, line, code, want, problems.String())
		}
		commands++
		printed = strings.Split(out.String()+problems.String(), "\n")
	}
	if commands < 10 {
		t.Errorf("%d commands", commands)
	}
}

// shellWords cuts a command into words as a shell does; only single quotes quote.
func shellWords(line string) (out []string, err error) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 {
			out[len(out)-1] += part
			continue
		}
		fresh := i == 0 || strings.HasPrefix(part, " ")
		for j, word := range strings.Fields(part) {
			if j == 0 && !fresh {
				out[len(out)-1] += word
				continue
			}
			out = append(out, word)
		}
		if strings.HasSuffix(part, " ") {
			out = append(out, "")
		}
	}
	if strings.Count(line, "'")%2 != 0 {
		return nil, fmt.Errorf("an open quote in %s", line)
	}
	return slices.DeleteFunc(out, func(word string) bool { return word == "" }), nil
}

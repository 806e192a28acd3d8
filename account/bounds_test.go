package account

import (
	"flag"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

var update = flag.Bool("update", false, "rewrite the table of docs/BOUNDS.md")

const (
	boundsFile  = "../docs/BOUNDS.md"
	boundsBegin = "| id | bound | needs | also | functions | theorem |\n"
	boundsEnd   = "\n\n`dp.Accountant` answers"
)

// The table of docs/BOUNDS.md is what Methods says.
func TestBoundsTable(t *testing.T) {
	text, err := os.ReadFile(boundsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(text), boundsBegin)
	have, after, ended := strings.Cut(rest, boundsEnd)
	if !begun || !ended {
		t.Fatalf("%s has no table between %q and %q", boundsFile, boundsBegin, boundsEnd)
	}
	rows := []string{"|---|---|---|---|---|---|"}
	for _, m := range Methods() {
		rows = append(rows, tableRow(m))
	}
	want := strings.Join(rows, "\n")
	switch {
	case have == want:
	case *update:
		if err := os.WriteFile(boundsFile, []byte(before+boundsBegin+want+boundsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("the table of %s is not that of account.Methods: go test ./account -run TestBoundsTable -update", boundsFile)
	}
}

var note = regexp.MustCompile(`(?:[a-z0-9]+/)+[a-z]+\.md`)

// link turns the paths of notes into links.
func link(text string) string {
	return note.ReplaceAllStringFunc(text, func(p string) string { return "[" + path.Base(p) + "](../" + p + ")" })
}

func tableRow(m Method) string {
	bound := fmt.Sprintf("%s, %s", m.Kind, m.Status)
	if m.Kind == dp.Approximate {
		bound = string(m.Kind)
	}
	if m.Adjacency != dp.ReplaceOne {
		bound += ", **" + string(m.Adjacency) + " one client**"
	}
	var also []string
	for i, is := range []bool{m.Best, m.Colluders, m.Adaptive, m.Cross} {
		if is {
			also = append(also, []string{"best", "colluders", "within", "cross"}[i])
		}
	}
	theorem := m.Source
	if m.Proofs != "" {
		theorem += "; " + strings.ReplaceAll(m.Proofs, " ", ", ")
	}
	id := "`" + m.ID + "`"
	if m.Class == VectorSumClass {
		id += " of vector sums"
	}
	functions := "`" + strings.ReplaceAll(m.Calls, ", ", "`, `") + "`"
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |", id, bound, m.Needs, strings.Join(also, ", "), functions, link(theorem))
}

// What a row names exists: its functions, and the notes with its proofs.
func TestBoundsNameWhatExists(t *testing.T) {
	dirs := map[string]string{"amplify": "../dp/amplify", "literature": "../dp/amplify/literature", "pld": "../dp/pld", "rdp": "../dp/rdp", "gdp": "../dp/gdp",
		"vecsum": "../mechanism/vecsum", "account": "."}
	seen := map[string]bool{}
	for _, m := range Methods() {
		if key := m.ID + " " + string(m.Class); seen[key] {
			t.Errorf("two rows %s", key)
		} else {
			seen[key] = true
		}
		if m.Needs == "" || m.Source == "" || m.Calls == "" || (m.ask == nil) && (m.sum == nil) && (m.divergence == nil) {
			t.Errorf("%s: a row without what it needs, a source, functions, or a way to ask it", m.ID)
		}
		for _, p := range note.FindAllString(m.Source+" "+m.Proofs, -1) {
			if _, err := os.Stat("../" + p); err != nil {
				t.Errorf("%s: %v", m.ID, err)
			}
		}
		for _, call := range strings.Split(m.Calls, ", ") {
			parts := strings.Split(call, ".")
			name := parts[len(parts)-1]
			declared := regexp.MustCompile(`(?m)^(?:type |func |func \(\w+ \*?\w+\) )` + name + `\b`)
			files, _ := filepath.Glob(dirs[parts[0]] + "/*.go") // the pattern is well formed
			found := false
			for _, f := range files {
				text, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				found = found || !strings.HasSuffix(f, "_test.go") && declared.Match(text)
			}
			if !found {
				t.Errorf("%s: %s is declared nowhere", m.ID, call)
			}
		}
	}
}

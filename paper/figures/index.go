package figures

import (
	"bytes"
	_ "embed"
	"encoding/csv"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
)

var (
	//go:embed index.html
	indexSource string
	//go:embed figures.css
	indexStyle []byte
)

// entry is a figure in the index.
type entry struct {
	figure
	Picture bool
	Narrow  bool
	Table   table
	Found   []string // notes from the figure's file
}

// About is the heading of the notes.
func (e entry) About() string {
	if e.Paper == ownFigures {
		return "What is compared"
	}
	return "Where it differs, and why"
}

type paper struct {
	Name    string
	Entries []entry
}

// writeIndex lists all figures in the directory, including those of earlier calls.
func writeIndex(dir, plan string) error {
	var papers []paper
	missing := 0
	for _, f := range all() {
		note, err := durable.ReadFile(filepath.Join(dir, f.Name+".md"))
		if errors.Is(err, fs.ErrNotExist) {
			missing++
			continue
		}
		if err != nil {
			return fmt.Errorf("figures: %v", err)
		}
		e := entry{figure: f, Found: notesOf(string(note))}
		if _, err := os.Stat(filepath.Join(dir, f.Name+".svg")); err == nil {
			e.Picture = true
		}
		if _, err := os.Stat(filepath.Join(dir, f.Name+narrow)); err == nil {
			e.Narrow = true
		}
		if f.tabular() {
			if e.Table, err = readTable(filepath.Join(dir, f.Name+".csv")); err != nil {
				return err
			}
		}
		if len(papers) == 0 || papers[len(papers)-1].Name != f.Paper {
			papers = append(papers, paper{Name: f.Paper})
		}
		last := &papers[len(papers)-1]
		last.Entries = append(last.Entries, e)
	}
	t, err := template.New("index").Parse(indexSource)
	if err != nil {
		return fmt.Errorf("figures: %v", err)
	}
	var page bytes.Buffer
	if err := t.Execute(&page, map[string]any{"Papers": papers, "Missing": missing, "Plan": plan}); err != nil {
		return fmt.Errorf("figures: %v", err)
	}
	for name, text := range map[string][]byte{"figures.css": indexStyle, "index.html": page.Bytes()} {
		if err := durable.WriteFile(filepath.Join(dir, name), text); err != nil {
			return fmt.Errorf("figures: %v", err)
		}
	}
	return nil
}

// tabular says whether the figure's CSV is its table.
func (f figure) tabular() bool {
	return strings.Contains(f.Name, "table") || f.Name == claimsName
}

func readTable(file string) (table, error) {
	text, err := durable.ReadFile(file)
	if err != nil {
		return table{}, fmt.Errorf("figures: %v", err)
	}
	rows, err := csv.NewReader(bytes.NewReader(text)).ReadAll()
	if err != nil || len(rows) == 0 {
		return table{}, fmt.Errorf("figures: %s: %v", file, err)
	}
	return table{rows[0], rows[1:]}, nil
}

// notesOf returns the list below the heading of a note.
func notesOf(text string) []string {
	_, list, _ := strings.Cut(text, notesHead+"\n")
	var out []string
	for line := range strings.Lines(list) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "- "); ok {
			out = append(out, n)
		}
	}
	return out
}

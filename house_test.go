package riffle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// mostTrustFiles is how many files outside tests may mention a trust mode by name.
// All others ask dp.Trust's methods what a mode means.
const mostTrustFiles = 12

// trusts returns the names and the texts of dp.Trust's constants.
func trusts(t *testing.T) (names, texts []string) {
	t.Helper()
	for _, d := range parsed(t, "dp/trust.go").Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range gen.Specs {
			v, ok := s.(*ast.ValueSpec)
			if !ok || len(v.Values) != 1 {
				continue
			}
			if of, ok := v.Type.(*ast.Ident); ok && of.Name == "Trust" {
				text, err := strconv.Unquote(v.Values[0].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				names, texts = append(names, v.Names[0].Name), append(texts, text)
			}
		}
	}
	return names, texts
}

func parsed(t *testing.T, file string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// A file mentions a mode by a constant of dp or by its quoted text, whatever that
// stands for there; comments count.
func TestFewFilesNameATrustMode(t *testing.T) {
	names, texts := trusts(t)
	if len(names) < 6 {
		t.Fatalf("found only the modes %v", names)
	}
	mention := regexp.MustCompile(`\bdp\.(` + strings.Join(names, "|") + `)\b|"(` + strings.Join(texts, "|") + `)"`)
	var found []string
	for _, s := range load(t) {
		if s.pkg == "service/lab" { // for tests
			continue
		}
		raw, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		named := mention.Match(raw)
		if s.pkg == "dp" {
			ast.Inspect(parsed(t, s.path), func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && slices.Contains(names, id.Name) {
					named = true
				}
				return true
			})
		}
		if named {
			found = append(found, s.path)
		}
	}
	if len(found) > mostTrustFiles {
		t.Errorf("%d files mention a trust mode by name, at most %d may:\n%s", len(found), mostTrustFiles, strings.Join(found, "\n"))
	}
}

// CONTRIBUTING.md says which files to touch for what is added often, in lists
//
//	```touch 12 a trust mode
//	dp/trust.go: Trust, modes -- its name and its row
//	```
//
// of at most so many files. A Go file declares what is named in it, a method as
// Type.Method or by its name alone; any other file has the words.
func TestWorkedLists(t *testing.T) {
	raw, err := os.ReadFile("CONTRIBUTING.md")
	if err != nil {
		t.Fatal(err)
	}
	lists := regexp.MustCompile("(?ms)^```touch (\\d+) ([^\n]+)\n(.*?)\n```$").FindAllStringSubmatch(string(raw), -1)
	if len(lists) == 0 {
		t.Fatal("no list is found")
	}
	for _, list := range lists {
		most, _ := strconv.Atoi(list[1])
		lines := strings.Split(list[3], "\n")
		if len(lines) > most {
			t.Errorf("to add %s, %d files are to be touched, at most %d may", list[2], len(lines), most)
		}
		for _, line := range lines {
			where, what, _ := strings.Cut(line, " -- ")
			file, wanted, _ := strings.Cut(where, ": ")
			if strings.TrimSpace(what) == "" {
				t.Errorf("%s: %q does not say what to do", list[2], line)
			}
			there := contents(t, file)
			for _, name := range strings.Split(wanted, ", ") {
				if name != "" && !there(strings.TrimSpace(name)) {
					t.Errorf("to add %s: %s has no %s", list[2], file, name)
				}
			}
		}
	}
}

// contents says of a name whether a file has it.
func contents(t *testing.T, file string) func(name string) bool {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Errorf("CONTRIBUTING.md: %v", err)
	}
	if err != nil || !strings.HasSuffix(file, ".go") {
		return func(name string) bool { return strings.Contains(string(raw), name) }
	}
	var declared []string
	for _, d := range parsed(t, file).Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			declared = append(declared, d.Name.Name)
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if id, ok := of.(*ast.Ident); ok {
					declared = append(declared, id.Name+"."+d.Name.Name)
				}
			}
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					declared = append(declared, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						declared = append(declared, n.Name)
					}
				}
			}
		}
	}
	return func(name string) bool { return slices.Contains(declared, name) }
}

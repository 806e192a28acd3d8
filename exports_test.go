package riffle_test

import (
	"bytes"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostExported bounds the exported functions, types and methods of the module, generated
// code and what only tests can import aside. It may fall but not rise: a name is exported if another package needs it, or
// somebody who uses a package as a library.
const mostExported = 1790

var exported = regexp.MustCompile(`(?m)^(func|type) [A-Z]|^func \([^)]*\) [A-Z]`)

func TestFewNamesAreExported(t *testing.T) {
	count := 0
	for _, s := range load(t) {
		path := filepath.ToSlash(s.path)
		if strings.HasPrefix(path, "service/proto/") || strings.HasPrefix(path, "service/lab/") || strings.Contains(path, "_amd64") || strings.Contains(path, "kernel/gen") {
			continue
		}
		raw, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		count += len(exported.FindAllIndex(raw, -1))
	}
	t.Logf("%d exported functions, types and methods", count)
	if count > mostExported {
		t.Errorf("%d exported functions, types and methods; at most %d may be", count, mostExported)
	}
}

// TestPackagesSayWhatTheyAreFor holds that each package's comment begins with a sentence
// about it.
func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	comments := map[string]int{}
	for _, s := range load(t) {
		tree, err := parser.ParseFile(token.NewFileSet(), s.path, nil, parser.ParseComments|parser.PackageClauseOnly)
		if err != nil {
			t.Fatal(err)
		}
		first := "Package " + tree.Name.Name + " "
		if tree.Name.Name == "main" {
			first = "Command " + filepath.Base(s.pkg) + " "
		}
		raw, err := os.ReadFile(s.path)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(s.pkg, "service/proto/") || bytes.HasPrefix(raw, []byte("// Code generated")) {
			continue
		}
		if tree.Doc == nil {
			comments[s.pkg] += 0
			continue
		}
		text := tree.Doc.Text()
		comments[s.pkg]++
		sentence := new(doc.Package).Synopsis(text)
		if words := strings.Fields(sentence); !strings.HasPrefix(text, first) || len(words) < 6 {
			t.Errorf("%s: the comment must begin with %q and a sentence on what it is for, not %q", s.path, first, sentence)
		}
	}
	for pkg, n := range comments {
		if n != 1 {
			t.Errorf("package %s has %d comments, want one", pkg, n)
		}
	}
}

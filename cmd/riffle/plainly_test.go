package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestErrorsWithoutPackages(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"operate: configuration: x.yaml: no such file", "configuration: x.yaml: no such file"},
		{"operate: store: no store in d", "no store in d"},
		{"role shuffler: operate: configuration: x", "role shuffler: configuration: x"},
		{"ledger: a\nstore: b\n", "a\nb"},
		{"plan: no such file", "plan: no such file"}, // an argument
		{"train: plan: no such file", "plan: no such file"},
		{"batch: unexpected", "batch: unexpected"},     // the value of a flag
		{"stores: x", "stores: x"},                     // no package
		{"open data: store: x", "open data: store: x"}, // not at the beginning
		{"train: epsilon = 1 cannot be planned for: account: dp: no eps0", "epsilon = 1 cannot be planned for: no eps0"},
		{"a.yaml: line 2: randomizer: y", "a.yaml: line 2: randomizer: y"}, // a key
		{"model m: plan: dataset: y", "model m: plan: y"},
		{"open: dataset", "open: dataset"}, // what is said
		{"wire:x", "wire:x"},               // no prefix
		{"--config is required", "--config is required"},
	} {
		if got := withoutPackages(c.text, []string{"x", "plan", "--out=batch"}); got != c.want {
			t.Errorf("%q: %q, want %q", c.text, got, c.want)
		}
	}
}

// Every package of the module that begins errors with its name is known.
func TestPackagesAreKnown(t *testing.T) {
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		forTests := d.Name() == "memnet" || d.Name() == "lab"
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata" || d.Name() == "third_party" || forTests) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name := filepath.Base(filepath.Dir(path))
		if !strings.HasSuffix(name, "test") && strings.Contains(string(b), "package "+name+"\n") && strings.Contains(string(b), `("`+name+`: `) && !slices.Contains(packages, name) {
			t.Errorf("package %s (%s) is not known", name, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

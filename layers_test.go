package riffle_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/riffle-dp/riffle"

// layers is the house's plan: a package imports packages of lower layers only.
// ARCHITECTURE.md draws it.
var layers = [][]string{
	{"dp", "rng", "picture", "internal/monotone", "internal/durable", "internal/loopback", "third_party/uplot", "third_party/wasmexec", "store/natstest", "internal/browsertest", "internal/longtest",
		"model/internal/kernel", "model/internal/kernel/gen"},
	{"gdp", "pld", "rdp", "sample", "safetensors", "wire", "proto/riffle/operator/v1", "internal/tail", "certificate"},
	{"amplify", "ledger", "randomizer", "vecsum", "feature", "report", "schedule", "envelope"},
	{"account", "audit", "optimize", "model", "dataset", "dataset/mnist", "mechanism", "vecsum/prio3", "endpoint", "store", "dashboard"},
	{"client", "shuffler", "coordinator", "service/batch", "service/batch/batchtest", "service/document",
		"plan", "plan/wasm", "plan/generate"},
	{"simulate", "service/shuffler", "service/coordinator", "service/aggregator"},
	{"train", "solve"},
	{"experiment"},
	{"operate", "figures"},
	{"cmd/riffle"},
}

// within names the imports allowed inside a layer: a package and its part,
// and what tests of pages are built on.
var within = map[string]string{"dataset/mnist": "dataset", "internal/browsertest": "internal/longtest"}

// mustNotReach holds the trust domains: what a role may not get at, even
// through others.
var mustNotReach = map[string][]string{
	"shuffler":           {"randomizer", "model", "optimize", "ledger", "coordinator", "client"},
	"service/shuffler":   {"randomizer", "model", "optimize", "ledger", "coordinator", "client", "mechanism", "account"},
	"service/aggregator": {"model", "optimize", "ledger", "coordinator"},
	"client":             {"ledger", "coordinator", "shuffler", "optimize"},
}

// limited holds imports that only the named packages may make.
var limited = map[string][]string{
	"math/rand/v2": {"rng"},
	// Plots are drawn in one place.
	"gonum.org/v1/plot": {"picture"},
	"math/rand":         {},
	// A generator may need it, a program must not.
	"github.com/mmcloughlin/avo/build":   {"model/internal/kernel/gen"},
	"github.com/mmcloughlin/avo/operand": {"model/internal/kernel/gen"},
	"github.com/mmcloughlin/avo/reg":     {"model/internal/kernel/gen"},
	"golang.org/x/sys/cpu":               {"model/internal/kernel"},
	// Of CIRCL only the one range proof, in one place.
	"github.com/cloudflare/circl/vdaf/prio3/sumvec":      {"vecsum/prio3"},
	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128": {"vecsum/prio3"},
	// Browsers are for tests.
	"github.com/chromedp/chromedp": {"internal/browsertest"},
	// The broker is one package's business.
	"github.com/nats-io/nats-server/v2/server": {"store", "store/natstest"},
	"github.com/nats-io/nats.go":               {"store"},
	"github.com/nats-io/nats.go/jetstream":     {"store"},
	"connectrpc.com/connect":                   {"proto/riffle/operator/v1", "operate", "cmd/riffle"},
	"unsafe":                                   {"rng", "sample", "proto/riffle/operator/v1"}, // words as bytes and as floats, in bulk; generated code
}

// pure packages compute: they neither print, nor read a clock, nor hold state.
var pure = []string{"dp", "gdp", "pld", "rdp", "amplify", "randomizer", "sample", "optimize", "model", "feature",
	"client", "shuffler", "coordinator", "ledger", "wire", "simulate", "audit", "schedule", "vecsum", "vecsum/prio3", "certificate",
	"solve", "mechanism"}

// shells are the files of pure packages that are not: they do for a role what a
// simulation does, over a network and with files.
var shells = []string{"client/book.go", "client/fetch.go", "client/fleet.go", "client/join.go", "client/member.go", "client/rounds.go", "client/session.go", "client/web.go"}

// source is one non-test file of the module.
type source struct {
	pkg     string
	path    string
	imports []string
	calls   []string // pkg.Name selectors used
}

func load(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && file != "." && (strings.HasPrefix(name, ".") || name == "testdata" || name == "runs") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		s := source{pkg: filepath.ToSlash(filepath.Dir(file)), path: file}
		for _, i := range tree.Imports {
			p, err := strconv.Unquote(i.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		s.calls = selectors(tree)
		out = append(out, s)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// selectors lists every x.Name in a file where x is a plain identifier.
func selectors(tree *ast.File) []string {
	var out []string
	ast.Inspect(tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok {
				out = append(out, x.Name+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return out
}

func layerOf(pkg string) int {
	return slices.IndexFunc(layers, func(names []string) bool { return slices.Contains(names, pkg) })
}

func TestImportsGoStrictlyDown(t *testing.T) {
	for _, s := range load(t) {
		if s.pkg == "." {
			continue // the tour: a package comment without code
		}
		from := layerOf(s.pkg)
		if from < 0 {
			t.Errorf("%s: package %s has no layer", s.path, s.pkg)
			continue
		}
		for _, i := range s.imports {
			pkg, ours := strings.CutPrefix(i, module+"/")
			if !ours || within[s.pkg] == pkg {
				continue
			}
			if to := layerOf(pkg); to < 0 || to >= from {
				t.Errorf("%s: layer %d imports %s of layer %d", s.path, from, pkg, to)
			}
		}
	}
}

func TestTrustDomains(t *testing.T) {
	reach := map[string]map[string]bool{}
	for _, s := range load(t) {
		if reach[s.pkg] == nil {
			reach[s.pkg] = map[string]bool{}
		}
		for _, i := range s.imports {
			if pkg, ours := strings.CutPrefix(i, module+"/"); ours {
				reach[s.pkg][pkg] = true
			}
		}
	}
	var visit func(pkg string, seen map[string]bool)
	visit = func(pkg string, seen map[string]bool) {
		for next := range reach[pkg] {
			if !seen[next] {
				seen[next] = true
				visit(next, seen)
			}
		}
	}
	for role, forbidden := range mustNotReach {
		if reach[role] == nil {
			t.Errorf("no package %s", role)
		}
		seen := map[string]bool{}
		visit(role, seen)
		for _, f := range forbidden {
			if seen[f] {
				t.Errorf("%s reaches %s", role, f)
			}
		}
	}
}

func TestAllowedImportsAndCalls(t *testing.T) {
	for _, s := range load(t) {
		for _, i := range s.imports {
			if allowed, ok := limited[i]; ok && !slices.Contains(allowed, s.pkg) {
				t.Errorf("%s imports %s", s.path, i)
			}
			if i == "C" {
				t.Errorf("%s imports C", s.path)
			}
		}
		if !slices.Contains(pure, s.pkg) || slices.Contains(shells, filepath.ToSlash(s.path)) {
			continue
		}
		for _, c := range s.calls {
			if strings.HasPrefix(c, "fmt.Print") || c == "time.Now" || strings.HasPrefix(c, "log.") || strings.HasPrefix(c, "os.") {
				t.Errorf("%s uses %s", s.path, c)
			}
		}
	}
}

// TestCertificatesAreCheckedApart holds that the checker of certificates shares
// no code with what writes them, and no floating-point library either.
func TestCertificatesAreCheckedApart(t *testing.T) {
	allowed := []string{module + "/dp", "bytes", "context", "encoding/json", "errors", "fmt", "maps", "math", "math/big", "math/bits", "slices"}
	files := 0
	for _, s := range load(t) {
		if s.pkg != "certificate" {
			continue
		}
		files++
		for _, i := range s.imports {
			if !slices.Contains(allowed, i) {
				t.Errorf("%s imports %s", s.path, i)
			}
		}
	}
	if files == 0 {
		t.Error("no package certificate")
	}
}

// TestMNISTIsOptional holds that only a program that asks for the embedded
// data carries it.
func TestMNISTIsOptional(t *testing.T) {
	for _, s := range load(t) {
		if slices.Contains(s.imports, module+"/dataset/mnist") && s.pkg != "train" {
			t.Errorf("%s imports the embedded data", s.path)
		}
	}
}

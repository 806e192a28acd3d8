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

// wings is the house's plan, from the top: a package imports packages of its own
// wing and of wings on lower floors. docs/ARCHITECTURE.md draws it.
var wings = [][]string{
	{"cmd"},
	{"web"},
	{"service", "paper"},
	{"run"},
	{"page"},
	{"protocol"},
	{"account", "learn"},
	{"mechanism"},
	{"dp"},
	{"internal"},
}

// inside holds the order within wings where it matters, from the top. A package
// imports only packages of its wing that stand after it; those not named stand last.
var inside = map[string][]string{
	"dp":        {"dp/amplify/literature", "dp/amplify", "dp/gdp", "dp/pld", "dp/rdp", "dp"},
	"mechanism": {"mechanism/vecsum/proved", "mechanism/vecsum/prio3", "mechanism/vecsum/pine", "mechanism/vecsum", "mechanism/toeplitz", "mechanism/randomizer", "mechanism/seed", "mechanism/sample", "mechanism/rng"},
	"account":   {"account/audit", "account", "account/certificate"},
	"learn":     {"learn/external", "learn/dataset/mnist", "learn/dataset", "learn/model", "learn/optimize", "learn/feature", "learn/schedule", "learn/statistic", "learn/model/internal/kernel"},
	"protocol":  {"protocol/client", "protocol/shuffler", "protocol/coordinator", "protocol/ledger", "protocol/mechanism", "protocol/envelope", "protocol/bhttp", "protocol/token/tokentest", "protocol/token", "protocol/wire"},
	"page":      {"page/dashboard", "page/plan", "page/plan/wasm", "page/plan/ask", "page/report", "page/third_party/uplot"},
	"run":       {"run/train", "run/solve", "run/measure", "run/simulate", "run/setting"},
	"paper":     {"paper/experiment", "paper/figures"},
	"service": {"service/lab", "service/operate", "service/config", "service/load", "service/client", "service/shuffler", "service/registrar", "service/coordinator", "service/aggregator", "service/relay", "service/opener", "service/exchange", "service/batch", "service/sealed", "service/lab/memory", "service/mark", "service/document",
		"service/endpoint", "service/store", "service/proto/riffle/operator/v1"},
	"web":      {"web/generate", "web"},
	"internal": {"internal/browsertest", "internal/longtest"},
}

// mustNotReach holds the trust domains: what a role may not get at, even
// through others.
var mustNotReach = map[string][]string{
	"protocol/shuffler":  {"mechanism/randomizer", "mechanism/seed", "learn/model", "learn/optimize", "protocol/ledger", "protocol/coordinator", "protocol/client"},
	"service/shuffler":   {"mechanism/randomizer", "mechanism/seed", "learn/model", "learn/optimize", "protocol/ledger", "protocol/coordinator", "protocol/client", "protocol/mechanism", "account"},
	"service/registrar":  {"mechanism/randomizer", "mechanism/seed", "learn/model", "learn/optimize", "protocol/ledger", "protocol/coordinator", "protocol/client", "protocol/shuffler", "protocol/mechanism", "protocol/envelope", "account"},
	"service/relay":      {"mechanism/randomizer", "mechanism/seed", "learn/model", "learn/optimize", "protocol/ledger", "protocol/coordinator", "protocol/client", "protocol/shuffler", "protocol/mechanism", "account", "service/store"},
	"service/aggregator": {"learn/model", "learn/optimize", "protocol/ledger", "protocol/coordinator"},
	"service/opener":     {"learn/model", "learn/dataset", "protocol/client", "protocol/shuffler", "run/train", "service/coordinator"},
	"protocol/client":    {"protocol/ledger", "protocol/coordinator", "protocol/shuffler", "learn/optimize"},
	"service/client":     {"protocol/ledger", "protocol/coordinator", "protocol/shuffler", "learn/optimize", "learn/model", "account", "service/store"},
}

// limited holds imports that only the named packages may make.
var limited = map[string][]string{
	"math/rand/v2": {"mechanism/rng", "internal/netlab"},
	// Plots are drawn in one place.
	"gonum.org/v1/plot": {"internal/picture"},
	"math/rand":         {},
	// A generator may need it, a program must not.
	"github.com/mmcloughlin/avo/attr":    {"mechanism/seed/gen"},
	"github.com/mmcloughlin/avo/build":   {"learn/model/internal/kernel/gen", "mechanism/seed/gen"},
	"github.com/mmcloughlin/avo/operand": {"learn/model/internal/kernel/gen", "mechanism/seed/gen"},
	"github.com/mmcloughlin/avo/reg":     {"learn/model/internal/kernel/gen", "mechanism/seed/gen"},
	"golang.org/x/sys/cpu":               {"learn/model/internal/kernel", "mechanism/seed"},
	// Of CIRCL the one range proof, in one place.
	"github.com/cloudflare/circl/vdaf/prio3/sumvec":      {"mechanism/vecsum/prio3"},
	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128": {"mechanism/vecsum/prio3"},
	// Blind signatures, in one place.
	"github.com/cloudflare/circl/blindsign/blindrsa": {"protocol/token"},
	// The permutation of TurboSHAKE128.
	"github.com/cloudflare/circl/simd/keccakf1600": {"mechanism/vecsum/pine"},
	// Browsers are for tests, and so is what imports testing.
	"github.com/chromedp/chromedp": {"internal/browsertest"},
	"testing":                      {"internal/browsertest", "internal/golden", "internal/longtest", "internal/memnet", "internal/netlab", "learn/external/externaltest", "service/lab"},
	"github.com/riffle-dp/riffle/internal/golden": {},
	// The broker is one package's business.
	"github.com/nats-io/nats-server/v2/server": {"service/store", "service/store/natstest"},
	"github.com/nats-io/nats.go":               {"service/store"},
	"github.com/nats-io/nats.go/jetstream":     {"service/store"},
	"connectrpc.com/connect":                   {"service/proto/riffle/operator/v1", "service/operate", "cmd/riffle"},
	"unsafe":                                   {"mechanism/rng", "mechanism/sample", "service/proto/riffle/operator/v1"}, // words as bytes and as floats, in bulk; generated code
}

// pure packages compute: they neither print, nor read a clock, nor hold state.
var pure = []string{"dp", "dp/gdp", "dp/pld", "dp/rdp", "dp/amplify", "dp/amplify/literature", "mechanism/randomizer", "mechanism/seed", "mechanism/sample", "learn/optimize", "learn/model", "learn/feature",
	"protocol/client", "protocol/shuffler", "protocol/coordinator", "protocol/ledger", "protocol/wire", "run/simulate", "account/audit", "learn/schedule", "mechanism/vecsum", "mechanism/vecsum/prio3", "mechanism/vecsum/pine", "mechanism/vecsum/proved", "mechanism/toeplitz", "account/certificate",
	"run/solve", "protocol/mechanism", "protocol/token", "learn/statistic"}

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

// floorOf returns a package's floor, from the top, and its place in its wing.
func floorOf(pkg string) (floor, place int) {
	wing, _, _ := strings.Cut(pkg, "/")
	floor = slices.IndexFunc(wings, func(names []string) bool { return slices.Contains(names, wing) })
	place = slices.Index(inside[wing], pkg)
	if place < 0 {
		place = len(inside[wing])
	}
	return floor, place
}

func TestImportsGoStrictlyDown(t *testing.T) {
	there := map[string]bool{}
	for _, s := range load(t) {
		there[s.pkg] = true
		if s.pkg == "." {
			continue // the tour: a package comment without code
		}
		from, place := floorOf(s.pkg)
		if from < 0 {
			t.Errorf("%s: package %s is in no wing", s.path, s.pkg)
			continue
		}
		wing, _, _ := strings.Cut(s.pkg, "/")
		for _, i := range s.imports {
			pkg, ours := strings.CutPrefix(i, module+"/")
			if !ours {
				continue
			}
			to, below := floorOf(pkg)
			within := to == from && strings.HasPrefix(pkg+"/", wing+"/") && below > place
			if to <= from && !within {
				t.Errorf("%s imports %s, which is not below it", s.path, pkg)
			}
		}
	}
	for wing, order := range inside {
		for _, pkg := range order {
			if !there[pkg] {
				t.Errorf("wing %s has no package %s", wing, pkg)
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
	files := load(t)
	for _, pkg := range pure {
		if !slices.ContainsFunc(files, func(s source) bool { return s.pkg == pkg }) {
			t.Errorf("no package %s", pkg)
		}
	}
	for _, s := range files {
		for _, i := range s.imports {
			if allowed, ok := limited[i]; ok && !slices.Contains(allowed, s.pkg) {
				t.Errorf("%s imports %s", s.path, i)
			}
			if i == "C" {
				t.Errorf("%s imports C", s.path)
			}
		}
		if !slices.Contains(pure, s.pkg) {
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
	allowed := []string{module + "/dp", "bytes", "context", "encoding/json", "errors", "fmt", "maps", "math", "math/big", "math/bits", "slices", "sync", "sync/atomic"}
	files := 0
	for _, s := range load(t) {
		if s.pkg != "account/certificate" {
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

// TestLabIsForTests holds that only tests import the roles' laboratory.
func TestLabIsForTests(t *testing.T) {
	lab := module + "/service/lab"
	for _, s := range load(t) {
		if strings.HasPrefix(s.pkg+"/", "service/lab/") {
			continue
		}
		for _, i := range s.imports {
			if strings.HasPrefix(i+"/", lab+"/") {
				t.Errorf("%s imports %s, which is for tests", s.path, i)
			}
		}
	}
}

// TestMNISTIsOptional holds that only a program that asks for the embedded
// data carries it.
func TestMNISTIsOptional(t *testing.T) {
	for _, s := range load(t) {
		if slices.Contains(s.imports, module+"/learn/dataset/mnist") && s.pkg != "run/train" {
			t.Errorf("%s imports the embedded data", s.path)
		}
	}
}

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
)

// before is a folder of files that an earlier version of the program left, and of
// what it printed. Its README.md says which version, and how they were made.
const before = "testdata/before"

// doneBefore is a line of before/commands.
type doneBefore struct {
	kind, name string
	digest     string // of the model; "-" where there is none
	args       []string
}

// slowBefore takes a second or more each.
var slowBefore = []string{"train vector-sum-check-in", "train distributed-check-in", "resume psgd", "resume pca-mlp", "print solve-distributed",
	"print solve-shuffle", "print verify-check-in", "print plan-eps0"}

// commandsBefore goes to the folder and returns what was done there.
func commandsBefore(t *testing.T, kind string) (out []doneBefore) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs a process for each command")
	}
	t.Chdir(before)
	text, err := os.ReadFile("commands")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 4 {
			t.Fatalf("commands: %q", line)
		}
		if f[0] == kind && (longtest.On || !slices.Contains(slowBefore, f[0]+" "+f[1])) {
			out = append(out, doneBefore{f[0], f[1], f[2], f[3:]})
		}
	}
	if len(out) == 0 {
		t.Fatalf("commands: no %s", kind)
	}
	return out
}

//go:noinline
func fused(x, y, z float64) bool { return x*y+z != float64(x*y)+z }

// sameMachine is whether floating-point results are those of the machine that made
// the files, bit for bit: an x86-64 processor with AVX2 and FMA (others take other
// kernels, and math.Exp another path), and a compiler that does not fuse multiply
// and add (GOAMD64=v3 does).
func sameMachine() bool {
	return runtime.GOARCH == "amd64" && cpu.X86.HasAVX2 && cpu.X86.HasFMA && !fused(.1, 10, -1)
}

func onSameMachine(t *testing.T) {
	t.Helper()
	if !sameMachine() {
		t.Skip("the files were made on x86-64 with AVX2 and FMA, where results are equal bit for bit")
	}
}

func digestOf(t *testing.T, dir string) string {
	t.Helper()
	sum := sha256.Sum256(modelOf(t, dir))
	return hex.EncodeToString(sum[:])
}

// Equal settings and seeds give the model that they gave before, bit for bit.
func TestModelsAsBefore(t *testing.T) {
	onSameMachine(t)
	for _, c := range commandsBefore(t, "train") {
		t.Run(c.name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			want(t, exitDone, "", append(append([]string{"train"}, c.args...), "--out", out, "--quiet")...)
			if got := digestOf(t, out); got != c.digest {
				t.Errorf("riffle train %s: model %s, before %s", strings.Join(c.args, " "), got, c.digest)
			}
		})
	}
}

// A run in which the version before was killed goes on, and ends with the model that it
// would have had; its configuration alone gives that model, too.
func TestRunsBeforeGoOn(t *testing.T) {
	for _, c := range commandsBefore(t, "resume") {
		t.Run(c.name, func(t *testing.T) {
			run := filepath.Join(t.TempDir(), "run")
			if err := os.CopyFS(run, os.DirFS(filepath.Join("runs", c.name))); err != nil {
				t.Fatal(err)
			}
			want(t, exitDone, "", "train", "--resume", run, "--quiet")
			again := filepath.Join(t.TempDir(), "again")
			want(t, exitDone, "", "train", "--config", filepath.Join("runs", c.name, "config.yaml"), "--out", again, "--quiet")
			if !sameMachine() {
				return
			}
			if got := digestOf(t, run); got != c.digest {
				t.Errorf("resumed: model %s, before %s", got, c.digest)
			}
			if got := digestOf(t, again); got != c.digest {
				t.Errorf("from its configuration: model %s, before %s", got, c.digest)
			}
		})
	}
}

// What is computed and printed is what was printed: bounds, plans, solutions, and the
// checks of certificates that the version before wrote. Keys may be added.
func TestPrintsAsBefore(t *testing.T) {
	onSameMachine(t)
	for _, c := range commandsBefore(t, "print") {
		t.Run(c.name, func(t *testing.T) {
			was, err := os.ReadFile(filepath.Join("printed", c.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			is := want(t, exitDone, "", append(slices.Clone(c.args), "--json")...)
			if err := stillSaid(decoded(t, was), decoded(t, []byte(is)), ""); err != nil {
				t.Errorf("riffle %s: %v", strings.Join(c.args, " "), err)
			}
		})
	}
}

// Certificates are written as they were, to the byte.
func TestCertificatesAsBefore(t *testing.T) {
	onSameMachine(t)
	for _, c := range commandsBefore(t, "certify") {
		t.Run(c.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "certificate.json")
			want(t, exitDone, "", append(append([]string{"eps"}, c.args...), "--certificate", path)...)
			was, err := os.ReadFile(filepath.Join("certificates", c.name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			is, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(was, is) {
				t.Errorf("riffle eps %s: another certificate\n%s", strings.Join(c.args, " "), is)
			}
		})
	}
}

// Recorded experiments are not run again, and take more seeds.
func TestExperimentsBeforeGoOn(t *testing.T) {
	for _, c := range commandsBefore(t, "experiment") {
		t.Run(c.name, func(t *testing.T) {
			was, err := os.ReadFile(filepath.Join("experiments", c.name, "results.csv"))
			if err != nil {
				t.Fatal(err)
			}
			dir := filepath.Join(t.TempDir(), "out")
			if err := os.CopyFS(dir, os.DirFS(filepath.Join("experiments", c.name))); err != nil {
				t.Fatal(err)
			}
			want(t, exitDone, "seed 1 is finished", append([]string{"experiment", c.name, "--seeds", "2", "--out", dir}, c.args...)...)
			is, err := os.ReadFile(filepath.Join(dir, "results.csv"))
			if err != nil {
				t.Fatal(err)
			}
			// The times of the first seed too: they are those recorded.
			for line := range strings.Lines(string(was)) {
				if !strings.Contains(string(is), line) {
					t.Errorf("results.csv lost %q", line)
				}
			}
			if got, least := bytes.Count(is, []byte{'\n'}), 2*bytes.Count(was, []byte{'\n'})-1; got < least {
				t.Errorf("results.csv has %d lines, want %d:\n%s", got, least, is)
			}
		})
	}
}

// Every command and flag is still there.
func TestFlagsAsBefore(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(before, "flags"))
	if err != nil {
		t.Fatal(err)
	}
	root := newRoot()
	root.InitDefaultCompletionCmd()
	for line := range strings.Lines(string(text)) {
		path, flags := strings.Fields(line), []string(nil)
		for i, f := range path {
			if strings.HasPrefix(f, "--") {
				path, flags = path[:i], path[i:]
				break
			}
		}
		cmd, rest, err := root.Find(path)
		if err != nil || len(rest) > 0 {
			t.Errorf("riffle %s is gone: %v", strings.Join(path, " "), err)
			continue
		}
		for _, name := range flags {
			if name = strings.TrimPrefix(name, "--"); name != "help" && cmd.Flag(name) == nil {
				t.Errorf("riffle %s --%s is gone", strings.Join(path, " "), name)
			}
		}
	}
}

func decoded(t *testing.T, text []byte) (v any) {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber() // as they are written
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// stillSaid returns what was said before and is not any more. It compares no times, and
// no words on where a bound's proof is, as these name files that may move.
func stillSaid(was, is any, where string) error {
	switch was := was.(type) {
	case map[string]any:
		object, ok := is.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is no object", where)
		}
		for key, value := range was {
			if strings.Contains(key, "second") || key == "source" || key == "basis" {
				continue
			}
			now, ok := object[key]
			if !ok {
				return fmt.Errorf("%s.%s is missing", where, key)
			}
			if err := stillSaid(value, now, where+"."+key); err != nil {
				return err
			}
		}
	case []any:
		list, ok := is.([]any)
		if !ok || len(list) != len(was) {
			return fmt.Errorf("%s is no list of %d", where, len(was))
		}
		for i := range was {
			if err := stillSaid(was[i], list[i], fmt.Sprintf("%s[%d]", where, i)); err != nil {
				return err
			}
		}
	default:
		if was != is {
			return fmt.Errorf("%s is %v, was %v", where, is, was)
		}
	}
	return nil
}

// storesBefore unpacks a demo that was stopped in the version before, with addresses
// that are free now, and returns its directory and roles.
func storesBefore(t *testing.T, name string) (dir string, roles []string) {
	t.Helper()
	dir = shortDir(t)
	f, err := os.Open(filepath.Join(before, "stores", name+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var configs []string
	for files := tar.NewReader(z); ; {
		h, err := files.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else {
			var b []byte
			if b, err = io.ReadAll(files); err == nil {
				err = os.WriteFile(path, b, h.FileInfo().Mode().Perm())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(path, ".yaml") {
			configs = append(configs, path)
		}
		if role, ok := strings.CutSuffix(filepath.Base(path), ".yaml"); ok && role != "client" {
			roles = append(roles, role)
		}
	}
	moveAddresses(t, configs)
	return dir, roles
}

// moveAddresses gives every address in configurations another that is free.
func moveAddresses(t *testing.T, paths []string) {
	t.Helper()
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`)
	texts, moved := map[string]string{}, map[string]string{}
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		texts[path] = string(b)
		for _, a := range address.FindAllString(texts[path], -1) {
			moved[a] = ""
		}
	}
	free, err := operate.FreeAddresses(len(moved))
	if err != nil {
		t.Fatal(err)
	}
	for was := range moved {
		moved[was], free = free[0], free[1:]
	}
	for path, text := range texts {
		text = address.ReplaceAllStringFunc(text, func(a string) string { return moved[a] })
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

var demosBefore = []string{"shuffle", "vector-sum"}

// Stores, keys and configurations of the version before open, nothing is wrong with
// them, and the ledger says and costs what it did.
func TestStoresBefore(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes")
	}
	for _, name := range longtest.Pick(demosBefore[1:], demosBefore) {
		t.Run(name, func(t *testing.T) {
			dir, roles := storesBefore(t, name)
			config := func(role string) string { return filepath.Join(dir, role, role+".yaml") }
			for _, role := range roles {
				want(t, exitDone, `"clean": true`, "fsck", role, "--config", config(role), "--json")
			}
			was, err := os.ReadFile(filepath.Join(before, "stores", name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			want(t, exitDone, "", "ledger", "verify", "--config", config("coordinator"))
			is := want(t, exitDone, "", "ledger", "show", "--config", config("coordinator"), "--json")
			if !sameMachine() {
				return
			}
			if err := stillSaid(decoded(t, was), decoded(t, []byte(is)), ""); err != nil {
				t.Errorf("riffle ledger show: %v", err)
			}
		})
	}
}

// Demos that were stopped in the version before go on to their end: services start from
// their stores, clients from their books, and what was recorded before and after gives
// the released model.
func TestDemosBeforeGoOn(t *testing.T) {
	longtest.Only(t, "trains on MNIST in several processes")
	for _, name := range demosBefore {
		t.Run(name, func(t *testing.T) {
			dir, _ := storesBefore(t, name)
			code, stdout, stderr := outcome(t, "demo", "--resume", dir, "--json")
			if code != exitDone {
				t.Fatalf("exit %d: %s", code, stderr)
			}
			var r demoResult
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatal(err)
			}
			// The round that was open has long passed its deadline.
			if r.Released < r.Rounds-1 || !r.Replayed || !r.Clean || !(r.Epsilon > 0) {
				t.Errorf("%+v\n%s", r, stderr)
			}
		})
	}
}

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/cpu"

	"github.com/riffle-dp/riffle/internal/longtest"
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

// slowBefore takes seconds each.
var slowBefore = []string{"bits", "vector-sum-check-in", "distributed-check-in", "solve-distributed", "solve-shuffle", "verify-check-in", "plan-eps0"}

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
		if f[0] == kind && (longtest.On || !slices.Contains(slowBefore, f[1])) {
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

// A run that the version before was interrupted in goes on, and ends with the model
// that it would have had; its configuration alone gives that model, too.
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

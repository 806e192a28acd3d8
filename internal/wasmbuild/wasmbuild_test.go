package wasmbuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// Outside a clone of riffle nothing is compiled, and no program is run that a file there names.
func TestMissing(t *testing.T) {
	if len(must(embedded.ReadDir("."))) > 0 {
		t.Skip("a release build has the programs in it")
	}
	path := os.Getenv("PATH")
	for name, c := range map[string]struct{ files, path, says string }{
		"no go":              {"", t.TempDir(), "there is no go in PATH"},
		"no module":          {"", path, "in no clone of riffle"},
		"another module":     {"go.mod\nmodule example.com/other\n\ngo 1.26\n", path, "in no clone of riffle"},
		"another toolchain":  {"go.mod\nmodule " + module + "\n\ngo 1.26\ntoolchain go1.26.99\n", path, "wasm_exec.js"},
		"a later Go":         {"go.mod\nmodule " + module + "\n\ngo 1.999\n", path, "requires go >= 1.999"},
		"a clone with holes": {"go.mod\nmodule " + module + "\n\ngo 1.26\n", path, "wasm_exec.js"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("PATH", c.path)
			if file, text, ok := strings.Cut(c.files, "\n"); ok {
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			_, err := Accountant.Load(t.Context(), nil)
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
		})
	}
}

func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// Whoever wrote the directory, and whatever go env -w has set, go runs no other program: not git for a module that
// go.mod names, and not what GOFLAGS names.
func TestRunsOnlyGo(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the program that must not run is a shell's script")
	}
	dir, bin := t.TempDir(), t.TempDir()
	ran := filepath.Join(bin, "ran")
	script := "#!/bin/sh\necho \"$0 $*\" >>" + ran + "\nexit 1\n"
	const zeros = " v0.0.0-20200101000000-abcdefabcdef"
	sum := " h1:" + strings.Repeat("A", 43) + "=\n"
	for name, text := range map[string]string{
		filepath.Join(bin, "git"):    script,
		filepath.Join(bin, "tool"):   script,
		filepath.Join(bin, "go.env"): "GOFLAGS=-toolexec=" + filepath.Join(bin, "tool") + "\n",
		filepath.Join(dir, "go"):     script,
		filepath.Join(dir, "go.mod"): "module " + module + "\n\ngo 1.26\n\nrequire git.invalid/y.git" + zeros + "\n",
		filepath.Join(dir, "go.sum"): "git.invalid/y.git" + zeros + sum + "git.invalid/y.git" + zeros + "/go.mod" + sum,
		filepath.Join(dir, "a.go"):   "package main\n\nimport _ \"git.invalid/y.git\"\n\nfunc main() {}\n",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, value := range map[string]string{"PATH": bin + ":" + os.Getenv("PATH"), "GOENV": filepath.Join(bin, "go.env"),
		"GOPROXY": "direct", "GONOSUMDB": "*", "GOMODCACHE": t.TempDir()} {
		t.Setenv(name, value)
	}
	root, err := Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := command(t.Context(), root, nil, "list", "-deps", "."); err == nil {
		t.Error("a module came from nowhere")
	}
	if flags, err := command(t.Context(), root, nil, "env", "GOFLAGS"); err != nil || strings.Contains(string(flags), "toolexec") {
		t.Errorf("GOFLAGS is %q, %v", flags, err)
	}
	if text, err := os.ReadFile(ran); err == nil {
		t.Errorf("there ran %s", text)
		if err := os.Remove(ran); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", ".")
	if _, err := Root(t.Context()); err == nil || !strings.Contains(err.Error(), "no go in PATH") {
		t.Errorf("a go of the working directory: %v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("the working directory's go ran")
	}
}

// A small program of a module that has riffle's path is compiled, with its progress; an error names what is wrong with it.
func TestBuild(t *testing.T) {
	longtest.Only(t, "compiles Go's library for browsers, if that is not in the build cache")
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	script := must(os.ReadFile("../../page/third_party/wasmexec/wasm_exec.js"))
	write("go.mod", "module "+module+"\n\ngo 1.26\n")
	write("page/third_party/wasmexec/wasm_exec.js", string(script))
	write("small/main.go", "package main\n\nfunc main() {}\n")
	t.Chdir(filepath.Join(dir, "small"))
	root, err := Root(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := Program{Package: "./small", Packed: "small.wasm.gz"}
	var told, total int
	wasm, err := p.Build(t.Context(), root, p.Package, func(program string, more, of int) {
		if program != p.Packed || of < 10 {
			t.Errorf("%s, %d of %d", program, more, of)
		}
		told, total = told+more, of
	})
	if err != nil || !bytes.HasPrefix(wasm, []byte("\x00asm")) || told > total || total < 10 {
		t.Errorf("%d bytes, %d of %d packages: %v", len(wasm), told, total, err)
	}
	if again, err := p.Build(t.Context(), root, p.Package, nil); err != nil || !bytes.Equal(wasm, again) {
		t.Errorf("compiled again it differs: %v", err)
	}
	write("small/main.go", "package main\n\nfunc main() { nothing() }\n")
	if _, err := p.Build(t.Context(), root, p.Package, nil); err == nil || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
	write("page/third_party/wasmexec/wasm_exec.js", string(script)+"\n")
	if _, err := p.Build(t.Context(), root, p.Package, nil); err == nil || !strings.Contains(err.Error(), "go generate ./web") {
		t.Errorf("another release's script: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Build(ended, root, p.Package, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its end: %v", err)
	}
}

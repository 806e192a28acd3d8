// Package wasmbuild has riffle's programs for browsers. A release build has them in it; any other one
// compiles them in a clone of riffle when they are needed.
package wasmbuild

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Program is a program of this module for browsers.
type Program struct {
	Package string // ./ and the path of its directory in the module
	Packed  string // the name of the compiled program, gzip
	// Flags are further flags of the compiler. They change the program's size and speed only.
	Flags []string
}

const module = "github.com/riffle-dp/riffle"

// Accountant is the accountant of the page /plan.
var Accountant = Program{Package: "./page/plan/wasm", Packed: "accountant.wasm.gz"}

// Client is the client in the browser. Functions are inlined only where most of the time goes, since
// inlining makes the program a twentieth larger.
var Client = Program{Package: "./web/wasm", Packed: "client.wasm.gz",
	Flags: inlineOnly(module+"/mechanism/...", module+"/dp/...", module+"/account/...", module+"/internal/...", "crypto/...", "math/...", "gonum.org/...",
		"internal/...", "encoding/binary", "runtime/...", "runtime", "sync/...")}

func inlineOnly(packages ...string) []string {
	flags := []string{"-gcflags=all=-l"}
	for _, p := range packages {
		flags = append(flags, "-gcflags="+p+"=")
	}
	return flags
}

// progressed is told of a compilation: its number of packages, and how many more were compiled. Those in Go's
// build cache are not compiled. A nil progressed is not told.
type progressed func(program string, more, of int)

// Load returns the compiled program, gzip: what a release build has in it, else what Compile
// makes in the clone of riffle that the working directory is in.
func (p Program) Load(ctx context.Context, progress progressed) ([]byte, error) {
	if packed, err := fs.ReadFile(embedded, p.Packed); err == nil {
		return packed, nil
	}
	root, err := Root(ctx)
	if err != nil {
		return nil, fmt.Errorf("this riffle was built without %s, and cannot compile it here: %w. Run it in a clone of riffle with Go (https://go.dev/dl), or build a release", p.Packed, err)
	}
	return p.Compile(ctx, root, progress)
}

// Root returns the directory of the clone of riffle that the working directory is in. Its error says what is
// missing.
func Root(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("go"); err != nil {
		return "", errors.New("there is no go in PATH")
	}
	out, err := command(ctx, "", nil, "list", "-m", "-f", "{{.Path}} {{.Dir}}")
	if err != nil {
		return "", fmt.Errorf("the working directory is in no clone of riffle: %w", err)
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if path != module {
		return "", errors.New("the working directory is in no clone of riffle")
	}
	return dir, nil
}

// Compile compiles the program in the clone of riffle in root, and packs it. The same sources and
// the same release of Go give the same bytes.
func (p Program) Compile(ctx context.Context, root string, progress progressed) ([]byte, error) {
	wasm, err := p.Build(ctx, root, p.Package, progress)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(wasm)
	}
	if err == nil {
		err = z.Close()
	}
	return b.Bytes(), err
}

// Build compiles a package of the clone with the program's flags, which leave out everything that differs
// between machines. Go's build cache keeps what it compiles.
func (p Program) Build(ctx context.Context, root, pkg string, progress progressed) ([]byte, error) {
	dir, err := os.MkdirTemp("", "riffle-wasm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	each := func() {}
	if progress != nil {
		out, err := command(ctx, root, nil, "list", "-deps", pkg)
		if err != nil {
			return nil, err
		}
		of := bytes.Count(out, []byte("\n"))
		progress(p.Packed, 0, of)
		each = func() { progress(p.Packed, 1, of) }
	}
	if err := sameScript(ctx, root); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "program.wasm")
	args := append([]string{"build", "-v", "-trimpath", "-ldflags", "-s -w -buildid=", "-buildvcs=false", "-o", file}, p.Flags...)
	if _, err := command(ctx, root, each, append(args, pkg)...); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

// sameScript fails if the script that starts the program in a browser is of another release of Go than the one
// that compiles it.
func sameScript(ctx context.Context, root string) error {
	out, err := command(ctx, root, nil, "env", "GOROOT", "GOVERSION")
	if err != nil {
		return err
	}
	goroot, release, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	want, err := os.ReadFile(filepath.Join(goroot, "lib/wasm/wasm_exec.js"))
	if err != nil {
		return nil // some distributions leave it out
	}
	have, err := os.ReadFile(filepath.Join(root, "page/third_party/wasmexec/wasm_exec.js"))
	if err == nil && !bytes.Equal(have, want) {
		err = fmt.Errorf("page/third_party/wasmexec/wasm_exec.js is not that of %s; run: go generate ./web", release)
	}
	return err
}

// settings are the toolchain's, in place of the caller's, which would change the result. In place of an empty one go
// takes what go env -w has set, so GOFLAGS, which can name programs, is not empty. With these, no go.mod makes go run
// another toolchain, or git to fetch a module, and no vendor directory, which go.sum does not cover, is read.
var settings = []string{"GOOS=js", "GOARCH=wasm", "GOWASM=", "GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOFIPS140=off", "GOWORK=off",
	"GOTOOLCHAIN=local", "GOVCS=*:off"}

// command runs the toolchain for WebAssembly in a directory. each, if not nil, is called for each package that
// go build -v names.
func command(ctx context.Context, dir string, each func(), args ...string) ([]byte, error) {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir = dir
	c.Env = append(os.Environ(), settings...)
	var out bytes.Buffer
	c.Stdout = &out
	says, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	var complaint strings.Builder
	for lines := bufio.NewScanner(says); lines.Scan(); {
		if each != nil && !strings.ContainsAny(lines.Text(), " :") {
			each()
			continue
		}
		complaint.WriteString("\n" + lines.Text())
	}
	_, _ = io.Copy(io.Discard, says) // after a line that is too long
	if err := c.Wait(); ctx.Err() != nil {
		return nil, context.Cause(ctx)
	} else if err != nil {
		return nil, fmt.Errorf("go %s: %w%s", strings.Join(args, " "), err, complaint.String())
	}
	return out.Bytes(), nil
}

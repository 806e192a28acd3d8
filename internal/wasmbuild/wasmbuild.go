// Package wasmbuild compiles Go programs for browsers, and records what they were compiled from, so
// that a test finds a committed program that is not of the present sources.
package wasmbuild

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
)

// Program is a program of this module. Paths are relative to the module's root, in which all methods
// run.
type Program struct {
	Package string // ./ and the path of its directory
	Packed  string // the compiled program, gzip
	Record  string // what it was compiled from
	Command string // makes both, for messages
	// Flags are further flags of the compiler. They change the program's size and speed only.
	Flags []string
}

// module is the path before the packages of this module.
const module = "github.com/riffle-dp/riffle/"

// Client is the client in the browser. Functions are inlined only where most of the time goes, since
// inlining makes the program a twentieth larger.
var Client = Program{Package: "./web/wasm", Packed: "web/package/client.wasm.gz", Record: "web/client.sum", Command: "go generate ./web",
	Flags: inlineOnly(module+"mechanism/...", module+"dp/...", module+"account/...", module+"internal/...", "crypto/...", "math/...", "gonum.org/...",
		"internal/...", "encoding/binary", "runtime/...", "runtime", "sync/...")}

func inlineOnly(packages ...string) []string {
	flags := []string{"-gcflags=all=-l"}
	for _, p := range packages {
		flags = append(flags, "-gcflags="+p+"=")
	}
	return flags
}

// Go's own script, which its programs need in a browser.
const (
	script   = "page/third_party/wasmexec/wasm_exec.js"
	licence  = "page/third_party/wasmexec/LICENSE"
	scriptOf = "page/third_party/wasmexec/README.md"
	scriptIn = "lib/wasm/wasm_exec.js" // in the Go distribution
)

// Root changes the directory to the module's root.
func Root() error {
	root, err := command("go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	return os.Chdir(strings.TrimSpace(string(root)))
}

// Check fails if the committed program is not of the present sources.
func (p Program) Check() error {
	sources, err := p.digest()
	if err != nil {
		return err
	}
	have, err := p.readRecord()
	if err != nil {
		return err
	}
	if err := p.compare(have, sources); err != nil {
		return fmt.Errorf("%w; run: %s", err, p.Command)
	}
	return nil
}

// Rebuild is Check, and fails if a byte differs when the program is compiled again. It compiles only
// with the recorded release of Go, and says what it did.
func (p Program) Rebuild() (string, error) {
	if err := p.Check(); err != nil {
		return "", err
	}
	have, err := p.readRecord()
	if err != nil {
		return "", err
	}
	if have.release != runtime.Version() {
		return fmt.Sprintf("not built again: recorded with %s, this is %s", have.release, runtime.Version()), nil
	}
	wasm, err := p.Build(p.Package)
	if err != nil {
		return "", err
	}
	if sum := hash(wasm); sum != have.wasm {
		return "", fmt.Errorf("%s builds to %s, recorded is %s; run: %s", p.Package, sum, have.wasm, p.Command)
	}
	return "built again, equal to the last byte", nil
}

// recorded is the record of the packed program.
type recorded struct{ release, sources, wasm string }

func (r recorded) String() string {
	return fmt.Sprintf("go %s\nsources %s\nwasm %s\n", r.release, r.sources, r.wasm)
}

func (p Program) readRecord() (recorded, error) {
	var r recorded
	text, err := os.ReadFile(p.Record)
	if err != nil {
		return r, err
	}
	_, err = fmt.Sscanf(string(text), "go %s\nsources %s\nwasm %s\n", &r.release, &r.sources, &r.wasm)
	if err != nil || r.String() != string(text) {
		return r, fmt.Errorf("%s does not have the form in which it is written", p.Record)
	}
	return r, nil
}

// compare returns an error that names what is out of step: the sources, the program, the
// script.
func (p Program) compare(have recorded, sources string) error {
	if have.sources != sources {
		return fmt.Errorf("the program in %s is not of the present sources", p.Packed)
	}
	wasm, err := p.unpack()
	if err != nil {
		return err
	}
	if hash(wasm) != have.wasm {
		return fmt.Errorf("%s is not the program that %s records", p.Packed, p.Record)
	}
	about, err := os.ReadFile(scriptOf)
	if err != nil {
		return err
	}
	if !strings.Contains(string(about), versionRow(have.release)) {
		return fmt.Errorf("%s is not of %s, which %s was built with", script, have.release, p.Packed)
	}
	if have.release != runtime.Version() {
		return nil
	}
	from, err := goroot()
	if err != nil {
		return err
	}
	want, err := os.ReadFile(filepath.Join(from, scriptIn))
	if err != nil {
		return nil // the toolchain lacks its library, so there is nothing to compare with
	}
	got, err := os.ReadFile(script)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("%s is not that of %s", script, have.release)
	}
	return err
}

func versionRow(release string) string { return "| Version | " + release + " |" }

// Generate compiles the program, packs and records it, and copies Go's script. It says how large the
// program is.
func (p Program) Generate() (string, error) {
	size, err := p.generate()
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s: %d bytes, unpacked %d", p.Packed, size[0], size[1]), nil
}

func (p Program) generate() (size [2]int, err error) {
	sources, err := p.digest()
	if err != nil {
		return size, err
	}
	wasm, err := p.Build(p.Package)
	if err != nil {
		return size, err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return size, err
	}
	if _, err := z.Write(wasm); err != nil {
		return size, err
	}
	if err := z.Close(); err != nil {
		return size, err
	}
	from, err := goroot()
	if err != nil {
		return size, err
	}
	release := runtime.Version()
	for to, name := range map[string]string{script: scriptIn, licence: "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return size, err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return size, err
		}
	}
	about, err := os.ReadFile(scriptOf)
	if err != nil {
		return size, err
	}
	about = regexp.MustCompile(`(?m)^\| Version \|.*$`).ReplaceAll(about, []byte(versionRow(release)))
	if err := os.WriteFile(scriptOf, about, 0o644); err != nil {
		return size, err
	}
	if err := os.WriteFile(p.Packed, b.Bytes(), 0o644); err != nil {
		return size, err
	}
	if err := os.WriteFile(p.Record, []byte(recorded{release, sources, hash(wasm)}.String()), 0o644); err != nil {
		return size, err
	}
	return [2]int{b.Len(), len(wasm)}, nil
}

// Build compiles another package with the program's flags, which leave out everything that differs
// between machines.
func (p Program) Build(pkg string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "riffle-wasm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "program.wasm")
	args := []string{"build", "-trimpath", "-ldflags", "-s -w -buildid=", "-buildvcs=false", "-o", file}
	if _, err := command("go", append(append(args, p.Flags...), pkg)...); err != nil {
		return nil, err
	}
	return os.ReadFile(file)
}

func goroot() (string, error) {
	out, err := command("go", "env", "GOROOT")
	return strings.TrimSpace(string(out)), err
}

// digest returns a digest of the name and content of every file of the module that the
// program is built from, and of the versions of the other modules.
func (p Program) digest() (string, error) {
	out, err := command("go", "list", "-deps", "-json=Dir,Standard,GoFiles,SFiles,EmbedFiles,Module", p.Package)
	if err != nil {
		return "", err
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	lines := slices.Clone(p.Flags)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var dep struct {
			Dir                         string
			Standard                    bool
			GoFiles, SFiles, EmbedFiles []string
			Module                      *struct {
				Path, Version, GoVersion string
				Main                     bool
			}
		}
		err := dec.Decode(&dep)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		switch {
		case dep.Standard:
			continue
		case dep.Module == nil:
			return "", fmt.Errorf("package in %s has no module", dep.Dir)
		case !dep.Module.Main:
			lines = append(lines, dep.Module.Path+" "+dep.Module.Version)
			continue
		}
		lines = append(lines, "go "+dep.Module.GoVersion)
		for _, name := range slices.Concat(dep.GoFiles, dep.SFiles, dep.EmbedFiles) {
			file := filepath.Join(dep.Dir, name)
			text, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return "", err
			}
			lines = append(lines, filepath.ToSlash(rel)+" "+hash(text))
		}
	}
	slices.Sort(lines)
	return hash([]byte(strings.Join(slices.Compact(lines), "\n"))), nil
}

func (p Program) unpack() ([]byte, error) {
	text, err := os.ReadFile(p.Packed)
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func hash(text []byte) string { return fmt.Sprintf("%x", sha256.Sum256(text)) }

// command runs the toolchain for WebAssembly, without the caller's settings that would change
// the result.
func command(name string, args ...string) ([]byte, error) {
	c := exec.Command(name, args...)
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOWASM=", "GOFLAGS=", "GOEXPERIMENT=", "CGO_ENABLED=0", "GOFIPS140=off", "GOWORK=off")
	var complaint bytes.Buffer
	c.Stderr = &complaint
	out, err := c.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint.String())
	}
	return out, nil
}

// Command generate makes the WebAssembly accountant of package plan:
//
//	go run ./page/plan/generate           # builds it and records its sources
//	go run ./page/plan/generate -check    # fails if the committed program does not match the sources
//	go run ./page/plan/generate -rebuild  # builds it again and fails if a byte differs
//
// It runs in the module's root or in page/plan.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
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

// Paths, relative to the module's root.
const (
	program  = "./page/plan/wasm"
	packed   = "page/plan/accountant.wasm.gz"
	record   = "page/plan/accountant.sum"
	script   = "page/third_party/wasmexec/wasm_exec.js"
	licence  = "page/third_party/wasmexec/LICENSE"
	scriptOf = "page/third_party/wasmexec/README.md"
	scriptIn = "lib/wasm/wasm_exec.js" // in the Go distribution
)

func main() {
	check := flag.Bool("check", false, "compare the recorded sources with those there are")
	rebuild := flag.Bool("rebuild", false, "build again and compare, if this is the recorded release of Go")
	flag.Parse()
	if err := run(*check, *rebuild); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(check, rebuild bool) error {
	root, err := command("go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return err
	}
	if err := os.Chdir(strings.TrimSpace(string(root))); err != nil {
		return err
	}
	sources, err := digest()
	if err != nil {
		return err
	}
	if !check && !rebuild {
		return generate(sources)
	}
	have, err := readRecord()
	if err != nil {
		return err
	}
	if err := compare(have, sources); err != nil {
		return fmt.Errorf("%w; run: go generate ./page/plan", err)
	}
	if !rebuild {
		return nil
	}
	if have.release != runtime.Version() {
		fmt.Printf("not built again: recorded with %s, this is %s\n", have.release, runtime.Version())
		return nil
	}
	wasm, err := build()
	if err != nil {
		return err
	}
	if sum := hash(wasm); sum != have.wasm {
		return fmt.Errorf("%s builds to %s, recorded is %s; run: go generate ./page/plan", program, sum, have.wasm)
	}
	fmt.Println("built again, equal to the last byte")
	return nil
}

// recorded is the record of the packed program.
type recorded struct{ release, sources, wasm string }

func (r recorded) String() string {
	return fmt.Sprintf("go %s\nsources %s\nwasm %s\n", r.release, r.sources, r.wasm)
}

func readRecord() (recorded, error) {
	var r recorded
	text, err := os.ReadFile(record)
	if err != nil {
		return r, err
	}
	_, err = fmt.Sscanf(string(text), "go %s\nsources %s\nwasm %s\n", &r.release, &r.sources, &r.wasm)
	if err != nil || r.String() != string(text) {
		return r, fmt.Errorf("%s does not have the form in which it is written", record)
	}
	return r, nil
}

// compare returns an error that names what is out of step: the sources, the program, the
// script.
func compare(have recorded, sources string) error {
	if have.sources != sources {
		return errors.New("the accountant in page/plan/accountant.wasm.gz is not of the present sources")
	}
	wasm, err := unpack()
	if err != nil {
		return err
	}
	if hash(wasm) != have.wasm {
		return fmt.Errorf("%s is not the program that %s records", packed, record)
	}
	about, err := os.ReadFile(scriptOf)
	if err != nil {
		return err
	}
	if !strings.Contains(string(about), versionRow(have.release)) {
		return fmt.Errorf("%s is not of %s, which the accountant was built with", script, have.release)
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

func generate(sources string) error {
	wasm, err := build()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := z.Write(wasm); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	from, err := goroot()
	if err != nil {
		return err
	}
	release := runtime.Version()
	for to, name := range map[string]string{script: scriptIn, licence: "LICENSE"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, text, 0o644); err != nil {
			return err
		}
	}
	about, err := os.ReadFile(scriptOf)
	if err != nil {
		return err
	}
	about = regexp.MustCompile(`(?m)^\| Version \|.*$`).ReplaceAll(about, []byte(versionRow(release)))
	if err := os.WriteFile(scriptOf, about, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(packed, b.Bytes(), 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(record, []byte(recorded{release, sources, hash(wasm)}.String()), 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, unpacked %d\n", packed, b.Len(), len(wasm))
	return nil
}

// build returns the program. Its flags leave out everything that differs between machines.
func build() ([]byte, error) {
	dir, err := os.MkdirTemp("", "riffle-wasm-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "accountant.wasm")
	if _, err := command("go", "build", "-trimpath", "-ldflags", "-s -w -buildid=", "-buildvcs=false", "-o", file, program); err != nil {
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
func digest() (string, error) {
	out, err := command("go", "list", "-deps", "-json=Dir,Standard,GoFiles,SFiles,EmbedFiles,Module", program)
	if err != nil {
		return "", err
	}
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	var lines []string
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			Dir                         string
			Standard                    bool
			GoFiles, SFiles, EmbedFiles []string
			Module                      *struct {
				Path, Version, GoVersion string
				Main                     bool
			}
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		switch {
		case p.Standard:
			continue
		case p.Module == nil:
			return "", fmt.Errorf("package in %s has no module", p.Dir)
		case !p.Module.Main:
			lines = append(lines, p.Module.Path+" "+p.Module.Version)
			continue
		}
		lines = append(lines, "go "+p.Module.GoVersion)
		for _, name := range slices.Concat(p.GoFiles, p.SFiles, p.EmbedFiles) {
			file := filepath.Join(p.Dir, name)
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

func unpack() ([]byte, error) {
	text, err := os.ReadFile(packed)
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

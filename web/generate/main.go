// Command generate makes the files that are not written by hand, which a release needs:
//
//	go run ./web/generate            # all of them
//	go run ./web/generate -check     # fails if one of those in git is out of date
//	go run ./web/generate -pack FILE # compiles the program and writes the tarball for npm install
//
// In git are Go's script and the licences. The compiled programs are not: they go into internal/wasmbuild,
// where go build -tags release embeds them, and the client's also into web/package for npm pack. It runs
// anywhere in a clone of riffle.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/web"
)

func main() {
	check := flag.Bool("check", false, "compare the files that are in git with what they are made from")
	pack := flag.String("pack", "", "write the tarball to this `file`")
	flag.Parse()
	if err := run(context.Background(), *check, *pack); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, check bool, pack string) error {
	root, err := wasmbuild.Root(ctx)
	if err != nil {
		return err
	}
	if pack != "" {
		program, err := wasmbuild.Client.Compile(ctx, root, nil)
		if err != nil {
			return err
		}
		return writePack(pack, program)
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	made, err := files()
	if err != nil {
		return err
	}
	if check {
		for name, want := range made {
			if have, err := os.ReadFile(name); err != nil || string(have) != want {
				return errors.Join(fmt.Errorf("%s is out of date; run: go generate ./web", name), err)
			}
		}
		return nil
	}
	for _, p := range []wasmbuild.Program{wasmbuild.Accountant, wasmbuild.Client} {
		packed, err := p.Compile(ctx, ".", nil)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d bytes\n", p.Packed, len(packed))
		made["internal/wasmbuild/"+p.Packed] = string(packed)
		if p.Packed == wasmbuild.Client.Packed {
			made["web/package/"+p.Packed] = string(packed)
		}
	}
	for name, text := range made {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files in git that are copied from elsewhere: the script that Go's programs need in a browser,
// which must be of the release that compiles them, and the licences of what the client is built from.
func files() (map[string]string, error) {
	out, err := exec.Command("go", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot, release, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	const vendored = "page/third_party/wasmexec/"
	text := map[string]string{}
	for _, name := range []string{filepath.Join(goroot, "lib/wasm/wasm_exec.js"), filepath.Join(goroot, "LICENSE"), vendored + "README.md", "LICENSE"} {
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		text[name] = string(b)
	}
	script, licence := text[filepath.Join(goroot, "lib/wasm/wasm_exec.js")], text[filepath.Join(goroot, "LICENSE")]
	third, err := thirdParty(licence)
	if err != nil {
		return nil, err
	}
	return map[string]string{
		vendored + "wasm_exec.js":  script,
		vendored + "LICENSE":       licence,
		vendored + "README.md":     regexp.MustCompile(`(?m)^\| Version \|.*$`).ReplaceAllString(text[vendored+"README.md"], "| Version | "+release+" |"),
		"web/package/LICENSE":      text["LICENSE"],
		"web/package/wasm_exec.js": "/*\n" + strings.TrimSpace(licence) + "\n*/\n" + script,
		"web/package/THIRD-PARTY":  third,
	}, nil
}

// thirdParty returns the licences of Go and of the other modules in the program.
func thirdParty(licence string) (string, error) {
	c := exec.Command("go", "list", "-deps", "-json=Module", wasmbuild.Client.Package)
	c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=", "GOWORK=off")
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	modules := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct {
			Module *struct {
				Path, Dir string
				Main      bool
			}
		}
		err := dec.Decode(&p)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
		if p.Module != nil && !p.Module.Main {
			modules[p.Module.Path] = p.Module.Dir
		}
	}
	text := "client.wasm.gz is compiled from these too.\n\nGo, https://go.dev\n\n" + strings.TrimSpace(licence) + "\n"
	paths := make([]string, 0, len(modules))
	for p := range modules {
		paths = append(paths, p)
	}
	slices.Sort(paths)
	for _, p := range paths {
		licence, err := os.ReadFile(filepath.Join(modules[p], "LICENSE"))
		if err != nil {
			return "", err
		}
		text += "\n" + strings.Repeat("-", 70) + "\n\n" + p + "\n\n" + strings.TrimSpace(string(licence)) + "\n"
	}
	return text, nil
}

func writePack(name string, program []byte) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return web.Pack(f, program)
}

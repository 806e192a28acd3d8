// Command generate makes the files of the npm package in web/package that are not written by hand:
//
//	go run ./web/generate            # compiles the program and records its sources
//	go run ./web/generate -check     # fails if the committed program does not match the sources
//	go run ./web/generate -rebuild   # builds it again and fails if a byte differs
//	go run ./web/generate -pack FILE # writes the tarball for npm install, of the files as embedded
//
// It runs in the module's root or in web.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/page/third_party/wasmexec"
	"github.com/riffle-dp/riffle/web"
)

var program = wasmbuild.Client

func main() {
	check := flag.Bool("check", false, "compare the recorded sources with those there are")
	rebuild := flag.Bool("rebuild", false, "build again and compare, if this is the recorded release of Go")
	pack := flag.String("pack", "", "write the tarball to this `file`")
	flag.Parse()
	if err := run(*check, *rebuild, *pack); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

func run(check, rebuild bool, pack string) (err error) {
	if pack != "" {
		return writePack(pack)
	}
	if err := wasmbuild.Root(); err != nil {
		return err
	}
	if !check && !rebuild {
		return generate()
	}
	made, err := files()
	if err != nil {
		return err
	}
	for name, want := range made {
		have, err := os.ReadFile(filepath.Join("web/package", name))
		if err != nil {
			return err
		}
		if string(have) != want {
			return fmt.Errorf("web/package/%s is out of date; run: %s", name, program.Command)
		}
	}
	if check {
		return program.Check()
	}
	said, err := program.Rebuild()
	if err == nil {
		fmt.Println(said)
	}
	return err
}

func generate() error {
	said, err := program.Generate()
	if err != nil {
		return err
	}
	fmt.Println(said)
	made, err := files()
	if err != nil {
		return err
	}
	for name, text := range made {
		if err := os.WriteFile(filepath.Join("web/package", name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// files returns the files that are copied from elsewhere: Go's script, and the licences of what the
// program is built from.
func files() (map[string]string, error) {
	licence, err := os.ReadFile("LICENSE")
	if err != nil {
		return nil, err
	}
	third, err := thirdParty()
	if err != nil {
		return nil, err
	}
	script := "/*\n" + strings.TrimSpace(wasmexec.Licence) + "\n*/\n" + wasmexec.Script
	return map[string]string{"LICENSE": string(licence), "wasm_exec.js": script, "THIRD-PARTY": third}, nil
}

// thirdParty returns the licences of Go and of the other modules in the program.
func thirdParty() (string, error) {
	c := exec.Command("go", "list", "-deps", "-json=Module", program.Package)
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
	text := "client.wasm.gz is compiled from these too.\n\nGo, https://go.dev\n\n" + strings.TrimSpace(wasmexec.Licence) + "\n"
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

func writePack(name string) (err error) {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return web.Pack(f)
}

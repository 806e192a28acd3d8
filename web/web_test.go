package web_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/wasmbuild"
	"github.com/riffle-dp/riffle/web"
)

// Go's script and the licences are those of what the program is built from.
func TestCopiesAreInStep(t *testing.T) {
	if out, err := exec.Command("go", "run", "./generate", "-check").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// compiled is the program, compiled once.
var compiled = sync.OnceValues(func() ([]byte, error) { return wasmbuild.Client.Compile(context.Background(), "..", nil) })

func program(t testing.TB) []byte {
	t.Helper()
	longtest.Only(t, "compiles the client for browsers")
	b, err := compiled()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const mostPacked = 2_500_000

func TestProgramIsSmall(t *testing.T) {
	packed := program(t)
	t.Logf("%d bytes", len(packed))
	if len(packed) > mostPacked {
		t.Errorf("client.wasm.gz has %d bytes, more than %d", len(packed), mostPacked)
	}
}

func TestProgramLeavesOut(t *testing.T) {
	out, err := func() ([]byte, error) {
		c := exec.Command("go", "list", "-deps", "./wasm")
		c.Env = append(os.Environ(), "GOOS=js", "GOARCH=wasm", "GOFLAGS=")
		return c.Output()
	}()
	if err != nil {
		t.Fatal(err)
	}
	for dep := range strings.Lines(string(out)) {
		switch dep = strings.TrimSpace(dep); dep {
		case "net", "net/http", "crypto/tls", "crypto/x509", "go.yaml.in/yaml/v3", "github.com/nats-io/nats.go", "github.com/riffle-dp/riffle/run/train":
			t.Errorf("the program has %s", dep)
		}
	}
}

// The tarball has what package.json lists and no more, and is the same each time.
func TestPack(t *testing.T) {
	var first, second bytes.Buffer
	for _, b := range []*bytes.Buffer{&first, &second} {
		if err := web.Pack(b, []byte("program")); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("two tarballs differ")
	}
	z, err := gzip.NewReader(&first)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	var about struct {
		Name, Version, License, Type                 string
		Files                                        []string
		Scripts, Dependencies, DevDependencies, Peer map[string]string
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, ok := strings.CutPrefix(h.Name, "package/")
		if !ok || h.Typeflag != tar.TypeReg || h.Mode != 0o644 {
			t.Errorf("entry %+v", h)
		}
		names = append(names, name)
		if name == "package.json" {
			if err := json.NewDecoder(r).Decode(&about); err != nil {
				t.Fatal(err)
			}
		}
	}
	if about.Name != "@riffle-dp/client" || about.Type != "module" || about.License != "Apache-2.0" || len(about.Scripts)+len(about.Dependencies)+len(about.DevDependencies) > 0 {
		t.Errorf("package.json: %+v", about)
	}
	always := []string{"package.json", "README.md", "LICENSE"}
	for _, name := range names {
		if !slices.Contains(always, name) && !slices.ContainsFunc(about.Files, func(p string) bool { ok, _ := path.Match(p, name); return ok }) {
			t.Errorf("%s is not listed in package.json", name)
		}
	}
	for _, want := range append(always, "index.js", "index.d.ts", "worker.js", "store.js", "wasm_exec.js", "client.wasm.gz", "THIRD-PARTY") {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing", want)
		}
	}
}

// Every option that the program reads has a type, and every property of the types is read.
func TestTypesFitOptions(t *testing.T) {
	types, err := fs.ReadFile(web.Files(nil), "index.d.ts")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile("wasm/options.go")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile("wasm/examples.go")
	if err != nil {
		t.Fatal(err)
	}
	source = append(source, data...)
	read := map[string]bool{}
	for _, m := range regexp.MustCompile("`json:\"([a-zA-Z0-9]+)").FindAllStringSubmatch(string(source), -1) {
		read[m[1]] = true
		if m[1] != "new" && !regexp.MustCompile(`(?m)^  `+m[1]+`\??: `).Match(types) {
			t.Errorf("index.d.ts has no %s", m[1])
		}
	}
	if len(read) < 25 {
		t.Fatalf("%d options", len(read))
	}
	for _, of := range []string{"Policy", "Keys", "Data", "Options"} {
		_, rest, _ := strings.Cut(string(types), "export interface "+of+" {\n")
		body, _, _ := strings.Cut(rest, "\n}\n")
		found := regexp.MustCompile(`(?m)^  ([a-zA-Z0-9]+)\??: `).FindAllStringSubmatch(body, -1)
		if len(found) < 3 {
			t.Errorf("%s has %d properties", of, len(found))
		}
		for _, m := range found {
			if !read[m[1]] && !slices.Contains([]string{"gradient", "storage", "onEvent", "signal"}, m[1]) {
				t.Errorf("%s.%s is not read", of, m[1])
			}
		}
	}
}

package web_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/web"
)

// install makes a fresh project and installs the tarball into it, without a network.
func install(t *testing.T) (project string) {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	project = t.TempDir()
	tarball := filepath.Join(project, "client.tgz")
	f, err := os.Create(tarball)
	if err != nil {
		t.Fatal(err)
	}
	if err := web.Pack(f, program(t)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(project, "package.json"), []byte(`{"name": "shop", "private": true}`), 0o644); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(npm, "install", "--offline", "--no-audit", "--no-fund", "--cache", filepath.Join(project, "cache"), "./client.tgz")
	c.Dir = project
	c.Env = append(os.Environ(), "npm_config_registry=http://127.0.0.1:1/", "HOME="+project)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	return project
}

// npm packs the same files as Pack.
func TestNpmPacksTheSame(t *testing.T) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		t.Skip("npm is not installed")
	}
	c := exec.Command(npm, "pack", "--dry-run", "--json", "--offline", "--cache", t.TempDir())
	c.Dir = t.TempDir()
	if err := os.CopyFS(c.Dir, web.Files([]byte("program"))); err != nil {
		t.Fatal(err)
	}
	out, err := c.Output()
	if err != nil {
		t.Fatal(err)
	}
	var packs []struct{ Files []struct{ Path string } }
	if err := json.Unmarshal(out, &packs); err != nil || len(packs) != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	var got, want []string
	for _, f := range packs[0].Files {
		got = append(got, f.Path)
	}
	entries, err := fs.ReadDir(web.Files(nil), ".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		want = append(want, e.Name())
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("npm packs %q, the tarball has %q", got, want)
	}
}

// example returns the example of the README.
func example(t *testing.T, project string) string {
	t.Helper()
	readme, err := os.ReadFile(filepath.Join(project, "node_modules/@riffle-dp/client/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)## Example\n\n```js\n(.*?)```").FindSubmatch(readme)
	if m == nil {
		t.Fatal("the README has no example")
	}
	return string(m[1])
}

// The tarball installs into a fresh project, and the README's example takes part there as it stands.
func TestReadmeExampleRuns(t *testing.T) {
	lines := make(chan string, 1)
	var servers, text string
	mux := http.NewServeMux()
	project := install(t)
	text = example(t, project)
	mux.Handle("/node_modules/", http.FileServerFS(os.DirFS(project)))
	mux.HandleFunc("/favicon.ico", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/enrol", func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		lines <- string(b)
	})
	mux.HandleFunc("/example.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript")
		fmt.Fprint(w, text)
	})
	mux.HandleFunc("/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		fmt.Fprintf(w, `<!doctype html><title>example</title>
			<script type="importmap">{"imports": {"@riffle-dp/client": "/node_modules/@riffle-dp/client/index.js"}}</script>
			<script>
				var said = [], servers = %s;
				console.debug = (...words) => said.push(words.join(" ").trim());
				var enrol = line => fetch("enrol", {method: "POST", body: line});
			</script>
			<script type="module" src="example.js"></script>`, servers)
	})
	w := newWorld(t, 3, mux)
	servers = fmt.Sprintf("{coordinator: %q, shuffler: %q, keys: {coordinator: %q, shuffler: %q}, spread: -1, answer: 0.5}",
		w.native.Coordinator.URL, w.native.Shuffler.URL, w.native.Coordinator.Key, w.native.Shuffler.Key)
	tab := browsertest.Start(t, w.pins...).Visitor().Tab()
	tab.Open(w.site.URL)
	w.enrol(<-lines)
	id := w.serve(2, "trust: shuffle\neps0: 2\nparticipation: all\n")
	w.run(operate.RoleClient, "clients-0")
	tab.Until(`said.includes("ended")`)
	said := browsertest.Value[[]string](tab, "said")
	for _, want := range []string{"agreed", "round 1", "sent 1", "round 2", "sent 2"} {
		if !strings.Contains("\n"+strings.Join(said, "\n")+"\n", "\n"+want+"\n") {
			t.Errorf("the example does not say %q: %q", want, said)
		}
	}
	if task := w.task(id); task.Released != 2 {
		t.Errorf("%+v", task)
	}
}

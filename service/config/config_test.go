package config

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/service/store"
)

// loaders read each of the example files.
var loaders = map[string]func(string) (any, error){
	"shuffler":    func(p string) (any, error) { return Load[Shuffler](p) },
	"coordinator": func(p string) (any, error) { return Load[Coordinator](p) },
	"aggregator":  func(p string) (any, error) { return Load[Aggregator](p) },
	"client":      func(p string) (any, error) { return Load[Client](p) },
	"registrar":   func(p string) (any, error) { return Load[Registrar](p) },
	"relay":       func(p string) (any, error) { return Load[Relay](p) },
	"worker":      func(p string) (any, error) { return Load[Worker](p) },
	"all":         func(p string) (any, error) { return Load[All](p) },
}

func example(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func writeConfig(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestExamplesParse(t *testing.T) {
	for name, load := range loaders {
		if _, err := load(filepath.Join("..", "..", "docs", "deploy", name+".yaml")); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// commented finds the keys that an example shows commented out, where they stand.
var commented = regexp.MustCompile(`(?m)^( *)# (( *)[a-z0-9-]+:.*)$`)

// What an example shows as a default, commented out, is a key too, and to write
// it out changes nothing.
func TestExamplesShowDefaults(t *testing.T) {
	for name, load := range loaders {
		text := example(t, name)
		path := writeConfig(t, text)
		before, err := load(path)
		if err != nil {
			t.Fatal(err)
		}
		alternative := strings.Index(text, "  # or a NATS cluster")
		if alternative < 0 {
			alternative = len(text)
		}
		full := commented.ReplaceAllStringFunc(text[:alternative], func(line string) string {
			m := commented.FindStringSubmatch(line)
			if strings.HasPrefix(m[2], "holder:") || strings.HasPrefix(m[2], "urls:") { // the process's own, and in place of another
				return line
			}
			return m[1] + m[2]
		})
		if strings.Count(full, "# ") >= strings.Count(text[:alternative], "# ") && name != "all" {
			t.Errorf("%s: nothing was taken as a default", name)
		}
		if err := os.WriteFile(path, []byte(full), 0o600); err != nil {
			t.Fatal(err)
		}
		after, err := load(path)
		if err != nil {
			t.Errorf("%s with its defaults written out: %v", name, err)
			continue
		}
		a, errA := yaml.Marshal(before)
		b, errB := yaml.Marshal(after)
		if errA != nil || errB != nil || string(a) != string(b) {
			t.Errorf("%s with its defaults written out:\n%s\nwithout:\n%s", name, b, a)
		}
	}
}

// Each commented key can be taken in by itself, by removing its "# ", with the keys
// above it that it belongs to: it stands where it belongs.
func TestExamplesCommentsStandWhereTheyBelong(t *testing.T) {
	into := map[string]func() any{"shuffler": func() any { return &Shuffler{} }, "coordinator": func() any { return &Coordinator{} },
		"aggregator": func() any { return &Aggregator{} }, "client": func() any { return &Client{} }, "all": func() any { return &All{} }, "registrar": func() any { return &Registrar{} }, "relay": func() any { return &Relay{} }, "worker": func() any { return &Worker{} }}
	for name, empty := range into {
		lines := strings.Split(example(t, name), "\n")
		tried := 0
		for i, line := range lines {
			m := commented.FindStringSubmatch(line)
			if m == nil || m[3] == "" && strings.HasSuffix(strings.TrimSpace(m[2]), ":") && i+1 < len(lines) && commented.MatchString(lines[i+1]) {
				continue
			}
			full := append([]string(nil), lines...)
			full[i] = m[1] + m[2]
			if m[3] != "" { // of a block that is commented out: with its first line
				for j := i - 1; j >= 0; j-- {
					if up := commented.FindStringSubmatch(lines[j]); up != nil && up[3] == "" {
						full[j] = up[1] + up[2]
						break
					}
				}
			}
			if err := decode(writeConfig(t, strings.Join(full, "\n")), empty()); err != nil {
				t.Errorf("%s: line %d: %s: %v", name, i+1, line, err)
			}
			tried++
		}
		if tried < 6 && name != "all" && !(name == "worker" && tried == 5) {
			t.Errorf("%s: %d commented keys", name, tried)
		}
	}
}

// Every key of a configuration is in its example, so that the example is the
// reference.
func TestExamplesHaveEveryKey(t *testing.T) {
	for name, v := range map[string]any{"shuffler": Shuffler{}, "coordinator": Coordinator{}, "aggregator": Aggregator{}, "client": Client{}, "all": All{}, "registrar": Registrar{}, "relay": Relay{}, "worker": Worker{}} {
		text := example(t, name)
		// The parts that all servers share are shown in full by the shuffler's.
		shared := map[string]bool{}
		if name != "shuffler" {
			for _, k := range keysOf(reflect.TypeOf(store.Config{})) {
				shared[k] = true
			}
		}
		for _, k := range keysOf(reflect.TypeOf(v)) {
			skip := shared[k] || name == "coordinator" && k == "peers-listen" || name == "aggregator" && (k == "listen" || k == "rate") ||
				name == "client" && k == "pins" || name != "client" && k == "urls" || (name == "registrar" && (k == "key" || k == "url") || name == "relay" && k == "key")
			if !skip && !regexp.MustCompile(`(?m)^[# ]*`+k+`:`).MatchString(text) {
				t.Errorf("%s: key %s is not in the example", name, k)
			}
		}
	}
}

func keysOf(t reflect.Type) (keys []string) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		if tag == "-" || tag == "" && !inline {
			continue
		}
		if tag, _, _ = strings.Cut(tag, ","); tag != "" {
			keys = append(keys, tag)
		}
		keys = append(keys, keysOf(f.Type)...)
	}
	return keys
}

func TestConfigIsStrict(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"shuffler", "n-min: 100", "nmin: 100", `line 22: unknown key "nmin"`},
		{"shuffler", "n-min: 100", "n-min: 100\nn-min: 2", "already defined"},
		{"shuffler", "n-min: 100", "n-min: 1", "at least 2"},
		{"shuffler", "n-min: 100", "n-min: -5", "at least 2"},
		{"shuffler", "00112233445566778899aabbccddeeff", "0011", "32 hex digits"},
		{"shuffler", "00112233445566778899aabbccddeeff", strings.Repeat("0", 32), "not a population"},
		{"shuffler", "  dir: data", "  dir: data\n  url: nats://x", "not both"},
		{"shuffler", "  dir: data", "  max-bytes: 5", "needs dir or url"},
		{"shuffler", `  pins: ["sha256:`, `  pins: ["sha1:`, "is not a pin"},
		{"shuffler", "  key: ed25519:", "  key: rsa:", "public signing key"},
		{"shuffler", "listen: 0.0.0.0:8443", "listen: nowhere", "is not an address"},
		{"shuffler", "aggregator-sealing-keys:", "# x\nsealing-kex:", "unknown key"},
		{"shuffler", "  - hpke:1:", "  - hpke:9:", "public sealing key"},
		{"shuffler", "# validity: 720h", "validity: -1h", "at least 1m"},
		{"shuffler", "# log: info", "log: loud", "must be debug"},
		{"coordinator", "epsilon: 4", "epsilon: 0", "budget"},
		{"coordinator", "epsilon: 4", "epsilon: .nan", "budget"},
		{"coordinator", "delta: 1e-5", "delta: 1", "budget"},
		{"coordinator", "mark: mark/ledger.json", "", "required"},
		{"coordinator", "https://shuffler.example:8444", "http://shuffler.example:8444", "must be https"},
		{"coordinator", "# round-length: 1m", "round-length: 1ms", "at least 1s"},
		{"coordinator", "listen: 0.0.0.0:8445", "listen: 0.0.0.0:8445\npeers-listen: 0.0.0.0:1", "no use"},
		{"coordinator", "# dashboard: 127.0.0.1:8463", "dashboard: nowhere", "is not an address"},
		{"coordinator", "# dashboard: 127.0.0.1:8463", "dashboard: 0.0.0.0:8463", "dashboard-token is required"},
		{"coordinator", "# dashboard: 127.0.0.1:8463", "dashboard: coordinator.example:8463", "dashboard-token is required"},
		{"aggregator", "sealing-keys:", "sealing-key:", "unknown key"},
		{"aggregator", "peers-listen:", "listen:", "required"},
		{"client", "max-eps0: 4", "max-eps0: -4", "policy"},
		{"client", "n-min: 100", "n-min: 0", "crowd"},
		{"client", "# noise-by: []", "noise-by: [shuffler]", `noise by "shuffler" must be by clients or aggregators`},
		{"client", `# proofs: ""`, "proofs: pine", `proofs: "pine" must be required, or left out`},
		{"client", `# receipts: ""`, "receipts: yes", `receipts: "yes" must be required, or left out`},
		{"client", "data: mnist", "", "required"},
		{"client", "  key: ed25519:", "  pins: [\"sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]\n  key: ed25519:", "by roots"},
		{"shuffler", "# origins: []", "origins: [\"*\"]", "without *"},
		{"shuffler", "# origins: []", "origins: [https://shop.example/]", "without a / at the end"},
		{"shuffler", "# origins: []", "origins: [http://shop.example]", "http is for loopback"},
		{"shuffler", "# origins: []", "origins: [\"null\", https://shop.example]", "not an origin"},
		{"coordinator", "# origins: []", "origins: [https://shop.example, https://shop.example]", "listed twice"},
		{"registrar", "# origins: []", "origins: [https://shop.example:443]", "own port"},
		{"relay", "# origins: []", "origins: [https://Shop.example]", "lower case"},
		{"shuffler", "# workers: null", "workers: {pins: [\"sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\"]}", "is another role's, too"},
		{"shuffler", "# workers: null", "workers: {}", "pins are required"},
		{"coordinator", "# opening: here", "opening: nobody", "must be here or workers"},
		{"coordinator", "# opening: here", "opening: workers", "a cluster"},
		{"coordinator", "# worker-keys: []", "worker-keys: [\"hpke:1:1924991999:AAAA\"]", "have a use with opening: workers only"},
		{"worker", "  url: nats://n1:4222,nats://n2:4222,nats://n3:4222", "  dir: data", "queue needs a url"},
		{"worker", "# ranges: 0", "ranges: -1", "must not be negative"},
		{"worker", "  key: ed25519", "  url: https://coordinator.example:1\n  key: ed25519", "no use for a url"},
		{"aggregator", "# log: info", "origins: [https://shop.example]", `unknown key "origins"`}, // no client talks to it
		{"client", "# log: info", "origins: [https://shop.example]", `unknown key "origins"`},
		{"all", "shuffler: shuffler.yaml", "", "required"},
		{"all", "shuffler: shuffler.yaml", "shuffler: shuffler.yaml\n---\na: b", "more than one document"},
	} {
		text := example(t, c.name)
		if !strings.Contains(text, c.old) {
			t.Errorf("%s has no %q", c.name, c.old)
			continue
		}
		_, err := loaders[c.name](writeConfig(t, strings.Replace(text, c.old, c.new, 1)))
		if err == nil || !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s with %q: %v, want %q", c.name, c.new, err, c.want)
		}
	}
	if _, err := Load[All](filepath.Join(t.TempDir(), "none.yaml")); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

func TestPathsAreRelativeToTheFile(t *testing.T) {
	path := writeConfig(t, example(t, "coordinator"))
	c, err := Load[Coordinator](path)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(path)
	for got, want := range map[string]string{c.Mark: "mark/ledger.json", c.Store.Dir: "data", c.Operator: "coordinator.sock", c.SealingKeys[0]: "keys/sealing-0000000000000000.key"} {
		if got != filepath.Join(dir, want) {
			t.Errorf("%s, want %s in %s", got, want, dir)
		}
	}
	var plain yaml.Node
	if err := yaml.Unmarshal([]byte(example(t, "all")), &plain); err != nil {
		t.Error(err)
	}
}

// A configuration that names a program may be written by its owner alone: whoever can write it has the program run.
func TestOnlyOwnersNamePrograms(t *testing.T) {
	path := filepath.Join(t.TempDir(), "client.yaml")
	for mode, refused := range map[os.FileMode]bool{0o600: false, 0o644: false, 0o664: true, 0o646: true} {
		for text, names := range map[string]bool{"gradients: python3 grad.py\n": true, "data: mnist\n": false} {
			if err := errors.Join(os.WriteFile(path, []byte("credentials: c\ndir: d\n"+text), 0o600), os.Chmod(path, mode)); err != nil {
				t.Fatal(err)
			}
			_, err := Load[Client](path)
			if said := err != nil && strings.Contains(err.Error(), "only its owner may write it"); said != (refused && names) && runtime.GOOS != "windows" {
				t.Errorf("mode %#o, %q: %v", mode, text, err)
			}
		}
	}
}

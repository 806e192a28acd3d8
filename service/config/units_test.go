package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A unit starts its role again after trouble, for as long as it takes, and not after
// a mistake or a refusal; each key stands in the section that it is read in.
func TestUnits(t *testing.T) {
	for _, role := range []string{"shuffler", "coordinator", "aggregator"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", "riffle-"+role+".service"))
		if err != nil {
			t.Fatal(err)
		}
		keys, section := map[string]string{}, ""
		for line := range strings.Lines(string(b)) {
			line = strings.TrimSpace(line)
			if strings.HasPrefix(line, "[") {
				section = line
			} else if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
				keys[section+key] = value
			}
		}
		for key, want := range map[string]string{"[Unit]StartLimitIntervalSec": "0", "[Service]Restart": "on-failure",
			"[Service]RestartPreventExitStatus": "2 3", "[Service]User": "riffle-" + role, "[Service]UMask": "0077",
			"[Service]ExecStart": "/usr/local/bin/riffle serve " + role + " --config /etc/riffle/" + role + "/" + role + ".yaml"} {
			if keys[key] != want {
				t.Errorf("%s: %s=%q, want %q", role, key, keys[key], want)
			}
		}
		// systemd would stop the coordinator if the kernel ended the process that answers strangers' questions.
		if role == "coordinator" && keys["[Service]OOMPolicy"] != "continue" {
			t.Errorf("%s: OOMPolicy=%q", role, keys["[Service]OOMPolicy"])
		}
	}
}

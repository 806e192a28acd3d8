package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A demo's directory may be a stranger's. Its processes write marks and records, remove files and call servers where
// their configurations say: nothing of that leads out of the directory.
func TestDemoStaysInItsDirectory(t *testing.T) {
	dir := t.TempDir()
	d := demo{Clients: 4, Processes: 1, Data: "mnist", Trust: "shuffle", Suite: "x25519", dir: dir}
	const shuffler = "listen: 127.0.0.1:9001\npeers-listen: 127.0.0.1:9002\nadmin: none\nsigning-key: keys/signing.key\nstore:\n    dir: data\n    url: \"\"\n"
	const coordinator = "listen: localhost:9003\noperator: \"\"\nmark: ledger.json\nrecord: record\ndata: mnist\nshuffler:\n    url: https://127.0.0.1:9002\n    key: ed25519:AB/c+==\ndashboard: 127.0.0.1:9004\n"
	clients := "dir: ledger\ndata: mnist\nrows: " + filepath.Join(dir, demoPeople) + "\nspread: -1ns\ncoordinator:\n    url: https://localhost:9003\n"
	write := func(process, file, text string) {
		t.Helper()
		path := filepath.Join(dir, process, file)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	honest := func() {
		write("shuffler", "shuffler.yaml", shuffler)
		write("coordinator", "coordinator.yaml", coordinator)
		write("clients-0", "client.yaml", clients)
	}
	honest()
	if err := d.refuseForeign(""); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ process, file, text string }{
		{"clients-0", "client.yaml", clients + "gradients: touch x\n"},
		{"clients-0", "client.yaml", clients + "ready: /home/victim/.profile\n"},
		{"clients-0", "client.yaml", clients + "ready: ../../.profile\n"},
		{"clients-0", "client.yaml", strings.Replace(clients, "localhost", "evil.example", 1)},
		{"clients-0", "client.yaml", clients + "cache: https://evil.example\n"},
		{"coordinator", "coordinator.yaml", coordinator + "evaluate: touch x\n"},
		{"coordinator", "coordinator.yaml", strings.Replace(coordinator, "ledger.json", "/home/victim/ledger.json", 1)},
		{"coordinator", "coordinator.yaml", strings.Replace(coordinator, "mark: ledger.json", "mark: &a ledger.json\nholder: *a", 1)},
		{"coordinator", "coordinator.yaml", strings.Replace(coordinator, "data: mnist", "data: /home/victim/data", 1)},
		{"coordinator", "coordinator.yaml", strings.Replace(coordinator, "127.0.0.1:9004", "0.0.0.0:9004", 1)},
		{"shuffler", "shuffler.yaml", strings.Replace(shuffler, "url: \"\"", "url: evil.example:4222", 1)},
		{"shuffler", "shuffler.yaml", strings.Replace(shuffler, "url: \"\"", "url: nats://127.0.0.1:1,nats://evil.example:2", 1)},
	} {
		write(c.process, c.file, c.text)
		if err := d.refuseForeign(""); err == nil {
			t.Errorf("taken: %s", c.text)
		}
		honest()
	}
	for name, change := range map[string]func(*demo){
		"page":      func(d *demo) { d.Page = "http://0.0.0.0:80" },
		"program":   func(d *demo) { d.Gradients = "touch x" },
		"processes": func(d *demo) { d.Processes = 1 << 40 },
	} {
		other := d
		if change(&other); other.refuseForeign("") == nil {
			t.Errorf("%s: taken", name)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "coordinator", "data")); err == nil && d.refuseForeign("") == nil {
		t.Error("a link was taken")
	}
}

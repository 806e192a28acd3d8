//go:build long

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// Clients that wait with the settings of docs/deploy/client.yaml for a task take part in
// each of its rounds of 15 seconds, the first as well. A round of clients' own coins
// lasts all of its 15 seconds: nobody knows how many will come.
func TestRoundsOfFifteenSeconds(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "deploy", "client.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var defaults config.Client
	if err := yaml.Unmarshal(text, &defaults); err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	data := filepath.Join(dir, "images")
	const clients, rounds = 120, 3
	if err := tiny(data, clients, 30, false); err != nil {
		t.Fatal(err)
	}
	l := operate.Loopback{Dir: dir, Clients: clients, Processes: 2, MinReports: 2, Suite: wire.X25519, Epsilon: 2, Delta: 1e-5, Data: data,
		Policy: defaults.Policy, Spread: defaults.Spread}
	if err := l.Create(context.Background()); err != nil {
		t.Fatal(err)
	}
	coordinator := l.Config(operate.RoleCoordinator)
	background(t, "serve", operate.RoleShuffler, "--config", l.Config(operate.RoleShuffler))
	background(t, "serve", operate.RoleCoordinator, "--config", coordinator)
	c, err := config.Load[config.Coordinator](coordinator)
	if err != nil {
		t.Fatal(err)
	}
	until(t, "the coordinator is ready", func() bool {
		code, _, _ := outcome(t, "task", "list", "--config", coordinator)
		return code == exitDone && get(t, "http://"+c.Admin+"/readyz") == 200
	})
	for i := range l.Processes {
		_, log := background(t, "client", "--config", l.Config(fmt.Sprint("clients-", i)))
		defer func() { t.Log(log.String()) }()
	}
	want(t, exitDone, `"state": "running"`, "task", "create", "--config", coordinator, "--name", "short", "--data", data, "--model", "softmax",
		"--participation", "check-in", "--gamma", "1", "--eps0", ".5", "--rounds", "3", "--round", "15s", "--n-min", "100", "--json")
	var s struct {
		State    string
		Released int64 `json:"rounds_released"`
		Void     int64 `json:"rounds_void"`
		Reports  int64 `json:"reports_accepted"`
	}
	until(t, "the task is done", func() bool {
		if err := json.Unmarshal([]byte(want(t, exitDone, "", "task", "show", "short", "--config", coordinator, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s.State != "running"
	})
	if s.Released != rounds || s.Reports != rounds*clients {
		t.Errorf("%+v, want %d rounds with the reports of %d clients each", s, rounds, clients)
	}
}

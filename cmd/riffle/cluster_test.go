package main

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/store/natstest"
)

// cluster is three NATS servers as processes. Its domains share it, to spare a small
// machine three more; their streams are apart.
type cluster struct {
	t      *testing.T
	nodes  []natstest.Node
	procs  []*exec.Cmd
	launch func(node int, cmd *exec.Cmd) error // starts a node
}

// newCluster starts the servers. launch starts one where it belongs, on hosts[i]; without hosts
// all are on loopback.
func newCluster(t *testing.T, launch func(int, *exec.Cmd) error, hosts ...string) *cluster {
	t.Helper()
	nodes, err := natstest.NewNodes(3, shortDir(t), hosts...)
	if err != nil {
		t.Fatal(err)
	}
	if launch == nil {
		launch = func(_ int, cmd *exec.Cmd) error { return cmd.Start() }
	}
	c := &cluster{t, nodes, make([]*exec.Cmd, len(nodes)), launch}
	t.Cleanup(func() { c.kill(0, 1, 2) })
	c.start(0, 1, 2)
	return c
}

// start starts nodes and waits until each takes connections.
func (c *cluster) start(which ...int) {
	c.t.Helper()
	path, err := exec.LookPath("riffle-node")
	if err != nil {
		c.t.Fatal(err)
	}
	for _, i := range which {
		cmd := exec.Command(path, c.nodes[i].Args...)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = c.launch(i, cmd)
		}
		if err != nil {
			c.t.Fatal(err)
		}
		c.procs[i] = cmd
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "ready\n" {
			c.t.Fatalf("node %d says %q, %v", i, line, err)
		}
	}
}

// kill is kill -9, of all of them at the same time.
func (c *cluster) kill(which ...int) {
	for _, i := range which {
		if c.procs[i] != nil {
			_ = c.procs[i].Process.Kill()
		}
	}
	for _, i := range which {
		if c.procs[i] != nil {
			_ = c.procs[i].Wait() // it was killed
			c.procs[i] = nil
		}
	}
}

// move makes a configuration of a role with the store in the cluster.
func (c *cluster) move(config string) string {
	c.t.Helper()
	b, err := os.ReadFile(config)
	if err != nil {
		c.t.Fatal(err)
	}
	const embedded = "    dir: data\n    max-bytes: 0\n    url: \"\"\n"
	if !bytes.Contains(b, []byte(embedded)) {
		c.t.Fatalf("%s has no embedded store:\n%s", config, b)
	}
	var urls []string
	for _, n := range c.nodes {
		urls = append(urls, n.URL)
	}
	b = bytes.Replace(b, []byte(embedded), []byte("    url: "+strings.Join(urls, ",")+"\n"), 1)
	path := filepath.Join(filepath.Dir(config), "cluster.yaml")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// migrate moves a deployment's stores into the cluster. Its servers must not run.
func (c *cluster) migrate(d *deployment) {
	c.t.Helper()
	for _, role := range d.roles() {
		old, next := d.configs[role], c.move(d.configs[role])
		var text string
		until(c.t, "a migration of "+role, func() bool { // the nodes elect a leader first
			code, out, errText := outcome(c.t, "migrate", role, "--config", old, "--to", next, "--json")
			text = out + errText
			if code != exitDone {
				c.t.Logf("migrate %s: exit %d, %s", role, code, text)
			}
			return code == exitDone
		})
		want(c.t, exitRefused, "was migrated", "serve", role, "--config", old)
		want(c.t, exitDone, `"clean": true`, "fsck", role, "--config", next, "--json")
		d.configs[role] = next
		c.t.Logf("moved %s: %s", role, strings.Join(strings.Fields(text), " "))
	}
}

// TestGrow runs five rounds on embedded stores and the rest in a cluster.
func TestGrow(t *testing.T) {
	longtest.Only(t, "a cluster of three servers")
	if testing.Short() {
		t.Skip("three servers")
	}
	begin := time.Now()
	at := func(what string) { t.Logf("%5.1f s: %s", time.Since(begin).Seconds(), what) }
	d := deploy(t, scenario{clients: 12, processes: 2, rounds: 20, spread: 200 * time.Millisecond})
	d.reach(5, patience)
	at("five rounds")
	before := d.last.LedgerEntries
	d.stop(operate.RoleCoordinator, operate.RoleShuffler) // clients go on asking
	at("stopped")
	c := newCluster(t, nil)
	at("nodes")
	c.migrate(d)
	at("migrated")
	want(t, exitDone, "entries", "ledger", "verify", "--config", d.configs[operate.RoleCoordinator])
	d.start(d.roles()...)
	d.reach(max(6, d.last.Round+1), patience)
	at("one more round")
	if d.last.LedgerEntries <= before {
		t.Errorf("%d entries, %d before", d.last.LedgerEntries, before)
	}
	d.whole(patience)
	at("done")
}

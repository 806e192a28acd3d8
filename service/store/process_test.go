package store

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/service/store/natstest"
)

// The test binary is also a process to be killed: RIFFLE_STORE_CHILD names
// what it does, and its arguments.
const childEnv = "RIFFLE_STORE_CHILD"

func child(task string) {
	f := strings.Split(task, "|")
	var err error
	switch f[0] {
	case "power":
		err = childPower(f[1])
	case "killed":
		err = childKilled(f[1])
	case "next":
		err = childNext(f[1])
	case "write":
		err = childWrite(f[1])
	case "delete":
		err = childDelete(f[1])
	case "hold":
		err = childHold(f[1])
	case "migrate":
		err = childMigrate(f[1], f[2])
	case "node":
		err = natstest.Serve(f[1:], os.Stdout)
	default:
		err = fmt.Errorf("no task %q", task)
	}
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

type process struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func spawn(t testing.TB, task ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+strings.Join(task, "|"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	p := &process{cmd, bufio.NewScanner(out)}
	t.Cleanup(p.kill)
	return p
}

// kill is kill -9.
func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		p.cmd.Process.Kill()
		for p.lines.Scan() {
		}
		p.cmd.Wait()
	}
}

// line waits for the next line, or fails if the process says no more.
func (p *process) line(t testing.TB) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatal("the process ended")
	}
	if strings.HasPrefix(p.lines.Text(), "error:") {
		t.Fatal(p.lines.Text())
	}
	return p.lines.Text()
}

// node is one server of a cluster on loopback.
type node struct {
	natstest.Node
	server *server.Server
}

func newNodes(t testing.TB, n int) []*node {
	t.Helper()
	all, err := natstest.NewNodes(n, t.TempDir())
	must(t, err)
	var nodes []*node
	for _, one := range all {
		nodes = append(nodes, &node{Node: one})
	}
	return nodes
}

func (d *node) start(t testing.TB) {
	t.Helper()
	s, err := server.NewServer(d.Options)
	must(t, err)
	d.server = s
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
}

func urls(nodes []*node) string {
	var all []string
	for _, d := range nodes {
		all = append(all, d.URL)
	}
	return strings.Join(all, ",")
}

// initCluster makes the store, which has to wait for the first election.
func initCluster(t testing.TB, c Config) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = Init(t.Context(), c); err == nil {
			return
		}
	}
	t.Fatal(err)
}

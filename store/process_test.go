package store

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// The test binary is also a process to be killed: RIFFLE_STORE_CHILD names
// what it does, and its arguments.
const childEnv = "RIFFLE_STORE_CHILD"

func child(task string) {
	f := strings.Split(task, "|")
	var err error
	switch f[0] {
	case "write":
		err = childWrite(f[1])
	case "hold":
		err = childHold(f[1])
	case "migrate":
		err = childMigrate(f[1], f[2])
	case "node":
		err = childNode(f[1:])
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
	name         string
	client, peer int
	dir          string
	routes       []string
	server       *server.Server
	proc         *process
	clusterName  string
}

func newNodes(t testing.TB, n int) []*node {
	t.Helper()
	nodes := make([]*node, n)
	var routes []string
	for i := range nodes {
		nodes[i] = &node{name: fmt.Sprint("n", i), client: freePort(t), peer: freePort(t), dir: t.TempDir(), clusterName: "riffle-test"}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", nodes[i].peer))
	}
	for _, d := range nodes {
		d.routes = routes
	}
	return nodes
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (d *node) options() *server.Options {
	return &server.Options{ServerName: d.name, Host: "127.0.0.1", Port: d.client, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: d.dir, SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 4 << 30,
		Cluster: server.ClusterOpts{Name: d.clusterName, Host: "127.0.0.1", Port: d.peer},
		Routes:  server.RoutesFromStr(strings.Join(d.routes, ","))}
}

func (d *node) start(t testing.TB) {
	t.Helper()
	s, err := server.NewServer(d.options())
	must(t, err)
	d.server = s
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
}

// startProcess runs the node as a process of its own.
func (d *node) startProcess(t testing.TB) {
	t.Helper()
	d.proc = spawn(t, "node", d.name, strconv.Itoa(d.client), strconv.Itoa(d.peer), d.dir, strings.Join(d.routes, ","), d.clusterName)
	if got := d.proc.line(t); got != "ready" {
		t.Fatalf("node %s says %q", d.name, got)
	}
}

func childNode(f []string) error {
	d := node{name: f[0], dir: f[3], routes: strings.Split(f[4], ","), clusterName: f[5]}
	d.client, _ = strconv.Atoi(f[1])
	d.peer, _ = strconv.Atoi(f[2])
	s, err := server.NewServer(d.options())
	if err != nil {
		return err
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("node %s does not start", d.name)
	}
	fmt.Println("ready")
	s.WaitForShutdown()
	return nil
}

func urls(nodes []*node) string {
	var out []string
	for _, d := range nodes {
		out = append(out, fmt.Sprintf("nats://127.0.0.1:%d", d.client))
	}
	return strings.Join(out, ",")
}

// initCluster makes the store, which has to wait for the first election.
func initCluster(t testing.TB, c Config) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if err = Init(t.Context(), c); err == nil {
			return
		}
	}
	t.Fatal(err)
}

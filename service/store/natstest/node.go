// Package natstest runs clusters of NATS servers on loopback for tests. Each server is a
// process of its own that a test can kill. The servers do not authenticate clients.
package natstest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// Node is one server of a cluster.
type Node struct {
	Name, Cluster string
	Client, Peer  int // ports
	Dir           string
	Routes        []string // routes of all nodes
}

// NewNodes returns n nodes of one cluster with directories below dir, on ports that are free
// now.
func NewNodes(n int, dir string) ([]Node, error) {
	nodes := make([]Node, n)
	var routes []string
	var held []net.Listener // keeps ports taken until all are chosen
	port := func() (int, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		held = append(held, l)
		return l.Addr().(*net.TCPAddr).Port, nil
	}
	var errs []error
	for i := range nodes {
		client, err := port()
		peer, err2 := port()
		errs = append(errs, err, err2)
		name := fmt.Sprint("n", i)
		nodes[i] = Node{Name: name, Cluster: "riffle-test", Client: client, Peer: peer, Dir: filepath.Join(dir, name)}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", peer))
	}
	for i := range nodes {
		nodes[i].Routes = routes
	}
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return nodes, errors.Join(errs...)
}

// Options returns the settings that the operator's guide asks for.
func (n Node) Options() *server.Options {
	return &server.Options{ServerName: n.Name, Host: "127.0.0.1", Port: n.Client, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: n.Dir, SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 4 << 30,
		Cluster: server.ClusterOpts{Name: n.Cluster, Host: "127.0.0.1", Port: n.Peer},
		Routes:  server.RoutesFromStr(strings.Join(n.Routes, ","))}
}

// Args returns the arguments for Serve.
func (n Node) Args() []string {
	return []string{n.Name, n.Cluster, strconv.Itoa(n.Client), strconv.Itoa(n.Peer), n.Dir, strings.Join(n.Routes, ",")}
}

// Serve runs a node until the process ends, and prints "ready" once it accepts connections.
func Serve(args []string, out io.Writer) error {
	if len(args) != 6 {
		return fmt.Errorf("natstest: %d arguments, want 6", len(args))
	}
	client, err := strconv.Atoi(args[2])
	peer, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	n := Node{Name: args[0], Cluster: args[1], Client: client, Peer: peer, Dir: args[4], Routes: strings.Split(args[5], ",")}
	s, err := server.NewServer(n.Options())
	if err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("natstest: node %s does not start", n.Name)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}

// URLs returns the addresses that clients of the cluster connect to.
func URLs(nodes []Node) string {
	var out []string
	for _, n := range nodes {
		out = append(out, fmt.Sprintf("nats://127.0.0.1:%d", n.Client))
	}
	return strings.Join(out, ",")
}

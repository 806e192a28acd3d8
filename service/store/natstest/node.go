// Package natstest runs clusters of NATS servers for tests, on loopback or on machines of their
// own. Each server is a process that a test can kill. The servers do not authenticate clients.
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
	Name, URL string          // URL is the address for clients
	Options   *server.Options // settings that the operator's guide asks for
	Args      []string        // arguments for Serve
}

// NewNodes returns n nodes of one cluster with directories below dir, on ports that are free
// now. Node i listens on hosts[i], or on loopback if there are no hosts.
func NewNodes(n int, dir string, hosts ...string) ([]Node, error) {
	if len(hosts) > 0 && len(hosts) != n {
		return nil, fmt.Errorf("natstest: %d nodes on %d hosts", n, len(hosts))
	}
	nodes := make([]Node, n)
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
	var routes []string
	for i := range nodes {
		client, err := port()
		peer, err2 := port()
		errs = append(errs, err, err2)
		name, host := fmt.Sprint("n", i), "127.0.0.1"
		if len(hosts) > 0 {
			host = hosts[i]
		}
		nodes[i] = Node{Name: name, URL: fmt.Sprintf("nats://%s:%d", host, client),
			Args: []string{name, host, strconv.Itoa(client), strconv.Itoa(peer), filepath.Join(dir, name)}}
		routes = append(routes, fmt.Sprintf("nats://%s:%d", host, peer))
	}
	for i := range nodes {
		nodes[i].Args = append(nodes[i].Args, strings.Join(routes, ","))
		var err error
		nodes[i].Options, err = options(nodes[i].Args)
		errs = append(errs, err)
	}
	for _, l := range held {
		errs = append(errs, l.Close())
	}
	return nodes, errors.Join(errs...)
}

// options reads a node's name, host, ports for clients and peers, directory, and the routes of
// all nodes.
func options(args []string) (*server.Options, error) {
	if len(args) != 6 {
		return nil, fmt.Errorf("natstest: %d arguments, want 6", len(args))
	}
	client, err := strconv.Atoi(args[2])
	peer, err2 := strconv.Atoi(args[3])
	if err := errors.Join(err, err2); err != nil {
		return nil, fmt.Errorf("natstest: %w", err)
	}
	return &server.Options{ServerName: args[0], Host: args[1], Port: client, NoLog: true, NoSigs: true,
		JetStream: true, StoreDir: args[4], SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 4 << 30,
		Cluster: server.ClusterOpts{Name: "riffle-test", Host: args[1], Port: peer},
		Routes:  server.RoutesFromStr(args[5])}, nil
}

// Serve runs a node until the process ends, and prints "ready" once it accepts connections.
func Serve(args []string, out io.Writer) error {
	o, err := options(args)
	if err != nil {
		return err
	}
	s, err := server.NewServer(o)
	if err != nil {
		return fmt.Errorf("natstest: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(20 * time.Second) {
		return fmt.Errorf("natstest: node %s does not start", o.ServerName)
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	s.WaitForShutdown()
	return nil
}

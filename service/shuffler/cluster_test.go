package shuffler

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
	"github.com/riffle-dp/riffle/service/store/natstest"
)

// nodeChild makes the test binary a server of a cluster: it has natstest.Serve's arguments.
const nodeChild = "RIFFLE_SHUFFLER_NODE"

func nodeMain() {
	if err := natstest.Serve(strings.Split(os.Getenv(nodeChild), "|"), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// cluster starts n servers as processes with directories below dir, and makes a store on them.
func cluster(t *testing.T, dir string, n, replicas int) (c store.Config, procs []*exec.Cmd) {
	t.Helper()
	nodes, err := natstest.NewNodes(n, dir)
	if err != nil {
		t.Fatal(err)
	}
	var urls []string
	for _, d := range nodes {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), nodeChild+"="+strings.Join(d.Args, "|"))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if l := bufio.NewScanner(out); !l.Scan() || l.Text() != "ready" {
			t.Fatalf("a node says %q", l.Text())
		}
		urls, procs = append(urls, d.URL), append(procs, cmd)
	}
	c = store.Config{Domain: "shuffler", URL: strings.Join(urls, ","), Replicas: replicas, Timeout: 2 * time.Minute}
	for end := time.Now().Add(2 * time.Minute); ; {
		if err := store.Init(t.Context(), c); err == nil {
			return c, procs
		} else if time.Now().After(end) { // no leader was elected
			t.Fatal(err)
		}
	}
}

func on(t *testing.T, c store.Config) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// Three shufflers on a cluster of three servers shuffle a round together. Meanwhile one of the shufflers
// stops and a server is killed; the batch is that of one process.
func TestAClusterSharesTheShuffling(t *testing.T) {
	longtest.Only(t, "it runs a cluster")
	const clients = 300
	where, nodes := cluster(t, t.TempDir(), 3, 3)
	w := newWorld(t, clients)
	var procs []*node
	started := make(chan struct{}, 1000)
	for range 3 {
		c := w.config()
		c.Bucket, c.Poll, c.Lease = 4000, 200*time.Millisecond, 5*time.Second
		c.Store = watched{on(t, where), started}
		procs = append(procs, w.start(c))
	}
	ann := procs[0].announcement(1)
	procs[0].open(ann)
	d := wire.Digest(ann)
	name := encodeName(d[:])
	ctx := context.Background()
	keys, err := procs[0].store.Secret(ctx, linksName(name))
	if err != nil {
		t.Fatal(err)
	}
	w.disk.Past[linksName(name)] = keys
	var sent [][2]int
	bodies := make([][][]byte, 3)
	for i := range clients - 1 {
		bodies[i%3] = append(bodies[i%3], w.report(ann, i, 0))
		sent = append(sent, [2]int{i, 0})
	}
	for i, n := range procs {
		n.send(bodies[i]...)
	}
	procs[1].send(w.report(ann, 0, 0)) // a copy at another frontend
	sent = append(sent, [2]int{0, 0})
	last := w.report(ann, clients-1, 0)
	for len(started) > 0 {
		<-started
	}
	procs[2].send(last) // the round is complete
	sent = append(sent, [2]int{clients - 1, 0})
	for range 8 { // jobs under way
		<-started
	}
	if err := nodes[2].Process.Kill(); err != nil {
		t.Error(err)
	}
	procs[2].stop()
	word := procs[0].closed(ann)
	want, _ := w.expected(ann, sent)
	for _, n := range procs[:2] {
		if got := n.fetch(Coordinator, ann, word); word.Reports != clients || !slices.EqualFunc(got, want, bytes.Equal) {
			t.Errorf("another batch, of %d reports", word.Reports)
		}
	}
	rec, err := procs[0].loadRecord(ctx, name)
	if err != nil || rec.Plan == nil || rec.Plan.Bits < 4 {
		t.Errorf("%+v, %v", rec.Plan, err)
	}
	t.Logf("%d processes have cut %d buckets", len(rec.streams(name)), 1<<rec.Plan.Bits)
	procs[1].must(Coordinator, "DELETE", path(ann, ""), nil)
}

// watched tells when a lease is taken.
type watched struct {
	*store.Store
	taken chan<- struct{}
}

func (w watched) TryAcquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, uint64, error) {
	l, token, err := w.Store.TryAcquire(ctx, name, holder, ttl)
	if err == nil {
		select {
		case w.taken <- struct{}{}:
		default:
		}
	}
	return l, token, err
}

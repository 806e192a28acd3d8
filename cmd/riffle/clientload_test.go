package main

import (
	"bytes"
	"encoding/json"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/load"
	"github.com/riffle-dp/riffle/service/operate"
)

func TestLoadFlags(t *testing.T) {
	const client, file = "client", "--config=none.yaml"
	for text, args := range map[string][]string{
		"--rate goes with --load":        {client, file, "--rate=3"},
		"--connections goes with --load": {client, file, "--connections=kept"},
		"--load has reports of zeros":    {client, file, "--load=00", "--gradients=true"},
		"--seconds = 0 must be":          {client, file, "--load=00", "--seconds=0"},
		"--at-once = 0 must be":          {client, file, "--load=00", "--at-once=0"},
		"must not be negative":           {client, file, "--load=00", "--repeat=-1"},
		`--connections = "new" must be`:  {client, file, "--load=00", "--connections=new"},
		`--from: "here" is no address`:   {client, file, "--load=00", "--from=here"},
		"none.yaml: no such file":        {client, file, "--load=00"},
	} {
		want(t, 2, text, args...)
	}
}

func TestLoadIsPrinted(t *testing.T) {
	r := &load.Result{Clients: 9, Connections: load.Each, Seconds: 2, Rounds: 1, Reports: 8, Again: 4, Rate: 6, Sent: 1000, Received: 900, Opened: 30,
		Requests: map[string]load.Times{"report": {Count: 8, Median: .001, P90: .0123, P99: .5, Longest: 1.5}},
		Errors:   map[string]map[string]int64{"report": {"timeout": 1, "closed": 3}}, Declined: map[string]int64{"budget": 2}}
	var out bytes.Buffer
	p := printer{w: &out}
	printLoad(&p, r)
	if p.err != nil {
		t.Fatal(p.err)
	}
	for _, line := range []string{"reports taken        8 by 9 clients in 1 rounds, and 4 again", "a second             6.0 in 2.0 s",
		"report                 8        1.0       12.3      500.0     1500.0", "errors: report       closed 3, timeout 1", "declined             budget 2"} {
		if !strings.Contains(out.String(), line+"\n") {
			t.Errorf("no line %q in\n%s", line, out.String())
		}
	}
}

// A load that is interrupted, here before any server has answered, prints what it measured; and
// clients who have a ledger are not let loose on a task.
func TestLoadIsInterrupted(t *testing.T) {
	l := operate.Loopback{Dir: shortDir(t), Clients: 2, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 100, Delta: 1e-5, Data: "mnist",
		Policy: config.Policy{MaxEps0: 3, MaxEps: 100, MaxTaskEps: 50, Delta: 1e-5, MinReports: 2, MaxTasks: 3}, Spread: -1}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	from, task := l.Config("clients-0"), "--load="+strings.Repeat("00", 32)
	want(t, 2, "a load is no part of clients who have a ledger", "client", "--config", from, task)
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(filepath.Dir(from), "load.yaml")
	if err := os.WriteFile(file, regexp.MustCompile(`(?m)^dir: .*$`).ReplaceAll(b, []byte("dir: nowhere")), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load[config.Client](file)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(c.Coordinator.Addresses[0])
	if err != nil {
		t.Fatal(err)
	}
	silent, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	if err := silent.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	cmd, log := background(t, "client", "--config", file, task, "--json", "--seconds=3600")
	first, err := silent.Accept() // the load has begun
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	end(t, cmd, log, os.Interrupt, 130)
	var r load.Result
	if err := json.NewDecoder(strings.NewReader(log.String())).Decode(&r); err != nil || r.Clients != 2 || r.Reports != 0 || r.Connections != load.Each {
		t.Errorf("%v: %s", err, log)
	}
}

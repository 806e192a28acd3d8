package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/service/load"
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

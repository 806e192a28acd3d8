package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/netlab"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// hosts is a deployment whose processes run on machines of their own. The test's process is a
// machine too: the operator's.
type hosts struct {
	*deployment
	net     *netlab.Network
	machine map[string]*netlab.Host // by process; nodes are n0, n1 and n2
	random  *rand.Rand
	faults  map[string]int // by kind
}

// onHosts makes machines for a scenario's processes. If clustered, the stores of shuffler and
// coordinator are in a cluster of three servers, and a second frontend takes the reports of
// clients-1. It must be called in the process of netlab.Enter.
func onHosts(t *testing.T, s scenario, clustered bool) *hosts {
	t.Helper()
	h := &hosts{net: netlab.New(t), machine: map[string]*netlab.Host{}, random: rand.New(rand.NewPCG(20, 4)), faults: map[string]int{}}
	s.edit = func(d *deployment) {
		h.deployment = d
		names := append([]string{}, d.all()...)
		for _, role := range []string{operate.RoleRegistrar, operate.RoleRelay} {
			if d.configs[role] != "" {
				names = append(names, role)
			}
		}
		if clustered {
			names = append(names, "n0", "n1", "n2", frontName)
		}
		for _, name := range names {
			h.machine[name] = h.net.Host(t, name)
		}
		d.launch = func(name string, cmd *exec.Cmd) error { return h.machine[name].Do(cmd.Start) }
		h.move()
		if clustered {
			c := newCluster(t, func(i int, cmd *exec.Cmd) error { return h.machine[fmt.Sprint("n", i)].Do(cmd.Start) },
				h.machine["n0"].Address.String(), h.machine["n1"].Address.String(), h.machine["n2"].Address.String())
			c.migrate(d)
			h.front()
		}
	}
	d := deploy(t, s)
	if clustered {
		d.start(frontName)
	}
	return h
}

// move gives each server the address of its machine, a certificate for it, and tells the others.
func (h *hosts) move() {
	h.t.Helper()
	var replace []string
	var roots []byte
	for _, role := range []string{operate.RoleShuffler, operate.RoleCoordinator, operate.RoleAggregator, operate.RoleRegistrar, operate.RoleRelay} {
		file := h.configs[role]
		if file == "" {
			continue
		}
		address := h.machine[role].Address.String()
		at := []string{address}
		if front := h.machine[frontName]; role == operate.RoleShuffler && front != nil {
			at = append(at, front.Address.String())
		}
		keys := filepath.Join(filepath.Dir(file), "keys")
		old := h.read(filepath.Join(keys, config.PinFile))
		for _, name := range []string{config.CertificateFile, config.CertificateKey, config.PinFile} {
			if err := os.Remove(filepath.Join(keys, name)); err != nil {
				h.t.Fatal(err)
			}
		}
		pin, err := config.GenerateTLS(keys, at, time.Now().Add(-48*time.Hour), time.Now().Add(48*time.Hour))
		if err != nil {
			h.t.Fatal(err)
		}
		replace = append(replace, strings.TrimSpace(old), pin.String())
		roots = append(roots, h.read(filepath.Join(keys, config.CertificateFile))...)
		for line := range strings.Lines(h.read(file)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if port, ok := strings.CutPrefix(value, "127.0.0.1:"); ok && (key == "listen" || key == "peers-listen") {
				replace = append(replace, value, address+":"+port)
			}
		}
	}
	for name, file := range h.configs {
		text := strings.NewReplacer(replace...).Replace(h.read(file))
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			h.t.Fatal(err)
		}
		if strings.HasPrefix(name, "clients-") {
			if err := os.WriteFile(filepath.Join(filepath.Dir(file), "servers.crt"), roots, 0o600); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

func (h *hosts) read(file string) string {
	h.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

// front makes the configuration of a second frontend, which the last clients report to.
func (h *hosts) front() {
	h.t.Helper()
	first := h.configs[operate.RoleShuffler]
	old, address := h.machine[operate.RoleShuffler].Address.String(), h.machine[frontName].Address.String()
	h.configs[frontName] = filepath.Join(filepath.Dir(first), "front.yaml")
	edit(h.t, first, h.configs[frontName], "listen: "+old, "listen: "+address, "operator: \"\"", "operator: front.sock", "frontend-only: false", "frontend-only: true")
	clients := h.configs[fmt.Sprint("clients-", h.l.Processes-1)]
	c, err := config.Load[config.Client](clients)
	if err != nil {
		h.t.Fatal(err)
	}
	edit(h.t, clients, clients, c.Shuffler.URL, strings.Replace(c.Shuffler.URL, old, address, 1))
}

// partition is one fault: two groups of machines are cut apart in a phase of a round.
type partition struct {
	some, others []string
	phase        string
	way          string // both; there, back: packets of one direction are lost; forgotten: connections die with the cut
	span         time.Duration
}

func (p partition) String() string {
	return fmt.Sprintf("%s | %s, %s, %s for %v", strings.Join(p.some, "+"), strings.Join(p.others, "+"), p.phase, p.way, p.span.Round(time.Millisecond))
}

func (h *hosts) machines(names []string) (out []*netlab.Host) {
	h.t.Helper()
	for _, name := range names {
		m := h.machine[name]
		if m == nil {
			h.t.Fatalf("no machine %s", name)
		}
		out = append(out, m)
	}
	return out
}

// part lets one partition happen in the next round, heals it, and waits until that round has
// ended. It says whether the phase was seen in time.
func (h *hosts) part(p partition) (seen bool) {
	h.t.Helper()
	after := int64(0)
	if h.last != nil {
		after = h.last.Round
	}
	seen = h.phase(after, p.phase, patience)
	if p.phase == "collecting" {
		goOn(time.Duration(h.random.Int64N(int64(200 * time.Millisecond))))
	}
	some, others := h.machines(p.some), h.machines(p.others)
	for _, a := range some {
		for _, b := range others {
			if p.way != "back" {
				h.net.Cut(a, b)
			}
			if p.way != "there" {
				h.net.Cut(b, a)
			}
		}
	}
	goOn(p.span)
	lost := int64(0)
	for _, a := range some {
		for _, b := range others {
			if p.way == "forgotten" {
				h.net.Forget(a, b)
			}
			_, there := h.net.Packets(a, b)
			_, back := h.net.Packets(b, a)
			lost += there + back
		}
	}
	h.net.Heal()
	healed := time.Now()
	h.reach(min(after+1, h.rounds), patience)
	h.t.Logf("round %d: %v; seen: %v; %d packets lost between them so far; it ended %v after", after+1, p, seen, lost, time.Since(healed).Round(time.Millisecond))
	h.faults[p.way]++
	return seen
}

// TestHostsApart runs every role on a machine of its own, cuts machines apart in the middle of
// rounds, and heals them. In the end each report of each round is in the model once.
func TestHostsApart(t *testing.T) {
	longtest.Only(t, "every role on a machine of its own")
	if testing.Short() {
		t.Skip("runs processes")
	}
	if !netlab.Enter(t) {
		return
	}
	const second = time.Second
	for _, c := range []struct {
		trust     dp.Trust
		clustered bool
		faults    []partition
	}{
		{withAll, false, []partition{
			{[]string{"clients-0"}, []string{"relay"}, "collecting", "back", second},
			{[]string{"shuffler"}, []string{"relay"}, "collecting", "forgotten", second},
			{[]string{"coordinator"}, []string{"shuffler"}, "announcing", "back", 2 * second},
			{[]string{"coordinator"}, []string{"shuffler", "aggregator"}, "opening", "both", 2 * second},
			{[]string{"coordinator"}, []string{"aggregator"}, "aggregating", "back", second},
			{[]string{"coordinator"}, []string{"clients-0", "clients-1"}, "releasing", "both", second},
		}},
		{"shuffle", true, []partition{
			{[]string{"n0"}, []string{"n1", "n2", "shuffler", "shuffler.front", "coordinator"}, "collecting", "both", 2 * second},
			{[]string{"n0", "shuffler", "clients-0"}, []string{"n1", "n2", "coordinator", "clients-1", "shuffler.front"}, "charging", "both", 2 * second},
			{[]string{"shuffler.front"}, []string{"n0", "n1", "n2"}, "collecting", "there", 2 * second},
		}},
	} {
		t.Run(string(c.trust), func(t *testing.T) {
			h := onHosts(t, scenario{clients: 12, processes: 2, trust: c.trust, rounds: int64(len(c.faults)) + 2, spread: 200 * time.Millisecond, receipts: true}, c.clustered)
			for _, f := range c.faults {
				h.part(f)
			}
			h.whole(patience)
			h.nothingWrong()
		})
	}
}

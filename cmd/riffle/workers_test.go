package main

import (
	"crypto/ed25519"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// workersOf gives a deployment, whose stores a cluster has, n workers of its coordinator. It returns their
// processes' names.
func workersOf(d *deployment, n int) (names []string) {
	d.t.Helper()
	c, err := config.Load[config.Coordinator](d.configs[operate.RoleCoordinator])
	if err != nil {
		d.t.Fatal(err)
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		d.t.Fatal(err)
	}
	addresses, err := operate.FreeAddresses(n)
	if err != nil {
		d.t.Fatal(err)
	}
	var keys, pins []string
	now := time.Now()
	for i := range n {
		name := fmt.Sprint(operate.RoleWorker, ".", i)
		dir := filepath.Join(d.l.Dir, name)
		sealing, file, err := config.GenerateSealing(dir, wire.X25519, now.Add(24*time.Hour))
		if err != nil {
			d.t.Fatal(err)
		}
		pin, err := config.GenerateTLS(dir, []string{"127.0.0.1"}, now.Add(-time.Hour), now.Add(24*time.Hour))
		if err != nil {
			d.t.Fatal(err)
		}
		keys, pins = append(keys, config.FormatSealing(sealing)), append(pins, pin.String())
		text := fmt.Sprintf("admin: %s\ncertificate: %s\ncertificate-key: %s\nsealing-keys: [%s]\nranges: 2\nqueue: {url: %q}\ncoordinator: {key: %q}\nshuffler: {url: %q, pins: [%q]}\n",
			addresses[i], config.CertificateFile, config.CertificateKey, file, c.Store.URL, config.FormatVerifying(key.Public().(ed25519.PublicKey)), c.Shuffler.URL, c.Shuffler.Pins[0])
		d.configs[name] = filepath.Join(dir, "worker.yaml")
		if err := os.WriteFile(d.configs[name], []byte(text), 0o600); err != nil {
			d.t.Fatal(err)
		}
		names = append(names, name)
	}
	own, peer := d.configs[operate.RoleCoordinator], d.configs[operate.RoleShuffler]
	edit(d.t, own, own, "record: record\n", "opening: workers\nworker-keys: [\""+strings.Join(keys, "\", \"")+"\"]\n")
	edit(d.t, peer, peer, "coordinator:\n", "workers: {pins: [\""+strings.Join(pins, "\", \"")+"\"]}\ncoordinator:\n")
	d.unrecorded = true
	return names
}

// Batches are opened by two workers over a cluster of three nodes. Workers, the coordinator and nodes are
// killed at any time, also while nothing but openings is under way: each report of each round is in the
// model once, and each round is charged once.
func TestWorkersAreKilled(t *testing.T) {
	longtest.Only(t, "processes, and a cluster of three servers")
	if testing.Short() {
		t.Skip("three servers")
	}
	var c *cluster
	var workers []string
	d := deploy(t, scenario{clients: 12, processes: 2, rounds: 14, receipts: true, edit: func(d *deployment) {
		c = newCluster(t, nil)
		c.migrate(d)
		workers = workersOf(d, 2)
	}})
	want(t, exitDone, "ok       queue", "serve", "worker", "--config", d.configs[workers[0]], "--check")
	if d.last != nil && d.last.Round > 0 {
		t.Fatal("a round has ended without a worker")
	}
	src := rng.Replay(20)
	for kill := range 10 {
		before := int64(0)
		if d.last != nil {
			before = d.last.Round
		}
		if before >= d.rounds-2 {
			break
		}
		// Nobody opens the next batch. Then a worker begins, and somebody is killed a little later.
		d.kill(workers...)
		seen := d.phase(before, "opening", patience)
		d.start(workers[0])
		goOn(time.Duration(src.Uint64()%400) * time.Millisecond)
		var victim string
		switch kill % 5 {
		case 0, 2:
			victim = workers[0]
			d.kill(victim)
		case 1:
			victim = operate.RoleCoordinator
			d.kill(victim)
			d.start(victim)
		case 3:
			victim = fmt.Sprint("node ", kill%3)
			c.kill(kill % 3)
			d.start(workers[1])
			d.reach(before+1, patience)
			c.start(kill % 3)
		case 4:
			victim = operate.RoleShuffler
			d.kill(victim)
			d.start(victim)
		}
		t.Logf("killed %s in round %d, opening: %t", victim, before+1, seen)
		for _, w := range workers {
			if d.running[w] == nil {
				d.start(w)
			}
		}
		d.reach(before+1, patience)
	}
	d.waitEnd()
	d.stop(workers...) // after SIGTERM they end with 0
	d.whole(patience)
}

// waitEnd waits until the task does not run any more.
func (d *deployment) waitEnd() {
	d.t.Helper()
	api := d.api()
	d.wait("the task has ended", patience, func() bool {
		now := d.look(api)
		return now != nil && now.State != "running"
	})
}

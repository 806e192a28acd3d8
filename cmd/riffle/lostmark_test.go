package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
)

// A coordinator loses its mark: it is made again of what the shuffler and clients were told, for the newest store and
// for no older copy, and the task goes on. A machine that is restored whole, store and mark, ends at once.
func TestLostMark(t *testing.T) {
	longtest.Only(t, "runs processes")
	d := deploy(t, scenario{clients: 6, processes: 1, rounds: 4, spread: 100 * time.Millisecond, edit: func(d *deployment) {
		file, err := os.OpenFile(d.configs[operate.RoleCoordinator], os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString("announce-ledger: true\n"); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}})
	path := d.configs[operate.RoleCoordinator]
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		t.Fatal(err)
	}
	move := func(from, to string) {
		t.Helper()
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	d.reach(1, patience)
	d.stop(operate.RoleCoordinator)
	copyTree(t, c.Store.Dir, c.Store.Dir+".old")
	b, err := os.ReadFile(c.Mark)
	if err != nil {
		t.Fatal(err)
	}
	d.start(operate.RoleCoordinator)
	d.reach(3, patience)
	d.stop(operate.RoleCoordinator)

	move(c.Store.Dir, c.Store.Dir+".real")
	move(c.Store.Dir+".old", c.Store.Dir)
	move(c.Mark, c.Mark+".real")
	if err := os.WriteFile(c.Mark, b, 0o600); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	want(t, exitRefused, "the shuffler was told of", "serve", "coordinator", "--config", path)
	t.Logf("a restored machine ends after %v", time.Since(begin))
	want(t, exitUsage, "nothing is missing", "ledger", "recover-mark", "--config", path)
	if err := os.Remove(c.Mark); err != nil {
		t.Fatal(err)
	}
	heads := filepath.Join(filepath.Dir(d.configs["clients-0"]), "ledger", "heads")
	want(t, exitRefused, "old copy", "ledger", "recover-mark", "--config", path, "--heads", heads)
	want(t, exitRefused, "high-water mark", "serve", "coordinator", "--config", path)

	move(c.Store.Dir, c.Store.Dir+".old")
	move(c.Store.Dir+".real", c.Store.Dir)
	if err := os.Remove(c.Mark + ".rounds"); err != nil {
		t.Fatal(err)
	}
	t.Log(want(t, exitDone, "the shuffler of", "ledger", "recover-mark", "--config", path, "--heads", heads))
	want(t, exitDone, "one chain", "ledger", "verify", "--config", path)
	d.start(operate.RoleCoordinator)
	d.whole(patience)
}

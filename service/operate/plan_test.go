package operate

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/coordinator"
)

// tableTask is a task of 400 clients with a row each.
func tableTask(t *testing.T, change func(*train.Config)) *train.Setup {
	t.Helper()
	rows := "x,label\n"
	for i := range 500 {
		rows += fmt.Sprintf("%d,%c\n", i%7, 'a'+i%2)
	}
	c := train.Default()
	c.Data, c.Label = filepath.Join(t.TempDir(), "table.csv"), "label"
	if err := os.WriteFile(c.Data, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	c.Participation, c.K, c.Eps0, c.Rounds, c.NMin = "sampled", 80, 1, 20, 70
	change(&c)
	task, err := train.NewTask(t.Context(), "test", c, train.Enrolled{Population: wire.ID{7}, Clients: 400, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// What is planned is not below what the coordinator charges: with colluders it gives no
// credit for who was drawn.
func TestPlanCountsColluders(t *testing.T) {
	r := sharing(t, 1)[0]
	task := tableTask(t, func(*train.Config) {})
	var eps [2]float64
	for i, colluders := range []int64{0, 10} {
		r.config.Colluders = colluders
		p, err := r.plan(t.Context(), task, task.Wire, task.Limit)
		if err != nil {
			t.Fatal(err)
		}
		event := dp.Round{Report: task.Mechanism.(interface{ Event() dp.Report }).Event(), Trust: dp.Shuffle, Participation: dp.Sampled, Population: 400, Reports: 80, Least: 70}
		if colluders > 0 {
			event.Participation, event.Population, event.Reports, event.Least = dp.All, 60, 0, 0
		}
		charged, err := task.Limit.Eps(dp.Sequence{dp.Repeat{Event: event, Times: 20}})
		if err != nil {
			t.Fatal(err)
		}
		if eps[i] = p.cost.Eps; !(p.cost.Eps >= charged.Eps*(1-1e-6)) {
			t.Errorf("%d colluders: planned epsilon <= %v, 20 rounds are charged %v", colluders, p.cost.Eps, charged.Eps)
		}
	}
	t.Logf("planned epsilon %v, with 10 colluders %v", eps[0], eps[1])
}

// Void rounds ask clients for further reports, and the promise counts them.
func TestPromiseCountsReportsOfVoidRounds(t *testing.T) {
	task := tableTask(t, func(*train.Config) {})
	s := wire.Status{Task: wire.Task{Rounds: 20}, Round: 32, Counts: wire.Counts{Released: 20, Void: 12, Reports: 1600}, Charged: 20}
	for state, want := range map[string]int64{coordinator.Running: 50, coordinator.Paused: 50, coordinator.Done: 32, coordinator.Stopped: 33} {
		s.State = state
		if got := promise(task, s).ReportsPerClient; got != want {
			t.Errorf("%s: %d reports of a client at most, want %d", state, got, want)
		}
	}
	once := tableTask(t, func(c *train.Config) { c.Participation, c.K, c.NMin = "once", 100, 80 })
	s.State = coordinator.Running
	if got := promise(once, s).ReportsPerClient; got != 5 {
		t.Errorf("once: %d reports of a client, want 5", got)
	}
	local := tableTask(t, func(c *train.Config) { c.Trust = "local" })
	if got := promise(local, s).ReportsPerClient; got != 20 {
		t.Errorf("local: %d reports of a client, want 20", got)
	}
}

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	"github.com/riffle-dp/riffle/service/store"
)

// createdBefore stores a task without a look whether it can be run, as if what it needs had been
// there then. Nothing may run.
func createdBefore(t *testing.T, c config.Coordinator, name string, trust dp.Trust, data string) (id string) {
	t.Helper()
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		t.Fatal(err)
	}
	config := train.Default()
	config.Data, config.Trust, config.Participation, config.Model, config.PerClient, config.Rounds = data, trust, "all", "linear", 10, 2
	config.Epsilon = 1
	if trust == "shuffle" {
		config.Epsilon, config.Eps0 = 0, 2
	}
	task, err := train.NewTask(t.Context(), name, config, train.Enrolled{Population: c.ID, Clients: 12, MinReports: 2})
	if err != nil {
		t.Fatal(err)
	}
	record, err := json.Marshal(map[string]any{"format": 1, "task": wire.Sign(key, wire.LabelTask, wire.Encode(task.Wire)), "round": time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	id = fmt.Sprintf("%x", wire.Digest(task.Wire))
	createKey(t, c, "created."+id, record)
	return id
}

func createKey(t *testing.T, c config.Coordinator, key string, value []byte) {
	t.Helper()
	s, err := store.Open(t.Context(), c.Store)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), key, value, 0); err != nil {
		t.Fatal(err)
	}
}

// TestOneTaskStopsNoOther has tasks that cannot be run: refused without a trace when
// they are created, shown and left alone when a store has them, removed when they are
// asked to be. Others run all the while.
func TestOneTaskStopsNoOther(t *testing.T) {
	longtest.Only(t, "opens real stores; the coordinator has its own tests")
	dir := shortDir(t)
	data := filepath.Join(dir, "images")
	if err := tiny(data, 120, 60, false); err != nil {
		t.Fatal(err)
	}
	l := operate.Loopback{Dir: dir, Clients: 12, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 40, Delta: 1e-5, Data: data,
		Policy: config.Policy{MaxEps0: 3, MaxEps: 100, MaxTaskEps: 50, Delta: 1e-5, MinReports: 2, MaxTasks: 2}, Spread: -1}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	file := l.Config("coordinator")
	c, err := config.Load[config.Coordinator](file)
	if err != nil {
		t.Fatal(err)
	}
	sum := createdBefore(t, c, "sum", "vector-sum", data)
	unread := strings.Repeat("ab", 32)
	createKey(t, c, "created."+unread, []byte("{}"))
	text := want(t, exitFailed, "needs an aggregator", "fsck", "coordinator", "--config", file)
	if !strings.Contains(text, "created."+unread) || !strings.Contains(text, "created."+sum) {
		t.Errorf("fsck sees\n%s", text)
	}

	shuffler, shufflerLog := background(t, "serve", "shuffler", "--config", l.Config("shuffler"))
	coordinator, log := background(t, "serve", "coordinator", "--config", file)
	until(t, "the coordinator serves", func() bool {
		code, _, _ := outcome(t, "task", "list", "--config", file)
		return code == exitDone
	})
	until(t, "the coordinator is ready", func() bool { return get(t, "http://"+c.Admin+"/readyz") == http.StatusOK })
	until(t, "it is shown", func() bool {
		_, out, _ := outcome(t, "task", "show", "sum", "--config", file, "--json")
		return strings.Contains(out, `"state": "unusable"`) && strings.Contains(out, "needs an aggregator")
	})

	create := func(code int, text, name string, args ...string) string {
		t.Helper()
		return want(t, code, text, append([]string{"task", "create", "--config", file, "--name", name, "--data", data, "--model", "linear",
			"--examples-per-client", "10", "--participation", "all"}, args...)...)
	}
	// Refused, and nothing is left of it.
	create(exitUsage, "needs an aggregator", "again", "--trust", "vector-sum", "--rounds", "2", "--epsilon", "1")
	create(exitUsage, "between 1s and a year", "short", "--eps0", "2", "--rounds", "2", "--round", "20ms")
	create(exitRefused, "not one round fits", "dear", "--eps0", "2", "--rounds", "2", "--epsilon", "0.001")
	create(exitRefused, "above 40", "dearer", "--eps0", "49", "--rounds", "1")
	var plan struct {
		Plan struct {
			Epsilon float64
			Rounds  int64
			Fit     int64  `json:"rounds_that_fit"`
			Limit   string `json:"limit"`
		}
	}
	out := create(exitDone, `"state": "running"`, "good", "--eps0", "2", "--rounds", "2", "--round", "10m", "--n-min", "12", "--json")
	if err := json.Unmarshal([]byte(out), &plan); err != nil {
		t.Fatal(err)
	}
	if p := plan.Plan; !(p.Epsilon > 0) || p.Rounds != 2 || p.Fit != 2 || p.Limit != "" {
		t.Errorf("planned: %+v", p)
	}
	out = create(exitDone, `"local_epsilon": 8.00000`, "several", "--eps0", "2", "--rounds", "2", "--round", "10m", "--n-min", "12", "--messages", "4", "--json")
	var several struct{ Messages int64 }
	if err := json.Unmarshal([]byte(out), &several); err != nil || several.Messages != 4 {
		t.Errorf("%d messages, %v", several.Messages, err)
	}
	want(t, exitDone, "sends 4 messages a round: epsilon 8.001 together", "task", "show", "several", "--config", file)
	want(t, exitDone, "", "task", "remove", "several", "--config", file)
	create(exitUsage, "4096", "swarm", "--eps0", "2", "--rounds", "2", "--messages", "1000000000")
	create(exitDone, "of 1000 rounds fit; the next is refused", "many", "--eps0", "2", "--rounds", "1000", "--round", "10m", "--n-min", "12", "--epsilon", "9")
	want(t, exitDone, "", "task", "remove", "many", "--config", file)
	want(t, exitUsage, "no such task", "task", "show", "many", "--config", file)
	create(exitUsage, "was removed before", "many", "--eps0", "2", "--rounds", "1000", "--round", "10m", "--n-min", "12", "--epsilon", "9")

	client, clientLog := background(t, "client", "--config", l.Config("clients-0"))
	until(t, "the good task is done", func() bool {
		_, out, _ := outcome(t, "task", "show", "good", "--config", file, "--json")
		return strings.Contains(out, `"state": "done"`)
	})
	want(t, exitRefused, "2 of them", "task", "remove", "good", "--config", file)
	want(t, exitDone, "good\tdone, 2 of 2 rounds run", "__complete", "task", "show", "--config", file, "")
	want(t, exitDone, "", "task", "remove", "sum", "--config", file)
	want(t, exitUsage, "no such task", "task", "remove", unread[:20], "--config", file)
	want(t, exitDone, "", "task", "remove", unread, "--config", file)
	if list := want(t, exitDone, "", "task", "list", "--config", file); strings.Count(list, "\n") != 1 || !strings.Contains(list, "good") {
		t.Errorf("tasks:\n%s", list)
	}
	end(t, client, clientLog, syscall.SIGTERM, exitDone)
	end(t, coordinator, log, syscall.SIGTERM, exitDone)
	if !strings.Contains(log.String(), "tasks in the store cannot be run; the others are") {
		t.Errorf("the log does not say it:\n%s", log)
	}
	end(t, shuffler, shufflerLog, syscall.SIGTERM, exitDone)
	want(t, exitDone, `"clean": true`, "fsck", "coordinator", "--config", file, "--json")
	want(t, exitDone, "2 entries", "ledger", "verify", "--config", file)
}

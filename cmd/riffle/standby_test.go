package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/store"
)

// standbyName is a second coordinator's process.
const standbyName = operate.RoleCoordinator + ".standby"

// natsServer is one NATS server, with what is stored on disk before it is answered.
func natsServer(t *testing.T) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{ServerName: "one", Host: "127.0.0.1", Port: -1, NoLog: true, NoSigs: true, JetStream: true,
		StoreDir: t.TempDir(), SyncAlways: true, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 1 << 30})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server does not start")
	}
	return "nats://" + s.Addr().String()
}

// edit replaces what must be in a file.
func edit(t *testing.T, path, to string, replace ...string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(replace); i += 2 {
		if !bytes.Contains(b, []byte(replace[i])) {
			t.Fatalf("%s has no %q:\n%s", path, replace[i], b)
		}
		b = bytes.ReplaceAll(b, []byte(replace[i]), []byte(replace[i+1]))
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// shared moves the coordinator's store to a server, and starts a second coordinator
// beside the first, before there is any task, as docs/deploy/GUIDE.md has it. Clients know the
// addresses of both, the standby's first.
func shared(d *deployment) {
	d.t.Helper()
	old := d.configs[operate.RoleCoordinator]
	dir := filepath.Dir(old)
	c, err := config.Load[config.Coordinator](old)
	if err != nil {
		d.t.Fatal(err)
	}
	next := filepath.Join(dir, "shared.yaml")
	edit(d.t, old, next, "    dir: data\n    max-bytes: 0\n    url: \"\"\n    replicas: 0\n", "    url: "+natsServer(d.t)+"\n    replicas: 1\n")
	want(d.t, exitDone, "", "migrate", operate.RoleCoordinator, "--config", old, "--to", next, "--json")
	d.configs[operate.RoleCoordinator] = next

	free, err := operate.FreeAddresses(3)
	if err != nil {
		d.t.Fatal(err)
	}
	d.configs[standbyName] = filepath.Join(dir, "standby.yaml")
	edit(d.t, next, d.configs[standbyName], c.Listen, free[0], c.Admin, free[1], c.Dashboard, free[2],
		"operator: \"\"", "operator: standby.sock", "holder: demo", "holder: standby")
	for i := range d.l.Processes {
		edit(d.t, d.l.Config(fmt.Sprint("clients-", i)), d.l.Config(fmt.Sprint("clients-", i)), "    url: https://"+c.Listen+"\n", "    urls: [\"https://"+free[0]+"\", \"https://"+c.Listen+"\"]\n")
	}
}

// openRound reads from the shared store how far the task is, and whether a batch is
// charged and not released.
func (d *deployment) openRound() (round int64, charged bool) {
	d.t.Helper()
	c, err := config.Load[config.Coordinator](d.configs[operate.RoleCoordinator])
	if err != nil {
		d.t.Fatal(err)
	}
	s, err := store.Open(d.t.Context(), c.Store)
	if err != nil {
		d.t.Fatal(err)
	}
	defer s.Close()
	e, err := s.Get(d.t.Context(), "state."+d.task)
	if err != nil {
		d.t.Fatal(err)
	}
	var state struct {
		Round int64 `json:"round"`
		Open  *struct {
			Charged bool `json:"charged"`
		} `json:"open"`
	}
	if err := json.Unmarshal(e.Value, &state); err != nil {
		d.t.Fatal(err)
	}
	return state.Round, state.Open != nil && state.Open.Charged
}

// TestStandbyLearnsOfTasks has a task created after the standby has started, kills the
// first coordinator while a batch is charged and not released, and has the standby
// finish the task.
func TestStandbyLearnsOfTasks(t *testing.T) {
	longtest.Only(t, "two coordinators, a server and clients, twice")
	if testing.Short() {
		t.Skip("runs processes, and waits for a lease to end")
	}
	for _, trust := range []string{"shuffle", "vector-sum", "proofs"} {
		t.Run(trust, func(t *testing.T) {
			var d *deployment
			standby := func() operatorv1.OperatorServiceClient {
				return operate.OperatorClient(filepath.Join(filepath.Dir(d.configs[standbyName]), "standby.sock"))
			}
			tasks := func() []*operatorv1.Task {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				resp, err := standby().ListTasks(ctx, connect.NewRequest(&operatorv1.ListTasksRequest{}))
				if err != nil {
					return nil
				}
				return resp.Msg.Tasks
			}
			const rounds = 6
			d = deploy(t, scenario{clients: 12, processes: 2, trust: dp.Trust(trust), rounds: rounds, spread: 200 * time.Millisecond, receipts: true, edit: func(made *deployment) {
				d = made
				shared(d)
				d.start(standbyName)
				d.wait("the standby answers", patience, func() bool {
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					resp, err := standby().GetStatus(ctx, connect.NewRequest(&operatorv1.GetStatusRequest{}))
					return err == nil && strings.Contains(resp.Msg.NotReady, "shuffler") // which is not there yet
				})
				if n := len(tasks()); n != 0 {
					t.Fatalf("%d tasks before there is one", n)
				}
			}})
			d.wait("the standby learns of the task", patience, func() bool {
				all := tasks()
				return len(all) == 1 && all[0].Id == d.task && all[0].State == "running"
			})
			want(t, exitDone, "a standby: another coordinator leads", "task", "show", d.task, "--config", d.configs[standbyName])
			// The batch of a round is charged: it must be opened once, by the other.
			d.reach(1, patience)
			for !d.phase(d.last.Round, "opening", patience) {
				if d.last.Round >= rounds-1 {
					t.Skip("the phase was never seen in time")
				}
			}
			d.kill(operate.RoleCoordinator)
			if led := tasks(); len(led) != 1 || led[0].Phase != "standby" {
				t.Errorf("the standby is not one: %v", led)
			}
			round, charged := d.openRound()
			t.Logf("killed after round %d; the next is charged: %v", round, charged)
			d.leader = standbyName
			d.reach(d.last.Round+1, patience)
			d.whole(patience)
			d.nothingWrong()
			b, err := os.ReadFile(d.log(standbyName))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(b), "learned of tasks") {
				t.Error("the standby has not learned of the task while it ran")
			}
		})
	}
}

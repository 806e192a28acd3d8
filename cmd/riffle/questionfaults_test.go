package main

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// TestKilledQuestions kills the coordinator in each phase of a question's round. The question is charged
// once, its answer comes after the next start, is the same at every later one, and the recorded reports
// give it again.
func TestKilledQuestions(t *testing.T) {
	longtest.Only(t, "kills come at random moments")
	const question = "measure: histogram\ncolumn: age\nbins: 0..100:10\nepsilon: 2\ndelta: 1e-6\nn-min: 12\n"
	kinds := map[string]string{"sum": question, "shuffle": question + "trust: shuffle\n", "proofs": question + "noise-by: aggregators\n"}
	type phase struct { // of a round, and how long after it begins the kill may come
		name string
		span time.Duration
	}
	at := []phase{{"announcing", 5 * time.Millisecond}, {"collecting", 400 * time.Millisecond}, {"charging", 8 * time.Millisecond}, {"opening", 30 * time.Millisecond},
		{"aggregating", 30 * time.Millisecond}, {"releasing", 10 * time.Millisecond}}
	dir := shortDir(t)
	rows := "age\n"
	for i := range 12 {
		rows += fmt.Sprintln(8 * i)
	}
	people := filepath.Join(dir, "people.csv")
	if err := os.WriteFile(people, []byte(rows), 0o600); err != nil {
		t.Fatal(err)
	}
	d := &deployment{t: t, configs: map[string]string{}, running: map[string]*served{}, l: operate.Loopback{Dir: filepath.Join(dir, "d"), Clients: 12, Processes: 1, Aggregator: true, MinReports: 2,
		Suite: wire.X25519, Epsilon: 50, Delta: 1e-5, Data: people, Policy: config.Policy{MaxEps0: 50, MaxEps: 1e4, Delta: 1e-3, MinReports: 2, MaxTasks: 40}, Spread: 300 * time.Millisecond}}
	if err := d.l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(d.roles(), d.clients()...) {
		d.configs[name] = d.l.Config(name)
	}
	defer d.kill(append(d.roles(), d.clients()...)...)
	d.start(append(d.roles(), d.clients()...)...)
	answer := func(id string) (text []byte) {
		t.Helper()
		d.wait("the answer", patience, func() bool {
			resp, err := d.api().GetAnswer(t.Context(), connect.NewRequest(&operatorv1.GetAnswerRequest{Task: id}))
			if err == nil && resp.Msg.Task.State == "done" {
				text = resp.Msg.Json
			}
			return text != nil
		})
		return text
	}
	answers := map[string]string{}
	random := rand.New(rand.NewPCG(19, uint64(time.Now().UnixNano())))
	for kind, settings := range kinds {
		for _, p := range at {
			if p.name == "aggregating" && kind == "shuffle" {
				continue
			}
			d.wait("the coordinator takes a question", patience, func() bool {
				resp, err := d.api().CreateTask(t.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: kind + "-" + p.name, Config: settings, RoundSeconds: 600}))
				if code := connect.CodeOf(err); err != nil && (code == connect.CodeInvalidArgument || code == connect.CodeFailedPrecondition) {
					t.Fatal(err)
				}
				if err == nil {
					d.task, d.last, d.models = resp.Msg.Task.Id, nil, map[int64]string{}
				}
				return err == nil
			})
			seen := d.phase(0, p.name, patience)
			goOn(time.Duration(random.Int64N(int64(p.span))))
			d.kill(operate.RoleCoordinator)
			d.fsckKilled(operate.RoleCoordinator)
			d.start(operate.RoleCoordinator)
			answers[d.task] = string(answer(d.task))
			t.Logf("%s, killed while %s (seen %v): %.60s…", kind, p.name, seen, answers[d.task])
		}
	}
	d.kill(operate.RoleCoordinator)
	d.start(operate.RoleCoordinator)
	for id, text := range answers {
		if again := string(answer(id)); again != text {
			t.Errorf("after another start the answer is\n%s\nit was\n%s", again, text)
		}
	}
	d.kill(d.clients()...)
	d.stop(operate.RoleCoordinator, operate.RoleAggregator, operate.RoleShuffler)
	for _, role := range d.roles() {
		d.fsck(role)
	}
	book, err := operate.ReadLedger(t.Context(), d.configs[operate.RoleCoordinator], false)
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range book.Tasks {
		if _, asked := answers[task.Task]; !asked || task.Entries != 1 {
			t.Errorf("%+v", task)
		}
	}
	if len(book.Tasks) != len(answers) {
		t.Errorf("%d tasks are charged, %d answered", len(book.Tasks), len(answers))
	}
	for id := range answers {
		raw, err := hex.DecodeString(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := operate.ReplayQuestion(t.Context(), d.configs[operate.RoleCoordinator], [32]byte(raw)); err != nil {
			t.Errorf("task %.8s: %v", id, err)
		}
	}
}

package web_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/operate"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// world is a shuffler and a coordinator on this machine, with native clients, and a server with a page.
type world struct {
	t           *testing.T
	l           operate.Loopback
	shuffler    config.Shuffler
	coordinator config.Coordinator
	round       float64 // seconds; a round ends before when all have reported
	native      config.Client
	site        *httptest.Server
	pins        []string
	api         operatorv1.OperatorServiceClient
}

// newWorld makes keys and configurations; serve starts the services.
func newWorld(t *testing.T, native int, files http.Handler, options ...func(*operate.Loopback)) *world {
	t.Helper()
	w := &world{t: t, site: httptest.NewServer(files), round: 600}
	t.Cleanup(w.site.Close)
	dir, err := os.MkdirTemp("", "riffle-web-") // a socket's path is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	table := filepath.Join(dir, "table.csv")
	if err := os.WriteFile(table, []byte("x,label\n"+strings.Repeat("1,no\n0,yes\n", 60)), 0o600); err != nil {
		t.Fatal(err)
	}
	w.l = operate.Loopback{Dir: dir, Clients: native, Processes: 1, Kept: true, MinReports: 2, Suite: wire.X25519, Epsilon: 1e4, Delta: 1e-5, Data: table,
		Policy: config.Policy{MaxEps0: 2.1, MaxEps: 1e4, Delta: 1e-5, MinReports: 2, MaxTasks: 1}, Origins: []string{w.site.URL}, Spread: -1}
	for _, o := range options {
		o(&w.l)
	}
	if err := w.l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w.shuffler, err = config.Load[config.Shuffler](w.l.Config(operate.RoleShuffler)); err != nil {
		t.Fatal(err)
	}
	if w.coordinator, err = config.Load[config.Coordinator](w.l.Config(operate.RoleCoordinator)); err != nil {
		t.Fatal(err)
	}
	if w.native, err = config.Load[config.Client](w.l.Config("clients-0")); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{operate.RoleShuffler, operate.RoleCoordinator} {
		b, err := os.ReadFile(filepath.Join(dir, role, "keys", config.PinFile))
		if err != nil {
			t.Fatal(err)
		}
		w.pins = append(w.pins, strings.TrimPrefix(strings.TrimSpace(string(b)), "sha256:"))
	}
	return w
}

// enrol adds a public line to the roster, before the services start.
func (w *world) enrol(line string) {
	w.t.Helper()
	file := filepath.Join(w.l.Dir, operate.RoleShuffler, config.RosterFile)
	b, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, append(b, line+"\n"...), 0o644)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

// run starts a role, and ends it with the test.
func (w *world) run(role, process string) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- operate.Serve(ctx, role, w.l.Config(process), operate.Options{Log: slog.New(slog.NewTextHandler(w.t.Output(), nil))})
	}()
	w.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
			w.t.Errorf("%s: %v", process, err)
		}
	})
}

func (w *world) until(what string, f func() error) {
	w.t.Helper()
	browsertest.Until(w.t, func() error {
		if err := f(); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	})
}

// serve starts the services and creates a task of training of so many rounds. It returns its digest.
func (w *world) serve(rounds int, settings string) string {
	w.t.Helper()
	return w.ask(fmt.Sprintf("rounds: %d\ndata: %s\nlabel: label\nmodel: linear\nexamples-per-client: 5\n", rounds, w.l.Data) + settings)
}

// ask starts the services and creates a task.
func (w *world) ask(settings string) string {
	w.t.Helper()
	w.run(operate.RoleShuffler, operate.RoleShuffler)
	if w.l.Aggregator {
		w.run(operate.RoleAggregator, operate.RoleAggregator)
	}
	w.run(operate.RoleCoordinator, operate.RoleCoordinator)
	w.api = operate.OperatorClient(w.coordinator.Operator)
	w.until("coordinator", func() error {
		_, err := w.api.GetStatus(w.t.Context(), connect.NewRequest(&operatorv1.GetStatusRequest{}))
		return err
	})
	var id string
	w.until("task", func() error { // until the shuffler answers
		resp, err := w.api.CreateTask(w.t.Context(), connect.NewRequest(&operatorv1.CreateTaskRequest{Name: "pages", Config: settings, RoundSeconds: w.round}))
		if err == nil {
			id = resp.Msg.Task.Id
		}
		return err
	})
	return id
}

// task returns what the coordinator says of a task.
func (w *world) task(id string) *operatorv1.Task {
	w.t.Helper()
	resp, err := w.api.GetTask(w.t.Context(), connect.NewRequest(&operatorv1.GetTaskRequest{Task: id}))
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.Msg.Task
}

// options are those of join for this world, in JavaScript, to which more may be added.
func (w *world) options(more string) string {
	return fmt.Sprintf(`{coordinator: %q, shuffler: %q, keys: {coordinator: %q, shuffler: %q}, spread: -1, answer: 0.5,
		policy: {maxEps0: 2.1, maxEpsilon: 1e4, delta: 1e-5, minReports: 2}, %s}`,
		w.native.Coordinator.URL, w.native.Shuffler.URL, w.native.Coordinator.Key, w.native.Shuffler.Key, more)
}

package operate

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/config"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
)

// A task that the aggregator cannot sum is refused when it is created, and a check says so before. A
// task without proofs is taken. The roles are served as in a deployment.
func TestAggregatorThatCannotSum(t *testing.T) {
	embedded(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "small.csv")
	if err := os.WriteFile(data, []byte("x,y,label\n"+strings.Repeat("0.1,0.9,no\n0.8,0.1,yes\n", 40)), 0o600); err != nil {
		t.Fatal(err)
	}
	l := Loopback{Dir: filepath.Join(dir, "all"), Clients: 40, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 50, Delta: 1e-4, Data: data, Aggregator: true,
		Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}}
	if err := l.Create(t.Context()); err != nil {
		t.Fatal(err)
	}
	c, err := config.Load[config.Coordinator](l.Config(RoleCoordinator))
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(l.Config(RoleAggregator))
	if err != nil {
		t.Fatal(err)
	}
	without := func(key string) {
		t.Helper()
		var left []string
		for line := range strings.Lines(string(whole)) {
			if key == "" || !strings.HasPrefix(line, key+":") {
				left = append(left, line)
			}
		}
		if err := os.WriteFile(l.Config(RoleAggregator), []byte(strings.Join(left, "")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(role string) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		wg.Go(func() {
			if err := Serve(ctx, role, l.Config(role), Options{Log: slog.New(slog.DiscardHandler)}); err != nil {
				t.Errorf("%s: %v", role, err)
			}
		})
		return func() { cancel(); wg.Wait() }
	}
	defer serve(RoleShuffler)()
	defer serve(RoleCoordinator)()
	browsertest.Until(t, func() error { // a check opens the store too, if nobody has it
		_, err := OperatorClient(c.Operator).GetStatus(t.Context(), connect.NewRequest(&operatorv1.GetStatusRequest{}))
		return err
	})
	create := func(name, proofs string) error {
		q := connect.NewRequest(&operatorv1.CreateTaskRequest{Name: name, RoundSeconds: 60,
			Config: "data: " + data + "\nlabel: label\nmodel: softmax\nrounds: 2\ntrust: vector-sum\nepsilon: 2\nn-min: 10\n" + proofs})
		_, err := OperatorClient(c.Operator).CreateTask(t.Context(), q)
		return err
	}
	// looks are the notes of a check.
	looks := func() (notes string) {
		t.Helper()
		browsertest.Until(t, func() (away error) {
			found, err := Inspect(t.Context(), RoleCoordinator, l.Config(RoleCoordinator), "")
			if err != nil {
				t.Fatal(err)
			}
			notes = ""
			for _, f := range found {
				if f.Error != "" {
					away = errors.New(f.Error)
				}
				if f.Look {
					notes += f.What + ": " + f.Note + "\n"
				}
			}
			return away
		})
		return notes
	}
	for _, key := range []string{"signing-key", "mark", ""} {
		without(key)
		stop := serve(RoleAggregator)
		notes, err := looks(), create("proofs", "proofs: pine\n")
		if key == "" {
			if notes != "" || err != nil {
				t.Errorf("%q, %v", notes, err)
			}
		} else if !strings.Contains(notes, "sums with proofs") || !strings.Contains(notes, key+":") || connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), key+":") {
			t.Errorf("%s: %q, %v", key, notes, err)
		}
		if key == "mark" {
			if err := create("plain", ""); err != nil {
				t.Error(err)
			}
		}
		stop()
	}
}

package operate

import (
	"context"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/riffle-dp/riffle/internal/browsertest"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/run/train"
	"github.com/riffle-dp/riffle/service/config"
	operatorv1 "github.com/riffle-dp/riffle/service/proto/riffle/operator/v1"
	"github.com/riffle-dp/riffle/service/store"
)

// BenchmarkStart is a coordinator's start, until it shows all of its tasks to its
// operator, and its end, with tasks in the store that have ended.
func BenchmarkStart(b *testing.B) {
	for _, ended := range []int{0, 20, 200} {
		b.Run(fmt.Sprintf("ended=%d", ended), func(b *testing.B) {
			dir, err := os.MkdirTemp("", "rf") // short: it holds a socket
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = os.RemoveAll(dir) })
			l := Loopback{Dir: dir, Clients: 2, Processes: 1, MinReports: 2, Suite: wire.X25519, Epsilon: 1, Delta: 1e-5, Data: "mnist",
				Policy: config.Policy{MaxEps0: 1, MaxEps: 1, Delta: 1e-5, MinReports: 2, MaxTasks: 1}}
			if err := l.Create(b.Context()); err != nil {
				b.Fatal(err)
			}
			addEnded(b, l.Config(RoleCoordinator), ended)
			c, err := config.Load[config.Coordinator](l.Config(RoleCoordinator))
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				ctx, cancel := context.WithCancel(b.Context())
				done := make(chan error, 1)
				go func() {
					done <- Serve(ctx, RoleCoordinator, l.Config(RoleCoordinator), Options{Log: slog.New(slog.DiscardHandler)})
				}()
				browsertest.Until(b, func() error {
					resp, err := OperatorClient(c.Operator).ListTasks(ctx, connect.NewRequest(&operatorv1.ListTasksRequest{}))
					if err != nil {
						return err
					}
					n := 0
					for _, t := range resp.Msg.Tasks {
						if t.State == "done" {
							n++
						}
					}
					if n != ended {
						return fmt.Errorf("%d of %d tasks are there", n, ended)
					}
					return nil
				})
				cancel()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// addEnded writes tasks into a coordinator's store as they lie there when all of
// their rounds were run, with nothing charged.
func addEnded(b *testing.B, path string, n int) {
	b.Helper()
	c, err := config.Load[config.Coordinator](path)
	if err != nil {
		b.Fatal(err)
	}
	key, err := config.LoadSigning(c.SigningKey)
	if err != nil {
		b.Fatal(err)
	}
	table := filepath.Join(b.TempDir(), "table.csv")
	if err := os.WriteFile(table, []byte("x,y\n1,a\n2,b\n3,a\n4,b\n5,a\n6,b\n7,a\n8,b\n9,a\n10,b\n"), 0o600); err != nil {
		b.Fatal(err)
	}
	s, err := store.Open(b.Context(), c.Store)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := range n {
		set := train.Default()
		set.Data, set.Label, set.Range, set.Rounds, set.Eps0 = table, "y", "x=0..10", 2, 1
		t, err := train.NewTask(b.Context(), fmt.Sprintf("t%d", i), set, train.Enrolled{Population: c.ID, Clients: 8, MinReports: 2})
		if err != nil {
			b.Fatal(err)
		}
		id := wire.Digest(t.Wire)
		made := created{Signed: wire.Sign(key, wire.LabelTask, wire.Encode(t.Wire)), Round: time.Second}
		for name, value := range map[string]string{createdKey(id): string(made.encode()), "task." + hex.EncodeToString(id[:]): `{"format":1,"state":"done"}`} {
			if _, err := s.Put(b.Context(), name, []byte(value), 0); err != nil {
				b.Fatal(err)
			}
		}
	}
}

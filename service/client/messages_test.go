package client_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/service/client"
)

// A client sends all its messages in one report, each sealed on its own and with noise of its
// own, and its ledger counts each of them, over restarts too.
func TestSeveralMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const m, rounds = 3, 3
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		theta := make([]float32, dim)
		task := shuffleTask()
		task.Messages = m
		w := newWorld(t, 3, task)
		config := w.config()
		// Room for two rounds of three messages, and not for three rounds.
		config.Policy.MaxLocalEps = (rounds*m - 1) * w.mechanism.Event().Eps0
		seen := newWatch()
		config.Watch = seen.tell
		for round := int64(1); round <= rounds; round++ {
			w.publish(w.announcement(round, theta), theta, nil)
			_, stop := w.process(ctx, config)
			if round < rounds {
				w.wait(ctx, len(w.members))
				for range w.members {
					seen.next(ctx, t, client.Sent)
				}
				parts := map[string]bool{}
				contents := map[string]int{}
				w.mu.Lock()
				for _, r := range w.reports {
					size := int(w.open.ReportBytes)
					if len(r.Part) != m*size {
						t.Fatalf("parts of %d bytes, want %d of %d", len(r.Part), m, size)
					}
					for ; len(r.Part) > 0; r.Part = r.Part[size:] {
						plain, err := w.rings[envelope.Coordinator].OpenPart(envelope.Coordinator, w.digest, r.Part[:size])
						if err != nil {
							t.Fatal(err)
						}
						parts[string(r.Part[:size])] = true
						contents[string(plain)]++
					}
				}
				w.mu.Unlock()
				if len(parts) != m*len(w.members) {
					t.Errorf("%d different sealed parts, want %d", len(parts), m*len(w.members))
				}
				if len(contents) < 3 {
					t.Errorf("messages %v: noise that is not drawn anew", contents)
				}
			} else if n := seen.next(ctx, t, client.Declined); !strings.Contains(n.Err.Error(), string(pure.CauseBudget)) {
				t.Errorf("the last round is declined for %v", n.Err)
			}
			stop()
		}
		ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
		if err != nil {
			t.Fatal(err)
		}
		if sent := bytes.Count(ledger, []byte("\nsent ")); sent != 2*len(w.members) || bytes.Count(ledger, []byte(" messages=3 ")) != sent {
			t.Errorf("the ledger says:\n%s", ledger)
		}
		if a := w.announcement(1, theta); a.PartBytes() != m*a.ReportBytes {
			t.Error("the announcement counts another size")
		}
	})
}

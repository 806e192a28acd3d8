package client_test

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// A coordinator that tells nonsense of a round, while a client here is still sending its report, has the
// comparison end first. What is learnt of the report then makes no file that the next start refuses.
func TestComparedBeforeTheReportIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 8, receiptTask())
		w.members = w.members[:1]
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		taken, sending := make(chan struct{}), make(chan struct{}, 10)
		w.before = func(rw http.ResponseWriter, r *http.Request) bool {
			switch {
			case r.URL.Path == "/v1/report":
				sending <- struct{}{}
				<-taken
				rw.WriteHeader(http.StatusNoContent)
			case strings.HasSuffix(r.URL.Path, "/closed"):
				rw.Write([]byte("nonsense"))
			default:
				return false
			}
			return true
		}
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		config := w.config()
		fleet, end := w.run(ctx, config)
		<-sending
		w.publish(w.announcement(2, theta), theta, nil) // long before the first round's deadline
		await(t, func() bool { return fleet.Snapshot().Compared.Unfit >= 1 })
		close(taken)
		<-sending
		await(t, func() bool { return fleet.Snapshot().Reports[client.Sent] >= 2 })
		end()
		files, err := filepath.Glob(filepath.Join(config.Directory, "receipts", "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err != nil || strings.HasPrefix(string(b), "taken") {
				t.Errorf("%s holds %q (%v)", f, b, err)
			}
		}
		if fleet, err = client.NewFleet(config, w.members); err != nil {
			t.Fatal("the next start:", err)
		}
		if err := fleet.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A client that runs on refuses an older roster after a newer one, as one that starts again does.
func TestRunningClientsTakeNoOlderRoster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		at := time.Now().Unix()
		second := r.enrolment
		second.Serial, second.Registrar = 2, r.statement(2, at-1000)
		third := second
		third.Serial, third.Registrar = 3, r.statement(3, at-500)
		config := r.config
		var mu sync.Mutex
		declined := ""
		config.Watch = func(n client.Notice) {
			mu.Lock()
			defer mu.Unlock()
			if n.Round == 3 && n.Err != nil {
				declined = n.Err.Error()
			}
		}
		why := func() string { mu.Lock(); defer mu.Unlock(); return declined }
		fleet, end := r.run(t.Context(), config)
		defer end()
		theta := make([]float32, dim)
		for i, e := range []wire.Enrolment{second, third, second} {
			r.world.mu.Lock()
			r.world.enrolment = e
			r.world.mu.Unlock()
			r.publish(r.announcement(int64(i+1), theta), theta, nil)
			await(t, func() bool { return fleet.Snapshot().Reports[client.Sent] == int64(3*(i+1)) || why() != "" })
		}
		if sent := fleet.Snapshot().Reports[client.Sent]; sent != 6 || !strings.Contains(why(), "signed before the round was opened") {
			t.Errorf("%d reports in three rounds, the last with an older roster: declined: %q", sent, why())
		}
	})
}

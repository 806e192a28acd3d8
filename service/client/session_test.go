package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// start starts a fleet on the world. The returned function waits for its end and closes it.
func (w *world) start(ctx context.Context, config client.JoinConfig) (fleet *client.Fleet, wait func()) {
	w.t.Helper()
	fleet, err := client.NewFleet(config, w.members)
	if err != nil {
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- fleet.Run(ctx) }()
	return fleet, func() {
		w.t.Helper()
		if err := errors.Join(<-done, fleet.Close()); err != nil {
			w.t.Error(err)
		}
	}
}

// run starts a fleet that the task's end ends, which the returned function brings about.
func (w *world) run(ctx context.Context, config client.JoinConfig) (fleet *client.Fleet, end func()) {
	w.t.Helper()
	fleet, wait := w.start(ctx, config)
	return fleet, func() { w.end(); wait() }
}

// process starts a fleet that ends with stop, in the middle of whatever it does.
func (w *world) process(ctx context.Context, config client.JoinConfig) (fleet *client.Fleet, stop func()) {
	w.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	fleet, wait := w.start(ctx, config)
	return fleet, func() { cancel(); wait() }
}

// Every client asks for a session, once for many rounds, whatever its coin says.
func TestSessionsTellNothingOfCoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		task := shuffleTask()
		task.Participation = dp.CheckIn
		w := newWorld(t, 30, task)
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		config := w.config()
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		fleet.Replay(func(id wire.ID, round int64) rng.Source {
			w.mu.Lock()
			_, has := w.sessions[id]
			w.mu.Unlock()
			if !has {
				t.Error("a client flips its coin before it has a session")
			}
			return rng.Secure()
		}, func(wire.ID, int64) rng.Source { return rng.Secure() })
		done := make(chan error, 1)
		go func() { done <- fleet.Run(ctx) }()
		for round := range int64(3) {
			await(t, func() bool {
				s := fleet.Snapshot()
				return s.Reports[client.Sent]+s.Reports[client.Passed] == 30*(round+1)
			})
			if got := w.asked("POST session"); got != 30 {
				t.Errorf("%d requests for sessions of 30 clients after round %d", got, round+1)
			}
			if round < 2 {
				w.publish(w.announcement(round+2, theta), theta, nil)
			}
		}
		w.end()
		if err := errors.Join(<-done, fleet.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

// Where a fleet prepares, all have a session when the task is agreed to, asked for
// before any data are touched, and a shuffler that gives none delays nothing else.
func TestPrepare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, refuses := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			w := newWorld(t, 30, shuffleTask())
			if refuses {
				w.set(func(rw http.ResponseWriter, r *http.Request) bool {
					if r.URL.Path == "/v1/session" {
						rw.WriteHeader(http.StatusForbidden)
					}
					return r.URL.Path == "/v1/session"
				})
			}
			asked := func() int {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.sessions)
			}
			for i := range w.members {
				source := w.members[i].Source
				w.members[i].Source = opening{source, func() {
					if n := asked(); n != 30 && !refuses {
						t.Errorf("data are touched when %d have sessions", n)
					}
				}}
			}
			config := w.config()
			config.Prepare = true
			agreed := make(chan struct{})
			config.Watch = func(n client.Notice) {
				if n.What == client.Agreed {
					close(agreed)
				}
			}
			_, end := w.run(ctx, config)
			select {
			case <-agreed:
			case <-ctx.Done():
				t.Fatal("the task is not agreed to")
			}
			if n := asked(); n != 30 && !refuses {
				t.Errorf("%d sessions", n)
			}
			if !refuses {
				theta := make([]float32, dim)
				w.publish(w.announcement(1, theta), theta, nil)
				w.wait(ctx, 30)
				if got := w.asked("POST session"); got != 30 {
					t.Errorf("%d requests for sessions of 30 clients", got)
				}
			}
			end()
		}
	})
}

// opening is a source that says when it is opened.
type opening struct {
	client.Source
	told func()
}

func (o opening) Open(task wire.Task) (client.Gradient, error) {
	o.told()
	return o.Source.Open(task)
}

// A client that gets no session that lasts sends nothing, charges nothing, flips no
// coin, and says why.
func TestNoSessionNoReport(t *testing.T) {
	answer := func(status int, body string) func(*world) {
		return func(w *world) {
			w.set(func(rw http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/v1/session" {
					return false
				}
				rw.WriteHeader(status)
				io.WriteString(rw, body)
				return true
			})
		}
	}
	for name, act := range map[string]func(*world){
		"not enrolled":        answer(403, `{"reason":"not-enrolled"}`),
		"another clock":       answer(401, `{"reason":"expired"}`),
		"garbage":             answer(200, "garbage"),
		"too long":            answer(200, strings.Repeat("x", 5000)),
		"nothing":             answer(204, ""),
		"ends with the round": func(w *world) { w.lasting = time.Until(time.UnixMilli(w.open.Deadline)) },
		"over":                func(w *world) { w.lasting = -time.Hour },
		"none until the end":  answer(503, `{"reason":"unavailable"}`),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				w := one(t)
				theta := make([]float32, dim)
				a := w.announcement(1, theta)
				a.Deadline = time.Now().Add(time.Minute).UnixMilli()
				if name == "none until the end" {
					a.Deadline = time.Now().Add(10 * time.Second).UnixMilli() // a slow machine asks before
				}
				w.publish(a, theta, nil)
				act(w)
				config, seen := w.config(), newWatch()
				config.Watch = seen.tell
				fleet, end := w.run(ctx, config)
				var refused *pure.Refused
				if n := seen.next(ctx, t, client.Declined); !errors.As(n.Err, &refused) || refused.Cause != pure.CauseSession || n.Round != 1 {
					t.Errorf("declined for %v", n.Err)
				}
				if s := fleet.Snapshot(); s.Declined[pure.CauseSession] != 1 || len(s.Reports) != 0 {
					t.Errorf("%+v", s)
				}
				// The next round is another chance.
				w.set(nil)
				w.mu.Lock()
				w.lasting = time.Hour
				w.mu.Unlock()
				w.publish(w.announcement(2, theta), theta, nil)
				w.wait(ctx, 1)
				end()
				if got := w.asked("POST report"); got != 1 {
					t.Errorf("%d reports", got)
				}
				ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
				if err != nil || strings.Count(string(ledger), "\nsent ") != 1 {
					t.Errorf("ledger %q, %v", ledger, err)
				}
			})
		})
	}
}

// A session that would end in the round is renewed before, and one that the
// shuffler does not know any more is not used again.
func TestSessionsAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		w.lasting = roundTime + 2*time.Minute // outlives a round by more than a minute
		theta := make([]float32, dim)
		config, seen := w.config(), newWatch()
		config.Watch = seen.tell
		_, end := w.run(ctx, config)
		round := func(n int64, change func(*wire.Announcement), sessions int) {
			t.Helper()
			a := w.announcement(n, theta)
			change(&a)
			w.publish(a, theta, nil)
			w.wait(ctx, 1)
			seen.next(ctx, t, client.Sent)
			if got := w.asked("POST session"); got != sessions {
				t.Errorf("round %d: %d sessions, want %d", n, got, sessions)
			}
		}
		seen.next(ctx, t, client.Sent) // round 1
		round(2, func(*wire.Announcement) {}, 1)
		w.mu.Lock()
		w.lasting = time.Hour
		w.mu.Unlock()
		round(3, func(a *wire.Announcement) { a.Deadline = time.Now().Add(roundTime + 80*time.Second).UnixMilli() }, 2)
		w.set(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/report" {
				return false
			}
			rw.WriteHeader(401)
			io.WriteString(rw, `{"reason":"bad-signature"}`)
			return true
		})
		w.publish(w.announcement(4, theta), theta, nil)
		if n := seen.next(ctx, t, client.Lost); n.Err == nil || n.Round != 4 {
			t.Errorf("lost: %+v", n)
		}
		w.set(nil)
		round(5, func(*wire.Announcement) {}, 3)
		end()
	})
}

// Requests for sessions and reports are spread, each over its half of the time.
func TestSessionsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		const n, spread = 40, 8 * time.Second
		w := newWorld(t, n, shuffleTask())
		var mu sync.Mutex
		at := map[string][]time.Time{}
		w.set(func(rw http.ResponseWriter, r *http.Request) bool {
			mu.Lock()
			defer mu.Unlock()
			at[r.URL.Path] = append(at[r.URL.Path], time.Now())
			return false
		})
		config := w.config()
		config.Spread = spread
		_, end := w.run(ctx, config)
		theta := make([]float32, dim)
		published := time.Now()
		w.publish(w.announcement(1, theta), theta, nil)
		w.wait(ctx, n)
		end()
		first := at["/v1/report"][0]
		if d := first.Sub(published); d < spread/2 {
			t.Errorf("a report after %v: whoever needs a session sends in the second half", d)
		}
		// 40 times are below a quarter of their half with probability 4^-40.
		if asked := at["/v1/session"]; len(asked) != n || asked[n-1].Sub(published) < spread/8 {
			t.Errorf("%d sessions were asked for at once", len(asked))
		}
	})
}

// A shuffler that does not know a session any more answers no ask with it: the client
// has nothing charged and takes another session in the next round.
func TestAskWithALostSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		task := shuffleTask()
		task.Participation = dp.Sampled
		w := newWorld(t, 3, task)
		theta := make([]float32, dim)
		all := map[int]bool{0: true, 1: true, 2: true}
		config, seen := w.config(), newWatch()
		config.Watch = seen.tell
		_, end := w.run(ctx, config)
		w.publish(w.announcement(1, theta), theta, all)
		w.wait(ctx, 3)
		w.mu.Lock()
		clear(w.sessions)
		w.mu.Unlock()
		w.publish(w.announcement(2, theta), theta, all)
		for range 3 {
			if n := seen.next(ctx, t, client.NotDrawn); n.Err == nil || n.Round != 2 {
				t.Errorf("notice %+v", n)
			}
		}
		w.publish(w.announcement(3, theta), theta, all)
		w.wait(ctx, 3)
		end()
		if got := w.asked("POST session"); got != 6 {
			t.Errorf("%d requests for sessions", got)
		}
		ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
		if err != nil || strings.Count(string(ledger), "\nsent ") != 6 {
			t.Errorf("ledger %q, %v", ledger, err)
		}
	})
}

package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
)

// posts records the bodies of reports, in place of the shuffler.
type posts struct {
	mu     sync.Mutex
	bodies [][]byte
	answer func(i int) int // status of post i
}

func (p *posts) before(rw http.ResponseWriter, r *http.Request) bool {
	if r.URL.Path != "/v1/report" {
		return false
	}
	body, _ := io.ReadAll(r.Body)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.bodies = append(p.bodies, body)
	status := p.answer(len(p.bodies) - 1)
	if status >= 400 {
		rw.WriteHeader(status)
		io.WriteString(rw, map[int]string{
			503: `{"reason":"unavailable","detail":"try again"}`,
			409: `{"reason":"second-report","detail":"x"}`,
			410: `{"reason":"closed"}`, 429: `{"reason":"too-many"}`, 400: `no JSON`}[status])
		return true
	}
	rw.WriteHeader(status)
	return true
}

func (p *posts) all() [][]byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bodies
}

func one(t *testing.T) *world {
	w := newWorld(t, 4, shuffleTask())
	w.members = w.members[:1]
	theta := make([]float32, dim)
	w.publish(w.announcement(1, theta), theta, nil)
	return w
}

func (w *world) set(f func(http.ResponseWriter, *http.Request) bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = f
}

func outboxes(t *testing.T, dir string) int {
	t.Helper()
	files, err := os.ReadDir(filepath.Join(dir, "outbox"))
	if err != nil {
		t.Fatal(err)
	}
	return len(files)
}

func TestRetriesAreTheSameBytes(t *testing.T) {
	for name, c := range map[string]struct {
		answers []int
		what    string
		reason  wire.Reason
	}{
		"unavailable":   {[]int{503, 429, 500, 503, 204}, client.Sent, ""},
		"second report": {[]int{503, 409}, client.Lost, wire.SecondReport},
		"closed":        {[]int{410}, client.Lost, wire.Closed},
		"no reason":     {[]int{400}, client.Lost, ""},
		"odd success":   {[]int{200}, client.Lost, ""},
		"redirect":      {[]int{307}, client.Lost, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				w := one(t)
				p := &posts{answer: func(i int) int { return c.answers[i] }}
				w.set(p.before)
				config := w.config()
				seen := newWatch()
				config.Watch = seen.tell
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				done := make(chan error, 1)
				go func() { done <- fleet.Run(ctx) }()
				n := seen.next(ctx, t, c.what)
				if (n.Err != nil) != (c.what == client.Lost) {
					t.Errorf("%s with error %v", n.What, n.Err)
				}
				w.end()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				bodies := p.all()
				if len(bodies) != len(c.answers) {
					t.Fatalf("%d posts, want %d", len(bodies), len(c.answers))
				}
				for _, b := range bodies {
					if !bytes.Equal(b, bodies[0]) {
						t.Error("other bytes in a retry")
					}
				}
				if s := fleet.Snapshot(); c.reason != "" && s.Refusals[c.reason] != 1 || s.Reports[c.what] != 1 {
					t.Errorf("snapshot %+v", s)
				}
				if err := fleet.Close(); err != nil {
					t.Fatal(err)
				}
				if outboxes(t, config.Directory) != 0 {
					t.Error("the sealed bytes are still there")
				}
			})
		})
	}
}

// A process that ends between charge and sending leaves the bytes; the next sends
// these, and makes no other report of the round.
func TestCrashBetweenChargeAndSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		p := &posts{answer: func(int) int { return 503 }}
		w.set(p.before)
		config := w.config()
		seen := newWatch()
		config.Watch = seen.tell
		for process := range 3 {
			fleet, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			running, stop := context.WithCancel(ctx)
			fleet.BeforeSend(stop) // charged, and not a byte was sent
			done := make(chan error, 1)
			go func() { done <- fleet.Run(running) }()
			if process == 0 {
				<-running.Done()
			} else {
				seen.next(ctx, t, client.Retrying)
				stop()
			}
			if err := errors.Join(<-done, fleet.Close()); err != nil {
				t.Fatal(err)
			}
			if outboxes(t, config.Directory) != 1 {
				t.Fatal("no sealed bytes are left")
			}
			ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
			if err != nil || bytes.Count(ledger, []byte("\nsent ")) != 1 {
				t.Fatalf("ledger %q, %v", ledger, err)
			}
		}
		w.set(nil)
		_, end := w.run(ctx, config)
		w.wait(ctx, 1)
		seen.next(ctx, t, client.Sent)
		end()
		for _, body := range w.got {
			for _, b := range p.all() {
				if !bytes.Equal(b, body) {
					t.Error("other bytes were sent for the same round")
				}
			}
		}
		if outboxes(t, config.Directory) != 0 {
			t.Error("acknowledged bytes are still there")
		}
	})
}

// What was sealed but not charged, or torn, is not sent: another report is made.
func TestCrashBeforeTheCharge(t *testing.T) {
	for name, cut := range map[string]func(ledger, outbox []byte) (l, o []byte){
		"no charge":        func(l, o []byte) ([]byte, []byte) { return l[:bytes.IndexByte(l, '\n')+1], o },
		"torn charge":      func(l, o []byte) ([]byte, []byte) { return l[:len(l)-1], o },
		"torn, no charge":  func(l, o []byte) ([]byte, []byte) { return l[:len(l)-40], o[:len(o)-1] },
		"charge, no bytes": func(l, o []byte) ([]byte, []byte) { return l, o[:len(o)-1] },
		"charge, changed":  func(l, o []byte) ([]byte, []byte) { o[len(o)-50]++; return l, o },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
				defer cancel()
				w := one(t)
				p := &posts{answer: func(int) int { return 503 }}
				w.set(p.before)
				config := w.config()
				seen := newWatch()
				config.Watch = seen.tell
				run := func(stopAt string) {
					_, stop := w.process(ctx, config)
					seen.next(ctx, t, stopAt)
					stop()
				}
				run(client.Retrying)
				boxes, err := filepath.Glob(filepath.Join(config.Directory, "outbox", "*"))
				if err != nil || len(boxes) != 1 {
					t.Fatal(boxes, err)
				}
				path := filepath.Join(config.Directory, "ledger")
				l, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				o, err := os.ReadFile(boxes[0])
				if err != nil {
					t.Fatal(err)
				}
				l, o = cut(l, o)
				if err := errors.Join(os.WriteFile(path, l, 0o600), os.WriteFile(boxes[0], o, 0o600)); err != nil {
					t.Fatal(err)
				}
				w.set(nil)
				if strings.HasPrefix(name, "charge") {
					// It is charged, what it was is lost: nothing may be sent for this round.
					theta := make([]float32, dim)
					_, stop := w.process(ctx, config)
					await(t, func() bool { return w.asked("GET model") >= 2 })
					w.publish(w.announcement(2, theta), theta, nil)
					w.wait(ctx, 1)
					stop()
					if got := w.asked("POST report"); got != 1 {
						t.Errorf("%d reports, want that of round 2", got)
					}
					return
				}
				run(client.Sent)
				if bytes.Equal(w.got[wire.ClientID(w.members[0].Credential.Public())], p.all()[0]) {
					t.Error("uncharged bytes were sent")
				}
				// And the ledger that comes of it is read again.
				fleet, err := client.NewFleet(config, w.members)
				if err != nil {
					t.Fatal(err)
				}
				if err := fleet.Close(); err != nil {
					t.Fatal(err)
				}
			})
		})
	}
}

// A coin is flipped once for a round, also by a process that starts again.
func TestCoinsAreNotFlippedTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		task := shuffleTask()
		task.Participation = dp.CheckIn
		w := newWorld(t, 40, task)
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		config := w.config()
		seen := newWatch()
		config.Watch = seen.tell
		var flips atomic.Int64
		for process := range 3 {
			fleet, err := client.NewFleet(config, w.members)
			if err != nil {
				t.Fatal(err)
			}
			fleet.Replay(func(wire.ID, int64) rng.Source {
				flips.Add(1)
				return rng.Secure()
			}, func(wire.ID, int64) rng.Source { return rng.Secure() })
			running, stop := context.WithCancel(ctx)
			done := make(chan error, 1)
			models := w.asked("GET model")
			go func() { done <- fleet.Run(running) }()
			await(t, func() bool {
				s := fleet.Snapshot()
				return w.asked("GET model") > models && (process > 0 || s.Reports[client.Sent]+s.Reports[client.Passed] == 40)
			})
			stop()
			if err := errors.Join(<-done, fleet.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if n := flips.Load(); n != 40 {
			t.Errorf("%d coins were flipped by 40 clients in one round", n)
		}
	})
}

func TestDirectoryIsOneProcesss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t)
		config := w.config()
		first, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.NewFleet(config, w.members); !errors.Is(err, durable.ErrLocked) {
			t.Errorf("a second process opened the ledger: %v", err)
		}
		if err := client.CreateLedger(config.Directory); err == nil {
			t.Error("a ledger was made over another")
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(config.Directory, "ledger")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.NewFleet(config, w.members); !errors.Is(err, client.ErrNoLedger) {
			t.Errorf("a missing ledger: %v", err)
		}
		config.Directory = t.TempDir()
		if _, err := client.NewFleet(config, w.members); !errors.Is(err, client.ErrNoLedger) {
			t.Errorf("an empty directory: %v", err)
		}
	})
}

// A client that cannot write its ledger says nothing.
func TestNoLedgerNoWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		config := w.config()
		fleet, err := client.NewFleet(config, w.members)
		if err != nil {
			t.Fatal(err)
		}
		// The ledger becomes a directory, which nothing can be appended to.
		path := filepath.Join(config.Directory, "ledger")
		if err := errors.Join(os.Remove(path), os.Mkdir(path, 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := fleet.Run(ctx); err == nil || !strings.Contains(err.Error(), "cannot write") {
			t.Errorf("it went on: %v", err)
		}
		if got := w.asked("POST report"); got != 0 {
			t.Errorf("%d reports without a ledger", got)
		}
		if err := fleet.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestConfigIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := one(t)
		for want, change := range map[string]func(*client.JoinConfig){
			"coordinator: want an https": func(c *client.JoinConfig) { c.Coordinator = "http://localhost" },
			"shuffler: want an https":    func(c *client.JoinConfig) { c.Shuffler = "https://user@localhost" },
			"coordinator's verification": func(c *client.JoinConfig) { c.CoordinatorKey = nil },
			"shuffler's operator is":     func(c *client.JoinConfig) { c.ShufflerKey = nil },
			"the same key":               func(c *client.JoinConfig) { c.ShufflerKey = c.CoordinatorKey },
			"directory":                  func(c *client.JoinConfig) { c.Directory = "" },
			"a directory and a store":    func(c *client.JoinConfig) { c.Store = &memory{} },
			"roots of its own":           func(c *client.JoinConfig) { c.Transport = carrier{} },
			"accountant":                 func(c *client.JoinConfig) { c.Accountant = nil },
			"-1 workers":                 func(c *client.JoinConfig) { c.Workers = -1 },
			"delta":                      func(c *client.JoinConfig) { c.Policy.Delta = 0 },
		} {
			c := w.config()
			change(&c)
			if _, err := client.NewFleet(c, w.members); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		c := w.config()
		for want, members := range map[string][]client.Member{
			"needs a member":            nil,
			"needs a credential":        {{}},
			"the credential of another": {w.members[0], w.members[0]},
		} {
			if _, err := client.NewFleet(c, members); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		if err := client.Join(context.Background(), c, w.members[0].Source); err == nil {
			t.Error("joined without a credential")
		}
	})
}

// One client follows every task, by Join alone.
func TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		c := w.config()
		c.Tasks, c.Credential, c.Spread = nil, w.members[0].Credential, 0
		seen := newWatch()
		c.Watch = seen.tell
		running, stop := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- client.Join(running, c, w.members[0].Source) }()
		w.wait(ctx, 1)
		w.end()
		seen.next(ctx, t, client.Ended)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A shuffler that never answers costs a round and no more: at the deadline the
// sealed bytes go, and the charge stays.
func TestDeadlineEndsRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		theta := make([]float32, dim)
		a := w.announcement(1, theta)
		a.Deadline = time.Now().Add(10 * time.Second).UnixMilli()
		w.publish(a, theta, nil)
		p := &posts{answer: func(int) int { return 503 }}
		w.set(p.before)
		config := w.config()
		seen := newWatch()
		config.Watch = seen.tell
		_, end := w.run(ctx, config)
		if n := seen.next(ctx, t, client.Lost); n.Err == nil || n.Round != 1 {
			t.Errorf("lost: %+v", n)
		}
		if time.Now().UnixMilli() < a.Deadline {
			t.Error("it gave up before the deadline")
		}
		w.set(nil)
		w.publish(w.announcement(2, theta), theta, nil)
		w.wait(ctx, 1)
		end()
		if outboxes(t, config.Directory) != 0 {
			t.Error("sealed bytes of a round that is over are still there")
		}
		ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
		if err != nil || bytes.Count(ledger, []byte("\nsent ")) != 2 {
			t.Errorf("ledger %q, %v", ledger, err)
		}
	})
}

// A server that the roots do not vouch for is told nothing.
func TestServersAreVerified(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := one(t)
		config := w.config()
		config.Roots = x509.NewCertPool()
		seen := newWatch()
		config.Watch = seen.tell
		_, stop := w.process(ctx, config)
		var unknown x509.UnknownAuthorityError
		if n := seen.next(ctx, t, client.Retrying); !errors.As(n.Err, &unknown) {
			t.Errorf("retrying for %v", n.Err)
		}
		stop()
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.requests) != 0 {
			t.Errorf("requests %v", w.requests)
		}
	})
}

// When a report arrives, its charge is on the disk already.
func TestChargeComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		w := newWorld(t, 30, shuffleTask())
		theta := make([]float32, dim)
		w.publish(w.announcement(1, theta), theta, nil)
		config := w.config()
		w.set(func(rw http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path != "/v1/report" {
				return false
			}
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			ledger, err := os.ReadFile(filepath.Join(config.Directory, "ledger"))
			if want := fmt.Sprintf(" %x ", sha256.Sum256(body)); err != nil || !bytes.Contains(ledger, []byte(want)) {
				t.Errorf("a report came before its charge (%v)", err)
			}
			return false
		})
		_, end := w.run(ctx, config)
		w.wait(ctx, 30)
		end()
	})
}

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/riffle-dp/riffle/internal/longtest"
)

func newQueue(t testing.TB, s *Store, c QueueConfig) *Queue {
	t.Helper()
	q, err := s.Queue(t.Context(), "opening", c)
	must(t, err)
	return q
}

func pull(t testing.TB, q *Queue) *Item {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	i, err := q.Pull(ctx)
	must(t, err)
	return i
}

// nothing holds that no item can be had for a while.
func nothing(t testing.TB, q *Queue) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if i, err := q.Pull(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("pulled %+v, %v", i, err)
	}
}

func next(t testing.TB, r Results) []Result {
	t.Helper()
	out, err := r.Next(t.Context())
	must(t, err)
	return out
}

// Items are handed out once while their workers finish them, results of any size come back whole and
// in any number, and a purge leaves the other groups.
func TestQueue(t *testing.T) {
	s := fresh(t)
	newQueue(t, s, QueueConfig{})
	q := newQueue(t, s, QueueConfig{}) // it is there already
	sizes := []int{0, 1, MaxBlock, MaxBlock + 1, 3 * MaxBlock}
	for i := range sizes {
		must(t, q.Put(t.Context(), fmt.Sprintf("a.%d", i), []byte{byte(i)}))
		must(t, q.Put(t.Context(), fmt.Sprintf("a.%d", i), []byte("another"))) // it waits already
	}
	must(t, q.Put(t.Context(), "b.0", []byte("other group")))
	r := q.Results("a")
	if got := next(t, r); len(got) != 0 {
		t.Errorf("%d results before any work", len(got))
	}
	for i, n := range sizes {
		item := pull(t, q)
		if item.Name != fmt.Sprintf("a.%d", i) || !bytes.Equal(item.Data, []byte{byte(i)}) {
			t.Fatalf("item %s: %q", item.Name, item.Data)
		}
		if w, err := q.Waits(t.Context(), item.Name); !w || err != nil {
			t.Errorf("an item under way does not wait: %v", err)
		}
		must(t, item.Finish(t.Context(), bytes.Repeat([]byte{byte(i + 1)}, n)))
		if w, err := q.Waits(t.Context(), item.Name); w || err != nil {
			t.Errorf("a finished item waits: %v", err)
		}
	}
	got := next(t, r)
	if len(got) != len(sizes) {
		t.Fatalf("%d results", len(got))
	}
	for i, x := range got {
		if x.Item != fmt.Sprintf("a.%d", i) || x.Failed != "" || !bytes.Equal(x.Data, bytes.Repeat([]byte{byte(i + 1)}, sizes[i])) {
			t.Errorf("result %d: %s, %d bytes, %q", i, x.Item, len(x.Data), x.Failed)
		}
	}
	if got := next(t, r); len(got) != 0 {
		t.Errorf("%d results twice", len(got))
	}
	// Who reads them all anew gets them in parts.
	few := q.Results("a")
	few.(*results).enough = MaxBlock + 1
	for i, want := range []int{3, 1, 1, 0} {
		if got := next(t, few); len(got) != want {
			t.Errorf("part %d: %d results, want %d", i, len(got), want)
		}
	}
	items, results, err := s.Queued(t.Context(), "opening")
	if must(t, err); items != 1 || results != 8 {
		t.Errorf("%d items, %d messages of results", items, results)
	}
	must(t, q.Purge(t.Context(), "a"))
	if got := next(t, q.Results("a")); len(got) != 0 {
		t.Errorf("%d results after the purge", len(got))
	}
	if item := pull(t, q); item.Name != "b.0" {
		t.Errorf("item %s", item.Name)
	}
	for _, bad := range []string{"", "a", "a.*", "a..b", ".", "a.>"} {
		if q.Put(t.Context(), bad, nil) == nil {
			t.Errorf("item %q", bad)
		}
	}
	if q.Purge(t.Context(), "") == nil || q.Purge(t.Context(), "*") == nil {
		t.Error("a purge of everything")
	}
	if items, results, err := s.Queued(t.Context(), "none"); items+results != 0 || err != nil {
		t.Errorf("a queue that is not there: %v", err)
	}
}

// An item goes to another worker when its own is silent. One that was given back goes on at once; one that nobody finishes is given up with a result that
// says so.
func TestQueueGivesItemsAgain(t *testing.T) {
	longtest.Only(t, "waits for seconds of the clock")
	s := fresh(t)
	q := newQueue(t, s, QueueConfig{AckWait: 400 * time.Millisecond, Deliveries: 3})
	must(t, q.Put(t.Context(), "a.0", []byte("x")))
	first := pull(t, q)
	second := pull(t, q) // after AckWait
	must(t, second.Return())
	third := pull(t, q)
	r := q.Results("a")
	// Both finish: two results for one item.
	must(t, first.Finish(t.Context(), []byte("late")))
	if got := next(t, r); len(got) != 1 || string(got[0].Data) != "late" {
		t.Fatalf("%+v", got)
	}
	must(t, third.Finish(t.Context(), []byte("again")))
	if got := next(t, r); len(got) != 1 || string(got[0].Data) != "again" || got[0].Item != "a.0" {
		t.Fatalf("%+v", got)
	}
	r.Settle("a.0")
	nothing(t, q)

	must(t, q.Put(t.Context(), "a.1", []byte("kills its workers")))
	for range 3 {
		pull(t, q)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			if w, err := q.Waits(ctx, "a.1"); err == nil && !w {
				cancel()
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	if i, err := q.Pull(ctx); i != nil || !errors.Is(err, context.Canceled) {
		t.Fatalf("a fourth time: %+v, %v", i, err)
	}
	if got := next(t, r); len(got) != 1 || got[0].Item != "a.1" || !strings.Contains(got[0].Failed, "3 times") {
		t.Fatalf("%+v", got)
	}
}

// Items and results outlive the process, pieces of a result that was never whole are no result, and
// what else is written among the results is passed over.
func TestQueueAfterRestart(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	s, err := Open(t.Context(), c)
	must(t, err)
	q := newQueue(t, s, QueueConfig{AckWait: time.Hour})
	for _, name := range []string{"a.0", "a.1"} {
		must(t, q.Put(t.Context(), name, []byte(name)))
	}
	i := pull(t, q)
	must(t, i.send(t.Context(), "half.0.2", []byte("half")))
	must(t, i.send(t.Context(), "odd.7.2", []byte("odd")))
	must(t, i.send(t.Context(), "odd.0.99999999", []byte("odd")))
	must(t, i.send(t.Context(), "x", nil))
	must(t, i.Finish(t.Context(), []byte("whole")))
	must(t, s.Close())
	s = opened(t, c)
	q = newQueue(t, s, QueueConfig{AckWait: time.Hour})
	if got := next(t, q.Results("a")); len(got) != 1 || string(got[0].Data) != "whole" {
		t.Fatalf("%+v", got)
	}
	if i := pull(t, q); i.Name != "a.1" {
		t.Errorf("item %s", i.Name)
	}
	before, err := s.Inventory(t.Context())
	if must(t, err); before.Streams != 0 {
		t.Errorf("%+v", before)
	}
}

// accounts are a broker's: the coordinator's, and the workers' with nothing but what a queue needs.
const accounts = `listen: "127.0.0.1:-1"
jetstream: {store_dir: %q, sync_interval: always}
accounts: {
  COORDINATOR: {jetstream: enabled, users: [{user: coordinator, password: c}], exports: [
    {service: "$JS.API.CONSUMER.INFO.coordinator_work_opening.workers", accounts: [WORKERS]},
    {service: "$JS.API.CONSUMER.MSG.NEXT.coordinator_work_opening.workers", response_type: stream, accounts: [WORKERS]},
    {service: "$JS.ACK.coordinator_work_opening.workers.>", accounts: [WORKERS]},
    {service: "coordinator.done.opening.>", accounts: [WORKERS]}]}
  WORKERS: {users: [{user: worker, password: w, permissions: {publish: [%s], subscribe: ["_INBOX.>"]}}], imports: [
    {service: {account: COORDINATOR, subject: "$JS.API.CONSUMER.INFO.coordinator_work_opening.workers"}, to: "riffle.api.CONSUMER.INFO.coordinator_work_opening.workers"},
    {service: {account: COORDINATOR, subject: "$JS.API.CONSUMER.MSG.NEXT.coordinator_work_opening.workers"}, to: "riffle.api.CONSUMER.MSG.NEXT.coordinator_work_opening.workers"},
    {service: {account: COORDINATOR, subject: "$JS.ACK.coordinator_work_opening.workers.>"}},
    {service: {account: COORDINATOR, subject: "coordinator.done.opening.>"}}]}
}
`

// A worker's user of the broker can take items and send results. It reads and writes nothing else:
// not the ledger, not the keys, not other queues, not what the broker answers to the coordinator; and
// no answer to it goes anywhere but to itself.
func TestQueueWorkersPermissions(t *testing.T) {
	longtest.Only(t, "waits for seconds of the clock")
	own, worker := &server.User{Username: "coordinator", Password: "c"}, &server.User{Username: "worker", Password: "w"}
	file, allowed := filepath.Join(t.TempDir(), "nats.conf"), permittedSubjects("coordinator", "opening", "riffle.api")
	must(t, os.WriteFile(file, fmt.Appendf(nil, accounts, t.TempDir(), `"`+strings.Join(allowed, `", "`)+`"`), 0o600))
	options, err := server.ProcessConfigFile(file)
	must(t, err)
	options.NoLog, options.NoSigs = true, true
	broker, err := server.NewServer(options)
	must(t, err)
	broker.Start()
	t.Cleanup(func() { broker.Shutdown(); broker.WaitForShutdown() })
	if !broker.ReadyForConnections(time.Minute) {
		t.Fatal("the broker does not start")
	}
	as := func(u *server.User) Config {
		c := Config{Domain: "coordinator", URL: broker.ClientURL(), Replicas: 1, User: u.Username, Password: secret(t, u.Password), Timeout: 3 * time.Second}
		if u == worker {
			c.API = "riffle.api"
		}
		return c
	}
	must(t, Init(t.Context(), as(own)))
	s := opened(t, as(own))
	far, err := DialQueue(t.Context(), as(worker), "opening")
	must(t, err)
	t.Cleanup(func() { must(t, far.Close()) })
	if _, err := far.Pull(t.Context()); !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrUnavailable) {
		t.Fatalf("no queue yet: %v", err)
	}
	q := newQueue(t, s, QueueConfig{})
	must(t, q.Put(t.Context(), "a.0", []byte("work")))
	i := pull(t, far)
	must(t, i.Finish(t.Context(), bytes.Repeat([]byte{7}, MaxBlock+1)))
	if got := next(t, q.Results("a")); len(got) != 1 || len(got[0].Data) != MaxBlock+1 {
		t.Fatalf("%+v", got)
	}
	_, err = s.AppendEntry(t.Context(), 0, []byte("entry"))
	must(t, err)
	for _, what := range []string{"coordinator.ledger", "coordinator.kv.k.state", "coordinator.work.opening.a.1", "$O.coordinator.M.x",
		"$JS.API.STREAM.DELETE.coordinator_ledger", "$JS.API.STREAM.MSG.GET.coordinator_kv", "$JS.API.STREAM.PURGE.coordinator_work_opening",
		"$JS.API.CONSUMER.CREATE.coordinator_ledger", "$JS.API.STREAM.INFO.coordinator_ledger", "$JS.API.CONSUMER.DELETE.coordinator_work_opening.workers"} {
		m, err := far.s.nc.RequestMsg(&nats.Msg{Subject: what, Data: []byte(`{"seq":1}`)}, 300*time.Millisecond)
		if err == nil {
			t.Errorf("%s answers a worker: %s", what, m.Data)
		}
	}
	// No permission holds for the subject of a reply: the accounts keep replies apart.
	inboxes, err := far.s.nc.SubscribeSync("_INBOX.>")
	must(t, err)
	must(t, far.s.nc.Flush())
	revision, err := s.Put(t.Context(), "state", []byte("the coordinator's"), 0)
	must(t, err)
	if _, err := s.Get(t.Context(), "state"); err != nil {
		t.Error(err)
	}
	must(t, q.Put(t.Context(), "a.2", []byte("work")))
	for _, to := range []string{"coordinator.ledger", "coordinator.kv.k.state", "$JS.API.STREAM.PURGE.coordinator_kv", "$JS.API.STREAM.DELETE.coordinator_ledger"} {
		must(t, far.s.nc.PublishRequest(allowed[0], to, nil))
		for range 2 { // the item, and that there is none
			must(t, far.s.nc.PublishRequest(allowed[1], to, []byte(`{"batch":1,"no_wait":true}`)))
		}
		must(t, far.s.nc.PublishRequest("coordinator.done.opening.x.y.z.0.0", to, nil))
	}
	// What these are answered with has come when later ones are answered.
	if _, err := far.s.nc.Request(allowed[0], nil, time.Minute); err != nil {
		t.Error(err)
	}
	must(t, q.Purge(t.Context(), "a"))
	if e, err := s.Get(t.Context(), "state"); err != nil || e.Revision != revision {
		t.Errorf("a worker has changed a value: %+v, %v", e, err)
	}
	for {
		m, err := inboxes.NextMsg(300 * time.Millisecond)
		if err != nil {
			break
		}
		if bytes.Contains(m.Data, []byte("coordinator_kv")) || bytes.Contains(m.Data, []byte("coordinator.kv")) {
			t.Errorf("a worker reads an answer to the coordinator: %s", m.Data)
		}
	}
	if n, err := s.LastEntry(t.Context()); n != 1 || err != nil {
		t.Errorf("%d entries: %v", n, err)
	}
	if w, err := q.Waits(t.Context(), "a.1"); w || err != nil {
		t.Errorf("a worker has made an item: %v", err)
	}
	if _, err := Open(t.Context(), as(worker)); err == nil {
		t.Error("a worker's user opens the store")
	}
	if _, err := DialQueue(t.Context(), config(t.TempDir()), "opening"); err == nil {
		t.Error("a queue in another process's directory")
	}
}

package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// fill puts something of everything into a store.
func fill(t testing.TB, s *Store) {
	t.Helper()
	ctx := t.Context()
	for i := range uint64(20) {
		_, err := s.AppendEntry(ctx, i, fmt.Appendf(nil, "entry %d", i+1))
		must(t, err)
	}
	for i := range 10 {
		rev, err := s.Put(ctx, fmt.Sprintf("round.%d", i), []byte("open"), 0)
		must(t, err)
		_, err = s.Put(ctx, fmt.Sprintf("round.%d", i), fmt.Appendf(nil, "closed %d", i), rev)
		must(t, err)
		must(t, s.PutObject(ctx, fmt.Sprintf("model/%d", i), bytes.Repeat([]byte{byte(i)}, 20_000*i)))
	}
	must(t, s.PutSecret(ctx, "round-9", []byte("secret")))
	must(t, s.createStream(ctx, "blocks", streamConfig{window: time.Second}))
	must(t, s.createStream(ctx, "empty", streamConfig{}))
	for i := range 30 {
		_, err := s.Append(ctx, "blocks", fmt.Sprint("id-", i), fmt.Sprint("bucket.", i%4), bytes.Repeat([]byte{byte(i)}, 5000))
		must(t, err)
	}
	// The same id again, after its window.
	time.Sleep(1500 * time.Millisecond)
	for _, id := range []string{"id-29", "id-29", ""} {
		_, err := s.Append(ctx, "blocks", id, "", []byte("later"))
		must(t, err)
	}
	lease, _, err := s.Acquire(ctx, "close.round", "a", time.Minute)
	must(t, err)
	must(t, lease.Release(ctx))
}

func childMigrate(from, to string) error {
	ctx := context.Background()
	a, err := open(ctx, config(from))
	if err != nil {
		return err
	}
	b, err := open(ctx, config(to))
	if err != nil {
		return err
	}
	fmt.Println("begin")
	if _, err := migrate(ctx, a, b); err != nil {
		return err
	}
	fmt.Println("done")
	return errors.Join(a.Close(), b.Close())
}

func TestMigrateSurvivesKills(t *testing.T) {
	longtest.Only(t, "kills processes")
	ctx := t.Context()
	from, to := fresh(t), config(t.TempDir())
	fill(t, from)
	want, err := from.Inventory(ctx)
	must(t, err)
	if want.Messages != 32 || want.Streams != 2 || want.Ledger != 20 || want.Leases != 1 || want.Objects != 10 {
		t.Fatalf("filled with %+v", want)
	}
	top, err := from.Get(ctx, "round.9")
	must(t, err)
	closed(t, from)
	must(t, Init(ctx, to))
	interrupted := 0
	for delay := time.Duration(0); ; delay += 8 * time.Millisecond {
		p := spawn(t, "migrate", from.config.Dir, to.Dir)
		if got := p.line(t); got != "begin" {
			t.Fatalf("the migration says %q", got)
		}
		stop := time.AfterFunc(delay, func() { p.cmd.Process.Kill() })
		done := p.lines.Scan()
		stop.Stop()
		if done && p.lines.Text() != "done" {
			t.Fatal(p.lines.Text())
		}
		p.kill()
		a, errA := Open(ctx, from.config)
		b, errB := Open(ctx, to)
		if errA == nil && errB == nil {
			v, err := b.Inventory(ctx) // killed before it began
			must(t, err)
			if v != (Inventory{Digest: v.Digest}) {
				t.Error("both stores are open in the middle of a migration")
			}
			must(t, errors.Join(a.Close(), b.Close()))
			continue
		}
		if errA == nil {
			closed(t, a)
			is(t, errB, ErrSealed)
		}
		if errB == nil {
			closed(t, b)
			is(t, errA, ErrSealed)
			break
		}
		interrupted++
		if delay > 5*time.Second {
			t.Fatal("it does not get done")
		}
	}
	t.Logf("%d runs were killed", interrupted)
	if interrupted == 0 {
		t.Error("no run was killed in the middle")
	}
	s := opened(t, to)
	got, err := s.Inventory(ctx)
	must(t, err)
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Revisions and tokens go on.
	e, err := s.Get(ctx, "round.9")
	must(t, err)
	if e.Revision <= top.Revision {
		t.Errorf("revision %d after %d", e.Revision, top.Revision)
	}
	_, err = s.Put(ctx, "round.9", nil, top.Revision)
	is(t, err, ErrConflict)
	_, err = s.Put(ctx, "round.9", []byte("on"), e.Revision)
	must(t, err)
	// Again is no error and changes nothing.
	a, err := open(ctx, from.config)
	must(t, err)
	defer closed(t, a)
	_, err = migrate(ctx, a, s)
	must(t, err)
	_, err = a.Put(ctx, "late", nil, 0)
	is(t, err, ErrSealed)
}

func TestMigrateRefuses(t *testing.T) {
	ctx := t.Context()
	from, to := fresh(t), fresh(t)
	fill(t, from)
	if _, err := migrate(ctx, from, from); err == nil {
		t.Error("migrated into itself")
	}
	_, err := to.Put(ctx, "k", nil, 0)
	must(t, err)
	_, err = migrate(ctx, from, to)
	is(t, err, ErrExists) // not empty
	must(t, to.Delete(ctx, Values, "k"))
	// A run that ends early leaves the old store in use and the new one shut.
	early, cancel := context.WithCancel(ctx)
	time.AfterFunc(2*time.Millisecond, cancel)
	if _, err := migrate(early, from, to); err == nil {
		t.Fatal("a cancelled migration succeeded")
	}
	_, err = from.AppendEntry(ctx, 20, []byte("entry 21"))
	must(t, err)
	third := fresh(t)
	if to.marker().State == stateReceiving {
		_, err = to.Put(ctx, "k2", nil, 0)
		is(t, err, ErrSealed)
		_, err = migrate(ctx, third, to)
		is(t, err, ErrSealed) // another's
	}
	must(t, from.Delete(ctx, Streams, "empty"))
	must(t, from.Delete(ctx, Secrets, "round-9"))
	must(t, from.Delete(ctx, Objects, "model/1"))
	must(t, from.Delete(ctx, Values, "round.1"))
	got, err := migrate(ctx, from, to)
	must(t, err)
	if got.Ledger != 21 || got.Streams != 1 || got.Secrets != 0 || got.Objects != 9 || got.Keys != 9 {
		t.Errorf("moved %+v", got)
	}
	_, err = from.AppendEntry(ctx, 21, []byte("entry 22"))
	is(t, err, ErrSealed)
	_, err = migrate(ctx, from, third)
	is(t, err, ErrSealed)
}

func TestMigrateIntoACluster(t *testing.T) {
	longtest.Only(t, "starts a cluster")
	if testing.Short() {
		t.Skip("three servers")
	}
	ctx := t.Context()
	nodes := newNodes(t, 3)
	for _, d := range nodes {
		d.start(t)
	}
	from := fresh(t)
	fill(t, from)
	want, err := from.Inventory(ctx)
	must(t, err)
	top, err := from.Get(ctx, "round.9")
	must(t, err)
	c := Config{Domain: "shuffler", URL: urls(nodes)}
	initCluster(t, c)
	is(t, Init(ctx, c), ErrExists)
	to := opened(t, c)
	got, err := migrate(ctx, from, to)
	must(t, err)
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	// Writing goes on in the cluster, at the ledger's next entry.
	_, err = from.Put(ctx, "late", nil, 0)
	is(t, err, ErrSealed)
	seq, err := to.AppendEntry(ctx, 20, []byte("entry 21"))
	must(t, err)
	if seq != 21 {
		t.Errorf("entry 21 has sequence %d", seq)
	}
	e, err := to.Get(ctx, "round.9")
	must(t, err)
	if e.Revision <= top.Revision {
		t.Errorf("revision %d after %d", e.Revision, top.Revision)
	}
	closed(t, from)
	_, err = Open(ctx, from.config)
	is(t, err, ErrSealed)
	if !strings.Contains(err.Error(), "nats://127.0.0.1") {
		t.Errorf("%v does not say where to", err)
	}
	// The calls are the same.
	must(t, to.createStream(ctx, "next", streamConfig{}))
	is(t, to.createStream(ctx, "next", streamConfig{}), ErrExists)
	a := to.appender("next")
	for i := range 100 {
		must(t, a.Append(ctx, fmt.Sprint(i), "", make([]byte, 10_000)))
	}
	must(t, a.Flush(ctx))
	if got := len(readAll(t, to, "next", "", 0)); got != 100 {
		t.Errorf("read %d of 100", got)
	}
	_, err = to.Put(ctx, "round.9", nil, 0)
	is(t, err, ErrConflict)
	_, err = to.Append(ctx, "missing", "", "", nil)
	is(t, err, ErrNotFound)
	must(t, to.Delete(ctx, Streams, "next"))
	must(t, to.Delete(ctx, Secrets, "round-9"))
	// Two processes, one lease.
	other := opened(t, c)
	first, token, err := to.Acquire(ctx, "close.round", "a", 300*time.Millisecond)
	must(t, err)
	_, next, err := other.Acquire(ctx, "close.round", "b", 300*time.Millisecond)
	must(t, err)
	if next <= token {
		t.Errorf("token %d after %d", next, token)
	}
	is(t, first.Renew(ctx), ErrLost)
	// Each node removes a destroyed secret's files, with those of its group.
	const secret = "PINEAPPLE-IN-THREE-NODES"
	dirs := []string{nodes[0].Options.StoreDir, nodes[1].Options.StoreDir, nodes[2].Options.StoreDir}
	must(t, to.PutSecret(ctx, "round-10", []byte(secret)))
	found := 0
	for _, dir := range dirs {
		found += min(1, len(grep(t, dir, secret)))
	}
	if found < 2 {
		t.Errorf("acknowledged with the secret on %d nodes", found)
	}
	must(t, to.Delete(ctx, Secrets, "round-10"))
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		var left []string
		for _, dir := range dirs {
			left = append(left, grep(t, dir, secret)...)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the secret is still in %v", left)
		}
	}
}

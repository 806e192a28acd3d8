package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv("RIFFLE_STORE_CHILD"); dir != "" {
		child(dir)
	}
	goleak.VerifyTestMain(m)
}

func config(dir string) Config { return Config{Domain: "shuffler", Dir: dir} }

// fresh makes and opens an embedded store that is closed with the test.
func fresh(t testing.TB) *Store {
	t.Helper()
	c := config(t.TempDir())
	if err := Init(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	return opened(t, c)
}

func opened(t testing.TB, c Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	return s
}

func closed(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("got error %v, want %v", err, want)
	}
}

func readAll(t testing.TB, s *Store, stream, filter string, from uint64) []Message {
	t.Helper()
	var out []Message
	for m, err := range s.Read(t.Context(), stream, filter, from) {
		must(t, err)
		out = append(out, m)
	}
	return out
}

// grep returns the files below dir that hold text.
func grep(t testing.TB, dir, text string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return err
	})
	must(t, err)
	return found
}

func TestStreams(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	_, err := s.CreateStream(ctx, "blocks")
	must(t, err)
	_, err = s.CreateStream(ctx, "blocks")
	is(t, err, ErrExists)
	if got := readAll(t, s, "blocks", "", 0); len(got) != 0 {
		t.Fatalf("an empty stream has %d messages", len(got))
	}
	for i := range 10 {
		seq, err := s.Append(ctx, "blocks", "", fmt.Sprintf("bucket.%d", i%3), fmt.Appendf(nil, "block %d", i))
		must(t, err)
		if seq != uint64(i+1) {
			t.Fatalf("message %d has sequence %d", i, seq)
		}
	}
	seq, err := s.Append(ctx, "blocks", "id-1", "", []byte("once"))
	must(t, err)
	again, err := s.Append(ctx, "blocks", "id-1", "", []byte("once"))
	must(t, err)
	if seq != 11 || again != seq {
		t.Errorf("the same id got sequences %d and %d", seq, again)
	}
	after := func(last uint64, text string) error {
		m, err := s.message("blocks", "", "", []byte(text))
		must(t, err)
		_, err = s.publish(ctx, write{stream: s.logName("blocks"), msg: m, expect: lastOfStream, expectLast: last})
		return err
	}
	is(t, after(5, "late"), ErrConflict)
	must(t, after(11, "in time"))

	for _, c := range []struct {
		filter string
		from   uint64
		want   string
	}{
		{"", 0, "1 2 3 4 5 6 7 8 9 10 11 12"}, {"", 10, "10 11 12"}, {"", 13, ""}, {"bucket.1", 0, "2 5 8"},
		{"bucket.*", 9, "9 10"}, {"bucket.>", 9, "9 10"}, {"bucket.7", 0, ""}, {"bucket.2", 10, ""},
	} {
		var got []string
		for _, m := range readAll(t, s, "blocks", c.filter, c.from) {
			got = append(got, fmt.Sprint(m.Seq))
			if want := fmt.Sprintf("block %d", m.Seq-1); m.Seq <= 10 && (string(m.Data) != want || m.Suffix != fmt.Sprintf("bucket.%d", (m.Seq-1)%3)) {
				t.Errorf("message %d is %q at %q", m.Seq, m.Data, m.Suffix)
			}
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("filter %q from %d: got %v, want %v", c.filter, c.from, got, c.want)
		}
	}
	if m := readAll(t, s, "blocks", "", 11); m[0].ID != "id-1" || m[0].Suffix != "" {
		t.Errorf("message 11 is %+v", m[0])
	}
	size, last, err := s.StreamSize(ctx, "blocks")
	must(t, err)
	if last != 12 || size == 0 {
		t.Errorf("%d bytes, last message %d", size, last)
	}
	must(t, s.createStream(ctx, "other", streamConfig{}))
	names, err := s.List(ctx, Streams, "")
	must(t, err)
	if !slices.Equal(names, []string{"blocks", "other"}) {
		t.Errorf("streams %v", names)
	}
	must(t, s.Delete(ctx, Streams, "blocks"))
	is(t, s.Delete(ctx, Streams, "blocks"), ErrNotFound)
	_, err = s.Append(ctx, "blocks", "", "", nil)
	is(t, err, ErrNotFound)
	_, _, err = s.StreamSize(ctx, "blocks")
	is(t, err, ErrNotFound)
	for _, err := range s.Read(ctx, "blocks", "", 0) {
		is(t, err, ErrNotFound)
	}
}

func TestAppender(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	a, err := s.CreateStream(ctx, "bulk")
	must(t, err)
	const n = 300
	for i := range n {
		must(t, a.Append(ctx, fmt.Sprint("id-", i), "", fmt.Appendf(nil, "%d", i)))
	}
	must(t, a.Flush(ctx))
	for i, m := range readAll(t, s, "bulk", "", 0) {
		if string(m.Data) != fmt.Sprint(i) {
			t.Fatalf("message %d is %q", i, m.Data)
		}
	}
	// A reader may stop.
	for range s.Read(ctx, "bulk", "", 0) {
		break
	}
	missing := s.appender("missing")
	must(t, missing.Append(ctx, "", "", []byte("x")))
	is(t, missing.Flush(ctx), ErrNotFound)
	is(t, missing.Append(ctx, "", "", []byte("x")), ErrNotFound)
}

func TestKeys(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	_, err := s.Get(ctx, "round.1")
	is(t, err, ErrNotFound)
	rev, err := s.Put(ctx, "round.1", []byte("open"), 0)
	must(t, err)
	_, err = s.Put(ctx, "round.1", []byte("again"), 0)
	is(t, err, ErrConflict)
	next, err := s.Put(ctx, "round.1", []byte("closed"), rev)
	must(t, err)
	_, err = s.Put(ctx, "round.1", []byte("stale"), rev)
	is(t, err, ErrConflict)
	e, err := s.Get(ctx, "round.1")
	must(t, err)
	if string(e.Value) != "closed" || e.Revision != next || e.Key != "round.1" || next <= rev {
		t.Errorf("entry %+v", e)
	}
	_, err = s.Put(ctx, "task", nil, 0)
	must(t, err)
	_, err = s.Put(ctx, "round.2", nil, 0)
	must(t, err)
	keys, err := s.List(ctx, Values, "round.")
	must(t, err)
	if !slices.Equal(keys, []string{"round.1", "round.2"}) {
		t.Errorf("keys %v", keys)
	}
	_, err = s.Put(ctx, "round.10.part", nil, 0)
	must(t, err)
	for prefix, want := range map[string]int{"": 4, "r": 3, "round.1": 2, "round.10.": 1, "round.10.p": 1, "round.3": 0, "round.10.part.": 0, "t": 1} {
		keys, err := s.List(ctx, Values, prefix)
		must(t, err)
		if len(keys) != want {
			t.Errorf("keys of %q: %v", prefix, keys)
		}
	}
	// Only what is asked for is listed by the server.
	for prefix, want := range map[string]string{"": "d.kv.k.>", "round.": "d.kv.k.round.>", "round.1": "d.kv.k.round.>", "counts.a.b": "d.kv.k.counts.a.>", "task": "d.kv.k.>"} {
		if got := filter("d.kv.k.", prefix); got != want {
			t.Errorf("filter of %q: %s, want %s", prefix, got, want)
		}
	}
	if _, err := s.List(ctx, Values, "round.>"); err == nil {
		t.Error("a prefix with a wildcard is taken")
	}
	// A deletion that read an earlier value leaves the present one.
	is(t, s.eraseEntry(ctx, "k.round.1", Entry{Key: "round.1", Revision: rev}), ErrConflict)
	if e, err := s.Get(ctx, "round.1"); err != nil || string(e.Value) != "closed" {
		t.Errorf("after a deletion that came too late: %+v, %v", e, err)
	}
	must(t, s.Delete(ctx, Values, "round.1"))
	is(t, s.Delete(ctx, Values, "round.1"), ErrNotFound)
	again, err := s.Put(ctx, "round.1", []byte("new"), 0)
	must(t, err)
	if again <= next {
		t.Errorf("revision %d after %d", again, next)
	}
}

func TestConcurrentUpdates(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	_, err := s.Put(ctx, "n", []byte("0"), 0)
	must(t, err)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for done := 0; done < 25; {
				e, err := s.Get(ctx, "n")
				if err != nil {
					t.Error(err)
					return
				}
				var n int
				fmt.Sscan(string(e.Value), &n)
				_, err = s.Put(ctx, "n", fmt.Append(nil, n+1), e.Revision)
				if err == nil {
					done++
				} else if !errors.Is(err, ErrConflict) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	e, err := s.Get(ctx, "n")
	must(t, err)
	if string(e.Value) != "100" {
		t.Errorf("100 increments gave %s", e.Value)
	}
}

func TestSecretsLeaveTheDisk(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const secret = "PINEAPPLE-IN-A-KEY"
	must(t, s.PutSecret(ctx, "round-7", []byte(secret)))
	is(t, s.PutSecret(ctx, "round-7", []byte("other")), ErrExists)
	got, err := s.Secret(ctx, "round-7")
	must(t, err)
	if string(got) != secret {
		t.Errorf("secret %q", got)
	}
	if len(grep(t, s.config.Dir, secret)) == 0 {
		t.Fatal("the search is blind: the secret is not found while it is kept")
	}
	names, err := s.List(ctx, Secrets, "round-")
	must(t, err)
	if !slices.Equal(names, []string{"round-7"}) {
		t.Errorf("secrets %v", names)
	}
	must(t, s.Delete(ctx, Secrets, "round-7"))
	if found := grep(t, s.config.Dir, secret); len(found) != 0 {
		t.Errorf("still in %v", found)
	}
	_, err = s.Secret(ctx, "round-7")
	is(t, err, ErrNotFound)
	is(t, s.Delete(ctx, Secrets, "round-7"), ErrNotFound)
}

func TestDeletedStreamsAndKeysLeaveTheDisk(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const text = "PINEAPPLE-IN-A-BLOCK"
	must(t, s.createStream(ctx, "blocks", streamConfig{}))
	for range 50 {
		_, err := s.Append(ctx, "blocks", "", "", bytes.Repeat([]byte(text), 100))
		must(t, err)
	}
	if len(grep(t, s.config.Dir, text)) == 0 {
		t.Fatal("the search is blind")
	}
	must(t, s.Delete(ctx, Streams, "blocks"))
	if found := grep(t, s.config.Dir, text); len(found) != 0 {
		t.Errorf("still in %v", found)
	}
	_, err := s.Put(ctx, "k", []byte(text), 0)
	must(t, err)
	if len(grep(t, s.config.Dir, text)) == 0 {
		t.Fatal("the search is blind")
	}
	must(t, s.Delete(ctx, Values, "k"))
	if found := grep(t, s.config.Dir, text); len(found) != 0 {
		t.Errorf("the value is still in %v", found)
	}
}

func TestObjects(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	list, err := s.listObjects(ctx)
	must(t, err)
	if len(list) != 0 {
		t.Errorf("objects %v", list)
	}
	_, err = s.GetObject(ctx, "model/1")
	is(t, err, ErrNotFound)
	content := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	for _, want := range [][]byte{content, content[:100_000], {}} {
		must(t, s.PutObject(ctx, "model/1", want))
		if o, err := s.listObjects(ctx); err != nil || len(o) != 1 || o[0].Size != uint64(len(want)) || !strings.HasPrefix(o[0].Digest, "SHA-256=") {
			t.Errorf("objects %+v, %v", o, err)
		}
		got, err := s.GetObject(ctx, "model/1")
		must(t, err)
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes, want %d", len(got), len(want))
		}
	}
	must(t, s.PutObject(ctx, "a model", []byte("x")))
	list, err = s.listObjects(ctx)
	must(t, err)
	if len(list) != 2 || list[0].Name != "a model" || list[1].Name != "model/1" {
		t.Errorf("objects %v", list)
	}
	must(t, s.Delete(ctx, Objects, "model/1"))
	is(t, s.Delete(ctx, Objects, "model/1"), ErrNotFound)
	_, err = s.GetObject(ctx, "model/1")
	is(t, err, ErrNotFound)
}

func TestLease(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const ttl = 3 * time.Second
	a, token, err := s.Acquire(ctx, "close.round", "a", ttl)
	must(t, err)
	short, cancel := context.WithTimeout(ctx, time.Second)
	_, _, err = s.Acquire(short, "close.round", "b", ttl)
	cancel()
	is(t, err, ErrHeld)
	if !strings.Contains(err.Error(), "by a") {
		t.Errorf("%v does not name the holder", err)
	}
	must(t, a.Renew(ctx))
	begin := time.Now()
	b, bToken, err := s.Acquire(ctx, "close.round", "b", time.Hour) // a stalls
	must(t, err)
	if d := time.Since(begin); d < ttl {
		t.Errorf("taken over after %v", d)
	}
	if bToken <= token {
		t.Errorf("token %d after %d", bToken, token)
	}
	is(t, a.Renew(ctx), ErrLost)
	is(t, a.Release(ctx), ErrLost)
	must(t, b.Renew(ctx))

	// Fencing: what the stalled holder writes under its old token fails.
	rev, err := s.Put(ctx, "out", fmt.Append(nil, token), 0)
	must(t, err)
	_, err = s.Put(ctx, "out", fmt.Append(nil, bToken), rev)
	must(t, err)
	_, err = s.Put(ctx, "out", fmt.Append(nil, token), rev)
	is(t, err, ErrConflict)

	must(t, b.Release(ctx))
	is(t, b.Renew(ctx), ErrLost)
	begin = time.Now()
	_, cToken, err := s.Acquire(ctx, "close.round", "c", time.Hour)
	must(t, err)
	if time.Since(begin) > 2*time.Minute || cToken <= bToken {
		t.Errorf("a released lease took %v, token %d after %d", time.Since(begin), cToken, bToken)
	}
	// A lease of an earlier opening is dead.
	closed(t, s)
	s = opened(t, s.config)
	begin = time.Now()
	_, dToken, err := s.Acquire(ctx, "close.round", "d", time.Hour)
	must(t, err)
	if time.Since(begin) > 2*time.Minute || dToken <= cToken {
		t.Errorf("after reopening: %v, token %d after %d", time.Since(begin), dToken, cToken)
	}
}

package store

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/internal/longtest"
)

// cancelling is a reader whose first Read ends the write's context.
type cancelling struct{ cancel context.CancelFunc }

func (c cancelling) Read(p []byte) (int, error) {
	c.cancel()
	return copy(p, "part"), nil
}

// An object's write that is cut short leaves nothing running and nothing stored.
func TestCutObjectLeavesNothing(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	s, err := Open(t.Context(), c)
	must(t, err)
	for range 50 {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := s.putObject(ctx, "cut", cancelling{cancel})
		is(t, err, context.Canceled)
	}
	_, err = s.GetObject(t.Context(), "cut")
	is(t, err, ErrNotFound)
	closed(t, s)
	goleak.VerifyNone(t)
}

// An object whose write is cut short at any time can be read: it is what it was, or what was written. What the write
// leaves is dropped by the next that opens the store.
func TestCutObjectIsWhole(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	s, err := Open(t.Context(), c)
	must(t, err)
	begun := time.Now()
	must(t, s.PutObject(t.Context(), "cut", []byte("0")))
	took := time.Since(begun)
	// What is not acknowledged may be stored later, too, but not after what was written later and was seen.
	last, cut, kept := 0, 0, 0 // last is the write that was seen or acknowledged last
	for i := 1; i <= 300; i++ {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%30)*took/20)
		err := s.PutObject(ctx, "cut", []byte(fmt.Sprint(i)))
		cancel()
		if err == nil {
			last = i
		}
		b, readErr := s.GetObject(t.Context(), "cut")
		must(t, readErr)
		got, readErr := strconv.Atoi(string(b))
		must(t, readErr)
		switch {
		case got < last || got > i:
			t.Fatalf("write %d: %v, then the object is that of write %d, after %d", i, err, got, last)
		case err != nil && got == i:
			kept++
		case err != nil:
			cut++
		}
		last = got
	}
	t.Logf("%d writes had no effect, %d had one and were not acknowledged", cut, kept)
	if cut == 0 {
		t.Error("no write was cut short")
	}
	closed(t, s)
	s, err = Open(t.Context(), c)
	must(t, err)
	b, err := s.GetObject(t.Context(), "cut")
	must(t, err)
	if got, err := strconv.Atoi(string(b)); err != nil || got < last {
		t.Errorf("after another start the object is %q, before %d", b, last)
	}
	h, err := s.fixed(t.Context(), s.objectsName())
	must(t, err)
	info, err := h.Info(t.Context(), jetstream.WithSubjectFilter(s.chunkSubject("*")))
	must(t, err)
	if len(info.State.Subjects) != 1 {
		t.Errorf("chunks of %d objects are left, of one there is an entry", len(info.State.Subjects))
	}
	closed(t, s)
}

// The next that opens a store drops what a deletion that was cut short has left, and nothing at all if it cannot read
// every entry: one of those may name it.
func TestNothingNamedIsDropped(t *testing.T) {
	longtest.Only(t, "waits for seconds of the clock")
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	s, err := Open(t.Context(), c)
	must(t, err)
	left := func() (chunks []string) {
		h, err := s.fixed(t.Context(), s.objectsName())
		must(t, err)
		info, err := h.Info(t.Context(), jetstream.WithSubjectFilter(s.chunkSubject("*")))
		must(t, err)
		return slices.Sorted(maps.Keys(info.State.Subjects))
	}
	entry := func(name string) jetstream.ObjectInfo {
		o, err := s.objects(t.Context())
		must(t, err)
		info, err := o.GetInfo(t.Context(), name)
		must(t, err)
		return *info
	}
	write := func(name string, data []byte) {
		m := &nats.Msg{Subject: s.entrySubject(name), Data: data, Header: nats.Header{}}
		m.Header.Set(jetstream.MsgRollup, jetstream.MsgRollupSubject)
		must(t, s.publishObject(t.Context(), m))
	}
	again := func() {
		closed(t, s)
		s, err = Open(t.Context(), c)
		must(t, err)
	}
	must(t, s.PutObject(t.Context(), "kept", []byte("kept")))
	must(t, s.PutObject(t.Context(), "deleted", []byte("deleted")))
	must(t, s.PutObject(t.Context(), "junk", []byte("junk")))
	all := left()
	good, err := json.Marshal(entry("junk"))
	must(t, err)
	gone := entry("deleted")
	gone.Deleted = true
	b, err := json.Marshal(gone)
	must(t, err)
	write("deleted", b)
	write("junk", []byte("{"))
	if again(); !slices.Equal(left(), all) {
		t.Errorf("with an entry that cannot be read %v are left of %v", left(), all)
	}
	write("junk", good)
	again()
	if n := len(left()); n != 2 || slices.Contains(left(), s.chunkSubject(gone.NUID)) {
		t.Errorf("%v are left of %v, of which that of a deleted object is to go", left(), all)
	}
	for _, name := range []string{"kept", "junk"} {
		if b, err := s.GetObject(t.Context(), name); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
	closed(t, s)
}

// An object whose content is gone is damaged: the store answers.
func TestTornObject(t *testing.T) {
	longtest.Only(t, "waits for seconds of the clock")
	s := fresh(t)
	must(t, s.PutObject(t.Context(), "torn", []byte("content")))
	o, err := s.objects(t.Context())
	must(t, err)
	info, err := o.GetInfo(t.Context(), "torn")
	must(t, err)
	s.purgeChunks(t.Context(), info.NUID)
	_, err = s.GetObject(t.Context(), "torn")
	is(t, err, ErrDamaged)
	must(t, s.PutObject(t.Context(), "torn", []byte("again")))
	b, err := s.GetObject(t.Context(), "torn")
	must(t, err)
	if string(b) != "again" {
		t.Errorf("written again it is %q", b)
	}
}

// A store that is closed right after a write is left by everything that the
// write started.
func TestCloseAfterWriteLeavesNothing(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	for i := range 10 {
		s, err := Open(t.Context(), c)
		must(t, err)
		if i == 0 {
			must(t, s.createStream(t.Context(), "log", streamConfig{}))
		}
		must(t, s.appender("log").Append(t.Context(), "", "", []byte("last")))
		closed(t, s)
	}
	goleak.VerifyNone(t)
}

package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/internal/longtest"
	"github.com/riffle-dp/riffle/internal/tracedisk"
)

// say tells what no power failure may undo from now on, with one call of the system.
func say(format string, v ...any) { os.Stdout.Write(fmt.Appendf(nil, format+"\n", v...)) }

func powerConfig(root string) Config { return config(filepath.Join(root, "of", "store")) }

// powerData is the nth message of a stream; a block of the stream "small" holds three.
func powerData(n uint64) []byte { return []byte(strings.Repeat(fmt.Sprintf("%08d", n), 1200)) }

// childPower writes everything that a store has, and says what was acknowledged.
func childPower(root string) (err error) {
	ctx := context.Background()
	c := powerConfig(root)
	if err := Init(ctx, c); err != nil {
		return err
	}
	say("init")
	s, err := Open(ctx, c)
	if err != nil {
		return err
	}
	do := func(f func() error, format string, v ...any) {
		if err == nil {
			if err = f(); err == nil {
				say(format, v...)
			}
		}
	}
	for n := range uint64(3) {
		do(func() error { _, err := s.AppendEntry(ctx, n, powerData(n+1)); return err }, "ledger %d", n+1)
	}
	do(func() error { return s.PutSecret(ctx, "round", []byte("key")) }, "secret round")
	do(func() error { return s.createStream(ctx, "small", streamConfig{maxBytes: 120_000}) }, "small 0")
	for n := range uint64(8) {
		do(func() error { _, err := s.Append(ctx, "small", "", "", powerData(n+1)); return err }, "small %d", n+1)
	}
	do(func() error { return s.createStream(ctx, "dropped", streamConfig{}) }, "created dropped")
	do(func() error { _, err := s.Append(ctx, "dropped", "", "", powerData(1)); return err }, "appended dropped")
	do(func() error { return s.Delete(ctx, Streams, "dropped") }, "dropped dropped")
	var rev uint64
	for n := range 4 {
		do(func() (err error) { rev, err = s.Put(ctx, "state", fmt.Append(nil, n+1), rev); return err }, "state %d", n+1)
	}
	do(func() error { _, err := s.Put(ctx, "other", []byte("1"), 0); return err }, "other 1")
	do(func() error { return s.Delete(ctx, Values, "state") }, "unset state")
	do(func() error { return s.PutObject(ctx, "model", powerData(1)) }, "model 1")
	do(func() error { return s.PutObject(ctx, "model", powerData(2)) }, "model 2")
	do(func() error { return s.Delete(ctx, Secrets, "round") }, "forgot round")
	var a Appender
	do(func() (err error) { a, err = s.CreateStream(ctx, "many"); return err }, "many 0")
	do(func() error {
		for n := range uint64(5) {
			if err := a.Append(ctx, "", "", powerData(n+1)); err != nil {
				return err
			}
		}
		return a.Flush(ctx)
	}, "many 5")
	do(s.Close, "closed")
	do(func() (err error) { s, err = Open(ctx, c); return err }, "opened")
	do(func() error { _, err := s.AppendEntry(ctx, 3, powerData(4)); return err }, "ledger 4")
	do(func() error { _, err := s.Append(ctx, "small", "", "", powerData(9)); return err }, "small 9")
	return errors.Join(err, s.Close())
}

// childKilled leaves the end of a ledger's block as a process does that is killed between a write and its
// sync.
func childKilled(root string) error {
	s := &Store{config: powerConfig(root)}
	block := filepath.Join(s.streamDir(s.ledgerName()), "msgs", "1.blk")
	raw, err := os.ReadFile(block)
	if err != nil {
		return err
	}
	whole := len(raw) * 2 / 3
	f, err := os.OpenFile(block, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if err := f.Truncate(int64(whole)); err != nil {
		return err
	}
	_, err = f.WriteAt(raw[whole:], int64(whole))
	return errors.Join(err, f.Close())
}

// childNext is the next process. It acts upon what it finds.
func childNext(root string) error {
	ctx := context.Background()
	s, err := Open(ctx, powerConfig(root))
	if err != nil {
		return err
	}
	last, err := s.LastEntry(ctx)
	say("init")
	say("ledger %d", last)
	return errors.Join(err, s.Close())
}

// TestPowerFailureAfterAKill holds that what a process has read stays, if the one before it was killed and
// the power fails after.
func TestPowerFailureAfterAKill(t *testing.T) {
	root, ctx := t.TempDir(), t.Context()
	must(t, Init(ctx, powerConfig(root)))
	before, err := Open(ctx, powerConfig(root))
	must(t, err)
	for n := range uint64(3) {
		_, err := before.AppendEntry(ctx, n, powerData(n+1))
		must(t, err)
	}
	must(t, before.Close())
	var programs []*exec.Cmd
	for _, what := range []string{"killed", "next"} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childEnv+"="+what+"|"+root)
		programs = append(programs, cmd)
	}
	l, err := tracedisk.Record(root, programs...)
	if errors.Is(err, tracedisk.ErrNoTrace) {
		t.Skip(err)
	}
	must(t, err)
	tried := 0
	for s := range l.States(6, 1<<12) {
		if len(s.Said) < 2 {
			continue
		}
		dir := filepath.Join(t.TempDir(), "s")
		must(t, s.Write(dir))
		if err := checkPower(ctx, powerConfig(dir), s.Said); err != nil || s.Said[1] != "ledger 3" {
			t.Fatalf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
		}
		if tried++; tried == longtest.Pick(30, 1<<12) {
			break
		}
	}
	t.Log(tried, "states were opened")
	if tried == 0 {
		t.Error("no states")
	}
}

// TestPowerFailures holds for each state in which a power failure may leave an embedded store: it opens;
// what was acknowledged is there and what was removed is not; and it takes what comes next.
func TestPowerFailures(t *testing.T) {
	longtest.Only(t, "traces processes")
	root := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=power|"+root)
	l, err := tracedisk.Record(root, cmd)
	if errors.Is(err, tracedisk.ErrNoTrace) {
		t.Skip(err)
	}
	must(t, err)
	into, err := tracedisk.Memory(t.TempDir())
	must(t, err)
	defer os.RemoveAll(into)
	tried, of, bad := 0, 0, 0
	for s := range l.States(2, longtest.Pick3(25, 400, 1<<16)) {
		dir := filepath.Join(into, fmt.Sprint(s.Number))
		must(t, s.Write(dir))
		tried, of = tried+1, s.Of
		if err := checkPower(t.Context(), powerConfig(dir), s.Said); err != nil {
			t.Errorf("%v\nafter %q\nlost: %s", err, s.Said, s.Lost)
			if bad++; bad == 20 {
				break
			}
		}
		must(t, os.RemoveAll(dir))
	}
	t.Logf("%d of %d states were opened", tried, of)
	if of < 300 {
		t.Error("too few")
	}
}

func checkPower(ctx context.Context, c Config, said []string) (err error) {
	last := map[string]uint64{} // the last number that was acknowledged
	gone := map[string]bool{}
	for _, line := range said {
		var what string
		var n uint64
		if k, _ := fmt.Sscan(line, &what, &n); k == 2 {
			last[what] = n
		} else {
			gone[line] = true
		}
	}
	s, err := Open(ctx, c)
	if errors.Is(err, ErrNoStore) && !gone["init"] {
		if err := Init(ctx, c); err != nil {
			return fmt.Errorf("again: %w", err)
		}
		s, err = Open(ctx, c)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	entries, err := s.LastEntry(ctx)
	if err != nil || entries < last["ledger"] {
		return fmt.Errorf("%d entries, %d were acknowledged: %v", entries, last["ledger"], err)
	}
	for m, err := range s.Entries(ctx) {
		if err != nil || string(m.Data) != string(powerData(m.Seq)) {
			return fmt.Errorf("entry %d: %.20q, %v", m.Seq, m.Data, err)
		}
	}
	for _, name := range []string{"small", "many"} {
		count := uint64(0)
		for m, err := range s.Read(ctx, name, "", 0) {
			if errors.Is(err, ErrNotFound) {
				break
			}
			if count++; err != nil || m.Seq != count || string(m.Data) != string(powerData(count)) {
				return fmt.Errorf("%s: message %d of %.20q, %v", name, count, m.Data, err)
			}
		}
		if _, there := last[name]; there {
			if _, _, err := s.StreamSize(ctx, name); err != nil {
				return err
			}
		}
		if count < last[name] {
			return fmt.Errorf("%s has %d messages, %d were acknowledged", name, count, last[name])
		}
	}
	if _, _, err := s.StreamSize(ctx, "dropped"); gone["dropped dropped"] && !errors.Is(err, ErrNotFound) || gone["created dropped"] && !gone["appended dropped"] && err != nil {
		return fmt.Errorf("stream dropped: %v", err)
	}
	for m, err := range s.Read(ctx, "dropped", "", 0) {
		if err == nil && string(m.Data) != string(powerData(1)) {
			return fmt.Errorf("a message of a dropped stream: %.20q", m.Data)
		}
	}
	e, err := s.Get(ctx, "state")
	var state uint64
	fmt.Sscan(string(e.Value), &state)
	switch {
	case gone["unset state"] && !errors.Is(err, ErrNotFound):
		return fmt.Errorf("a removed value is back: %q, %v", e.Value, err)
	case err != nil && !errors.Is(err, ErrNotFound) || !gone["unset state"] && state < last["state"] && !(last["other"] > 0 && err != nil):
		return fmt.Errorf("state is %q, acknowledged was %d: %v", e.Value, last["state"], err)
	}
	if e, err := s.Get(ctx, "other"); last["other"] > 0 && (err != nil || string(e.Value) != "1") {
		return fmt.Errorf("other is %q, %v", e.Value, err)
	}
	if b, err := s.GetObject(ctx, "model"); last["model"] > 0 && (err != nil || string(b) < string(powerData(last["model"]))) {
		return fmt.Errorf("model is %.20q, %v", b, err)
	}
	key, err := s.Secret(ctx, "round")
	switch {
	case gone["forgot round"] && !errors.Is(err, ErrNotFound):
		return fmt.Errorf("a destroyed key is back: %q, %v", key, err)
	case gone["secret round"] && last["many"] == 0 && last["model"] < 2 && (err != nil || string(key) != "key"):
		return fmt.Errorf("the key is %q, %v", key, err)
	}
	if _, err := s.AppendEntry(ctx, entries, powerData(entries+1)); err != nil {
		return fmt.Errorf("the next entry: %w", err)
	}
	return nil
}

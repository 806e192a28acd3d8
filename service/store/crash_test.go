package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// childWrite writes until it is killed, and says what was acknowledged after
// it was.
func childWrite(dir string) error {
	ctx := context.Background()
	c := config(dir)
	if err := Init(ctx, c); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	s, err := Open(ctx, c)
	if err != nil {
		return err
	}
	if err := s.createStream(ctx, "blocks", streamConfig{}); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	last, err := s.LastEntry(ctx)
	if err != nil {
		return err
	}
	var rev uint64
	if e, err := s.Get(ctx, "state"); err == nil {
		rev = e.Revision
	}
	fmt.Println("begin")
	filler := strings.Repeat("x", 8000)
	for {
		if last, err = s.AppendEntry(ctx, last, fmt.Appendf(nil, "entry %d", last+1)); err != nil {
			return err
		}
		fmt.Println("ledger", last)
		seq, err := s.Append(ctx, "blocks", "", "", []byte(filler))
		if err != nil {
			return err
		}
		fmt.Println("block", seq)
		value := fmt.Appendf(nil, "%d", seq)
		if rev, err = s.Put(ctx, "state", value, rev); err != nil {
			return err
		}
		fmt.Println("key", rev)
	}
}

// childHold opens a store and stays.
func childHold(dir string) error {
	s, err := Open(context.Background(), config(dir))
	if err != nil {
		return err
	}
	fmt.Println("open")
	time.Sleep(time.Minute)
	return s.Close()
}

func TestNothingAcknowledgedIsLostByKill(t *testing.T) {
	dir := t.TempDir()
	var ledger, block, key uint64
	for round := range 3 {
		p := spawn(t, "write", dir)
		if got := p.line(t); got != "begin" {
			t.Fatalf("the writer says %q", got)
		}
		for range 40 + 7*round { // in the middle of any of the three
			var kind string
			var n uint64
			if _, err := fmt.Sscan(p.line(t), &kind, &n); err != nil {
				t.Fatal(err)
			}
			switch kind {
			case "ledger":
				ledger = max(ledger, n)
			case "block":
				block = max(block, n)
			case "key":
				key = max(key, n)
			}
		}
		p.cmd.Process.Kill()
		for p.lines.Scan() { // acknowledged before the kill took effect
			var kind string
			var n uint64
			if _, err := fmt.Sscan(p.lines.Text(), &kind, &n); err != nil {
				continue // a line cut short
			}
			switch kind {
			case "ledger":
				ledger = max(ledger, n)
			case "block":
				block = max(block, n)
			case "key":
				key = max(key, n)
			}
		}
		p.cmd.Wait()
		s, err := Open(t.Context(), config(dir))
		must(t, err)
		var n uint64
		for e, err := range s.Entries(t.Context()) {
			must(t, err)
			n++
			if string(e.Data) != fmt.Sprintf("entry %d", n) {
				t.Fatalf("entry %d is %q", n, e.Data)
			}
		}
		if n < ledger || n > ledger+1 {
			t.Errorf("%d entries, %d acknowledged", n, ledger)
		}
		if got := len(readAll(t, s, "blocks", "", 0)); uint64(got) < block {
			t.Errorf("%d blocks, %d acknowledged", got, block)
		}
		e, err := s.Get(t.Context(), "state")
		must(t, err)
		if e.Revision < key {
			t.Errorf("revision %d, %d acknowledged", e.Revision, key)
		}
		closed(t, s)
	}
	if ledger == 0 || block == 0 || key == 0 {
		t.Errorf("too little was written: %d %d %d", ledger, block, key)
	}
}

func TestOneProcessAtATime(t *testing.T) {
	c := config(t.TempDir())
	must(t, Init(t.Context(), c))
	p := spawn(t, "hold", c.Dir)
	if got := p.line(t); got != "open" {
		t.Fatalf("the holder says %q", got)
	}
	_, err := Open(t.Context(), c)
	is(t, err, ErrLocked)
	p.kill()
	closed(t, opened(t, c))
}

func TestReopen(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	must(t, s.createStream(ctx, "blocks", streamConfig{}))
	_, err := s.Append(ctx, "blocks", "a", "b.1", []byte("block"))
	must(t, err)
	rev, err := s.Put(ctx, "k", []byte("v"), 0)
	must(t, err)
	must(t, s.PutSecret(ctx, "round-1", []byte("secret")))
	must(t, s.PutObject(ctx, "model", []byte("weights")))
	before, err := s.Inventory(ctx)
	must(t, err)
	must(t, s.Delete(ctx, Values, "k"))
	closed(t, s)
	s = opened(t, s.config)
	// Revisions go on although the last message is gone.
	again, err := s.Put(ctx, "k", []byte("v"), 0)
	must(t, err)
	if again <= rev {
		t.Errorf("revision %d after %d", again, rev)
	}
	after, err := s.Inventory(ctx)
	must(t, err)
	if before != after || before.Messages != 1 || before.Secrets != 1 || before.Objects != 1 || before.Keys != 1 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

func TestFullStore(t *testing.T) {
	c := config(t.TempDir())
	c.MaxBytes = 2 << 20
	must(t, Init(t.Context(), c))
	s, ctx := opened(t, c), t.Context()
	must(t, s.createStream(ctx, "blocks", streamConfig{}))
	block := make([]byte, MaxBlock)
	var stored int
	var err error
	for range 64 {
		if _, err = s.Append(ctx, "blocks", "", "", block); err != nil {
			break
		}
		stored++
	}
	is(t, err, ErrFull)
	if stored < 20 || stored > 33 {
		t.Errorf("stored %d blocks in 2 MB", stored)
	}
	a := s.appender("blocks")
	must(t, a.Append(ctx, "", "", block))
	is(t, a.Flush(ctx), ErrFull)
	_, err = s.Put(ctx, "k", []byte("v"), 0)
	is(t, err, ErrFull)
	_, err = s.AppendEntry(ctx, 0, []byte("entry"))
	is(t, err, ErrFull)
	is(t, s.PutObject(ctx, "model", []byte("weights")), ErrFull)
	if got := len(readAll(t, s, "blocks", "", 0)); got != stored {
		t.Errorf("%d blocks, %d acknowledged", got, stored)
	}
	must(t, s.Delete(ctx, Streams, "blocks"))
	_, err = s.AppendEntry(ctx, 0, []byte("entry"))
	must(t, err)

	must(t, s.createStream(ctx, "small", streamConfig{maxBytes: 100_000}))
	_, err = s.Append(ctx, "small", "", "", block)
	must(t, err)
	_, err = s.Append(ctx, "small", "", "", block)
	is(t, err, ErrFull)
}

// TestFullDisk fills a real disk: RIFFLE_SMALL_DISK names a directory on one
// of a few megabytes, such as a tmpfs.
func TestFullDisk(t *testing.T) {
	disk := os.Getenv("RIFFLE_SMALL_DISK")
	if disk == "" {
		t.Skip("RIFFLE_SMALL_DISK is not set")
	}
	dir, err := os.MkdirTemp(disk, "store")
	must(t, err)
	defer os.RemoveAll(dir)
	c := config(dir)
	c.MaxBytes = 1 << 40 // so that it is the disk that ends
	must(t, Init(t.Context(), c))
	s, ctx := opened(t, c), t.Context()
	must(t, s.createStream(ctx, "blocks", streamConfig{}))
	var stored int
	for {
		if _, err = s.Append(ctx, "blocks", "", "", make([]byte, MaxBlock)); err != nil {
			break
		}
		if stored++; stored > 1<<14 {
			t.Fatal("the disk is not small")
		}
	}
	t.Logf("%d blocks, then: %v", stored, err)
	is(t, err, ErrFull)
	_, err = s.Append(ctx, "blocks", "", "", []byte("small"))
	is(t, err, ErrFull)
	seq, ledgerErr := s.AppendEntry(ctx, 0, []byte("entry"))
	t.Log("ledger:", seq, ledgerErr)
	closed(t, s)
	// After a restart nothing acknowledged is missing, and with space it goes on.
	s, err = Open(ctx, c)
	t.Log("reopened full:", err)
	if err != nil {
		is(t, err, ErrFull)
		return
	}
	defer closed(t, s)
	if got := len(readAll(t, s, "blocks", "", 0)); got < stored {
		t.Errorf("%d blocks, %d acknowledged", got, stored)
	}
	last, err := s.LastEntry(ctx)
	must(t, err)
	if ledgerErr == nil && last != seq {
		t.Errorf("ledger at %d, %d acknowledged", last, seq)
	}
	must(t, s.Delete(ctx, Streams, "blocks"))
	_, err = s.AppendEntry(ctx, last, []byte("entry"))
	must(t, err)
}

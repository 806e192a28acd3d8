package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestInterruptedCreationsAndDeletions makes by hand what a kill leaves.
func TestInterruptedCreationsAndDeletions(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const secret = "PINEAPPLE-IN-A-DELETION"
	must(t, s.createStream(ctx, "created", streamConfig{}))
	must(t, s.createStream(ctx, "begun", streamConfig{}))
	must(t, s.PutSecret(ctx, "deleted", []byte(secret)))
	must(t, s.PutSecret(ctx, "moved", []byte(secret)))
	closed(t, s)
	must(t, os.Remove(filepath.Join(s.streamDir(s.logName("created")), "meta.sum")))
	must(t, os.Remove(filepath.Join(s.streamDir(s.logName("begun")), "meta.sum")))
	must(t, os.Remove(filepath.Join(s.streamDir(s.logName("begun")), "meta.inf")))
	must(t, os.Remove(filepath.Join(s.streamDir(s.secretName("deleted")), "meta.inf")))
	moved := s.streamDir(s.secretName("moved"))
	must(t, os.Remove(filepath.Join(moved, "meta.inf")))
	must(t, os.Rename(moved, s.streamDir("."+s.secretName("moved"))))

	s = opened(t, s.config)
	if found := grep(t, s.config.Dir, secret); len(found) != 0 {
		t.Errorf("still in %v", found)
	}
	_, err := s.Secret(ctx, "deleted")
	is(t, err, ErrNotFound)
	must(t, s.PutSecret(ctx, "deleted", []byte("new")))
	for _, name := range []string{"created", "begun"} {
		must(t, s.createStream(ctx, name, streamConfig{}))
		_, err := s.Append(ctx, name, "", "", []byte("block"))
		must(t, err)
	}
	// What was written after the repair is there after another start.
	closed(t, s)
	s = opened(t, s.config)
	for _, name := range []string{"created", "begun"} {
		if got := readAll(t, s, name, "", 0); len(got) != 1 {
			t.Errorf("stream %s has %d messages", name, len(got))
		}
	}
	got, err := s.Secret(ctx, "deleted")
	must(t, err)
	if string(got) != "new" {
		t.Errorf("secret %q", got)
	}
}

func TestDamageIsRefused(t *testing.T) {
	for _, c := range []struct {
		name, file string
		log        bool
	}{
		{"meta.sum", "", true}, {"meta.inf", "", false}, {"meta.sum", "", false}, {"meta.sum", "0000", true}, {"meta.inf", "{}", false},
	} {
		s, ctx := fresh(t), t.Context()
		must(t, s.createStream(ctx, "blocks", streamConfig{}))
		_, err := s.Append(ctx, "blocks", "", "", []byte("block"))
		must(t, err)
		closed(t, s)
		name := s.ledgerName()
		if c.log {
			name = s.logName("blocks")
		}
		path := filepath.Join(s.streamDir(name), c.name)
		if c.file == "" {
			must(t, os.Remove(path))
		} else {
			must(t, os.WriteFile(path, []byte(c.file), 0o600))
		}
		_, err = Open(ctx, s.config)
		is(t, err, ErrDamaged)
		if _, err := os.Stat(s.streamDir(name)); err != nil {
			t.Errorf("%+v: it was removed: %v", c, err)
		}
	}
}

// A broker that has to read its blocks again knows nothing of values that were replaced: the one before a
// deleted one must not return, also if only the index is lost.
func TestDeletedValuesStayDeleted(t *testing.T) {
	t.Run("whole", func(t *testing.T) { deletedStays(t, true) })
	t.Run("begun", func(t *testing.T) { deletedStays(t, false) })
}

func deletedStays(t *testing.T, deletes bool) {
	ctx := t.Context()
	c := config(t.TempDir())
	must(t, Init(ctx, c))
	s := opened(t, c)
	var rev uint64
	for n := range 3 {
		var err error
		rev, err = s.Put(ctx, "round.1", fmt.Append(nil, n), rev)
		must(t, err)
	}
	if deletes {
		must(t, s.Delete(ctx, Values, "round.1"))
	} else { // killed between the two steps
		_, err := s.beginErasure("k.round.1", rev)
		must(t, err)
		must(t, s.overwrite(ctx, "k.round.1", rev))
	}
	closed(t, s)
	must(t, os.Remove(filepath.Join(s.streamDir(s.kvName()), "msgs", "index.db")))
	s = opened(t, c)
	_, err := s.Get(ctx, "round.1")
	is(t, err, ErrNotFound)
	if notes, err := os.ReadDir(filepath.Join(c.Dir, erasingDir)); err != nil || len(notes) > 0 {
		t.Errorf("%v, %v", notes, err)
	}
	is(t, s.Delete(ctx, Values, "round.1"), ErrNotFound)
	if names, err := s.List(ctx, Values, "round."); err != nil || len(names) > 0 {
		t.Errorf("%q, %v", names, err)
	}
	_, err = s.Put(ctx, "round.1", nil, rev)
	is(t, err, ErrConflict)
	again, err := s.Put(ctx, "round.1", []byte("new"), 0)
	must(t, err)
	if e, err := s.Get(ctx, "round.1"); err != nil || string(e.Value) != "new" || e.Revision != again || again <= rev {
		t.Errorf("%+v, %v, want revision %d after %d", e, err, again, rev)
	}
	_, err = s.Put(ctx, "round.1", nil, 0)
	is(t, err, ErrConflict)
}

// A block may end with zeros in place of a write that was cut off. The first index of a stream, of no
// messages, fits such a block.
func TestZerosAtTheEndOfABlock(t *testing.T) {
	ctx := t.Context()
	c := config(filepath.Join(t.TempDir(), "a"))
	must(t, Init(ctx, c))
	s := opened(t, c)
	for n := range uint64(3) {
		_, err := s.AppendEntry(ctx, n, []byte("entry"))
		must(t, err)
	}
	copied := config(filepath.Join(t.TempDir(), "b"))
	must(t, os.CopyFS(copied.Dir, os.DirFS(c.Dir)))
	block := filepath.Join(copied.Dir, strings.TrimPrefix(s.streamDir(s.ledgerName()), c.Dir), "msgs", "1.blk")
	raw, err := os.ReadFile(block)
	must(t, err)
	must(t, os.WriteFile(block, append(raw, make([]byte, 100)...), 0o600))
	after := opened(t, copied)
	if last, err := after.LastEntry(ctx); err != nil || last != 3 {
		t.Errorf("%d entries, %v", last, err)
	}
}

// A deletion that was begun is finished, whatever of the files is left.
func TestBegunRemovalsAreFinished(t *testing.T) {
	ctx := t.Context()
	c := config(t.TempDir())
	must(t, Init(ctx, c))
	s := opened(t, c)
	for _, name := range []string{"gone", "stays"} {
		_, err := s.CreateStream(ctx, name)
		must(t, err)
		_, err = s.Append(ctx, name, "", "", []byte("data"))
		must(t, err)
	}
	_, err := s.beginRemoval(s.logName("gone"))
	must(t, err)
	closed(t, s)
	must(t, os.Remove(filepath.Join(s.streamDir(s.logName("gone")), "meta.sum")))
	s = opened(t, c)
	if names, err := s.List(ctx, Streams, ""); err != nil || !slices.Equal(names, []string{"stays"}) {
		t.Errorf("%q, %v", names, err)
	}
	if notes, err := os.ReadDir(filepath.Join(c.Dir, removingDir)); err != nil || len(notes) > 0 {
		t.Errorf("%v, %v", notes, err)
	}
}

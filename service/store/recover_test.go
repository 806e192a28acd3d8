package store

import (
	"os"
	"path/filepath"
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

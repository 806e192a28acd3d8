package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
)

func deletable(n uint64) (name string, data []byte) {
	return fmt.Sprintf("noise/%d", n), bytes.Repeat(fmt.Appendf(nil, "%08d", n), 20_000) // three chunks
}

// childDelete stores objects and deletes each after the next was stored, until it is killed.
func childDelete(dir string) error {
	ctx := context.Background()
	c := config(dir)
	if err := Init(ctx, c); err != nil && !errors.Is(err, ErrExists) {
		return err
	}
	s, err := Open(ctx, c)
	if err != nil {
		return err
	}
	all, err := s.List(ctx, Objects, "noise/")
	if err != nil {
		return err
	}
	var n uint64
	for _, name := range all {
		var have uint64
		if _, err := fmt.Sscanf(name, "noise/%d", &have); err != nil {
			return err
		}
		n = max(n, have)
	}
	for _, name := range all { // what was to be deleted at the kill
		if last, _ := deletable(n); name != last {
			if err := s.Delete(ctx, Objects, name); err != nil {
				return err
			}
		}
	}
	fmt.Println("begin", n)
	for {
		n++
		name, data := deletable(n)
		if err := s.PutObject(ctx, name, data); err != nil {
			return err
		}
		fmt.Println("put", n)
		if n == 1 {
			continue
		}
		name, _ = deletable(n - 1)
		if err := s.Delete(ctx, Objects, name); err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		fmt.Println("deleted", n-1)
	}
}

// A process that is killed while it deletes leaves each object whole or gone, and one whose
// deletion was acknowledged gone.
func TestObjectsAreDeletedWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	var put, deleted uint64
	for round := range 4 {
		p := spawn(t, "delete", dir)
		note := func(line string) {
			var kind string
			var n uint64
			if _, err := fmt.Sscan(line, &kind, &n); err != nil {
				return // a line cut short
			}
			switch kind {
			case "put":
				put = max(put, n)
			case "deleted":
				deleted = max(deleted, n)
			}
		}
		for range 10 + round { // after a deletion or after a put
			note(p.line(t))
		}
		p.cmd.Process.Kill()
		for p.lines.Scan() {
			note(p.lines.Text())
		}
		p.cmd.Wait()
		s, err := Open(t.Context(), config(dir))
		must(t, err)
		for n := uint64(1); n <= put+1; n++ {
			name, want := deletable(n)
			got, err := s.GetObject(t.Context(), name)
			switch {
			case errors.Is(err, ErrNotFound):
				if n > deleted+1 && n <= put {
					t.Errorf("object %d is gone; the last put is %d, the last deletion %d", n, put, deleted)
				}
			case err != nil || !bytes.Equal(got, want):
				t.Errorf("object %d: %d bytes, %v", n, len(got), err)
			case n <= deleted:
				t.Errorf("object %d is there, and was deleted", n)
			}
		}
		list, err := s.List(t.Context(), Objects, "noise/")
		must(t, err)
		if len(list) == 0 || len(list) > 2 {
			t.Errorf("objects %v", list)
		}
		closed(t, s)
	}
	if deleted < 8 {
		t.Errorf("only %d objects were deleted", deleted)
	}
}

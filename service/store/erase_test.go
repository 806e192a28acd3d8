package store

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// A key that was written once leaves nothing that List has to read.
func TestDeletedKeysLeaveNoMessage(t *testing.T) {
	s := fresh(t)
	for n := range 20 {
		k := fmt.Sprintf("open.r%d", n)
		if _, err := s.Put(t.Context(), k, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
		if err := s.Delete(t.Context(), Values, k); err != nil {
			t.Fatal(err)
		}
	}
	if kv, err := s.info(t.Context(), s.kvName()); err != nil || kv.count != 0 {
		t.Errorf("%d messages of deleted keys, %v", kv.count, err)
	}
}

// A stream that is made anew after a deletion whose answer was lost is there at the next start.
func TestNoteOfRemovalEndsWithTheNextStream(t *testing.T) {
	c := config(t.TempDir())
	ctx := t.Context()
	if err := Init(ctx, c); err != nil {
		t.Fatal(err)
	}
	s, err := Open(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutSecret(ctx, "a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	full := s.secretName("a")
	if _, err := s.beginRemoval(full); err != nil {
		t.Fatal(err)
	}
	if err := s.js.DeleteStream(ctx, full); err != nil {
		t.Fatal(err)
	}
	for !errors.Is(err, ErrNotFound) {
		time.Sleep(10 * time.Millisecond)
		err = s.Delete(ctx, Secrets, "a")
	}
	if err := s.PutSecret(ctx, "a", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = opened(t, c)
	if b, err := s.Secret(ctx, "a"); string(b) != "new" || err != nil {
		t.Errorf("an acknowledged secret: %q, %v", b, err)
	}
}

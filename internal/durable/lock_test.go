package durable

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

func TestLockIsOnes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := Lock(path)
	if errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	if err := unlock(); err != nil {
		t.Fatal(err)
	}
	again, err := Lock(path)
	if err != nil {
		t.Fatalf("not given back: %v", err)
	}
	if err := again(); err != nil {
		t.Fatal(err)
	}
}

func TestTruncate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := Truncate(path, 0); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cut a file that is not there: %v", err)
	}
	if err := os.WriteFile(path, []byte("whole line\ntorn"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Truncate(path, 11); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != "whole line\n" {
		t.Errorf("%q, %v", b, err)
	}
}

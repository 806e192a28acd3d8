package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/riffle-dp/riffle/internal/durable"
)

// A value is deleted in two steps: its message is overwritten, and a message that says so is added, which
// stays. Without the second an earlier value returns: a server that reads its blocks again, after a kill,
// takes the last message of a subject that was not deleted, and it has no record that it dropped the
// earlier ones when they were replaced (2.15.2). An embedded store notes the deletion in a file before, so
// that the next process does the second step if this one cannot.

// deletedHeader marks the message that stands for a deleted value.
const deletedHeader = "riffle-deleted"

// firstHeader marks a key's first message. It replaced none that could return, so a deletion of it needs
// no second step: keys that are written once, such as marks of rounds, leave nothing that List must read.
const firstHeader = "riffle-first"

// erasingDir holds a file for each deletion that has begun: the key and its message's sequence.
const erasingDir = "erasing"

// erase deletes the current value of a key: see the package comment.
func (s *Store) erase(ctx context.Context, key string) error {
	e, err := s.get(ctx, key)
	if err != nil {
		return err
	}
	return s.eraseEntry(ctx, key, e)
}

// eraseEntry is erase for the entry that was read. It fails with ErrConflict if the key has
// another value by now, which stays.
func (s *Store) eraseEntry(ctx context.Context, key string, e Entry) error {
	seq := e.Revision - s.marker().Base
	end, err := s.beginErasure(key, seq)
	if err != nil {
		return err
	}
	err = s.overwrite(ctx, key, seq)
	switch {
	case err != nil:
	case e.first:
		err = s.settle(s.kvName())
	default:
		err = s.bury(ctx, key, seq)
	}
	if err == nil || errors.Is(err, ErrConflict) {
		err = errors.Join(err, end())
	}
	return err
}

// overwrite overwrites a key's message in place. It fails with ErrConflict if there is a later one.
func (s *Store) overwrite(ctx context.Context, key string, seq uint64) error {
	h, err := s.fixed(ctx, s.kvName())
	if err != nil {
		return err
	}
	// The deletion is by sequence: it fails if the key has changed since.
	_, err = retry(ctx, s, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, h.SecureDeleteMsg(ctx, seq)
	})
	if err == nil {
		return nil
	}
	m, now := s.lastOf(ctx, key)
	switch {
	case errors.Is(now, ErrNotFound):
		return nil // deleted, by this call or another's
	case now == nil && m.Sequence > seq && m.Header.Get(deletedHeader) != "":
		return nil
	case now == nil && m.Sequence != seq:
		return fmt.Errorf("store: delete key %s: %w", key[2:], ErrConflict)
	}
	return s.fail("delete key "+key[2:], err)
}

// bury adds the message that says that a key's messages up to a sequence are deleted, unless there is a
// later one.
func (s *Store) bury(ctx context.Context, key string, seq uint64) error {
	for last := uint64(0); ; {
		m := &nats.Msg{Subject: s.kvSubject(key), Header: nats.Header{deletedHeader: {"true"}}}
		_, err := s.publish(ctx, write{stream: s.kvName(), msg: m, expect: lastOfSubject, expectLast: last})
		if !errors.Is(err, ErrConflict) {
			return err
		}
		now, err := s.lastOf(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			last = 0
		case err != nil:
			return err
		case now.Sequence > seq:
			return nil
		default:
			last = now.Sequence // an earlier value is back
		}
	}
}

// beginErasure notes a deletion durably in an embedded store. end is called when it is done.
func (s *Store) beginErasure(key string, seq uint64) (end func() error, err error) {
	if s.server == nil {
		return func() error { return nil }, nil
	}
	dir := filepath.Join(s.config.Dir, erasingDir)
	note := filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(key))))
	if err = durable.MkdirAll(dir, 0o700); err == nil {
		err = durable.WritePrivate(note, fmt.Appendf(nil, "%s %d\n", key, seq))
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return func() error {
		if err := durable.Remove(note); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
		return nil
	}, nil
}

// finishErasures finishes deletions of values that an earlier process has begun.
func (s *Store) finishErasures(ctx context.Context) error {
	dir := filepath.Join(s.config.Dir, erasingDir)
	notes, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for _, n := range notes {
		path := filepath.Join(dir, n.Name())
		if !strings.HasPrefix(n.Name(), ".") { // a temporary file
			raw, err := os.ReadFile(path)
			if err != nil {
				return fmt.Errorf("store: %w", err)
			}
			var key string
			var seq uint64
			if _, err := fmt.Sscanf(string(raw), "%s %d\n", &key, &seq); err != nil || len(key) < 3 || checkKey(key) != nil {
				return fmt.Errorf("store: %s holds %.40q, no key and sequence: %w", path, raw, ErrDamaged)
			}
			m, err := s.lastOf(ctx, key)
			if err == nil && m.Sequence == seq {
				err = s.overwrite(ctx, key, seq)
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if err := s.bury(ctx, key, seq); err != nil {
				return err
			}
		}
		if err := durable.Remove(path); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

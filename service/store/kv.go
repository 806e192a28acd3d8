package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Entry is a value with its revision. Revisions of a store only grow, over all keys and over
// migrations.
type Entry struct {
	Key      string
	Value    []byte
	Revision uint64

	first bool // whether it replaced no message: see firstHeader
}

// checkKey returns an error unless key is made of tokens of A-Z, a-z, 0-9, - and _, separated
// by dots.
func checkKey(key string) error {
	if key == "" {
		return errors.New("store: an empty key")
	}
	return checkSuffix(key, false)
}

// Get returns the current value of a key, or ErrNotFound.
func (s *Store) Get(ctx context.Context, key string) (Entry, error) {
	if err := checkKey(key); err != nil {
		return Entry{}, err
	}
	e, err := s.get(ctx, "k."+key)
	e.Key = key
	return e, err
}

// Put replaces the value that has this revision, 0 for a key that has none, and returns the
// new revision. It fails with ErrConflict if the key has another revision.
func (s *Store) Put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := checkKey(key); err != nil {
		return 0, err
	}
	done, err := s.writing()
	if err != nil {
		return 0, err
	}
	defer done()
	return s.put(ctx, "k."+key, value, revision)
}

func (s *Store) kvSubject(key string) string { return s.config.Domain + ".kv." + key }

// filter returns the narrowest subject above all keys of a prefix, so that the server lists
// no others.
func filter(root, prefix string) string {
	return root + prefix[:strings.LastIndexByte(prefix, '.')+1] + ">"
}

func (s *Store) keys(ctx context.Context, space, prefix string) ([]string, error) {
	if prefix != "" {
		if err := checkSuffix(strings.TrimSuffix(prefix, "."), false); err != nil {
			return nil, err
		}
	}
	root := s.kvSubject(space)
	subjects, err := retry(ctx, s, func(ctx context.Context) (map[string]uint64, error) {
		h, err := s.js.Stream(ctx, s.kvName())
		if err != nil {
			return nil, err
		}
		info, err := h.Info(ctx, jetstream.WithSubjectFilter(filter(root, prefix)))
		if err != nil {
			return nil, err
		}
		return info.State.Subjects, nil
	})
	if err != nil {
		return nil, s.fail("keys", err)
	}
	var keys []string
	for subject := range subjects {
		key := strings.TrimPrefix(subject, root)
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if _, err := s.get(ctx, space+key); errors.Is(err, ErrNotFound) {
			continue
		} else if err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys, nil
}

// get and put work on the key spaces k. (users' keys), l. (leases) and m. (marker).
func (s *Store) get(ctx context.Context, key string) (Entry, error) {
	m, err := s.lastOf(ctx, key)
	if err == nil && m.Header.Get(deletedHeader) != "" {
		err = fmt.Errorf("store: key %s: deleted: %w", key[2:], ErrNotFound)
	}
	if err != nil {
		return Entry{}, err
	}
	return Entry{Key: key, Value: m.Data, Revision: m.Sequence + s.marker().Base, first: m.Header.Get(firstHeader) != ""}, nil
}

// lastOf returns a key's last message, which may say that it was deleted.
func (s *Store) lastOf(ctx context.Context, key string) (*jetstream.RawStreamMsg, error) {
	h, err := s.fixed(ctx, s.kvName())
	if err != nil {
		return nil, err
	}
	m, err := retry(ctx, s, func(ctx context.Context) (*jetstream.RawStreamMsg, error) {
		return h.GetLastMsgForSubject(ctx, s.kvSubject(key))
	})
	if err != nil {
		return nil, s.fail("key "+key[2:], err)
	}
	return m, nil
}

func (s *Store) put(ctx context.Context, key string, value []byte, revision uint64) (uint64, error) {
	if err := checkData(value); err != nil {
		return 0, err
	}
	base, last := s.marker().Base, uint64(0)
	if revision != 0 {
		if revision <= base {
			return 0, fmt.Errorf("store: key %s: %w", key[2:], ErrConflict)
		}
		last = revision - base
	}
	for {
		m := &nats.Msg{Subject: s.kvSubject(key), Data: value, Header: nats.Header{}}
		if last == 0 {
			m.Header.Set(firstHeader, "true")
		}
		seq, err := s.publish(ctx, write{stream: s.kvName(), msg: m, expect: lastOfSubject, expectLast: last})
		if err == nil {
			return seq + base, nil
		}
		if revision != 0 || !errors.Is(err, ErrConflict) {
			return 0, err
		}
		// A deleted key has no revision, and a message.
		have, now := s.lastOf(ctx, key)
		if now != nil || have.Header.Get(deletedHeader) == "" || have.Sequence == last {
			return 0, err
		}
		last = have.Sequence
	}
}

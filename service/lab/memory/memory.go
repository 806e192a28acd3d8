// Package memory is, for tests, a store in memory for all roles. It lives in a testing/synctest
// bubble, and fails where a test says so.
package memory

import (
	"bytes"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/riffle-dp/riffle/service/store"
)

// Disk is what survives a crash. Tests look at it, and spoil it, while no process uses it, or with
// its lock.
type Disk struct {
	sync.Mutex
	Values   map[string][]byte
	Revision map[string]uint64 // of the values; 0: there is none
	Objects  map[string][]byte
	Secrets  map[string][]byte
	Past     map[string][]byte // secrets that were destroyed
	Streams  map[string][]store.Message
	Log      [][]byte          // the entries of the role's ledger or list
	Leases   map[string]*Lease // who holds a lease, until it expires
	// Wrote, if not nil, is told of each value, object and entry that is written, and of the value or
	// object that was there. The disk is locked.
	Wrote func(what Kind, name string, old, data []byte)

	next uint64
}

// Kind is a kind of what is written.
type Kind int

// A value, an object, or an entry of the log, which has no name.
const (
	Value Kind = iota
	Object
	Entry
)

// NewDisk returns an empty disk.
func NewDisk() *Disk {
	return &Disk{Values: map[string][]byte{}, Revision: map[string]uint64{}, Objects: map[string][]byte{}, Secrets: map[string][]byte{},
		Past: map[string][]byte{}, Streams: map[string][]store.Message{}, Leases: map[string]*Lease{}}
}

// Copy returns a backup. It has no leases.
func (d *Disk) Copy() *Disk {
	d.Lock()
	defer d.Unlock()
	c := NewDisk()
	c.Values, c.Revision, c.Objects, c.Secrets = maps.Clone(d.Values), maps.Clone(d.Revision), maps.Clone(d.Objects), maps.Clone(d.Secrets)
	c.Streams, c.Log, c.Wrote, c.next = maps.Clone(d.Streams), slices.Clone(d.Log), d.Wrote, d.next
	return c
}

// Names lists what is stored of a kind under a prefix, sorted.
func (d *Disk) Names(k store.Kind, prefix string) (names []string) {
	add := func(name string) {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	switch k {
	case store.Values, store.Secrets, store.Objects:
		for name := range map[store.Kind]map[string][]byte{store.Values: d.Values, store.Secrets: d.Secrets, store.Objects: d.Objects}[k] {
			add(name)
		}
	case store.Streams:
		for name := range d.Streams {
			add(name)
		}
	}
	slices.Sort(names)
	return names
}

func (d *Disk) wrote(what Kind, name string, old, data []byte) {
	if d.Wrote != nil {
		d.Wrote(what, name, old, data)
	}
}

// Store is a process's view of a disk.
type Store struct {
	*Disk
	// Do, if not nil, carries out each operation, or not. The name of an operation is a verb, and
	// what its key or stream is for: "put state", "append ledger".
	Do func(op string, f func() error) error
}

func (s *Store) do(op string, f func() error) error {
	locked := func() error {
		s.Lock()
		defer s.Unlock()
		return f()
	}
	if s.Do == nil {
		return locked()
	}
	return s.Do(op, locked)
}

// Failing returns a Do that asks fault before each operation and, if it wrote, after it. An error of
// fault is what the caller gets.
func Failing(fault func(op string, after bool) error) func(op string, f func() error) error {
	return func(op string, f func() error) error {
		if err := fault(op, false); err != nil {
			return err
		}
		err := f()
		if err == nil && Writes(op) {
			err = fault(op, true)
		}
		return err
	}
}

// Writes says whether an operation writes.
func Writes(op string) bool {
	switch verb, _, _ := strings.Cut(op, " "); verb {
	case "get", "list", "read", "count", "look", "size", "flush":
		return false
	}
	return true
}

// kind is what a name is for: the part before what tells it from others.
func kind(name string) string {
	if i := strings.IndexAny(name, "./-"); i >= 0 {
		return name[:i]
	}
	return name
}

// Get is as of a *store.Store, and so are the other methods.
func (s *Store) Get(_ context.Context, key string) (e store.Entry, err error) {
	err = s.do("get "+kind(key), func() error {
		if s.Revision[key] == 0 || s.Values[key] == nil {
			return store.ErrNotFound
		}
		e = store.Entry{Key: key, Value: bytes.Clone(s.Values[key]), Revision: s.Revision[key]}
		return nil
	})
	return e, err
}

func (s *Store) Put(_ context.Context, key string, value []byte, revision uint64) (n uint64, err error) {
	err = s.do("put "+kind(key), func() error {
		if s.Revision[key] != revision {
			return store.ErrConflict
		}
		s.next++
		n = s.next
		old := s.Values[key]
		s.Values[key], s.Revision[key] = bytes.Clone(value), n
		s.wrote(Value, key, old, value)
		return nil
	})
	return n, err
}

func (s *Store) PutObject(_ context.Context, name string, data []byte) error {
	return s.do("put object "+kind(name), func() error {
		old := s.Objects[name]
		s.Objects[name] = append([]byte{}, data...)
		s.wrote(Object, name, old, data)
		return nil
	})
}

func (s *Store) GetObject(_ context.Context, name string) (b []byte, err error) {
	err = s.do("get object "+kind(name), func() error {
		if b = bytes.Clone(s.Objects[name]); b == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return b, err
}

func (s *Store) PutSecret(_ context.Context, name string, value []byte) error {
	return s.do("put secret", func() error {
		if s.Secrets[name] != nil {
			return store.ErrExists
		}
		s.Secrets[name] = bytes.Clone(value)
		return nil
	})
}

func (s *Store) Secret(_ context.Context, name string) (b []byte, err error) {
	err = s.do("get secret", func() error {
		if b = bytes.Clone(s.Secrets[name]); b == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return b, err
}

// kinds are the words for what is deleted and listed.
var kinds = map[store.Kind]string{store.Values: "value", store.Secrets: "secret", store.Streams: "stream", store.Objects: "object"}

func (s *Store) Delete(_ context.Context, k store.Kind, name string) error {
	return s.do("delete "+kinds[k]+" "+kind(name), func() error {
		if !slices.Contains(s.Names(k, name), name) {
			return store.ErrNotFound
		}
		switch k {
		case store.Values:
			delete(s.Values, name)
			delete(s.Revision, name)
		case store.Secrets:
			s.Past[name] = s.Secrets[name]
			delete(s.Secrets, name)
		case store.Streams:
			delete(s.Streams, name)
		case store.Objects:
			delete(s.Objects, name)
		}
		return nil
	})
}

func (s *Store) List(_ context.Context, k store.Kind, prefix string) (names []string, err error) {
	err = s.do("list "+kinds[k]+"s", func() error {
		names = s.Names(k, prefix)
		return nil
	})
	return names, err
}

// LastEntry returns the number of entries of the log.
func (s *Store) LastEntry(context.Context) (n uint64, err error) {
	err = s.do("count entries", func() error {
		n = uint64(len(s.Log))
		return nil
	})
	return n, err
}

func (s *Store) AppendEntry(_ context.Context, after uint64, data []byte) (uint64, error) {
	return after + 1, s.do("append entry", func() error {
		if uint64(len(s.Log)) != after {
			return store.ErrConflict
		}
		s.Log = append(s.Log, bytes.Clone(data))
		s.wrote(Entry, "", nil, data)
		return nil
	})
}

func (s *Store) Entries(context.Context) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		var entries [][]byte
		if err := s.do("read entries", func() error { entries = slices.Clone(s.Log); return nil }); err != nil {
			yield(store.Message{}, err)
			return
		}
		for i, e := range entries {
			if !yield(store.Message{Seq: uint64(i) + 1, Data: e}, nil) {
				return
			}
		}
	}
}

// Mark is a high-water mark, which lies on another disk. M is mark.Mark or ledger.Mark.
type Mark[M any] struct {
	At *M
	// Do is as of a Store.
	Do func(op string, f func() error) error
	// Check, if not nil, is told of each change.
	Check func(old, now M)
}

// Load reads the mark.
func (k Mark[M]) Load() (m M, err error) {
	err = k.do("read mark", func() error { m = *k.At; return nil })
	return m, err
}

// Save replaces the mark.
func (k Mark[M]) Save(m M) error {
	return k.do("write mark", func() error {
		if k.Check != nil {
			k.Check(*k.At, m)
		}
		*k.At = m
		return nil
	})
}

func (k Mark[M]) do(op string, f func() error) error {
	if k.Do == nil {
		return f()
	}
	return k.Do(op, f)
}

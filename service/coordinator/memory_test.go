package coordinator

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// disk is what survives a crash.
type disk struct {
	mu       sync.Mutex
	values   map[string][]byte
	revision map[string]uint64
	next     uint64
	objects  map[string][]byte
	entries  [][]byte
	mark     ledger.Mark
	leases   map[string]*memoryLease
	events   []string // in order: appends to the ledger, requests, releases
	releases map[int64]string
	released func(record) // told every state
}

func newDisk() *disk {
	return &disk{values: map[string][]byte{}, revision: map[string]uint64{}, objects: map[string][]byte{},
		leases: map[string]*memoryLease{}, releases: map[int64]string{}}
}

func (d *disk) event(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, s)
}

// memory is a process's view of a disk.
type memory struct {
	*disk
	crash *stop
	t     testing.TB
}

func (m *memory) Get(_ context.Context, key string) (e store.Entry, err error) {
	err = m.crash.do("get "+key[:4], func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.values[key] == nil {
			return store.ErrNotFound
		}
		e = store.Entry{Key: key, Value: bytes.Clone(m.values[key]), Revision: m.revision[key]}
		return nil
	})
	return e, err
}

func (m *memory) Put(_ context.Context, key string, value []byte, revision uint64) (n uint64, err error) {
	err = m.crash.do("put "+key[:4], func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.revision[key] != revision {
			return fmt.Errorf("%w: %s", store.ErrConflict, key)
		}
		m.next++
		n = m.next
		if key[:6] == "state." {
			m.saw(value)
		}
		m.values[key], m.revision[key] = bytes.Clone(value), n
		return nil
	})
	return n, err
}

// saw holds that a round is released once.
func (m *memory) saw(value []byte) {
	r, err := decodeRecord(value)
	if err != nil {
		m.t.Errorf("a state is stored that cannot be read: %v", err)
		return
	}
	if m.released != nil {
		m.released(r)
	}
	have, ok := m.releases[r.Round]
	if model := hex.EncodeToString(r.Model[:]); ok && have != model {
		m.t.Errorf("round %d was released as %s and as %s", r.Round, have, model)
	} else if !ok {
		m.releases[r.Round] = model
	}
}

func (m *memory) PutObject(_ context.Context, name string, data []byte) error {
	return m.crash.do("put object "+name[:5], func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if old := m.objects[name]; old != nil && !bytes.Equal(old, data) {
			m.t.Errorf("object %s is given other data", name)
		}
		m.objects[name] = bytes.Clone(data)
		return nil
	})
}

func (m *memory) GetObject(_ context.Context, name string) (b []byte, err error) {
	err = m.crash.do("get object "+name[:5], func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if b = m.objects[name]; b == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return b, err
}

func (m *memory) Delete(_ context.Context, _ store.Kind, name string) error {
	return m.crash.do("delete object "+name[:5], func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.objects, name)
		return nil
	})
}

type memoryLease struct {
	d       *disk
	name    string
	token   uint64
	expires time.Time
	ttl     time.Duration
}

func (m *memory) Acquire(ctx context.Context, name, _ string, ttl time.Duration) (store.Lease, uint64, error) {
	for {
		m.mu.Lock()
		now := m.leases[name]
		if now == nil || time.Now().After(now.expires) {
			m.next++
			l := &memoryLease{d: m.disk, name: name, token: m.next, expires: time.Now().Add(ttl), ttl: ttl}
			m.leases[name] = l
			m.mu.Unlock()
			return l, l.token, nil
		}
		m.mu.Unlock()
		if !sleep(ctx, time.Millisecond) {
			return nil, 0, ctx.Err()
		}
	}
}

func (l *memoryLease) Renew(context.Context) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.leases[l.name] != l {
		return store.ErrLost
	}
	l.expires = time.Now().Add(l.ttl)
	return nil
}

func (l *memoryLease) Release(context.Context) error {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	if l.d.leases[l.name] != l {
		return store.ErrLost
	}
	delete(l.d.leases, l.name)
	return nil
}

func (m *memory) Append(_ context.Context, after int64, data []byte) error {
	return m.crash.do("append", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if int64(len(m.entries)) != after {
			return ledger.ErrConflict
		}
		m.entries = append(m.entries, bytes.Clone(data))
		e, err := wire.Decode[wire.Entry](data)
		if err != nil {
			m.t.Error(err)
		}
		m.events = append(m.events, fmt.Sprintf("charged %x", e.Announcement))
		return nil
	})
}

func (m *memory) Read(context.Context) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := m.crash.do("read ledger", func() error { return nil })
		if err != nil {
			yield(nil, err)
			return
		}
		m.mu.Lock()
		entries := slices.Clone(m.entries)
		m.mu.Unlock()
		for _, e := range entries {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func (m *memory) Load() (k ledger.Mark, err error) {
	err = m.crash.do("read mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		k = m.mark
		return nil
	})
	return k, err
}

func (m *memory) Save(k ledger.Mark) error {
	return m.crash.do("write mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if k.Entries < m.mark.Entries || k.Entries > int64(len(m.entries)) {
			m.t.Errorf("the mark goes from %d to %d of %d entries", m.mark.Entries, k.Entries, len(m.entries))
		}
		m.mark = k
		return nil
	})
}

// aggDisk is what survives a crash of the aggregator.
type aggDisk struct {
	mu       sync.Mutex
	values   map[string][]byte
	revision map[string]uint64
	objects  map[string][]byte
}

func newAggDisk() *aggDisk {
	return &aggDisk{values: map[string][]byte{}, revision: map[string]uint64{}, objects: map[string][]byte{}}
}

type aggMemory struct {
	*aggDisk
	crash *stop
}

func (m *aggMemory) Get(_ context.Context, key string) (e store.Entry, err error) {
	err = m.crash.do("aggregator get", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.values[key] == nil {
			return store.ErrNotFound
		}
		e = store.Entry{Key: key, Value: m.values[key], Revision: m.revision[key]}
		return nil
	})
	return e, err
}

func (m *aggMemory) Put(_ context.Context, key string, value []byte, revision uint64) (n uint64, err error) {
	err = m.crash.do("aggregator put", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.revision[key] != revision {
			return store.ErrConflict
		}
		m.values[key], m.revision[key] = value, revision+1
		n = revision + 1
		return nil
	})
	return n, err
}

func (m *aggMemory) PutObject(_ context.Context, name string, data []byte) error {
	return m.crash.do("aggregator put object", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.objects[name] = data
		return nil
	})
}

func (m *aggMemory) GetObject(_ context.Context, name string) (b []byte, err error) {
	err = m.crash.do("aggregator get object", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if b = m.objects[name]; b == nil {
			return store.ErrNotFound
		}
		return nil
	})
	return b, err
}

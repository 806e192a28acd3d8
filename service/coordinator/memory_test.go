package coordinator

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/mark"
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
	drawn    map[string][]byte
	promised map[hash]promise
	named    map[hash]hash // the noise that a state has named, by announcement
}

// memoryPromises is a disk's PromiseFile.
type memoryPromises struct {
	d     *disk
	crash *stop
}

func (m memoryPromises) Load() (map[hash]promise, error) {
	m.d.mu.Lock()
	defer m.d.mu.Unlock()
	return maps.Clone(m.d.promised), nil
}

func (m memoryPromises) Save(all map[hash]promise) error {
	return m.crash.do("save promises", func() error {
		m.d.mu.Lock()
		defer m.d.mu.Unlock()
		m.d.promised = maps.Clone(all)
		return nil
	})
}

func newDisk() *disk {
	return &disk{values: map[string][]byte{}, revision: map[string]uint64{}, objects: map[string][]byte{},
		leases: map[string]*memoryLease{}, releases: map[int64]string{}, drawn: map[string][]byte{}, named: map[hash]hash{}, promised: map[hash]promise{}}
}

func (d *disk) event(s string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.events = append(d.events, s)
}

// happened returns the events until now. Requests that were given up may still add some.
func (d *disk) happened() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events)
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
	if o := r.Open; o != nil && o.Noise != (hash{}) {
		a, err := wire.Decode[wire.Announcement](o.Announcement[ed25519.SignatureSize:])
		if err != nil {
			m.t.Error(err)
		}
		digest := hash(wire.Digest(a))
		if old, ok := m.named[digest]; ok && old != o.Noise {
			m.t.Errorf("round %d names another noise", r.Round+1)
		}
		m.named[digest] = o.Noise
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
		if strings.HasPrefix(name, "noise/") {
			m.drawn[name[len(name)-64:]] = bytes.Clone(data)
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

func (m *memory) List(_ context.Context, _ store.Kind, prefix string) (names []string, err error) {
	err = m.crash.do("list objects", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		names = listed(m.objects, prefix)
		return nil
	})
	return names, err
}

func listed(objects map[string][]byte, prefix string) (names []string) {
	for name := range objects {
		if strings.HasPrefix(name, prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
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
	entries  [][]byte
	mark     mark.Mark
	drawn    map[string][]byte
	partials map[string]bool // names of the partial sums that were stored
	changed  []string        // promises of records that were replaced by others
}

func newAggDisk() *aggDisk {
	return &aggDisk{values: map[string][]byte{}, revision: map[string]uint64{}, objects: map[string][]byte{}, drawn: map[string][]byte{}, partials: map[string]bool{}}
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
		if old := m.values[key]; old != nil {
			a, b := parseAgg(old), parseAgg(value)
			for what, p := range map[string][2]string{"key": {string(a.Key), string(b.Key)}, "set": {a.Summed, b.Summed}, "noise": {a.Noise, b.Noise}, "partial": {a.Partial, b.Partial}} {
				if p[0] != "" && p[0] != p[1] {
					m.changed = append(m.changed, what)
				}
			}
			if a.Sent != b.Sent {
				m.changed = append(m.changed, "who adds the noise")
			}
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
		if strings.HasPrefix(name, "noise/") {
			m.drawn[name[len(name)-64:]] = data
		}
		if strings.HasPrefix(name, "partial/") {
			m.partials[name] = true
		}
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

func (m *aggMemory) Delete(_ context.Context, _ store.Kind, name string) error {
	return m.crash.do("aggregator delete object", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.objects[name] == nil {
			return store.ErrNotFound
		}
		delete(m.objects, name)
		return nil
	})
}

func (m *aggMemory) List(_ context.Context, k store.Kind, prefix string) (names []string, err error) {
	err = m.crash.do("aggregator list", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if names = listed(m.objects, prefix); k == store.Values {
			names = listed(m.values, prefix)
		}
		return nil
	})
	return names, err
}

func (m *aggMemory) AppendEntry(_ context.Context, after uint64, data []byte) (n uint64, err error) {
	err = m.crash.do("aggregator append", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if uint64(len(m.entries)) != after {
			return store.ErrConflict
		}
		m.entries = append(m.entries, data)
		return nil
	})
	return after + 1, err
}

func (m *aggMemory) Entries(context.Context) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		if err := m.crash.do("aggregator read entries", func() error { return nil }); err != nil {
			yield(store.Message{}, err)
			return
		}
		m.mu.Lock()
		entries := slices.Clone(m.entries)
		m.mu.Unlock()
		for i, e := range entries {
			if !yield(store.Message{Seq: uint64(i) + 1, Data: e}, nil) {
				return
			}
		}
	}
}

func (m *aggMemory) Load() (k mark.Mark, err error) {
	err = m.crash.do("aggregator read mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		k = m.mark
		return nil
	})
	return k, err
}

func (m *aggMemory) Save(k mark.Mark) error {
	return m.crash.do("aggregator write mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.mark = k
		return nil
	})
}

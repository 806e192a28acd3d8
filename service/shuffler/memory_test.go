package shuffler

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/service/store"
)

// memory is a Store in memory. Several services may share its state, each
// through a memory of its own, which can be made to fail.
type memory struct {
	*state
	// fault is asked before each operation and, if it wrote, after it; an error
	// is what the caller gets.
	fault func(op string, after bool) error
}

type state struct {
	mu       sync.Mutex
	revision uint64
	values   map[string]store.Entry
	secrets  map[string][]byte
	past     map[string][]byte // secrets that were destroyed, for a test to compare with
	streams  map[string][]store.Message
	leases   map[string]*held
	objects  map[string][]byte
}

func newState() *state {
	return &state{values: map[string]store.Entry{}, secrets: map[string][]byte{}, past: map[string][]byte{}, streams: map[string][]store.Message{}, leases: map[string]*held{}, objects: map[string][]byte{}}
}

// rounds are the names of secrets that are rounds'. What is held for sessions
// outlives them.
func (s *state) rounds() (out []string) {
	for name := range s.secrets {
		if !strings.HasPrefix(name, masterPrefix) {
			out = append(out, name)
		}
	}
	return out
}

func (m *memory) do(op string, writes bool, f func() error) error {
	if m.fault != nil {
		if err := m.fault(op, false); err != nil {
			return err
		}
	}
	m.mu.Lock()
	err := f()
	m.mu.Unlock()
	if m.fault != nil && writes && err == nil {
		err = m.fault(op, true)
	}
	return err
}

func (m *memory) Get(_ context.Context, key string) (e store.Entry, err error) {
	err = m.do("get", false, func() error {
		var ok bool
		if e, ok = m.values[key]; !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return e, err
}

func (m *memory) set(key string, value []byte) uint64 {
	m.revision++
	m.values[key] = store.Entry{Key: key, Value: slices.Clone(value), Revision: m.revision}
	return m.revision
}

func (m *memory) Put(_ context.Context, key string, value []byte, revision uint64) (rev uint64, err error) {
	err = m.do("put "+kind(key), true, func() error {
		if m.values[key].Revision != revision {
			return store.ErrConflict
		}
		rev = m.set(key, value)
		return nil
	})
	return rev, err
}

func (m *memory) Delete(_ context.Context, k store.Kind, name string) error {
	op := map[store.Kind]string{store.Values: "delete " + kind(name), store.Secrets: "destroy", store.Streams: "delete stream " + kind(name), store.Objects: "delete object"}[k]
	return m.do(op, true, func() error {
		if !slices.Contains(m.names(k), name) {
			return store.ErrNotFound
		}
		if k == store.Secrets {
			m.past[name] = m.secrets[name]
		}
		switch k {
		case store.Values:
			delete(m.values, name)
		case store.Secrets:
			delete(m.secrets, name)
		case store.Streams:
			delete(m.streams, name)
		case store.Objects:
			delete(m.objects, name)
		}
		return nil
	})
}

func (m *memory) PutObject(_ context.Context, name string, data []byte) error {
	return m.do("put object", true, func() error { m.objects[name] = slices.Clone(data); return nil })
}

func (m *memory) GetObject(_ context.Context, name string) (b []byte, err error) {
	err = m.do("get object", false, func() error {
		var ok bool
		if b, ok = m.objects[name]; !ok {
			return store.ErrNotFound
		}
		b = slices.Clone(b) // the caller may change it
		return nil
	})
	return b, err
}

// names are those of a kind, sorted.
func (m *memory) names(k store.Kind) []string {
	switch k {
	case store.Values:
		return slices.Sorted(maps.Keys(m.values))
	case store.Secrets:
		return slices.Sorted(maps.Keys(m.secrets))
	case store.Objects:
		return slices.Sorted(maps.Keys(m.objects))
	}
	return slices.Sorted(maps.Keys(m.streams))
}

func (m *memory) List(_ context.Context, k store.Kind, prefix string) (out []string, err error) {
	op := map[store.Kind]string{store.Values: "keys", store.Secrets: "list secrets", store.Streams: "list streams"}[k]
	err = m.do(op, false, func() error {
		out = slices.DeleteFunc(m.names(k), func(name string) bool { return !strings.HasPrefix(name, prefix) })
		return nil
	})
	return out, err
}

func (m *memory) PutSecret(_ context.Context, name string, value []byte) error {
	return m.do("secret", true, func() error {
		if _, ok := m.secrets[name]; ok {
			return store.ErrExists
		}
		m.secrets[name] = slices.Clone(value)
		return nil
	})
}

func (m *memory) Secret(_ context.Context, name string) (b []byte, err error) {
	err = m.do("get secret", false, func() error {
		var ok bool
		if b, ok = m.secrets[name]; !ok {
			return store.ErrNotFound
		}
		return nil
	})
	return slices.Clone(b), err
}

func (m *memory) CreateStream(_ context.Context, name string) (store.Appender, error) {
	return &memoryAppender{m, name}, m.do("create stream "+kind(name), true, func() error {
		if len(name) > 64 {
			return errors.New("name too long")
		}
		if _, ok := m.streams[name]; ok {
			return store.ErrExists
		}
		m.streams[name] = []store.Message{}
		return nil
	})
}

func (m *memory) StreamSize(_ context.Context, name string) (bytes, last uint64, err error) {
	err = m.do("info", false, func() error {
		s, ok := m.streams[name]
		if !ok {
			return store.ErrNotFound
		}
		last = uint64(len(s))
		for _, e := range s {
			bytes += uint64(len(e.Data))
		}
		return nil
	})
	return bytes, last, err
}

func (m *memory) Append(_ context.Context, stream, msgID, suffix string, data []byte) (seq uint64, err error) {
	err = m.do("append "+kind(stream), true, func() error {
		s, ok := m.streams[stream]
		if !ok {
			return store.ErrNotFound
		}
		if len(data) > store.MaxData {
			return store.ErrTooLarge
		}
		for _, e := range s {
			if msgID != "" && e.ID == msgID {
				seq = e.Seq
				return nil
			}
		}
		seq = uint64(len(s)) + 1
		m.streams[stream] = append(s, store.Message{Seq: seq, Suffix: suffix, ID: msgID, Data: slices.Clone(data)})
		return nil
	})
	return seq, err
}

func (m *memory) Read(_ context.Context, stream, filter string, from uint64) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		var all []store.Message
		err := m.do("read "+kind(stream), false, func() error {
			s, ok := m.streams[stream]
			if !ok {
				return store.ErrNotFound
			}
			all = s
			return nil
		})
		if err != nil {
			yield(store.Message{}, err)
			return
		}
		for _, e := range all {
			if e.Seq >= from && (filter == "" || e.Suffix == filter || strings.HasSuffix(filter, ".*") && strings.HasPrefix(e.Suffix, filter[:len(filter)-1])) && !yield(e, nil) {
				return
			}
		}
	}
}

func (m *memory) AppendOnce(_ context.Context, stream, suffix string, data []byte) (seq uint64, err error) {
	err = m.do("barrier", true, func() error {
		s, ok := m.streams[stream]
		if !ok {
			return store.ErrNotFound
		}
		for _, e := range s {
			if e.Suffix == suffix {
				seq = e.Seq
				return nil
			}
		}
		seq = uint64(len(s)) + 1
		m.streams[stream] = append(s, store.Message{Seq: seq, Suffix: suffix, Data: slices.Clone(data)})
		return nil
	})
	return seq, err
}

func (m *memory) Before(_ context.Context, stream, suffix string, place uint64) (before bool, err error) {
	err = m.do("get", false, func() error {
		if m.streams[stream] == nil {
			return store.ErrNotFound
		}
		for _, e := range m.streams[stream] {
			before = before || e.Suffix == suffix && e.Seq < place
		}
		return nil
	})
	return before, err
}

func (m *memory) ReadTo(ctx context.Context, stream string, to uint64, filters ...string) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		if to == 0 {
			return
		}
		for e, err := range m.Read(ctx, stream, "", 0) {
			if err == nil && !slices.Contains(filters, "") && !slices.Contains(filters, e.Suffix) {
				continue
			}
			if err == nil && e.Seq > to {
				break
			}
			if !yield(e, err) || err != nil || e.Seq == to {
				return
			}
		}
		yield(store.Message{}, store.ErrUnavailable)
	}
}

type memoryAppender struct {
	m      *memory
	stream string
}

func (a *memoryAppender) Append(ctx context.Context, msgID, suffix string, data []byte) error {
	_, err := a.m.Append(ctx, a.stream, msgID, suffix, data)
	return err
}

func (a *memoryAppender) Flush(context.Context) error {
	return a.m.do("flush", false, func() error { return nil })
}

type held struct {
	m      *memory
	name   string
	token  uint64
	ttl    time.Duration
	until  time.Time
	holder string
}

func (m *memory) TryAcquire(_ context.Context, name, holder string, ttl time.Duration) (store.Lease, uint64, error) {
	var l *held
	err := m.do("acquire", true, func() error {
		if h := m.leases[name]; h != nil && time.Now().Before(h.until) {
			return store.ErrHeld
		}
		m.revision++
		l = &held{m, name, m.revision, ttl, time.Now().Add(ttl), holder}
		m.leases[name] = l
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return l, l.token, nil
}

func (l *held) set(op string, until time.Time) error {
	return l.m.do(op, true, func() error {
		if l.m.leases[l.name] != l {
			return store.ErrLost
		}
		l.until = until
		return nil
	})
}

func (l *held) Renew(context.Context) error   { return l.set("renew", time.Now().Add(l.ttl)) }
func (l *held) Release(context.Context) error { return l.set("release", time.Time{}) }

// kind is what a key or a stream is for: the part of its name before the round's.
func kind(name string) string {
	return strings.FieldsFunc(name, func(r rune) bool { return r == '.' || r == '-' })[0]
}

package shuffler

import (
	"context"
	"errors"
	"iter"
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
}

func newState() *state {
	return &state{values: map[string]store.Entry{}, secrets: map[string][]byte{}, past: map[string][]byte{}, streams: map[string][]store.Message{}, leases: map[string]*held{}}
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

func (m *memory) DeleteKey(_ context.Context, key string, revision uint64) error {
	return m.do("delete "+kind(key), true, func() error {
		e, ok := m.values[key]
		if !ok {
			return store.ErrNotFound
		}
		if revision != 0 && revision != e.Revision {
			return store.ErrConflict
		}
		delete(m.values, key)
		return nil
	})
}

func (m *memory) Keys(_ context.Context, prefix string) (out []string, err error) {
	err = m.do("keys", false, func() error {
		for k := range m.values {
			if strings.HasPrefix(k, prefix) {
				out = append(out, k)
			}
		}
		slices.Sort(out)
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

func (m *memory) DestroySecret(_ context.Context, name string) error {
	return m.do("destroy", true, func() error {
		if _, ok := m.secrets[name]; !ok {
			return store.ErrNotFound
		}
		m.past[name] = m.secrets[name]
		delete(m.secrets, name)
		return nil
	})
}

func (m *memory) Secrets(_ context.Context, prefix string) (out []string, err error) {
	err = m.do("list secrets", false, func() error {
		for k := range m.secrets {
			if strings.HasPrefix(k, prefix) {
				out = append(out, k)
			}
		}
		return nil
	})
	return out, err
}

func (m *memory) CreateStream(_ context.Context, name string, _ store.StreamConfig) error {
	return m.do("create stream "+kind(name), true, func() error {
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

func (m *memory) DeleteStream(_ context.Context, name string) error {
	return m.do("delete stream "+kind(name), true, func() error {
		if _, ok := m.streams[name]; !ok {
			return store.ErrNotFound
		}
		delete(m.streams, name)
		return nil
	})
}

func (m *memory) ListStreams(_ context.Context, prefix string) (out []string, err error) {
	err = m.do("list streams", false, func() error {
		for k := range m.streams {
			if strings.HasPrefix(k, prefix) {
				out = append(out, k)
			}
		}
		slices.Sort(out)
		return nil
	})
	return out, err
}

func (m *memory) StreamInfo(_ context.Context, name string) (info store.StreamInfo, err error) {
	err = m.do("info", false, func() error {
		s, ok := m.streams[name]
		if !ok {
			return store.ErrNotFound
		}
		info.Last, info.Count = uint64(len(s)), uint64(len(s))
		for _, e := range s {
			info.Bytes += uint64(len(e.Data))
		}
		return nil
	})
	return info, err
}

func (m *memory) Append(_ context.Context, stream, msgID, suffix string, data []byte, _ store.AppendOptions) (seq uint64, err error) {
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

func (m *memory) NewAppender(stream string) store.Appender { return &memoryAppender{m, stream} }

type memoryAppender struct {
	m      *memory
	stream string
}

func (a *memoryAppender) Append(ctx context.Context, msgID, suffix string, data []byte) error {
	_, err := a.m.Append(ctx, a.stream, msgID, suffix, data, store.AppendOptions{})
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

func (m *memory) Acquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, error) {
	for {
		var l *held
		err := m.do("acquire", true, func() error {
			if h := m.leases[name]; h != nil && time.Now().Before(h.until) {
				return nil
			}
			m.revision++
			l = &held{m, name, m.revision, ttl, time.Now().Add(ttl), holder}
			m.leases[name] = l
			return nil
		})
		if err != nil {
			return nil, err
		}
		if l != nil {
			return l, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(store.ErrHeld, ctx.Err())
		case <-time.After(ttl / 10):
		}
	}
}

func (l *held) Token() uint64 { return l.token }

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

package memory

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/service/store"
)

// longest is the length of the longest name of a stream, as of a *store.Store.
const longest = 64

func (s *Store) CreateStream(_ context.Context, name string) (store.Appender, error) {
	return appender{s, name}, s.do("create stream "+kind(name), func() error {
		if s.Streams[name] != nil {
			return store.ErrExists
		}
		if len(name) > longest {
			return fmt.Errorf("memory: stream %s: its name is longer than %d bytes", name, longest)
		}
		s.Streams[name] = []store.Message{}
		return nil
	})
}

// add appends a message, unless the stream has one that is equal to it in the sense of same.
func (s *Store) add(op, stream string, m store.Message, same func(store.Message) bool) (seq uint64, err error) {
	err = s.do(op, func() error {
		all, ok := s.Streams[stream]
		if !ok {
			return store.ErrNotFound
		}
		if len(m.Data) > store.MaxData {
			return store.ErrTooLarge
		}
		if i := slices.IndexFunc(all, same); i >= 0 {
			seq = all[i].Seq
			return nil
		}
		seq = uint64(len(all)) + 1
		m.Seq, m.Data = seq, slices.Clone(m.Data)
		s.Streams[stream] = append(all, m)
		return nil
	})
	return seq, err
}

func (s *Store) Append(_ context.Context, stream, msgID, suffix string, data []byte) (uint64, error) {
	return s.add("append "+kind(stream), stream, store.Message{ID: msgID, Suffix: suffix, Data: data}, func(m store.Message) bool { return msgID != "" && m.ID == msgID })
}

func (s *Store) AppendOnce(_ context.Context, stream, suffix string, data []byte) (uint64, error) {
	return s.add("barrier", stream, store.Message{Suffix: suffix, Data: data}, func(m store.Message) bool { return m.Suffix == suffix })
}

func (s *Store) Before(_ context.Context, stream, suffix string, place uint64) (before bool, err error) {
	err = s.do("look before", func() error {
		if s.Streams[stream] == nil {
			return store.ErrNotFound
		}
		before = slices.ContainsFunc(s.Streams[stream], func(m store.Message) bool { return m.Suffix == suffix && m.Seq < place })
		return nil
	})
	return before, err
}

func (s *Store) StreamSize(_ context.Context, name string) (bytes, last uint64, err error) {
	err = s.do("size "+kind(name), func() error {
		all, ok := s.Streams[name]
		if !ok {
			return store.ErrNotFound
		}
		last = uint64(len(all))
		for _, m := range all {
			bytes += uint64(len(m.Data))
		}
		return nil
	})
	return bytes, last, err
}

func (s *Store) Read(_ context.Context, stream, filter string, from uint64) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		var all []store.Message
		err := s.do("read "+kind(stream), func() error {
			var ok bool
			if all, ok = s.Streams[stream]; !ok {
				return store.ErrNotFound
			}
			return nil
		})
		if err != nil {
			yield(store.Message{}, err)
			return
		}
		group, grouped := strings.CutSuffix(filter, "*")
		for _, m := range all {
			wanted := filter == "" || m.Suffix == filter || grouped && strings.HasPrefix(m.Suffix, group)
			if m.Seq >= from && wanted && !yield(m, nil) {
				return
			}
		}
	}
}

func (s *Store) ReadTo(ctx context.Context, stream string, to uint64, filters ...string) iter.Seq2[store.Message, error] {
	return func(yield func(store.Message, error) bool) {
		if to == 0 {
			return
		}
		for m, err := range s.Read(ctx, stream, "", 0) {
			if err == nil && !slices.Contains(filters, "") && !slices.Contains(filters, m.Suffix) {
				continue
			}
			if err == nil && m.Seq > to {
				break
			}
			if !yield(m, err) || err != nil || m.Seq == to {
				return
			}
		}
		yield(store.Message{}, store.ErrUnavailable) // as a stream that has not all of it yet
	}
}

// appender is a stream's, for one goroutine.
type appender struct {
	s      *Store
	stream string
}

func (a appender) Append(ctx context.Context, msgID, suffix string, data []byte) error {
	_, err := a.s.Append(ctx, a.stream, msgID, suffix, data)
	return err
}

func (a appender) Flush(context.Context) error { return a.s.do("flush", func() error { return nil }) }

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// However many ask for it, and whenever, a stream has one barrier; and what was acknowledged
// before the first of them asked lies before it.
func TestBarrierIsTheFirst(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	must(t, s.createStream(ctx, "in", streamConfig{window: 100 * time.Millisecond}))
	write := func(suffix, text string) uint64 {
		t.Helper()
		seq, err := s.Append(ctx, "in", "", suffix, []byte(text))
		must(t, err)
		return seq
	}
	early := write("", "early")
	if behind, err := s.Before(ctx, "in", "cut", early); behind || err != nil {
		t.Errorf("no barrier: %t, %v", behind, err)
	}
	places := make([]uint64, 8)
	var wg sync.WaitGroup
	for i := range places {
		wg.Go(func() {
			var err error
			for range 100 {
				places[i], err = s.AppendOnce(ctx, "in", "cut", fmt.Append(nil, i))
				if !errors.Is(err, ErrUnavailable) {
					break
				}
			}
			must(t, err)
		})
		if i == 3 {
			wg.Wait()
			write("", "late")
		}
	}
	wg.Wait()
	late := write("", "later")
	time.Sleep(300 * time.Millisecond) // no window remembers it
	again, err := s.AppendOnce(ctx, "in", "cut", nil)
	must(t, err)
	for _, p := range append(places, again) {
		if p != early+1 {
			t.Errorf("a barrier at %d, want %d", p, early+1)
		}
	}
	for place, want := range map[uint64]bool{early: false, early + 1: false, late: true} {
		if behind, err := s.Before(ctx, "in", "cut", place); err != nil || behind != want {
			t.Errorf("place %d behind the barrier: %t, %v", place, behind, err)
		}
	}
	_, err = s.AppendOnce(ctx, "nothing", "cut", nil)
	is(t, err, ErrNotFound)
	_, err = s.Before(ctx, "nothing", "cut", 1)
	is(t, err, ErrNotFound)
	// A server that does not know the place yet gives no answer.
	must(t, s.createStream(ctx, "behind", streamConfig{}))
	_, err = s.Before(ctx, "behind", "cut", 1)
	is(t, err, ErrUnavailable)
}

// A reader up to a barrier has seen all before it, or is told that it has not.
func TestReadToTheBarrier(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	must(t, s.createStream(ctx, "in", streamConfig{}))
	for i := range 9 {
		_, err := s.Append(ctx, "in", "", fmt.Sprint(i%3), fmt.Append(nil, i))
		must(t, err)
	}
	cut, err := s.AppendOnce(ctx, "in", "cut", []byte("|"))
	must(t, err)
	_, err = s.Append(ctx, "in", "", "1", []byte("late"))
	must(t, err)
	read := func(to uint64, filters ...string) (text string, err error) {
		for m, err := range s.ReadTo(ctx, "in", to, filters...) {
			if err != nil {
				return text, err
			}
			text += string(m.Data)
		}
		return text, nil
	}
	for _, c := range []struct {
		to      uint64
		filters []string
		want    string
	}{{cut, []string{"1", "cut"}, "147|"}, {cut, []string{""}, "012345678|"}, {9, []string{""}, "012345678"}, {cut, []string{"cut"}, "|"}, {0, []string{""}, ""}} {
		if got, err := read(c.to, c.filters...); err != nil || got != c.want {
			t.Errorf("to %d of %q: %q, %v", c.to, c.filters, got, err)
		}
	}
	// The message at the end was not seen, so more may be missing.
	for _, c := range []struct {
		to      uint64
		filters []string
	}{{cut, []string{"1"}}, {cut, []string{"2"}}, {cut + 2, []string{""}}} {
		_, err := read(c.to, c.filters...)
		is(t, err, ErrUnavailable)
	}
	if _, err := read(cut, "a b"); err == nil || errors.Is(err, ErrUnavailable) {
		t.Errorf("a filter of two words: %v", err)
	}
}

func TestTryAcquire(t *testing.T) {
	s, ctx := fresh(t), t.Context()
	const ttl = time.Second
	a, token, err := s.TryAcquire(ctx, "work", "a", ttl)
	must(t, err)
	begin := time.Now()
	_, _, err = s.TryAcquire(ctx, "work", "b", ttl)
	is(t, err, ErrHeld)
	must(t, a.Renew(ctx))
	// A holder that is silent for its ttl has lost it to who tries again, and not before.
	var next uint64
	for {
		if _, next, err = s.TryAcquire(ctx, "work", "b", ttl); err == nil {
			break
		}
		is(t, err, ErrHeld)
		time.Sleep(50 * time.Millisecond)
	}
	if d := time.Since(begin); d < ttl || next <= token {
		t.Errorf("taken over after %v, token %d after %d", d, next, token)
	}
	is(t, a.Renew(ctx), ErrLost)
	if len(s.tried) != 0 {
		t.Errorf("remembered: %v", s.tried)
	}
	// One of many that try at a time gets it.
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for range 8 {
		wg.Go(func() {
			_, _, err := s.TryAcquire(ctx, "other", "c", time.Hour)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				got++
			} else if !errors.Is(err, ErrHeld) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got != 1 {
		t.Errorf("%d have one lease", got)
	}
	_, _, err = s.TryAcquire(context.Background(), "work", "", ttl)
	if err == nil {
		t.Error("a lease without a holder")
	}
}

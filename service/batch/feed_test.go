package batch

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
)

func numbers(_ int, c wire.Chunk) ([]uint32, error) {
	out := make([]uint32, c.Len())
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(c.Item(i))
	}
	return out, nil
}

func TestFeedGivesPartsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, ahead := range []int{1, 7, 1000} {
			_, r, _ := closed(t)
			f := NewFeed(t.Context(), r, ahead, numbers)
			next := uint32(0)
			for _, n := range []int{1, 13, 0, 50, 36} {
				got, err := f.Take(t.Context(), n)
				if err != nil || len(got) != n {
					t.Fatalf("%d parts: %v", len(got), err)
				}
				for _, v := range got {
					if v != next {
						t.Errorf("part %d at place %d", v, next)
					}
					next++
				}
			}
			if err := f.End(t.Context()); err != nil || next != reports {
				t.Errorf("after %d parts: %v", next, err)
			}
			if _, err := f.Take(t.Context(), 1); err == nil {
				t.Error("a part that is not there")
			}
			f.Close()
		}
	})
}

func TestFeedOfAnotherBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, change := range map[string]func(*batchtest.Shuffler, *Reader){
			"more than signed":  func(_ *batchtest.Shuffler, r *Reader) { r.Reports-- },
			"a changed chunk":   func(s *batchtest.Shuffler, _ *Reader) { s.Chunk = func(c *wire.Chunk) { c.Items[0] ^= 1 } },
			"fewer than signed": func(_ *batchtest.Shuffler, r *Reader) { r.Reports++ },
		} {
			s, r, _ := closed(t)
			change(s, &r)
			f := NewFeed(t.Context(), r, 5, numbers)
			var err error
			for range r.Reports {
				if _, err = f.Take(t.Context(), 1); err != nil {
					break
				}
			}
			if err == nil {
				err = f.End(t.Context())
			}
			if !errors.Is(err, ErrLie) {
				t.Errorf("%s: %v", name, err)
			}
			f.Close()
		}
	})
}

// A feed that is closed while nobody takes its parts ends, and so does one whose context ends.
func TestFeedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, _ := closed(t)
		f := NewFeed(t.Context(), r, 1, numbers)
		f.Close()
		f.Close()
		ctx, cancel := context.WithCancel(t.Context())
		g := NewFeed(ctx, r, 1, numbers)
		if _, err := g.Take(ctx, 3); err != nil {
			t.Error(err)
		}
		cancel()
		for range reports {
			if _, err := g.Take(t.Context(), 1); err != nil {
				g.Close()
				return
			}
		}
		t.Error("a feed goes on after its context has ended")
	})
}

package batch

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/memnet"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch/batchtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const reports = 100

// closed opens a round of numbered reports of 4 bytes and returns its reader.
func closed(t *testing.T) (*batchtest.Shuffler, Reader, wire.Announcement) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := batchtest.New(reports, 2)
	s.Fill = func(wire.Announcement) (parts, _ [][]byte) {
		for i := range uint32(reports) {
			parts = append(parts, binary.LittleEndian.AppendUint32(nil, i))
		}
		return parts, nil
	}
	n := memnet.New()
	source := Source{URL: n.Serve(t, s.Handler(key.Public().(ed25519.PublicKey), false)).URL + "/", Key: s.Public, Client: n.Client(t)}
	if err := source.Check(); err != nil {
		t.Fatal(err)
	}
	a := wire.Announcement{Round: 1, Trust: dp.Shuffle, Participation: dp.All, Population: reports, MinReports: 2,
		Enrolment: wire.Digest(s.Enrolment), Deadline: 5, ReportBytes: 4}
	if err := source.Open(t.Context(), wire.Sign(key, wire.LabelAnnouncement, wire.Encode(a))); err != nil {
		t.Fatal(err)
	}
	signed, err := source.Closed(t.Context(), &a, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	c, err := source.CheckClosed(&a, signed)
	if err != nil {
		t.Fatal(err)
	}
	return s, Reader{Source: source, Announcement: wire.Digest(a), Reports: c.Reports, Chunks: c.Chunks, Digest: c.Digest, Size: 4, Workers: 4}, a
}

func TestReadInOrderWithBoundedMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, _ := closed(t)
		var held, most atomic.Int64
		next := uint32(0)
		err := Read(t.Context(), r, func(w int, c wire.Chunk) (int64, error) {
			if n := held.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.Sleep(time.Duration(c.Index%4) * time.Millisecond)
			return c.Index, nil
		}, func(place int64, c wire.Chunk, index int64) error {
			defer held.Add(-1)
			if index != c.Index {
				t.Errorf("chunk %d with the result of %d", c.Index, index)
			}
			for i := range c.Len() {
				if v := binary.LittleEndian.Uint32(c.Item(i)); v != next || place+int64(i) != int64(v) {
					t.Errorf("report %d at place %d, want %d", v, place+int64(i), next)
				}
				next++
			}
			return nil
		})
		if err != nil || next != reports {
			t.Errorf("%d reports: %v", next, err)
		}
		if most.Load() > 4 {
			t.Errorf("%d chunks were held, by 4 workers", most.Load())
		}
	})
}

func TestReadStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, _ := closed(t)
		broken := errors.New("broken")
		for name, f := range map[string]func() error{
			"open": func() error {
				return Read(t.Context(), r, func(_ int, c wire.Chunk) (int, error) {
					if c.Index == 7 {
						return 0, broken
					}
					return 0, nil
				}, nil)
			},
			"then": func() error {
				return Read(t.Context(), r, nil, func(place int64, _ wire.Chunk, _ int) error {
					if place > 20 {
						return broken
					}
					return nil
				})
			},
		} {
			if err := f(); !errors.Is(err, broken) {
				t.Errorf("%s: %v", name, err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		err := Read(ctx, r, nil, func(place int64, _ wire.Chunk, _ int) error {
			if place > 20 {
				cancel()
			}
			return nil
		})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

func TestReadRefusesWhatWasNotSigned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(r Reader) error { return Read[int](t.Context(), r, nil, nil) }
		for name, harm := range map[string]func(*batchtest.Shuffler, *Reader){
			"a chunk":      func(s *batchtest.Shuffler, _ *Reader) { s.Chunk = func(c *wire.Chunk) { c.Items[2] ^= 4 } },
			"another size": func(s *batchtest.Shuffler, _ *Reader) { s.Chunk = func(c *wire.Chunk) { c.Size = 2 } },
			"digests":      func(s *batchtest.Shuffler, _ *Reader) { s.Digests = func(b []byte) []byte { return b[:len(b)-1] } },
			"a count":      func(_ *batchtest.Shuffler, r *Reader) { r.Reports-- },
			"a batch":      func(_ *batchtest.Shuffler, r *Reader) { r.Digest[0]++ },
			"fewer chunks": func(_ *batchtest.Shuffler, r *Reader) { r.Chunks-- },
		} {
			s, r, _ := closed(t)
			harm(s, &r)
			if err := read(r); err == nil || !errors.Is(err, ErrLie) && !strings.Contains(err.Error(), "above") {
				t.Errorf("%s: %v", name, err)
			}
		}
		// A count that the digest was made with, and that the chunks do not hold.
		s, r, a := closed(t)
		s.Word = func(c *wire.RoundClosed) { c.Reports-- }
		signed, err := r.Source.Closed(t.Context(), &a, 0)
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.Source.CheckClosed(&a, signed)
		if err != nil {
			t.Fatal(err)
		}
		r.Reports = c.Reports
		if err := read(r); !errors.Is(err, ErrLie) {
			t.Errorf("%v", err)
		}
	})
}

func TestDestroyAndUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, a := closed(t)
		if err := r.Source.Destroy(t.Context(), wire.Digest(a)); err != nil || s.Destroyed[wire.Digest(a)] != 1 {
			t.Errorf("%v", err)
		}
		if err := r.Source.Destroy(t.Context(), [32]byte{1}); err != nil {
			t.Errorf("a round that is not there: %v", err)
		}
		if err := Read[int](t.Context(), r, nil, nil); IsRefused(err) == nil || IsRefused(err).Reason != wire.Closed {
			t.Errorf("a destroyed round: %v", err)
		}
		a.Round++
		if _, err := r.Source.Closed(t.Context(), &a, 0); IsRefused(err) == nil || IsRefused(err).Reason != wire.UnknownRound {
			t.Errorf("a round that was never opened: %v", err)
		}
	})
}

func TestEnrolment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, r, _ := closed(t)
		now := time.Now()
		e, err := r.Source.Enrolment(t.Context(), wire.ID{1}, now)
		if err != nil || wire.Digest(e) != wire.Digest(s.Enrolment) {
			t.Errorf("%v", err)
		}
		for name, err := range map[string]error{
			"another population": second(r.Source.Enrolment(t.Context(), wire.ID{2}, now)),
			"over":               second(r.Source.Enrolment(t.Context(), wire.ID{1}, now.Add(2*time.Hour))),
			"not begun":          second(r.Source.Enrolment(t.Context(), wire.ID{1}, now.Add(-2*time.Hour))),
		} {
			if !errors.Is(err, ErrLie) {
				t.Errorf("%s: %v", name, err)
			}
		}
		other := r.Source
		other.Key = make([]byte, 32)
		if _, err := other.Enrolment(t.Context(), wire.ID{1}, now); !errors.Is(err, ErrLie) || !errors.Is(err, wire.ErrSignature) {
			t.Errorf("another operator: %v", err)
		}
		for _, bad := range []Source{{}, {URL: "x", Key: r.Source.Key, Client: r.Source.Client}, {URL: "ftp://h", Key: r.Source.Key, Client: r.Source.Client}} {
			if bad.Check() == nil {
				t.Errorf("%+v is a source", bad)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

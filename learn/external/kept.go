package external

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

// Kept is a program that is opened again after a session with it has broken. Its methods may
// be called by several goroutines.
type Kept struct {
	config Config
	told   func(error)
	stop   context.CancelFunc
	over   chan struct{} // closed when nothing opens sessions any more

	mu      sync.Mutex
	dim     int           // of the first session; 0: there was none
	about   About         // of the last session
	session *Session      // nil: none now
	changed chan struct{} // closed when there is another session
	broken  chan struct{} // holds a token when a session must be opened
}

// Times between attempts to open a program: the first, which doubles up to the last.
const soonest, latest = time.Second, time.Minute

// Keep opens a program. It fails if the program cannot be started, if nothing listens on the
// socket, or if others could use the socket. Whatever else goes wrong, now or later, is what the
// program did: told is called with it, and the program is opened again.
func Keep(ctx context.Context, c Config, told func(error)) (*Kept, error) {
	s, err := Open(ctx, c)
	if did := (*sessionError)(nil); err != nil && (ctx.Err() != nil || !errors.As(err, &did)) {
		return nil, err
	}
	k := &Kept{config: c, told: told, over: make(chan struct{}), changed: make(chan struct{}), broken: make(chan struct{}, 1)}
	ctx, k.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err != nil {
		told(err)
		k.broken <- struct{}{}
	} else {
		k.dim, k.about, k.session = s.About.Dim, s.About, s
	}
	var t telling
	if err != nil {
		t.due(err.Error(), time.Now()) // it was told above
	}
	go k.run(ctx, t)
	return k, nil
}

// again is the time after which an error that lasts is told again.
const again = 10 * time.Minute

// telling decides when the errors of attempts are told to a program's owner.
type telling struct {
	said string
	at   time.Time
}

// due says whether to tell an error: at once if it is another one than before, and again every ten minutes while
// it lasts.
func (t *telling) due(text string, now time.Time) bool {
	if text == t.said && now.Sub(t.at) < again {
		return false
	}
	t.said, t.at = text, now
	return true
}

// Dim returns the model's number of parameters; 0 if the program has not said it yet.
func (k *Kept) Dim() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.dim
}

// Fits is About.Fits of the last session; nil if there was none.
func (k *Kept) Fits(dim int64, parameters string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.dim == 0 {
		return nil
	}
	return k.about.Fits(dim, parameters)
}

// Close ends the program's session.
func (k *Kept) Close() {
	k.stop()
	<-k.over
	k.mu.Lock()
	s := k.session
	k.session = nil
	k.mu.Unlock()
	if s != nil {
		s.Close()
	}
}

// run opens the program whenever its session has broken.
func (k *Kept) run(ctx context.Context, t telling) {
	defer close(k.over)
	for {
		select {
		case <-k.broken:
		case <-ctx.Done():
			return
		}
		for wait, open := soonest, false; !open; wait = min(2*wait, latest) {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return
			}
			s, err := Open(ctx, k.config)
			if err == nil {
				err = k.take(s)
			}
			if ctx.Err() != nil {
				return
			}
			if open = err == nil; !open && t.due(err.Error(), time.Now()) {
				k.told(err)
			}
		}
		t = telling{}
	}
}

// take makes s the session.
func (k *Kept) take(s *Session) error {
	if dim := k.Dim(); dim != 0 && s.About.Dim != dim { // only take changes it
		s.Close() // takes seconds if the program does not end: nobody may wait for k.mu
		return s.named("it now has %d parameters, it had %d", s.About.Dim, dim)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.dim, k.about, k.session = s.About.Dim, s.About, s
	close(k.changed)
	k.changed = make(chan struct{})
	return nil
}

// lose has another session opened in place of s, and says whether it was the first to notice.
func (k *Kept) lose(s *Session) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.session != s {
		return false
	}
	k.session = nil
	k.broken <- struct{}{} // there is room: run has taken the token that led to s
	return true
}

// Gradient returns a client's gradient at theta, in memory that is then the caller's; odd of its
// values were not finite, and are 0. If ctx ends before the answer is there, it is dropped when
// it comes.
func (k *Kept) Gradient(ctx context.Context, task string, round int64, theta []float32, id int64) (row []float32, odd int64, err error) {
	for {
		k.mu.Lock()
		s, changed := k.session, k.changed
		k.mu.Unlock()
		if s != nil {
			if err := s.ended(); err != nil { // since its last answer
				if k.lose(s) {
					k.told(err)
				}
				continue
			}
			if len(theta) != s.About.Dim {
				return nil, 0, s.named("its model has %d parameters, the task's %d", s.About.Dim, len(theta))
			}
			row, odd, err = s.one(ctx, task, round, theta, id)
			switch {
			case err == nil:
			case ctx.Err() == nil:
				k.lose(s)
			case errors.Is(err, ctx.Err()):
				err = s.named("it gave no answer in the time that a round has for it")
			}
			return row, odd, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("external: program %q: it is not open", k.config.Program)
		}
	}
}

// ended returns why the session is of no more use, if it is and nobody was told.
func (s *Session) ended() error {
	if s.peer.cmd != nil {
		select {
		case <-s.peer.exited:
			return s.fail("nothing", io.EOF)
		default:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cause
}

// one asks for one row. Its theta is not copied as a whole.
func (s *Session) one(ctx context.Context, task string, round int64, theta []float32, id int64) (row []float32, odd int64, err error) {
	type answer struct {
		row []float32
		odd int64
	}
	out := make(chan answer, 1)
	err = s.once(ctx, opGradients, 4*s.About.Dim, func(w io.Writer) error {
		ask, err := request(map[string]string{"op": opGradients, "round": strconv.FormatInt(round, 10), "task": task},
			safetensors.Tensor{Name: "theta", DType: safetensors.F32, Shape: []int{s.About.Dim}},
			safetensors.Tensor{Name: "ids", DType: safetensors.I64, Shape: []int{1}})
		if err == nil {
			_, err = w.Write(ask)
		}
		if err == nil {
			err = writeValues(w, theta)
		}
		if err == nil {
			_, err = w.Write(binary.LittleEndian.AppendUint64(nil, uint64(id)))
		}
		return err
	}, func(f safetensors.File) error {
		before := s.odd.Load()
		row := make([]float32, s.About.Dim)
		if err := s.fill(row, f, 1); err != nil {
			return err
		}
		out <- answer{row, s.odd.Load() - before}
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	a := <-out
	return a.row, a.odd, nil
}

// writeValues writes float32, some at a time.
func writeValues(w io.Writer, v []float32) error {
	buffer := make([]byte, 0, min(4*len(v), chunkBytes))
	for len(v) > 0 {
		n := min(len(v), chunkBytes/4)
		buffer = buffer[:0]
		for _, x := range v[:n] {
			buffer = binary.LittleEndian.AppendUint32(buffer, math.Float32bits(x))
		}
		if _, err := w.Write(buffer); err != nil {
			return err
		}
		v = v[n:]
	}
	return nil
}

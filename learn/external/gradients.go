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
	"sync/atomic"

	"github.com/riffle-dp/riffle/internal/safetensors"
)

// batch is a request for rows, and its answer.
type batch struct {
	ids  []int64
	rows []float32
	left atomic.Int32 // pieces that no worker has finished
}

// piece is what one worker takes of a batch.
type piece struct {
	*batch
	from, to int
}

// Each asks for the gradients of clients at theta and calls do for each, from so many
// goroutines; no two calls at a time have the same worker, from 0. do may change its gradient,
// and must not keep it. The program computes the next batches meanwhile. Nobody may change ids
// any more. If do fails or ctx ends, Each returns that error at once, and the session goes on
// when the answers under way have come.
func (s *Session) Each(ctx context.Context, round int64, theta []float32, ids []int64, workers int, do func(worker int, id int64, gradient []float32) error) error {
	if len(ids) == 0 {
		return nil
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	c := &conversation{Session: s, round: strconv.FormatInt(round, 10), theta: encoded(theta), ids: ids,
		stop: make(chan struct{}), over: make(chan struct{}), free: make(chan []float32, batches), slots: make(chan struct{}, maxUnanswered),
		sent: make(chan *batch, maxUnanswered), work: make(chan piece, 2*workers), workers: workers}
	for i := range cap(c.free) {
		var rows []float32
		if i < len(s.rows) {
			rows = s.rows[i]
		}
		c.free <- rows
	}
	s.rows = s.rows[:0]
	go c.send()
	go c.receive()
	var wait sync.WaitGroup
	for w := range workers {
		wait.Go(func() { c.serve(w, do) })
	}
	release := context.AfterFunc(ctx, func() { c.end(ctx.Err()) })
	wait.Wait()
	release()
	err := c.err()
	if err != nil {
		go c.hand() // when the answers under way have come
	} else {
		c.hand()
		err = ctx.Err() // it may have ended while the last gradient was in use
	}
	return err
}

// hand gives the turn back, and the memory that the next call can use.
func (c *conversation) hand() {
	<-c.over
	for {
		select {
		case rows := <-c.free:
			if rows != nil {
				c.rows = append(c.rows, rows)
			}
			continue
		default:
		}
		c.turn <- struct{}{}
		return
	}
}

// conversation is one call of Each.
type conversation struct {
	*Session
	round   string
	theta   []byte
	ids     []int64
	workers int

	free  chan []float32 // memory for answers' rows; nil: not yet made
	slots chan struct{}  // one for each request without an answer
	sent  chan *batch    // requests, in order
	work  chan piece     // closed after the last piece

	over chan struct{} // closed when no answer is outstanding

	first sync.Once
	stop  chan struct{} // closed when why is set
	why   error
}

// end makes the workers stop, and no further request be made. The first reason counts.
func (c *conversation) end(why error) {
	c.first.Do(func() {
		c.why = why
		close(c.stop)
	})
}

func (c *conversation) err() error {
	select {
	case <-c.stop:
		return c.why
	default:
		return nil
	}
}

// send makes the requests.
func (c *conversation) send() {
	defer close(c.sent)
	size := c.size()
	for from := 0; from < len(c.ids); from += size {
		b := &batch{ids: c.ids[from:min(from+size, len(c.ids))]}
		select {
		case c.slots <- struct{}{}:
		case <-c.stop:
			return
		}
		if c.err() != nil {
			return
		}
		ask, err := request(map[string]string{"op": opGradients, "round": c.round},
			safetensors.Tensor{Name: "theta", DType: safetensors.F32, Shape: []int{c.About.Dim}},
			safetensors.Tensor{Name: "ids", DType: safetensors.I64, Shape: []int{len(b.ids)}})
		if err != nil {
			c.end(err)
			return
		}
		ids := make([]byte, 0, 8*len(b.ids))
		for _, id := range b.ids {
			ids = binary.LittleEndian.AppendUint64(ids, uint64(id))
		}
		c.sent <- b // there is room: slots are as many
		for _, part := range [][]byte{ask, c.theta, ids} {
			if _, err := c.peer.in.Write(part); err != nil {
				return // whoever reads finds out why
			}
		}
	}
}

// receive reads the answers in order and hands them to the workers.
func (c *conversation) receive() {
	defer close(c.over)
	defer close(c.work)
	var unread []float32 // memory of its own for answers that come after the end
	for b := range c.sent {
		select {
		case b.rows = <-c.free:
		case <-c.stop: // workers may still hold the memory that there is
			b.rows = unread
		}
		if n := len(b.ids) * c.About.Dim; cap(b.rows) < n {
			b.rows = make([]float32, n)
		} else {
			b.rows = b.rows[:n]
		}
		if c.err() != nil {
			unread = b.rows
		}
		if err := c.answer(b); err != nil {
			c.end(c.fail(opGradients, err))
			for range c.sent { // the sender fails too
			}
			return
		}
		<-c.slots
		c.share(b)
	}
}

// share hands out a batch's pieces, unless the workers have stopped.
func (c *conversation) share(b *batch) {
	size := (len(b.ids) + c.workers - 1) / c.workers
	b.left.Store(int32((len(b.ids) + size - 1) / size))
	for from := 0; from < len(b.ids); from += size {
		select {
		case c.work <- piece{b, from, min(from+size, len(b.ids))}:
		case <-c.stop:
			return
		}
	}
}

// answer reads one answer.
func (c *conversation) answer(b *batch) error {
	timer := c.watch(opGradients)
	defer timer.Stop()
	f, err := c.answers.head(opGradients, 4*len(b.rows))
	if err != nil {
		return err
	}
	return c.fill(b.rows, f, len(b.ids))
}

// fill reads n rows, whose answer begins with f.
func (s *Session) fill(rows []float32, f safetensors.File, n int) error {
	want := fmt.Sprintf("one tensor gradients, F32 [%d %d]", n, s.About.Dim)
	for key := range f.Metadata {
		if key != "op" {
			return badAnswer("its metadata have %q, which is not known", key)
		}
	}
	switch {
	case len(f.Tensors) != 1 || f.Tensors[0].Name != "gradients":
		return badAnswer("it sends %s, want %s", listed(f.Tensors), want)
	case f.Tensors[0].DType != safetensors.F32 || len(f.Tensors[0].Shape) != 2 || f.Tensors[0].Shape[0] != n || f.Tensors[0].Shape[1] != s.About.Dim:
		return badAnswer("it sends %s, want %s", listed(f.Tensors), want)
	}
	odd, err := s.answers.values(rows, s.About.Delta)
	s.odd.Add(odd)
	return err
}

// listed describes tensors.
func listed(tensors []safetensors.Tensor) string {
	switch len(tensors) {
	case 0:
		return "no tensor"
	case 1:
		return fmt.Sprintf("a tensor %q, %s %v", clipped(tensors[0].Name), tensors[0].DType, tensors[0].Shape)
	}
	return fmt.Sprintf("%d tensors", len(tensors))
}

// serve works off pieces.
func (c *conversation) serve(worker int, do func(worker int, id int64, gradient []float32) error) {
	d := c.About.Dim
	for {
		var p piece
		var more bool
		select {
		case p, more = <-c.work:
		case <-c.stop:
			return
		}
		if !more {
			return
		}
		for i := p.from; i < p.to; i++ {
			if c.err() != nil {
				return
			}
			if err := do(worker, p.ids[i], p.rows[i*d:(i+1)*d:(i+1)*d]); err != nil {
				c.end(err)
				return
			}
		}
		if p.left.Add(-1) == 0 {
			c.free <- p.rows // there is room: it came from there
		}
	}
}

// encoded returns float32 as bytes.
func encoded(v []float32) []byte {
	out := make([]byte, 0, 4*len(v))
	for _, x := range v {
		out = binary.LittleEndian.AppendUint32(out, math.Float32bits(x))
	}
	return out
}

// Evaluate returns the program's numbers for a model, among them loss.
func (s *Session) Evaluate(ctx context.Context, theta []float32) (numbers map[string]float64, err error) {
	if len(theta) != s.About.Dim {
		return nil, fmt.Errorf("external: %d parameters, the program's model has %d", len(theta), s.About.Dim)
	}
	out := make(chan map[string]float64, 1)
	err = s.once(ctx, opEvaluate, 0, func(w io.Writer) error {
		ask, err := request(map[string]string{"op": opEvaluate}, safetensors.Tensor{Name: "theta", DType: safetensors.F32, Shape: []int{len(theta)}})
		if err == nil {
			_, err = w.Write(ask)
		}
		if err == nil {
			_, err = w.Write(encoded(theta))
		}
		return err
	}, func(f safetensors.File) error {
		if len(f.Tensors) > 0 {
			return badAnswer("it sends %s, want numbers as metadata", listed(f.Tensors))
		}
		got, err := numbersOf(f.Metadata)
		if err != nil {
			return badAnswer("%v", err)
		}
		out <- got
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-out, nil
}

// numbersOf reads the numbers of an evaluation.
func numbersOf(meta map[string]string) (map[string]float64, error) {
	if len(meta) > 1+maxNumbers {
		return nil, fmt.Errorf("it sends %d numbers, at most %d", len(meta)-1, maxNumbers)
	}
	out := map[string]float64{}
	for name, text := range meta {
		if name == "op" {
			continue
		}
		if !isName(name) {
			return nil, fmt.Errorf("%q names a number, want a-z, 0-9 and _, a letter first, at most 32", clipped(name))
		}
		x, err := strconv.ParseFloat(text, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return nil, fmt.Errorf("%s = %q must be a number", name, clipped(text))
		}
		out[name] = x
	}
	if _, ok := out["loss"]; !ok {
		return nil, errors.New("its numbers lack loss")
	}
	for _, name := range []string{"accuracy", "baseline_accuracy"} {
		if x, ok := out[name]; ok && !(x >= 0 && x <= 1) {
			return nil, fmt.Errorf("%s = %v must be a share, from 0 to 1", name, x)
		}
	}
	if x, ok := out["examples"]; ok && (!(x >= 1 && x <= 1<<53) || x != math.Trunc(x)) {
		return nil, fmt.Errorf("examples = %v must be a whole number", x)
	}
	return out, nil
}

func isName(name string) bool {
	for i, r := range name {
		if !(r >= 'a' && r <= 'z' || i > 0 && (r >= '0' && r <= '9' || r == '_')) {
			return false
		}
	}
	return name != "" && len(name) <= 32
}

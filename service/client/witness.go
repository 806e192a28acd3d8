package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// A witness compares what coordinator and shuffler publish of rounds that have ended with what
// this process knows. It asks the same for every round that was announced, at a time that is
// drawn when the round is over, whether or not a client here has reported.
type witness struct {
	fleet  *Fleet
	ctx    context.Context // ends when Run does
	coin   func() bool     // says whether a large list is looked at; in tests another
	leader atomic.Int32
	wg     sync.WaitGroup

	mu     sync.Mutex
	rounds map[[32]byte]*watched
}

// watched is a round whose word is not compared yet.
type watched struct {
	w      *witness
	digest [32]byte
	stored bool // whether the round has a file
	file   appender
	over   chan struct{} // closed when the round is known to have ended
	end    func()        // closes over
	idle   chan struct{} // closed when no client decides or sends any more
	rest   func()        // closes idle

	mu sync.Mutex
	kept

	writing   sync.RWMutex // who appends to the file holds it for reading
	concluded bool         // the file may be gone: nothing is added any more
}

func (w *witness) start(ctx context.Context) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ctx = ctx
	for digest, k := range w.fleet.book.kept {
		r := w.add(digest, k, true)
		if o := w.fleet.book.left[digest]; o == nil {
			r.rest() // otherwise resend does
		}
	}
	w.fleet.book.kept = nil
}

// add begins to watch a round. The caller holds w.mu.
func (w *witness) add(digest [32]byte, k kept, stored bool) *watched {
	r := w.watched(digest, k, stored)
	w.rounds[digest] = r
	w.wg.Go(func() { w.watch(r) })
	return r
}

func (w *witness) watched(digest [32]byte, k kept, stored bool) *watched {
	r := &watched{w: w, digest: digest, stored: stored, over: make(chan struct{}), idle: make(chan struct{}), kept: k}
	r.end, r.rest = sync.OnceFunc(func() { close(r.over) }), sync.OnceFunc(func() { close(r.idle) })
	r.file.store, r.file.name = w.fleet.book.store, receiptsFile(digest)
	return r
}

// mostWatched bounds the rounds that wait for their comparison, each with a goroutine and perhaps a
// file. A coordinator that announces rounds faster than it tells of them has the others not compared,
// with all clients alike.
const mostWatched = 256

// begin watches a round that the process's clients are about to decide on. The coin for a large
// list is stored before any of them does.
func (w *witness) begin(ann wire.Announcement, digest [32]byte, receipts bool) (*watched, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r := w.rounds[digest]; r != nil { // from before a restart
		return r, nil
	}
	if len(w.rounds) >= mostWatched {
		return w.watched(digest, newKept(ann, false), false), nil // it is not compared
	}
	k := newKept(ann, receipts && (client.ReceiptBytes(ann) < client.AlwaysReceipts || w.coin()))
	if receipts {
		if err := w.fleet.book.keep(digest, k); err != nil {
			return nil, err
		}
	}
	return w.add(digest, k, receipts), nil
}

// coinOf says yes once in client.ReceiptsCoin.
func coinOf() bool { return sample.Bernoulli(rng.Secure(), 1./client.ReceiptsCoin) }

// before says that all rounds of a task before this one are over.
func (w *witness) before(task [32]byte, round int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rounds {
		if r.ann.Task == task && r.ann.Round < round {
			r.end()
		}
	}
}

// find returns a round that is watched, or nil.
func (w *witness) find(digest [32]byte) *watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rounds[digest]
}

// keep stores the receipts of a report before it is charged, unless the coin said that no list is
// looked at.
func (r *watched) keep(id wire.ID, receipts []wire.ID) error {
	r.writing.RLock()
	defer r.writing.RUnlock()
	if !r.stored || !r.look || r.concluded {
		return nil
	}
	wait, err := r.file.add(mineLine(id, receipts))
	if err == nil {
		err = wait()
	}
	if err != nil {
		return err
	}
	r.mu.Lock()
	r.mine[id] = receipts
	r.mu.Unlock()
	return nil
}

// took records that the shuffler has said that it has a client's report.
func (r *watched) took(id wire.ID) error {
	r.writing.RLock()
	defer r.writing.RUnlock()
	if r.stored && !r.concluded {
		wait, err := r.file.add(takenLine(id))
		if err == nil {
			err = wait()
		}
		if err != nil {
			return err
		}
	}
	r.mu.Lock()
	r.taken[id] = true
	r.mu.Unlock()
	return nil
}

const (
	// notThere is how often a coordinator may have nothing of a round that is over.
	notThere = 8
	// laterAgain is the wait for a round that may not be over.
	laterAgain = 10 * time.Minute
	// askFor is how long it is asked if it cannot be reached.
	askFor = time.Hour
	// lingers is how long comparing goes on after the last task has ended.
	lingers = 30 * time.Second
)

// spread is the longest wait from a round's end until its word is asked for.
func (r *watched) spread() time.Duration {
	if s := r.w.fleet.config.Spread; s != 0 {
		return max(0, s)
	}
	return min(time.Minute, r.length()/10)
}

func (r *watched) length() time.Duration {
	return time.Duration(r.ann.Deadline-r.ann.Opens) * time.Millisecond
}

// finish waits until all rounds are compared, but not for long.
func (w *witness) finish(cancel func()) {
	patience := lingers
	w.mu.Lock()
	for _, r := range w.rounds {
		patience = max(patience, lingers+r.spread())
		if time.Now().UnixMilli() >= r.ann.Deadline {
			r.end() // no task that is left tells of it
		}
	}
	w.mu.Unlock()
	defer time.AfterFunc(patience, cancel).Stop()
	w.wg.Wait()
}

// watch compares a round when it is over.
func (w *witness) watch(r *watched) {
	ctx, f := w.ctx, w.fleet
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.rounds, r.digest)
	}()
	found, ok := w.ask(ctx, r)
	if !ok {
		return // the file stays for the next process
	}
	r.writing.Lock()
	r.concluded = true
	r.writing.Unlock()
	if err := f.book.conclude(r.digest, found.Findings, r.stored); err != nil {
		f.notify(Notice{What: Retrying, Task: r.ann.Task, Round: r.ann.Round, Err: err})
	}
	f.mu.Lock()
	f.count.Compared.add(found.Findings)
	f.mu.Unlock()
	for _, n := range found.notices {
		f.notify(n)
	}
}

// result is what the comparison of one round has found.
type result struct {
	Findings
	notices []Notice
}

func (r *watched) note(x *result, what string, err error) {
	x.notices = append(x.notices, Notice{What: what, Task: r.ann.Task, Round: r.ann.Round, Err: err})
	if err != nil {
		x.Last = append(x.Last, finding{fmt.Sprintf("%x", r.ann.Task), r.ann.Round, what, err.Error()})
	}
}

// errNotThere says that a coordinator has nothing of a round.
var errNotThere = errors.New("the coordinator tells nothing of the round")

// unfit is an answer that does not fit, however often it is asked for.
type unfit struct{ error }

func unfitf(format string, args ...any) error { return unfit{fmt.Errorf(format, args...)} }

// ask waits for the round's end, asks for its word and its list, and compares them. ok is false if
// ctx ended first.
func (w *witness) ask(ctx context.Context, r *watched) (x result, ok bool) {
	if !w.ended(ctx, r) {
		return x, false
	}
	begun := time.Now()
	retry := newBackoff()
	var c wire.RoundClosed
	var list *seen
	for nothing := 0; ; {
		err := w.closed(ctx, r, &c)
		if err == nil && r.look && !c.Void {
			list, err = w.list(ctx, r, c)
		}
		if err == nil {
			break
		}
		if unfit := (unfit{}); errors.As(err, &unfit) {
			x.Unfit++
			r.note(&x, Unfit, err)
			return x, true
		}
		if errors.Is(err, errNotThere) {
			nothing++
		}
		if !r.stored && nothing > 0 || nothing == notThere || time.Since(begun) > askFor {
			x.Untold++
			if r.stored {
				r.note(&x, Untold, err)
			}
			return x, true
		}
		if errors.Is(err, errNotThere) && r.awaits(ctx) {
			begun = time.Now()
		} else if retry.wait(ctx) != nil {
			return x, false
		}
	}
	// A client here may still be trying to send.
	select {
	case <-r.idle:
	case <-ctx.Done():
		return x, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := int64(len(r.taken))
	if c.Void && w.fleet.config.RegistrarKey != nil {
		taken = 0 // a round is also void if too many of its clients are revoked while it is open
	}
	if err := client.CheckClosed(r.ann, c, taken); err != nil {
		x.Unfit++
		r.note(&x, Unfit, err)
		return x, true
	}
	x.Compared++
	if list != nil {
		x.Listed++
		r.lookFor(&x, list)
	}
	if len(x.Last) == 0 {
		r.note(&x, Compared, nil)
	}
	return x, true
}

// lookFor counts the own receipts in a list. Nothing follows from the absence of a receipt of a
// report that the shuffler did not say it has.
func (r *watched) lookFor(x *result, list *seen) {
	var missing, half int64
	for id, receipts := range r.mine {
		for _, receipt := range receipts {
			switch whole, there := list.own[receipt]; {
			case there && whole:
				x.Found++
			case there:
				half++
			case r.taken[id]:
				missing++
			}
		}
	}
	x.Missing, x.Half = missing, half
	if missing > 0 {
		r.note(x, Missing, fmt.Errorf("the shuffler said that it has the report, and %d of its receipts are not among the %d that the coordinator opened: one of the two has left it out", missing, list.head.Len()))
	}
	if half > 0 {
		r.note(x, Half, fmt.Errorf("the coordinator opened its part of the report, and the aggregator named no such receipt (%d)", half))
	}
}

// ended waits until the round is known to be over, and then for a time that is drawn.
func (w *witness) ended(ctx context.Context, r *watched) bool {
	// If no other round is announced, the round is over some time after its deadline.
	late := time.NewTimer(time.Until(time.UnixMilli(r.ann.Deadline)) + r.length() + time.Minute)
	defer late.Stop()
	select {
	case <-r.over:
	case <-late.C:
	case <-ctx.Done():
		return false
	}
	return sleep(ctx, upTo(rng.Secure(), r.spread())) == nil
}

// awaits waits for a while if the round is not known to be over: a coordinator may still be opening
// its reports long after the deadline.
func (r *watched) awaits(ctx context.Context) bool {
	select {
	case <-r.over:
		return false
	default:
	}
	t := time.NewTimer(laterAgain)
	defer t.Stop()
	select {
	case <-r.over:
	case <-t.C:
	case <-ctx.Done():
		return false
	}
	return true
}

// closed asks for the shuffler's word on a round.
func (w *witness) closed(ctx context.Context, r *watched, c *wire.RoundClosed) error {
	f := w.fleet
	a, err := f.fromCoordinator(ctx, &w.leader, fmt.Sprintf("/v1/rounds/%x/closed", r.digest), maxAnnouncement, 0)
	switch {
	case errors.Is(err, errTooLong):
		return unfit{err}
	case err != nil:
		return err
	case a.status == statusNotFound || a.status == statusGone:
		return errNotThere
	case a.status != statusOK:
		return a.unexpected("closed")
	}
	message, err := wire.Verify(f.config.ShufflerKey, wire.LabelClosed, a.body)
	if err == nil {
		*c, err = wire.Decode[wire.RoundClosed](message)
	}
	if err == nil {
		err = client.CheckClosed(r.ann, *c, 0)
	}
	if err != nil {
		return unfitf("the word on the round: %w", err)
	}
	return nil
}

// seen is what was found in a list of receipts.
type seen struct {
	head wire.Receipts
	own  map[wire.ID]bool // the own receipts in it; true: every part was opened
}

// list reads the round's list of receipts, and holds the own receipts only.
func (w *witness) list(ctx context.Context, r *watched, c wire.RoundClosed) (s *seen, err error) {
	f := w.fleet
	r.mu.Lock()
	own := map[wire.ID]bool{}
	for _, receipts := range r.mine {
		for _, receipt := range receipts {
			own[receipt] = true
		}
	}
	r.mu.Unlock()
	ask := func(base string) (answer, error) {
		ctx, cancel := context.WithTimeout(ctx, requestTime+time.Duration(c.Reports*r.ann.PerClient()*16/slowest)*time.Second)
		defer cancel()
		resp, err := f.web.send(ctx, methodGet, base+fmt.Sprintf("/v1/rounds/%x/receipts", r.digest), nil, nil)
		if err != nil {
			return answer{}, err
		}
		defer resp.Body.Close()
		a := answer{status: resp.Status}
		switch a.status {
		case statusOK:
			s, err = f.readList(resp.Body, r.ann, c, own)
			return a, err
		case statusNotFound, statusGone:
			return a, errNotThere
		}
		return a, a.unexpected("receipts")
	}
	if f.fromCache(ctx, "receipts", r.ann.Task, r.ann.Round, ask) { // else what it says is no word of the coordinator
		return s, nil
	}
	if _, err = f.askCoordinators(ctx, &w.leader, ask); err != nil {
		return nil, err
	}
	return s, nil
}

// fill reads until b is full. The error is io.EOF at the end of what was sent, and another one if
// it did not come whole.
func fill(from io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var more int
		more, err = from.Read(b[n:])
		n += more
	}
	return n, err
}

// slowest is the least number of bytes of a list that come in a second.
const slowest = 16 << 10

// readList reads a list piece by piece.
func (f *Fleet) readList(from io.Reader, ann wire.Announcement, c wire.RoundClosed, own map[wire.ID]bool) (*seen, error) {
	b := make([]byte, 32<<10)
	if n, err := fill(from, b[:wire.ReceiptsHead]); n < wire.ReceiptsHead && err == io.EOF {
		return nil, unfitf("the list of receipts has no head")
	} else if n < wire.ReceiptsHead {
		return nil, fmt.Errorf("client: receipts: %w", err)
	}
	s := &seen{own: map[wire.ID]bool{}}
	message, err := wire.Verify(f.config.CoordinatorKey, wire.LabelReceipts, b[:wire.ReceiptsHead])
	if err == nil {
		s.head, err = wire.Decode[wire.Receipts](message)
	}
	if err == nil {
		err = client.CheckReceipts(ann, c, s.head)
	}
	if err != nil {
		return nil, unfitf("the list of receipts: %w", err)
	}
	list := wire.NewReceiptReader(s.head)
	for {
		n, failed := fill(from, b)
		if err := list.Add(b[:n], func(id wire.ID, whole bool) {
			if own[id] {
				s.own[id] = s.own[id] || whole
			}
		}); err != nil {
			return nil, unfitf("the list of receipts: %w", err)
		}
		switch {
		case failed == io.EOF:
			if err := list.Close(); err != nil {
				return nil, unfitf("the list of receipts: %w", err)
			}
			return s, nil
		case failed != nil:
			return nil, fmt.Errorf("client: receipts: %w", failed)
		}
	}
}

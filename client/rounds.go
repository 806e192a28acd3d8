package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/envelope"
	"github.com/riffle-dp/riffle/mechanism"
	"github.com/riffle-dp/riffle/randomizer"
	"github.com/riffle-dp/riffle/wire"
)

// rounds takes part in the rounds of one task, one after the other.
type rounds struct {
	fleet *Fleet
	terms *Terms

	last   int64    // round that was announced last, taken part in or not
	digest [32]byte // of its announcement
	model  [32]byte // digest of theta
	theta  []float32
	open   chan announced
	work   sync.Pool // of *work
}

// work is memory to make a report in.
type work struct {
	grad   []float32
	report *randomizer.Report
}

// pollTime is how long a coordinator is asked to wait for the next round.
const pollTime = 20 * time.Second

// held is how many sealed reports of a round are in memory at most.
const held = 4096

// waiting is how many rounds may wait for the one that is being decided: they do
// where a coordinator does not wait for deadlines.
const waiting = 4

// announced is a round that was checked and whose model is here.
type announced struct {
	ann       wire.Announcement
	digest    [32]byte
	enrolment wire.Enrolment
	theta     []float32
	begun     time.Time
}

func (r *rounds) run(ctx context.Context) error {
	f := r.fleet
	r.work.New = func() any {
		return &work{make([]float32, r.terms.Mechanism.Dim()), r.terms.Mechanism.NewReport()}
	}
	// What is asked of the coordinator, and when, does not wait for what clients
	// decide and send: who is in a round would come back later than who is not.
	ctx, stop := context.WithCancelCause(ctx)
	r.open = make(chan announced, waiting)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for o := range r.open {
			if err := r.members(ctx, o); errors.Is(err, errStore) {
				stop(err)
			} else if err != nil {
				f.tell(Notice{What: Retrying, Task: r.terms.ID, Round: o.ann.Round, Err: err})
			}
		}
	}()
	ended := r.follow(ctx)
	close(r.open)
	<-done
	err := context.Cause(ctx)
	stop(nil)
	if errors.Is(err, errStore) {
		return err
	}
	if ended {
		f.tell(Notice{What: Ended, Task: r.terms.ID})
	}
	return nil
}

// follow fetches and checks rounds until ctx or the task has ended.
func (r *rounds) follow(ctx context.Context) (ended bool) {
	f := r.fleet
	retry := newBackoff()
	for ctx.Err() == nil {
		asked := time.Now()
		ann, ok, err := f.fetchAnnouncement(ctx, r.terms.ID, r.last, pollTime)
		if err == nil && ok {
			err = r.round(ctx, ann)
		}
		refused := (*Refused)(nil)
		switch {
		case ctx.Err() != nil:
			return false
		case errors.Is(err, errEnded):
			return true
		case errors.As(err, &refused):
			f.tell(Notice{What: Declined, Task: r.terms.ID, Round: ann.Round, Err: refused.of(r.terms.ID, ann.Round)})
		case err != nil:
			f.tell(Notice{What: Retrying, Task: r.terms.ID, Round: ann.Round, Err: err})
		case ok || time.Since(asked) > pollTime/2:
			retry.reset()
			continue
		}
		// Also where a coordinator does not wait before it says that there is nothing.
		if retry.wait(ctx) != nil {
			return false
		}
	}
	return false
}

// round checks one announcement, fetches its model and has every client decide.
// What it returns is about the round as a whole.
func (r *rounds) round(ctx context.Context, ann wire.Announcement) error {
	f, digest := r.fleet, ann.Digest()
	switch {
	case ann.Round > r.last:
	case ann.Round == r.last && digest != r.digest:
		return refuse(CauseEquivocate, "another announcement %x after %x", digest[:4], r.digest[:4])
	default:
		return refuse(CauseRound, "not after round %d", r.last)
	}
	if ann.Round <= r.terms.Task.Rounds {
		r.last, r.digest = ann.Round, digest
	}
	until := time.UnixMilli(ann.Deadline)
	if !time.Now().Before(until) {
		return refuse(CauseClock, "the deadline has passed")
	}
	inRound, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	var e wire.Enrolment
	if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
		e, err = f.enrolment(inRound, ann.Enrolment)
		return err
	}); err != nil {
		return err
	}
	begun := time.Now()
	if err := r.terms.Admit(ann, e, begun); err != nil {
		return err
	}
	// Whatever each client then decides, so that the download tells nothing.
	if r.theta == nil || r.model != ann.ModelDigest {
		if err := f.persist(inRound, r.terms.ID, ann.Round, func() (err error) {
			r.theta, err = f.fetchModel(inRound, ann.ModelDigest, r.terms.Task.Mechanism.Dim)
			return err
		}); err != nil {
			r.theta = nil
			return err
		}
		r.model = ann.ModelDigest
	}
	select {
	case r.open <- announced{ann, digest, e, r.theta, begun}:
	default:
		return refuse(CauseRound, "%d rounds are open already", waiting+1)
	}
	f.mu.Lock()
	f.count.Rounds++
	f.mu.Unlock()
	return nil
}

// persist makes a request until it is answered, refused, or ctx ends.
func (f *Fleet) persist(ctx context.Context, task [32]byte, round int64, try func() error) error {
	retry := newBackoff()
	for {
		err := try()
		refused := (*Refused)(nil)
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		f.tell(Notice{What: Retrying, Task: task, Round: round, Err: err})
		if retry.wait(ctx) != nil {
			return err
		}
	}
}

// turn is a client's time to send at. Should it need a session, it asks for one in
// the first half of the time there is, and sends in the second: what it sends, and
// how long that took to make, does not show in when it does.
type turn struct {
	member   *member
	at       time.Time
	ask      time.Time // for a session
	afterAsk time.Time // to send at, with a session that was asked for
}

// members lets every client decide for itself, each at a time of its own.
func (r *rounds) members(ctx context.Context, o announced) error {
	f, digest, deadline := r.fleet, o.digest, time.UnixMilli(o.ann.Deadline)
	inRound, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	spread := f.config.Spread
	if spread == 0 {
		spread = min(time.Minute, time.Until(deadline)/10)
	}
	jitter := newBackoff().src
	turns := make([]turn, len(f.members))
	for i, m := range f.members {
		turns[i] = turn{m, o.begun.Add(upTo(jitter, spread)), o.begun.Add(upTo(jitter, spread/2)), o.begun.Add(spread/2 + upTo(jitter, spread/2))}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return a.at.Compare(b.at) })

	f.book.hold(digest)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	left := false // a report that was charged and is not answered
	slots := make(chan struct{}, held)
	for _, t := range turns {
		select {
		case slots <- struct{}{}:
		case <-inRound.Done():
		}
		if inRound.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			unsent, err := r.member(inRound, t, o)
			mu.Lock()
			defer mu.Unlock()
			left = left || unsent
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	// What an ending process could not send stays for the next.
	return errors.Join(failed, f.book.release(digest, !left || ctx.Err() == nil))
}

// member is one client's part in a round. It says whether a report was charged
// that ctx left unanswered. The error is that of the ledger.
func (r *rounds) member(ctx context.Context, t turn, o announced) (unsent bool, err error) {
	f, m, ann, digest := r.fleet, t.member, o.ann, o.digest
	tell := func(w What, err error) {
		if refused := (*Refused)(nil); errors.As(err, &refused) {
			refused.of(r.terms.ID, ann.Round)
		}
		f.tell(Notice{What: w, Task: r.terms.ID, Round: ann.Round, Client: m.id, Err: err})
	}
	gradient, err := m.open(r.terms)
	if err != nil {
		return false, nil // it was told of when the task began
	}
	if refused := r.ready(m, ann, digest); refused != nil {
		if refused != decided {
			tell(Declined, refused)
		}
		return false, nil
	}
	// Before the coin, and whatever it will say.
	until := time.UnixMilli(ann.Deadline)
	session, fresh, err := f.session(ctx, m, o.enrolment.Population, until, t.ask)
	if err != nil {
		tell(Declined, err)
		return false, nil
	}
	if fresh {
		t.at = t.afterAsk
	}
	in, err := r.asked(ctx, m, ann, digest)
	if err != nil {
		if errors.Is(err, errStore) {
			return false, err
		}
		tell(NotDrawn, err)
		return false, nil
	}
	if !in {
		if ann.Participation == dp.CheckIn {
			tell(Passed, nil)
		} else {
			tell(NotDrawn, nil)
		}
		return false, nil
	}
	if refused := r.reserve(m, ann, digest); refused != nil {
		tell(Declined, refused)
		return false, nil
	}
	sealed, err := r.seal(ctx, m, gradient, o, session)
	if err != nil {
		tell(Lost, err)
		return false, nil
	}
	if err := f.book.charge(m.id, ann, digest, r.terms.Charge, r.terms.Tail, sealed); err != nil {
		return false, err
	}
	if f.beforeSend != nil {
		f.beforeSend()
	}
	if sleep(ctx, time.Until(t.at)) == nil {
		err = f.send(ctx, sealed)
	} else {
		err = ctx.Err()
	}
	if errors.Is(err, errUnknownSession) {
		m.forget(session)
	}
	if err != nil {
		tell(Lost, err)
		return ctx.Err() != nil, nil
	}
	tell(Sent, nil)
	return false, nil
}

// decided marks a round that this client decided before, as after a restart.
var decided = &Refused{Cause: CauseRound, Detail: "decided before"}

// ready checks the round against the client's own history.
func (r *rounds) ready(m *member, ann wire.Announcement, digest [32]byte) *Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.history.of(r.terms.ID); s != nil && ann.Round <= s.round {
		switch {
		case s.announcement == digest:
			return decided
		case s.round == ann.Round:
			return refuse(CauseEquivocate, "another announcement %x after %x", digest[:4], s.announcement[:4])
		}
		return refuse(CauseRound, "not after round %d", s.round)
	}
	return r.terms.afford(m.history, r.fleet.counter)
}

// asked says whether the client takes part: by the shuffler's draw or its own coin.
func (r *rounds) asked(ctx context.Context, m *member, ann wire.Announcement, digest [32]byte) (bool, error) {
	f := r.fleet
	switch ann.Participation {
	case dp.CheckIn:
		if CheckIn(f.coin(m.id, ann.Round), ann.CheckInRate) {
			return true, nil
		}
		// Written down, so that no coin is flipped twice.
		m.mu.Lock()
		m.history.decide(r.terms.ID, ann.Round, digest)
		m.mu.Unlock()
		return false, f.book.pass(m.id, r.terms.ID, ann.Round, digest)
	case dp.Sampled, dp.Once:
		ask := wire.Sign(m.credential.key, wire.LabelAsk, wire.Ask{Announcement: digest, Client: m.id}.Append(nil))
		a, err := f.post(ctx, "/v1/ask", ask)
		if err != nil {
			return false, err
		}
		if a.status != http.StatusOK || len(a.body) != 1 || a.body[0] > 1 {
			return false, a.unexpected("ask")
		}
		if a.body[0] == 0 {
			m.mu.Lock()
			m.history.decide(r.terms.ID, ann.Round, digest)
			m.mu.Unlock()
		}
		return a.body[0] == 1, nil
	}
	return true, nil
}

// reserve counts the report in memory: from here on it counts, sent or not.
func (r *rounds) reserve(m *member, ann wire.Announcement, digest [32]byte) *Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Again: another task of the same client may have spent meanwhile.
	if refused := r.terms.afford(m.history, r.fleet.counter); refused != nil {
		return refused
	}
	m.history.decide(r.terms.ID, ann.Round, digest).charge(r.terms.Charge, 1, r.terms.Tail)
	return nil
}

// seal makes the one report of a client in a round.
func (r *rounds) seal(ctx context.Context, m *member, gradient Gradient, o announced, session wire.Session) ([]byte, error) {
	ann, digest := o.ann, o.digest
	select {
	case r.fleet.compute <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { <-r.fleet.compute }()
	w := r.work.Get().(*work)
	defer r.work.Put(w)
	defer clear(w.grad)
	gradient(o.theta, w.grad)
	src := r.fleet.noise(m.id, ann.Round)
	r.terms.reporter.Report(src, w.grad, w.report)
	part, share, err := mechanism.Contents(src, r.terms.Mechanism, digest, w.report)
	if err != nil {
		// The mechanism made what it does not accept: it says nothing of the data.
		return nil, errors.New("client: the report cannot be encoded")
	}
	report := wire.Report{Announcement: digest, Client: m.id}
	rand.Read(report.ID[:])
	if report.Part, err = envelope.SealPart(ann.Coordinator, envelope.Coordinator, digest, part); err != nil {
		return nil, err
	}
	if len(share) > 0 {
		if report.Share, err = envelope.SealPart(ann.Aggregator, envelope.Aggregator, digest, share); err != nil {
			return nil, err
		}
	}
	report.Authenticate(session)
	key, err := shufflerKey(o.enrolment, time.Now())
	if err != nil {
		return nil, err
	}
	return envelope.SealReport(key, &report)
}

// errUnknownSession is wrapped where a report was refused for its session.
var errUnknownSession = errors.New("the session is not known")

// send posts a sealed report until the shuffler has it.
func (f *Fleet) send(ctx context.Context, sealed []byte) error {
	a, err := f.post(ctx, "/v1/report", sealed)
	if err == nil && a.status == http.StatusUnauthorized {
		return fmt.Errorf("%w: %w", a.unexpected("report"), errUnknownSession)
	}
	if err == nil && a.status != http.StatusNoContent {
		err = a.unexpected("report")
	}
	return err
}

// post sends the same bytes to the shuffler until they are answered, or ctx ends.
func (f *Fleet) post(ctx context.Context, path string, body []byte) (answer, error) {
	retry := newBackoff()
	for {
		a, err := f.postOnce(ctx, path, body)
		if err == nil && !a.again() {
			if reason := a.reason(); reason != "" {
				f.mu.Lock()
				f.count.Refusals[reason]++
				f.mu.Unlock()
			}
			return a, nil
		}
		if err == nil {
			err = a.unexpected(path)
		}
		if errors.Is(err, errTooLong) {
			return answer{}, err
		}
		if ctx.Err() == nil {
			f.tell(Notice{What: Retrying, Err: err})
		}
		if retry.wait(ctx) != nil {
			return answer{}, err
		}
	}
}

func (f *Fleet) postOnce(ctx context.Context, path string, body []byte) (answer, error) {
	select {
	case f.flight <- struct{}{}:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	defer func() { <-f.flight }()
	return f.web.do(ctx, http.MethodPost, f.config.Shuffler+path, body, "", maxRefusal, 0)
}

// resend sends what an earlier process charged and may not have sent: the same
// bytes, which the shuffler takes once.
func (f *Fleet) resend(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for announcement, o := range f.book.left {
		wg.Go(func() {
			inRound, cancel := context.WithDeadline(ctx, o.deadline)
			defer cancel()
			over := true
			for _, r := range o.reports {
				err := f.send(inRound, r.sealed)
				if err != nil && ctx.Err() != nil {
					over = false
					break
				}
				n := Notice{What: Sent, Client: r.client, Err: err}
				if err != nil {
					n.What = Lost
				}
				f.tell(n)
			}
			if err := f.book.release(announcement, over); err != nil {
				mu.Lock()
				failed = errors.Join(failed, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return failed
}

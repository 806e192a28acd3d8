package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// work is the working memory for making a report.
type work struct {
	grad   []float32 // made when it is needed
	report *randomizer.Report
}

// mostSealed is how many sealed reports of a round are in memory at a time.
const mostSealed = 4096

// mostWaiting is how many bytes of gradients may wait in memory for the end of an answer's time. A
// process that runs out of memory would show how soon its program answers.
const mostWaiting = 1 << 30

// atOnce returns how many members take part in a round at a time. The others begin later.
func atOnce(waits bool, dim int) int {
	if !waits {
		return mostSealed
	}
	return max(1, min(mostSealed, mostWaiting/4/dim))
}

// sendTime is when a client sends, drawn before it decides anything: the time reveals
// neither what it sends nor how long that took to make. A client that needs a session
// asks for it in the first half of the spread, and sends in the second.
type sendTime struct {
	member   *member
	begun    time.Time // from when on these times are drawn
	spread   time.Duration
	at       time.Time // when to send, with a session that the client already has
	ask      time.Time // when to ask for a session
	asked    time.Time // when all sessions have been asked for
	afterAsk time.Time // when to send, with a session that the client asked for at ask
}

// runMembers has every client decide for itself, each at a time of its own.
func (r *rounds) runMembers(ctx context.Context, o announced) error {
	f, digest, deadline := r.fleet, o.digest, time.UnixMilli(o.ann.Deadline)
	inRound, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	spread := f.config.Spread
	if spread == 0 {
		spread = min(time.Minute, time.Until(deadline)/10)
	}
	// A late model must not make reports too late, nor must an answer's time, which is up to half of
	// what is left.
	most := time.Until(deadline) / 2
	waits := slices.ContainsFunc(f.members, func(m *member) bool {
		gradient, err := m.open(r.terms)
		return err == nil && f.waits(gradient)
	})
	if waits {
		most /= 2
	}
	spread = min(spread, most)
	// Times are drawn when the model is there: whoever sends it slowly must not see when each report
	// is made.
	begun := time.Now()
	jitter := newBackoff().src
	times := make([]sendTime, len(f.members))
	for i, m := range f.members {
		times[i] = sendTime{m, begun, spread, begun.Add(upTo(jitter, spread)), begun.Add(upTo(jitter, spread/2)), begun.Add(max(0, spread/2)), begun.Add(spread/2 + upTo(jitter, spread/2))}
	}
	slices.SortStableFunc(times, func(a, b sendTime) int { return a.at.Compare(b.at) })

	watched, err := f.witness.begin(o.ann, digest, r.terms.Task.Receipts)
	if err != nil {
		return err
	}
	defer watched.rest()
	f.book.hold(digest)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	left := false // whether a report was charged and not answered
	slots := make(chan struct{}, atOnce(waits, r.terms.Mechanism.Facts().Dim))
	for _, t := range times {
		select {
		case slots <- struct{}{}:
		case <-inRound.Done():
		}
		if inRound.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			unsent, err := r.runMember(inRound, t, o, watched)
			mu.Lock()
			defer mu.Unlock()
			left = left || unsent
			failed = errors.Join(failed, err)
		})
	}
	wg.Wait()
	// A process that ends leaves the reports that it could not send to the next one.
	return errors.Join(failed, f.book.release(digest, !left || ctx.Err() == nil))
}

// runMember is one client's part in a round. unsent says that a report was charged and that
// ctx ended before it was answered. The returned error is an error of the client's ledger.
func (r *rounds) runMember(ctx context.Context, t sendTime, o announced, watched *watched) (unsent bool, err error) {
	f, m, ann, digest := r.fleet, t.member, o.ann, o.digest
	notify := func(w string, err error) {
		if refused := (*client.Refused)(nil); errors.As(err, &refused) {
			refused.In(r.terms.ID, ann.Round)
		}
		f.notify(Notice{What: w, Task: r.terms.ID, Round: ann.Round, Client: m.id, Err: err})
	}
	gradient, err := m.open(r.terms)
	if err != nil {
		return false, nil // openAll has reported this
	}
	if refused := r.ready(m, ann, digest); refused != nil {
		if refused != decided {
			notify(Declined, refused)
		}
		return false, nil
	}
	tokens, err := m.tokens(r.terms, ann.Round)
	if err != nil {
		notify(Declined, client.Refuse(client.CauseTokens, "%v", err))
		if errors.Is(err, errStore) {
			return false, err
		}
		return false, nil
	}
	// The session is asked for before the coin is flipped, whatever the coin will say.
	until := time.UnixMilli(ann.Deadline)
	key, err := f.config.Policy.ShufflerKey(o.enrolment, time.Now())
	if err != nil {
		notify(Declined, client.Refuse(client.CauseKey, "%v", err))
		return false, nil
	}
	session, fresh, err := f.session(ctx, m, o.enrolment.Population, key.Suite, until, t.ask)
	if err != nil {
		notify(Declined, err)
		return false, nil
	}
	if fresh {
		t.at = t.afterAsk
	}
	in, err := r.takesPart(ctx, m, ann, digest, session)
	if err != nil {
		if errors.Is(err, errStore) {
			return false, err
		}
		if errors.Is(err, errUnknownSession) {
			m.forget(session) // the next round asks for another one; nothing was charged
		}
		notify(NotDrawn, err)
		return false, nil
	}
	if !in {
		if ann.Participation == dp.CheckIn {
			notify(Passed, nil)
		} else {
			notify(NotDrawn, nil)
		}
		return false, nil
	}
	if refused := r.reserve(m, ann, digest); refused != nil {
		notify(Declined, refused)
		return false, nil
	}
	var row []float32
	if f.waits(gradient) {
		if row, t.at, err = r.ask(ctx, m, gradient, t, o); err != nil {
			notify(Lost, err)
			return false, nil
		}
		gradient = nil // what is late does not count
	}
	sealed, receipts, err := r.seal(ctx, m, gradient, row, o, session, tokens)
	if err == nil {
		err = ctx.Err() // nothing is charged once the process is told to end, or the round is over
	}
	if err != nil {
		notify(Lost, err)
		return false, nil
	}
	if err := watched.keep(m.id, receipts); err != nil {
		return false, err
	}
	if err := f.book.charge(m.id, ann, digest, r.terms.Charge, r.terms.Task.PerClient(), r.terms.Tail, sealed); err != nil {
		return false, err
	}
	if err := m.spend(r.terms, ann.Round); err != nil {
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
		// The report stays charged: the shuffler may have it, and only its answer was lost.
		notify(Lost, fmt.Errorf("a report was charged and is not known to be taken: %w", err))
		return ctx.Err() != nil, nil
	}
	notify(Sent, nil)
	return false, watched.took(m.id)
}

// decided is returned for a round that this client has decided already, as after a restart.
var decided = &client.Refused{Cause: client.CauseRound, Detail: "decided before"}

// ready checks the round against the client's own history.
func (r *rounds) ready(m *member, ann wire.Announcement, digest [32]byte) *client.Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.history.Of(r.terms.ID); s != nil && ann.Round <= s.Round {
		switch {
		case s.Announcement == digest:
			return decided
		case s.Round == ann.Round:
			return client.Refuse(client.CauseEquivocate, "another announcement %x after %x", digest[:4], s.Announcement[:4])
		}
		return client.Refuse(client.CauseRound, "not after round %d", s.Round)
	}
	return r.terms.Afford(m.history, r.fleet.counter)
}

// takesPart asks the shuffler's draw, or flips the client's own coin.
func (r *rounds) takesPart(ctx context.Context, m *member, ann wire.Announcement, digest [32]byte, s session) (bool, error) {
	f := r.fleet
	switch ann.Participation {
	case dp.CheckIn:
		if every := r.terms.Task.Every; every > 0 {
			// What is decided follows from the history, so it is not stored that it was not its turn.
			return client.Turn(every, client.OwnFirstRound(m.credential.key.Seed(), r.terms.ID, every), m.reported(r.terms.ID), ann.Round), nil
		}
		if client.CheckIn(f.coin(m.id, ann.Round), ann.Gamma) {
			return true, nil
		}
		// The decision is stored, so that no coin is flipped twice.
		m.mu.Lock()
		m.history.Decide(r.terms.ID, ann.Round, digest)
		m.mu.Unlock()
		return false, f.book.pass(m.id, r.terms.ID, ann.Round, digest)
	case dp.Sampled, dp.Once:
		ask := wire.Ask{Announcement: digest, Client: m.id}
		wire.Authenticate(&ask, s.Session)
		a, err := f.post(ctx, "/v1/ask", wire.Encode(ask))
		if err != nil {
			return false, err
		}
		if a.status == statusUnauthorized {
			return false, fmt.Errorf("%w: %w", a.unexpected("ask"), errUnknownSession)
		}
		if a.status != statusOK || len(a.body) != 1 || a.body[0] > 1 {
			return false, a.unexpected("ask")
		}
		if a.body[0] == 0 {
			m.mu.Lock()
			m.history.Decide(r.terms.ID, ann.Round, digest)
			m.mu.Unlock()
		}
		return a.body[0] == 1, nil
	}
	return true, nil
}

// reported returns the last round of a task in which the client has reported, if it counts rounds there; 0: none.
func (m *member) reported(task [32]byte) int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.history.Of(task); s != nil {
		return s.Round
	}
	return 0
}

// reserve counts the report in the client's history in memory, whether or not it will be sent.
func (r *rounds) reserve(m *member, ann wire.Announcement, digest [32]byte) *client.Refused {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.history.Of(r.terms.ID); s != nil && r.terms.Task.Every > 0 && !client.Turn(r.terms.Task.Every, 0, s.Round, ann.Round) {
		return client.Refuse(client.CauseRound, "round %d is within %d rounds of round %d, in which it took part", ann.Round, r.terms.Task.Every, s.Round)
	}
	// Check the budget again: another task of the same client may have spent meanwhile.
	if refused := r.terms.Afford(m.history, r.fleet.counter); refused != nil {
		return refused
	}
	m.history.Decide(r.terms.ID, ann.Round, digest).Charge(r.terms.Charge, r.terms.Task.PerClient(), r.terms.Tail)
	return nil
}

// seal makes the one report of a client in a round, with all its messages. The gradient is row if
// that is not nil, or what gradient computes, or else 0.
func (r *rounds) seal(ctx context.Context, m *member, gradient Gradient, row []float32, o announced, s session, tokens [][wire.TokenBytes]byte) (bytes []byte, receipts []wire.ID, err error) {
	ann, digest := o.ann, o.digest
	select {
	case r.fleet.compute <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	}
	defer func() { <-r.fleet.compute }()
	w := r.work.Get().(*work)
	defer r.work.Put(w)
	grad := row
	if grad == nil {
		if w.grad == nil {
			w.grad = make([]float32, r.terms.Mechanism.Facts().Dim)
		}
		if grad = w.grad; gradient != nil {
			gradient(o.theta, grad)
		}
	}
	defer clear(grad)
	src := r.fleet.noise(m.id, ann.Round)
	reporter := r.terms.Reporter.ForRound(digest)
	reporter.Report(src, grad, w.report)
	messages, attached := ann.PerClient(), r.terms.Task.Attachments()
	report := wire.Report{Announcement: digest, Client: m.id}
	rand.Read(report.ID[:])
	for j := range messages {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if j > 0 {
			reporter.Again(src, grad, w.report)
		}
		part, share, err := mechanism.Contents(src, r.terms.Mechanism, digest, w.report)
		if err != nil {
			// A mechanism that does not accept its own report is our bug. The error says
			// nothing of the data.
			return nil, nil, errors.New("client: the report cannot be encoded")
		}
		var with wire.Attached
		if attached.Receipt {
			rand.Read(with.Receipt[:])
			receipts = append(receipts, with.Receipt)
		}
		if attached.Token {
			with.Token = tokens[j]
		}
		sealed, err := envelope.SealPart(ann.Coordinator, envelope.Coordinator, digest, attached.Append(part, with))
		if err != nil {
			return nil, nil, err
		}
		report.Part = append(report.Part, sealed...)
		if len(share) > 0 { // a sum's client has one message
			if report.Share, err = envelope.SealPart(ann.Aggregator, envelope.Aggregator, digest, attached.Append(share, with)); err != nil {
				return nil, nil, err
			}
		}
	}
	wire.Authenticate(&report, s.Session)
	key, err := r.fleet.config.Policy.ShufflerKey(o.enrolment, time.Now())
	if err != nil {
		return nil, nil, err
	}
	bytes, err = envelope.SealReport(key, &report, s.Key.Pass(digest))
	return bytes, receipts, err
}

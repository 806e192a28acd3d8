package client

import (
	"context"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// mostAnswer is the longest time that a source has for a gradient, unless the configuration says
// another.
const mostAnswer = 2 * time.Minute

// answerTime is how much of the time left to the deadline a source has for a gradient.
func (f *Fleet) answerTime(left time.Duration) time.Duration {
	if f.config.Answer > 0 {
		return min(f.config.Answer, left/2)
	}
	return min(mostAnswer, left/4)
}

// measure returns a time in which all members' reports are made, with room to spare: it takes a
// little longer or shorter to make a report of a gradient of 0, and that must not show. It is 0 if
// reports leave at once, or no source asks for gradients.
func (r *rounds) measure() time.Duration {
	f := r.fleet
	if _, asks := f.members[0].source.(asker); !asks || f.config.Spread < 0 {
		return 0
	}
	w := r.work.Get().(*work)
	defer r.work.Put(w)
	grad := make([]float32, r.terms.Mechanism.Facts().Dim)
	begun := time.Now()
	reporter := r.terms.Reporter.ForRound([32]byte{})
	for range r.terms.Task.PerClient() {
		reporter.Report(rng.Secure(), grad, w.report)
	}
	return 4 * time.Since(begun) * time.Duration(1+len(f.members)/f.config.Workers)
}

// ask gets a gradient from a source that asks for it elsewhere; nil if there is none. It returns
// when the time for the answer is over, and when to send: neither depends on the source. The time
// begins when the client knows that it takes part, and not before any session was asked for.
func (r *rounds) ask(ctx context.Context, source asker, t sendTime, o announced) (row []float32, at time.Time, err error) {
	begun := time.Now()
	if begun.Before(t.asked) {
		begun = t.asked
	}
	left := time.UnixMilli(o.ann.Deadline).Sub(begun)
	by := begun.Add(r.fleet.answerTime(left))
	from := by.Add(min(r.making, left/8))
	after := t.at.Sub(t.begun)
	// An eighth is kept for sending.
	if room := time.UnixMilli(o.ann.Deadline).Sub(from) - left/8; t.spread > room {
		after = time.Duration(float64(after) * float64(room) / float64(t.spread))
	}
	at = from.Add(after)
	if r.fleet.planned != nil {
		r.fleet.planned(begun, by, from, at)
	}
	asking, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	answer := make(chan []float32, 1)
	go func() {
		// The source tells its owner of an error; nobody else may know.
		if row, err := source.Ask(asking, r.terms.Task, o.ann.Round, o.theta); err == nil && int64(len(row)) == r.terms.Task.Mechanism.Dim {
			answer <- row
		}
		close(answer)
	}()
	// Wait in any case: an answer that comes sooner must not show.
	<-asking.Done()
	if ctx.Err() != nil {
		return nil, at, ctx.Err()
	}
	select {
	case row = <-answer:
	default: // a source that does not keep to the deadline
	}
	return row, at, nil
}

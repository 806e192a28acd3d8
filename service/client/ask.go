package client

import (
	"context"
	"time"
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

// ask gets a gradient from a source that asks for it elsewhere; nil if there is none. It returns
// when the time for the answer is over, and when to send: neither depends on the source. The time
// begins when the client knows that it takes part, and not before any session was asked for.
func (r *rounds) ask(ctx context.Context, source asker, t sendTime, o announced) (row []float32, at time.Time, err error) {
	begun := time.Now()
	if begun.Before(t.asked) {
		begun = t.asked
	}
	by := begun.Add(r.fleet.answerTime(time.UnixMilli(o.ann.Deadline).Sub(begun)))
	at = by.Add(t.at.Sub(t.begun))
	if r.fleet.planned != nil {
		r.fleet.planned(begun, by, at)
	}
	asking, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	answer := make(chan []float32, 1)
	go func() {
		// The source tells its owner of an error; nobody else may know.
		if row, err := source.Ask(asking, r.terms.Task, o.ann.Round, o.theta); err == nil && len(row) == len(o.theta) {
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

package client

import (
	"context"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// mostAnswer is the longest time that a source has for a gradient that it asks for elsewhere, and
// mostComputed for one that it computes here, unless the configuration says another.
const (
	mostAnswer   = 2 * time.Minute
	mostComputed = 10 * time.Second
)

// answerTime is how much of the time left to the deadline a source has for a gradient.
func (f *Fleet) answerTime(left time.Duration, elsewhere bool) time.Duration {
	switch {
	case f.config.Answer > 0:
		return min(f.config.Answer, left/2)
	case elsewhere:
		return min(mostAnswer, left/4)
	}
	return min(mostComputed, left/4)
}

// waits says whether a member's report is made when the time for its gradient is over, and not sooner: the time that
// a gradient takes depends on the data. Where reports leave at once that is hidden of answers from elsewhere only.
func (f *Fleet) waits(gradient Gradient) bool { return gradient == nil || f.config.Spread >= 0 }

// messageTime measures how long one message of a report takes to make, on a gradient of 0.
func messageTime(ctx context.Context, t *client.Terms) time.Duration {
	const samples = 3 // seeds take more tries at one time than at another
	reporter, src := t.Reporter.ForRound([32]byte{}), rng.Secure()
	report, grad := reporter.NewReport(), make([]float32, t.Mechanism.Facts().Dim)
	begun := time.Now()
	for n := time.Duration(1); ; n++ {
		reporter.Report(src, grad, report)
		_, _, _ = mechanism.Contents(src, t.Mechanism, [32]byte{}, report) // seal says if that fails
		if took := time.Since(begun); n == samples || took > 100*time.Millisecond || ctx.Err() != nil {
			return took / n
		}
		clear(grad)
	}
}

// measure returns a time in which all members' reports are made, with room to spare: it takes a
// little longer or shorter to make a report of a gradient of 0, and that must not show. It is 0 if
// reports leave at once.
func (r *rounds) measure(ctx context.Context) time.Duration {
	f := r.fleet
	if f.config.Spread < 0 {
		return 0
	}
	return 4 * messageTime(ctx, r.terms) * time.Duration(r.terms.Task.PerClient()) * time.Duration(1+len(f.members)/f.config.Workers)
}

// compute returns the gradient that a member's own model computes. A gradient that does not begin in time is
// not computed, and one that is late is nobody's.
func (r *rounds) compute(ctx context.Context, m *member, gradient Gradient, theta []float32) ([]float32, error) {
	for _, slot := range []chan struct{}{m.computing, r.fleet.models} {
		select {
		case slot <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		defer func() { <-slot }()
	}
	row := make([]float32, r.terms.Mechanism.Facts().Dim)
	gradient(theta, row)
	return row, nil
}

// ask gets a member's gradient, from its own model or from elsewhere; nil if there is none in time. It returns
// when the time for the answer is over, and when to send: neither depends on the source. The time
// begins when the client knows that it takes part, and not before any session was asked for.
func (r *rounds) ask(ctx context.Context, m *member, gradient Gradient, t sendTime, o announced) (row []float32, at time.Time, err error) {
	begun := time.Now()
	if begun.Before(t.asked) {
		begun = t.asked
	}
	left := time.UnixMilli(o.ann.Deadline).Sub(begun)
	elsewhere := gradient == nil
	by := begun.Add(r.fleet.answerTime(left, elsewhere))
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
	get := func() {
		var row []float32
		var err error
		if elsewhere {
			row, err = m.source.(asker).Ask(asking, r.terms.Task, o.ann.Round, o.theta)
		} else {
			row, err = r.compute(asking, m, gradient, o.theta)
		}
		// The source tells its owner of an error; nobody else may know.
		if err == nil && int64(len(row)) == r.terms.Task.Mechanism.Dim {
			answer <- row
		}
		close(answer)
	}
	if elsewhere {
		go get()
	} else {
		r.late.Go(get)
	}
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

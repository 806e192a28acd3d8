package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
)

// persist repeats a request until it is answered, refused, or ctx ends.
func (f *Fleet) persist(ctx context.Context, task [32]byte, round int64, try func() error) error {
	retry := newBackoff()
	for {
		err := try()
		refused := (*client.Refused)(nil)
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil {
			return err
		}
		f.notify(Notice{What: Retrying, Task: task, Round: round, Err: err})
		if retry.wait(ctx) != nil {
			return err
		}
	}
}

// errUnknownSession is wrapped when the shuffler does not know a report's session.
var errUnknownSession = errors.New("the session is not known")

// send posts a sealed report until the shuffler has it.
func (f *Fleet) send(ctx context.Context, sealed []byte) error {
	a, err := f.post(ctx, "/v1/report", sealed)
	if err == nil && a.status == statusUnauthorized {
		return fmt.Errorf("%w: %w", a.unexpected("report"), errUnknownSession)
	}
	if err == nil && a.status != statusNoContent {
		err = a.unexpected("report")
	}
	return err
}

// post sends the same bytes to the shuffler until they are answered or ctx ends. It gives one
// notice of failure, however many tries fail.
func (f *Fleet) post(ctx context.Context, path string, body []byte) (answer, error) {
	retry := newBackoff()
	for tries := 1; ; tries++ {
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
		if ctx.Err() == nil && tries == 1 {
			f.notify(Notice{What: Retrying, Err: err})
		}
		if retry.wait(ctx) != nil {
			return answer{}, fmt.Errorf("%w (the last of %d tries)", err, tries)
		}
	}
}

// leastTry is the least time that a try is given before it is broken off.
const leastTry = 2 * time.Second

func (f *Fleet) postOnce(ctx context.Context, path string, body []byte) (answer, error) {
	select {
	case f.flight <- struct{}{}:
	case <-ctx.Done():
		return answer{}, ctx.Err()
	}
	defer func() { <-f.flight }()
	// A try takes half of the time that is left, so that there is time for another.
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, max(leastTry, time.Until(deadline)/2))
		defer cancel()
	}
	if f.config.Relay != "" {
		return f.relayed(ctx, path, body)
	}
	return f.web.do(ctx, methodPost, f.config.Shuffler+path, body, "", maxRefusal, 0)
}

// resend sends the reports that an earlier process charged and may not have sent. They
// are the same bytes, which the shuffler takes once.
func (f *Fleet) resend(ctx context.Context) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for announcement, o := range f.book.left {
		wg.Go(func() {
			inRound, cancel := context.WithDeadline(ctx, o.deadline)
			defer cancel()
			over := true
			watched := f.witness.find(announcement)
			if watched != nil {
				defer watched.rest()
			}
			for _, r := range o.reports {
				err := f.send(inRound, r.sealed)
				if err != nil && ctx.Err() != nil {
					over = false
					break
				}
				n := Notice{What: Sent, Client: r.client, Err: err}
				if err != nil {
					n.What = Lost
				} else if watched != nil {
					err = watched.took(r.client)
				}
				f.notify(n)
				if n.What == Sent && err != nil {
					mu.Lock()
					failed = errors.Join(failed, err)
					mu.Unlock()
				}
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

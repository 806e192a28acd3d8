package client

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// cache is a CDN or another cache of the coordinator's answers, which is asked before the
// coordinators: for tasks, announcements, models and lists of receipts. All of these are signed or
// have a digest that is known, so it can only hold something back. It is asked whatever the clients
// decide, as the coordinators are.
type cache struct {
	base  string        // https address; empty: there is none
	every time.Duration // directEvery, except in tests
	held  time.Duration // heldBack, except in tests

	mu    sync.Mutex
	again time.Time     // not asked before
	pause time.Duration // how long it is not asked after the next failure
}

// Times for which a cache that fails or lies is not asked, and after which clients that were only
// told by the cache that there is nothing new ask a coordinator itself.
const (
	firstPause  = 5 * time.Second
	lastPause   = 5 * time.Minute
	directEvery = 5 * time.Minute
	// heldBack is how long a round may be open before a cache that does not tell of it holds it back.
	heldBack = time.Minute
)

// usable returns the cache's address; empty if it is not to be asked now.
func (c *cache) usable() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Now().Before(c.again) {
		return ""
	}
	return c.base
}

// good notes that the cache answered well.
func (c *cache) good() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pause = firstPause
}

// doubt names a cache that failed or lied, and leaves it alone for a while.
func (f *Fleet) doubt(ctx context.Context, what string, task [32]byte, round int64, err error) {
	if ctx.Err() != nil {
		return // not its fault
	}
	c := &f.cache
	c.mu.Lock()
	pause := max(firstPause, c.pause)
	c.pause = min(2*pause, lastPause)
	c.again = time.Now().Add(pause/2 + upTo(rng.Secure(), pause))
	c.mu.Unlock()
	host := c.base
	if u, bad := url.Parse(c.base); bad == nil {
		host = u.Host
	}
	if refused := (*client.Refused)(nil); errors.As(err, &refused) { // the cache is, not the task
		err = fmt.Errorf("refused (%s): %s", refused.Cause, refused.Detail)
	}
	f.notify(Notice{What: Retrying, Task: task, Round: round, Err: fmt.Errorf("client: the cache %s: %s: %v: the coordinators are asked", host, what, err)})
}

// next waits for the task's next announcement. What the cache says is taken if it is good for
// something; that there is nothing new is taken for a while, and that the task has ended is not.
func (r *rounds) next(ctx context.Context) (ann wire.Announcement, ok bool, err error) {
	f, id, wait := r.fleet, r.terms.ID, pollTime
	var ended, none bool
	if base := f.cache.usable(); base != "" {
		a, err := f.web.do(ctx, methodGet, base+announcementPath(id, r.last, wait), nil, "", maxAnnouncement, wait)
		if err == nil {
			ann, ok, err = f.readAnnouncement(a)
		}
		switch {
		case ctx.Err() != nil:
			return ann, false, ctx.Err()
		case err == nil && ok:
			if err = r.stale(ann); err == nil {
				f.cache.good()
				return ann, true, nil
			}
			f.doubt(ctx, "announcement", id, ann.Round, err)
		case err == nil && !r.misled && time.Since(r.direct) < f.cache.every:
			f.cache.good()
			return ann, false, nil
		case err == nil:
			none, wait = true, 0
		case errors.Is(err, errEnded):
			ended, wait = true, 0
		default: // also if the coordinator behind it does not lead
			f.doubt(ctx, "announcement", id, 0, err)
		}
	}
	ann, ok, err = f.fetchAnnouncement(ctx, &r.leader, id, r.last, wait)
	if err == nil {
		r.direct = time.Now()
		if ended {
			f.doubt(ctx, "announcement", id, 0, errors.New("it says that the task has ended, which a coordinator does not say"))
		}
		if none && ok && time.Since(time.UnixMilli(ann.Opens)) > f.cache.held {
			r.misled = true
			f.doubt(ctx, "announcement", id, ann.Round, fmt.Errorf("it says that there is no round after %d, and %d has been open for long", r.last, ann.Round))
		}
	}
	return ann, ok, err
}

// stale returns an error if an announcement of the cache is none that the clients wait for. One that
// contradicts the last is not stale: the coordinator has signed both.
func (r *rounds) stale(ann wire.Announcement) error {
	switch {
	case ann.Task != r.terms.ID:
		return errors.New("of another task")
	case ann.Round < r.last || ann.Round == r.last && wire.Digest(ann) == r.digest:
		return fmt.Errorf("of round %d, asked for was one after %d", ann.Round, r.last)
	case time.Now().UnixMilli() >= ann.Deadline:
		return fmt.Errorf("of round %d, whose deadline has passed", ann.Round)
	}
	return nil
}

// fromCache asks the cache, if it may be asked now, and says whether it answered well.
func (f *Fleet) fromCache(ctx context.Context, what string, task [32]byte, round int64, ask func(base string) (answer, error)) bool {
	base := f.cache.usable()
	if base == "" {
		return false
	}
	if _, err := ask(base); err != nil {
		f.doubt(ctx, what, task, round, err)
		return false
	}
	f.cache.good()
	return true
}

// cachedRest receives the rest of a model from the cache, as far as it has it.
func (f *Fleet) cachedRest(ctx context.Context, path string, d *download) {
	for d.received() < d.total() {
		base := f.cache.usable()
		if base == "" || d.direct {
			return
		}
		d.cached = true
		before := d.received()
		a, err := f.web.piece(ctx, base+path, d)
		if err == nil {
			err = d.came(a, before)
		}
		if err != nil {
			d.direct = true
			f.doubt(ctx, "model", [32]byte{}, 0, err)
		}
	}
}

// came checks that an answer has brought what it must. The model is begun anew if it is none.
func (d *download) came(a answer, before int64) error {
	switch {
	case a.status == statusPartialContent && d.received() > before, a.status == statusOK && d.received() == d.total():
		return nil
	case a.status == statusOK || a.status == statusPartialContent:
		n := d.received()
		d.restart()
		return client.Refuse(client.CauseModel, "%d bytes, the task's have %d", n, d.total())
	}
	return a.unexpected("model")
}

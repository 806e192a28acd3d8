package coordinator

import (
	"errors"
	"net/http"
	"sync"
)

// errCrash is the error of every operation of a crashed process.
var errCrash = errors.New("coordinator: crashed")

// stop stops a process at its At-th operation, counted from 1 over all operations: either
// before the operation has an effect, or after it had one that the process does not hear of.
// With Once the operation fails and the process lives on.
type stop struct {
	At    int
	After bool
	Once  bool
	Died  func() // called at the crash, for instance to cancel the process
	// Fails, if not nil, says which operations fail, before they have an effect, while the process lives on.
	Fails func(op string) bool

	mu   sync.Mutex
	n    int
	dead bool
	Name string // name of the operation at which it stopped
}

// do runs an operation unless the process has crashed.
func (c *stop) do(name string, f func() error) error {
	if c == nil {
		return f()
	}
	if c.Fails != nil && c.Fails(name) {
		return errCrash
	}
	c.mu.Lock()
	if c.dead {
		c.mu.Unlock()
		return errCrash
	}
	c.n++
	hit := c.n == c.At
	if hit {
		c.Name = name
		c.dead = !c.Once
	}
	c.mu.Unlock()
	if !hit {
		return f()
	}
	if c.After {
		_ = f()
	}
	if c.Died != nil && !c.Once {
		c.Died()
	}
	return errCrash
}

// hit says whether the operation was reached.
func (c *stop) hit() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.At > 0 && c.n >= c.At
}

// fail has the next operation be the one at which it stops.
func (c *stop) fail() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.At = c.n + 1
}

// transport counts and fails requests.
type transport struct {
	crash *stop
	base  http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(q *http.Request) (res *http.Response, err error) {
	failed := t.crash.do(q.Method+" "+q.URL.Path, func() error {
		res, err = t.base.RoundTrip(q)
		return err
	})
	if failed != nil && res != nil {
		res.Body.Close()
		res = nil
	}
	if failed != nil {
		return nil, failed
	}
	return res, nil
}

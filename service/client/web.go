package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// Limits of answers.
const (
	maxTask         = 2 << 20
	maxAnnouncement = 1 << 16
	maxEnrolment    = 4 << 20
	maxTaskList     = 1 << 20
	maxRefusal      = 1 << 12
)

// requestTime is the time in which a server must answer, in addition to the time that it was
// asked to wait.
const requestTime = 30 * time.Second

// web makes requests for all clients of a process.
type web struct{ Transport }

func newWeb(c JoinConfig) (w *web, err error) {
	if w = (&web{c.Transport}); c.Transport == nil {
		w.Transport, err = newTransport(c)
	}
	return w, err
}

// checkBase returns the address of a server without a slash at its end. It refuses any other text.
func checkBase(name, base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("client: %s: want an https:// address", name)
	}
	return strings.TrimSuffix(base, "/"), nil
}

// pathOf returns the path of an address, for messages.
func pathOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return ""
	}
	return u.Path
}

// answer is a response that was read completely.
type answer struct {
	status int
	body   []byte
	etag   string
}

// errTooLong is wrapped if an answer is too long.
var errTooLong = errors.New("longer than it may be")

// send makes a request whose answer the caller reads and closes.
func (w *web) send(ctx context.Context, method, url string, body []byte, head map[string]string) (*Response, error) {
	resp, err := w.Do(ctx, Request{method, url, head, body})
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return resp, nil
}

func (w *web) do(ctx context.Context, method, url string, body []byte, etag string, limit int64, wait time.Duration) (answer, error) {
	return w.doWith(ctx, method, url, nil, body, etag, limit, wait)
}

// doWith is do with further headers.
func (w *web) doWith(ctx context.Context, method, url string, further map[string]string, body []byte, etag string, limit int64, wait time.Duration) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime+wait)
	defer cancel()
	head := map[string]string{}
	if method == methodPost {
		head["Content-Type"] = "application/octet-stream"
	}
	if etag != "" {
		head["If-None-Match"] = etag
	}
	maps.Copy(head, further)
	resp, err := w.send(ctx, method, url, body, head)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	if resp.Status != statusOK {
		limit = maxRefusal
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer{}, fmt.Errorf("client: %w", err)
	}
	if int64(len(b)) > limit {
		return answer{}, fmt.Errorf("client: %s %s: answer %w (%d bytes)", method, pathOf(url), errTooLong, limit)
	}
	return answer{status: resp.Status, body: b, etag: resp.Header("ETag")}, nil
}

// reason returns the reason that a refusal names; empty if it names none that is known.
func (a answer) reason() wire.Reason {
	var refusal struct {
		Reason wire.Reason `json:"reason"`
	}
	if json.Unmarshal(a.body, &refusal) != nil {
		return ""
	}
	for _, r := range wire.Reasons() {
		if r == refusal.Reason {
			return r
		}
	}
	return ""
}

// again says whether the same request may get another answer later.
func (a answer) again() bool {
	return a.status == statusTooManyRequests || a.status >= 500
}

// unexpected is the error for a status that the protocol does not have here.
func (a answer) unexpected(what string) error {
	if r := a.reason(); r != "" {
		return fmt.Errorf("client: %s: status %d, %s", what, a.status, r)
	}
	return fmt.Errorf("client: %s: status %d", what, a.status)
}

// backoff waits longer after each try, with jitter, so that clients that failed together
// do not come back together.
type backoff struct {
	src  rng.Source
	next time.Duration
}

// Waits between tries. If there is a deadline, a wait is at most an eighth of the remaining
// time, but at least leastWait.
const (
	firstWait = 50 * time.Millisecond
	lastWait  = 5 * time.Second
	leastWait = time.Second
)

func newBackoff() *backoff { return &backoff{src: rng.Secure(), next: firstWait} }

// wait waits until the next try is due. It returns ctx's error if ctx ends first.
func (b *backoff) wait(ctx context.Context) error {
	next := b.next
	b.next = min(2*b.next, lastWait)
	if deadline, ok := ctx.Deadline(); ok {
		next = min(next, max(leastWait, time.Until(deadline)/8))
	}
	return sleep(ctx, next/2+upTo(b.src, next))
}

func (b *backoff) reset() { b.next = firstWait }

// upTo draws a time below d.
func upTo(src rng.Source, d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return time.Duration(src.Uint64() % uint64(d))
}

func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

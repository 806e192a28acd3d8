// Package endpoint is the HTTPS layer between the program's roles. It has servers and clients
// with TLS 1.3 and pinned peers, limits on bodies and rates, refusals in JSON, counts of what
// it refused, logs without clients' data, and a stop that finishes what was begun.
//
// Of the protocol it knows the reasons of refusal only.
package endpoint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"

	"github.com/riffle-dp/riffle/protocol/wire"
)

// Refusal is a refused request. It is sent over the wire and is a client's error. Detail
// names the broken rule; it never holds a client's data.
type Refusal struct {
	Reason wire.Reason `json:"reason"`
	Detail string      `json:"detail,omitempty"`
	// Code is the HTTP status; 0 stands for that of the reason.
	Code int `json:"-"`
}

// Error returns reason and detail.
func (r *Refusal) Error() string {
	if r.Detail == "" {
		return "refused: " + string(r.Reason)
	}
	return fmt.Sprintf("refused: %s: %s", r.Reason, r.Detail)
}

// status returns the HTTP status of a reason. No other code decides it.
func status(r wire.Reason) int {
	switch r {
	case wire.Malformed, wire.WrongSize, wire.WrongKey, wire.OutOfRange, wire.BadProof, wire.NoToken:
		return http.StatusBadRequest
	case wire.BadSignature, wire.Expired:
		return http.StatusUnauthorized
	case wire.NotEnrolled, wire.NotDrawn, wire.Refused:
		return http.StatusForbidden
	case wire.UnknownRound:
		return http.StatusNotFound
	case wire.SecondReport, wire.Excluded, wire.Unequal, wire.SpentToken:
		return http.StatusConflict
	case wire.OldLedger:
		return http.StatusPreconditionFailed
	case wire.Closed:
		return http.StatusGone
	case wire.TooMany:
		return http.StatusTooManyRequests
	case wire.Unavailable:
		return http.StatusServiceUnavailable
	case wire.Duplicate: // for its sender the same report again is no error
		return http.StatusNoContent
	}
	return http.StatusInternalServerError
}

// Refuse answers with a refusal.
func Refuse(w http.ResponseWriter, reason wire.Reason, detail string) {
	RefuseAs(w, &Refusal{Reason: reason, Detail: detail})
}

// RefuseAs is Refuse with a status other than the reason's own, such as 413.
func RefuseAs(w http.ResponseWriter, r *Refusal) {
	code := r.Code
	if code == 0 {
		code = status(r.Reason)
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	if code == http.StatusNoContent {
		w.WriteHeader(code)
		return
	}
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // two strings always have a JSON form
	}
	h.Set("Content-Length", strconv.Itoa(len(b)+1))
	w.WriteHeader(code)
	_, _ = w.Write(append(b, '\n')) // fails if the caller has gone
}

// ReadBody reads a request's body; most is the largest number of bytes that it may have. Its
// memory grows with the bytes that arrive, not with the announced length. If it cannot read the
// body it answers with a refusal and returns false.
func ReadBody(w http.ResponseWriter, r *http.Request, most int64) ([]byte, bool) {
	if r.ContentLength > most {
		RefuseAs(w, tooLarge(most))
		return nil, false
	}
	// Reading to the end also lifts the body's deadline.
	b, err := io.ReadAll(io.LimitReader(r.Body, most+1))
	if limit := (*http.MaxBytesError)(nil); errors.As(err, &limit) {
		RefuseAs(w, tooLarge(limit.Limit))
		return nil, false
	}
	if err != nil {
		Refuse(w, wire.Unavailable, "the body did not arrive whole")
		return nil, false
	}
	if int64(len(b)) > most {
		RefuseAs(w, tooLarge(most))
		return nil, false
	}
	return b, true
}

func tooLarge(most int64) *Refusal {
	return &Refusal{wire.TooMany, fmt.Sprintf("body above %d bytes", most), http.StatusRequestEntityTooLarge}
}

// Do sends a request and returns the answer's body of at most limit bytes, and its status,
// which is 2xx. Any other status is an error; a refusal is a *Refusal.
func Do(ctx context.Context, c *http.Client, method, address string, body []byte, limit int64) ([]byte, int, error) {
	req, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return nil, 0, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	res, err := c.Do(req)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	if err := check(res); err != nil {
		return nil, res.StatusCode, fmt.Errorf("%s %s: %w", method, req.URL.Path, err)
	}
	out, err := io.ReadAll(io.LimitReader(res.Body, limit+1))
	if err != nil {
		return nil, res.StatusCode, err
	}
	if int64(len(out)) > limit {
		return nil, res.StatusCode, fmt.Errorf("%s %s: answer above %d bytes", method, req.URL.Path, limit)
	}
	return out, res.StatusCode, nil
}

// maxRefusal bounds how much is read of an answer that reports a failure.
const maxRefusal = 4 << 10

// check returns nil for a 2xx answer. Otherwise it closes the body and returns the refusal in
// it. An answer without a refusal of this protocol, such as a proxy's, counts as Unavailable
// if it is 5xx or 429, otherwise as Malformed.
func check(resp *http.Response) error {
	if resp.StatusCode/100 == 2 {
		return nil
	}
	defer resp.Body.Close()
	r := &Refusal{Code: resp.StatusCode}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if kind == "application/json" && err == nil && json.Unmarshal(b, r) == nil && known[r.Reason] {
		return r
	}
	*r = Refusal{Reason: wire.Malformed, Detail: resp.Status, Code: resp.StatusCode}
	if resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests {
		r.Reason = wire.Unavailable
	}
	return r
}

var known = func() map[wire.Reason]bool {
	m := map[wire.Reason]bool{}
	for _, r := range wire.Reasons() {
		m[r] = true
	}
	return m
}()

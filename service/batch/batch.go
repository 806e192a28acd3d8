// Package batch is the shuffler's client for coordinator and second aggregator: it fetches the
// enrolment, the signed statement on a closed round (wire.RoundClosed), and the closed batch
// itself. It checks all of it against the key of the shuffler's operator before anyone acts on
// it: a count or a chunk that differs from what was signed is an error. It is for the program.
package batch

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// ErrLie is wrapped if the shuffler's answer differs from what its operator signed, or cannot
// be true. Nothing may be done with such an answer.
var ErrLie = errors.New("batch: the shuffler's answer is not what it must be")

// IsRefused returns the refusal in err if the same request would be refused again, otherwise
// nil.
func IsRefused(err error) *endpoint.Refusal {
	var r *endpoint.Refusal
	if !errors.As(err, &r) || r.Code >= 500 || r.Code == http.StatusTooManyRequests || r.Code == http.StatusRequestTimeout {
		return nil
	}
	return r
}

// Source is a shuffler to fetch from. All fields but Registrar are required.
type Source struct {
	URL    string            // without a path, or with a path that prefixes all requests
	Key    ed25519.PublicKey // the operator's key, pinned
	Client *http.Client      // shows our certificate and checks the shuffler's
	// Registrar is the key, pinned, that must have signed the clients of an enrolment; nil: there is
	// no registrar.
	Registrar ed25519.PublicKey
}

// Check returns an error unless the source can be used.
func (s Source) Check() error {
	if len(s.Key) != ed25519.PublicKeySize || s.Client == nil {
		return errors.New("batch: the shuffler's operator key and a client are required")
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return fmt.Errorf("batch: %q is not an address of a shuffler", s.URL)
	}
	return nil
}

// maxEmpty bounds how much is read of an answer without content.
const maxEmpty = 4 << 10

func (s Source) do(ctx context.Context, method, path string, body []byte, limit int64) ([]byte, int, error) {
	out, status, err := endpoint.Do(ctx, s.Client, method, strings.TrimSuffix(s.URL, "/")+path, body, limit)
	if err != nil {
		return nil, status, fmt.Errorf("shuffler: %w", err)
	}
	return out, status, nil
}

// maxMessage bounds enrolments and signed statements on closed rounds.
const maxMessage = 1 << 20

// Enrolment fetches the current enrolment, signed and of the right population.
func (s Source) Enrolment(ctx context.Context, p wire.ID, now time.Time) (wire.Enrolment, error) {
	b, _, err := s.do(ctx, http.MethodGet, "/v1/enrolment", nil, maxMessage)
	if err != nil {
		return wire.Enrolment{}, err
	}
	message, err := wire.Verify(s.Key, wire.LabelEnrolment, b)
	if err != nil {
		return wire.Enrolment{}, fmt.Errorf("%w: enrolment: %w", ErrLie, err)
	}
	e, err := wire.Decode[wire.Enrolment](message)
	if err != nil {
		return wire.Enrolment{}, fmt.Errorf("%w: enrolment: %w", ErrLie, err)
	}
	if e.Population != p {
		return wire.Enrolment{}, fmt.Errorf("%w: enrolment of population %x, want %x", ErrLie, e.Population, p)
	}
	if s.Registrar != nil {
		if _, err := e.CheckRoster(s.Registrar); err != nil {
			return wire.Enrolment{}, fmt.Errorf("%w: enrolment %d: %w", ErrLie, e.Serial, err)
		}
	}
	if t := now.Unix(); t < e.From || t >= e.To {
		return wire.Enrolment{}, fmt.Errorf("%w: enrolment %d holds from %d to %d, it is %d", ErrLie, e.Serial, e.From, e.To, t)
	}
	return e, nil
}

// Open posts a signed announcement. If it returns nil the round is durable at the shuffler.
func (s Source) Open(ctx context.Context, signed []byte) error {
	_, _, err := s.do(ctx, http.MethodPost, "/v1/rounds", signed, maxEmpty)
	return err
}

func roundPath(announcement [32]byte) string {
	return "/v1/rounds/" + hex.EncodeToString(announcement[:])
}

// Closed asks for the signed statement on a closed round and waits for at most wait. It returns
// nil while the round is open.
func (s Source) Closed(ctx context.Context, a *wire.Announcement, wait time.Duration) (signed []byte, err error) {
	path := roundPath(wire.Digest(*a)) + "/closed?wait=" + strconv.FormatInt(int64(wait/time.Second), 10)
	b, status, err := s.do(ctx, http.MethodGet, path, nil, maxMessage)
	if err != nil {
		return nil, err
	}
	if status == http.StatusNoContent {
		return nil, nil
	}
	if _, err := s.CheckClosed(a, b); err != nil {
		return nil, err
	}
	return b, nil
}

// CheckClosed decodes the signed statement on a closed round. It returns an error that wraps
// ErrLie unless the signature holds and the statement can be true.
func (s Source) CheckClosed(a *wire.Announcement, signed []byte) (wire.RoundClosed, error) {
	lie := func(format string, args ...any) (wire.RoundClosed, error) {
		return wire.RoundClosed{}, fmt.Errorf("%w: round %d: %w", ErrLie, a.Round, fmt.Errorf(format, args...))
	}
	message, err := wire.Verify(s.Key, wire.LabelClosed, signed)
	if err != nil {
		return lie("%w", err)
	}
	c, err := wire.Decode[wire.RoundClosed](message)
	switch digest := wire.Digest(*a); {
	case err != nil:
		return lie("%w", err)
	case c.Announcement != digest:
		return lie("closed for announcement %x, not %x", c.Announcement[:8], digest[:8])
	case c.Round != a.Round:
		return lie("closed as round %d", c.Round)
	case c.Void && c.Chunks != 0:
		return lie("void with %d chunks", c.Chunks)
	case c.Void:
		return c, nil
	case c.Reports < a.MinReports || c.Reports > a.Population:
		return lie("%d reports, must lie between n-min = %d and n = %d", c.Reports, a.MinReports, a.Population)
	case c.Chunks < 1 || c.Chunks > c.Reports*a.PerClient():
		return lie("%d chunks of %d reports of %d messages", c.Chunks, c.Reports, a.PerClient())
	case (a.ShareBytes != 0) != (c.Shares != [32]byte{}):
		return lie("shares of %d bytes with digest %x", a.ShareBytes, c.Shares[:8])
	}
	return c, nil
}

// Destroy tells the shuffler that a round is over; the shuffler then destroys everything of
// it.
func (s Source) Destroy(ctx context.Context, announcement [32]byte) error {
	_, _, err := s.do(ctx, http.MethodDelete, roundPath(announcement), nil, maxEmpty)
	if r := IsRefused(err); r != nil && r.Code == http.StatusNotFound {
		return nil
	}
	return err
}

// Ledger tells the shuffler by a signed wire.HeadStatement how far the ledger was written. It
// returns the furthest head that the shuffler was ever told.
func (s Source) Ledger(ctx context.Context, signed []byte) (wire.Head, error) {
	b, _, err := s.do(ctx, http.MethodPost, "/v1/ledger", signed, maxEmpty)
	if err != nil {
		return wire.Head{}, err
	}
	m, err := wire.Decode[wire.HeadStatement](b)
	if err != nil {
		return wire.Head{}, fmt.Errorf("%w: ledger: %w", ErrLie, err)
	}
	return m.Head, nil
}

package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// enrolled caches the enrolments that were fetched last.
type enrolled struct {
	turn  chan struct{} // filled by who uses the fields, also while it fetches an enrolment
	last  wire.Enrolment
	etag  string
	some  bool
	stale bool // whether the relay's gateway did not know its key
	// before are the enrolments before last, which rounds that are open may still count on.
	before []wire.Enrolment
	// rosters are what was seen of the registrar.
	rosters seenRosters
}

// lock waits for the turn.
func (e *enrolled) lock(ctx context.Context) error {
	select {
	case e.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (e *enrolled) unlock() { <-e.turn }

// mostEnrolments is how many enrolments before the last are kept.
const mostEnrolments = 8

// enrolment returns the enrolment that a round counts on: a cached one if it has that digest,
// otherwise a newly fetched one. Every client asks for it, whatever it decides later. If there is a
// registrar, the roster may have changed since the round was announced: then the shuffler is asked
// for the round's.
func (f *Fleet) enrolment(ctx context.Context, ann wire.Announcement) (wire.Enrolment, error) {
	e, digest := &f.enrolled, ann.Enrolment
	if err := e.lock(ctx); err != nil {
		return wire.Enrolment{}, err
	}
	defer e.unlock()
	if e.some && wire.Digest(e.last) == digest {
		return e.last, nil
	}
	for _, old := range e.before {
		if wire.Digest(old) != digest {
			continue
		}
		if f.config.RegistrarKey != nil {
			if err := f.checkOpened(old, ann.Opens); err != nil {
				return wire.Enrolment{}, err
			}
		}
		return old, nil
	}
	next, err := f.latestEnrolment(ctx)
	if err != nil {
		return wire.Enrolment{}, err
	}
	if wire.Digest(next) == digest {
		return next, nil
	}
	other := client.Refuse(client.CauseEnrolment, "announced for another enrolment than the shuffler's")
	if f.config.RegistrarKey == nil {
		return wire.Enrolment{}, other
	}
	a, err := f.web.do(ctx, methodGet, fmt.Sprintf("%s/v1/enrolment?round=%x", f.toShuffler(), wire.Digest(ann)), nil, "", maxEnrolment, 0)
	if err != nil {
		return wire.Enrolment{}, refuseAnswer(err)
	}
	if a.status == statusNotFound || a.status == statusGone {
		return wire.Enrolment{}, other
	}
	if next, err = f.readEnrolment(a); err != nil {
		return wire.Enrolment{}, err
	}
	if wire.Digest(next) != digest {
		return wire.Enrolment{}, other
	}
	if err := f.checkOpened(next, ann.Opens); err != nil {
		return wire.Enrolment{}, err
	}
	e.keep(next)
	return next, nil
}

// keep adds an enrolment to those before the last.
func (e *enrolled) keep(old wire.Enrolment) {
	e.before = append(e.before, old)
	e.before = e.before[max(0, len(e.before)-mostEnrolments):]
}

// readEnrolment checks an answer's signature.
func (f *Fleet) readEnrolment(a answer) (next wire.Enrolment, err error) {
	if a.status != statusOK {
		return next, a.unexpected("enrolment")
	}
	message, err := wire.Verify(f.config.ShufflerKey, wire.LabelEnrolment, a.body)
	if err != nil {
		return next, client.Refuse(client.CauseSignature, "enrolment: %v", err)
	}
	if next, err = wire.Decode[wire.Enrolment](message); err != nil {
		return next, client.Refuse(client.CauseMessage, "enrolment: %v", err)
	}
	return next, nil
}

// latestEnrolment asks for the enrolment. The caller has the turn.
func (f *Fleet) latestEnrolment(ctx context.Context) (wire.Enrolment, error) {
	e := &f.enrolled
	a, err := f.web.do(ctx, methodGet, f.toShuffler()+"/v1/enrolment", nil, e.etag, maxEnrolment, 0)
	switch {
	case err != nil:
		return wire.Enrolment{}, refuseAnswer(err)
	case a.status == statusNotModified && e.some:
		return e.last, nil
	}
	next, err := f.readEnrolment(a)
	if err != nil {
		return wire.Enrolment{}, err
	}
	if e.some && next.Population == e.last.Population && next.Serial < e.last.Serial {
		return wire.Enrolment{}, client.Refuse(client.CauseEnrolment, "serial %d after %d", next.Serial, e.last.Serial)
	}
	if f.config.RegistrarKey != nil {
		if err := f.checkRoster(next); err != nil {
			return wire.Enrolment{}, err
		}
	}
	if e.some {
		e.keep(e.last)
	}
	e.last, e.etag, e.some, e.stale = next, a.etag, true, false
	return next, nil
}

// statement returns the registrar's statement in an enrolment.
func (f *Fleet) statement(e wire.Enrolment) (wire.Roster, error) {
	r, err := e.CheckRoster(f.config.RegistrarKey)
	switch {
	case errors.Is(err, wire.ErrSignature):
		return r, client.Refuse(client.CauseSignature, "roster: %v", err)
	case err != nil:
		return r, client.Refuse(client.CauseEnrolment, "%v", err)
	}
	return r, nil
}

// checkRoster refuses an enrolment whose clients the registrar has not signed, or has signed
// before a roster that this process, or an earlier one, has seen. It notes a newer roster.
func (f *Fleet) checkRoster(next wire.Enrolment) error {
	r, err := f.statement(next)
	if err != nil {
		return err
	}
	e := &f.enrolled
	if e.rosters.population != r.Population {
		if e.rosters, err = loadRosters(f.config.Store, r.Population); err != nil {
			return err
		}
	}
	now := seenRoster{r.Serial, fmt.Sprintf("%x", wire.Digest(r)), r.From}
	newest := e.rosters.newest()
	switch {
	case now == newest:
		return nil
	case r.Serial < newest.Serial:
		return client.Refuse(client.CauseEnrolment, "roster %d after roster %d: it is an old one", r.Serial, newest.Serial)
	case r.Serial == newest.Serial:
		return client.Refuse(client.CauseEnrolment, "two rosters %d: the registrar has signed both", r.Serial)
	}
	seen := seenRosters{rostersFormat, append(slices.Clone(e.rosters.Seen), now), r.Population}
	seen.Seen = seen.Seen[max(0, len(seen.Seen)-mostRosters):]
	if err := seen.save(f.config.Store); err != nil {
		return err
	}
	e.rosters = seen
	return nil
}

// checkOpened refuses the enrolment of a round, not the newest one, unless its roster was the newest
// that this client knows of when the round was opened (Unix milliseconds).
func (f *Fleet) checkOpened(old wire.Enrolment, opens int64) error {
	r, err := f.statement(old)
	if err != nil {
		return err
	}
	seen := f.enrolled.rosters
	if seen.population != r.Population {
		return client.Refuse(client.CauseEnrolment, "roster of another population")
	}
	at := time.UnixMilli(opens).Add(-f.config.Policy.Skew).Unix()
	for i, s := range seen.Seen {
		switch {
		case s.Serial < r.Serial:
			continue
		case s.Serial == r.Serial && s.Digest != fmt.Sprintf("%x", wire.Digest(r)):
			return client.Refuse(client.CauseEnrolment, "two rosters %d: the registrar has signed both", r.Serial)
		case s.Serial > r.Serial && s.From < at:
			return client.Refuse(client.CauseEnrolment, "roster %d, but roster %d was signed before the round was opened", r.Serial, s.Serial)
		case s.Serial > r.Serial && i == 0 && len(seen.Seen) == mostRosters:
			return client.Refuse(client.CauseEnrolment, "roster %d is too old to tell what came after it", r.Serial)
		}
	}
	return nil
}

// seenRosters are the registrar's newest statements that a population's client has seen, in a file
// beside the ledger. It is durable before a statement is used.
type seenRosters struct {
	Format     int          `json:"format"`
	Seen       []seenRoster `json:"seen"` // ascending serials
	population wire.ID
}

type seenRoster struct {
	Serial int64  `json:"serial"`
	Digest string `json:"digest"`
	From   int64  `json:"from"` // when it was signed
}

const (
	rostersFormat = 1
	mostRosters   = 256 // statements that are kept
)

func (s seenRosters) newest() seenRoster {
	if len(s.Seen) == 0 {
		return seenRoster{}
	}
	return s.Seen[len(s.Seen)-1]
}

func rosterFile(p wire.ID) string { return fmt.Sprintf("roster-%x.json", p) }

func (s seenRosters) save(store Store) error {
	b, err := json.Marshal(s)
	if err == nil {
		err = store.Write(rosterFile(s.population), append(b, '\n'))
	}
	if err != nil {
		return fmt.Errorf("client: the newest roster is not stored: %w", err)
	}
	return nil
}

// loadRosters reads the file; without one no roster was seen yet.
func loadRosters(store Store, p wire.ID) (s seenRosters, err error) {
	b, err := store.Read(rosterFile(p))
	if errors.Is(err, fs.ErrNotExist) {
		return seenRosters{population: p}, nil
	}
	if err != nil {
		return s, fmt.Errorf("client: %w", err)
	}
	if err := json.Unmarshal(b, &s); err != nil || s.Format != rostersFormat || len(s.Seen) == 0 {
		return seenRosters{}, fmt.Errorf("client: %s does not say which rosters were seen", store.Path(rosterFile(p)))
	}
	s.population = p
	return s, nil
}

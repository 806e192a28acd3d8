package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

const (
	keyRoster    = "roster"
	rosterFormat = 1
)

// notedRoster is the value of the key roster: the registrar's newest statement that a round was
// announced with, or was about to be.
type notedRoster struct {
	Format int   `json:"format"`
	Serial int64 `json:"serial"`
	Digest hash  `json:"digest"`
}

// errOldRoster is wrapped if an enrolment counts on a roster that is older than, or contradicts,
// one that was seen before.
var errOldRoster = errors.New("coordinator: not the registrar's newest roster")

// noteRoster refuses an enrolment whose roster is older than one that this coordinator, or another
// one on the store, has seen. It stores a newer one before any round counts on it.
func (s *Service) noteRoster(ctx context.Context, e *wire.Enrolment) error {
	registrar := s.config.Shuffler.Registrar
	if registrar == nil {
		return nil
	}
	r, err := e.CheckRoster(registrar)
	if err != nil {
		return err
	}
	now := notedRoster{rosterFormat, r.Serial, wire.Digest(r)}
	for range 100 {
		var seen notedRoster
		entry, err := s.config.Store.Get(ctx, keyRoster)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		default:
			if err := document.Decode(entry.Value, rosterFormat, &seen); err != nil {
				return fatal("the roster that was seen: %w", err)
			}
		}
		switch {
		case now == seen:
			return nil
		case r.Serial < seen.Serial:
			return fmt.Errorf("%w: roster %d after roster %d", errOldRoster, r.Serial, seen.Serial)
		case r.Serial == seen.Serial:
			return fmt.Errorf("%w: the registrar has signed two rosters %d", errOldRoster, r.Serial)
		}
		b, err := json.Marshal(now)
		if err != nil {
			return fmt.Errorf("coordinator: %v", err)
		}
		if _, err := s.config.Store.Put(ctx, keyRoster, b, entry.Revision); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return errors.New("coordinator: the roster that was seen is being changed by others")
}

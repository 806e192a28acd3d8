package registrar

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// Check checks a registrar's store, which must not be in use. It calls problem with each problem
// and the key where it is. marks is the mark of the tokens that were granted; nil: there is none. It returns the number of enrolled clients.
func Check(ctx context.Context, s *store.Store, marks mark.Keeper, key ed25519.PublicKey, p wire.ID, problem func(where, format string, args ...any)) (clients int64, err error) {
	if err := checkTokens(ctx, s, marks, p, problem); err != nil {
		return 0, err
	}
	e, err := s.Get(ctx, keyRoster)
	if errors.Is(err, store.ErrNotFound) {
		return 0, nil // nobody was enrolled yet
	}
	if err != nil {
		return 0, err
	}
	st, err := readState(ctx, s, key, p, e)
	if err != nil {
		problem(keyRoster, "%v", err)
		return 0, ctx.Err()
	}
	return st.statement.Clients, nil
}

// checkTokens checks the chain of grants, and that every epoch that has keys has those of its
// record.
func checkTokens(ctx context.Context, s storage, marks mark.Keeper, p wire.ID, problem func(where, format string, args ...any)) error {
	list := newGrants(s, marks)
	if _, err := list.All(ctx); err != nil {
		problem("ledger", "%v", err)
		return ctx.Err()
	}
	if err := list.Lag(); err != nil {
		problem("ledger", "%v", err)
	}
	names, err := s.List(ctx, store.Values, epochPrefix)
	if err != nil {
		return err
	}
	reader := &Service{config: Config{Store: s, Population: p, Key: ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize))}, tokens: newIssuing(s, nil)}
	for _, name := range names {
		id, ok := parseID(name[len(epochPrefix):])
		if !ok {
			problem(name, "names no epoch")
			continue
		}
		if _, err := reader.epoch(ctx, id, false); err != nil && !errors.Is(err, errMaking) {
			problem(name, "%v", err)
		}
	}
	return ctx.Err()
}

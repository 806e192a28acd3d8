package operate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/coordinator"
	"github.com/riffle-dp/riffle/service/mark"
	"github.com/riffle-dp/riffle/service/store"
)

// Roles that can be run as processes.
const (
	RoleShuffler    = "shuffler"
	RoleCoordinator = "coordinator"
	RoleAggregator  = "aggregator"
	RoleRegistrar   = "registrar"
	RoleRelay       = "relay"  // has no store, so Init makes nothing for it
	RoleWorker      = "worker" // has no store either
	RoleAll         = "all"
	RoleClient      = "client"
)

// Init makes a role's empty store. It refuses if there is one: a new ledger would be a new
// budget.
func Init(ctx context.Context, role, path string) error {
	switch role {
	case RoleShuffler:
		c, err := config.Load[config.Shuffler](path)
		if err != nil {
			return err
		}
		return store.Init(ctx, c.Store)
	case RoleAggregator:
		c, err := config.Load[config.Aggregator](path)
		if err != nil {
			return err
		}
		if c.Mark == "" {
			return store.Init(ctx, c.Store)
		}
		return initMarked(ctx, c.Store, c.Mark, func() error { return mark.File(c.Mark).Save(mark.Mark{}) })
	case RoleRelay, RoleWorker:
		return config.Errorf("a %s keeps nothing: there is nothing to make", role)
	case RoleRegistrar:
		c, err := config.Load[config.Registrar](path)
		if err != nil {
			return err
		}
		if c.Mark == "" {
			return store.Init(ctx, c.Store)
		}
		return initMarked(ctx, c.Store, c.Mark, func() error { return mark.File(c.Mark).Save(mark.Mark{}) })
	case RoleCoordinator:
		c, err := config.Load[config.Coordinator](path)
		if err != nil {
			return err
		}
		return initMarked(ctx, c.Store, c.Mark, func() error { return coordinator.MarkFile(c.Mark).Save(ledger.Mark{}) })
	case RoleClient:
		c, err := config.Load[config.Client](path)
		if err != nil {
			return err
		}
		if _, err := os.Lstat(filepath.Join(c.Dir, "ledger")); err == nil {
			return fmt.Errorf("operate: %s: there is a ledger already: %w", c.Dir, store.ErrExists)
		}
		return client.CreateLedger(c.Dir)
	case RoleAll:
		c, err := config.Load[config.All](path)
		if err != nil {
			return err
		}
		for _, r := range rolesOf(c) {
			if err := Init(ctx, r.role, r.path); err != nil {
				return fmt.Errorf("role %s: %w", r.role, err)
			}
		}
		return nil
	}
	return config.Errorf("no role %q", role)
}

// initMarked makes the mark after the store. A store without a mark or a mark without a
// store is refused at the start, with a message that says what to do.
func initMarked(ctx context.Context, c store.Config, path string, save func() error) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("operate: the high-water mark %s exists already: %w", path, store.ErrExists)
	}
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	err := store.Init(ctx, c)
	if errors.Is(err, store.ErrExists) {
		// An earlier init may have ended before it made the mark, or the aggregator's store is older
		// than marks: the ledger is empty then.
		err = checkEmpty(ctx, c, err)
	}
	if err != nil {
		return err
	}
	return save()
}

func checkEmpty(ctx context.Context, c store.Config, exists error) error {
	s, err := store.Open(ctx, c)
	if err != nil {
		return errors.Join(exists, err)
	}
	defer s.Close()
	if n, err := s.LastEntry(ctx); err != nil || n != 0 {
		return errors.Join(exists, err)
	}
	return nil
}

type roleConfig struct{ role, path string }

// rolesOf lists the roles of a single operator's process.
func rolesOf(c config.All) []roleConfig {
	out := []roleConfig{{RoleShuffler, c.Shuffler}, {RoleCoordinator, c.Coordinator}}
	if c.Aggregator != "" {
		out = append(out, roleConfig{RoleAggregator, c.Aggregator})
	}
	if c.Registrar != "" {
		out = append(out, roleConfig{RoleRegistrar, c.Registrar})
	}
	return out
}

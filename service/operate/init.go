package operate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/riffle-dp/riffle/internal/durable"
	"github.com/riffle-dp/riffle/protocol/ledger"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/config"
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
		return initMarked(ctx, c.Store, c.Mark, func() error {
			_, err := saveMark(ctx, c, ledger.Mark{}, nil, nil, nil)
			return err
		})
	case RoleClient:
		c, err := config.Load[config.Client](path)
		if err != nil {
			return err
		}
		err = client.CreateLedger(c.Dir)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("operate: %s: there is a ledger already: %w", c.Dir, store.ErrExists)
		}
		return err
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
	exists := fmt.Errorf("operate: the high-water mark %s exists already: %w", path, store.ErrExists)
	if _, err := os.Lstat(path); err == nil {
		return exists
	}
	if err := durable.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("operate: %w", err)
	}
	// An earlier init may have ended before it made the mark, or the aggregator's store is older
	// than marks: the ledger is empty then.
	made := store.Init(ctx, c)
	if made != nil && !errors.Is(made, store.ErrExists) {
		return made
	}
	// As long as the store is open here no process charges anything, so the ledger that is empty stays
	// so until it is marked. In a cluster, which has no such lock, only one init makes the mark.
	s, err := store.Open(ctx, c)
	if err != nil {
		return errors.Join(made, err)
	}
	defer s.Close()
	if n, err := s.LastEntry(ctx); err != nil || n != 0 {
		if err == nil {
			err = fmt.Errorf("operate: the ledger exists already, has %d entries, and no mark counts them: %w", n, store.ErrExists)
		}
		return err
	}
	if err = save(); errors.Is(err, os.ErrExist) {
		return exists
	}
	return err
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

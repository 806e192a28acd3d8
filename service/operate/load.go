package operate

import (
	"context"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"os"

	"github.com/riffle-dp/riffle/service/config"
	"github.com/riffle-dp/riffle/service/load"
)

// Load loads the deployment of a clients' configuration with its credentials, in one task, and
// returns what was measured, also with an error. Load's Join and Credentials follow from the
// configuration. Clients with a ledger are refused: it would not hear of these reports, and
// their reports would not be their data's.
func Load(ctx context.Context, path, task string, l load.Config) (*load.Result, error) {
	c, err := config.Load[config.Client](path)
	if err != nil {
		return nil, err
	}
	if b, err := hex.DecodeString(task); err != nil || len(b) != 32 {
		return nil, config.Errorf("task %q must be 64 hex digits", task)
	}
	if _, err := os.Lstat(c.Dir); !errors.Is(err, fs.ErrNotExist) {
		return nil, config.Errorf("dir: %s is there: a load is no part of clients who have a ledger. Give it credentials of its own, and a dir: that does not exist", c.Dir)
	}
	c.Tasks = []string{task}
	join, members, err := joinConfig(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, err
	}
	l.Join = join
	for _, m := range members {
		l.Credentials = append(l.Credentials, m.Credential)
	}
	return load.Run(ctx, l)
}

package operate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	pure "github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// causes logs what happens to clients: a line when a cause first occurs, for whichever
// client and in whatever round, and a line with a count of its repetitions every hour and
// at the end.
type causes struct {
	log *slog.Logger

	mu   sync.Mutex
	seen map[string]*cause
}

type cause struct {
	level slog.Level
	what  string
	task  string
	error string
	times int64 // how often it occurred since it was logged
	since time.Time
}

const (
	// A cause that goes on is logged again after sayAgain. At most mostCauses are told
	// apart.
	sayAgain   = time.Hour
	mostCauses = 1000
)

func newCauses(log *slog.Logger) *causes { return &causes{log: log, seen: map[string]*cause{}} }

// told counts a notice and may log it. What a single client does without trouble goes to
// the debug log only, which stays on its machine and names no client either.
func (c *causes) told(n client.Notice, now time.Time) {
	args := []any{"round", n.Round}
	task := ""
	if n.Task != ([32]byte{}) {
		task = fmt.Sprintf("%x", n.Task[:8])
		args = append(args, "task", task)
	}
	if n.Err != nil {
		args = append(args, "error", n.Err)
	}
	var level slog.Level
	switch n.What {
	case client.Agreed, client.Ended:
		c.log.Info(string(n.What), args...)
		return
	case client.Declined, client.Lost, client.Missing, client.Half, client.Unfit, client.Untold:
		level = slog.LevelWarn
	case client.Compared:
		level = slog.LevelInfo
	case client.Retrying:
		level = slog.LevelInfo
	default:
		if n.Err == nil {
			c.log.Debug(string(n.What), args...)
			return
		}
		level = slog.LevelInfo
	}
	why := ""
	if refused := (*pure.Refused)(nil); errors.As(n.Err, &refused) {
		why = string(refused.Cause)
	} else if n.Err != nil {
		why = endpoint.Cause(n.Err)
	}
	key := fmt.Sprint(n.What, " ", task, " ", why)
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.seen) >= mostCauses && c.seen[key] == nil {
		key, why = "other", "other causes"
	}
	met := c.seen[key]
	switch {
	case met == nil:
		c.seen[key] = &cause{level: level, what: n.What, task: task, error: why, since: now}
		c.log.Log(context.Background(), level, string(n.What), args...)
	case now.Sub(met.since) >= sayAgain:
		met.times++
		c.again(met, now)
	default:
		met.times++
	}
}

// again logs how often a cause occurred since its last line.
func (c *causes) again(met *cause, now time.Time) {
	if met.times > 0 {
		c.log.Log(context.Background(), met.level, "again: "+string(met.what), "cause", met.error, "task", met.task, "times", met.times)
	}
	met.times, met.since = 0, now
}

// end logs the counts that were not logged yet.
func (c *causes) end(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(c.seen)) {
		c.again(c.seen[key], now)
	}
}

package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/wire"
)

// refuseAnswer makes a refusal of an error that a retry would not mend.
func refuseAnswer(err error) error {
	if errors.Is(err, errTooLong) {
		return client.Refuse(client.CauseMessage, "%v", err)
	}
	return err
}

// fromCoordinator gets what is at a path of the coordinators' addresses: see askCoordinators.
func (f *Fleet) fromCoordinator(ctx context.Context, at *atomic.Int32, path string, limit int64, wait time.Duration) (a answer, err error) {
	return f.askCoordinators(ctx, at, func(base string) (answer, error) {
		return f.web.do(ctx, methodGet, base+path, nil, "", limit, wait)
	})
}

// askCoordinators asks the coordinators one after the other, beginning with number at,
// until one answers; at is then that one's number. A coordinator that cannot be reached,
// does not lead the task or does not know it yet counts as no answer.
func (f *Fleet) askCoordinators(ctx context.Context, at *atomic.Int32, ask func(base string) (answer, error)) (a answer, err error) {
	first := int(at.Load())
	for i := range f.coordinators {
		j := (first + i) % len(f.coordinators)
		next, failed := ask(f.coordinators[j])
		if failed == nil && (next.status == statusOK || next.status == statusPartialContent || next.status == statusNoContent || next.status == statusGone) {
			at.Store(int32(j))
			return next, nil
		}
		if i == 0 || err != nil && failed == nil { // a server's refusal says more than a failed connection
			a, err = next, failed
		}
		if ctx.Err() != nil {
			break
		}
	}
	return a, err
}

// fetchTasks lists the coordinator's tasks.
func (f *Fleet) fetchTasks(ctx context.Context) ([][32]byte, error) {
	a, err := f.fromCoordinator(ctx, &f.answered, "/v1/tasks", maxTaskList, 0)
	if err != nil {
		return nil, err
	}
	if a.status != statusOK {
		return nil, a.unexpected("tasks")
	}
	var out [][32]byte
	for line := range strings.Lines(string(a.body)) {
		raw, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil || len(raw) != 32 {
			return nil, errors.New("client: the list of tasks is malformed")
		}
		out = append(out, [32]byte(raw))
	}
	return out, nil
}

func taskPath(id [32]byte) string { return fmt.Sprintf("/v1/tasks/%x", id) }

// fetchTask returns the task with a digest, signed by the coordinator.
func (f *Fleet) fetchTask(ctx context.Context, id [32]byte) (wire.Task, error) {
	var task wire.Task
	if f.fromCache(ctx, "task", id, 0, func(base string) (a answer, err error) {
		if a, err = f.web.do(ctx, methodGet, base+taskPath(id), nil, "", maxTask, 0); err == nil {
			task, err = f.readTask(a, id)
		}
		return a, err
	}) {
		return task, nil
	}
	a, err := f.fromCoordinator(ctx, &f.answered, taskPath(id), maxTask, 0)
	if err != nil {
		return wire.Task{}, refuseAnswer(err)
	}
	return f.readTask(a, id)
}

// readTask checks an answer that must be the task with a digest.
func (f *Fleet) readTask(a answer, id [32]byte) (wire.Task, error) {
	if a.status != statusOK {
		return wire.Task{}, a.unexpected("task")
	}
	message, err := wire.Verify(f.config.CoordinatorKey, wire.LabelTask, a.body)
	if err != nil {
		return wire.Task{}, client.Refuse(client.CauseSignature, "%v", err)
	}
	task, err := wire.Decode[wire.Task](message)
	if err != nil {
		return wire.Task{}, client.Refuse(client.CauseMessage, "%v", err)
	}
	if wire.Digest(task) != id {
		return wire.Task{}, client.Refuse(client.CauseTask, "the coordinator has another one under its name")
	}
	return task, nil
}

// errEnded says that a task has no more rounds.
var errEnded = errors.New("client: the task has ended")

func announcementPath(task [32]byte, after int64, wait time.Duration) string {
	return fmt.Sprintf("%s/announcement?after=%d&wait=%d", taskPath(task), after, wait/time.Second)
}

// fetchAnnouncement waits for the announcement of a round after the given one. ok is
// false if there is none yet. leader is the number of the coordinator that led the task
// last.
func (f *Fleet) fetchAnnouncement(ctx context.Context, leader *atomic.Int32, task [32]byte, after int64, wait time.Duration) (ann wire.Announcement, ok bool, err error) {
	a, err := f.fromCoordinator(ctx, leader, announcementPath(task, after, wait), maxAnnouncement, wait)
	if err != nil {
		return ann, false, refuseAnswer(err)
	}
	return f.readAnnouncement(a)
}

// readAnnouncement checks an answer that must be an announcement, or say that there is none.
func (f *Fleet) readAnnouncement(a answer) (ann wire.Announcement, ok bool, err error) {
	switch a.status {
	case statusOK:
	case statusNoContent:
		return ann, false, nil
	case statusGone:
		return ann, false, errEnded
	default:
		return ann, false, a.unexpected("announcement")
	}
	message, err := wire.Verify(f.config.CoordinatorKey, wire.LabelAnnouncement, a.body)
	if err != nil {
		return ann, false, client.Refuse(client.CauseSignature, "%v", err)
	}
	if ann, err = wire.Decode[wire.Announcement](message); err != nil {
		return ann, false, client.Refuse(client.CauseMessage, "%v", err)
	}
	return ann, true, nil
}

package client

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
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
		return f.web.do(ctx, http.MethodGet, base+path, nil, "", limit, wait)
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
		if failed == nil && (next.status == http.StatusOK || next.status == http.StatusPartialContent || next.status == http.StatusNoContent || next.status == http.StatusGone) {
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
	if a.status != http.StatusOK {
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

// fetchTask returns the task with a digest, signed by the coordinator.
func (f *Fleet) fetchTask(ctx context.Context, id [32]byte) (wire.Task, error) {
	a, err := f.fromCoordinator(ctx, &f.answered, fmt.Sprintf("/v1/tasks/%x", id), maxTask, 0)
	if err != nil {
		return wire.Task{}, refuseAnswer(err)
	}
	if a.status != http.StatusOK {
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

// fetchAnnouncement waits for the announcement of a round after the given one. ok is
// false if there is none yet. leader is the number of the coordinator that led the task
// last.
func (f *Fleet) fetchAnnouncement(ctx context.Context, leader *atomic.Int32, task [32]byte, after int64, wait time.Duration) (ann wire.Announcement, ok bool, err error) {
	path := fmt.Sprintf("/v1/tasks/%x/announcement?after=%d&wait=%d", task, after, wait/time.Second)
	a, err := f.fromCoordinator(ctx, leader, path, maxAnnouncement, wait)
	if err != nil {
		return ann, false, refuseAnswer(err)
	}
	switch a.status {
	case http.StatusOK:
	case http.StatusNoContent:
		return ann, false, nil
	case http.StatusGone:
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

// enrolled caches the last enrolment that was fetched.
type enrolled struct {
	mu   sync.Mutex
	last wire.Enrolment
	etag string
	some bool
}

// enrolment returns the enrolment with a digest: the cached one if it has that digest,
// otherwise a newly fetched one. Every client asks for it, whatever it decides later.
func (f *Fleet) enrolment(ctx context.Context, digest [32]byte) (wire.Enrolment, error) {
	e := &f.enrolled
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.some && wire.Digest(e.last) == digest {
		return e.last, nil
	}
	next, err := f.latestEnrolment(ctx)
	if err != nil {
		return wire.Enrolment{}, err
	}
	if wire.Digest(next) != digest {
		return wire.Enrolment{}, client.Refuse(client.CauseEnrolment, "announced for another enrolment than the shuffler's")
	}
	return next, nil
}

// latestEnrolment asks for the enrolment. The caller holds enrolled.mu.
func (f *Fleet) latestEnrolment(ctx context.Context) (wire.Enrolment, error) {
	e := &f.enrolled
	a, err := f.web.do(ctx, http.MethodGet, f.config.Shuffler+"/v1/enrolment", nil, e.etag, maxEnrolment, 0)
	switch {
	case err != nil:
		return wire.Enrolment{}, refuseAnswer(err)
	case a.status == http.StatusNotModified && e.some:
		return e.last, nil
	case a.status != http.StatusOK:
		return wire.Enrolment{}, a.unexpected("enrolment")
	}
	message, err := wire.Verify(f.config.ShufflerKey, wire.LabelEnrolment, a.body)
	if err != nil {
		return wire.Enrolment{}, client.Refuse(client.CauseSignature, "enrolment: %v", err)
	}
	next, err := wire.Decode[wire.Enrolment](message)
	if err != nil {
		return wire.Enrolment{}, client.Refuse(client.CauseMessage, "enrolment: %v", err)
	}
	if e.some && next.Population == e.last.Population && next.Serial < e.last.Serial {
		return wire.Enrolment{}, client.Refuse(client.CauseEnrolment, "serial %d after %d", next.Serial, e.last.Serial)
	}
	e.last, e.etag, e.some = next, a.etag, true
	return next, nil
}

package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/client"
	"github.com/riffle-dp/riffle/service/endpoint"
)

// holding is a source that knows for which tasks it holds data.
type holding struct {
	client.Source
	mu         sync.Mutex
	held       map[[32]byte]bool
	most, seen int
}

func (h *holding) Open(task wire.Task) (client.Gradient, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held[wire.Digest(task)] = true
	h.seen++
	h.most = max(h.most, len(h.held))
	return h.Source.Open(task)
}

func (h *holding) Close(task wire.Task) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.held, wire.Digest(task))
}

func (h *holding) counts() (held, most, seen int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.held), h.most, h.seen
}

// However many tasks a coordinator has, a client holds data for so many at a time,
// and lets go of them when a task ends.
func TestDataOfEndedTasksAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tasks []wire.Task
		for i := range 20 {
			task := shuffleTask()
			task.Name = fmt.Sprint(i)
			tasks = append(tasks, task)
		}
		w := newWorld(t, 2, shuffleTask())
		w.serveTasks(tasks)
		lists := w.before
		var mu sync.Mutex
		over := map[string]bool{}
		w.before = func(rw http.ResponseWriter, r *http.Request) bool {
			id, ok := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/v1/tasks/"), "/announcement")
			if !ok {
				return lists(rw, r)
			}
			mu.Lock()
			ended := over[id]
			mu.Unlock()
			if ended {
				endpoint.Refuse(rw, wire.Closed, "the task has ended")
			} else {
				rw.WriteHeader(http.StatusNoContent)
			}
			return true
		}
		h := &holding{Source: w.members[0].Source, held: map[[32]byte]bool{}}
		w.members[0].Source = h
		c := w.config()
		c.Tasks = nil
		c.Policy.MaxTasks = 100
		f, err := client.NewFleet(c, w.members)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- f.Run(ctx) }()
		await(t, func() bool { held, _, _ := h.counts(); return held == client.MostAccepted && f.Held() == held })
		mu.Lock()
		for _, task := range tasks {
			over[fmt.Sprintf("%x", wire.Digest(task))] = true
		}
		mu.Unlock()
		await(t, func() bool { held, _, seen := h.counts(); return seen == len(tasks) && held == 0 && f.Held() == 0 })
		if _, most, _ := h.counts(); most > client.MostAccepted {
			t.Errorf("data of %d tasks were held at a time", most)
		}
		cancel()
		if err := errors.Join(<-done, f.Close()); err != nil {
			t.Fatal(err)
		}
	})
}

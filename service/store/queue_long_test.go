//go:build long

package store

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// A cluster of three loses a node, and gets it back, while workers work. Every item has a result, and
// each result is of its item.
func TestQueueWithoutANode(t *testing.T) {
	nodes := newNodes(t, 3)
	procs := make([]*process, len(nodes))
	start := func(i int) {
		procs[i] = spawn(t, append([]string{"node"}, nodes[i].Args...)...)
		if got := procs[i].line(t); got != "ready" {
			t.Fatalf("node %s says %q", nodes[i].Name, got)
		}
	}
	for i := range nodes {
		start(i)
	}
	c := Config{Domain: "coordinator", URL: urls(nodes), Timeout: 2 * time.Minute}
	initCluster(t, c)
	s := opened(t, c)
	q := newQueue(t, s, QueueConfig{AckWait: 2 * time.Second, Deliveries: 100})
	const items = 60
	for i := range items {
		must(t, q.Put(t.Context(), fmt.Sprintf("a.%d", i), fmt.Append(nil, i)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 3 {
		far, err := DialQueue(t.Context(), c, "opening")
		must(t, err)
		wg.Go(func() {
			defer far.Close()
			for ctx.Err() == nil {
				i, err := far.Pull(ctx)
				if err != nil {
					sleep(ctx, 100*time.Millisecond)
					continue
				}
				sleep(ctx, 50*time.Millisecond)
				_ = i.Finish(ctx, append(i.Data, make([]byte, MaxBlock)...)) // if it fails, another has it
			}
		})
	}
	done := map[string]bool{}
	r := q.Results("a")
	begin, killed := time.Now(), 0
	for len(done) < items {
		got, err := r.Next(t.Context())
		if err != nil {
			t.Log(err)
		}
		for _, x := range got {
			if n := len(x.Data) - MaxBlock; n < 1 || x.Item != "a."+string(x.Data[:n]) {
				t.Fatalf("a result of %d bytes for %s: %s", len(x.Data), x.Item, x.Failed)
			}
			done[x.Item] = true
		}
		if killed < len(nodes) && len(done) > (killed+1)*10 {
			procs[killed].kill()
			time.Sleep(2 * time.Second)
			start(killed)
			killed++
		}
		if time.Since(begin) > 5*time.Minute {
			t.Fatalf("%d of %d items are done", len(done), items)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if killed == 0 {
		t.Error("no node was killed")
	}
	cancel()
	wg.Wait()
}

// An item stays with a worker that says it is at work, until it says so no longer.
func TestQueueKeepsItems(t *testing.T) {
	q := newQueue(t, fresh(t), QueueConfig{AckWait: 8 * time.Second})
	must(t, q.Put(t.Context(), "a.0", []byte("x")))
	stop := pull(t, q).Keep()
	time.Sleep(12 * time.Second)
	nothing(t, q)
	stop()
	must(t, pull(t, q).Finish(t.Context(), nil))
}

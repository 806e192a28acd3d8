//go:build soak

package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestKilledNodes writes into a cluster of three processes while they are
// killed: one, two in turn, two at once, all three. What was acknowledged must
// be there, in the ledger exactly once and in order.
func TestKilledNodes(t *testing.T) {
	ctx := t.Context()
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
	c := Config{Domain: "shuffler", URL: urls(nodes), Timeout: time.Minute}
	initCluster(t, c)
	s := opened(t, c)
	must(t, s.createStream(ctx, "blocks", streamConfig{window: 2 * time.Minute}))

	running, stop := context.WithCancel(ctx)
	var writers sync.WaitGroup
	var entries, blocks, bulk, lost atomic.Uint64
	acked := make([]map[string]bool, 3)
	for w := range acked {
		acked[w] = map[string]bool{}
		writers.Go(func() {
			for i := 0; running.Err() == nil; i++ {
				id := fmt.Sprintf("%d-%d", w, i)
				if _, err := s.Append(ctx, "blocks", id, "", append([]byte(id+" "), make([]byte, 4000)...)); err != nil {
					lost.Add(1)
					t.Log(err)
					continue
				}
				acked[w][id] = true
				blocks.Add(1)
			}
		})
	}
	batches := map[string]bool{}
	writers.Go(func() {
		for i := 0; running.Err() == nil; i++ {
			a := s.appender("blocks")
			var ids []string
			for j := range 50 {
				id := fmt.Sprintf("bulk-%d-%d", i, j)
				ids = append(ids, id)
				if err := a.Append(ctx, id, "", append([]byte(id+" "), make([]byte, 4000)...)); err != nil {
					break
				}
			}
			if err := a.Flush(ctx); err != nil {
				lost.Add(1)
				t.Log(err)
				continue
			}
			for _, id := range ids {
				batches[id] = true
			}
			bulk.Add(uint64(len(ids)))
		}
	})
	writers.Go(func() {
		var last uint64
		for running.Err() == nil {
			seq, err := s.AppendEntry(ctx, last, fmt.Appendf(nil, "entry %d", last+1))
			if err != nil {
				lost.Add(1)
				t.Log(err)
				// What a writer does: read again. It may have been stored.
				if now, err := s.LastEntry(ctx); err == nil {
					last = now
				}
				continue
			}
			last = seq
			entries.Store(seq)
		}
	})
	for _, victims := range [][]int{{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 1, 2}, {0, 1, 2}} {
		time.Sleep(2 * time.Second)
		for _, v := range victims {
			procs[v].kill()
		}
		time.Sleep(2 * time.Second)
		for _, v := range victims {
			start(v)
		}
		before := entries.Load()
		for range 60 { // an election takes up to nine seconds
			if time.Sleep(500 * time.Millisecond); entries.Load() > before+20 {
				break
			}
		}
		if entries.Load() <= before {
			t.Errorf("no entry was written in the 30 s after %v came back", victims)
		}
		t.Logf("killed %v: %d entries, %d blocks, %d in bulk", victims, entries.Load(), blocks.Load(), bulk.Load())
	}
	time.Sleep(5 * time.Second)
	stop()
	writers.Wait()
	t.Logf("in the end: %d entries, %d blocks, %d in bulk, %d errors", entries.Load(), blocks.Load(), bulk.Load(), lost.Load())
	if entries.Load() == 0 || blocks.Load() == 0 || bulk.Load() == 0 {
		t.Error("a writer wrote nothing")
	}
	var n uint64
	for e, err := range s.Entries(ctx) {
		must(t, err)
		n++
		if string(e.Data) != fmt.Sprintf("entry %d", n) {
			t.Errorf("entry %d is %q", n, e.Data)
		}
	}
	if n < entries.Load() {
		t.Errorf("%d entries, %d acknowledged", n, entries.Load())
	}
	have := map[string]int{}
	for _, m := range readAll(t, s, "blocks", "", 0) {
		have[m.ID]++
	}
	var missing, twice int
	for _, set := range append(acked, batches) {
		for id := range set {
			if have[id] == 0 {
				missing++
			}
		}
	}
	for _, k := range have {
		if k > 1 {
			twice++
		}
	}
	t.Logf("%d messages, %d ids twice", len(have), twice)
	if missing != 0 {
		t.Errorf("%d acknowledged messages are missing", missing)
	}
	if twice != 0 {
		t.Errorf("%d ids were stored twice", twice)
	}
}

// TestManyKills kills an embedded writer at random moments, many times.
func TestManyKills(t *testing.T) {
	dir := t.TempDir()
	for i := range 60 {
		p := spawn(t, "write", dir)
		if got := p.line(t); got != "begin" {
			t.Fatal(got)
		}
		var ledger uint64
		stop := time.AfterFunc(time.Duration(i)*3*time.Millisecond, func() { p.cmd.Process.Kill() })
		for p.lines.Scan() {
			var kind string
			var n uint64
			if _, err := fmt.Sscan(p.lines.Text(), &kind, &n); err == nil && kind == "ledger" {
				ledger = max(ledger, n)
			}
		}
		stop.Stop()
		p.cmd.Wait()
		s, err := Open(t.Context(), config(dir))
		if errors.Is(err, ErrNotFound) {
			continue
		}
		must(t, err)
		last, err := s.LastEntry(t.Context())
		must(t, err)
		if last < ledger {
			t.Errorf("run %d: %d entries, %d acknowledged", i, last, ledger)
		}
		closed(t, s)
	}
}

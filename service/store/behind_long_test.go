//go:build long

package store

import (
	"fmt"
	"testing"
	"time"
)

// A server that was away does not know what the two others have acknowledged meanwhile. Then one of these
// is killed, and the one that is behind comes back: the two that are left elect a leader. Nothing that was
// acknowledged may be missing, whichever they elect, and what is read to decide is not the older state. All
// six orders are tried.
func TestReplicasBehind(t *testing.T) {
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
	c := Config{Domain: "coordinator", URL: urls(nodes), Timeout: 2 * time.Minute}
	initCluster(t, c)
	s := opened(t, c)
	must(t, s.createStream(ctx, "blocks", streamConfig{}))
	var entries, blocks, rev, state uint64
	// write returns when all three are acknowledged. An answer may be lost with its server: then the writer
	// reads what is stored, as a role does, and it must not be less than what was acknowledged before.
	write := func(n int) {
		for range n {
			for {
				if _, err := s.AppendEntry(ctx, entries, powerData(entries+1)); err == nil {
					break
				} else {
					t.Log(err)
				}
				if last, err := s.LastEntry(ctx); err == nil && last == entries+1 {
					break
				} else if err == nil && last < entries {
					t.Fatalf("the ledger has %d entries, %d were acknowledged", last, entries)
				}
			}
			entries++
			_, err := s.Append(ctx, "blocks", fmt.Sprint("block-", blocks+1), "", powerData(blocks+1))
			must(t, err)
			blocks++
			rev, err = s.Put(ctx, "state", fmt.Append(nil, state+1), rev)
			must(t, err)
			state++
		}
	}
	check := func(when string) {
		t.Helper()
		if last, err := s.LastEntry(ctx); err != nil || last != entries {
			t.Fatalf("%s: the ledger has %d entries, %d were acknowledged: %v", when, last, entries, err)
		}
		if e, err := s.Get(ctx, "state"); err != nil || string(e.Value) != fmt.Sprint(state) || e.Revision != rev {
			t.Fatalf("%s: state %q of revision %d, want %d of %d: %v", when, e.Value, e.Revision, state, rev, err)
		}
		count := uint64(0)
		for m, err := range s.Read(ctx, "blocks", "", 0) {
			if count++; err != nil || m.Seq != count || string(m.Data) != string(powerData(count)) {
				t.Fatalf("%s: block %d: %.20q, %v", when, m.Seq, m.Data, err)
			}
		}
		if count != blocks {
			t.Fatalf("%s: %d blocks, %d were acknowledged", when, count, blocks)
		}
	}
	write(3)
	for _, order := range [][2]int{{0, 1}, {1, 2}, {2, 0}, {0, 2}, {2, 1}, {1, 0}} {
		behind, killed := order[0], order[1]
		when := fmt.Sprintf("%d behind, %d killed", behind, killed)
		procs[behind].kill()
		write(5) // with the two others
		procs[killed].kill()
		start(behind)
		check(when)
		write(2)
		check(when + ", and written since")
		start(killed)
		write(1)
	}
	check("at the end")
}

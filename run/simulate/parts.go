package simulate

import (
	"context"
	"sync"
	"sync/atomic"
)

// Parts cuts the places 0 … n−1 of a batch into parts of size places, the last one shorter, and
// calls do once for each, with from ≤ place < to. Every worker has one part at a time, in no
// fixed assignment. A worker stops at an error of do, all stop when ctx ends, and Parts returns
// the first worker's error.
func Parts[W any](ctx context.Context, workers []W, n, size int64, do func(w W, part int, from, to int64) error) error {
	var next atomic.Int64
	run := func(w W) error {
		for {
			part := next.Add(1) - 1
			from := part * size
			if err := ctx.Err(); err != nil || from >= n {
				return err
			}
			if err := do(w, int(part), from, min(from+size, n)); err != nil {
				return err
			}
		}
	}
	if n <= size {
		return run(workers[0])
	}
	workers = workers[:min(int64(len(workers)), (n+size-1)/size)]
	failed := make([]error, len(workers))
	var wait sync.WaitGroup
	for i, w := range workers {
		wait.Go(func() { failed[i] = run(w) })
	}
	wait.Wait()
	for _, err := range failed {
		if err != nil {
			return err
		}
	}
	return nil
}

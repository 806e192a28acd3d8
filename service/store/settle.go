package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/riffle-dp/riffle/internal/durable"
)

// The embedded server syncs each write to a block, but neither the name of a new block nor those of a
// stream's directories; and to overwrite a message it gives the name to another file, without a sync
// (2.15.2). After a power failure the names may be gone or stand for the old file, and all that was written
// since is lost. So they are synced here, before anybody is told that a write is stored.

// settled says which files of streams' directories of blocks are durable.
type settled struct {
	mu      sync.Mutex
	streams map[string]*blocks
}

// blocks is what was durable of a directory of blocks when it was looked at last.
type blocks struct {
	mu      sync.Mutex
	count   int
	last    int         // the highest number of a block
	file    os.FileInfo // its file
	changed time.Time   // when the directory had changed
	looked  time.Time
}

// coarse is the coarsest step of the clocks of file systems that a store is on. A change within it of
// another may not show.
const coarse = 50 * time.Millisecond

// settle makes durable the blocks that a stream has now, and their names.
func (s *Store) settle(stream string) error {
	if s.server == nil {
		return nil
	}
	asked := time.Now()
	s.settled.mu.Lock()
	b := s.settled.streams[stream]
	if b == nil {
		b = new(blocks)
		s.settled.streams[stream] = b
	}
	s.settled.mu.Unlock()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.looked.After(asked) { // another write's look has begun after this write was stored
		return nil
	}
	err := b.look(filepath.Join(s.streamDir(stream), "msgs"))
	if errors.Is(err, os.ErrNotExist) {
		return nil // deleted meanwhile
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// look syncs what has changed since the last look: new blocks, and the last one if its name stands for
// another file. Earlier ones change with a sync.
func (b *blocks) look(dir string) error {
	now := time.Now()
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if info.ModTime().Equal(b.changed) && b.looked.Sub(b.changed) > coarse {
		return nil
	}
	numbers, err := blocksOf(dir)
	if err != nil {
		return err
	}
	same := len(numbers) == b.count
	next := blocks{count: len(numbers)}
	for _, n := range numbers {
		if n < b.last {
			continue
		}
		path := filepath.Join(dir, fmt.Sprint(n, ".blk"))
		file, err := os.Stat(path)
		if errors.Is(err, os.ErrNotExist) {
			same = false
			continue // removed meanwhile
		}
		if err != nil {
			return err
		}
		if n != b.last || b.file == nil || !os.SameFile(b.file, file) {
			same = false
			if err := durable.Sync(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		next.last, next.file = n, file
	}
	if !same {
		if err := durable.SyncDir(dir); err != nil {
			return err
		}
	}
	b.count, b.last, b.file, b.changed, b.looked = next.count, next.last, next.file, info.ModTime(), now
	return nil
}

// settleStream makes durable the names of a new stream, and of all directories above it in the store.
func (s *Store) settleStream(stream string) error {
	if s.server == nil {
		return nil
	}
	top := filepath.Clean(s.config.Dir)
	for dir := filepath.Join(s.streamDir(stream), "msgs"); ; dir = filepath.Dir(dir) {
		if err := durable.SyncDir(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
		if dir == top {
			return s.settle(stream)
		}
	}
}

// blocksOf returns the numbers of a directory's blocks, in order.
func blocksOf(dir string) ([]int, error) {
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var numbers []int
	for _, name := range names {
		if n, err := strconv.Atoi(strings.TrimSuffix(name, ".blk")); err == nil && strings.HasSuffix(name, ".blk") {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return numbers, nil
}

// dropIndex removes a stream's index if its last block ends with zeros, which a power failure may leave in
// place of the last write. The server takes the index for up to date if it holds the last eight bytes of
// the block. A new stream's index holds zeros there and no messages, and so the server would forget all
// (2.15.2). Without the index it reads the blocks.
func dropIndex(block string) error {
	f, err := os.Open(block)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < 8 {
		return err
	}
	var end [8]byte
	if _, err := f.ReadAt(end[:], info.Size()-8); err != nil || end != [8]byte{} {
		return err
	}
	if err := os.Remove(filepath.Join(filepath.Dir(block), "index.db")); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// settleAll makes durable what an earlier process has left, before the server starts and this process acts
// upon it: a process may have been killed between a write and its sync. Of a stream that can be the last
// block only.
func (s *Store) settleAll() error {
	root := s.streamDir("")
	entries, err := os.ReadDir(root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		msgs := filepath.Join(dir, "msgs")
		numbers, err := blocksOf(msgs)
		if err == nil && len(numbers) > 0 {
			last := filepath.Join(msgs, fmt.Sprint(numbers[len(numbers)-1], ".blk"))
			err = errors.Join(durable.Sync(last), dropIndex(last), durable.SyncDir(msgs))
		}
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		if err = errors.Join(err, durable.SyncDir(dir)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	for _, dir := range []string{root, filepath.Dir(root), filepath.Join(s.config.Dir, server.JetStreamStoreDir), s.config.Dir} {
		if err := durable.SyncDir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

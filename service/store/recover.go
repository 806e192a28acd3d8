package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/internal/durable"
)

// A JetStream server writes a stream's meta.inf and then meta.sum. To delete a stream it
// removes meta.inf before the rest. At start it leaves out a stream that lacks either file,
// with a warning only. When a stream of that name is created again, the server takes the old
// blocks and a lone meta.inf for its own, runs, and loses all of it at the next start (seen
// with 2.15.2). So a CreateStream or DeleteStream that was killed must be finished before the
// server starts, and every remaining directory must have become a stream.

// finishInterrupted removes what an interrupted creation or deletion left. It refuses
// everything else that the server would leave out.
func (s *Store) finishInterrupted() error {
	root := s.streamDir("")
	entries, err := os.ReadDir(root)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := s.finishRemovals(); err != nil {
		return err
	}
	_, err = os.Stat(filepath.Join(s.config.Dir, markerFile))
	initialised := err == nil
	for _, e := range entries {
		dir := filepath.Join(root, e.Name())
		remove := strings.HasPrefix(e.Name(), ".") // a deletion in its last step
		if !remove {
			inf, sum := hasBytes(dir, "meta.inf"), hasBytes(dir, "meta.sum")
			if inf && sum {
				continue
			}
			blocks, err := filepath.Glob(filepath.Join(globEscape(dir), "msgs", "*.blk"))
			if err != nil {
				return fmt.Errorf("store: %w", err)
			}
			written := slices.ContainsFunc(blocks, func(b string) bool { return hasBytes("", b) })
			// Such streams are created before the marker and never deleted.
			forever := initialised && !s.madeLater(e.Name())
			deleting := !inf && sum
			remove = !forever && (deleting || !written)
		}
		if !remove {
			return fmt.Errorf("store: %s has no valid description: %w", dir, ErrDamaged)
		}
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return durable.SyncDir(root)
}

// removingDir holds an empty file for each stream whose deletion has begun. The server's deletion removes
// some files before others, and a power failure may bring any of them back.
const removingDir = "removing"

// beginRemoval notes a deletion durably. The server is asked to delete after that. When the files are
// gone, end is called.
func (s *Store) beginRemoval(stream string) (end func() error, err error) {
	dir := filepath.Join(s.config.Dir, removingDir)
	note := filepath.Join(dir, stream)
	if err = durable.MkdirAll(dir, 0o700); err == nil {
		err = durable.WritePrivate(note, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	return func() error { return s.endRemoval(stream) }, nil
}

// endRemoval forgets that a stream's deletion has begun. A stream that is made anew must not be taken
// for the deleted one at the next start, if nobody learned that the deletion was done.
func (s *Store) endRemoval(stream string) error {
	if err := durable.Remove(filepath.Join(s.config.Dir, removingDir, stream)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("store: %w", err)
	}
	return nil
}

// finishRemovals removes the streams whose deletion was begun.
func (s *Store) finishRemovals() error {
	dir := filepath.Join(s.config.Dir, removingDir)
	notes, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	root := s.streamDir("")
	for _, n := range notes {
		if !strings.HasPrefix(n.Name(), ".") { // a temporary file
			if err := errors.Join(os.RemoveAll(filepath.Join(root, n.Name())), os.RemoveAll(filepath.Join(root, "."+n.Name())), durable.SyncDir(root)); err != nil {
				return fmt.Errorf("store: %w", err)
			}
		}
		if err := durable.Remove(filepath.Join(dir, n.Name())); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return nil
}

// madeLater says whether a stream is of those that are made after the marker: blocks, secrets, queues.
func (s *Store) madeLater(stream string) bool {
	q := Queue{s: s}
	return slices.ContainsFunc([]string{s.logName(""), s.secretName(""), q.workStream(), q.doneStream()},
		func(prefix string) bool { return strings.HasPrefix(stream, prefix) })
}

func hasBytes(dir, name string) bool {
	info, err := os.Stat(filepath.Join(dir, name))
	return err == nil && info.Size() > 0
}

// allRecovered checks that the server has a stream for every directory.
func (s *Store) allRecovered(ctx context.Context) error {
	entries, err := os.ReadDir(s.streamDir(""))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	var have []string
	list := s.js.StreamNames(ctx)
	for name := range list.Name() {
		have = append(have, name)
	}
	if err := list.Err(); err != nil {
		return s.fail("list streams", err)
	}
	for _, e := range entries {
		if !slices.Contains(have, e.Name()) {
			text, _ := s.log.lastError()
			return fmt.Errorf("store: %s was not recovered: %w (%s)", s.streamDir(e.Name()), ErrDamaged, text)
		}
	}
	return nil
}

package shuffler

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// Run renews the enrolment, closes rounds that are due and finishes what an earlier process
// began, until ctx ends. Then it makes durable what was accepted and returns nil. The
// servers of the handlers must have stopped before. It is called once.
func (s *Service) Run(ctx context.Context) error {
	if err := s.enrol(ctx, time.Now()); err != nil {
		return err
	}
	if !s.config.FrontendOnly {
		if err := s.sweep(ctx); err != nil {
			return err
		}
	}
	if err := s.startMasters(ctx, time.Now()); err != nil {
		return err
	}
	s.running.Store(true)
	defer close(s.stopped)
	var rounds sync.WaitGroup
	defer s.drain()
	defer rounds.Wait()
	tick := time.NewTicker(s.config.Poll)
	defer tick.Stop()
	if s.config.Registrar != nil && !s.config.FrontendOnly {
		rounds.Go(func() { s.followRegistrar(ctx) })
	}
	var attended sync.Map // by name: one goroutine for a round at a time
	for {
		if !s.config.FrontendOnly {
			names, err := s.store.List(ctx, store.Values, keyOpen(""))
			if err != nil && ctx.Err() == nil {
				s.config.Log.Warn("open rounds are not known", "error", err)
			}
			for _, key := range names {
				name := strings.TrimPrefix(key, keyOpen(""))
				wake := make(chan struct{}, 1)
				if w, busy := attended.LoadOrStore(name, wake); busy {
					select {
					case w.(chan struct{}) <- struct{}{}:
					default:
					}
					continue
				}
				rounds.Go(func() {
					defer attended.Delete(name)
					s.attend(ctx, name, wake)
				})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		case <-tick.C:
			s.housekeep(ctx)
		}
	}
}

// nudge makes Run check the rounds now.
func (s *Service) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Service) housekeep(ctx context.Context) {
	if err := s.enrol(ctx, time.Now()); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("the enrolment is not renewed", "error", err)
	}
	if err := s.keepMasters(ctx, time.Now()); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("session secrets are not renewed", "error", err)
	}
	if err := s.dropRosters(ctx, time.Now()); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("old rosters are not deleted", "error", err)
	}
	for _, r := range s.live() {
		if err := s.shareCounts(ctx, r); err != nil && ctx.Err() == nil {
			s.config.Log.Warn("counts are not shared", "error", err)
		}
	}
	s.forget(time.Now())
}

// drain writes what handlers have accepted and waits for it.
func (s *Service) drain() {
	s.running.Store(false)
	for _, r := range s.live() {
		r.pack.flush()
	}
	s.blocks.Wait()
}

// sweep cleans up after a crash. It destroys what is left of ended rounds, which no mark
// names, and everything of closed rounds except their batches.
func (s *Service) sweep(ctx context.Context) error {
	names, err := s.store.List(ctx, store.Secrets, "")
	if err != nil {
		return err
	}
	streams, err := s.store.List(ctx, store.Streams, "")
	if err != nil {
		return err
	}
	counts, err := s.store.List(ctx, store.Values, "counts.")
	if err != nil {
		return err
	}
	works, err := s.store.List(ctx, store.Values, "work.")
	if err != nil {
		return err
	}
	for i, secret := range names {
		names[i] = strings.TrimPrefix(secret, linksName(""))
	}
	for _, key := range slices.Concat(streams, counts, works) {
		if part := strings.FieldsFunc(key, func(r rune) bool { return r == '-' || r == '.' }); len(part) > 1 {
			names = append(names, part[1])
		}
	}
	done := map[string]bool{}
	for _, name := range names {
		if _, err := decodeName(name); err != nil || done[name] {
			continue
		}
		done[name] = true
		switch _, err := s.store.Get(ctx, keyOpen(name)); {
		case errors.Is(err, store.ErrNotFound):
			err = s.destroy(ctx, name)
			if err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		rec, err := s.loadRecord(ctx, name)
		if gone(err) != nil {
			return err
		}
		if err == nil && rec.State == Closed {
			if err := s.tidy(ctx, name, rec); err != nil {
				return err
			}
		}
	}
	return nil
}

// tidy removes all of a closed round but its batch and the batch's key.
func (s *Service) tidy(ctx context.Context, name string, rec *record) error {
	if err := gone(s.store.Delete(ctx, store.Secrets, linksName(name))); err != nil {
		return err
	}
	for _, prefix := range []string{streamIn(name), streamBuckets(name, "")} {
		if err := s.deleteStreams(ctx, prefix); err != nil {
			return err
		}
	}
	if err := s.deleteStreams(ctx, streamOut(name, ""), rec.streams(name)...); err != nil {
		return err
	}
	return s.deleteValues(ctx, keyWork(name))
}

// attend handles a round until there is nothing left to do.
func (s *Service) attend(ctx context.Context, name string, wake <-chan struct{}) {
	for ctx.Err() == nil {
		wait, err := s.step(ctx, name, time.Now())
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			s.config.Log.Warn("a round is tried again", "error", err)
			wait = s.config.Poll
		}
		if wait == 0 {
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
		case <-wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step does what is due for a round, and returns when to look again; 0: not again.
func (s *Service) step(ctx context.Context, name string, now time.Time) (time.Duration, error) {
	rec, err := s.loadRecord(ctx, name)
	if errors.Is(err, store.ErrNotFound) {
		return 0, s.abandon(ctx, name, now)
	}
	if err != nil {
		return 0, err
	}
	switch rec.State {
	case Open:
		ann, err := s.announcement(rec.Announcement)
		if err != nil {
			return 0, err
		}
		left := time.UnixMilli(ann.Deadline).Sub(now)
		if left > 0 {
			complete, err := s.complete(ctx, name)
			if err != nil || !complete {
				return min(left, s.config.Poll), err
			}
		}
		return 0, s.close(ctx, name, ann)
	case Closing:
		ann, err := s.announcement(rec.Announcement)
		if err != nil {
			return 0, err
		}
		return 0, s.close(ctx, name, ann)
	case Closed:
		return 0, s.waitOrAbandon(ctx, name, rec, now)
	case Void, Released, Abandoned:
		return 0, s.finish(ctx, name)
	}
	return 0, nil
}

// waitOrAbandon abandons the round of a batch that nobody has released in time, so that it
// and its key do not stay for ever.
func (s *Service) waitOrAbandon(ctx context.Context, name string, rec *record, now time.Time) error {
	if until, ok := s.waiting.Load(name); ok && now.Before(until.(time.Time)) {
		return nil
	}
	ann, err := s.announcement(rec.Announcement)
	if err != nil {
		return err
	}
	if now.Before(s.keepUntil(ann)) {
		return s.tidyAndWait(ctx, name, ann, rec) // an earlier process may not have tidied up
	}
	rec.State = Abandoned
	if err := s.saveRecord(ctx, name, rec); err != nil {
		return err
	}
	s.metrics.abandoned.Add(1)
	s.config.Log.Warn("a round is abandoned: nobody has taken its batch", "task", hex.EncodeToString(ann.Task[:8]), "round", ann.Round)
	return s.finish(ctx, name)
}

func (s *Service) keepUntil(ann wire.Announcement) time.Time {
	return time.UnixMilli(ann.Deadline).Add(s.config.Keep)
}

// tidyAndWait tidies up after a round was closed, and notes until when its batch waits.
func (s *Service) tidyAndWait(ctx context.Context, name string, ann wire.Announcement, rec *record) error {
	if err := s.tidy(ctx, name, rec); err != nil {
		return err
	}
	s.waiting.Store(name, s.keepUntil(ann))
	return nil
}

// abandon removes a round whose opening was begun and never finished.
func (s *Service) abandon(ctx context.Context, name string, now time.Time) error {
	e, err := s.store.Get(ctx, keyOpen(name))
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	text, _, _ := strings.Cut(string(e.Value), " ")
	deadline, err := strconv.ParseInt(text, 10, 64)
	if err != nil || now.Before(time.UnixMilli(deadline).Add(time.Minute)) {
		return err
	}
	return s.finish(ctx, name)
}

// finish destroys all of a round but its record, and last its mark.
func (s *Service) finish(ctx context.Context, name string) error {
	if err := s.destroy(ctx, name); err != nil {
		return err
	}
	s.waiting.Delete(name)
	return gone(s.store.Delete(ctx, store.Values, keyOpen(name)))
}

// destroy removes a round's keys, streams and counts. The keys go first: without them the
// rest cannot be read.
func (s *Service) destroy(ctx context.Context, name string) error {
	for _, secret := range []string{linksName(name), name} {
		if err := gone(s.store.Delete(ctx, store.Secrets, secret)); err != nil {
			return err
		}
	}
	for _, prefix := range []string{streamIn(name), streamBuckets(name, ""), streamOut(name, "")} {
		if err := s.deleteStreams(ctx, prefix); err != nil {
			return err
		}
	}
	if err := s.deleteValues(ctx, keyWork(name)); err != nil {
		return err
	}
	return s.deleteValues(ctx, keyCounts(name))
}

func (s *Service) deleteValues(ctx context.Context, prefix string) error {
	keys, err := s.store.List(ctx, store.Values, prefix)
	if err != nil {
		return err
	}
	for _, k := range keys {
		if err := gone(s.store.Delete(ctx, store.Values, k)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) deleteStreams(ctx context.Context, prefix string, except ...string) error {
	streams, err := s.store.List(ctx, store.Streams, prefix)
	if err != nil {
		return err
	}
	for _, stream := range streams {
		if slices.Contains(except, stream) {
			continue
		}
		if err := gone(s.store.Delete(ctx, store.Streams, stream)); err != nil {
			return err
		}
	}
	return nil
}

// lost says whether err says that an object is not there, or not its content.
func lost(err error) bool {
	return errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrDamaged)
}

// gone returns err, or nil if err says that the thing is not there.
func gone(err error) error {
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	return err
}

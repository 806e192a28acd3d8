package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"time"

	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/sealed"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has what an aggregator does where the noise is correlated over rounds: it holds its shares of
// sums, without noise, for the rounds that are released with them. A share is sealed in the store, stored
// before the partial sum, and deleted after the last round that needs it, or when it is old.

// correlated says whether the noise of a round is correlated with other rounds'.
func (j *job) correlated() bool {
	if j.proved == nil {
		return false
	}
	_, ok := j.proved.Correlation()
	return ok
}

const heldPrefix = "held/"

// heldName names a held share by its round and the digest of its sealed bytes.
func heldName(announcement [32]byte, d hash) string {
	return objectName(heldPrefix+hex.EncodeToString(announcement[:]), d)
}

// heldTime is how long a share is held after the end of the rounds that need it: a coordinator may pause.
const heldTime = 7 * 24 * time.Hour

// mostRound is the longest round that prolongs it: clients take part in none that is longer, unless their
// policies say so.
const mostRound = 24 * time.Hour

// earlier returns the shares of the rounds that the coordinator names, with their weights, and notes that
// this round of the task is released for this announcement only.
func (s *Service) earlier(ctx context.Context, j *job, announcements [][32]byte) ([]proved.Earlier, error) {
	if !j.correlated() {
		if len(announcements) > 0 {
			return nil, no(wire.Malformed, "%d earlier rounds, but the noise is not correlated", len(announcements))
		}
		return nil, nil
	}
	strategy, _ := j.proved.Correlation()
	task, round := hash(j.announcement.Task), j.closed.Round
	if len(announcements) >= len(strategy.Weights) {
		return nil, no(wire.Malformed, "%d earlier rounds, of which at most %d have a weight", len(announcements), len(strategy.Weights)-1)
	}
	var out []proved.Earlier
	last := round - int64(len(strategy.Weights))
	for _, a := range announcements {
		lost := no(wire.Unequal, "the sum of an earlier round, of announcement %x, is not held", a[:4])
		rec, _, err := s.load(ctx, a)
		switch {
		case errors.Is(err, store.ErrNotFound):
			return nil, lost
		case err != nil:
			return nil, err
		case rec.Task != task || rec.Round <= last || rec.Round >= round:
			return nil, no(wire.Malformed, "earlier round %d, after %d: of the task they come in order, and before round %d", rec.Round, last, round)
		case rec.Held == (hash{}):
			return nil, lost
		}
		b, err := s.config.Store.GetObject(ctx, heldName(a, rec.Held))
		if errors.Is(err, store.ErrNotFound) {
			return nil, lost
		}
		if err != nil {
			return nil, err
		}
		if sha256.Sum256(b) != rec.Held {
			return nil, lost
		}
		share, err := sealed.Sum.OpenVector(s.config.Keyring, envelope.Aggregator, a, b, j.proved.Dim)
		if err != nil {
			s.config.Log.Error("the held sum of a round cannot be opened", "round", rec.Round, "error", err)
			return nil, lost
		}
		out = append(out, proved.Earlier{Weight: strategy.Weights[round-rec.Round], Share: share})
		last = rec.Round
	}
	return out, s.history.bind(ctx, task, round, j.digest)
}

// mix makes the share of the release, but for the noise, and stores the share of the round's own sum; rec
// names it from then on, and is stored with the partial sum.
func (s *Service) mix(ctx context.Context, j *job, sum *exchanged, earlier []proved.Earlier, rec *record) error {
	strategy, _ := j.proved.Correlation()
	own, err := sum.Mix(strategy.Weights[0], earlier)
	for _, e := range earlier {
		clear(e.Share)
	}
	if err != nil {
		return err
	}
	defer clear(own)
	if len(strategy.Weights) == 1 {
		return nil
	}
	b, err := sealed.Sum.SealVector(s.config.Keyring, envelope.Aggregator, j.digest, own)
	if err != nil {
		return err
	}
	rec.Held = sha256.Sum256(b)
	// The announced times are the coordinator's: they prolong what is held by two days a weight at most.
	long := min(max(0, j.announcement.Deadline-j.announcement.Opens), mostRound.Milliseconds())
	rec.HeldUntil = time.Now().Add(heldTime + 2*time.Duration(len(strategy.Weights))*time.Duration(long)*time.Millisecond).Unix()
	return s.config.Store.PutObject(ctx, heldName(j.digest, rec.Held), b)
}

// sweepHeld deletes shares that no round needs any more: that no record names though the round was answered,
// or that are old, or of a round of the task before the oldest one that the coming rounds need.
func (s *Service) sweepHeld(ctx context.Context, now time.Time, task hash, oldest int64) error {
	return s.secrets(ctx, heldPrefix, func(announcement [32]byte, d hash, rec record) {
		if rec.Partial != (hash{}) && (rec.Held != d || now.Unix() > rec.HeldUntil) || rec.Task == task && rec.Round < oldest {
			s.deleteHeld(ctx, heldName(announcement, d))
		}
	})
}

func (s *Service) deleteHeld(ctx context.Context, name string) {
	if err := s.config.Store.Delete(ctx, store.Objects, name); err != nil && !errors.Is(err, store.ErrNotFound) {
		s.config.Log.Warn("a held sum that has no further use cannot be deleted now", "error", err)
	}
}

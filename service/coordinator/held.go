package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/sealed"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has what a coordinator does, as one of the two aggregators, where the noise is correlated over
// rounds: it holds its shares of sums, without noise, for the rounds that are released with them. A
// share is sealed in the store, named by the state in the same write that ends its round, and deleted after
// the last round that needs it.

// heldSum is the share of a round's sum that is held.
type heldSum struct {
	Round        int64 `json:"round"`
	Announcement hash  `json:"announcement"`
	Share        hash  `json:"share"` // digest of the sealed share
}

// heldPrefix begins the names of a task's held shares.
func heldPrefix(task [32]byte) string { return fmt.Sprintf("held/%x/", task) }

func heldName(task [32]byte, d hash) string { return heldPrefix(task) + fmt.Sprintf("%x", d[:]) }

// correlated says whether the noise of the task's rounds is correlated.
func (r *runner) correlated() bool {
	if r.proved == nil {
		return false
	}
	_, ok := r.proved.Correlation()
	return ok
}

// earlierSums are the rounds that the release of the open round is made of besides its own sum.
type earlierSums struct {
	announcements [][32]byte
	shares        []proved.Earlier
}

func (e earlierSums) clear() {
	for _, s := range e.shares {
		clear(s.Share)
	}
}

// earlier reads the held shares of all rounds that were recovered and have a weight in the open round. Where one
// is missing, none is used: what was recovered is forgotten, and noise is correlated with later rounds only.
func (r *runner) earlier(ctx context.Context) (e earlierSums, err error) {
	if !r.correlated() {
		return e, nil
	}
	strategy, _ := r.proved.Correlation()
	for _, round := range r.pure.Earlier() {
		i := slices.IndexFunc(r.record.Held, func(h heldSum) bool { return h.Round == round })
		if i < 0 {
			return earlierSums{}, r.forgetEarlier(fmt.Errorf("the sum of round %d is not held", round))
		}
		h := r.record.Held[i]
		b, err := r.s.config.Store.GetObject(ctx, heldName(r.id, h.Share))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return earlierSums{}, err
		}
		var share []int64
		if err == nil && digestOf(b) != h.Share {
			err = fmt.Errorf("it is not what its name says")
		}
		if err == nil {
			share, err = sealed.Sum.OpenVector(r.s.config.Keyring, envelope.Coordinator, h.Announcement, b, r.proved.Dim)
		}
		if err != nil {
			return earlierSums{}, r.forgetEarlier(fmt.Errorf("the held sum of round %d: %w", round, err))
		}
		e.announcements = append(e.announcements, h.Announcement)
		e.shares = append(e.shares, proved.Earlier{Weight: strategy.Weights[r.pure.Round+1-round], Share: share})
	}
	return e, nil
}

// forgetEarlier has the coming releases made without the rounds so far.
func (r *runner) forgetEarlier(why error) error {
	r.warn("earlier rounds are left out of what is released from now on, which has more noise", why)
	return r.pure.Forget()
}

// mix makes the own share of the release, but for the noise, and keeps that of the round's own sum.
func (r *runner) mix(sum *exchange.Exchange, e earlierSums) error {
	if !r.correlated() {
		return nil
	}
	strategy, _ := r.proved.Correlation()
	own, err := sum.Mix(strategy.Weights[0], e.shares)
	r.own = own
	return err
}

// hold stores, before a round ends, the share of its sum if it was recovered, and lists in next what is held. A
// round that gave no sum takes all earlier ones along: the aggregators may not agree on them.
func (r *runner) hold(ctx context.Context, c *wire.RoundClosed, next *record) error {
	if !r.correlated() {
		return nil
	}
	own := r.own
	r.own = nil
	defer clear(own)
	strategy, _ := r.proved.Correlation()
	recovered := r.pure.Earlier()
	if len(strategy.Weights) > 1 && !slices.Contains(recovered, c.Round) {
		next.Held = nil
		if len(recovered) == 0 {
			return nil
		}
		return r.forgetEarlier(fmt.Errorf("round %d has no sum", c.Round))
	}
	var held []heldSum
	for _, h := range next.Held {
		if slices.Contains(recovered, h.Round) && h.Round != c.Round {
			held = append(held, h)
		}
	}
	if slices.Contains(recovered, c.Round) && own != nil {
		b, err := sealed.Sum.SealVector(r.s.config.Keyring, envelope.Coordinator, c.Announcement, own)
		if err != nil {
			return err
		}
		h := heldSum{Round: c.Round, Announcement: c.Announcement, Share: digestOf(b)}
		if err := r.s.config.Store.PutObject(ctx, heldName(r.id, h.Share), b); err != nil {
			return err
		}
		held = append(held, h)
	}
	next.Held = held
	return nil
}

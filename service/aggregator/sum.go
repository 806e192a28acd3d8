package aggregator

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has the answers about a prepared round: report ids, receipts, and the sum.

// shareIDs returns the report ids of a prepared round's shares, as far as this aggregator has
// them. The coordinator compares them with the ids of its own shares, and leaves out the places
// that differ.
func (s *Service) shareIDs(announcement [32]byte) (wire.ShareIDs, error) {
	rec, _, err := s.load(s.work, announcement)
	if errors.Is(err, store.ErrNotFound) {
		return wire.ShareIDs{}, no(wire.UnknownRound, "the round was not prepared")
	}
	if err != nil {
		return wire.ShareIDs{}, err
	}
	if len(rec.Key) > 0 {
		return wire.ShareIDs{}, no(wire.UnknownRound, "the round has proofs")
	}
	return s.ids(s.work, rec)
}

// receipts returns the receipts in a prepared round's shares, ascending: the coordinator compares
// them with those in its own parts.
func (s *Service) receipts(announcement [32]byte) ([]byte, error) {
	rec, _, err := s.load(s.work, announcement)
	if errors.Is(err, store.ErrNotFound) {
		return nil, no(wire.UnknownRound, "the round was not prepared")
	}
	if err != nil {
		return nil, err
	}
	if len(rec.Key) > 0 {
		r := s.round(announcement)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !r.complete() {
			return nil, no(wire.Unavailable, "the proofs have to be exchanged: begin again with place 0")
		}
		if r.exchange.receipts != nil {
			return r.exchange.receipts.Sorted(), nil
		}
	}
	if rec.Receipts == (hash{}) {
		return nil, no(wire.UnknownRound, "the round has no receipts")
	}
	return s.object(s.work, "receipts", rec.Receipts)
}

// sum returns the partial sum of a prepared round without the reports of a signed exclusion; of
// a round with proofs, length and signed word on that set come first. It does so for one exclusion
// only, as often as it is asked.
func (s *Service) sum(announcement [32]byte, signed []byte) ([]byte, error) {
	message, err := wire.Verify(s.config.Coordinator, wire.LabelExclusion, signed)
	if err != nil {
		return nil, no(wire.BadSignature, "the exclusion is not signed by the coordinator")
	}
	e, err := wire.Decode[wire.Exclusion](message)
	if err != nil {
		return nil, no(wire.Malformed, "%v", err)
	}
	if e.Announcement != announcement {
		return nil, no(wire.UnknownRound, "the exclusion is of another round")
	}
	r := s.round(announcement)
	r.mu.Lock()
	defer r.mu.Unlock()
	rec, revision, err := s.load(s.work, announcement)
	if errors.Is(err, store.ErrNotFound) {
		return nil, no(wire.UnknownRound, "the round was not prepared")
	}
	if err != nil {
		return nil, err
	}
	if rec.Summed != (hash{}) && rec.Summed != hash(wire.Digest(e)) {
		return nil, no(wire.SecondReport, "the round was summed with another exclusion")
	}
	if len(rec.Key) > 0 {
		agreed, p, err := s.sumProved(s.work, r, rec, revision, e)
		return append(binary.LittleEndian.AppendUint32(nil, uint32(len(agreed))), append(agreed, wire.Encode(p)...)...), err
	}
	p, err := s.sumOpened(s.work, r, rec, revision, e)
	return wire.Encode(p), err
}

// sumOpened sums a round without proofs.
func (s *Service) sumOpened(ctx context.Context, r *round, rec record, revision uint64, e wire.Exclusion) (wire.Partial, error) {
	announcement, digest := e.Announcement, hash(wire.Digest(e))
	if rec.Partial != (hash{}) {
		if err := s.note(ctx, announcement, rec); err != nil {
			return wire.Partial{}, err
		}
		return s.partial(ctx, rec)
	}
	own, err := s.exclusion(ctx, rec)
	if err != nil {
		return wire.Partial{}, err
	}
	switch left := e.Reports - int64(len(e.Places)); {
	case e.Reports != own.Reports:
		return wire.Partial{}, no(wire.UnknownRound, "the round has %d reports", own.Reports)
	case !contains(e.Places, own.Places):
		return wire.Partial{}, no(wire.Excluded, "the exclusion lacks reports that cannot be summed")
	case left < rec.MinReports || left < s.config.MinReports:
		return wire.Partial{}, no(wire.Excluded, "%d reports would be left, the fewest that are summed are %d", left, max(rec.MinReports, s.config.MinReports))
	}
	if r.job == nil {
		// Nobody has asked to prepare the round since the start. Only that request brings the
		// round's messages.
		return wire.Partial{}, no(wire.Unavailable, "the round has to be prepared again after a restart")
	}
	if rec.Summed == (hash{}) {
		rec.Summed = digest
		if revision, err = s.put(ctx, announcement, rec, revision); err != nil {
			return wire.Partial{}, err
		}
	}
	if err := s.note(ctx, announcement, rec); err != nil {
		return wire.Partial{}, err
	}
	sum := r.opened
	if sum == nil || len(e.Places) != len(own.Places) {
		again, err := s.open(ctx, r.job, e.Places, nil)
		if err != nil {
			return wire.Partial{}, err
		}
		if len(again.Failed) != 0 {
			return wire.Partial{}, fmt.Errorf("aggregator: the batch opens otherwise the second time")
		}
		sum = again.Aggregator
	}
	r.opened = nil // a sum can be closed only once
	p, err := sum.Close()
	if err != nil {
		return wire.Partial{}, no(wire.Excluded, "%v", err)
	}
	out := wire.Partial{Announcement: announcement, Exclusion: digest, Tag: p.Tag, Index: int64(p.Index),
		Clients: p.Clients, Reports: p.Reports, Sums: p.Sums}
	if err := s.keep(ctx, announcement, rec, revision, &out); err != nil {
		return wire.Partial{}, err
	}
	s.count(func(c *Counts) { c.Summed++; c.Reports += p.Clients })
	s.config.Log.Info("round is summed", "round", rec.Round, "reports", p.Clients)
	return out, nil
}

// note writes that a round is summed to the history, if there is one. It comes before the answer.
func (s *Service) note(ctx context.Context, announcement [32]byte, r record) error {
	if s.history == nil {
		return nil
	}
	return s.history.add(ctx, announcement, r)
}

// contains says whether all elements of some are in all; both ascend.
func contains(all, some []int64) bool {
	i := 0
	for _, v := range some {
		for i < len(all) && all[i] < v {
			i++
		}
		if i == len(all) || all[i] != v {
			return false
		}
	}
	return true
}

package aggregator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/sealed"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has the rounds whose reports carry proofs, and to whose sum the aggregators add the
// noise. What is stored, in this order: the key of the proofs with the word on the round; the one
// set of reports that is summed; the noise, by an entry in the record that names it, unless clients send it; the mark;
// the partial sum. Everything else is computed again after a crash, and gives the same bytes.

// exchanged is a round's exchange with the coordinator. It lives in memory only.
type exchanged struct {
	*exchange.Exchange
	receipts *batch.Receipts // nil: reports have none
	// last is the digest of the message that was answered last, and answer its answer: a request
	// whose answer was lost is answered again.
	last   [32]byte
	answer []byte
}

// complete says whether all places of the round are decided.
func (r *round) complete() bool { return r.exchange != nil && r.exchange.Complete() }

// drop ends a round's exchange, if there is one.
func (s *Service) drop(r *round) {
	if r.exchange != nil {
		seconds := r.exchange.Stop()
		s.count(func(c *Counts) { c.Seconds += seconds })
		r.exchange = nil
	}
}

// checkProved compares a round with proofs with this aggregator's means.
func (s *Service) checkProved(j *job) error {
	switch {
	case s.config.Key == nil:
		return no(wire.Refused, "this aggregator has no signing key, which sums with proofs need")
	case s.history == nil:
		return no(wire.Refused, "this aggregator has no mark, which sums with proofs need")
	case j.closed.Reports > j.proved.Users:
		return no(wire.Malformed, "%d reports, the sum is made for %d", j.closed.Reports, j.proved.Users)
	}
	return nil
}

// proofKey checks the coordinator's signed message with the key of the proofs.
func (s *Service) proofKey(j *job, signed []byte) error {
	message, err := wire.Verify(s.config.Coordinator, wire.LabelProofKey, signed)
	if err != nil {
		return no(wire.BadSignature, "the key of the proofs is not signed by the coordinator")
	}
	k, err := wire.Decode[wire.ProofKey](message)
	if err != nil {
		return no(wire.Malformed, "%v", err)
	}
	if k.Announcement != j.digest || k.Closed != wire.Digest(j.closed) {
		return no(wire.UnknownRound, "the key of the proofs is of another round")
	}
	j.key = proved.VerifyKey(k.Key)
	return nil
}

// createProved stores the key of a round's proofs with the word on the round, and then in the
// history.
func (s *Service) createProved(ctx context.Context, j *job) error {
	b, err := sealed.VerifyKey.Seal(s.config.Keyring, envelope.Aggregator, j.digest, j.key[:])
	if err != nil {
		return err
	}
	_, err = s.put(ctx, j.digest, record{Format: recordFormat, Round: j.closed.Round, MinReports: j.minReports,
		Closed: wire.Digest(j.closed), Key: b, Task: j.announcement.Task, Sent: j.proved.ByClients()}, 0)
	if err != nil {
		return err
	}
	if err := s.history.fix(ctx, j.digest, b); err != nil {
		return err
	}
	strategy, _ := j.proved.Correlation()
	oldest := j.closed.Round + 1 - int64(len(strategy.Weights)) // whose sum this round needs
	if err := errors.Join(s.sweep(ctx, j.announcement.Task, j.closed.Round), s.sweepHeld(ctx, time.Now(), j.announcement.Task, oldest)); err != nil {
		s.config.Log.Warn("secrets of earlier rounds are not deleted yet", "error", err)
	}
	return nil
}

// sameKey refuses another key than the stored one: no report is prepared under two keys.
func (s *Service) sameKey(j *job, rec record) error {
	if len(rec.Key) == 0 {
		return no(wire.SecondReport, "the round was prepared without proofs")
	}
	b, err := sealed.VerifyKey.Open(s.config.Keyring, envelope.Aggregator, j.digest, rec.Key)
	if err != nil {
		return fmt.Errorf("aggregator: stored key of the proofs: %w", err)
	}
	if !bytes.Equal(b, j.key[:]) {
		return no(wire.SecondReport, "the round has another key of the proofs")
	}
	return s.history.fix(s.work, j.digest, rec.Key)
}

// begin starts an exchange with place 0.
func (s *Service) begin(r *round, j *job) error {
	s.drop(r)
	of, err := j.proved.Proved(j.digest)
	if err != nil {
		return err
	}
	x := &exchanged{}
	if j.task.Receipts {
		x.receipts = new(batch.Receipts)
	}
	attached := j.task.Attachments()
	open := func(part []byte) (content []byte, with wire.Attached, err error) {
		if content, err = s.config.Keyring.OpenPart(envelope.Aggregator, j.digest, part); err != nil {
			return nil, with, err
		}
		if content, with, err = attached.Split(content); err == nil && x.receipts != nil {
			x.receipts.Add(with.Receipt)
		}
		return content, with, err
	}
	x.Exchange, err = exchange.New(s.work, exchange.Config{Round: of, Role: proved.Aggregator, Key: j.key, Open: open, Tokens: j.tokenRound(),
		Batch: batch.Reader{Source: s.config.Shuffler, Announcement: j.digest, Reports: j.closed.Reports,
			Digest: j.closed.Shares, Size: j.announcement.ShareBytes, Workers: s.config.Workers}})
	if err == nil {
		r.exchange = x
	}
	return err
}

// proofsLimit is the largest body of a request for the proofs of a prepared round.
func (s *Service) proofsLimit(announcement [32]byte) (int64, error) {
	// The message is not read yet: what it names takes no other round's place.
	s.mu.Lock()
	r := s.rounds[announcement]
	s.mu.Unlock()
	if r == nil {
		r = &round{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	j, err := s.prepared(r, announcement)
	if err != nil {
		return 0, err
	}
	of, err := j.proved.Proved(j.digest)
	if err != nil {
		return 0, err
	}
	return int64(of.MessageSize(of.Places())) + 1<<10, nil
}

// prepared returns a round with proofs that somebody has prepared since the start.
func (s *Service) prepared(r *round, announcement [32]byte) (*job, error) {
	if r.job == nil {
		if _, _, err := s.load(s.work, announcement); errors.Is(err, store.ErrNotFound) {
			return nil, no(wire.UnknownRound, "the round was not prepared")
		} else if err != nil {
			return nil, err
		}
		return nil, no(wire.Unavailable, "the round has to be prepared again after a restart")
	}
	if r.job.proved == nil {
		return nil, no(wire.UnknownRound, "the round has no proofs")
	}
	return r.job, nil
}

// proofs takes the coordinator's message on the next places of a round, decides about them, and
// returns the own message. The answer does not depend on the coordinator's message, but for the
// places that it is on. Place 0 begins anew.
func (s *Service) proofs(announcement [32]byte, signed []byte) (wire.Proofs, error) {
	message, err := wire.Verify(s.config.Coordinator, wire.LabelProofs, signed)
	if err != nil {
		return wire.Proofs{}, no(wire.BadSignature, "the proofs are not signed by the coordinator")
	}
	p, err := wire.Decode[wire.Proofs](message)
	if err != nil {
		return wire.Proofs{}, no(wire.Malformed, "%v", err)
	}
	if p.Announcement != announcement {
		return wire.Proofs{}, no(wire.UnknownRound, "the proofs are of another round")
	}
	r := s.round(announcement)
	r.mu.Lock()
	defer r.mu.Unlock()
	j, err := s.prepared(r, announcement)
	if err != nil {
		return wire.Proofs{}, err
	}
	digest := sha256.Sum256(p.Message)
	if x := r.exchange; x != nil && x.answer != nil && x.last == digest {
		return wire.Proofs{Announcement: announcement, Message: x.answer}, nil
	}
	if r.exchange == nil {
		if err := s.begin(r, j); err != nil {
			return wire.Proofs{}, err
		}
	}
	first, count, err := r.exchange.Covers(p.Message)
	if err != nil {
		return wire.Proofs{}, no(wire.Malformed, "%v", err)
	}
	if next := r.exchange.Next(); first != next {
		if first != 0 {
			s.drop(r)
			return wire.Proofs{}, no(wire.Unavailable, "place %d is the next, not %d: begin again with place 0", next, first)
		}
		if err := s.begin(r, j); err != nil {
			return wire.Proofs{}, err
		}
	}
	answer, err := r.exchange.Begin(s.work, count)
	if err == nil {
		if bad := r.exchange.Finish(p.Message); bad != nil {
			err = no(wire.Malformed, "%v", bad)
		}
	}
	if err != nil {
		s.drop(r) // the parts are taken: it has to begin again
		return wire.Proofs{}, err
	}
	r.exchange.last, r.exchange.answer = digest, answer
	return wire.Proofs{Announcement: announcement, Message: answer}, nil
}

// sumProved returns the signed word on the set of reports that is summed and the share of the sum
// with noise. The set must be the one that this aggregator found itself.
func (s *Service) sumProved(ctx context.Context, r *round, rec record, revision uint64, e wire.Exclusion) ([]byte, wire.Partial, error) {
	digest := hash(wire.Digest(e))
	if rec.Partial != (hash{}) {
		return s.answered(ctx, e.Announcement, rec)
	}
	j, err := s.prepared(r, e.Announcement)
	if err != nil {
		return nil, wire.Partial{}, err
	}
	if !r.complete() {
		return nil, wire.Partial{}, no(wire.Unavailable, "the proofs have to be exchanged: begin again with place 0")
	}
	sum := r.exchange
	switch left := e.Reports - int64(len(e.Places)); {
	case e.Reports != j.closed.Reports:
		return nil, wire.Partial{}, no(wire.UnknownRound, "the round has %d reports", j.closed.Reports)
	case !slices.Equal(e.Places, sum.Out()):
		return nil, wire.Partial{}, no(wire.Unequal, "the exclusion is not the one that this aggregator found")
	case j.tokens != nil && sum.Tokens() < max(rec.MinReports, s.config.MinReports):
		return nil, wire.Partial{}, no(wire.Excluded, "%d reports have tokens, the fewest that are summed are %d", sum.Tokens(), max(rec.MinReports, s.config.MinReports))
	case left < rec.MinReports || left < s.config.MinReports:
		return nil, wire.Partial{}, no(wire.Excluded, "%d reports would be left, the fewest that are summed are %d", left, max(rec.MinReports, s.config.MinReports))
	}
	earlier, err := s.earlier(ctx, j, e.Earlier)
	if err != nil {
		return nil, wire.Partial{}, err
	}
	if rec.Summed == (hash{}) {
		next := rec
		next.Summed = digest
		next.Agreed = wire.Sign(s.config.Key, wire.LabelAgreed, wire.Encode(wire.Agreed{Announcement: e.Announcement, Exclusion: digest}))
		if revision, err = s.put(ctx, e.Announcement, next, revision); err != nil {
			return nil, wire.Partial{}, err
		}
		rec = next
		s.count(func(c *Counts) {
			for reason, n := range sum.Refused() {
				c.Refused[reason] += n
			}
		})
	}
	var noise []int64
	if !j.proved.ByClients() {
		if noise, rec, revision, err = s.noise(ctx, j, rec, revision); err != nil {
			return nil, wire.Partial{}, err
		}
		if noise == nil { // another process was faster
			return s.answered(ctx, e.Announcement, rec)
		}
		defer clear(noise)
	}
	if err := s.note(ctx, e.Announcement, rec); err != nil {
		return nil, wire.Partial{}, err
	}
	if j.correlated() {
		if err := s.mix(ctx, j, sum, earlier, &rec); err != nil {
			s.drop(r) // it is mixed once: the exchange has to begin again
			return nil, wire.Partial{}, err
		}
	}
	p, err := sum.Close(noise)
	s.drop(r)
	if err != nil {
		return nil, wire.Partial{}, err
	}
	out := wire.Partial{Announcement: e.Announcement, Exclusion: digest, Tag: p.Tag, Index: int64(p.Index), Clients: p.Clients, Reports: p.Reports, Sums: p.Sums}
	if err := s.keep(ctx, e.Announcement, rec, revision, &out); err != nil {
		return nil, wire.Partial{}, err
	}
	s.count(func(c *Counts) { c.Summed++; c.Reports += p.Clients })
	s.config.Log.Info("round is summed", "round", rec.Round, "reports", p.Clients, "excluded", len(e.Places))
	s.forget(ctx, e.Announcement, rec.Noise)
	return rec.Agreed, out, nil
}

// answered returns the stored answer. The noise has no further use then.
func (s *Service) answered(ctx context.Context, announcement [32]byte, rec record) ([]byte, wire.Partial, error) {
	if err := s.note(ctx, announcement, rec); err != nil {
		return nil, wire.Partial{}, err
	}
	p, err := s.partial(ctx, rec)
	if err == nil {
		s.forget(ctx, announcement, rec.Noise)
	}
	return rec.Agreed, p, err
}

// forget deletes noise that is never added again. What stays is deleted at the next start.
func (s *Service) forget(ctx context.Context, announcement [32]byte, noise hash) {
	if err := s.config.Store.Delete(ctx, store.Objects, noiseName(announcement, noise)); err != nil && !errors.Is(err, store.ErrNotFound) {
		s.config.Log.Warn("noise that has no further use cannot be deleted now", "error", err)
	}
}

// noise returns the noise that the record names. If it names none, noise is drawn, stored, and
// named by a compare-and-swap: only then may it be added to anything. A draw that loses, or that
// dies with its process, has met no sum. Without an error and without noise the round was summed
// by another process meanwhile.
func (s *Service) noise(ctx context.Context, j *job, rec record, revision uint64) ([]int64, record, uint64, error) {
	fail := func(err error) ([]int64, record, uint64, error) { return nil, rec, revision, err }
	for rec.Noise == (hash{}) {
		noise, err := j.proved.Noise(rng.Secure())
		if err != nil {
			return fail(err)
		}
		b, err := sealed.Noise.SealVector(s.config.Keyring, envelope.Aggregator, j.digest, noise)
		if err != nil {
			return fail(err)
		}
		next := rec
		next.Noise = sha256.Sum256(b)
		if err := s.config.Store.PutObject(ctx, noiseName(j.digest, next.Noise), b); err != nil {
			return fail(err)
		}
		named, err := s.put(ctx, j.digest, next, revision)
		if err == nil {
			return noise, next, named, nil
		}
		if !errors.Is(err, store.ErrConflict) {
			clear(noise)
			return fail(err) // the record may name it or not: the next request reads it
		}
		summed := rec.Summed
		if rec, revision, err = s.load(ctx, j.digest); err != nil {
			clear(noise)
			return fail(err)
		}
		if rec.Noise == next.Noise {
			return noise, rec, revision, nil // a repeated write was stored the first time
		}
		clear(noise)
		s.forget(ctx, j.digest, next.Noise)
		if rec.Summed != summed {
			return fail(no(wire.SecondReport, "the round was summed with another exclusion"))
		}
	}
	if rec.Partial != (hash{}) {
		return nil, rec, revision, nil
	}
	b, err := s.config.Store.GetObject(ctx, noiseName(j.digest, rec.Noise))
	if err == nil && sha256.Sum256(b) != rec.Noise {
		err = fmt.Errorf("aggregator: stored noise is not what its name says: %w", store.ErrNotFound)
	}
	if errors.Is(err, store.ErrNotFound) {
		if now, revision, err := s.load(ctx, j.digest); err == nil && now.Partial != (hash{}) {
			return nil, now, revision, nil // another process has used it
		}
		return fail(no(wire.Closed, "the round's noise is lost, and is not drawn again"))
	}
	if err != nil {
		return fail(err)
	}
	noise, err := sealed.Noise.OpenVector(s.config.Keyring, envelope.Aggregator, j.digest, b, j.proved.Dim)
	if err != nil {
		s.config.Log.Error("a round's noise cannot be opened", "round", rec.Round, "error", err)
		return fail(no(wire.Closed, "the round's noise cannot be opened, and is not drawn again"))
	}
	return noise, rec, revision, nil
}

const noisePrefix = "noise/"

// noiseName names the noise of a round by the digest of its sealed bytes.
func noiseName(announcement [32]byte, d hash) string {
	return objectName(noisePrefix+hex.EncodeToString(announcement[:]), d)
}

// sweep deletes noise that is never added to anything: of rounds that were summed, that name
// another, or of the task before the given round, because a task's rounds come one after the other. Other
// noise of a round that names none stays, because another process may be about to.
func (s *Service) sweep(ctx context.Context, task hash, before int64) error {
	return s.secrets(ctx, noisePrefix, func(announcement [32]byte, d hash, rec record) {
		if rec.Partial != (hash{}) || rec.Task == task && rec.Round < before || rec.Noise != (hash{}) && rec.Noise != d {
			s.forget(ctx, announcement, d)
		}
	})
}

// secrets calls f for each stored secret whose name begins with a prefix and has its round and its digest
// after it, with the round's record.
func (s *Service) secrets(ctx context.Context, prefix string, f func(announcement [32]byte, d hash, rec record)) error {
	names, err := s.config.Store.List(ctx, store.Objects, prefix)
	if err != nil {
		return fmt.Errorf("aggregator: %w", err)
	}
	for _, name := range names {
		announcement, d, ok := parseNamed(prefix, name)
		if !ok {
			continue
		}
		rec, _, err := s.load(ctx, announcement)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		f(announcement, d, rec)
	}
	return nil
}

// parseNamed reads a name that begins with a prefix and has an announcement and a digest after it.
func parseNamed(prefix, name string) (announcement [32]byte, d hash, ok bool) {
	b, err := hex.DecodeString(name[min(len(name), len(prefix)):max(0, min(len(name), len(prefix)+64))])
	if err != nil || len(b) != 32 || len(name) != len(prefix)+64+1+64 {
		return announcement, d, false
	}
	return [32]byte(b), d, d.UnmarshalText([]byte(name[len(name)-64:])) == nil
}

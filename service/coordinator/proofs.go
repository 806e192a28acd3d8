package coordinator

import (
	"context"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/proved"
	"github.com/riffle-dp/riffle/protocol/coordinator"
	"github.com/riffle-dp/riffle/protocol/envelope"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/exchange"
	"github.com/riffle-dp/riffle/service/sealed"
	"github.com/riffle-dp/riffle/service/store"
)

// This file has the rounds whose reports carry proofs, and to whose sum the aggregators add the
// noise. What is stored of the open round, in this order: the key of the proofs; the one set of
// reports that is summed; the second aggregator's signature on it; the name of the own noise. All
// else is computed again after a crash, and gives the same bytes.

// sumProved goes through the batch together with the second aggregator, agrees with it on the set of
// valid reports, adds noise to the own share of their sum, and combines it with the other's.
func (r *runner) sumProved(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed) ([]*coordinator.Tally, map[wire.Reason]int64, error) {
	of, err := r.proved.Proved(c.Announcement)
	if err != nil {
		return nil, nil, err
	}
	tallies, err := r.newTallies(1)
	if err != nil {
		return nil, nil, err
	}
	key, err := r.verifyKey(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	earlier, err := r.earlier(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer earlier.clear()
	r.phase("aggregating")
	var sum *exchange.Exchange
	var partial vecsum.Partial
	var word []byte
	var stop error // which another try does not mend
	rejected := map[wire.Reason]int64{}
	err = r.patiently(ctx, func() (err error) {
		if sum == nil {
			if sum, err = r.exchange(ctx, a, c, of, key); errors.Is(err, batch.ErrLie) {
				stop = err
				return nil
			}
			if err != nil {
				return err
			}
			rejected = sum.Refused()
		}
		if got := sum.Tokens(); r.tokens != nil && got < a.MinReports {
			stop = tooFewTokens(got, c.Reports, a.MinReports)
			return nil
		}
		e := wire.Exclusion{Announcement: c.Announcement, Reports: c.Reports, Places: sum.Out(), Earlier: earlier.announcements}
		if stop = r.settle(ctx, a, &e); stop != nil {
			return nil
		}
		partial, word, err = r.agreed(ctx, &e)
		if refused := (*endpoint.Refusal)(nil); errors.As(err, &refused) {
			sum = nil // the aggregator may have restarted: from place 0
		}
		return err
	})
	if stop != nil {
		err = stop
	}
	if refused := batch.IsRefused(err); refused != nil && refused.Code == http.StatusConflict {
		if refused.Reason == wire.Excluded {
			err = &failure{FailedTooFew, "fewer reports are left than the aggregator sums", err}
		} else {
			err = &failure{FailedUnequal, "the aggregators do not agree on the valid reports", err}
		}
	}
	if err == nil && !slices.Equal(r.record.Open.Agreed, word) {
		err = r.saveOpen(ctx, func(o *openRound) { o.Agreed = word })
	}
	if err != nil {
		return nil, rejected, err
	}
	noise, err := r.noise(ctx, c)
	if err != nil {
		return nil, rejected, err
	}
	if err := r.mix(sum, earlier); err != nil {
		return nil, rejected, err
	}
	own, err := sum.Close(noise)
	clear(noise)
	if err != nil {
		return nil, rejected, &failure{FailedUnequal, "the aggregators' sums do not belong together", err}
	}
	counts, clients, err := of.Combine(own, partial)
	clear(own.Sums)
	if err != nil {
		return nil, rejected, &failure{FailedUnequal, "the aggregators' sums do not belong together", err}
	}
	if r.t.RecordSum != nil {
		if err := r.t.RecordSum(c.Round, counts, clients); err != nil {
			return nil, rejected, fmt.Errorf("coordinator: record: %w", err)
		}
	}
	return tallies, rejected, tallies[0].AddSum(counts, clients)
}

// verifyKey returns the key of the open round's proofs. It is made after the round was closed and
// charged, and stored before its first use.
func (r *runner) verifyKey(ctx context.Context, c *wire.RoundClosed) (key proved.VerifyKey, err error) {
	ring := r.s.config.Keyring
	if b := r.record.Open.Key; len(b) > 0 {
		b, err := sealed.VerifyKey.Open(ring, envelope.Coordinator, c.Announcement, b)
		if err == nil && len(b) != len(key) {
			err = errors.New("it has the wrong size")
		}
		if err != nil {
			return key, &failure{FailedSecret, "the key of the round's proofs cannot be read", err}
		}
		copy(key[:], b)
		return key, nil
	}
	if key, err = keyOfProofs(r.s.config.Key, c.Announcement); err != nil {
		return key, err
	}
	b, err := sealed.VerifyKey.Seal(ring, envelope.Coordinator, c.Announcement, key[:])
	if err != nil {
		return key, err
	}
	return key, r.saveOpen(ctx, func(o *openRound) { o.Key = b })
}

// keyOfProofs derives the key of a round's proofs from the signing key, which lies outside the store.
// So a coordinator whose store was restored from a copy without the key makes the same one again: a
// report that is prepared under two keys shows more of its vector than it should. To all who do not
// have the signing key, clients and the second aggregator among them, it is as good as drawn.
func keyOfProofs(signing ed25519.PrivateKey, announcement [32]byte) (key proved.VerifyKey, err error) {
	b, err := hkdf.Key(sha256.New, signing.Seed(), nil, "riffle/1 key of proofs"+string(announcement[:]), len(key))
	copy(key[:], b)
	return key, err
}

// saveOpen stores a change of the open round.
func (r *runner) saveOpen(ctx context.Context, change func(*openRound)) error {
	next, open := r.record, *r.record.Open
	change(&open)
	next.Open = &open
	return r.save(ctx, next)
}

// exchange goes through the places of the batch with the second aggregator. It gives the same sum
// whenever it is run, and begins with place 0.
func (r *runner) exchange(ctx context.Context, a *wire.Announcement, c *wire.RoundClosed, of *proved.Round, key proved.VerifyKey) (*exchange.Exchange, error) {
	signed := wire.Sign(r.s.config.Key, wire.LabelProofKey, wire.Encode(wire.ProofKey{Announcement: c.Announcement, Closed: wire.Digest(*c), Key: wire.VerifyKey(key)}))
	if _, err := r.prepare(ctx, a, c, signed); err != nil {
		return nil, err
	}
	if r.task.Receipts {
		r.detached = new(batch.Receipts)
	}
	reader := r.reader(a, c)
	reader.Workers = r.s.config.Workers
	x, err := exchange.New(ctx, exchange.Config{Round: of, Role: proved.Coordinator, Key: key, Batch: reader, Tokens: r.tokenRound(a),
		Open: func(sealed []byte) ([]byte, wire.Attached, error) { return r.openPart(c, sealed) }})
	if err != nil {
		return nil, err
	}
	defer x.Stop()
	path := fmt.Sprintf("/v1/rounds/%x/proofs", c.Announcement)
	for !x.Complete() {
		n := min(x.Left(), messagePlaces)
		own, err := x.Begin(ctx, n)
		if err != nil {
			return nil, err
		}
		body := wire.Sign(r.s.config.Key, wire.LabelProofs, wire.Encode(wire.Proofs{Announcement: c.Announcement, Message: own}))
		b, err := r.askAgain(ctx, path, body, int64(of.MessageSize(n))+1<<10)
		if err != nil {
			return nil, err
		}
		theirs, err := wire.Decode[wire.Proofs](b)
		if err == nil && theirs.Announcement != c.Announcement {
			err = errors.New("proofs of another round")
		}
		if err == nil {
			err = x.Finish(theirs.Message)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: aggregator: %w", batch.ErrLie, err)
		}
	}
	if r.detached != nil {
		receipts, err := r.theirReceipts(ctx, c)
		if err != nil {
			return nil, err
		}
		r.listReceipts(a, c, receipts, true)
	}
	return x, nil
}

// messagePlaces bounds the places of a message further; tests lower it.
var messagePlaces = math.MaxInt

// askAgain posts to the second aggregator, again where no answer came: it gives the same one.
func (r *runner) askAgain(ctx context.Context, path string, body []byte, limit int64) ([]byte, error) {
	pause := r.s.config.Backoff
	for try := 1; ; try++ {
		b, err := r.aggregator(ctx, http.MethodPost, path, body, limit)
		if refused := (*endpoint.Refusal)(nil); err == nil || try == 3 || errors.As(err, &refused) {
			return b, err
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
		pause *= 2
	}
}

// settle stores the one set of reports that this round is summed over. From then on there is no
// other, whatever the aggregator or the shuffler says.
func (r *runner) settle(ctx context.Context, a *wire.Announcement, e *wire.Exclusion) error {
	digest := hash(wire.Digest(*e))
	switch open := r.record.Open; {
	case open.Excluded == digest:
		return r.promised(e.Announcement)
	case open.Excluded != (hash{}):
		return noStep(FailedUnequal, "the proofs leave another set of reports the second time")
	}
	if left := e.Reports - int64(len(e.Places)); left < a.MinReports {
		return noStep(FailedTooFew, "%d of %d reports are left, n-min is %d", left, e.Reports, a.MinReports)
	}
	if err := r.saveOpen(ctx, func(o *openRound) { o.Excluded = digest }); err != nil {
		return err
	}
	return r.promised(e.Announcement)
}

// agreed sends the signed set of reports to the second aggregator, and returns its share of the sum
// and its signed word on the set.
func (r *runner) agreed(ctx context.Context, e *wire.Exclusion) (vecsum.Partial, []byte, error) {
	lie := func(err error) (vecsum.Partial, []byte, error) {
		return vecsum.Partial{}, nil, fmt.Errorf("%w: aggregator: %w", batch.ErrLie, err)
	}
	signed := wire.Sign(r.s.config.Key, wire.LabelExclusion, wire.Encode(*e))
	b, err := r.aggregator(ctx, http.MethodPost, fmt.Sprintf("/v1/rounds/%x/sum", e.Announcement), signed, 2<<10+8*int64(r.proved.Dim))
	if err != nil {
		return vecsum.Partial{}, nil, err
	}
	if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) {
		return lie(errors.New("an answer shorter than its length"))
	}
	n := binary.LittleEndian.Uint32(b)
	word, rest := slices.Clone(b[4:4+n]), b[4+n:]
	message, err := wire.Verify(r.s.config.Aggregator.Key, wire.LabelAgreed, word)
	if err != nil {
		return lie(err)
	}
	if said, err := wire.Decode[wire.Agreed](message); err != nil || said != (wire.Agreed{Announcement: e.Announcement, Exclusion: wire.Digest(*e)}) {
		return lie(errors.New("a signature on another set of reports"))
	}
	p, err := wire.Decode[wire.Partial](rest)
	if err == nil && (p.Announcement != e.Announcement || p.Exclusion != wire.Digest(*e) || p.Index != int64(proved.Aggregator)) {
		err = errors.New("partial sum of other reports")
	}
	if err != nil {
		return lie(err)
	}
	return vecsum.Partial{Tag: p.Tag, Index: int(p.Index), Clients: p.Clients, Reports: p.Reports, Sums: p.Sums}, word, nil
}

// noise returns the noise that the open round names. If it names none, noise is drawn, stored, and
// named by a compare-and-swap: only then may it be added to anything. A draw that loses, or dies
// with its process, has met no sum.
func (r *runner) noise(ctx context.Context, c *wire.RoundClosed) ([]int64, error) {
	if r.proved.ByClients() {
		return nil, nil
	}
	db, ring := r.s.config.Store, r.s.config.Keyring
	if named := r.record.Open.Noise; named != (hash{}) {
		if err := r.promised(c.Announcement); err != nil {
			return nil, err
		}
		b, err := db.GetObject(ctx, noiseName(r.id, named))
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return nil, err
		}
		if err == nil && digestOf(b) != named {
			err = errors.New("it is not what its name says")
		}
		var noise []int64
		if err == nil {
			noise, err = sealed.Noise.OpenVector(ring, envelope.Coordinator, c.Announcement, b, r.proved.Dim)
		}
		if err != nil {
			return nil, &failure{FailedSecret, "the round's noise cannot be read, and is not drawn again", err}
		}
		return noise, nil
	}
	noise, err := r.proved.Noise(rng.Secure())
	if err != nil {
		return nil, err
	}
	b, err := sealed.Noise.SealVector(ring, envelope.Coordinator, c.Announcement, noise)
	if err != nil {
		return nil, err
	}
	digest := hash(sha256.Sum256(b))
	if err := db.PutObject(ctx, noiseName(r.id, digest), b); err != nil {
		return nil, err
	}
	if err := r.saveOpen(ctx, func(o *openRound) { o.Noise = digest }); err != nil {
		clear(noise)
		return nil, err // the state is read again, and names this noise or none
	}
	if err := r.promised(c.Announcement); err != nil {
		clear(noise)
		return nil, err
	}
	return noise, nil
}

// noisePrefix begins the names of a task's noise.
func noisePrefix(task [32]byte) string { return fmt.Sprintf("noise/%x/", task) }

func noiseName(task [32]byte, d hash) string { return noisePrefix(task) + fmt.Sprintf("%x", d[:]) }

// sweepNoise deletes noise that is never added to anything again, and held sums that no release is made of:
// all but that of the open round and those that the state lists, and all of a task that has ended. The caller leads the task, so nobody else is about to name any.
// What stays is deleted later.
func (r *runner) sweepNoise(ctx context.Context, ended bool) {
	if r.proved == nil {
		return
	}
	names, err := r.s.config.Store.List(ctx, store.Objects, noisePrefix(r.id))
	held, e := r.s.config.Store.List(ctx, store.Objects, heldPrefix(r.id))
	err = errors.Join(err, e)
	for _, name := range append(names, held...) {
		if !ended && slices.ContainsFunc(r.record.Held, func(h heldSum) bool { return name == heldName(r.id, h.Share) }) {
			continue
		}
		if !ended && r.record.Open != nil && name == noiseName(r.id, r.record.Open.Noise) {
			continue
		}
		if e := r.s.config.Store.Delete(ctx, store.Objects, name); e != nil && !errors.Is(e, store.ErrNotFound) {
			err = errors.Join(err, e)
		}
	}
	if err != nil && ctx.Err() == nil {
		r.warn("noise or held sums that have no further use are not deleted yet", err)
	}
}

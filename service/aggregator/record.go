package aggregator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/batch"
	"github.com/riffle-dp/riffle/service/document"
)

// recordFormat is the version of the stored records; others are refused.
const recordFormat = 1

type hash = document.Hash

// record is the value of the key sum.<announcement>. Long data lie beside it as objects,
// named by their digests.
type record struct {
	Format     int   `json:"format"`
	Round      int64 `json:"round"`
	MinReports int64 `json:"n_min"`
	Closed     hash  `json:"closed"` // digest of the shuffler's statement on the closed round
	Own        hash  `json:"own"`    // SHA-256 of the exclusion that was answered
	// Key is the sealed key of the round's proofs; such a round has no Own and no IDs.
	Key []byte `json:"key,omitempty"`
	// Task is the digest of the task of a round with proofs.
	Task hash `json:"task,omitzero"`
	// IDs is the SHA-256 of the report ids by place.
	IDs hash `json:"ids,omitzero"`
	// Receipts is the SHA-256 of the receipts in the shares, ascending; zero if the task has none.
	Receipts hash `json:"receipts,omitzero"`
	// Summed is the digest of the one exclusion that may be summed; zero until then.
	Summed hash `json:"summed"`
	// Agreed is the signed word on Summed, of a round with proofs.
	Agreed []byte `json:"agreed,omitempty"`
	// Noise is the digest of the noise that is added to the sum; zero if none was drawn.
	Noise hash `json:"noise,omitzero"`
	// Sent says that clients send the noise with their reports, so that none is drawn.
	Sent bool `json:"noise_sent,omitempty"`
	// Held is the digest of the sealed share of the sum without noise, which later rounds' releases are made
	// of where noise is correlated, and HeldUntil the Unix time after which it is deleted.
	Held      hash  `json:"held,omitzero"`
	HeldUntil int64 `json:"held_until,omitempty"`
	// Partial is the SHA-256 of the partial sum; zero until there is one.
	Partial hash `json:"partial"`
}

func decodeRecord(b []byte) (record, error) {
	var r record
	if err := document.Decode(b, recordFormat, &r); err != nil {
		return r, fmt.Errorf("aggregator: a round's record: %v", err)
	}
	proofs := len(r.Key) > 0
	switch {
	case r.MinReports < 1 || r.Round < 1 || r.Closed == (hash{}) || r.Partial != (hash{}) && r.Summed == (hash{}),
		proofs == (r.Own != (hash{})), proofs == (r.IDs != (hash{})),
		proofs && r.Partial != (hash{}) && (r.Noise == (hash{})) != r.Sent, r.Sent && (!proofs || r.Noise != (hash{})), r.Noise != (hash{}) && r.Summed == (hash{}),
		!proofs && r.Noise != (hash{}), r.Held != (hash{}) && r.Partial == (hash{}), (len(r.Agreed) > 0) != (proofs && r.Summed != (hash{})):
		return record{}, errors.New("aggregator: invalid record of a round")
	}
	return r, nil
}

func (s *Service) load(ctx context.Context, announcement [32]byte) (record, uint64, error) {
	e, err := s.config.Store.Get(ctx, key(announcement))
	if err != nil {
		return record{}, 0, err
	}
	r, err := decodeRecord(e.Value)
	return r, e.Revision, err
}

func (s *Service) put(ctx context.Context, announcement [32]byte, r record, revision uint64) (uint64, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	return s.config.Store.Put(ctx, key(announcement), b, revision)
}

func objectName(kind string, d hash) string { return kind + "/" + hex.EncodeToString(d[:]) }

// create stores the exclusion, the report ids and the receipts, if there are any, before they are
// answered.
func (s *Service) create(ctx context.Context, j *job, e *wire.Exclusion, ids *wire.ShareIDs, receipts *batch.Receipts) error {
	b := wire.Encode(*e)
	own := hash(sha256.Sum256(b))
	if err := s.config.Store.PutObject(ctx, objectName("exclusion", own), b); err != nil {
		return err
	}
	r := record{Format: recordFormat, Round: j.closed.Round, MinReports: j.minReports, Closed: wire.Digest(j.closed), Own: own}
	if receipts != nil {
		sorted := receipts.Sorted()
		r.Receipts = sha256.Sum256(sorted)
		if err := s.config.Store.PutObject(ctx, objectName("receipts", r.Receipts), sorted); err != nil {
			return err
		}
	}
	b = wire.Encode(*ids)
	r.IDs = sha256.Sum256(b)
	if err := s.config.Store.PutObject(ctx, objectName("ids", r.IDs), b); err != nil {
		return err
	}
	_, err := s.put(ctx, j.digest, r, 0)
	return err
}

func (s *Service) ids(ctx context.Context, r record) (wire.ShareIDs, error) {
	b, err := s.object(ctx, "ids", r.IDs)
	if err != nil {
		return wire.ShareIDs{}, err
	}
	return wire.Decode[wire.ShareIDs](b)
}

func (s *Service) object(ctx context.Context, kind string, d hash) ([]byte, error) {
	b, err := s.config.Store.GetObject(ctx, objectName(kind, d))
	if err != nil {
		return nil, err
	}
	if sha256.Sum256(b) != d {
		return nil, fmt.Errorf("aggregator: stored %s is not what its name says", kind)
	}
	return b, nil
}

// exclusion returns the exclusion that was answered.
func (s *Service) exclusion(ctx context.Context, r record) (wire.Exclusion, error) {
	b, err := s.object(ctx, "exclusion", r.Own)
	if err != nil {
		return wire.Exclusion{}, err
	}
	return wire.Decode[wire.Exclusion](b)
}

// keep stores the partial sum before it is answered.
func (s *Service) keep(ctx context.Context, announcement [32]byte, r record, revision uint64, p *wire.Partial) error {
	b := wire.Encode(*p)
	r.Partial = sha256.Sum256(b)
	if err := s.config.Store.PutObject(ctx, objectName("partial", r.Partial), b); err != nil {
		return err
	}
	_, err := s.put(ctx, announcement, r, revision)
	return err
}

func (s *Service) partial(ctx context.Context, r record) (wire.Partial, error) {
	b, err := s.object(ctx, "partial", r.Partial)
	if err != nil {
		return wire.Partial{}, err
	}
	return wire.Decode[wire.Partial](b)
}

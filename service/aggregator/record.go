package aggregator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/riffle-dp/riffle/wire"
)

// recordFormat is the version of what is stored; a newer one is refused.
const recordFormat = 1

// hash is a digest that is stored as text; zero for none.
type hash [32]byte

func (h hash) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(h[:])), nil }

func (h *hash) UnmarshalText(b []byte) error {
	d, err := hex.DecodeString(string(b))
	if err != nil || len(d) != len(h) {
		return fmt.Errorf("digest %q", b)
	}
	copy(h[:], d)
	return nil
}

// record is sum.<announcement>. What may be long lies beside it as objects, which
// are named by their digests.
type record struct {
	Format     int   `json:"format"`
	Round      int64 `json:"round"`
	MinReports int64 `json:"n_min"`
	Closed     hash  `json:"closed"` // digest of the word on the round
	Own        hash  `json:"own"`    // SHA-256 of the exclusion that was answered
	// Summed is the digest of the one exclusion that is summed; zero until then.
	Summed hash `json:"summed"`
	// Partial is the SHA-256 of the partial sum; zero until there is one.
	Partial hash `json:"partial"`
}

func decodeRecord(b []byte) (record, error) {
	var v struct {
		Format int `json:"format"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return record{}, fmt.Errorf("aggregator: a round's record: %v", err)
	}
	if v.Format != recordFormat {
		return record{}, fmt.Errorf("aggregator: a round's record has format %d, this program knows %d", v.Format, recordFormat)
	}
	var r record
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		return record{}, fmt.Errorf("aggregator: a round's record: %v", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return record{}, errors.New("aggregator: more than one record")
	}
	if r.MinReports < 1 || r.Round < 1 || r.Own == (hash{}) || r.Closed == (hash{}) || r.Partial != (hash{}) && r.Summed == (hash{}) {
		return record{}, errors.New("aggregator: a round's record that cannot be")
	}
	return r, nil
}

func (s *Service) load(ctx context.Context, announcement [32]byte) (record, uint64, error) {
	b, revision, err := s.config.Store.Get(ctx, key(announcement))
	if err != nil {
		return record{}, 0, err
	}
	r, err := decodeRecord(b)
	return r, revision, err
}

func (s *Service) put(ctx context.Context, announcement [32]byte, r record, revision uint64) (uint64, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return 0, err
	}
	return s.config.Store.Put(ctx, key(announcement), b, revision)
}

func objectName(kind string, d hash) string { return kind + "/" + hex.EncodeToString(d[:]) }

// create writes the exclusion down that is to be answered.
func (s *Service) create(ctx context.Context, j *job, e *wire.Exclusion) error {
	b := e.Append(nil)
	own := hash(sha256.Sum256(b))
	if err := s.config.Store.PutObject(ctx, objectName("exclusion", own), b); err != nil {
		return err
	}
	_, err := s.put(ctx, j.digest, record{Format: recordFormat, Round: j.closed.Round, MinReports: j.minReports,
		Closed: wire.Digest(wire.LabelClosed, j.closed.Append(nil)), Own: own}, 0)
	return err
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

// exclusion returns the one that was answered.
func (s *Service) exclusion(ctx context.Context, r record) (wire.Exclusion, error) {
	b, err := s.object(ctx, "exclusion", r.Own)
	if err != nil {
		return wire.Exclusion{}, err
	}
	return wire.DecodeExclusion(b)
}

// keep writes the partial sum down that is to be answered.
func (s *Service) keep(ctx context.Context, announcement [32]byte, r record, revision uint64, p *wire.Partial) error {
	b := p.Append(nil)
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
	return wire.DecodePartial(b)
}

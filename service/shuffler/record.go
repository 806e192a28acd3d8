package shuffler

import (
	"context"
	"crypto/aes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"

	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/document"
	"github.com/riffle-dp/riffle/service/store"
)

// roundState is a round's state.
type roundState string

// States, in order. An open round goes to closing, and from there either to closed and then
// released or abandoned, or to void.
const (
	Open      roundState = "open"
	Closing   roundState = "closing" // no more reports are accepted
	Closed    roundState = "closed"  // the batch is offered
	Void      roundState = "void"    // too few reports: nothing was offered
	Released  roundState = "released"
	Abandoned roundState = "abandoned" // nobody took the batch in time
)

const recordFormat = 1

// record is a round's value in the store.
type record struct {
	Format       int        `json:"format"`
	Announcement []byte     `json:"announcement"` // signed
	State        roundState `json:"state"`
	// Roster is the digest of the roster that the round was opened under: draws depend on it.
	Roster [32]byte `json:"roster"`
	// Enrolment is the signed enrolment that the round counts on, if a registrar may change the
	// roster while the round is open.
	Enrolment []byte `json:"enrolment,omitempty"`
	// Cut is the last place of the stream of reports that counts, set when the round
	// closes: that of the barrier, or in a round that an earlier version has cut, of what was
	// last then. A report that a frontend stores after it is never acknowledged.
	Cut    *uint64 `json:"cut,omitempty"`
	Run    string  `json:"run,omitempty"`    // names the attempt to shuffle that made the chunks
	Closed []byte  `json:"closed,omitempty"` // the signed statement on the closed round

	revision uint64
}

func keyRecord(name string) string { return "round." + name }
func keyOpen(name string) string   { return "open." + name }
func keyCounts(name string) string { return "counts." + name + "." }

// suffixCut is the suffix of the barrier in a stream of reports.
const suffixCut = "cut"

func streamIn(name string) string           { return "in-" + name }
func streamBuckets(name, run string) string { return "b-" + name + "-" + run }
func streamParts(name, run string) string   { return streamBuckets(name, run) + "-parts" }
func streamOut(name, run string) string     { return "o-" + name + "-" + run }

func (s *Service) loadRecord(ctx context.Context, name string) (*record, error) {
	e, err := s.store.Get(ctx, keyRecord(name))
	if err != nil {
		return nil, err
	}
	return decodeRecord(e)
}

func decodeRecord(e store.Entry) (*record, error) {
	r := &record{revision: e.Revision}
	if err := document.Decode(e.Value, recordFormat, r); err != nil {
		return nil, fmt.Errorf("shuffler: the record of a round: %w", err)
	}
	return r, nil
}

// saveRecord stores r in place of the record that it was read from. It fails if the stored
// record has changed since.
func (s *Service) saveRecord(ctx context.Context, name string, r *record) error {
	b, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("shuffler: %v", err)
	}
	rev, err := s.store.Put(ctx, keyRecord(name), b, r.revision)
	if err == nil {
		r.revision = rev
	}
	return err
}

func (s *Service) operatorKey() ed25519.PublicKey {
	return s.config.Operator.Public().(ed25519.PublicKey)
}

// announcement decodes an announcement signed by a coordinator.
func (s *Service) announcement(signed []byte) (wire.Announcement, error) {
	ann, _, err := s.announced(signed)
	return ann, err
}

// announced does the same as announcement and also returns the key that signed it.
func (s *Service) announced(signed []byte) (wire.Announcement, ed25519.PublicKey, error) {
	for _, k := range s.config.Coordinators {
		message, err := wire.Verify(k, wire.LabelAnnouncement, signed)
		if errors.Is(err, wire.ErrSignature) {
			continue
		}
		if err != nil {
			return wire.Announcement{}, nil, pure.Refuse(wire.Malformed, "no signed announcement")
		}
		ann, err := wire.Decode[wire.Announcement](message)
		if err != nil {
			return wire.Announcement{}, nil, pure.Refuse(wire.Malformed, "no announcement of this version")
		}
		return ann, k, nil
	}
	return wire.Announcement{}, nil, pure.Refuse(wire.BadSignature, "the announcement is not signed by a coordinator of this shuffler")
}

// links are the keys of a round that link a client to its place in the batch, and say who is
// drawn. They are destroyed after the cut, when the batch is fixed. From then on nobody can
// find out either.
type links struct {
	order [16]byte // key of the permutation
	draw  [16]byte // key of the draw, for Sampled
}

const linksSize = 2 * aes.BlockSize

// linksName is the name under which a round's links are stored. The key that seals the round's
// streams is stored under the round's name, and lasts as long as its batch.
func linksName(name string) string { return "links-" + name }

// makeSecrets draws a round's keys, unless it has them.
func (s *Service) makeSecrets(ctx context.Context, name string) error {
	for secret, size := range map[string]int{name: sealingKeySize, linksName(name): linksSize} {
		fresh := make([]byte, size)
		rand.Read(fresh) // never fails
		if err := s.store.PutSecret(ctx, secret, fresh); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	return nil
}

// oldSize is the size of a round's keys in earlier versions, which stored them as one secret
// with the links first.
const oldSize = linksSize + sealingKeySize

func (s *Service) sealKey(ctx context.Context, name string) ([]byte, error) {
	b, err := s.store.Secret(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case len(b) == oldSize:
		return b[linksSize:], nil
	case len(b) != sealingKeySize:
		return nil, fmt.Errorf("shuffler: a round's key of %d bytes, want %d", len(b), sealingKeySize)
	}
	return b, nil
}

func (s *Service) links(ctx context.Context, name string) (k links, err error) {
	b, err := s.store.Secret(ctx, linksName(name))
	if errors.Is(err, store.ErrNotFound) {
		var old []byte
		if old, err = s.store.Secret(ctx, name); err == nil && len(old) == oldSize {
			b = old[:linksSize]
		} else if err == nil {
			err = errUnavailable // the cut was made meanwhile
		}
	}
	if err != nil {
		return k, err
	}
	if len(b) != linksSize {
		return k, fmt.Errorf("shuffler: a round's links of %d bytes, want %d", len(b), linksSize)
	}
	copy(k.order[:], b)
	copy(k.draw[:], b[aes.BlockSize:])
	return k, nil
}

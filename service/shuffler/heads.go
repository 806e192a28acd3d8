package shuffler

import (
	"context"
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"

	"github.com/riffle-dp/riffle/dp"
	pure "github.com/riffle-dp/riffle/protocol/shuffler"
	"github.com/riffle-dp/riffle/protocol/wire"
	"github.com/riffle-dp/riffle/service/endpoint"
	"github.com/riffle-dp/riffle/service/store"
)

// A coordinator tells how far its ledger was written in each announcement, and again when it
// has charged a round and wants the batch. The shuffler keeps the furthest head of each of
// its coordinators. One whose machine was restored from an old copy has a shorter ledger, or
// another one: it gets no round and no batch.

// head is the furthest that a coordinator's ledger was ever written, as the store has it.
type head struct {
	Entries int64  `json:"entries"`
	Digest  string `json:"digest"`
}

func (s *Service) keyHead(signer ed25519.PublicKey) string {
	return fmt.Sprintf("head.%x.%x", s.config.Population, signer[:16])
}

// head returns the furthest head of a coordinator; some says whether there is one.
func (s *Service) head(ctx context.Context, signer ed25519.PublicKey) (h wire.Head, some bool, revision uint64, err error) {
	var have head
	if revision, err = s.getJSON(ctx, s.keyHead(signer), &have); err != nil || revision == 0 {
		return h, false, 0, err
	}
	digest, err := hex.DecodeString(have.Digest)
	if err != nil || len(digest) != len(h.Digest) {
		return h, false, 0, fmt.Errorf("shuffler: %s: digest %q", s.keyHead(signer), have.Digest)
	}
	return wire.Head{Entries: have.Entries, Digest: [32]byte(digest)}, true, revision, nil
}

// keepHead makes a head durable if it is further than the one that is kept. It returns the one
// that is kept then, and a refusal if a ledger with that one cannot have the told one.
func (s *Service) keepHead(ctx context.Context, signer ed25519.PublicKey, told wire.Head) (wire.Head, error) {
	for range 100 {
		have, some, revision, err := s.head(ctx, signer)
		if err != nil {
			return have, err
		}
		if some {
			if err := told.Follows(have); err != nil {
				return have, pure.Refuse(wire.OldLedger, "%v", err)
			}
			if told == have {
				return have, nil
			}
		}
		err = s.putJSON(ctx, s.keyHead(signer), head{told.Entries, hex.EncodeToString(told.Digest[:])}, revision)
		if !errors.Is(err, store.ErrConflict) {
			return told, err
		}
	}
	return wire.Head{}, errUnavailable
}

// checkHead refuses an announcement whose ledger is older than one that its coordinator had.
func (s *Service) checkHead(ctx context.Context, signer ed25519.PublicKey, ann wire.Announcement) error {
	if ann.Ledger != nil {
		_, err := s.keepHead(ctx, signer, *ann.Ledger)
		return err
	}
	have, some, _, err := s.head(ctx, signer)
	if err == nil && some {
		err = pure.Refuse(wire.OldLedger, "the announcement does not tell the ledger's head, which had %d entries before", have.Entries)
	}
	return err
}

// checkCharged refuses a batch whose coordinator has not told of a charge since it announced
// the round that is charged for it: this one, or an earlier one of its epoch that was not void.
func (s *Service) checkCharged(ctx context.Context, rec *record) error {
	ann, signer, err := s.announced(rec.Announcement)
	if err != nil || ann.Ledger == nil {
		return err
	}
	before, err := s.toldBefore(ctx, rec.Payer, ann)
	if err != nil {
		return err
	}
	have, _, _, err := s.head(ctx, signer)
	if err == nil && have.Entries <= before {
		err = pure.Refuse(wire.OldLedger, "the round was announced with %d entries in the ledger, and no more were told than %d", ann.Ledger.Entries, before)
	}
	return err
}

// toldBefore returns how many entries the ledger had when the round was announced that is charged for
// this one. A round without a head was charged before this one's head was told.
func (s *Service) toldBefore(ctx context.Context, payer string, ann wire.Announcement) (int64, error) {
	own := ann.Ledger.Entries
	digest := wire.Digest(ann)
	if payer == "" || payer == encodeName(digest[:]) {
		return own, nil
	}
	rec, err := s.loadRecord(ctx, payer)
	if err != nil {
		return own, gone(err)
	}
	first, _, err := s.announced(rec.Announcement)
	switch {
	case err != nil:
		return own, err
	case rec.State == Open || rec.State == Closing || rec.State == Void && !first.Trust.Is(dp.Alone):
		return own, nil // it was not charged
	case first.Ledger == nil:
		return 0, nil
	}
	return min(own, first.Ledger.Entries), nil
}

// knownCharged is checkCharged for every chunk of a batch: heads only grow, so it asks once.
func (s *Service) knownCharged(ctx context.Context, name string, rec *record) error {
	s.mu.Lock()
	known := s.charged == name
	s.mu.Unlock()
	if known {
		return nil
	}
	err := s.checkCharged(ctx, rec)
	if err == nil {
		s.mu.Lock()
		s.charged = name
		s.mu.Unlock()
	}
	return err
}

// serveLedger takes a signed wire.HeadStatement, and answers with the furthest head.
func (s *Service) serveLedger(w http.ResponseWriter, r *http.Request) {
	body, ok := endpoint.ReadBody(w, r, maxSmall)
	if !ok {
		return
	}
	have, err := s.tellHead(r.Context(), body)
	if err != nil {
		s.refuse(w, err)
		return
	}
	writeBytes(w, wire.Encode(wire.HeadStatement{Population: s.config.Population, Head: have}))
}

func (s *Service) tellHead(ctx context.Context, signed []byte) (wire.Head, error) {
	if !s.running.Load() {
		return wire.Head{}, errNotRunning
	}
	for _, signer := range s.config.Coordinators {
		message, err := wire.Verify(signer, wire.LabelHead, signed)
		if errors.Is(err, wire.ErrSignature) {
			continue
		}
		if err != nil {
			return wire.Head{}, pure.Refuse(wire.Malformed, "no signed head")
		}
		m, err := wire.Decode[wire.HeadStatement](message)
		if err != nil || m.Population != s.config.Population {
			return wire.Head{}, pure.Refuse(wire.Malformed, "no ledger's head of this population")
		}
		have, err := s.keepHead(ctx, signer, m.Head)
		if refused := (*pure.Refusal)(nil); errors.As(err, &refused) && refused.Reason == wire.OldLedger {
			err = nil // the coordinator sees in the answer what it had before
		}
		return have, err
	}
	return wire.Head{}, pure.Refuse(wire.BadSignature, "the head is not signed by a coordinator of this shuffler")
}

package shuffler

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/dp"
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
	// Payer names the round that is charged for this one's epoch in Once, as was known when this one was
	// opened; empty or its own name: it is charged for itself.
	Payer string `json:"payer,omitempty"`
	// Bits is the number of a tag's leading bits that name a report's bucket in the stream of
	// reports, fixed when the round was opened; 0: the stream is not dealt into buckets.
	Bits int `json:"bits,omitempty"`
	// Cut is the last place of the stream of reports that counts, that of the barrier, set when the
	// round closes. A report that a frontend stores after it is never acknowledged.
	Cut *uint64 `json:"cut,omitempty"`
	// Plan says how the reports are shuffled, set after the cut.
	Plan   *plan    `json:"plan,omitempty"`
	Run    string   `json:"run,omitempty"`    // names the stream with chunks, their index and digests
	Runs   []string `json:"runs,omitempty"`   // name other streams with chunks
	Closed []byte   `json:"closed,omitempty"` // the signed statement on the closed round

	revision uint64
}

// check refuses a record that no shuffler has written.
func (r *record) check() error {
	if r.Bits < 0 || r.Bits > mostDealt {
		return fmt.Errorf("shuffler: the record of a round has 2^%d buckets, at most 2^%d are dealt", r.Bits, mostDealt)
	}
	if p := r.Plan; p != nil && (p.Bits < 0 || p.Bits > pure.MaxBits || r.Cut == nil || !p.Deal && p.Bits != r.Bits) {
		return fmt.Errorf("shuffler: the record of a round has a plan of 2^%d buckets", p.Bits)
	}
	return nil
}

// mostDealt bounds the bits by which reports are dealt as they come. Each bucket has a block in
// memory, and the more buckets, the fewer reports share a write.
const mostDealt = 4

// dealt returns by how many bits a round's reports are dealt as they come: none, if those of all
// clients who are expected fit a bucket. If more come, they are dealt again after the cut.
func (s *Service) dealt(ann wire.Announcement) int {
	clients := ann.Population
	switch ann.Participation {
	case dp.CheckIn:
		clients = int64(math.Ceil(ann.Gamma * float64(ann.Population)))
	case dp.Sampled:
		clients = ann.Sample
	case dp.Once:
		clients = (ann.Population + ann.PerEpoch - 1) / max(1, ann.PerEpoch)
	}
	return min(mostDealt, pure.BucketBits(clients, int64(itemSize(ann)), s.config.Bucket))
}

// bucketSuffix is the suffix of a bucket's blocks in the stream of reports.
func bucketSuffix(bucket, bits int) string {
	if bits == 0 {
		return ""
	}
	return strconv.Itoa(bucket)
}

func keyRecord(name string) string { return "round." + name }
func keyOpen(name string) string   { return "open." + name }

// streams lists the streams of a closed round's batch.
func (r *record) streams(name string) (all []string) {
	for _, run := range append([]string{r.Run}, r.Runs...) {
		all = append(all, streamOut(name, run))
	}
	return all
}

func keyCounts(name string) string { return "counts." + name + "." }

// suffixCut is the suffix of the barrier in a stream of reports.
const suffixCut = "cut"

func streamIn(name string) string           { return "in-" + name }
func streamBuckets(name, run string) string { return "b-" + name + "-" + run }
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
	return r, r.check()
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

// verified is a signed announcement whose signature was checked.
type verified struct {
	signed []byte
	ann    wire.Announcement
	signer ed25519.PublicKey
}

// announced does the same as announcement and also returns the key that signed it. It keeps the last
// one, because an open round is looked at at each poll.
func (s *Service) announced(signed []byte) (wire.Announcement, ed25519.PublicKey, error) {
	if v := s.verified.Load(); v != nil && bytes.Equal(v.signed, signed) {
		return v.ann, v.signer, nil
	}
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
		s.verified.Store(&verified{bytes.Clone(signed), ann, k})
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

func (s *Service) sealKey(ctx context.Context, name string) ([]byte, error) {
	b, err := s.store.Secret(ctx, name)
	if err == nil && len(b) != sealingKeySize {
		err = fmt.Errorf("shuffler: a round's key of %d bytes, want %d", len(b), sealingKeySize)
	}
	return b, err
}

func (s *Service) links(ctx context.Context, name string) (k links, err error) {
	b, err := s.store.Secret(ctx, linksName(name))
	if errors.Is(err, store.ErrNotFound) {
		if _, err = s.store.Secret(ctx, name); err == nil {
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

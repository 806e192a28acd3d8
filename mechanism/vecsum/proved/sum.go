package proved

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"maps"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
)

// VerifyKey is the secret that the two aggregators share. It is drawn from crypto/rand, once a
// round, after the batch is closed. A client that knows it can make false proofs. A report that is
// prepared under two keys shows more about its vector than it should.
type VerifyKey = pine.VerifyKey

// Reason says why a report was left out. The strings are those of the wire's reasons.
type Reason string

const (
	Accepted   Reason = ""
	CannotOpen Reason = "wrong-key"     // an aggregator cannot open its half, or its half is no half
	Unequal    Reason = "unequal"       // the two halves are not of one report
	Again      Reason = "second-report" // a report at an earlier place has the same nonce
	BadProof   Reason = "bad-proof"     // its proof does not hold
)

// SumConfig says whose sum it is. Role, Key and Reports are required.
type SumConfig struct {
	Role    Role
	Key     VerifyKey
	Reports int64 // places of the batch
}

// Sum is the state of one aggregator for one round: a state machine that goes through the places
// of the batch in their order, some at a time. The caller carries the messages, which must be
// authentic but need not be secret.
//
// Both aggregators decide alike about each place, if both are honest. Either can make both
// leave out any report, and no more.
//
// A Sum begins at place 0. After a crash the caller makes another with the same key, and goes
// through the same batch: all messages and decisions are the same bytes again. It must store the
// key before [Sum.Prepare], and never use another one for this round; the set of places left out,
// before it draws noise, and never close a sum of another set; and the noise, before
// [Sum.Close], and never close with another noise.
//
// One goroutine may use a Sum, but for Prepare.
type Sum struct {
	round   *Round
	config  SumConfig
	keyName [keyNameSize]byte

	next    int64       // place
	begun   []*Prepared // the places from next on that wait for the other's message
	seen    map[pine.Nonce]struct{}
	sums    [][]byte // the share of the vectors' sum, and of the noise's if reports have any
	out     []int64  // places left out, ascending
	refused map[Reason]int64
	digest  hash.Hash // of the reports summed
	mixed   bool
	closed  bool
}

// NewSum checks c.
func (r *Round) NewSum(c SumConfig) (*Sum, error) {
	switch {
	case c.Role != Aggregator && c.Role != Coordinator:
		return nil, fmt.Errorf("proved: aggregator %d of %d", c.Role, aggregators)
	case c.Key == (VerifyKey{}):
		return nil, errors.New("proved: verify key is not set")
	case c.Reports < 1 || c.Reports > r.config.Users:
		return nil, fmt.Errorf("proved: %d reports must be 1 to users = %d", c.Reports, r.config.Users)
	}
	s := &Sum{round: r, config: c, seen: map[pine.Nonce]struct{}{}, refused: map[Reason]int64{}, digest: sha256.New()}
	for _, p := range r.parts {
		s.sums = append(s.sums, make([]byte, p.sizes.Out))
	}
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved key 1\x00"))
	h.Write(r.tag[:])
	h.Write(c.Key[:])
	copy(s.keyName[:], h.Sum(nil))
	s.digest.Write([]byte("riffle/vecsum/proved reports 1\x00"))
	s.digest.Write(r.tag[:])
	return s, nil
}

// Format keeps key and sums out of logs, for every verb.
func (s *Sum) Format(w fmt.State, _ rune) {
	_, _ = fmt.Fprintf(w, "proved: sum of aggregator %d", s.config.Role)
}

// Prepared is what an aggregator keeps of a report until it is decided.
type Prepared struct {
	sum        *Sum
	kind       byte
	nonce      pine.Nonce
	commitment [digestSize]byte
	vectors    []vectorPrep
	err        error
}

// vectorPrep is one of the vectors of a report.
type vectorPrep struct {
	state *pine.State
	prep  []byte
}

// Format keeps shares out of logs, for every verb.
func (*Prepared) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, "proved: prepared report") }

// What an aggregator says of a place.
const (
	unopened = iota // it has no half
	bad             // its half alone shows that the proof does not hold
	good
)

// Prepare does the long part of the work on a half, which is opened; nil stands for a half that
// cannot be opened. The result does not refer to content. It depends on the content, the key and the
// round only. Several goroutines may call it.
func (s *Sum) Prepare(content []byte) *Prepared {
	r, role := s.round, s.config.Role
	p := &Prepared{sum: s, kind: unopened}
	h, ok := r.parse(role, content)
	if !ok {
		return p
	}
	p.nonce, p.commitment = h.nonce, r.commitment(role, h)
	p.kind = good
	p.vectors = make([]vectorPrep, len(r.parts))
	for i := range p.vectors {
		v := &p.vectors[i]
		v.state, v.prep, p.err = r.parts[i].pine.PrepInit(s.config.Key, int(role), h.nonce, h.public[i], h.inputs[i])
		if errors.Is(p.err, pine.ErrRefused) {
			p.kind, p.err = bad, nil
		}
		if p.err != nil || p.kind == bad {
			break
		}
	}
	return p
}

// Next returns the place that the next message begins with. All before are decided.
func (s *Sum) Next() int64 { return s.next }

// Begin takes the next places of the batch, in their order, and returns the message for the other
// aggregator. Called again before Finish it takes the same places anew.
func (s *Sum) Begin(places []*Prepared) ([]byte, error) {
	if s.closed {
		return nil, errClosed
	}
	if n := len(places); n < 1 || n > s.round.Places() || int64(n) > s.config.Reports-s.next {
		return nil, fmt.Errorf("proved: %d places from place %d on, of %d", n, s.next, s.config.Reports)
	}
	for _, p := range places {
		if p == nil || p.sum != s {
			return nil, errors.New("proved: a place was not prepared for this sum")
		}
		if p.err != nil {
			return nil, fmt.Errorf("proved: %w", p.err)
		}
	}
	s.begun = slices.Clone(places)
	return s.message(), nil
}

// Finish takes the other aggregator's message on the places that Begin took. It returns for each
// place why it is left out, or Accepted, and has then added its share. After an error nothing has
// changed: the message is not one that an honest aggregator sends.
func (s *Sum) Finish(message []byte) ([]Reason, error) {
	if s.closed {
		return nil, errClosed
	}
	if len(s.begun) == 0 {
		return nil, errors.New("proved: no place waits for a message")
	}
	theirs, err := s.decode(message)
	if err != nil {
		return nil, err
	}
	if len(theirs) != len(s.begun) {
		return nil, fmt.Errorf("proved: a message on %d places, not %d", len(theirs), len(s.begun))
	}
	shares := make([][][]byte, len(theirs)) // of reports whose proofs hold
	for i, own := range s.begun {
		if own.kind != good || theirs[i].kind != good || own.commitment != theirs[i].commitment {
			continue
		}
		shares[i], err = s.verify(own, theirs[i])
		if err != nil && !errors.Is(err, pine.ErrRefused) {
			return nil, fmt.Errorf("proved: place %d: %w", s.next+int64(i), err)
		}
	}
	reasons := make([]Reason, len(theirs))
	for i, own := range s.begun {
		reasons[i] = s.decide(own, theirs[i], shares[i])
		if reasons[i] == Accepted {
			for k, share := range shares[i] {
				if err := s.round.parts[k].pine.Add(s.sums[k], share); err != nil {
					panic(err) // its share was checked when it was prepared
				}
			}
			s.digest.Write(binary.LittleEndian.AppendUint64(nil, uint64(s.next)))
			s.digest.Write(own.commitment[:])
		} else {
			s.out = append(s.out, s.next)
			s.refused[reasons[i]]++
		}
		s.next++
	}
	s.begun = nil
	return reasons, nil
}

// verify returns the shares of a report's vectors, whose proofs hold.
func (s *Sum) verify(own *Prepared, other entry) (shares [][]byte, err error) {
	for i, v := range own.vectors {
		preps := [aggregators][]byte{other.preps[i], other.preps[i]}
		preps[s.config.Role] = v.prep
		of := s.round.parts[i].pine
		message, err := of.PrepMessage(preps[Aggregator], preps[Coordinator])
		if err != nil {
			return nil, err
		}
		share, err := of.PrepNext(v.state, message)
		if err != nil {
			return nil, err
		}
		shares = append(shares, share)
	}
	return shares, nil
}

// decide depends only on what both aggregators know: both messages, and what was decided before.
// The commitments have the nonces in them.
func (s *Sum) decide(own *Prepared, other entry, shares [][]byte) Reason {
	if own.kind == unopened || other.kind == unopened {
		return CannotOpen
	}
	if own.commitment != other.commitment {
		return Unequal
	}
	if _, again := s.seen[own.nonce]; again {
		return Again
	}
	s.seen[own.nonce] = struct{}{}
	if shares == nil {
		return BadProof
	}
	return Accepted
}

// Out returns the places left out so far, ascending.
func (s *Sum) Out() []int64 { return slices.Clone(s.out) }

// Refused returns the numbers of places left out so far, by reason.
func (s *Sum) Refused() map[Reason]int64 { return maps.Clone(s.refused) }

// Earlier is the share of an earlier round's sum that goes into this round's release, and its weight.
type Earlier struct {
	Weight int64   // not negative
	Share  []int64 // from Mix of that round, at the same aggregator
}

// Mix makes the share of this round's release, but for the noise, of the shares of several sums: this
// round's, with the given weight, and earlier ones'. It comes before Close, once. It returns the share
// of this round's own sum, for later rounds. Both aggregators must mix the same rounds with the same
// weights. Noise that clients sent is not mixed: Close adds it.
//
// Shares of sums are secret: with both aggregators' anybody has sums without noise.
func (s *Sum) Mix(weight int64, earlier []Earlier) (own []int64, err error) {
	if s.closed || s.mixed {
		return nil, errClosed
	}
	if s.next != s.config.Reports {
		return nil, fmt.Errorf("proved: %d of %d places are decided", s.next, s.config.Reports)
	}
	own = make([]int64, s.round.config.Dim)
	for i := range own {
		own[i] = int64(binary.LittleEndian.Uint64(s.sums[0][8*i:]))
	}
	mixed := make([]byte, len(s.sums[0]))
	for _, e := range append([]Earlier{{weight, own}}, earlier...) {
		if e.Weight < 0 || len(e.Share) != len(own) {
			return nil, fmt.Errorf("proved: weight %d of a share of %d values, not %d", e.Weight, len(e.Share), len(own))
		}
		share := make([]byte, 0, len(mixed))
		for _, v := range e.Share {
			share = binary.LittleEndian.AppendUint64(share, uint64(v))
		}
		if err := s.times(mixed, share, e.Weight); err != nil {
			return nil, err
		}
		clear(share)
	}
	clear(s.sums[0])
	s.sums[0], s.mixed = mixed, true
	return own, nil
}

// times adds weight times a share, in the field, by doubling. It overwrites share.
func (s *Sum) times(sum, share []byte, weight int64) error {
	for ; weight > 0; weight >>= 1 {
		if weight&1 == 1 {
			if err := s.round.pine.Add(sum, share); err != nil {
				return fmt.Errorf("proved: %w", err)
			}
		}
		if err := s.round.pine.Add(share, slices.Clone(share)); err != nil {
			return fmt.Errorf("proved: %w", err)
		}
	}
	return nil
}

var errClosed = errors.New("proved: the sum is closed")

// Close adds noise to this aggregator's share of the sum and returns it. All places must be
// decided, and at least one report accepted. Sums without noise are not private. If clients sent
// noise, it is theirs that is added, and noise must be nil.
func (s *Sum) Close(noise []int64) (vecsum.Partial, error) {
	n := s.next - int64(len(s.out))
	switch {
	case s.closed:
		return vecsum.Partial{}, errClosed
	case s.next != s.config.Reports:
		return vecsum.Partial{}, fmt.Errorf("proved: %d of %d places are decided", s.next, s.config.Reports)
	case n == 0:
		return vecsum.Partial{}, errors.New("proved: no report was accepted")
	case noise != nil && len(s.sums) > 1:
		return vecsum.Partial{}, errors.New("proved: noise is added to a sum with the noise of clients")
	}
	var share []byte
	var err error
	if len(s.sums) > 1 {
		share = s.sums[1]
	} else if share, err = s.round.pine.Encode(noise); err != nil {
		return vecsum.Partial{}, fmt.Errorf("proved: noise: %w", err)
	}
	sum := s.sums[0]
	if err := s.round.pine.Add(sum, share); err != nil {
		return vecsum.Partial{}, fmt.Errorf("proved: %w", err)
	}
	p := vecsum.Partial{Tag: s.round.tag, Index: int(s.config.Role), Clients: n, Sums: make([]uint64, s.round.config.Dim)}
	s.digest.Sum(p.Reports[:0])
	for i := range p.Sums {
		p.Sums[i] = binary.LittleEndian.Uint64(sum[8*i:])
	}
	clear(share)
	clear(sum)
	s.closed, s.seen = true, nil
	return p, nil
}

// Combine returns the noisy sum from both aggregators' shares, in any order, and the number of
// reports in it. It cannot tell a share that is no sum; see vecsum.Aggregated.CheckSum.
func (r *Round) Combine(a, b vecsum.Partial) (sum []int64, clients int64, err error) {
	shares := [aggregators][]byte{}
	for _, p := range []vecsum.Partial{a, b} {
		switch {
		case p.Index < 0 || p.Index >= aggregators || shares[p.Index] != nil:
			return nil, 0, fmt.Errorf("proved: partial sum of aggregator %d is one too many", p.Index)
		case p.Tag != r.tag:
			return nil, 0, errors.New("proved: partial sum from another round or of other parameters")
		case len(p.Sums) != r.config.Dim:
			return nil, 0, fmt.Errorf("proved: partial sum of %d counts, not %d", len(p.Sums), r.config.Dim)
		case p.Clients != a.Clients || p.Reports != a.Reports:
			return nil, 0, errors.New("proved: unequal shares: the aggregators did not sum the same reports")
		case p.Clients < 1 || p.Clients > r.config.Users:
			return nil, 0, fmt.Errorf("proved: %d clients must be 1 to users = %d", p.Clients, r.config.Users)
		}
		share := make([]byte, 0, r.sizes.Out)
		for _, v := range p.Sums {
			share = binary.LittleEndian.AppendUint64(share, v)
		}
		shares[p.Index] = share
	}
	sum, err = r.pine.Unshard(shares[Aggregator], shares[Coordinator])
	if err != nil {
		return nil, 0, fmt.Errorf("proved: %w", err)
	}
	return sum, a.Clients, nil
}

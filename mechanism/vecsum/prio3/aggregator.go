package prio3

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128"
	"github.com/cloudflare/circl/vdaf/prio3/sumvec"
)

// VerifyKey is the secret that the two aggregators share. It is drawn from crypto/rand for
// one round before any report, because a client that knows it can make false proofs. An
// aggregator never takes a second key for a round: a report prepared under both keys is
// checked at two points, which together tell the other aggregator about its digits.
type VerifyKey [32]byte

// Format keeps the key out of logs, for every verb.
func (VerifyKey) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, "verify key") }

// ErrRefused is wrapped by the error of a report whose proof does not hold or whose two
// halves do not fit. Nothing of the report was added; the refusal was counted.
var ErrRefused = errors.New("prio3: report refused")

var errClosed = errors.New("prio3: the aggregator has released this round's sums: nothing is added or released again")

// Aggregator checks and sums the shares sent to one of the two. It is a state machine without
// a network: the caller carries the messages. For the sum, and for each report between Begin
// and Finish, it holds 16 bytes for each digit of each count; for every report it holds a few
// dozen bytes more.
//
// It can be closed only once, because the difference of two sums could show the counts of a
// few clients. There must never be a second Aggregator for a round and an index: after a
// restart treat it as closed and start another round, because a client may know by then where
// its proof was checked. An Aggregator is not safe for concurrent use.
//
// Each aggregator can make both refuse any report. So a party that trusts only one of them has
// to count the drop-outs that the other one may choose as colluders, as Params.Honest does.
type Aggregator struct {
	shares   *Shares
	vdaf     *sumvec.SumVec
	index    int
	key      sumvec.VerifyKey
	keyName  [keyNameSize]byte
	sum      sumvec.AggShare
	reports  map[sumvec.Nonce]*pending // nil: the report was accepted or refused
	accepted []sumvec.Nonce
	Refused  int64 // reports refused so far
	closed   bool
}

// pending is a report whose half for this aggregator has arrived.
type pending struct {
	state  *sumvec.PrepState
	share  *sumvec.PrepShare
	public [digestSize]byte // digest of the public share and the commitment
}

// Format keeps the key and the sums out of logs.
func (a *Aggregator) Format(w fmt.State, _ rune) {
	_, _ = fmt.Fprintf(w, "prio3: aggregator %d", a.index)
}

// NewAggregator returns aggregator 0 or 1.
func (s *Shares) NewAggregator(index int, key VerifyKey) (*Aggregator, error) {
	if index < 0 || index >= aggregators {
		return nil, fmt.Errorf("prio3: aggregator %d of %d", index, aggregators)
	}
	if key == (VerifyKey{}) {
		return nil, errors.New("prio3: verify key is not set")
	}
	v, err := s.vdaf()
	if err != nil {
		return nil, err
	}
	a := &Aggregator{shares: s, vdaf: v, index: index, key: sumvec.VerifyKey(key), sum: v.AggregateInit(), reports: map[sumvec.Nonce]*pending{}}
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/prio3 key 1"))
	h.Write(s.tag[:])
	h.Write(key[:])
	copy(a.keyName[:], h.Sum(nil))
	return a, nil
}

// Begin takes a client's report and returns the preparation message for the
// other aggregator. After an error other than ErrRefused nothing has changed.
func (a *Aggregator) Begin(report []byte) ([]byte, error) {
	if a.closed {
		return nil, errClosed
	}
	s := a.shares
	if err := s.check(report, kindReport, a.index, s.reportSize(a.index)); err != nil {
		return nil, err
	}
	id := sumvec.Nonce(report[headerSize:])
	if _, again := a.reports[id]; again {
		return nil, errors.New("prio3: a report came twice")
	}
	params := a.vdaf.Params()
	public := sumvec.PublicShare(report[headerSize+idSize : commitStart])
	if a.index == 0 && s.commitment(report) != [digestSize]byte(report[commitStart:]) {
		return nil, a.refuse(id, "it is not what the client has committed to")
	}
	var input sumvec.InputShare
	input.New(&params, uint(a.index))
	if err := input.UnmarshalBinary(report[reportStart:]); err != nil {
		return nil, a.refuse(id, "its share is not of field elements")
	}
	state, share, err := a.vdaf.PrepInit(&a.key, &id, uint8(a.index), public, input)
	if err != nil {
		return nil, a.refuse(id, err.Error())
	}
	body, err := share.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	p := &pending{state, share, sha256.Sum256(report[headerSize+idSize : reportStart])}
	m := s.header(kindPrep, a.index, prepStart+s.prep)
	m = append(m, id[:]...)
	m = append(m, a.keyName[:]...)
	m = append(m, p.public[:]...)
	m = append(m, body...)
	if len(m) != prepStart+s.prep {
		panic("prio3: a preparation message's size is not what was computed for it")
	}
	a.reports[id] = p
	return m, nil
}

func (a *Aggregator) refuse(id sumvec.Nonce, why string) error {
	a.reports[id] = nil
	a.Refused++
	return fmt.Errorf("%w: %s", ErrRefused, why)
}

// Finish takes the other aggregator's preparation message for a report begun here, verifies
// the proof, and adds the share or refuses the report. Both aggregators come to the same
// decision, because it is a function of both messages; the messages must be authentic but
// need not be secret. After an error other than ErrRefused nothing has changed; the caller
// keeps a message that arrives before its report.
//
// After Users reports no more are added. The order of Finish decides which reports those are.
// If more clients may be admitted, both aggregators must keep to one order, or their sums do
// not fit together.
func (a *Aggregator) Finish(prep []byte) error {
	if a.closed {
		return errClosed
	}
	s := a.shares
	if err := s.check(prep, kindPrep, 1-a.index, prepStart+s.prep); err != nil {
		return err
	}
	id := sumvec.Nonce(prep[headerSize:])
	p, known := a.reports[id]
	switch {
	case !known:
		return errors.New("prio3: preparation of a report that has not come")
	case p == nil:
		return errors.New("prio3: preparation of a report that is decided")
	case [keyNameSize]byte(prep[headerSize+idSize:]) != a.keyName:
		return errors.New("prio3: the aggregators hold different verify keys")
	case int64(len(a.accepted)) >= s.params.Users:
		return s.params.CheckCohort(s.params.Users + 1)
	}
	params := a.vdaf.Params()
	var other sumvec.PrepShare
	other.New(&params)
	if err := other.UnmarshalBinary(prep[prepStart:]); err != nil {
		return errors.New("prio3: preparation is not of field elements")
	}
	// If both have the same public share, both joint seeds are the same; otherwise a client
	// could have one accept what the other refuses. If both have the same commitment, neither
	// half was made after the other's preparation was seen.
	if [digestSize]byte(prep[headerSize+idSize+keyNameSize:]) != p.public {
		return a.refuse(id, "its two halves have different public parts")
	}
	both := make([]sumvec.PrepShare, aggregators)
	both[a.index], both[1-a.index] = *p.share, other
	message, err := a.vdaf.PrepSharesToPrep(both)
	if err != nil {
		return a.refuse(id, err.Error())
	}
	out, err := a.vdaf.PrepNext(p.state, message)
	if err != nil {
		return a.refuse(id, err.Error())
	}
	a.vdaf.AggregateUpdate(&a.sum, out)
	a.reports[id] = nil
	a.accepted = append(a.accepted, id)
	return nil
}

// abandon refuses a report begun here and frees its memory; prep is the result of Begin. It
// serves reports that the other aggregator refused on sight or never got, for which no
// preparation will come. A client can make as many of them as it can send reports.
func (a *Aggregator) abandon(prep []byte) error {
	if a.closed {
		return errClosed
	}
	if err := a.shares.check(prep, kindPrep, a.index, prepStart+a.shares.prep); err != nil {
		return err
	}
	id := sumvec.Nonce(prep[headerSize:])
	if a.reports[id] == nil {
		return errors.New("prio3: the report to abandon is not open")
	}
	a.reports[id] = nil
	a.Refused++
	return nil
}

// counted returns the number of reports added so far and a digest of their ids. Aggregators
// compare them before they close: if a lost message made one add a report that the other did
// not, both sums are useless.
func (a *Aggregator) counted() (clients int64, digest [32]byte) {
	ids := slices.Clone(a.accepted)
	slices.SortFunc(ids, func(x, y sumvec.Nonce) int { return bytes.Compare(x[:], y[:]) })
	h := sha256.New()
	for _, id := range ids {
		h.Write(id[:])
	}
	h.Sum(digest[:0])
	return int64(len(ids)), digest
}

// Close returns the aggregator's share of the sums, once. It refuses a cohort outside
// MinUsers … Users; reports may then still be added. It releases only the weighted sums of
// digits, the counts.
func (a *Aggregator) Close() ([]byte, error) {
	if a.closed {
		return nil, errClosed
	}
	s := a.shares
	clients, digest := a.counted()
	if err := s.params.CheckCohort(clients); err != nil {
		return nil, err
	}
	raw, err := a.sum.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	k := len(s.weights)
	digits, weights := make(fp128.Vec, s.streams*k), make(fp128.Vec, k)
	if err := digits.UnmarshalBinary(raw); err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	for i, w := range s.weights {
		if err := weights[i].SetUint64(w); err != nil {
			return nil, fmt.Errorf("prio3: %w", err)
		}
	}
	sums := make(fp128.Vec, s.streams)
	for j := range sums {
		sums[j] = digits[j*k : (j+1)*k].DotProduct(weights)
	}
	body, err := sums.MarshalBinary()
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	m := s.header(kindPartial, a.index, s.partialSize())
	m = binary.LittleEndian.AppendUint64(m, uint64(clients))
	m = append(m, digest[:]...)
	a.closed = true
	a.sum, a.reports, a.accepted = sumvec.AggShare{}, nil, nil
	return append(m, body...), nil
}

func (s *Shares) partialSize() int { return partialStart + s.streams*fp128.Size }

// Combine opens the sums from the partial sums that both aggregators released, in any order.
func (s *Shares) Combine(partials ...[]byte) (counts []int64, clients int64, err error) {
	if len(partials) != aggregators {
		return nil, 0, fmt.Errorf("prio3: %d partial sums of %d aggregators", len(partials), aggregators)
	}
	if len(partials[0]) > 2 && partials[0][2] == 1 {
		partials = [][]byte{partials[1], partials[0]}
	}
	sums := make(fp128.Vec, s.streams)
	for i, m := range partials {
		if err := s.check(m, kindPartial, i, s.partialSize()); err != nil {
			return nil, 0, err
		}
		if !bytes.Equal(m[headerSize:partialStart], partials[0][headerSize:partialStart]) {
			return nil, 0, errors.New("prio3: unequal shares: the aggregators did not sum the same reports")
		}
		share := make(fp128.Vec, s.streams)
		if err := share.UnmarshalBinary(m[partialStart:]); err != nil {
			return nil, 0, errors.New("prio3: partial sum is not of field elements")
		}
		sums.AddAssign(share)
	}
	clients = int64(binary.LittleEndian.Uint64(partials[0][headerSize:]))
	if err := s.params.CheckCohort(clients); err != nil {
		return nil, 0, err
	}
	counts = make([]int64, s.streams)
	for j := range sums {
		c, err := sums[j].GetUint64()
		if err != nil || c > uint64(clients)*uint64(s.max) { // below 2^61 by Validate
			return nil, 0, fmt.Errorf("prio3: sum %d is not one of %d proved counts: the partial sums do not belong together", j, clients)
		}
		counts[j] = int64(c)
	}
	return counts, clients, nil
}

// Package prio3 sums the noisy counts of package vecsum by additive shares at two
// aggregators, who check with CIRCL's Prio3SumVec that each client's counts are in their
// range before they add them. For the same counts the sums are those of every other
// transport.
//
//	client      Shares.Messages     counts  → a report for each aggregator
//	aggregator  Aggregator.Begin    report  → a preparation message for the other
//	aggregator  Aggregator.Finish   the other's message: added, or ErrRefused
//	aggregator  Aggregator.abandon  no message will come: the report is refused
//	aggregator  Aggregator.Close    → its share of the sums, once
//	anyone      Shares.Combine      both shares → counts
//
// What is proved: each count of an accepted report is an integer in 0 … M exactly, M =
// [vecsum.Params.MaxCount] (grid steps and noise bits), not only below the next power of two.
// The proof's soundness error is of the order of (bits of the report)·(hashes computed by the
// client)/2^128 [Boneh et al., CRYPTO 2019; the VDAF drafts of the IRTF], recalled and not
// re-proved here; it needs both aggregators to be honest and clients not to know the
// [VerifyKey]. Clients may read the preparation messages: beyond the drafts, a report commits
// to all of itself before any is made. Privacy needs one honest aggregator and holds against
// the other and all clients together, computationally (TurboSHAKE128). An aggregator can
// always spoil the sum.
//
// What is not proved, and cannot be proved on noisy counts: that the input was in its ball,
// that noise was added, that the noise was drawn from its law. A malicious client whose
// reports are accepted can put any vector of integers in 0 … M into the sum. That adds to
// each coordinate of the estimate anything up to Radius·(1 + 2·Bits·max(P, 1−P)/Grid) in size
// (with Split 2·Radius·M/Grid), and to all of them at the same time: up to √d times as much
// in norm, where an honest client adds at most Radius and noise. It can leave out its noise,
// which Params.Honest accounts for, and send several reports, which the party that admits
// clients has to stop. It can cost the aggregators the time of one verification.
//
// The noise must be bounded, that is binomial. Nothing runs in constant time.
package prio3

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"

	"github.com/cloudflare/circl/vdaf/prio3/arith/fp128"
	"github.com/cloudflare/circl/vdaf/prio3/sumvec"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Shares holds what clients, aggregators and the analyzer of a round agree on. Several
// goroutines may use it. One aggregator's messages show nothing, as those of [vecsum.Shares],
// up to the generator and to honest proofs that fail by chance, with a probability below
// 2^−100.
type Shares struct {
	params  vecsum.Params
	tag     [16]byte
	streams int
	max     int64    // M
	weights []uint64 // weights of a count's digits; see digits
	chunk   uint
	leader  int // bytes of the input share of aggregator 0
	helper  int // bytes of the input share of aggregator 1
	prep    int // bytes of a prep share
}

// aggregators is the number of aggregators: 0 is the leader in the drafts' terms, 1 the
// helper.
const aggregators = 2

// maxDigits bounds the digits of a report, of 16 bytes each.
const maxDigits = 1 << 24

// New validates c. The noise must be binomial; there are two aggregators, and Security is fixed.
func New(c vecsum.Config) (*Shares, error) {
	if c.Aggregators != 0 && c.Aggregators != aggregators || c.Security != 0 {
		return nil, fmt.Errorf("prio3: %d aggregators, security %d: there are two, and no choice of security", c.Aggregators, c.Security)
	}
	if err := c.Params.Validate(); err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	top, err := c.Params.MaxCount()
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	s := &Shares{params: c.Params, tag: c.Params.Tag(c.Round, "prio3 1"), streams: c.Params.Streams(), max: top}
	s.weights = digitWeights(uint64(top))
	n := s.streams * len(s.weights)
	if n > maxDigits {
		return nil, fmt.Errorf("prio3: %d binary digits of a client's counts are more than 2^24", n)
	}
	s.chunk = chunkLength(uint(n))
	v, err := s.vdaf()
	if err != nil {
		return nil, err
	}
	p := v.Params()
	s.leader = int(p.MeasurementLength()+p.ProofLength())*fp128.Size + seedSize
	s.helper = 2 * seedSize
	s.prep = int(p.VerifierLength())*fp128.Size + seedSize
	return s, nil
}

// vdaf returns a fresh instance, since one must not be shared by goroutines. Each
// entry of its vectors is one digit: the proof is that all are 0 or 1.
func (s *Shares) vdaf() (*sumvec.SumVec, error) {
	context := append([]byte("riffle/vecsum/prio3 1"), s.tag[:]...)
	v, err := sumvec.New(aggregators, uint(s.streams*len(s.weights)), 1, s.chunk, context)
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	return v, nil
}

// digitWeights returns weights of k = bitlen(M) binary digits that represent 0 … M and nothing
// else: 1, 2, …, 2^(k−2) and M − (2^(k−1) − 1), which is between 1 and 2^(k−1). The first k−1
// weights make every sum up to 2^(k−1) − 1; with the last one they make every sum from a start
// of at most 2^(k−1) up to M. Some counts can be written in two ways; which one is as hidden
// as the digits.
func digitWeights(top uint64) []uint64 {
	k := bits.Len64(top)
	w := make([]uint64, k)
	for i := range w {
		w[i] = 1 << i
	}
	w[k-1] = top - (1<<(k-1) - 1)
	return w
}

// digits appends the digits of c. It uses the last digit only if the others do not reach c.
func (s *Shares) digits(dst []uint64, c uint64) []uint64 {
	last := len(s.weights) - 1
	high := c >> last & 1
	c -= high * s.weights[last]
	for i := range last {
		dst = append(dst, c>>i&1)
	}
	return append(dst, high)
}

// chunkLength returns the chunk length that makes the proof for n digits smallest. The proof
// has 2·chunk + 2·P − 1 elements, P the power of two above the number of chunks.
func chunkLength(n uint) uint {
	best, size := n, ^uint(0)
	for p := uint(2); p <= 2*n; p *= 2 {
		c := (n + p - 2) / (p - 1)
		if all := 2*c + 2*p; all < size {
			best, size = c, all
		}
	}
	return best
}

// All messages start with: version, kind, aggregator that is to get it or has
// sent it, 0, streams (4 bytes, little endian), tag (16). Then
//
//	report   id (16), public share (64), leader's commitment (32), input share
//	prep     id (16), key name (16), digest of what is public (32), prep share
//	partial  clients (8), digest of the reports (32), sums (16 each)
//
// with the encodings of draft-irtf-cfrg-vdaf-13. All sizes are fixed by [vecsum.Config].
// The commitment is SHA-256 of "riffle/vecsum/prio3 leader 1" and, as they stand in
// aggregator 0's report, header, id and input share.
const (
	version     = 1
	kindReport  = 1
	kindPrep    = 2
	kindPartial = 3

	headerSize  = 8 + 16
	idSize      = 16
	seedSize    = 32
	publicSize  = aggregators * seedSize
	keyNameSize = 16
	digestSize  = 32

	commitStart  = headerSize + idSize + publicSize
	reportStart  = commitStart + digestSize
	prepStart    = headerSize + idSize + keyNameSize + digestSize
	partialStart = headerSize + 8 + digestSize
)

func (s *Shares) header(kind byte, index, size int) []byte {
	m := make([]byte, 0, size)
	m = append(m, version, kind, byte(index), 0)
	m = binary.LittleEndian.AppendUint32(m, uint32(s.streams))
	return append(m, s.tag[:]...)
}

// check refuses a message that is not of this kind, size and round.
func (s *Shares) check(m []byte, kind byte, index, size int) error {
	switch {
	case len(m) < headerSize:
		return fmt.Errorf("prio3: message of %d bytes is shorter than its header", len(m))
	case m[0] != version:
		return fmt.Errorf("prio3: message of version %d", m[0])
	case m[1] != kind:
		return fmt.Errorf("prio3: message of kind %d, not %d", m[1], kind)
	case int(m[2]) != index:
		return fmt.Errorf("prio3: message of aggregator %d, not %d", m[2], index)
	case m[3] != 0:
		return errors.New("prio3: reserved byte is not 0")
	case binary.LittleEndian.Uint32(m[4:]) != uint32(s.streams):
		return fmt.Errorf("prio3: message of %d counts in a round of %d", binary.LittleEndian.Uint32(m[4:]), s.streams)
	case [16]byte(m[8:headerSize]) != s.tag:
		return errors.New("prio3: message from another round or of other parameters")
	case len(m) != size:
		return fmt.Errorf("prio3: message of %d bytes, not %d", len(m), size)
	}
	return nil
}

// commitment is the client's commitment to aggregator 0's share. Prio3 commits to both shares
// of the digits and, by its seed, to aggregator 1's share of the proof, but not to aggregator
// 0's share of it. Without this commitment a client could read the preparation of aggregator
// 1 first and then send a share of the proof that fits. The commitment hides the share as
// long as the blind in it is secret.
func (s *Shares) commitment(leader []byte) (c [digestSize]byte) {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/prio3 leader 1"))
	h.Write(leader[:headerSize+idSize]) // both see the public share
	h.Write(leader[reportStart:])
	h.Sum(c[:0])
	return c
}

func (s *Shares) reportSize(index int) int {
	if index == 0 {
		return reportStart + s.leader
	}
	return reportStart + s.helper
}

// Cost implements [vecsum.Transport]. Distance is 0 as for [vecsum.Shares], up to the generator
// and to honest proofs that fail by chance, with a probability below 2^−100.
func (s *Shares) Cost() vecsum.Cost {
	return vecsum.Cost{Messages: aggregators, Bytes: int64(s.reportSize(0) + s.reportSize(1))}
}

// prepSize returns the bytes each aggregator sends the other for a report.
func (s *Shares) prepSize() int64 { return int64(prepStart + s.prep) }

// Messages returns the reports for aggregators 0 and 1; each must get its own
// over a channel the other cannot read. In production src is rng.Secure: anyone
// who knows src knows the counts.
func (s *Shares) Messages(src rng.Source, counts []int64) ([][]byte, error) {
	if len(counts) != s.streams {
		return nil, fmt.Errorf("prio3: %d counts for %d streams", len(counts), s.streams)
	}
	digits := make([]uint64, 0, len(counts)*len(s.weights))
	for j, c := range counts {
		if c < 0 || c > s.max {
			return nil, fmt.Errorf("prio3: count %d is outside its range", j)
		}
		digits = s.digits(digits, uint64(c))
	}
	return s.shard(src, digits)
}

// shard proves and splits digits, which must be 0 or 1.
func (s *Shares) shard(src rng.Source, digits []uint64) ([][]byte, error) {
	v, err := s.vdaf()
	if err != nil {
		return nil, err
	}
	p := v.Params()
	var id sumvec.Nonce
	draw(src, id[:])
	seeds := make([]byte, p.RandSize())
	draw(src, seeds)
	public, inputs, err := v.Shard(digits, &id, seeds)
	if err != nil {
		return nil, fmt.Errorf("prio3: %w", err)
	}
	out := make([][]byte, aggregators)
	for i := range out {
		share, err := inputs[i].MarshalBinary()
		if err != nil {
			return nil, fmt.Errorf("prio3: %w", err)
		}
		m := s.header(kindReport, i, s.reportSize(i))
		m = append(m, id[:]...)
		m = append(m, public...)
		m = append(m, make([]byte, digestSize)...)
		out[i] = append(m, share...)
		if len(out[i]) != s.reportSize(i) {
			panic("prio3: a report's size is not what was computed for it")
		}
	}
	c := s.commitment(out[0])
	for _, m := range out {
		copy(m[commitStart:], c[:])
	}
	return out, nil
}

func draw(src rng.Source, dst []byte) {
	words := make([]uint64, (len(dst)+7)/8)
	src.Fill(words)
	for i := range dst {
		dst[i] = byte(words[i/8] >> (i % 8 * 8))
	}
}

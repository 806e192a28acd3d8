package vecsum

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Shares is the default transport: each count is split into S additive shares modulo q, one
// for each of S aggregators; all shares but the last are expanded from a 16-byte seed. It
// replaces the shuffler by summation modulo q: any S−1 aggregators together see uniform
// numbers, all S together see the sums. At least one must not collude with the others, and
// each must get its messages over a channel the others cannot read.
//
// An aggregator opens its sum only for MinUsers … Users clients, and sums are combined only
// if all aggregators counted the same reports.
//
// The shares hide the counts perfectly, up to the security of the generator, so there is no
// Distance.
type Shares struct {
	format
	aggregators int
}

var _ Transport = (*Shares)(nil)

// NewShares validates c.
func NewShares(c Config) (*Shares, error) {
	if c.Aggregators == 0 {
		c.Aggregators = 2
	}
	if c.Aggregators < 2 || c.Aggregators > 3 {
		return nil, fmt.Errorf("vecsum: aggregators = %d must be 2 or 3", c.Aggregators)
	}
	f, err := newFormat(c, fmt.Sprint("shares ", c.Aggregators))
	if err != nil {
		return nil, err
	}
	s := &Shares{f, c.Aggregators}
	for i := range s.aggregators {
		s.cost.Messages++
		s.cost.Bytes += s.MessageSize(i)
	}
	return s, nil
}

// A share message has version, kind, aggregator, log₂ q, streams (4 bytes, little endian),
// tag (16) and report id (16). Then follows the seed, or the packed share: its elements of
// log₂ q bits each in order, lowest bits first, padded with zeros.
const (
	shareVersion = 1
	kindSeed     = 1
	kindVector   = 2
	shareHeader  = 8 + 16 + 16
	seedSize     = 16
)

func (s *Shares) packedSize() int { return (s.params.Streams()*s.bits + 7) / 8 }

// MessageSize is the size of the message to one aggregator.
func (s *Shares) MessageSize(aggregator int) int64 {
	if aggregator == s.aggregators-1 {
		return int64(shareHeader + s.packedSize())
	}
	return shareHeader + seedSize
}

func (s *Shares) header(kind byte, aggregator int, id [16]byte, size int) []byte {
	m := make([]byte, 0, shareHeader+size)
	m = append(m, shareVersion, kind, byte(aggregator), byte(s.bits))
	m = binary.LittleEndian.AppendUint32(m, uint32(s.params.Streams()))
	m = append(m, s.tag[:]...)
	return append(m, id[:]...)
}

// Messages returns the message of each aggregator in turn. Anyone who knows src
// knows the counts.
func (s *Shares) Messages(src rng.Source, counts []int64) ([][]byte, error) {
	if err := s.check(counts); err != nil {
		return nil, err
	}
	id := draw16(src)
	last := make([]uint64, len(counts))
	for j, c := range counts {
		last[j] = uint64(c)
	}
	var out [][]byte
	for a := range s.aggregators - 1 {
		seed := draw16(src)
		s.expand(seed, id, a, last, true)
		out = append(out, append(s.header(kindSeed, a, id, seedSize), seed[:]...))
	}
	size := s.packedSize()
	m := s.header(kindVector, s.aggregators-1, id, size)
	m = m[:shareHeader+size]
	pack(m[shareHeader:], last, s.bits)
	return append(out, m), nil
}

// expand adds the share of a seed to sums modulo 2^64, or subtracts it. The
// generator is AES-128 in counter mode, keyed by a hash that separates rounds,
// reports and aggregators.
func (s *Shares) expand(seed, id [16]byte, aggregator int, sums []uint64, subtract bool) {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum share 1"))
	h.Write(seed[:])
	h.Write(s.tag[:])
	h.Write(id[:])
	h.Write([]byte{byte(aggregator)})
	block, err := aes.NewCipher(h.Sum(nil)[:16])
	if err != nil {
		panic("vecsum: 16 bytes refused as an AES key: " + err.Error())
	}
	stream := cipher.NewCTR(block, make([]byte, aes.BlockSize))
	flip := uint64(0) // x ^ flip − flip negates if flip is all ones
	if subtract {
		flip = ^flip
	}
	mask := s.mask
	buf := make([]byte, 4096)
	for len(sums) > 0 {
		if s.bits <= 32 {
			n := min(len(sums), len(buf)/4)
			b := buf[:4*n]
			clear(b)
			stream.XORKeyStream(b, b)
			for j := range sums[:n] {
				sums[j] += uint64(binary.LittleEndian.Uint32(b[4*j:]))&mask ^ flip - flip
			}
			sums = sums[n:]
			continue
		}
		n := min(len(sums), len(buf)/8)
		b := buf[:8*n]
		clear(b)
		stream.XORKeyStream(b, b)
		for j := range sums[:n] {
			sums[j] += binary.LittleEndian.Uint64(b[8*j:])&mask ^ flip - flip
		}
		sums = sums[n:]
	}
}

// pack stores the low bits of each value one after another.
func pack(dst []byte, values []uint64, bits int) {
	mask := uint64(1)<<bits - 1
	var acc uint64
	var have, at int
	for _, v := range values {
		acc |= (v & mask) << have
		for have += bits; have >= 8; {
			if have >= 32 {
				binary.LittleEndian.PutUint32(dst[at:], uint32(acc))
				acc >>= 32
				have -= 32
				at += 4
				continue
			}
			dst[at] = byte(acc)
			acc >>= 8
			have -= 8
			at++
		}
	}
	if have > 0 {
		dst[at] = byte(acc)
	}
}

// unpack adds what pack stored to sums; false if the padding is not zero.
func unpack(src []byte, sums []uint64, bits int) bool {
	mask := uint64(1)<<bits - 1
	var acc uint64
	var have, at int
	for j := range sums {
		for have < bits {
			if have <= 24 && at+4 <= len(src) {
				acc |= uint64(binary.LittleEndian.Uint32(src[at:])) << have
				have += 32
				at += 4
				continue
			}
			acc |= uint64(src[at]) << have
			have += 8
			at++
		}
		sums[j] += acc & mask
		acc >>= bits
		have -= bits
	}
	return acc == 0 && at == len(src)
}

// Aggregator sums the shares sent to one of the aggregators. Besides the sums it holds 16
// bytes for each report.
//
// It can be closed only once, because the difference of two sums could show the counts of a
// few clients. For the same reason there must never be a second Aggregator for a round and an
// index: after a restart treat it as closed, or start another round.
type Aggregator struct {
	shares *Shares
	index  int
	sums   []uint64
	work   []uint64
	ids    map[[16]byte]struct{}
	closed bool
}

var errClosed = errors.New("vecsum: the aggregator has released this round's sums: nothing is added or released again")

// NewAggregator returns the aggregator of the given index, from 0.
func (s *Shares) NewAggregator(index int) (*Aggregator, error) {
	if index < 0 || index >= s.aggregators {
		return nil, fmt.Errorf("vecsum: aggregator %d of %d", index, s.aggregators)
	}
	n := s.params.Streams()
	return &Aggregator{shares: s, index: index, sums: make([]uint64, n), work: make([]uint64, n), ids: map[[16]byte]struct{}{}}, nil
}

// Add checks one message and adds its share. After an error nothing has changed.
func (a *Aggregator) Add(message []byte) error {
	if a.closed {
		return errClosed
	}
	s := a.shares
	id, err := s.parse(message, a.index)
	if err != nil {
		return err
	}
	if _, again := a.ids[id]; again {
		return errors.New("vecsum: a report came twice")
	}
	if int64(len(a.ids)) >= s.params.Users {
		return s.params.CheckCohort(s.params.Users + 1)
	}
	body := message[shareHeader:]
	if message[1] == kindSeed {
		s.expand([16]byte(body), id, a.index, a.sums, false)
	} else {
		clear(a.work)
		if !unpack(body, a.work, s.bits) {
			return errors.New("vecsum: share with padding that is not zero")
		}
		for j, w := range a.work {
			a.sums[j] += w
		}
	}
	a.ids[id] = struct{}{}
	return nil
}

// ReportID returns the id of the report that a message to an aggregator belongs to. The
// messages of one report to all aggregators have the same id.
func (s *Shares) ReportID(message []byte, aggregator int) ([16]byte, error) {
	return s.parse(message, aggregator)
}

// parse checks a message except for its padding.
func (s *Shares) parse(m []byte, index int) (id [16]byte, err error) {
	kind, size := byte(kindSeed), seedSize
	if index == s.aggregators-1 {
		kind, size = kindVector, s.packedSize()
	}
	switch {
	case len(m) < shareHeader:
		return id, fmt.Errorf("vecsum: share of %d bytes is shorter than its header", len(m))
	case m[0] != shareVersion:
		return id, fmt.Errorf("vecsum: share of version %d", m[0])
	case int(m[2]) != index:
		return id, fmt.Errorf("vecsum: share for aggregator %d came to %d", m[2], index)
	case m[1] != kind:
		return id, fmt.Errorf("vecsum: share of kind %d for aggregator %d", m[1], index)
	case binary.LittleEndian.Uint32(m[4:]) != uint32(s.params.Streams()):
		return id, fmt.Errorf("vecsum: share of %d counts in a round of %d", binary.LittleEndian.Uint32(m[4:]), s.params.Streams())
	case int(m[3]) != s.bits:
		return id, fmt.Errorf("vecsum: share modulo 2^%d in a round modulo 2^%d", m[3], s.bits)
	case !bytes.Equal(m[8:24], s.tag[:]):
		return id, errors.New("vecsum: share from another round or of other parameters")
	case len(m) != shareHeader+size:
		return id, fmt.Errorf("vecsum: share of %d bytes, not %d", len(m), shareHeader+size)
	}
	return [16]byte(m[24:40]), nil
}

// Partial is the share of the sums that an aggregator releases.
type Partial struct {
	Tag     [16]byte
	Index   int
	Clients int64
	Reports [sha256.Size]byte // digest of the reports summed
	Sums    []uint64
}

// Close returns the aggregator's share of the sums, once. It refuses a cohort outside
// MinUsers … Users; reports may then still be added.
func (a *Aggregator) Close() (Partial, error) {
	if a.closed {
		return Partial{}, errClosed
	}
	s := a.shares
	n := int64(len(a.ids))
	if err := s.params.CheckCohort(n); err != nil {
		return Partial{}, err
	}
	ids := make([][16]byte, 0, n)
	for id := range a.ids {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(x, y [16]byte) int { return bytes.Compare(x[:], y[:]) })
	h := sha256.New()
	for _, id := range ids {
		h.Write(id[:])
	}
	p := Partial{Tag: s.tag, Index: a.index, Clients: n, Sums: make([]uint64, len(a.sums))}
	h.Sum(p.Reports[:0])
	for j, v := range a.sums {
		p.Sums[j] = v & s.mask
	}
	a.closed = true
	clear(a.sums)
	a.ids = nil
	return p, nil
}

// Combine opens the sums from one partial of each aggregator, in any order.
func (s *Shares) Combine(partials ...Partial) (counts []int64, clients int64, err error) {
	if len(partials) != s.aggregators {
		return nil, 0, fmt.Errorf("vecsum: %d partial sums of %d aggregators", len(partials), s.aggregators)
	}
	seen := make([]bool, s.aggregators)
	sums := make([]uint64, s.params.Streams())
	for _, p := range partials {
		switch {
		case p.Index < 0 || p.Index >= s.aggregators || seen[p.Index]:
			return nil, 0, fmt.Errorf("vecsum: partial sum of aggregator %d is one too many", p.Index)
		case p.Tag != s.tag:
			return nil, 0, errors.New("vecsum: partial sum from another round or of other parameters")
		case len(p.Sums) != len(sums):
			return nil, 0, fmt.Errorf("vecsum: partial sum of %d counts, not %d", len(p.Sums), len(sums))
		case p.Clients != partials[0].Clients || p.Reports != partials[0].Reports:
			return nil, 0, errors.New("vecsum: unequal shares: the aggregators did not sum the same reports")
		}
		seen[p.Index] = true
		for j, v := range p.Sums {
			sums[j] += v
		}
	}
	counts, err = s.open(sums, partials[0].Clients)
	if err != nil {
		return nil, 0, err
	}
	return counts, partials[0].Clients, nil
}

// Sum runs all aggregators on the messages of a round.
func (s *Shares) Sum(messages [][]byte) (counts []int64, clients int64, err error) {
	all := make([]*Aggregator, s.aggregators)
	for i := range all {
		if all[i], err = s.NewAggregator(i); err != nil {
			return nil, 0, err
		}
	}
	for _, m := range messages {
		i := 0
		if len(m) > 2 {
			i = min(int(m[2]), len(all)-1)
		}
		if err := all[i].Add(m); err != nil {
			return nil, 0, err
		}
	}
	partials := make([]Partial, len(all))
	for i, a := range all {
		if partials[i], err = a.Close(); err != nil {
			return nil, 0, err
		}
	}
	return s.Combine(partials...)
}

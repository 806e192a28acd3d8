// Package proved sums clients' vectors of integers at two aggregators, who check with a proof of
// package pine that each vector's Euclidean norm is at most a bound, and who each add noise to
// their share of the sum before they show it.
//
//	client       Round.Report       vector → two halves, one for each aggregator
//	aggregators  Sum.Prepare        the half of each report, by its place in the batch
//	             Sum.Begin          some places → a message for the other aggregator
//	             Sum.Finish         the other's message → what was decided of each place
//	             Sum.Close          noise → a share of the noisy sum
//	anyone       Round.Combine      both shares → the noisy sum
//
// The two aggregators are riffle's [Coordinator] and its [Aggregator]. Nothing here is stored or
// sent; [Sum] says what a caller stores so that it can begin again after a crash. proved.md says
// what is promised and to whom.
package proved

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/vecsum/pine"
)

// Role is one of the two aggregators.
type Role int

const (
	// Aggregator is riffle's second aggregator. It holds the long half of a report: PINE's leader.
	Aggregator Role = 0
	// Coordinator holds the short half, of seeds: PINE's helper.
	Coordinator Role = 1
)

const aggregators = 2

// Config says what clients and aggregators of a round agree on. All fields but Noise are required.
type Config struct {
	Dim   int   // integers of a vector
	Bound int64 // largest Euclidean norm of a vector
	Users int64 // the most reports of the round
	// Noise, if not 0, is the largest Euclidean norm of a vector of noise that each report has besides, and
	// that has a proof of its own. Sums of both are kept apart.
	Noise int64
	// Announcement is the digest of the round's announcement. A report made for another round, or
	// for other parameters, is refused.
	Announcement [32]byte
}

// Round makes, checks and sums the reports of one round. Several goroutines may use it.
type Round struct {
	config Config
	part                 // of the vector
	parts  []part        // that, and the noise's if there is any
	tag    [tagSize]byte // names round and parameters
}

// part is the code for one of the vectors of a report.
type part struct {
	context string // pine's
	pine    *pine.Pine
	sizes   pine.Sizes
}

const (
	tagSize    = 16
	digestSize = sha256.Size
	nonceSize  = len(pine.Nonce{})
)

// New checks c.
func New(c Config) (*Round, error) {
	if c.Users < 1 || c.Users > 1<<40 {
		return nil, fmt.Errorf("proved: %d users must be 1 to 2^40", c.Users)
	}
	if c.Noise < 0 {
		return nil, fmt.Errorf("proved: noise of norm %d must be at least 0", c.Noise)
	}
	bounds := []int64{c.Bound}
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved round 1\x00"))
	h.Write(c.Announcement[:])
	for _, v := range []uint64{uint64(c.Dim), uint64(c.Bound), uint64(c.Users)} {
		h.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	if c.Noise != 0 {
		bounds = append(bounds, c.Noise)
		h.Write(binary.LittleEndian.AppendUint64(nil, uint64(c.Noise)))
	}
	name := h.Sum(nil)
	r := &Round{config: c}
	copy(r.tag[:], name)
	for i, bound := range bounds {
		if float64(c.Users)*float64(bound) >= 1<<61 { // half of what pine can open; the rest is for noise
			return nil, fmt.Errorf("proved: sums of %d vectors of norm %d exceed 2^61", c.Users, bound)
		}
		context := contexts[i] + string(name)
		p, err := pine.New(pine.Config{Dim: c.Dim, Bound: bound, Context: context})
		if err != nil {
			return nil, fmt.Errorf("proved: %w", err)
		}
		r.parts = append(r.parts, part{context, p, p.Sizes()})
	}
	r.part = r.parts[0]
	return r, nil
}

// contexts begin those of a report's vectors.
var contexts = [...]string{"riffle/vecsum/proved 1", "riffle/vecsum/proved noise 1"}

// mostPlaces and mostMemory bound the places of a message.
const (
	mostPlaces = 256
	mostMemory = 16 << 20
)

// ZeroKnowledge is log2 of what one aggregator may learn of a report beyond that its norms are within
// the bounds: see pine's.
func (r *Round) ZeroKnowledge() float64 {
	most := math.Inf(-1)
	for _, p := range r.parts {
		most = max(most, p.pine.ZeroKnowledge())
	}
	return most + math.Log2(float64(len(r.parts))) // exact for two
}

// Places is the largest number of places in a message, so that what is kept of them until they are
// decided stays below 16 MiB, or is that of one report.
func (r *Round) Places() int {
	size := 0
	for _, p := range r.parts {
		size += p.sizes.Out + p.sizes.Prep + 2048
	}
	return max(1, min(mostPlaces, mostMemory/size))
}

// A half has the nonce; of each vector the public share and the own input share; and the digest of the other
// half's input shares.

// Sizes returns the bytes of both halves of a report, which are the same for all vectors.
func (r *Round) Sizes() (aggregator, coordinator int) {
	return r.size(Aggregator), r.size(Coordinator)
}

func (r *Round) size(role Role) int {
	size := nonceSize + digestSize
	for _, p := range r.parts {
		size += p.sizes.Public + p.sizes.Input[role]
	}
	return size
}

// Report returns the two halves of a client's report: of its vector and, if Config has Noise, of its
// noise. Each half must reach its aggregator over a channel that the other cannot read. In production
// src is rng.Secure: anyone who knows src knows
// the vectors. An error says that one has the wrong length or a norm above the bound, or that src is broken;
// it must not be shown to others.
func (r *Round) Report(src rng.Source, vectors ...[]int64) (aggregator, coordinator []byte, err error) {
	if len(vectors) != len(r.parts) {
		return nil, nil, fmt.Errorf("proved: a report of %d vectors, not %d", len(vectors), len(r.parts))
	}
	var nonce pine.Nonce
	binary.LittleEndian.PutUint64(nonce[:], src.Uint64())
	binary.LittleEndian.PutUint64(nonce[8:], src.Uint64())
	shares := make([]shared, len(r.parts))
	for i, p := range r.parts {
		if shares[i].public, shares[i].inputs, err = p.pine.Shard(src, nonce, vectors[i]); err != nil {
			return nil, nil, fmt.Errorf("proved: %w", err)
		}
	}
	halves := r.halves(nonce, shares...)
	return halves[Aggregator], halves[Coordinator], nil
}

// shared is a vector that was split.
type shared struct {
	public []byte
	inputs [aggregators][]byte
}

func (r *Round) halves(nonce pine.Nonce, shares ...shared) (halves [aggregators][]byte) {
	for k := range halves {
		b := make([]byte, 0, r.size(Role(k)))
		b = append(b, nonce[:]...)
		others := make([][]byte, len(shares))
		for i, s := range shares {
			b = append(append(b, s.public...), s.inputs[k]...)
			others[i] = s.inputs[1-k]
		}
		other := r.inputDigest(Role(1-k), nonce, others)
		halves[k] = append(b, other[:]...)
	}
	return halves
}

// half is one that has the right length: of each vector the public share and the own input share.
type half struct {
	nonce          pine.Nonce
	public, inputs [][]byte
	other          [digestSize]byte
}

func (r *Round) parse(role Role, b []byte) (h half, ok bool) {
	if len(b) != r.size(role) {
		return h, false
	}
	copy(h.nonce[:], b)
	b = b[nonceSize:]
	for _, p := range r.parts {
		public, input := p.sizes.Public, p.sizes.Input[role]
		h.public = append(h.public, b[:public])
		h.inputs = append(h.inputs, b[public:public+input])
		b = b[public+input:]
	}
	copy(h.other[:], b)
	return h, true
}

// inputDigest is the digest of the input shares of a half. The blinds in the shares, which are random, keep it
// from telling anything.
func (r *Round) inputDigest(role Role, nonce pine.Nonce, inputs [][]byte) (d [digestSize]byte) {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved half 1\x00"))
	h.Write(r.tag[:])
	h.Write([]byte{byte(role)})
	h.Write(nonce[:])
	for _, input := range inputs {
		h.Write(input)
	}
	h.Sum(d[:0])
	return d
}

// commitment is the digest of a whole report, which each aggregator computes from its half. If two
// halves have the same one, they were made together and no part of either was chosen later.
func (r *Round) commitment(role Role, own half) (d [digestSize]byte) {
	inputs := [aggregators][digestSize]byte{own.other, own.other}
	inputs[role] = r.inputDigest(role, own.nonce, own.inputs)
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved report 1\x00"))
	h.Write(r.tag[:])
	h.Write(own.nonce[:])
	for _, public := range own.public {
		h.Write(public)
	}
	for _, in := range inputs {
		h.Write(in[:])
	}
	h.Sum(d[:0])
	return d
}

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

// Config says what clients and aggregators of a round agree on. All fields are required.
type Config struct {
	Dim   int   // integers of a vector
	Bound int64 // largest Euclidean norm of a vector
	Users int64 // the most reports of the round
	// Announcement is the digest of the round's announcement. A report made for another round, or
	// for other parameters, is refused.
	Announcement [32]byte
}

// Round makes, checks and sums the reports of one round. Several goroutines may use it.
type Round struct {
	config  Config
	context string // pine's
	pine    *pine.Pine
	sizes   pine.Sizes
	tag     [tagSize]byte // names round and parameters
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
	if float64(c.Users)*float64(c.Bound) >= 1<<61 { // half of what pine can open; the rest is for noise
		return nil, fmt.Errorf("proved: sums of %d vectors of norm %d exceed 2^61", c.Users, c.Bound)
	}
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved round 1\x00"))
	h.Write(c.Announcement[:])
	for _, v := range []uint64{uint64(c.Dim), uint64(c.Bound), uint64(c.Users)} {
		h.Write(binary.LittleEndian.AppendUint64(nil, v))
	}
	name := h.Sum(nil)
	context := "riffle/vecsum/proved 1" + string(name)
	p, err := pine.New(pine.Config{Dim: c.Dim, Bound: c.Bound, Context: context})
	if err != nil {
		return nil, fmt.Errorf("proved: %w", err)
	}
	r := &Round{config: c, context: context, pine: p, sizes: p.Sizes()}
	copy(r.tag[:], name)
	return r, nil
}

// mostPlaces and mostMemory bound the places of a message.
const (
	mostPlaces = 256
	mostMemory = 16 << 20
)

// ZeroKnowledge is log2 of what one aggregator may learn of a report beyond that its norm is within
// the bound: see pine's.
func (r *Round) ZeroKnowledge() float64 { return r.pine.ZeroKnowledge() }

// Places is the largest number of places in a message, so that what is kept of them until they are
// decided stays below 16 MiB, or is that of one report.
func (r *Round) Places() int {
	return max(1, min(mostPlaces, mostMemory/(r.sizes.Out+r.sizes.Prep+2048)))
}

// A half has nonce, public share, its own input share, and the digest of the other half's.

// Sizes returns the bytes of both halves of a report, which are the same for all vectors.
func (r *Round) Sizes() (aggregator, coordinator int) {
	return r.size(Aggregator), r.size(Coordinator)
}

func (r *Round) size(role Role) int {
	return nonceSize + r.sizes.Public + r.sizes.Input[role] + digestSize
}

// Report returns the two halves of a client's report. Each must reach its aggregator over a
// channel that the other cannot read. In production src is rng.Secure: anyone who knows src knows
// x. An error says that x has the wrong length or a norm above the bound, or that src is broken;
// it must not be shown to others.
func (r *Round) Report(src rng.Source, x []int64) (aggregator, coordinator []byte, err error) {
	var nonce pine.Nonce
	binary.LittleEndian.PutUint64(nonce[:], src.Uint64())
	binary.LittleEndian.PutUint64(nonce[8:], src.Uint64())
	public, inputs, err := r.pine.Shard(src, nonce, x)
	if err != nil {
		return nil, nil, fmt.Errorf("proved: %w", err)
	}
	halves := r.halves(nonce, public, inputs)
	return halves[Aggregator], halves[Coordinator], nil
}

func (r *Round) halves(nonce pine.Nonce, public []byte, inputs [aggregators][]byte) (halves [aggregators][]byte) {
	for k := range halves {
		other := r.inputDigest(Role(1-k), nonce, inputs[1-k])
		b := make([]byte, 0, r.size(Role(k)))
		b = append(append(append(b, nonce[:]...), public...), inputs[k]...)
		halves[k] = append(b, other[:]...)
	}
	return halves
}

// half is one that has the right length.
type half struct {
	nonce         pine.Nonce
	public, input []byte
	other         [digestSize]byte
}

func (r *Round) parse(role Role, b []byte) (h half, ok bool) {
	if len(b) != r.size(role) {
		return h, false
	}
	copy(h.nonce[:], b)
	b = b[nonceSize:]
	h.public, b = b[:r.sizes.Public], b[r.sizes.Public:]
	h.input = b[:r.sizes.Input[role]]
	copy(h.other[:], b[len(h.input):])
	return h, true
}

// inputDigest is the digest of an input share. The blinds in the share, which are random, keep it
// from telling anything.
func (r *Round) inputDigest(role Role, nonce pine.Nonce, input []byte) (d [digestSize]byte) {
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved half 1\x00"))
	h.Write(r.tag[:])
	h.Write([]byte{byte(role)})
	h.Write(nonce[:])
	h.Write(input)
	h.Sum(d[:0])
	return d
}

// commitment is the digest of a whole report, which each aggregator computes from its half. If two
// halves have the same one, they were made together and no part of either was chosen later.
func (r *Round) commitment(role Role, own half) (d [digestSize]byte) {
	inputs := [aggregators][digestSize]byte{own.other, own.other}
	inputs[role] = r.inputDigest(role, own.nonce, own.input)
	h := sha256.New()
	h.Write([]byte("riffle/vecsum/proved report 1\x00"))
	h.Write(r.tag[:])
	h.Write(own.nonce[:])
	h.Write(own.public)
	for _, in := range inputs {
		h.Write(in[:])
	}
	h.Sum(d[:0])
	return d
}

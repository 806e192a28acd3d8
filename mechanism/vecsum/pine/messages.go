package pine

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// Shard splits x into input shares for the leader and the helper, with proofs that its norm is
// at most the bound, and a public share for both. Each input share must reach its aggregator
// over a channel that the other cannot read. In production src is rng.Secure: anyone who knows
// src knows x. An error says that x has the wrong length or a norm above the bound, or that src
// is broken.
//
// A report whose projections fail by chance is made anew; see [Pine.ZeroKnowledge]. Apart from
// that, and from such an error, the time does not depend on x.
func (p *Pine) Shard(src rng.Source, nonce Nonce, x []int64) (public []byte, inputs [2][]byte, err error) {
	if len(x) != p.config.Dim {
		return nil, inputs, fmt.Errorf("pine: vector of %d integers, not %d", len(x), p.config.Dim)
	}
	if !p.within(x) {
		return nil, inputs, errors.New("pine: the vector's norm is above the bound")
	}
	seeds := make([]byte, seedCount*turboShake.seed)
	for range 4 { // the chance that all fail is below 2^-160
		draw(src, seeds)
		public, inputs, again := p.scheme.shard(x, nonce[:], seeds)
		if !again {
			return public, inputs, nil
		}
	}
	return nil, inputs, errors.New("pine: projections fail again and again: the source of randomness is broken")
}

// within reports whether x's norm is at most the bound, in a time that depends on its length
// only.
func (p *Pine) within(x []int64) bool {
	var hi, lo, over uint64
	for _, v := range x {
		sign := v >> 63
		size := uint64(v ^ sign - sign)
		h, l := bits.Mul64(size, size)
		var c uint64
		lo, c = bits.Add64(lo, l, 0)
		hi, c = bits.Add64(hi, h, c)
		over |= c
	}
	hi |= over
	_, above := bits.Sub64(p.layout.square, lo, 0)
	_, above = bits.Sub64(0, hi, above)
	return above == 0
}

func draw(src rng.Source, dst []byte) {
	words := make([]uint64, (len(dst)+7)/8)
	src.Fill(words)
	for i := range dst {
		dst[i] = byte(words[i/8] >> (i % 8 * 8))
	}
}

// State is what an aggregator keeps of a report until it is decided.
type State struct {
	index int
	out   []byte
	seeds []byte
}

// Format keeps the share out of logs, for every verb.
func (s *State) Format(w fmt.State, _ rune) {
	_, _ = fmt.Fprintf(w, "pine: state of aggregator %d", s.index)
}

// PrepInit takes a report at aggregator 0 or 1, and returns the prep share for the other. An
// honest report is refused by chance, for a reason that does not depend on its vector; see
// completeness.
func (p *Pine) PrepInit(key VerifyKey, index int, nonce Nonce, public, input []byte) (*State, []byte, error) {
	return p.prepInit(key[:], index, nonce[:], public, input)
}

func (p *Pine) prepInit(key []byte, index int, nonce, public, input []byte) (*State, []byte, error) {
	if index < 0 || index >= aggregators {
		return nil, nil, fmt.Errorf("pine: aggregator %d of %d", index, aggregators)
	}
	if same(key, make([]byte, len(key))) {
		return nil, nil, errors.New("pine: verify key is not set")
	}
	if len(public) != p.sizes.Public || len(input) != p.sizes.Input[index] {
		return nil, nil, fmt.Errorf("%w: its shares have %d and %d bytes, not %d and %d", ErrRefused, len(public), len(input), p.sizes.Public, p.sizes.Input[index])
	}
	return p.scheme.prepare(key, index, nonce, public, input)
}

// PrepMessage verifies the proofs from both prep shares. Both aggregators come to the same
// result. Prep shares must be authentic but need not be secret.
func (p *Pine) PrepMessage(leader, helper []byte) ([]byte, error) {
	if len(leader) != p.sizes.Prep || len(helper) != p.sizes.Prep {
		return nil, fmt.Errorf("pine: prep shares of %d and %d bytes, not %d", len(leader), len(helper), p.sizes.Prep)
	}
	return p.scheme.decide(leader, helper)
}

// PrepNext checks that both aggregators drew the same projections and randomness, and returns
// the share of the vector. Only then may the share be added to others.
func (p *Pine) PrepNext(s *State, message []byte) ([]byte, error) {
	if len(message) != p.sizes.Message {
		return nil, fmt.Errorf("pine: prep message of %d bytes, not %d", len(message), p.sizes.Message)
	}
	if !same(s.seeds, message) {
		return nil, refused("its parts do not fit its shares")
	}
	return s.out, nil
}

// Add adds an output share, or a sum of some, to a sum, which begins as zeros. After an error
// the sum is unchanged.
func (p *Pine) Add(sum, share []byte) error {
	if len(sum) != p.sizes.Out || len(share) != p.sizes.Out {
		return fmt.Errorf("pine: shares of %d and %d bytes, not %d", len(sum), len(share), p.sizes.Out)
	}
	return p.scheme.add(sum, share)
}

// Encode returns integers as an output share: added to one aggregator's sum, they are added to what
// both share. It serves an aggregator that adds noise of its own to its sum.
func (p *Pine) Encode(x []int64) ([]byte, error) {
	if len(x) != p.config.Dim {
		return nil, fmt.Errorf("pine: vector of %d integers, not %d", len(x), p.config.Dim)
	}
	return p.scheme.encoded(x), nil
}

// Unshard adds both aggregators' sums. A coordinate's sum over all vectors must be below 2^62,
// and with Field 64 it is, for up to 2^31 vectors.
func (p *Pine) Unshard(leader, helper []byte) ([]int64, error) {
	if len(leader) != p.sizes.Out || len(helper) != p.sizes.Out {
		return nil, fmt.Errorf("pine: sums of %d and %d bytes, not %d", len(leader), len(helper), p.sizes.Out)
	}
	return p.scheme.unshard(leader, helper)
}

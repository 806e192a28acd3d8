package pine

import (
	"crypto/subtle"
	"encoding/binary"
	"fmt"
)

// vdaf is the draft's verifiable distributed aggregation function over one field.
type vdaf[E element[E]] struct {
	layout
	xof         xof
	tag         tag
	equal, rest *gadget[E]

	whole, half values[E]
}

// values are the circuit's constants times what one party's constants count: 1 for the
// client, 1/2 for an aggregator.
type values[E element[E]] struct{ one, square, offset, successes E }

// usages of seeds.
const (
	useVector      = 1 // the helper's share of what is proved
	useProof       = 2 // and of the proofs
	useRandomness  = 3 // the circuit's randomness
	useProve       = 4 // the wires' seeds
	useQuery       = 5 // the points of the queries
	useSeed        = 6 // from both parts to the seed of the circuit's randomness
	usePart        = 7 // from a share to its part
	useProjections = 8 // the projections
	useEarlySeed   = 9 // as useSeed and usePart, for the projections
	useEarlyPart   = 10
)

// draftID and draftVersion are those that the draft's test vectors of version 01 have.
const (
	draftVersion = 1
	draftID      = 0xffffffff
	tagSize      = 1 + 4 + 2
)

// tag separates the uses of seeds, and contexts from another.
type tag struct {
	id      uint32
	context string
}

func (t tag) of(use uint16) []byte {
	b := binary.BigEndian.AppendUint32([]byte{draftVersion}, t.id)
	return append(binary.BigEndian.AppendUint16(b, use), t.context...)
}

func newVDAF[E element[E]](l layout, x xof, t tag) *vdaf[E] {
	s := &vdaf[E]{layout: l, xof: x, tag: t}
	s.equal = newGadget[E](true, l.equalityChunk, calls(l.dim, l.equalityChunk))
	s.rest = newGadget[E](false, 2*l.chunk, calls(l.bitCount(), l.chunk), calls(l.checks, l.chunk))
	s.whole = values[E]{of[E](1), of[E](int64(l.square)), of[E](int64(l.reach - 1)), of[E](int64(l.successes))}
	half := inverse(of[E](2))
	s.half = values[E]{half, s.whole.square.times(half), s.whole.offset.times(half), s.whole.successes.times(half)}
	return s
}

func (s *vdaf[E]) proofLength() int {
	return s.equalityProofs*s.equal.proof() + s.proofs*s.rest.proof()
}

func (s *vdaf[E]) verifierLength() int {
	return s.equalityProofs*s.equal.verifier() + s.proofs*s.rest.verifier()
}

func (s *vdaf[E]) lengths() Sizes {
	n, seed := sizeOf[E](), s.xof.seed
	return Sizes{
		Public:  2 * aggregators * seed,
		Input:   [aggregators]int{(s.full()+s.proofLength())*n + 2*seed, 4 * seed},
		Prep:    s.verifierLength()*n + 2*seed,
		Message: 2 * seed,
		Out:     s.dim * n,
	}
}

// expand returns n elements drawn from a seed.
func (s *vdaf[E]) expand(n int, seed []byte, use uint16, binder ...byte) []E {
	v := make([]E, n)
	fill(v, s.xof.open(seed, s.tag.of(use), binder))
	return v
}

func (s *vdaf[E]) counts(more ...byte) []byte {
	return append([]byte{byte(s.equalityProofs), byte(s.proofs)}, more...)
}

// part is the randomness that a share contributes; its blind keeps it from telling about the share.
func (s *vdaf[E]) part(use uint16, blind []byte, index int, nonce, share []byte) []byte {
	return s.xof.derive(blind, s.tag.of(use), []byte{byte(index)}, nonce, share)
}

func (s *vdaf[E]) seedOf(use uint16, leader, helper []byte) []byte {
	return s.xof.derive(make([]byte, s.xof.seed), s.tag.of(use), leader, helper)
}

// project returns the random projections of x, or of a share of it: vectors of −1, 0, 0 or 1
// with equal chances, drawn two bits at a time, times x.
func (s *vdaf[E]) project(x []E, seed []byte) []E {
	var zero, all E
	for _, v := range x {
		all = all.plus(v)
	}
	from := s.xof.open(seed, s.tag.of(useProjections))
	string := make([]byte, (len(x)+3)/4)
	out := make([]E, s.checks)
	for i := range out {
		from.read(string)
		out[i] = zero.project(x, string).minus(all) // an entry is its number of ones − 1
	}
	return out
}

// number returns the value of binary digits, lowest first.
func number[E element[E]](digits []E) E {
	var v E
	for i := len(digits) - 1; i >= 0; i-- {
		v = v.plus(v).plus(digits[i])
	}
	return v
}

// squares returns the inputs of the gadget that sums squares.
func (s *vdaf[E]) squares(shared []E) []E {
	in := make([]E, s.equal.calls*s.equal.width)
	copy(in, shared[:s.dim])
	return in
}

// digits returns the digits of projection i and whether it succeeded.
func (s *vdaf[E]) digits(shared []E, i int) ([]E, E) {
	d := shared[s.early()+i*(s.checkBits+1):]
	return d[:s.checkBits], d[s.checkBits]
}

// products returns the inputs of the gadget that sums products. The first sum is Σ r^i·b·(b − 1)
// for the digits b: a polynomial in the random r, zero only if all digits are 0 or 1. The second
// is Σ r^i·g·(projection − what its digits say), where g is whether projection i succeeded.
func (s *vdaf[E]) products(shared, projections []E, random []E, c values[E]) []E {
	in := make([]E, s.rest.calls*s.rest.width)
	power := of[E](1)
	for i, b := range shared[s.dim:] {
		in[2*i], in[2*i+1] = power.times(b), b.minus(c.one)
		power = power.times(random[0])
	}
	second := in[calls(s.bitCount(), s.chunk)*s.rest.width:]
	power = of[E](1)
	for i, y := range projections {
		d, g := s.digits(shared, i)
		second[2*i] = power.times(y.minus(number(d).minus(c.offset)))
		second[2*i+1] = g
		power = power.times(random[1])
	}
	return in
}

// output is the circuit's output for everything but the norm's value: 0 for an honest client.
func (s *vdaf[E]) output(shared, sums, random []E, c values[E]) E {
	v := shared[s.dim : s.dim+s.normBits]
	u := shared[s.dim+s.normBits : s.early()]
	var count E
	for i := range s.checks {
		_, g := s.digits(shared, i)
		count = count.plus(g)
	}
	r := random[2]
	return count.minus(c.successes).times(r).plus(sums[1]).times(r).
		plus(number(v).plus(number(u)).minus(c.square)).times(r).plus(sums[0])
}

// randoms is the length of the circuit's randomness.
const randoms = 3

func refused(why string) error { return fmt.Errorf("%w: %s", ErrRefused, why) }

// prepare is the work of one aggregator on a report.
func (s *vdaf[E]) prepare(key []byte, index int, nonce, public, input []byte) (*State, []byte, error) {
	n, seed := sizeOf[E](), s.xof.seed
	shared, proofs := make([]E, s.full()), make([]E, s.proofLength())
	var encoded []byte
	if index == 0 {
		if readAll(shared, input) != nil || readAll(proofs, input[len(shared)*n:]) != nil {
			return nil, nil, refused("a share holds a number that is no field element")
		}
		encoded = input[:len(shared)*n]
	} else {
		shared = s.expand(len(shared), input[:seed], useVector, byte(index))
		proofs = s.expand(len(proofs), input[seed:2*seed], useProof, s.counts(byte(index))...)
		encoded = appendAll(make([]byte, 0, len(shared)*n), shared)
	}
	blinds := input[len(input)-2*seed:]

	// A seed is derived from both parts: one of this aggregator's share, the other as the client
	// has published it. The aggregators compare the seeds. Beyond the draft, a published part that
	// this share does not have is refused at once: then both aggregators refuse the same reports,
	// if they have the same public share.
	parts := [2][]byte{
		s.part(useEarlyPart, blinds[:seed], index, nonce, encoded[:s.early()*n]),
		s.part(usePart, blinds[seed:], index, nonce, encoded),
	}
	state := &State{index: index, out: append([]byte(nil), encoded[:s.dim*n]...)}
	for i, use := range []uint16{useEarlySeed, useSeed} {
		both := [aggregators][]byte{public[2*i*seed : (2*i+1)*seed], public[(2*i+1)*seed : (2*i+2)*seed]}
		if !same(both[index], parts[i]) {
			return nil, nil, refused("its share does not have the published part")
		}
		state.seeds = append(state.seeds, s.seedOf(use, both[0], both[1])...)
	}
	projections := s.project(shared[:s.dim], state.seeds[:seed])
	randomness := s.expand(randoms*s.proofs, state.seeds[seed:], useRandomness, byte(s.proofs))
	points := s.expand(s.equalityProofs+s.proofs, key, useQuery, s.counts(nonce...)...)

	verifier := make([]E, 0, s.verifierLength())
	in := s.squares(shared)
	for _, t := range points[:s.equalityProofs] {
		w := s.equal.lagrange(t)
		if w == nil {
			return nil, nil, refused("the point of its query is a root of unity")
		}
		at := len(verifier)
		var sums []E
		verifier, sums = s.equal.query(append(verifier, t), in, proofs[:s.equal.proof()], w, t)
		verifier[at] = number(shared[s.dim : s.dim+s.normBits]).minus(sums[0])
		proofs = proofs[s.equal.proof():]
	}
	for _, t := range points[s.equalityProofs:] {
		w := s.rest.lagrange(t)
		if w == nil {
			return nil, nil, refused("the point of its query is a root of unity")
		}
		r := randomness[:randoms]
		at := len(verifier)
		var sums []E
		verifier, sums = s.rest.query(append(verifier, t), s.products(shared, projections, r, s.half), proofs[:s.rest.proof()], w, t)
		verifier[at] = s.output(shared, sums, r, s.half)
		randomness, proofs = randomness[randoms:], proofs[s.rest.proof():]
	}
	message := appendAll(make([]byte, 0, len(verifier)*n+2*seed), verifier)
	return state, append(append(message, parts[0]...), parts[1]...), nil
}

// decide adds both shares of the verifiers' messages, checks the proofs and returns the seeds
// that both shares' parts give.
func (s *vdaf[E]) decide(leader, helper []byte) ([]byte, error) {
	n, seed := sizeOf[E](), s.xof.seed
	length := s.verifierLength()
	v, w := make([]E, length), make([]E, length)
	if readAll(v, leader) != nil || readAll(w, helper) != nil {
		return nil, errElement
	}
	for i := range v {
		v[i] = v[i].plus(w[i])
	}
	holds := true
	for range s.equalityProofs {
		holds = s.equal.decide(v[:s.equal.verifier()]) && holds
		v = v[s.equal.verifier():]
	}
	for range s.proofs {
		holds = s.rest.decide(v[:s.rest.verifier()]) && holds
		v = v[s.rest.verifier():]
	}
	if !holds {
		return nil, refused("its proof does not hold")
	}
	leader, helper = leader[length*n:], helper[length*n:]
	early := s.seedOf(useEarlySeed, leader[:seed], helper[:seed])
	return append(early, s.seedOf(useSeed, leader[seed:], helper[seed:])...), nil
}

// add adds a share to a sum of shares.
func (s *vdaf[E]) add(sum, share []byte) error {
	a, b := make([]E, s.dim), make([]E, s.dim)
	if readAll(a, sum) != nil || readAll(b, share) != nil {
		return errElement
	}
	for i := range a {
		a[i] = a[i].plus(b[i])
	}
	appendAll(sum[:0], a)
	return nil
}

func (s *vdaf[E]) encoded(x []int64) []byte {
	out := make([]byte, 0, s.dim*sizeOf[E]())
	for _, v := range x {
		out = of[E](v).append(out)
	}
	return out
}

func (s *vdaf[E]) unshard(leader, helper []byte) ([]int64, error) {
	a, b := make([]E, s.dim), make([]E, s.dim)
	if readAll(a, leader) != nil || readAll(b, helper) != nil {
		return nil, errElement
	}
	out := make([]int64, s.dim)
	for i := range a {
		v, ok := centered(a[i].plus(b[i]))
		if !ok {
			return nil, fmt.Errorf("pine: sum %d is 2^62 or more: the shares do not belong together", i)
		}
		out[i] = v
	}
	return out, nil
}

func same(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

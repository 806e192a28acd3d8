package pine

import "math/bits"

// encode returns what is shared, but for the projections' digits: the vector, the binary
// digits of its squared norm mod q, and those of the bound's square minus that.
func (s *vdaf[E]) encode(x []int64) []E {
	shared := make([]E, s.full())
	var norm E
	for i, v := range x {
		shared[i] = of[E](v)
		norm = norm.plus(shared[i].times(shared[i]))
	}
	writeDigits(shared[s.dim:s.dim+s.normBits], norm)
	writeDigits(shared[s.dim+s.normBits:s.early()], s.whole.square.minus(norm))
	return shared
}

// writeDigits sets dst to the lowest binary digits of v, lowest first.
func writeDigits[E element[E]](dst []E, v E) {
	_, lo := v.words()
	one := of[E](1)
	for i := range dst {
		dst[i] = one.choose(lo >> i & 1)
	}
}

// encodeProjections writes the digits of each projection, moved up to begin at 0, and whether
// it is in its range. No more successes are claimed than are needed. It returns false if too
// few projections are in their range.
func (s *vdaf[E]) encodeProjections(shared, projections []E) bool {
	one := of[E](1)
	var found uint64
	for i, y := range projections {
		digits, _ := s.digits(shared, i)
		v := y.plus(s.whole.offset)
		writeDigits(digits, v)
		hi, lo := v.words()
		_, below := bits.Sub64(lo, 2*s.reach, 0)
		_, below = bits.Sub64(hi, 0, below) // 1 if 2^64·hi + lo is below 2·reach
		_, wanted := bits.Sub64(found, uint64(s.successes), 0)
		success := below & wanted
		found += success
		shared[s.early()+i*(s.checkBits+1)+s.checkBits] = one.choose(success)
	}
	return found == uint64(s.successes)
}

// seeds are the seven that a client draws, in the draft's order.
type seeds struct {
	vector, proof []byte              // the helper's shares
	early, late   [aggregators][]byte // blinds of the parts
	prove         []byte
}

const seedCount = 7

func split(rand []byte) seeds {
	n := len(rand) / seedCount
	at := func(i int) []byte { return rand[i*n : (i+1)*n] }
	return seeds{at(0), at(1), [aggregators][]byte{at(4), at(2)}, [aggregators][]byte{at(5), at(3)}, at(6)}
}

// shard makes the messages for x. With again it has failed by chance, and the client draws new
// randomness.
func (s *vdaf[E]) shard(x []int64, nonce, rand []byte) (public []byte, inputs [aggregators][]byte, again bool) {
	return s.share(s.encode(x), s.encodeProjections, nonce, rand)
}

// share splits and proves what encode returned. finish writes what is shared of the projections.
func (s *vdaf[E]) share(shared []E, finish func(shared, projections []E) bool, nonce, rand []byte) (public []byte, inputs [aggregators][]byte, again bool) {
	k := split(rand)
	n := sizeOf[E]()
	helper := make([]E, s.full())
	from := s.xof.open(k.vector, s.tag.of(useVector), []byte{1})
	sizes := s.lengths()
	var encoded [aggregators][]byte // shares as bytes
	encoded[0], encoded[1] = make([]byte, 0, sizes.Input[0]), make([]byte, 0, s.full()*n)
	leader := make([]E, s.full())
	extend := func(a, b int) { // shares elements a … b − 1
		fill(helper[a:b], from)
		copy(leader[a:b], shared[a:b])
		subtract(leader[a:b], helper[a:b])
		encoded[0], encoded[1] = appendAll(encoded[0], leader[a:b]), appendAll(encoded[1], helper[a:b])
	}

	extend(0, s.early())
	var parts [2][aggregators][]byte
	for i := range aggregators {
		parts[0][i] = s.part(useEarlyPart, k.early[i], i, nonce, encoded[i])
	}
	projections := s.project(shared[:s.dim], s.seedOf(useEarlySeed, parts[0][0], parts[0][1]))
	ok := finish(shared, projections)
	extend(s.early(), s.full())
	for i := range aggregators {
		parts[1][i] = s.part(usePart, k.late[i], i, nonce, encoded[i])
	}
	randomness := s.expand(randoms*s.proofs, s.seedOf(useSeed, parts[1][0], parts[1][1]), useRandomness, byte(s.proofs))

	wires := s.expand(s.equalityProofs*s.equal.width+s.proofs*s.rest.width, k.prove, useProve, s.counts()...)
	proofs := make([]E, 0, s.proofLength())
	for range s.equalityProofs {
		proofs = append(proofs, s.equal.prove(s.squares(shared), wires[:s.equal.width])...)
		wires = wires[s.equal.width:]
	}
	for range s.proofs {
		proofs = append(proofs, s.rest.prove(s.products(shared, projections, randomness[:randoms], s.whole), wires[:s.rest.width])...)
		wires, randomness = wires[s.rest.width:], randomness[randoms:]
	}
	subtract(proofs, s.expand(len(proofs), k.proof, useProof, s.counts(1)...))

	for _, p := range parts {
		public = append(append(public, p[0]...), p[1]...)
	}
	inputs[0] = append(append(appendAll(encoded[0], proofs), k.early[0]...), k.late[0]...)
	inputs[1] = append(append(append(append([]byte(nil), k.vector...), k.proof...), k.early[1]...), k.late[1]...)
	return public, inputs, !ok
}

// Package pine shares vectors of integers between two aggregators, who add them and check with
// a proof that the Euclidean norm of each is at most a bound: PINE, Private Inexpensive Norm
// Enforcement [ROCT23: Rothblum, Omri, Chen and Talwar, arXiv 2311.10237].
//
//	client      Pine.Shard        vector → public share, an input share for each aggregator
//	aggregator  Pine.PrepInit     both shares of a report → a state, a prep share for the other
//	aggregator  Pine.PrepMessage  both prep shares → a message, or ErrRefused
//	aggregator  Pine.PrepNext     state and message → a share of the vector, or ErrRefused
//	aggregator  Pine.Add          share added to a sum
//	anyone      Pine.Unshard      both sums → the vectors' sum
//
// Messages are byte strings of fixed lengths, those of draft-chen-cfrg-vdaf-pine, version 01,
// whose test vectors hold ([Config.Context] empty). pine.md has the protocol, the errors with
// their formulas, and what a caller must see to.
//
// What is proved: the squares of an accepted vector sum to at most the bound's square over the
// integers, up to [Pine.Soundness], if both aggregators are honest and clients do not know the
// [VerifyKey]. So one client moves a sum by at most the bound. Privacy needs one honest
// aggregator; one learns no more of an honest vector than that its norm is within the bound, up
// to [Pine.ZeroKnowledge], computationally (TurboSHAKE128), and then the sum. The proofs that
// this rests on are the paper's and the drafts'; they are not repeated here. Nothing hides the
// sum: noise is added to it elsewhere.
//
// [Pine.Shard] runs in constant time: no branch and no address depends on the vector, the shares
// or the proof, but for an error about the vector and for projections that fail by chance. That
// holds where multiplication of words takes the same time for all values, as on amd64 and arm64.
// [Pine.PrepInit] and [Pine.Add] are the same for the shares. [Pine.Unshard] is not; it sees the
// public sum. Buffers are not erased.
package pine

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
)

// Config says what clients and aggregators of a round agree on.
type Config struct {
	Dim   int   // Required: integers of a vector, up to 2^24
	Bound int64 // Required: largest Euclidean norm of a vector, 1 to 2^31
	Field int   // 64 (default) or 128: bits of the field's order; 16 bytes instead of 8 an element

	// Context is bound to everything that is derived from a seed: a report made for one context
	// is refused in another. At most 248 bytes. The draft's version 01 has none.
	Context string

	// The draft's parameters. A field that is 0 takes the default.
	Alpha          float64 // width of a projection's range in norms; 8.7
	Checks         int     // projections; 100
	Successes      int     // projections that must be in their range; all
	Proofs         int     // of everything but the norm's value; 2, or 1 for Field 128
	EqualityProofs int     // of the norm's value; 1
	Chunk          int     // products in a gadget; what makes the proofs shortest
	EqualityChunk  int     // squares in a gadget; what makes the proofs shortest
}

// Nonce names a report. A client draws it at random, and aggregators take each once.
type Nonce [16]byte

// VerifyKey is the secret that the two aggregators share. It is drawn from crypto/rand for
// one round before any report. A client that knows it can make false proofs. A report that is
// prepared under two keys shows more about its vector than it should.
type VerifyKey [16]byte

// Format keeps the key out of logs, for every verb.
func (VerifyKey) Format(w fmt.State, _ rune) { _, _ = io.WriteString(w, "verify key") }

// ErrRefused is wrapped by the error of a report that is not well formed or whose proof does
// not hold. Every other error means that the caller or the other aggregator erred.
var ErrRefused = errors.New("pine: report refused")

// aggregators is their number: 0 is the leader in the draft's terms, 1 the helper.
const aggregators = 2

// Sizes are the bytes of the encoded messages.
type Sizes struct {
	Public  int    // public share, for both aggregators
	Input   [2]int // input shares of leader and helper
	Prep    int    // prep share, from each aggregator to the other
	Message int    // prep message
	Out     int    // output share, and any sum of them
}

// Pine is a configuration that was checked. Several goroutines may use it.
type Pine struct {
	config Config
	layout layout
	sizes  Sizes
	scheme scheme
}

// scheme is Pine over one field. All lengths were checked by the caller.
type scheme interface {
	shard(x []int64, nonce, rand []byte) (public []byte, inputs [aggregators][]byte, again bool)
	prepare(key []byte, index int, nonce, public, input []byte) (*State, []byte, error)
	decide(leader, helper []byte) ([]byte, error)
	add(sum, share []byte) error
	encoded(x []int64) []byte
	unshard(leader, helper []byte) ([]int64, error)
	lengths() Sizes
}

// layout is what the configuration means for vectors and circuits, whatever the field's order.
type layout struct {
	dim       int
	square    uint64 // of the bound
	normBits  int    // binary digits of square
	reach     uint64 // a power of 2: a projection's range is 1 − reach … reach
	checkBits int    // binary digits of 2·reach − 1
	checks    int
	successes int

	chunk, equalityChunk   int
	proofs, equalityProofs int
}

// bitCount is the number of elements that must be 0 or 1: the norm's digits and those of the
// difference to the bound; for each projection its digits and whether it succeeded.
func (l layout) bitCount() int { return 2*l.normBits + l.checks*(l.checkBits+1) }

// early is the length of what the projections are derived from, vector and norm; full that of
// what is shared.
func (l layout) early() int { return l.dim + 2*l.normBits }
func (l layout) full() int  { return l.dim + l.bitCount() }

const (
	maxDim      = 1 << 24
	maxCalls    = 1 << 13 // of a gadget, and one
	maxElements = 1 << 26 // of a report, about
	maxContext  = 255 - tagSize
)

// New checks c.
func New(c Config) (*Pine, error) { return newPine(c, turboShake, draftID) }

func newPine(c Config, x xof, id uint32) (*Pine, error) {
	c = c.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	p := &Pine{config: c, layout: c.layout()}
	if zk := p.ZeroKnowledge(); zk > -40 {
		return nil, fmt.Errorf("pine: projections of an honest vector may fail with probability 2^%.1f, more than 2^-40: alpha = %v is too small", zk, c.Alpha)
	}
	t := tag{id: id, context: c.Context}
	if c.Field == 64 {
		p.scheme = newVDAF[f64](p.layout, x, t)
	} else {
		p.scheme = newVDAF[f128](p.layout, x, t)
	}
	p.sizes = p.scheme.lengths()
	return p, nil
}

func (c Config) withDefaults() Config {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&c.Field, 64)
	set(&c.Checks, 100)
	set(&c.Successes, c.Checks)
	set(&c.Proofs, 128/c.Field)
	set(&c.EqualityProofs, 1)
	if c.Alpha == 0 {
		c.Alpha = 8.7
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Dim < 1 || c.Dim > maxDim:
		return fmt.Errorf("pine: dimension %d must be 1 to 2^24", c.Dim)
	case c.Bound < 1 || c.Bound > 1<<31:
		return fmt.Errorf("pine: norm bound %d must be 1 to 2^31", c.Bound)
	case c.Field != 64 && c.Field != 128:
		return fmt.Errorf("pine: field of %d bits must be of 64 or 128", c.Field)
	case len(c.Context) > maxContext:
		return fmt.Errorf("pine: context of %d bytes must have at most %d", len(c.Context), maxContext)
	case !(c.Alpha >= 1 && c.Alpha <= 64):
		return fmt.Errorf("pine: alpha = %v must be 1 to 64", c.Alpha)
	case c.Checks < 1 || c.Checks > 1<<12:
		return fmt.Errorf("pine: %d projections must be 1 to 4096", c.Checks)
	case c.Successes < 1 || c.Successes > c.Checks:
		return fmt.Errorf("pine: %d successes of %d projections must be 1 to all", c.Successes, c.Checks)
	case c.Proofs < 1 || c.Proofs > 255 || c.EqualityProofs < 1 || c.EqualityProofs > 255:
		return fmt.Errorf("pine: %d and %d proofs must be 1 to 255 each", c.Proofs, c.EqualityProofs)
	case c.Chunk < 0 || c.Chunk > maxDim || c.EqualityChunk < 0 || c.EqualityChunk > maxDim:
		return fmt.Errorf("pine: chunks of %d and %d must be 0, for the best, to 2^24", c.Chunk, c.EqualityChunk)
	}
	// New needs time in proportion to the square of the calls, and a report has all proofs' wires. The
	// best chunks make 4096 calls at most.
	l := c.layout()
	if equality, rest := calls(l.dim, l.equalityChunk), calls(l.bitCount(), l.chunk)+calls(l.checks, l.chunk); equality >= maxCalls || rest >= maxCalls {
		return fmt.Errorf("pine: chunks of %d and %d make %d and %d calls, and only %d are computed", l.chunk, l.equalityChunk, rest, equality, maxCalls-1)
	}
	if n := int64(l.full()) + int64(l.proofs)*int64(2*l.chunk+4*maxCalls) + int64(l.equalityProofs)*int64(l.equalityChunk+4*maxCalls); n > maxElements { // above an int of 32 bits
		return fmt.Errorf("pine: reports of up to %d field elements must have at most 2^26", n)
	}
	// What the proof of [ROCT23, lemma 3.3 and figure 1] needs, as the draft writes it: q > 3·B² + 2,
	// q ≥ reach²/4000, q ≥ 2600·reach, q ≥ 2·checks. By the limits above all but one always hold.
	if c.Field == 64 && float64(l.reach)*float64(l.reach) > 4000*order64 {
		return fmt.Errorf("pine: norm bound %d with alpha = %v is too large for the field of 64 bits", c.Bound, c.Alpha)
	}
	return nil
}

func (c Config) layout() layout {
	l := layout{
		dim: c.Dim, square: uint64(c.Bound) * uint64(c.Bound),
		checks: c.Checks, successes: c.Successes,
		chunk: c.Chunk, equalityChunk: c.EqualityChunk, proofs: c.Proofs, equalityProofs: c.EqualityProofs,
	}
	l.normBits = bits.Len64(l.square)
	l.reach = 1 << bits.Len64(uint64(math.Ceil(c.Alpha*float64(c.Bound)))) // the power of 2 from ⌈α·B⌉ + 1 on
	l.checkBits = bits.Len64(2*l.reach - 1)
	if l.chunk == 0 {
		l.chunk = bestChunk(2, l.bitCount(), l.checks)
	}
	if l.equalityChunk == 0 {
		l.equalityChunk = bestChunk(1, l.dim)
	}
	return l
}

func calls(n, chunk int) int { return (n + chunk - 1) / chunk }

// bestChunk returns the chunk with the shortest proof for these numbers of squares (one wire
// each) or products (two wires), where each number begins with a new call.
func bestChunk(wires int, counts ...int) int {
	best, length := 0, math.MaxInt
	for points := 2; ; points *= 2 {
		low, high := 1, maxDim // the smallest chunk with fewer calls than points
		for low < high {
			chunk, all := (low+high)/2, 1
			for _, n := range counts {
				all += calls(n, chunk)
			}
			if all <= points {
				high = chunk
			} else {
				low = chunk + 1
			}
		}
		if n := wires*low + 2*points - 1; points > len(counts) && n < length {
			best, length = low, n
		}
		if low == 1 || 2*points > length {
			return best
		}
	}
}

// Sizes returns the bytes of each message.
func (p *Pine) Sizes() Sizes { return p.sizes }

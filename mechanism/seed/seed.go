// Package seed makes reports of 16 bytes, whatever the dimension.
//
// A public function expands a seed to Dim standard normal values in fixed point; they are the
// report. A client draws uniform seeds and accepts one with a probability that rises with its
// score z, the inner product of the values with the client's direction. Without acceptance z is
// standard normal for every direction, so each report's law is known up to [Mechanism.Eta],
// which expand.md derives. The reader adds up the expansions of all seeds in integers.
//
// Every seed is a legal report: there is nothing to check. The reader counts equal seeds of a
// round once.
//
// The time to expand a seed does not depend on the values, but for the processor's cache and,
// where the processor has no AES instructions, the tables of a software AES. The time of
// [Mechanism.Draw] depends on the number of seeds it tries, which is independent of the seed
// that it returns.
package seed

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/subtle"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

//go:generate go run ./gen -out avx2_amd64.s -stubs avx2_amd64.go -pkg seed

const (
	// Size is the length of a seed in bytes.
	Size = 16
	// unit is the value 1 in fixed point.
	unit = 1 << 28
	// block is the number of values that are expanded at once; it is a multiple of eight.
	block = 512
	// mostTries bounds E/E[h], the mean number of tries.
	mostTries = 1 << 14
	// mostRatio bounds E. The least probability of acceptance is 1/E, rounded to 64 bits, so it
	// has a relative error below 2^−40.
	mostRatio = 1 << 24
	// leastHeight bounds Height: a probability 1/(1+Height) must be below 1 after rounding.
	leastHeight = 0x1p-40
)

// Config describes the reports of a task. All fields are required.
type Config struct {
	// Dim is the number of coordinates, from 1 to 2^24.
	Dim int
	// Radius is the largest ℓ₂ norm of an input, C; longer ones are scaled down to it.
	Radius float64
	// Edges are the scores z₁ < z₂ < … at which the probability of acceptance rises, between 0
	// and 6.
	Edges []float64
	// Height is what each edge adds: a seed of score z is accepted with a probability
	// proportional to h(z) = 1 + Height·#{j: z > z_j}. It is 2^−40 at least. ε₀ is
	// ln(1 + Height·len(Edges)), to which an accountant adds what [Mechanism.Eta] costs.
	Height float64
}

// Mechanism makes and reads reports. It may be used by several goroutines at once.
type Mechanism struct {
	Config
	// Tries is the mean number of seeds that Draw expands. It is for reading only.
	Tries  float64
	kernel kernel
	// accept[c] is the probability of acceptance above c edges: (accept[c]+1)/2^64.
	accept []uint64
	tries  int
	// mean is E[h], of which steps are the edges' parts.
	mean  float64
	steps []float64
	// scratch holds *scratch.
	scratch sync.Pool
}

type scratch struct {
	x     []float64 // an input, with zeros up to a multiple of eight
	words [8 * block]byte
	lanes [8]float64
}

// New checks a configuration.
func New(c Config) (*Mechanism, error) {
	steps := float64(len(c.Edges))
	switch {
	case c.Dim < 1 || c.Dim > 1<<24:
		return nil, fmt.Errorf("seed: dim = %d must lie between 1 and 2^24", c.Dim)
	case !(c.Radius > 0 && c.Radius <= math.MaxFloat32):
		return nil, fmt.Errorf("seed: radius = %v must be above 0 and finite", c.Radius)
	case len(c.Edges) == 0 || !(c.Height >= leastHeight):
		return nil, fmt.Errorf("seed: %d edges of height %v must be at least one, of height 2^-40 at least", len(c.Edges), c.Height)
	}
	for i, z := range c.Edges {
		if !(z >= 0 && z <= 6) || i > 0 && z <= c.Edges[i-1] {
			return nil, fmt.Errorf("seed: edges %v must rise from 0 at least to 6 at most", c.Edges)
		}
	}
	m := &Mechanism{Config: c, kernel: best(), accept: make([]uint64, len(c.Edges)+1)}
	m.Edges = slices.Clone(c.Edges)
	for _, z := range m.Edges {
		m.steps = append(m.steps, m.Height*tail.UpperNormal(z))
	}
	m.mean = m.weight()
	top := 1 + c.Height*steps
	if !(top <= mostRatio) {
		return nil, fmt.Errorf("seed: height = %v with %d edges makes a ratio of %.3g, at most %d is allowed", c.Height, len(c.Edges), top, mostRatio)
	}
	mean := top / m.mean
	if !(mean <= mostTries) {
		return nil, fmt.Errorf("seed: height = %v needs %.3g tries on average, at most %d are allowed", c.Height, mean, mostTries)
	}
	m.tries = int(math.Ceil(128 * math.Ln2 * mean))
	for i := range c.Edges {
		// Rounded to a multiple of 2^−64: at least 1/mostRatio, so the relative error is below 2^−40.
		m.accept[i] = uint64((1+c.Height*float64(i))/top*0x1p64) - 1
	}
	m.accept[len(c.Edges)] = math.MaxUint64
	m.Tries = mean
	m.scratch.New = func() any { return &scratch{x: make([]float64, (c.Dim+7)&^7)} }
	return m, nil
}

// Draw returns the report of x in a round. round is a public key of the round, such as the
// digest of its announcement; it makes the expansion of seeds a different one in each round.
// x has Dim coordinates; NaN counts as 0 and ±Inf as the largest float32.
//
// A vector shorter than Radius keeps its mean by its sign: the score's direction is x/‖x‖ with
// probability (1+‖x‖/Radius)/2, else −x/‖x‖. Zero takes the first axis for x/‖x‖.
//
// After 128·ln 2 times the mean number of tries Draw returns a uniform seed. That has a
// probability below 2^−128.
func (m *Mechanism) Draw(src rng.Source, round *[32]byte, x []float32) [Size]byte {
	if len(x) != m.Dim {
		panic(fmt.Sprintf("seed: input of %d coordinates, want %d", len(x), m.Dim))
	}
	w := m.scratch.Get().(*scratch)
	defer m.scratch.Put(w)
	length := w.direction(x)
	if !sample.Bernoulli(src, math.Min(1, (1+length/m.Radius)/2)) {
		for i, v := range w.x {
			w.x[i] = -v
		}
	}
	norm := length
	if norm == 0 {
		norm = 1
	}
	for range m.tries {
		s := uniform(src)
		z := m.product(w, round, s) / norm
		if src.Uint64() <= m.accept[m.above(z)] {
			return s
		}
	}
	return uniform(src)
}

func uniform(src rng.Source) (s [Size]byte) {
	var word [2]uint64
	src.Fill(word[:])
	for i := range s {
		s[i] = byte(word[i/8] >> (i % 8 * 8))
	}
	return s
}

// above counts the edges below z.
func (m *Mechanism) above(z float64) (n int) {
	for _, edge := range m.Edges {
		if z > edge {
			n++
		}
	}
	return n
}

// Finite returns what an input's coordinate counts as: v itself, 0 if it is NaN, and the largest
// float32 of its sign if it is infinite.
func Finite(v float32) float32 {
	switch {
	case v != v:
		return 0
	case v > math.MaxFloat32:
		return math.MaxFloat32
	case v < -math.MaxFloat32:
		return -math.MaxFloat32
	}
	return v
}

// direction stores x, or the first axis if x is zero, and returns ‖x‖.
func (w *scratch) direction(x []float32) float64 {
	for i, v := range x {
		w.x[i] = float64(Finite(v))
	}
	var square float64
	for i := 0; i < len(w.x); i += block {
		w.lanes = [8]float64{}
		for j, v := range w.x[i:min(i+block, len(w.x))] {
			w.lanes[j&7] += float64(v * v)
		}
		square += w.total()
	}
	if square == 0 {
		w.x[0] = 1
	}
	return math.Sqrt(square)
}

func (w *scratch) total() float64 {
	l := &w.lanes
	return ((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))
}

// product returns the inner product of w.x and the expansion of s. Its error is at most
// sumError(Dim)·‖w.x‖.
func (m *Mechanism) product(w *scratch, round *[32]byte, s [Size]byte) float64 {
	words := stream(round, s)
	var sum float64
	for i := 0; i < len(w.x); i += block {
		x := w.x[i:min(i+block, len(w.x))]
		m.kernel.dot(&w.lanes, x, w.next(words, len(x)))
		sum += w.total()
	}
	return sum / unit
}

// AddTo adds the expansion of a seed in a round to sum, which has Dim coordinates, in units of
// 2^−28. A value is below 8, so 2^32 reports have room. The sum is exact and does not
// depend on the order of reports; [Mechanism.Scale] is applied to it once at the end.
func (m *Mechanism) AddTo(sum []int64, round *[32]byte, s [Size]byte) {
	if len(sum) != m.Dim {
		panic(fmt.Sprintf("seed: sum of %d coordinates, want %d", len(sum), m.Dim))
	}
	w := m.scratch.Get().(*scratch)
	defer m.scratch.Put(w)
	words := stream(round, s)
	for len(sum) > 0 {
		n := min(block, len(sum))
		m.kernel.add(sum[:n], w.next(words, n))
		sum = sum[n:]
	}
}

// Scale returns the factor by which the sum of n reports is multiplied to estimate the sum of
// the n inputs, each shortened to Radius. Its relative bias is of the size of Eta.
func (m *Mechanism) Scale() float64 {
	var rise float64
	for _, z := range m.Edges {
		rise += m.Height * tail.NormalDensity(z)
	}
	return m.Radius * m.weight() / (rise * unit)
}

// stream returns the words of a seed: AES-128 in counter mode. The key is the seed xor the last
// 16 bytes of the round's key; the first counter is the first 16.
func stream(round *[32]byte, s [Size]byte) cipher.Stream {
	subtle.XORBytes(s[:], s[:], round[Size:])
	b, err := aes.NewCipher(s[:])
	if err != nil {
		panic("seed: 16 bytes refused as an AES key: " + err.Error())
	}
	return cipher.NewCTR(b, round[:Size])
}

// next returns the bytes of the next n words.
func (w *scratch) next(words cipher.Stream, n int) []byte {
	b := w.words[:8*n]
	clear(b)
	words.XORKeyStream(b, b)
	return b
}

package randomizer

import (
	"math"
	"math/bits"

	"github.com/riffle-dp/riffle/mechanism/rng"
)

// R1 names the mechanism R_1 for the ball ‖x‖₁ ≤ a: R_∞ after a Hadamard transform. With
// H the D×D matrix of signs, D the least power of two ≥ d, all |(Hx)_j| ≤ ‖x‖₁ ≤ a. A report
// holds m = c.Bits random rows j, drawn without replacement, and one bit of each (Hx)_j,
// passed through binary randomized response of ε₀/m. Each stands for ±(a/m)/tanh(ε₀/2m) times
// row j.
//
// Longer inputs are scaled into the ball; NaN counts as 0 and ±Inf as the largest float32. R_1
// is exactly ε₀-LDP, without slack: the row does not depend on x, the flip is drawn exactly,
// and the rounding of (Hx)_j changes a bit only before its flip. The estimate is unbiased (up
// to the float sum's error of about 1e-13); the mean squared error is a²d/(m·tanh²(ε₀/2m)) −
// c‖x‖², at m = 1 with c = 1: a²d((E+1)/(E−1))², as in Girgis et al. 2021 (NeurIPS), Remark 1.
// It is largest at x = 0.
//
// Padding to D does not change the variance's first term, which has d and not D in it: a row
// restricted to the first d coordinates has d signs, and the estimates of the padding are
// dropped. For m ≥ 2 restricted rows are not orthogonal any more: c = 1 − (m−1)(D−d)/(m(D−1)).
// The message has D rows to choose from, ⌈log₂ d⌉ bits, as without padding.
//
// A report takes O(md) on both sides. Sums are kept in coordinates, not rows.
//
// Source: as [RInf]; Girgis et al., AISTATS 2021, R_1; and NeurIPS 2021, Remark 1.
const R1 = "r1"

func newR1(c Config) (Randomizer, error) {
	b, each, err := newBits(c, 1<<bits.Len(uint(c.Dim-1)))
	if err != nil {
		return nil, err
	}
	d, count := float64(c.Dim), float64(b.count)
	scale := c.Radius / count * flipScale(each)
	return &r1{
		pure: pure{base{
			facts: b.sized(Facts{
				Name: R1,
				Dim:  c.Dim,
				MSE:  d * count * scale * scale,
				// In ℓ₁, attained by a report of one bit, which moves every coordinate by the
				// same amount.
				Largest: d * count * scale / c.Radius,
			}),
			radius: c.Radius, scale: scale,
			input: c.Radius, report: math.Sqrt(d) * count * scale,
		}, bitsEvent(c.Eps0, b.count, each)},
		indexed: b,
		each:    each,
	}, nil
}

// r1 sends rows of H as indices.
type r1 struct {
	pure
	indexed
	each float64 // ε₀ of one bit
}

// Randomize overwrites r with a randomized report of x; see [R1] for inputs
// outside the domain.
func (m *r1) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, m.count, m.count)
	m.draw(src, r.Index)
	size := norm(x, 1)
	if !(size <= math.MaxFloat64) {
		clean := make([]float32, len(x))
		sanitize(clean, x)
		x, size = clean, norm(clean, 1)
	}
	size = math.Max(size, m.radius)
	for i, j := range r.Index {
		r.Value[i] = randomizedBit(src, hadamardRow(x, j), size, m.each)
	}
}

// signs64 returns the first 64 signs of row j of H: bit i is set where
// H[j][i] = (−1)^|i∧j| is −1.
func signs64(j uint32) uint64 {
	// These are the bits of i that j has in common with each of 1, 2, 4, …, 32.
	columns := [6]uint64{
		0xaaaaaaaaaaaaaaaa, 0xcccccccccccccccc, 0xf0f0f0f0f0f0f0f0,
		0xff00ff00ff00ff00, 0xffff0000ffff0000, 0xffffffff00000000,
	}
	var s uint64
	for b, c := range columns {
		s ^= c & -uint64(j>>b&1)
	}
	return s
}

// signsAt returns the signs of columns 64·block … 64·block+63 of row j, where first is
// signs64(j). The signs are all inverted if the higher bits have odd parity.
func signsAt(first uint64, j uint32, block int) uint64 {
	return first ^ -uint64(bits.OnesCount32(j>>6&uint32(block))&1)
}

// hadamardRow returns (Hx)_j, without the normalisation.
func hadamardRow(x []float32, j uint32) float64 {
	first := signs64(j)
	var sum float64
	for block := 0; len(x) > 0; block++ {
		s := signsAt(first, j, block)
		part := x[:min(64, len(x))]
		x = x[len(part):]
		var a, b, c, d float64
		for len(part) >= 4 {
			a += signed(part[0], s)
			b += signed(part[1], s>>1)
			c += signed(part[2], s>>2)
			d += signed(part[3], s>>3)
			part, s = part[4:], s>>4
		}
		for _, v := range part {
			a += signed(v, s)
			s >>= 1
		}
		sum += (a + b) + (c + d)
	}
	return sum
}

// signed returns v, negated if the lowest bit of s is set.
func signed(v float32, s uint64) float64 {
	return float64(math.Float32frombits(math.Float32bits(v) ^ uint32(s)<<31))
}

// Add adds a checked report to sum: its signs times its rows of H.
func (m *r1) Add(sum []int64, r *Report) {
	sum = sum[:m.facts.Dim]
	for i, j := range r.Index {
		addRow(sum, j, r.Value[i] < 0)
	}
}

func addRow(sum []int64, j uint32, negative bool) {
	first := signs64(j)
	if negative {
		first = ^first
	}
	for block := 0; len(sum) > 0; block++ {
		s := signsAt(first, j, block)
		part := sum[:min(64, len(sum))]
		sum = sum[len(part):]
		for k := range part {
			part[k] += 1 - 2*int64(s&1)
			s >>= 1
		}
	}
}

package randomizer

import (
	"fmt"
	"math"
	"sync"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// PrivUnit names the ℓ₂ mechanism of Bhowmick et al. for the ball ‖x‖₂ ≤ C; to
// find its cap takes about 1 ms. The mechanism draws a random unit vector v that lies with
// probability p in the cap ⟨v,u⟩ ≥ γ around the input's direction u, otherwise outside it, and
// is uniform in either part. γ is the one with the least error, p the largest
// that keeps the ratio of the two densities at E. The report is R·v in fixed point. R ≈ 1 is a
// random length independent of everything, with P[|ln R| > t] = e^(−4096·t). It costs a share
// 1.2e-7 of the error. It gives every cell of the fixed-point grid a smooth law of the length;
// without it a rounding error could decide whether a cell is reachable at all.
//
// A vector shorter than C keeps its mean through its sign: u = x/‖x‖ with probability
// (1+‖x‖/C)/2, else −x/‖x‖. Zero takes the first axis for x/‖x‖. A longer vector is scaled
// onto the sphere; NaN counts as 0 and ±Inf as the largest float32.
//
// The real-valued mechanism is exactly ε₀-LDP; Event adds the slack of p, q and of the float
// arithmetic before the grid, 4.3e-6 at d = 4420. privunit.md says what is bounded and what is
// assumed. The estimate is unbiased. The mean squared error over C² is K−‖x/C‖², K ≈ d·v(ε₀),
// and is largest at x = 0; at ε₀ = 2, 3, 4, 5, 6 v = 1.617, .743, .435, .292, .213 for large
// d.
//
// With Config.Encoding [Seed] a report is 16 bytes, see [Keyed]. Its cap is {score > z} for the
// score of package seed, z the one with the least error; the slack is that of [seed.Mechanism.Eta],
// and v(ε₀) is the same.
//
// Source: Bhowmick, Duchi, Freudiger, Kapoor, Rogers, "Protection Against Reconstruction and
// Its Applications in Private Federated Learning", arXiv 1812.00984v2, Algorithm 1, with the
// split of ε₀ optimised and the cap's mass exact in every dimension.
const PrivUnit = "privunit"

func newPrivUnit(c Config) (Randomizer, error) {
	c, edges, err := c.shape(PrivUnit)
	switch {
	case err != nil:
		return nil, err
	case c.Encoding == Seed:
		return newSeeded(PrivUnit, c, edges)
	case len(edges) > 0:
		return nil, fmt.Errorf("randomizer: edges %v given to %q with values, which has the cap with the least error; %q takes edges", edges, PrivUnit, StepUnit)
	}
	return newCapped(PrivUnit, c, bestCap(c.Dim, c.Eps0))
}

type privUnit struct {
	sphere
	cap sphereCap
	// rare is the probability of the less likely of the two parts: a float64, taken as the
	// exact number that it is. rareCap says whether that part is the cap.
	rare    float64
	rareCap bool
}

// sphere is what PrivUnit and StepUnit have in common: a report is a random vector of the unit
// sphere times R, in fixed point. What differs is the law of its height, ⟨v,u⟩.
type sphere struct {
	pure
	dense
	law     heights // of ⟨v,u⟩
	mean    float64 // m = E⟨v,u⟩
	longest float64 // largest length that Check accepts, in grid units
	// scratch holds *privUnitScratch, which keeps the noise out of reports.
	scratch *sync.Pool
}

type privUnitScratch struct {
	z []float64
	x []float32 // a cleaned copy of an input that is zero or not finite
}

const (
	// privUnitBits is F, the number of fraction bits: steps of 2^−16 of the unit sphere. The
	// grid is coarse because the slack grows as 2^F; the rounding adds d·4^−F/12 to the
	// squared length, a share 9e-8 of the error at d = 4420.
	privUnitBits = 16
	privUnitUnit = 1 << privUnitBits
	// lengthRate is 1/s, where s is the scale of the Laplace law of ln R.
	lengthRate = 4096
	// lengthLimit bounds R; see length.
	lengthLimit = 1.125
	// privUnitLimit bounds the absolute values in a report: 18 bits with the sign.
	privUnitLimit = lengthLimit * privUnitUnit
)

// newCapped makes PrivUnit with any cap.
func newCapped(name string, c Config, k sphereCap) (Randomizer, error) {
	if c.Dim > 1 && !(k.sin > 0 && k.mass > 0) {
		return nil, fmt.Errorf("randomizer: no cap found for dim = %d, eps0 = %v", c.Dim, c.Eps0)
	}
	m := &privUnit{cap: k}
	event := m.split(c.Dim, c.Eps0)
	m.law = m
	if err := m.make(name, c, event); err != nil {
		return nil, err
	}
	return m, nil
}

// make fills in a sphere whose mean is known. event is the promise of a report.
func (m *sphere) make(name string, c Config, event dp.Report) error {
	if event.Eps0 > dp.MaxEps0 {
		return fmt.Errorf("randomizer: eps0 = %v with its numeric slack is above %d", c.Eps0, dp.MaxEps0)
	}
	m.longest = privUnitLimit + math.Sqrt(float64(c.Dim))
	m.scratch = newScratch(c.Dim)
	m.dense = dense{values: c.Dim, limit: privUnitLimit, whole: m.checkLength}
	// E[R] = 1/(1−s²) for ln R of the Laplace law with scale s, E[R²] = 1/(1−4s²); the
	// rounding adds d/12 squared grid units.
	meanLength := 1 / (1 - 1./(lengthRate*lengthRate))
	square := privUnitUnit*privUnitUnit/(1-4./(lengthRate*lengthRate)) + float64(c.Dim)/12
	scale := c.Radius / (m.mean * meanLength * privUnitUnit)
	m.pure = pure{base{
		facts: m.dense.sized(Facts{
			Name: name,
			Dim:  c.Dim,
			MSE:  scale * scale * square, // largest at x = 0; an input of length C has C² less
			// An honest report is at most an eighth longer than the unit vector, plus the rounding.
			Largest: m.longest * scale / c.Radius,
		}),
		radius: c.Radius, scale: scale,
		input: c.Radius, report: m.longest * scale,
	}, event}
	return nil
}

func newScratch(dim int) *sync.Pool {
	return &sync.Pool{New: func() any { return &privUnitScratch{z: make([]float64, dim)} }}
}

// split chooses the probability of the cap, stores it and the mean that follows from it, and
// returns what a report promises, with the slack of the arithmetic.
func (m *privUnit) split(dim int, eps0 float64) dp.Report {
	k := m.cap
	// p is Eq/(1+q(E−1)) for the cap and (1−q)/(1+q(E−1)) outside. The rarer of the two is
	// kept, because a float64 near 1 would lose the digits of the other.
	denominator := 1 + k.mass*math.Expm1(eps0)
	in, out := math.Exp(eps0)*k.mass/denominator, (1-k.mass)/denominator
	m.rareCap = in < out
	m.rare = math.Min(in, out)
	inside, outside := m.rare, 1-m.rare
	if !m.rareCap {
		inside, outside = outside, inside
	}
	// E⟨v,u⟩; the uniform law has mean zero, so S outside the cap is −S inside.
	m.mean = k.first * (inside/k.mass - outside/(1-k.mass))
	// The ratio of the densities as they are after rounding, not as intended.
	ratio := math.Log(inside) - math.Log(outside) + math.Log1p(-k.mass) - k.logMass
	slack := privUnitSlack(dim)
	report := dp.Report{Class: dp.Generic, Eps0: roundUp(math.Max(ratio, eps0) + slack)}
	// The part that all inputs have in common: the density outside the cap, which k.mass knows to
	// 1e-11. See privunit.md, section 9.
	less := 1 - outside/(1-k.mass)*math.Exp(-slack)*(1-1e-10)
	if a := less / math.Expm1(report.Eps0) * (1 + 1e-14); a < 1/(math.Exp(report.Eps0)+1) {
		report.Class, report.TV = dp.Cap, a
	}
	return report
}

// privUnitSlack bounds what the arithmetic adds to ln E; privunit.md derives
// each line.
func privUnitSlack(dim int) float64 {
	d, chain := float64(dim), float64(sumChain(dim)) // L: the number of additions that a term passes through
	// alpha bounds the distance of the computed R·v from the exact one: α in ℓ₂, so at most
	// √d·α in ℓ₁.
	alpha := lengthLimit * (20*chain + 200) * 0x1p-53
	grid := 4 * math.Sqrt(d) * alpha * privUnitUnit // a cell of the grid, stretched
	length := 4 * (d + lengthRate) * alpha          // the law of the length
	base := 2e-12*d + 6e-12*math.Min(d, 128)        // the ziggurat's density, in z and in t
	const scalars = 1e-10                           // q, p and the acceptance tests
	return 1.01*(grid+length+base) + scalars        // 1.01 covers second-order terms
}

// heights draws ⟨v,u⟩ = t and √(1−t²).
type heights interface {
	height(src rng.Source) (t, sin float64)
}

// Randomize overwrites r with a randomized report of x; see [PrivUnit] for inputs
// outside the domain.
func (m *sphere) Randomize(src rng.Source, x []float32, r *Report) {
	checkInput(m.facts.Dim, x)
	checkReport(r, 0, m.facts.Dim)
	scratch := m.scratch.Get().(*privUnitScratch)
	defer m.scratch.Put(scratch)

	along, across := m.direction(src, &x, scratch)
	round(r.Value, x, scratch.z, along, across)
}

// direction draws the report except for its last step: the report is along·x + across·z,
// rounded, with z in the scratch. It replaces *x by a cleaned copy if *x is zero or not
// finite.
func (m *sphere) direction(src rng.Source, x *[]float32, scratch *privUnitScratch) (along, across float64) {
	s := m.noise(src, x, scratch)
	sign := m.sign(src, s.xx)
	t, sin := m.law.height(src)
	return combine(m.facts.Dim, s, sign*t, sin, privUnitUnit*length(src))
}

// noise draws z so that the direction of its part across x is uniform. It replaces *x like direction.
func (m *sphere) noise(src rng.Source, x *[]float32, scratch *privUnitScratch) (s sums) {
	for {
		s = scratch.noise(src, x)
		// This condition depends on the two sums and not on the direction of z's part across
		// u, so that direction stays uniform. It nearly always holds for d ≥ 20; it bounds
		// the relative errors of short z.
		across2 := s.zz - s.xz*s.xz/s.xx
		if m.facts.Dim == 1 || across2 >= s.zz/2 && s.zz >= float64(m.facts.Dim)/4 {
			return s
		}
	}
}

// noise fills z with normal values and returns the sums. It replaces *x by a cleaned copy if *x is
// zero or not finite.
func (s *privUnitScratch) noise(src rng.Source, x *[]float32) sums {
	out := gaussianSums(src, s.z, *x)
	if !(out.xx > 0 && out.xx <= math.MaxFloat64) {
		*x = s.clean(*x)
		out.xx, out.xz = products(*x, s.z)
	}
	return out
}

// AddSeveral adds the sum of count reports of x: see [Several]. Report i is R_i·(t_i·u + sin_i·w_i) with u the
// direction of x and the w_i independent and uniform on the unit sphere across u. The sum of the
// parts across u has a uniform direction too, which does not depend on its length, and
// the length is built up term by term: a uniform w has with any other vector across u the cosine of a uniform
// point of a sphere of d−1 dimensions.
func (m *sphere) AddSeveral(src rng.Source, sum []int64, x []float32, count int64) {
	checkInput(m.facts.Dim, x)
	checkSeveral(m.facts.Dim, sum, count)
	scratch := m.scratch.Get().(*privUnitScratch)
	defer m.scratch.Put(scratch)
	s := m.noise(src, &x, scratch)
	var t, square float64 // along u; squared length across it
	for range count {
		sign := m.sign(src, s.xx)
		h, sin := m.law.height(src)
		long := length(src)
		t += float64(long * sign * h)
		part := long * sin
		var cosine float64
		switch d := m.facts.Dim; {
		case d == 2:
			cosine = float64(int(src.Uint64()>>63)*2 - 1)
		case d > 2:
			cosine, _ = uniformHeight(src, d-1)
		}
		square += float64(part*part) + float64(2*math.Sqrt(square)*part*cosine)
		square = math.Max(0, square)
	}
	along, across := combine(m.facts.Dim, s, t, math.Sqrt(square), privUnitUnit)
	addRounded(sum, x, scratch.z, along, across, roundMagic)
}

// sign draws the sign of the direction of an input of squared length square.
func (m *base) sign(src rng.Source, square float64) float64 {
	if sample.Bernoulli(src, math.Min(1, (1+math.Sqrt(square)/m.radius)/2)) {
		return 1
	}
	return -1
}

// combine returns the factors of x and of z in the vector of length long whose direction has
// cosine t and sine sin with x, away from x towards z.
func combine(dim int, s sums, t, sin, long float64) (along, across float64) {
	size := math.Sqrt(s.xx) // ‖x‖
	if dim == 1 {
		return long * t / size, 0
	}
	component := s.xz / size // ⟨z, x/‖x‖⟩
	across = long * sin / math.Sqrt(s.zz-float64(component*component))
	along = (float64(long*t) - float64(across*component)) / size
	return along, across
}

// height draws t = ⟨v,u⟩ and √(1−t²). An exact coin chooses the side, then t comes from the
// law of a uniform v restricted to that side.
func (m *privUnit) height(src rng.Source) (t, sin float64) {
	inside := sample.Bernoulli(src, m.rare) == m.rareCap
	if m.facts.Dim == 1 {
		if inside {
			return 1, 0
		}
		return -1, 0
	}
	if inside && m.cap.mass < .25 {
		return m.cap.draw(src)
	}
	for {
		t, sin = uniformHeight(src, m.facts.Dim)
		if m.cap.contains(t, sin) == inside {
			return t, sin
		}
	}
}

// contains says whether the point with cosine t and sine sin lies in the cap. Near the pole,
// where the cosine is flat, it compares sines: an error of 2^−53 in the cosine would move the
// edge of a cap of angle φ by 2^−53/φ.
func (c *sphereCap) contains(t, sin float64) bool {
	if c.cos > .8 {
		return t > 0 && sin <= c.sin
	}
	return t >= c.cos
}

// draw draws from a small cap directly: w = sin² has density proportional to
// w^((d−3)/2)/√(1−w) below sin²φ. It draws w from the power law by inversion and accepts it
// with probability γ/t.
func (c *sphereCap) draw(src rng.Source) (t, sin float64) {
	for {
		logSin := -sample.Exponential(src) / float64(c.dim-1)
		sin = c.sin * math.Exp(logSin)
		// cos² = γ² + (sin²φ − sin²), without cancellation for small caps.
		t = math.Sqrt(c.cos*c.cos - c.sin*c.sin*math.Expm1(2*logSin))
		if sample.Exponential(src) >= math.Log(t/c.cos) {
			return t, sin
		}
	}
}

// uniformHeight draws one coordinate t of a uniform point on the unit sphere of
// R^d, d ≥ 2, with density proportional to (1−t²)^((d−3)/2), and √(1−t²).
func uniformHeight(src rng.Source, dim int) (t, sin float64) {
	if dim < 128 {
		// In few dimensions t may be so close to ±1 that the sine must not be computed from it. So
		// both come from the coordinates of a normal vector.
		for {
			first := sample.Normal(src)
			var rest float64
			for range dim - 1 {
				z := sample.Normal(src)
				rest += z * z
			}
			if all := first*first + rest; all >= float64(dim)/4 { // the same condition as in direction
				return first / math.Sqrt(all), math.Sqrt(rest / all)
			}
		}
	}
	// (1−t²)^a ≤ e^(−at²): reject from a normal of variance 1/(2a).
	a := float64(dim-3) / 2
	sigma := 1 / math.Sqrt(2*a)
	for {
		t := sigma * sample.Normal(src)
		if t*t < 1 && sample.Exponential(src) >= -a*(math.Log1p(-t*t)+t*t) {
			return t, math.Sqrt((1 - t) * (1 + t))
		}
	}
}

// length draws R, ln R having the Laplace law of scale 1/lengthRate. A value
// beyond lengthLimit has probability e^−480; it is drawn again.
func length(src rng.Source) float64 {
	for {
		x := sample.Exponential(src) / lengthRate
		if src.Uint64()>>63 == 0 {
			x = -x
		}
		if math.Abs(x) < .1177 { // ln 1.125 = .11778…
			return math.Exp(x)
		}
	}
}

// clean returns a finite vector, not zero, to use in place of an x that is zero or not finite.
func (s *privUnitScratch) clean(x []float32) []float32 {
	if s.x == nil {
		s.x = make([]float32, len(x))
	}
	sanitize(s.x, x)
	for _, v := range s.x {
		if v != 0 {
			return s.x
		}
	}
	// x counts as zero. The first axis stands in for it, so short that its sign is a fair coin.
	s.x[0] = 0x1p-149
	return s.x
}

// checkLength refuses a report that is longer than any honest one. Without it a client could
// count √d times.
func (m *sphere) checkLength(values []int32) error {
	var square uint64
	for _, v := range values {
		square += uint64(int64(v) * int64(v))
	}
	if float64(square) > m.longest*m.longest {
		return fmt.Errorf("randomizer: report of length %.6g must be at most %.6g", math.Sqrt(float64(square)), m.longest)
	}
	return nil
}

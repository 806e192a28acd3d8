package randomizer

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
)

// StepUnit names the ℓ₂ mechanism with J nested caps, for reports that a shuffler hides: at the
// same noise its reports hide each other better than [PrivUnit]'s, though its ε₀ is larger. The
// density of a report, with respect to that of pure noise, is proportional to
//
//	h(z) = 1 + w·#{j : z > z_j},   w = (E−1)/J,
//
// where z is the score √d⟨v,u⟩ of a vector v on the sphere, and u is the input's direction. The
// edges z_j are Config.Edges. With one edge it is PrivUnit with another cap.
//
// Inputs are treated as by PrivUnit, and so are the length and the grid of a report with
// encoding [Values]. Event then has PrivUnit's slack: privunit.md, section 8. A report with
// encoding [Seed] is described at [Keyed].
//
// The estimate is unbiased. With q_j the share of scores above edge j and φ the normal density
// the mean squared error over C² is about d·v, v = ((1 + wΣq_j)/(wΣφ(z_j)))², largest at x = 0.
//
// Source: several steps in place of one are ours. One step is Bhowmick et al., see PrivUnit.
const StepUnit = "stepunit"

const (
	// MaxSteps is the largest number of edges.
	MaxSteps = 16
	// MaxSeedEps0 bounds ε₀ of reports that are seeds: at 12 a client tries some 10,000.
	MaxSeedEps0 = 12
	// With defaultSteps steps the loss is within 5 % of the least that any number of steps
	// reaches at the same noise.
	defaultSteps = 3
)

// shape checks the fields that only PrivUnit and StepUnit take. It returns the configuration
// without Steps and Edges, and the edges.
func (c Config) shape(name string) (Config, []float64, error) {
	edges, steps, encoding := c.Edges, c.Steps, c.Encoding
	c.Edges, c.Steps, c.Encoding = nil, 0, ""
	if err := c.check(false); err != nil {
		return c, nil, err
	}
	most := MaxSteps
	if name == PrivUnit {
		most = 1
	}
	switch {
	case encoding != "" && encoding != Values && encoding != Seed:
		return c, nil, fmt.Errorf("randomizer: encoding %q must be %s or %s", encoding, Values, Seed)
	case encoding == Seed && c.Eps0 > MaxSeedEps0:
		return c, nil, fmt.Errorf("randomizer: eps0 = %v must be at most %d with encoding %s: a client would try too many", c.Eps0, MaxSeedEps0, Seed)
	case steps < 0 || steps > most:
		return c, nil, fmt.Errorf("randomizer: steps = %d of %q must lie between 1 and %d", steps, name, most)
	case len(edges) > most:
		return c, nil, fmt.Errorf("randomizer: edges %v of %q must be at most %d, not %d", edges, name, most, len(edges))
	case steps != 0 && len(edges) != 0 && steps != len(edges):
		return c, nil, fmt.Errorf("randomizer: steps = %d contradicts edges %v: each step has one", steps, edges)
	}
	for i, z := range edges {
		if !(z >= 0 && z <= 6) || i > 0 && z <= edges[i-1] {
			return c, nil, fmt.Errorf("randomizer: edges %v must rise from 0 at least to 6 at most", edges)
		}
	}
	c.Encoding = encoding
	if len(edges) == 0 && steps == 0 {
		steps = min(defaultSteps, most)
	}
	size := math.Sqrt(float64(c.Dim)) // the largest score of a vector on the sphere
	onSphere := name == StepUnit && encoding != Seed
	switch {
	case onSphere && len(edges) > 0 && edges[len(edges)-1] >= size:
		return c, nil, fmt.Errorf("randomizer: edges %v must be below sqrt(dim) = %.4g", edges, size)
	case len(edges) == 0 && (name == StepUnit || encoding == Seed):
		edges = bestEdges(name, steps, c.Eps0)
		if !onSphere {
			break
		}
		// In few dimensions fewer caps fit.
		if edges = slices.DeleteFunc(edges, func(z float64) bool { return z > .9*size }); len(edges) == 0 {
			edges = []float64{0}
		}
	}
	return c, edges, nil
}

// Edges returns the edges of [StepUnit], or of [PrivUnit] with encoding [Seed]: those of the
// configuration, or the best ones, rounded to a thousandth. Other randomizers have none.
func Edges(name string, c Config) ([]float64, error) {
	if k, err := KindOf(name); err != nil || !k.Seeds {
		return nil, err
	}
	_, edges, err := c.shape(name)
	return edges, err
}

// bestEdges returns the edges of PrivUnit (one) or StepUnit unless others are given. StepUnit's are
// [amplify.BestEdges]. PrivUnit's has the least error of an ε₀-LDP report, in many dimensions:
// z = E[z·h]/E[h].
func bestEdges(name string, steps int, eps0 float64) []float64 {
	if name == StepUnit {
		return amplify.BestEdges(steps, eps0)
	}
	less := math.Expm1(eps0)
	low, high := 0., 9.
	for range 60 {
		z := (low + high) / 2
		if z*(1+less*tail.UpperNormal(z)) < less*tail.NormalDensity(z) {
			low = z
		} else {
			high = z
		}
	}
	return []float64{math.Round(1000*high) / 1000}
}

func newStepUnit(c Config) (Randomizer, error) {
	c, edges, err := c.shape(StepUnit)
	switch {
	case err != nil:
		return nil, err
	case c.Encoding == Seed:
		return newSeeded(StepUnit, c, edges)
	}
	size := math.Sqrt(float64(c.Dim))
	m := &stepUnit{}
	for _, z := range edges {
		m.caps = append(m.caps, newSphereCap(c.Dim, math.Acos(z/size)))
	}
	if k := m.caps[len(m.caps)-1]; c.Dim > 1 && !(k.sin > 0 && k.mass > 0) {
		return nil, fmt.Errorf("randomizer: no cap found for dim = %d, edges = %v", c.Dim, edges)
	}
	m.law = m
	if err := m.make(StepUnit, c, m.mix(c)); err != nil {
		return nil, err
	}
	return m, nil
}

// stepUnit draws v as a mixture: uniform on the sphere, or uniform in one of the caps, each of
// which adds a step to the density.
type stepUnit struct {
	sphere
	caps []sphereCap // the largest first
	// rare is the less likely of "uniform on the sphere" and "in a cap"; rareCap says whether it
	// is the second. first[i] is the probability of cap i, given that it is none of the caps
	// before. All are float64s, taken as the exact numbers that they are.
	rare    float64
	rareCap bool
	first   []float64
	// weights are the probabilities that follow: of the sphere, and of each cap.
	weights []float64
}

// mix chooses the probabilities, stores them and the mean that follows, and returns what a report
// promises, with the slack of the arithmetic.
func (m *stepUnit) mix(c Config) dp.Report {
	height := math.Expm1(c.Eps0) / float64(len(m.caps))
	var steps float64
	for _, k := range m.caps {
		steps += height * k.mass
	}
	m.rareCap = steps < 1
	m.rare = math.Min(1, steps) / (1 + steps)
	whole, left := m.rare, 1-m.rare
	if m.rareCap {
		whole, left = left, whole
	}
	m.weights = append(m.weights, whole)
	rest := steps
	for i, k := range m.caps {
		part := 1.
		if i < len(m.caps)-1 {
			part = math.Min(1, height*k.mass/rest)
		}
		m.first = append(m.first, part)
		m.weights = append(m.weights, left*part)
		left *= 1 - part
		rest -= height * k.mass
	}
	// The densities as they are after rounding, not as intended.
	var above float64
	for i, k := range m.caps {
		above += m.weights[i+1] / whole * math.Exp(-k.logMass)
		m.mean += m.weights[i+1] * math.Exp(k.logFirst-k.logMass)
	}
	slack := privUnitSlack(c.Dim)
	eps0 := roundUp(math.Max(math.Log1p(above), c.Eps0) + slack)
	var shares []float64
	for _, k := range m.caps {
		shares = append(shares, k.mass)
	}
	// privunit.md, section 9: every report's probability is that of a law with exactly these
	// shares but for a factor of 1 ± κ, and η is so large that it covers this. The last terms
	// cover the rounding of weights and shares.
	kappa := math.Exp(eps0)*math.Expm1(slack) + 1e-9
	return stepsEvent(eps0, height, shares, kappa*(1+steps)/steps*(1+1e-6)+1e-10)
}

// stepsEvent is what a report promises whose density rises in steps of height; it promises ε₀
// alone if inputs may be so unequal, or edges so near each other, that no more is known of it.
func stepsEvent(eps0, height float64, shares []float64, eta float64) dp.Report {
	mean, falling := 0., true
	for i, q := range shares {
		mean += height * q
		falling = falling && (i == 0 || q < shares[i-1])
	}
	if gap := eta * mean; !(falling && eta < 1 && 2*gap < (1-shares[0]*(1+eta))/2 && gap/(1+mean) < shares[0]/3) {
		return dp.Report{Class: dp.Generic, Eps0: eps0}
	}
	return dp.Report{Class: dp.Rising, Eps0: eps0, Steps: dp.NewSteps(height, shares, eta)}
}

// height draws t = ⟨v,u⟩ and √(1−t²). Exact coins choose the part of the mixture, then t comes
// from the law of a uniform v in it.
func (m *stepUnit) height(src rng.Source) (t, sin float64) {
	if sample.Bernoulli(src, m.rare) != m.rareCap {
		if m.facts.Dim == 1 {
			return float64(int(src.Uint64()>>63)*2 - 1), 0
		}
		return uniformHeight(src, m.facts.Dim)
	}
	i := 0
	for i < len(m.caps)-1 && !sample.Bernoulli(src, m.first[i]) {
		i++
	}
	return m.caps[i].uniform(src)
}

// uniform draws the height of a uniform point of the cap.
func (c *sphereCap) uniform(src rng.Source) (t, sin float64) {
	switch {
	case c.dim == 1:
		return 1, 0
	case c.mass < .25:
		return c.draw(src)
	}
	for {
		if t, sin = uniformHeight(src, c.dim); c.contains(t, sin) {
			return t, sin
		}
	}
}

// MeanBound is that of [PrivUnit], with the law of the caps.
func (m *stepUnit) MeanBound(n int64) float64 {
	d := float64(m.facts.Dim)
	dense, square := m.weights[0], m.weights[0]/d
	for i := range m.caps {
		dense += m.weights[i+1] / m.caps[i].mass
		square += m.weights[i+1] * m.caps[i].reach() / d
	}
	return m.meanBound(n, dense, square)
}

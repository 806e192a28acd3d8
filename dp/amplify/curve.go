package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/monotone"
	"github.com/riffle-dp/riffle/internal/tail"
)

// roundConfig describes one round of k of n clients. All fields but Included are
// required.
type roundConfig struct {
	Eps0       float64
	Population int64   // n
	Reports    int64   // k ≤ n reports from a uniform subset of the clients
	Rate       float64 // of clones: Blanket(Eps0) or Clones(Eps0)
	Included   int64   // see FamilyRound
}

// maxReports keeps whole numbers exact as float64.
const maxReports = 1 << 52

func (c roundConfig) validate() error {
	if err := dp.CheckEps0(c.Eps0); err != nil {
		return err
	}
	if c.Population < 1 || c.Population > maxReports {
		return fmt.Errorf("amplify: n = %d must lie between 1 and 2^52", c.Population)
	}
	if c.Reports < 1 || c.Reports > c.Population {
		return fmt.Errorf("amplify: k = %d must lie between 1 and n = %d", c.Reports, c.Population)
	}
	if c.Included != 0 && (c.Included < c.Reports || c.Included > c.Population) {
		return fmt.Errorf("amplify: included = %d must lie between k = %d and n = %d", c.Included, c.Reports, c.Population)
	}
	if !(c.Rate > 0 && c.Rate <= 1) {
		return fmt.Errorf("amplify: rate = %v must be above 0 and at most 1", c.Rate)
	}
	return nil
}

func (c roundConfig) gamma() float64 {
	return float64(max(c.Reports, c.Included)) / float64(c.Population)
}

// Curve is δ(ε) of one round without merging losses, for replace-one adjacency. Make one with
// Family.Curve or GaussianConfig.Curve.
type Curve struct{ round oneRound }

// oneRound computes a Curve: for clones or for Gaussian reports.
type oneRound interface {
	delta(eps float64) float64
	epsilon(delta float64) float64 // for delta in (0, 1)
}

// Delta bounds δ at ε ≥ 0, and for clones at any real ε, rounded up; it is 1 at any other ε.
func (c Curve) Delta(eps float64) float64 { return c.round.delta(eps) }

// Epsilon returns an ε ≥ 0 with Delta(ε) ≤ delta, at most 1e-7 relative above the smallest.
func (c Curve) Epsilon(delta float64) (float64, error) {
	if err := dp.CheckDelta(delta); err != nil {
		return 0, err
	}
	return c.round.epsilon(delta), nil
}

// clonesCurve is the hockey-stick divergence of the clones pair, subsampled. Its cost does not
// grow with k. See curve.md.
type clonesCurve struct {
	config roundConfig
	gamma  float64
	blocks []block
	length int // number of the first blocks, which have consecutive falling numbers of clones
}

// block is one case of a round: with probability weight, clones is a lower bound on the number
// of clones.
type block struct {
	clones int64
	weight float64
}

// A round with at most curveRun likely numbers of clones distinguishes each of them. Otherwise
// they form about curveBlocks blocks of equal width, each counted as its smallest number.
const (
	curveRun    = 4096
	curveBlocks = 64
)

// Curve returns the curve of a round, for families of clones only. An upper bound, proved.
//
// Source: clones pair, blanket.md or Feldman, McMillan, Talwar 2022, Theorem 3.1; sampling by
// Balle, Barthe, Gaboardi 2018, Theorem 2, for ε ≥ 0 and hybrid.md for ε < 0. Slack: 1e-11
// relative to the tail at the threshold, and below 1e-4 of ε for blocks of clones.
func (f Family) Curve(r FamilyRound) (Curve, error) {
	if f.kind != clonesKind {
		return Curve{}, errNoFamily
	}
	c := r.config(f)
	if err := c.validate(); err != nil {
		return Curve{}, err
	}
	c.Rate = f.rate
	curve := &clonesCurve{config: c, gamma: c.gamma()}
	lo, hi := coreWindow(c.Reports-1, c.Rate)
	if hi-lo < curveRun {
		curve.blocks, curve.length = cloneBlocks(c.Reports-1, c.Rate, 1), int(hi-lo)+1
	} else {
		curve.blocks = cloneBlocks(c.Reports-1, c.Rate, (hi-lo)/curveBlocks+1)
	}
	return Curve{curve}, nil
}

func (c *clonesCurve) delta(eps float64) float64 {
	if math.IsNaN(eps) {
		return 1
	}
	if eps < 0 {
		// H(ε) = 1 − e^ε + e^ε H(−ε).
		return math.Min(1, -math.Expm1(eps)+math.Exp(eps)*c.delta(-eps))
	}
	base := math.Log1p(math.Expm1(eps) / c.gamma)
	return math.Min(1, c.gamma*c.shuffled(base)*(1+1e-12))
}

func (c *clonesCurve) epsilon(delta float64) float64 {
	// log δ is nearly straight in ε², so the search uses ε².
	square := func(y float64) float64 { return c.delta(math.Sqrt(y)) }
	top := SampledLoss(c.config.Eps0, c.gamma) * (1 + 1e-12)
	// With very many reports δ is nearly Gaussian, and most of [0, top] is far too large.
	spread := 2 * c.gamma / math.Sqrt(c.config.Rate*float64(c.config.Reports))
	guess := spread * (1 + math.Sqrt(2*math.Log(1/delta)))
	if guess < top && c.delta(guess) <= delta {
		top = guess
	}
	return math.Sqrt(monotone.Falling(square, delta, 0, top*top, 2e-7))
}

// shuffled returns δ(ε) of the clones pair without sampling, for ε ≥ 0, rounded up.
//
// With m = C+1, B = Bin(m−1, ½) and a the smallest first count of loss above ε,
//
//	δ_m(ε) = (E − e^ε)/(E+1)·Pr[B = a−1] − (e^ε − 1)·Pr[B ≥ a].
func (c *clonesCurve) shuffled(eps float64) float64 {
	eps0 := c.config.Eps0
	if eps >= eps0 {
		return 0
	}
	// All factors are divided by e^ε₀, so nothing overflows.
	shrink := math.Exp(-eps0)
	gain := -math.Expm1(eps-eps0) / (1 + shrink) // (E − e^ε)/(E + 1)
	cost := math.Expm1(eps)
	// The loss passes ε at the share (e^ε E − 1)/((E − 1)(1 + e^ε)) of m.
	share := -math.Expm1(-eps-eps0) / (-math.Expm1(-eps0) * (1 + math.Exp(-eps)))
	var sum, size float64
	add := func(weight, at, above float64) {
		g, l := gain*at, cost*above
		sum += weight * math.Max(0, g-l)
		size += weight * (g + l)
	}
	const fresh = 256
	var x int64
	var at, above float64 // Pr[B = x−1], Pr[B ≥ x] for B ~ Bin(clones, ½)
	for i, b := range c.blocks {
		n := b.clones
		want := min(n+1, int64(share*float64(n+1))+1)
		if i >= c.length || i%fresh == 0 || at < 1e-290 || above < 1e-290 {
			x = want
			at, above = math.Exp(tail.LogPMF(n, x-1, .5, .5)), tail.Survival(n, x, .5, .5)
		} else {
			// For one clone fewer, Pr[B ≥ x] loses half of Pr[B = x−1].
			at *= 2 * float64(n+1-(x-1)) / float64(n+1)
			above -= at / 2
			for x > want {
				above += at
				at *= float64(x-1) / float64(n-x+2)
				x--
			}
			if above < 1e-6*at { // too many digits were lost: start afresh
				above = tail.Survival(n, x, .5, .5)
			}
		}
		add(b.weight, at, above)
	}
	return sum + 1e-11*size + 1e-300
}

// coreWindow returns the range outside of which Bin(n, p) has at most 1e-17 on either side.
func coreWindow(n int64, p float64) (lo, hi int64) { return tail.Window(n, p, 1-p, 1e-17, 1e-17) }

// cloneBlocks covers Bin(n, p) from above: for each c, the weights of blocks with clones ≤ c
// add up to at least Pr[Bin(n, p) ≤ c]. Blocks fall. First comes the core in blocks of the
// given width; the mass above the core belongs to its first block. Then come ever wider
// blocks down to 0. Each of these has the weight of all values below its upper end, so their
// mass counts more than once.
func cloneBlocks(n int64, p float64, width int64) []block {
	lo, hi := coreWindow(n, p)
	var out []block
	if width <= 64 {
		sum, from := 0.0, lo
		tail.PMF(n, p, 1-p, lo, hi, func(k int64, mass float64) {
			sum += mass
			if k == hi {
				sum += tail.Survival(n, hi+1, p, 1-p)
			}
			if k == hi || k-from+1 == width {
				out = append(out, block{from, sum})
				from, sum = k+1, 0
			}
		})
	} else {
		for from := lo; from <= hi; from += width {
			out = append(out, block{from, between(n, p, 1-p, from, from+width)})
		}
		last := &out[len(out)-1]
		last.weight = tail.Survival(n, last.clones, p, 1-p)
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	const growth = 1.15
	mean := float64(n) * p
	for end := lo; end > 0; {
		next := max(0, min(end-1, int64(mean-(mean-float64(end))*growth)))
		weight := tail.Survival(n, n-end+1, 1-p, p) // Pr[C < end]
		if weight < 1e-290 {
			next, weight = 0, 1e-290
		}
		out = append(out, block{next, weight})
		end = next
	}
	return out
}

// between returns Pr[from ≤ Bin(n, p) < to], computed from whichever tails are small.
func between(n int64, p, q float64, from, to int64) float64 {
	if float64(from) > float64(n)*p {
		return tail.Survival(n, from, p, q) - tail.Survival(n, to, p, q)
	}
	return tail.Survival(n, n-to+1, q, p) - tail.Survival(n, n-from+1, q, p)
}

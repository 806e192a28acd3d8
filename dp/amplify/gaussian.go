package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// GaussianConfig describes a round of which only the sum is seen. Of n clients k report. Each
// of them clips its vector to ℓ2 norm 1 and adds N(0, Sigma²) to every coordinate. All fields
// but Included are required.
type GaussianConfig struct {
	Sigma      float64 // of one report, in units of the clip norm
	Population int64   // n
	Reports    int64   // k ≤ n honest reports, whose noise adds up
	Included   int64   // size of a uniform subset of n that includes the reports, at least k; 0: Reports
	// Apart says whether reports are seen one by one, shuffled or not. If so, a client is hidden
	// only by its own noise and by sampling.
	Apart bool
}

func (c GaussianConfig) validate() error {
	if err := dp.CheckSigma(c.Sigma); err != nil {
		return err
	}
	if c.Population < 1 || c.Population > 1<<52 {
		return fmt.Errorf("amplify: n = %d must lie between 1 and 2^52", c.Population)
	}
	if c.Reports < 1 || c.Reports > c.Population {
		return fmt.Errorf("amplify: k = %d must lie between 1 and n = %d", c.Reports, c.Population)
	}
	if c.Included != 0 && (c.Included < c.Reports || c.Included > c.Population) {
		return fmt.Errorf("amplify: %d included must lie between k = %d and n = %d", c.Included, c.Reports, c.Population)
	}
	return nil
}

// Inclusion returns a client's chance to be in the round, or names the first value out of
// range.
func (c GaussianConfig) Inclusion() (float64, error) {
	return float64(max(c.Included, c.Reports)) / float64(c.Population), c.validate()
}

// GaussianMu returns 2/(σ√k), rounded up: the GDP parameter of the sum of k reports when one
// client's vector is replaced, because the sum moves by at most 2 and carries N(0, kσ²).
// Source: SCI (see package literature), proof of Theorem 4.
func GaussianMu(sigma float64, k int64) gdp.Mu {
	return gdp.Mu(2 / (sigma * math.Sqrt(float64(k))) * (1 + 4*0x1p-53))
}

// Gaussian returns a pair that dominates a round of k of n clients of which the sum is seen,
// replace-one adjacency, every real ε. The pair is N(μ, 1) against N(0, 1) with μ = 2/(σ√k),
// sampled. Its continuum of losses is split between nodes so that mass is kept under both
// laws (gaussian.md). Mass beyond 37 deviations, 6e-300, or where Q or e^loss leaves
// float64's range, is a remainder of unbounded loss.
//
// Slack: 7e-5 of the variance of the loss, so 4e-5 of ε. Time 0.2 ms.
// Source: SCI, proof of Theorem 4; sampling as in Family.Round.
func Gaussian(c GaussianConfig) (dp.Pair, error) {
	gamma, err := c.Inclusion()
	if err != nil {
		return dp.Pair{}, err
	}
	b := spanned{c.Reports, max(c.Included, c.Reports), 1}
	if c.Apart {
		b.First = 1
	}
	return gaussianMixture([]spanned{b}, c.Sigma, c.Population, b.First, gamma, false)
}

// GaussianArrivalConfig describes a round whose number of reports is random and public: k ~
// Bin(Asked, Gamma). All fields are required, but those that say otherwise.
type GaussianArrivalConfig struct {
	Sigma      float64
	Population int64   // n
	Asked      int64   // clients who may report, a uniform subset of the n
	Gamma      float64 // the probability with which each of them reports, on its own coin
	Apart      bool    // see GaussianConfig; optional
	Colluders  int64   // see FamilyArrival; optional. Their noise is known
	Rough      bool    // a coarser pair, as of Family.Rough; optional
}

// arrival describes who reports.
func (c GaussianArrivalConfig) arrival() FamilyArrival {
	return FamilyArrival{Population: c.Population, Asked: c.Asked, Gamma: c.Gamma, Colluders: c.Colluders}
}

// GaussianArrival is Gaussian for a random k: the mixture over k of rounds with inclusion
// k/n; k = 0 has no loss. Blocks of k take the noise of their smallest value and the
// inclusion of their largest. A report that drops out takes its noise with it. With colluders k
// counts the honest reports, and n the honest clients. The pair is valid if k is hidden, too.
// Time 0.1 s.
//
// Source: SCI, Theorems 1 and 4 with k/n in place of γ; hybrid.md, colluders.md.
func GaussianArrival(c GaussianArrivalConfig) (dp.Pair, error) {
	if err := (GaussianConfig{Sigma: c.Sigma, Population: c.Population, Reports: c.Asked}).validate(); err != nil {
		return dp.Pair{}, err
	}
	a := c.arrival()
	if err := a.checkChance(); err != nil {
		return dp.Pair{}, err
	}
	var blocks []spanned
	g := fine
	if c.Rough {
		g = rough
	}
	for _, k := range a.spans(blockWidth(arrivalError * g.blocks)) {
		if k.Last > 0 { // no reports: loss 0
			k.First = max(1, k.First)
			if c.Apart {
				k.First = 1
			}
			blocks = append(blocks, k)
		}
	}
	mean, honest := math.Max(1, a.mean()), c.Population-c.Colluders
	k := int64(mean)
	if c.Apart {
		k = 1
	}
	return gaussianMixture(blocks, c.Sigma, honest, k, mean/float64(honest), c.Rough)
}

// gaussianCurve is the Curve of a sum of Gaussian reports.
type gaussianCurve struct {
	mu    gdp.Mu
	gamma float64
}

// Curve returns the curve of a round of a fixed k, in closed form: an upper bound within
// 1e-11. Source: Balle, Barthe, Gaboardi 2018, Theorem 2, applied to the curve of package gdp.
func (c GaussianConfig) Curve() (Curve, error) {
	k := c.Reports
	if c.Apart {
		k = 1
	}
	gamma, err := c.Inclusion()
	return Curve{gaussianCurve{GaussianMu(c.Sigma, k), gamma}}, err
}

func (c gaussianCurve) delta(eps float64) float64 {
	if !(eps >= 0) {
		return 1
	}
	// ε is rounded down slightly to cover the rounding of its image.
	return math.Min(1, c.gamma*c.mu.Delta(unsampledLoss(eps, c.gamma)*(1-1e-15))*(1+1e-15))
}

func (c gaussianCurve) epsilon(delta float64) float64 {
	share := delta / c.gamma * (1 - 1e-15)
	if share >= 1 {
		return 0
	}
	return SampledLoss(c.mu.Epsilon(share), c.gamma) * (1 + 1e-15)
}

// Distances of nodes, in deviations of the loss.
const (
	gaussianStep = 1. / 50 // up to gaussianCore beyond the mean under P
	gaussianCore = 9.
	gaussianFar  = 1. / 20 // from there to the end
)

// gaussianRare is the weight below which a block of k uses only every fourth node.
const gaussianRare = 1e-5

// gaussianEnd returns the largest x for which losses μx are distinguished, x ~ N(±μ/2, 1): up
// to it Q and e^loss, also tilted, are within float64's range.
func gaussianEnd(mu float64) float64 {
	return math.Min(500/mu, math.Min(37+mu/2, 37.5-mu/2))
}

// gaussianMixture returns the pair of a mixture of rounds, on nodes that suit k reports at
// inclusion gamma.
func gaussianMixture(blocks []spanned, sigma float64, population, k int64, gamma float64, rough bool) (dp.Pair, error) {
	mu := float64(GaussianMu(sigma, k))
	nodes := []float64{0}
	end, core := gaussianEnd(mu), mu/2+gaussianCore
	for x := gaussianStep; x < end; {
		nodes = append(nodes, SampledLoss(mu*x, gamma))
		if x < core {
			x += gaussianStep
		} else {
			x += gaussianFar
		}
	}
	if end > 0 {
		nodes = append(nodes, SampledLoss(mu*end, gamma))
	}
	// Fewer reports have larger losses.
	for _, b := range blocks {
		m := float64(GaussianMu(sigma, b.First))
		if end := gaussianEnd(m); end > 0 {
			most := SampledLoss(m*end, float64(b.Last)/float64(population))
			for last := nodes[len(nodes)-1]; last > 0 && last < most; last = nodes[len(nodes)-1] {
				nodes = append(nodes, math.Min(most, last*nodeGrowth))
			}
		}
	}
	mass := make([]float64, len(nodes))
	var pair dp.Pair
	for _, b := range blocks {
		stride := 1
		if b.Weight < gaussianRare || rough {
			stride = 4
		}
		left := gaussianSplit(mass, nodes, stride, float64(GaussianMu(sigma, b.First)), float64(b.Last)/float64(population), b.Weight)
		pair.Remainders = append(pair.Remainders, dp.Remainder{Mass: left, MaxLoss: math.Inf(1)})
	}
	pair.Remainders = []dp.Remainder{{Mass: pair.Dropped() * (1 + 1e-9), MaxLoss: math.Inf(1)}}
	for i, q := range mass {
		if i > 0 && q > 0 {
			// Rounding must not lose mass; node 0 takes the rest.
			pair.Atoms = append(pair.Atoms, dp.Atom{Q: q * (1 + 1e-11), Loss: nodes[i]})
		}
	}
	if d := pair.Dropped(); !(d < 1e-3) {
		return dp.Pair{}, fmt.Errorf("amplify: at sigma = %v losses of mass %.3g are too large to tell apart: %w", sigma, d, dp.ErrNoBound)
	}
	return pair, nil
}

// gaussianSplit adds the losses log(1 + γ(e^{μx} − 1)), x > 0, to every stride-th node; it
// splits each cell's mass between the cell's two ends. It returns the mass, of both signs, of
// the losses beyond the last node or out of float64's range.
func gaussianSplit(mass, nodes []float64, stride int, mu, gamma, weight float64) float64 {
	end := gaussianEnd(mu)
	a, at := 0., 0 // the cell's start and its node
	for i := stride; i < len(nodes) && a < end; i += stride {
		b := unsampledLoss(nodes[i], gamma) / mu
		if b > end {
			break
		}
		if !(b > a) {
			continue // the nodes are closer than float64 can tell apart
		}
		q, rise := gaussianCell(mu, a, b)
		// Under P the cell weighs q·e^{μa} + rise·e^{μa}. The factor covers the errors of the
		// ends' losses and of the integrals.
		up := math.Min(1, rise/(q*math.Expm1(mu*(b-a)))*(1+1e-10))
		if !(weight*q*up >= 1e-300) {
			break // Q leaves float64's range but P may not: a remainder
		}
		if q > 0 {
			mass[i] += weight * q * up
			mass[at] += weight * q * (1 - up)
		}
		a, at = b, i
	}
	p, q := tail.UpperNormal(a-mu/2), tail.UpperNormal(a+mu/2)
	return weight * ((1-gamma)*q + gamma*p + q)
}

// unsampledLoss inverts SampledLoss: log(1 + (e^ℓ − 1)/γ).
func unsampledLoss(loss, gamma float64) float64 {
	if loss > 500 {
		return loss - math.Log(gamma) + math.Log1p(-(1-gamma)*math.Exp(-loss))
	}
	return math.Log1p(math.Expm1(loss) / gamma)
}

// gaussianCell returns, for x ~ N(−μ/2, 1), the mass of a ≤ x ≤ b and the
// integral of e^{μ(x−a)} − 1 over it. Relative error 1e-12: six Gauss nodes on
// panels on which the logarithm of either integrand moves by at most 2.
func gaussianCell(mu, a, b float64) (q, rise float64) {
	panels := math.Ceil((b - a) * (math.Abs(a) + 1.5*mu + 4) / 2)
	h := (b - a) / (2 * panels)
	for i := range int(panels) {
		mid := a + float64(2*i+1)*h
		for _, g := range tail.Gauss6 {
			for _, x := range [2]float64{mid - g[0]*h, mid + g[0]*h} {
				y := x + mu/2
				d := g[1] * math.Exp(-y*y/2)
				q += d
				rise += d * math.Expm1(mu*(x-a))
			}
		}
	}
	h *= 0.39894228040143267794 // 1/√(2π)
	return q * h, rise * h
}

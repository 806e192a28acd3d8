package amplify

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/tail"
)

// removal is the pair of [Removal].
type removal struct {
	q, ratio []float64 // q: masses Q without the client; ratio: P/Q − 1, P being the masses with it
	dropped  float64
}

// maxRemovalSizes bounds the number of values of k, which take some 0.2 ms each.
const maxRemovalSizes = 1 << 12

// Removal returns the Rényi curve of a round of self check-in of which the sum of Gaussian
// reports is seen, under add/remove adjacency: one of n clients is present or not. The two
// worlds form a pair that is not symmetric, so it has a Rényi curve only.
//
// drop is the mass that may be left out on either side of k, together with the round of all n
// clients, which only one world has. dropped is the mass left out in total, under either law.
//
// Needs Asked = Population, Gamma < 1, nγ up to about 5e4, and reports that are summed, not
// apart; k may be public. Proved in removal.md, which also says why the number of reports
// need not be hidden, and could not be.
func Removal(c GaussianArrivalConfig, drop float64) (curve rdp.Curve, dropped float64, err error) {
	if err := (GaussianConfig{Sigma: c.Sigma, Population: c.Population, Reports: c.Asked}).validate(); err != nil {
		return nil, 0, err
	}
	n, gamma := c.Population, c.Gamma
	switch {
	case !(gamma > 0 && gamma <= 1) || !(drop > 0 && drop < 1):
		return nil, 0, fmt.Errorf("amplify: gamma = %v must lie in (0, 1] and drop = %v in (0, 1)", gamma, drop)
	case gamma == 1 || n < 2 || c.Apart || c.Asked != n:
		return nil, 0, fmt.Errorf("amplify: removing a client is counted for sums and check-in on own coins by at least 2 clients: %w", dp.ErrNoBound)
	}
	if gamma < leastRemovalRate {
		return nil, 0, fmt.Errorf("amplify: gamma = %v must be at least %v to tell ratios apart: %w", gamma, leastRemovalRate, dp.ErrNoBound)
	}
	// This is the window for the others; with the client, k is larger by at most one.
	lo, hi := tail.Window(n-1, gamma, 1-gamma, drop, drop)
	hi = min(n-1, hi+1)
	if hi-lo > maxRemovalSizes {
		return nil, 0, fmt.Errorf("amplify: %d values of k take too long, at most %d: %w", hi-lo, maxRemovalSizes, dp.ErrNoBound)
	}
	r := &removal{dropped: 2*drop + math.Exp(float64(n)*math.Log(gamma))*(1+1e-9)}
	nodes := removalNodes(c, lo, hi)
	mass := make([]float64, len(nodes))
	tail.PMF(n-1, gamma, 1-gamma, lo, hi, func(k int64, w float64) {
		if k == 0 {
			mass[0] += w
			return
		}
		rise := float64(k) * (1 - gamma) / (float64(n-k) * gamma) // ratio of the probabilities of k with and without the client
		r.dropped += r.split(mass, nodes, float64(GaussianMu(c.Sigma, k)), gamma, rise, w)
	})
	for i, q := range mass {
		if q > 0 {
			r.q, r.ratio = append(r.q, q), append(r.ratio, nodes[i])
		}
	}
	r.dropped *= 1 + 1e-9
	return r.divergence, r.dropped, nil
}

// leastRemovalRate keeps the nodes, multiples of γ down to a thousandth, normal
// floating-point numbers.
const leastRemovalRate = 1e-300

// removalNodes returns values of P/Q − 1, from −γ to beyond those of every k.
func removalNodes(c GaussianArrivalConfig, lo, hi int64) []float64 {
	mean := max(1, int64(c.Gamma*float64(c.Population)))
	mu := float64(GaussianMu(c.Sigma, mean))
	end := math.Min(removalDepth+mu/2, 300/mu)
	nodes := []float64{-c.Gamma}
	for y := -end; y < end; {
		nodes = append(nodes, c.Gamma*math.Expm1(mu*y))
		if math.Abs(y) < mu/2+gaussianCore {
			y += gaussianStep
		} else {
			y += gaussianFar
		}
	}
	for k := max(1, lo); k <= hi; k++ {
		m := float64(GaussianMu(c.Sigma, k))
		rise := float64(k) * (1 - c.Gamma) / (float64(c.Population-k) * c.Gamma)
		most := c.Gamma * math.Expm1(math.Log(rise)+m*math.Min(removalDepth+m/2, 300/m))
		for last := nodes[len(nodes)-1]; last < most; last = nodes[len(nodes)-1] {
			nodes = append(nodes, math.Max(last, 1e-3*c.Gamma)*nodeGrowth)
		}
		if nodes[len(nodes)-1] > 1e290 {
			break
		}
	}
	return nodes
}

// removalDepth is the number of deviations of the sum that are distinguished; the mass beyond
// them is 8e-45.
const removalDepth = 14

// split puts the outcomes of one k, of mass w, on the nodes: P/Q = 1 − γ + γ·rise·e^{μy} with
// y ~ N(−μ/2, 1) under Q. It returns the mass that it leaves out, under the larger of the two
// laws.
func (r *removal) split(mass, nodes []float64, mu, gamma, rise, w float64) float64 {
	end := math.Min(removalDepth+mu/2, 300/mu)
	at := func(ratio float64) float64 { // the y of a node
		return math.Log((ratio/gamma+1)/rise) / mu
	}
	a := math.Inf(-1)
	for i := 1; i < len(nodes); i++ {
		b := at(nodes[i])
		if !(b > a) || b < -end-1 {
			continue // the first cell begins at −∞
		}
		if b > end+1 {
			break
		}
		var q, up float64
		if math.IsInf(a, -1) {
			// P/Q − 1 + γ is proportional to e^{μy}; this is its mean over y < b.
			q = tail.UpperNormal(-b - mu/2)
			up = tail.UpperNormal(-b+mu/2) / (q * math.Exp(mu*b))
			mass[0] += w * q * (1 - math.Min(1, up))
		} else {
			var above float64
			q, above = gaussianCell(mu, a, b)
			up = above / (q * math.Expm1(mu*(b-a)))
			mass[i-1] += w * q * (1 - math.Min(1, up))
		}
		if q > 0 {
			mass[i] += w * q * math.Min(1, up)
		}
		a = b
	}
	if math.IsInf(a, -1) {
		return w * math.Max(1, 1-gamma+gamma*rise)
	}
	p, q := tail.UpperNormal(a-mu/2), tail.UpperNormal(a+mu/2)
	return w * math.Max(q, (1-gamma)*q+gamma*rise*p)
}

// divergence returns an upper bound on the Rényi divergence of real order λ > 1 of either
// world from the other, in nats, over the outcomes that were not dropped; +Inf for λ ≤ 1.
// Time O(nodes).
func (r *removal) divergence(order float64) float64 {
	if !(order > 1) {
		return math.Inf(1)
	}
	// Σ q·u^s over u = P/Q is at most 1 + |s|·dropped + Σ q(u^s − 1 − s(u − 1)), a sum of
	// positive terms; s is λ for P from Q, and 1 − λ for Q from P.
	worst := 0.
	for _, s := range [2]float64{order, 1 - order} {
		sum := math.Abs(s) * r.dropped
		for i, q := range r.q {
			sum += q * rdp.PowerExcess(r.ratio[i], s)
		}
		worst = math.Max(worst, math.Log1p(sum*(1+1e-8))/(order-1))
	}
	if math.IsNaN(worst) {
		return math.Inf(1)
	}
	return worst
}

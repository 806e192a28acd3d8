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
	dropped  float64   // mass left out under either law, at most
	// missing is the mass left out under Q, and under P.
	missing [2]float64
}

// leave notes that outcomes of mass q under Q and p under P are left out.
func (r *removal) leave(q, p float64) {
	r.dropped += math.Max(q, p)
	r.missing[0] += q
	r.missing[1] += p
}

// maxRemovalSizes bounds the number of values of k, which take some 0.2 ms each.
const maxRemovalSizes = 1 << 12

// Removal returns the Rényi curve of a round of self check-in of which the sum of Gaussian
// reports is seen, under add/remove adjacency: one of n clients is present or not. The two
// worlds form a pair that is not symmetric; [RemovalPairs] has it.
//
// drop is the mass that may be left out on either side of k, together with the round of all n
// clients, which only one world has. dropped is the mass left out in total, under either law.
//
// Needs Asked = Population, Gamma < 1, nγ up to about 5e4, and reports that are summed, not
// apart; k may be public. Proved in removal.md, which also says why the number of reports
// need not be hidden, and could not be.
func Removal(c GaussianArrivalConfig, drop float64) (curve rdp.Curve, dropped float64, err error) {
	r, err := newRemoval(c, drop, 1)
	if err != nil {
		return nil, 0, err
	}
	return r.divergence, r.dropped, nil
}

// RemovalPairs returns the pairs of the same round: of the world with the client from the world without
// it, and the other way round. Each dominates its order for every real ε (removal.md); a composition is
// charged the larger of the two. drop and what is needed are as for Removal.
//
// Slack: 7e-5 of the variance of the loss. Time 0.2 ms for each value of k.
func RemovalPairs(c GaussianArrivalConfig, drop float64) (present, absent dp.Directed, err error) {
	r, err := newRemoval(c, drop, 1+1e-10)
	if err != nil {
		return present, absent, err
	}
	present.Dropped, present.Missing = r.dropped, r.missing[0]
	for i, q := range r.q {
		if loss := math.Log1p(r.ratio[i]); loss != 0 {
			present.Atoms = append(present.Atoms, dp.Atom{Q: q * (1 + 1e-11), Loss: loss})
		}
	}
	if r, err = newRemoval(c, drop, 1-1e-10); err != nil {
		return present, absent, err
	}
	absent.Dropped, absent.Missing = r.dropped, r.missing[1]
	for i, q := range r.q {
		if loss := math.Log1p(r.ratio[i]); loss != 0 {
			absent.Atoms = append(absent.Atoms, dp.Atom{Q: q * (1 + r.ratio[i]) * (1 + 1e-11), Loss: -loss})
		}
	}
	return present, absent, nil
}

// newRemoval computes the pair of Removal. lean is a factor next to 1 on the shares of cells that go to
// the larger ratio, for the error of these shares: above 1 it can only raise divergences of the world with the
// client, below 1 those of the world without it.
func newRemoval(c GaussianArrivalConfig, drop, lean float64) (*removal, error) {
	if err := (GaussianConfig{Sigma: c.Sigma, Population: c.Population, Reports: c.Asked}).validate(); err != nil {
		return nil, err
	}
	n, gamma := c.Population, c.Gamma
	switch {
	case !(gamma > 0 && gamma <= 1) || !(drop > 0 && drop < 1):
		return nil, fmt.Errorf("amplify: gamma = %v must lie in (0, 1] and drop = %v in (0, 1)", gamma, drop)
	case gamma == 1 || n < 2 || c.Apart || c.Asked != n || c.Colluders != 0:
		return nil, fmt.Errorf("amplify: removing a client is counted for sums and check-in on own coins by at least 2 clients: %w", dp.ErrNoBound)
	}
	if gamma < leastRemovalRate {
		return nil, fmt.Errorf("amplify: gamma = %v must be at least %v to tell ratios apart: %w", gamma, leastRemovalRate, dp.ErrNoBound)
	}
	// This is the window for the others; with the client, k is larger by at most one.
	lo, hi := tail.Window(n-1, gamma, 1-gamma, drop, drop)
	hi = min(n-1, hi+1)
	if hi-lo > maxRemovalSizes {
		return nil, fmt.Errorf("amplify: %d values of k take too long, at most %d: %w", hi-lo, maxRemovalSizes, dp.ErrNoBound)
	}
	r := &removal{}
	r.leave(2*drop, 2*drop+math.Exp(float64(n)*math.Log(gamma))*(1+1e-9))
	nodes := removalNodes(c, lo, hi)
	mass := make([]float64, len(nodes))
	tail.PMF(n-1, gamma, 1-gamma, lo, hi, func(k int64, w float64) {
		if k == 0 {
			mass[0] += w
			return
		}
		rise := float64(k) * (1 - gamma) / (float64(n-k) * gamma) // ratio of the probabilities of k with and without the client
		r.split(mass, nodes, float64(GaussianMu(c.Sigma, k)), gamma, rise, w, lean)
	})
	var without, with float64
	for i, q := range mass {
		if q != 0 { // not a NaN either
			r.q, r.ratio = append(r.q, q), append(r.ratio, nodes[i])
		}
		without += q
		with += q * (1 + nodes[i])
	}
	for _, m := range []*float64{&r.dropped, &r.missing[0], &r.missing[1]} {
		*m *= 1 + 1e-9
	}
	// Mass that was lost on the way would count as no loss.
	if least := 1 - r.dropped - 1e-9; !(without >= least && with >= least) || !(without < 1+1e-9 && with < 1+1e-6) {
		return nil, fmt.Errorf("amplify: outcomes of mass %v without the client and %v with it, and %v left out, are not all: %w", without, with, r.dropped, dp.ErrNoBound)
	}
	return r, nil
}

// leastRemovalRate keeps the nodes, multiples of γ down to a thousandth, normal
// floating-point numbers.
const leastRemovalRate = 1e-300

// removalNodes returns values of P/Q − 1, from −γ to beyond those of every k. They are dense where those of a
// usual k and sum are: log(1 + (P/Q − 1)/γ) has about the variance μ² of a sum's and that of log k.
func removalNodes(c GaussianArrivalConfig, lo, hi int64) []float64 {
	mean := max(1, int64(c.Gamma*float64(c.Population)))
	mu := math.Hypot(float64(GaussianMu(c.Sigma, mean)), math.Sqrt((1-c.Gamma)/float64(mean)))
	end := math.Min(removalDepth+mu/2, 300/mu)
	nodes := []float64{-c.Gamma}
	// The values of the fewest clients. What is a thousandth of the usual is next to −γ.
	for x := max(-7, removalRise(c, max(1, lo))-2*end*mu); x < -end*mu; x += .05 {
		nodes = append(nodes, c.Gamma*math.Expm1(x))
	}
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
		most := c.Gamma * math.Expm1(removalRise(c, k)+m*math.Min(removalDepth+m/2, 300/m))
		for last := nodes[len(nodes)-1]; last < most; last = nodes[len(nodes)-1] {
			nodes = append(nodes, math.Max(last, 1e-3*c.Gamma)*nodeGrowth)
		}
		if nodes[len(nodes)-1] > 1e290 {
			break
		}
	}
	return nodes
}

// removalRise is the logarithm of the ratio of the probabilities of k with the client reporting and without it.
func removalRise(c GaussianArrivalConfig, k int64) float64 {
	return math.Log(float64(k) * (1 - c.Gamma) / (float64(c.Population-k) * c.Gamma))
}

// removalDepth is the number of deviations of the sum that are distinguished; the mass beyond
// them is 8e-45.
const removalDepth = 14

// split puts the outcomes of one k, of mass w, on the nodes: P/Q = 1 − γ + γ·rise·e^{μy} with
// y ~ N(−μ/2, 1) under Q.
func (r *removal) split(mass, nodes []float64, mu, gamma, rise, w, lean float64) {
	// Outcomes from low to high are distinguished. What is below low is next to nothing; beyond high there is
	// hardly any, or e^{μy} is too large.
	low, high := -mu/2-removalDepth-1, math.Min(removalDepth+mu/2, 300/mu)+1
	leave := func(q, p float64) { r.leave(w*q, w*((1-gamma)*q+gamma*rise*p)) }
	below := true                      // outcomes below low are not on nodes
	reached, from := low, math.Inf(-1) // up to where outcomes are on nodes; log e^{μy} of the node below it
	for i := 1; i < len(nodes) && reached < high; i++ {
		to := math.Log((nodes[i]/gamma + 1) / rise)
		b := to / mu
		if !(to > from) {
			continue // the nodes are closer than float64 can tell apart
		}
		if b <= low {
			from = to
			continue
		}
		if i == 1 {
			below = false
		}
		b = math.Min(b, high)
		var q, up float64
		if math.IsInf(from, -1) {
			// P/Q − 1 + γ is proportional to e^{μy}; this is its mean over y < b.
			q = tail.UpperNormal(-b - mu/2)
			up = lean * tail.UpperNormal(-b+mu/2) / (q * math.Exp(to))
		} else {
			var above float64
			q, above = gaussianCell(mu, reached, b)
			if !(q > 1e-300) && reached > -mu/2 {
				break // Q leaves float64's range: the rest is left out
			}
			// From the integral of e^{μ(y−reached)} − 1 to that of e^{μy − from} − 1.
			ahead := 0.
			if reached == low {
				ahead = math.Max(0, mu*low-from)
			}
			up = lean * (math.Exp(ahead)*above + math.Expm1(ahead)*q) / (q * math.Expm1(to-from))
		}
		if q > 0 {
			up = math.Max(0, math.Min(1, up))
			mass[i-1] += w * q * (1 - up)
			mass[i] += w * q * up
		}
		reached, from = b, to
	}
	if below {
		leave(tail.UpperNormal(-low-mu/2), tail.UpperNormal(-low+mu/2))
	}
	leave(tail.UpperNormal(reached+mu/2), tail.UpperNormal(reached-mu/2))
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

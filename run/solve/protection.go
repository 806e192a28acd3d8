package solve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/dp/rdp"
	"github.com/riffle-dp/riffle/internal/monotone"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// protection is what a trust mode does to gradients: it releases noisy means of
// clipped ones. Its methods but prepare are safe for concurrent use.
type protection interface {
	// noise is what a plan may count on.
	noise() optimize.Noise
	// prepare fits the noise to the plan and bounds the cost of the whole
	// run, replace one client, from the noise that release will draw.
	prepare(*optimize.Plan) (eps, delta float64, err error)
	// open returns an empty sum for a part of a batch.
	open(rng.Source, batch) (sum, error)
	// release closes the sum of a whole batch and writes its noisy mean.
	release(rng.Source, batch, sum, []float64) error
}

// batch is a round as a protection sees it.
type batch struct {
	stage   int
	clients int64
	sigma   float64 // planned, of the mean
}

// sum adds up a part of a batch. Its inputs have a norm of at most Config.Clip.
type sum interface {
	add(rng.Source, []float32) error
	merge(sum) error
}

// checkProtection says whether the trust, who adds the noise and the method go together. It needs no data.
func checkProtection(c Config, method optimize.Method) error {
	if !c.Trust.Is(dp.Known) {
		return fmt.Errorf("solve: trust %q must be one of %s", c.Trust, strings.Join(dp.TrustNames(dp.Known), ", "))
	}
	if method.Name == "pan-private" && c.Trust.Is(dp.Protecting|dp.Uncurated) {
		return fmt.Errorf("solve: optimizer pan-private hides an aggregator's memory, and with trust %s that holds nothing but protected reports: central or none", c.Trust)
	}
	who, _ := c.Trust.Defaults()
	switch byAggregators := c.NoiseBy == vecsum.ByAggregators; {
	case c.NoiseBy != "" && c.NoiseBy != vecsum.ByClients && !byAggregators:
		return fmt.Errorf("solve: noise-by %q must be %s or %s", c.NoiseBy, vecsum.ByClients, vecsum.ByAggregators)
	case byAggregators && !c.Trust.Is(dp.SumsOnly):
		return fmt.Errorf("solve: noise-by %s goes with sums, trust %s, not %s", c.NoiseBy, dp.AnyTrust(dp.SumsOnly), c.Trust)
	case c.Trust.Is(dp.SumsOnly) && who == dp.CheckIn && method.Participation == dp.All:
		return fmt.Errorf("solve: optimizer %s asks every client in every round: there are no coins to check in by, as trust distributed has; trust vector-sum", method.Name)
	}
	return nil
}

// newProtection returns the protection of a configuration that checkProtection allowed.
func newProtection(ctx context.Context, c Config, method optimize.Method, dim int) (protection, error) {
	who, _ := c.Trust.Defaults()
	if c.NoiseBy == vecsum.ByAggregators && who != dp.CheckIn {
		mu, err := gaussianBudget(c, vecsum.TailShare)
		if err != nil {
			return nil, err
		}
		return &aggregatedSum{config: c, dim: dim, mu: mu}, nil
	}
	switch {
	case !c.Trust.Is(dp.Protecting):
		return exact{dim: dim}, nil
	case c.Trust.Is(dp.LocallyPrivate):
		return &reports{ctx: ctx, config: c, dim: dim}, nil
	case c.Trust.Is(dp.SumsOnly) && who == dp.CheckIn:
		return &checkIn{ctx: ctx, vectorSum: vectorSum{config: c, dim: dim}}, nil
	case c.Trust.Is(dp.SumsOnly):
		mu, err := gaussianBudget(c, 1e-3)
		if err != nil {
			return nil, err
		}
		return &vectorSum{config: c, dim: dim, mu: mu}, nil
	}
	if method.Name == "pan-private" {
		return newStream(c, dim)
	}
	mu, err := gaussianBudget(c, 0)
	if err != nil {
		return nil, err
	}
	return &curator{exact{dim: dim}, c, mu}, nil
}

// gaussianBudget returns the μ of the whole run, with a share of δ kept back.
func gaussianBudget(c Config, kept float64) (float64, error) {
	mu, err := gdp.Calibrate(dp.Guarantee{Eps: c.Epsilon, Delta: c.Delta * (1 - kept)})
	if err == nil && mu == 0 {
		err = dp.ErrNoBound
	}
	if err != nil {
		return 0, fmt.Errorf("solve: epsilon = %v at delta = %v: %w", c.Epsilon, c.Delta, err)
	}
	return float64(mu) * (1 - 1e-9), nil // a larger margin than the accountant's rounding up
}

// exact releases means as they are: no privacy.
type exact struct{ dim int }

type floats []float64

func (m exact) noise() optimize.Noise { return optimize.ReportNoise{} }

func (m exact) prepare(*optimize.Plan) (eps, delta float64, err error) { return math.Inf(1), 0, nil }

func (m exact) open(rng.Source, batch) (sum, error) { return make(floats, m.dim), nil }

func (m exact) release(_ rng.Source, b batch, s sum, mean []float64) error {
	for j, v := range s.(floats) {
		mean[j] = v / float64(b.clients)
	}
	return nil
}

func (s floats) add(_ rng.Source, x []float32) error {
	for j, v := range x {
		s[j] += float64(v)
	}
	return nil
}

func (s floats) merge(other sum) error {
	for j, v := range other.(floats) {
		s[j] += v
	}
	return nil
}

// curator is trusted with gradients and adds Gaussian noise to their mean. It is a baseline:
// its noise is made of float64 values, so proofs for real numbers hold only approximately.
type curator struct {
	exact
	config Config
	mu     float64
}

func (m *curator) noise() optimize.Noise {
	return optimize.GaussianNoise{Lipschitz: m.config.Clip, Mu: m.mu}
}

// prepare: replacing a client moves the mean of B by 2·clip/B at most, so a round is
// 2·clip/(σB)-GDP. Rounds that share a client compose; disjoint rounds cost as much as the
// most expensive one.
func (m *curator) prepare(p *optimize.Plan) (eps, delta float64, err error) {
	for _, s := range p.Stages {
		mu := gdp.Mu(2 * m.config.Clip / (s.Sigma * float64(s.Batch)) * (1 + 1e-14))
		eps = math.Max(eps, mu.Repeat(p.Batches.Uses).Epsilon(m.config.Delta))
	}
	return eps, m.config.Delta, nil
}

func (m *curator) release(src rng.Source, b batch, s sum, mean []float64) error {
	noise := make([]float64, len(mean))
	sample.Gaussian(src, noise)
	if err := m.exact.release(src, b, s, mean); err != nil {
		return err
	}
	for j, z := range noise {
		mean[j] += b.sigma * z
	}
	return nil
}

// vectorSum sums rounded gradients by package vecsum: nobody sees more than
// sums with every client's noise in them.
type vectorSum struct {
	config Config
	dim    int
	mu     float64
	stages
}

// overhead bounds the variance that rounding adds, as a share of the noise's variance.
const overhead = .05

func (m *vectorSum) noise() optimize.Noise {
	return optimize.GaussianNoise{Lipschitz: m.config.Clip, Mu: m.mu, Overhead: overhead}
}

// prepare designs a round for each stage. With gd a client is in every round; with the other
// methods it is in one round, and the most expensive round counts.
func (m *vectorSum) prepare(p *optimize.Plan) (eps, delta float64, err error) {
	uses := p.Batches.Uses
	for _, s := range p.Stages {
		most := s.Batch
		if uses == 1 {
			most++ // sizes of a stage's batches differ by at most one
		}
		params, err := vecsum.Tight(vecsum.Target{
			Eps: m.config.Epsilon, Delta: m.config.Delta, Users: most, MinUsers: s.Batch, Dim: m.dim,
			Radius: m.config.Clip, Rounds: uses, Overhead: overhead,
		})
		if err != nil {
			return 0, 0, fmt.Errorf("solve: epsilon = %v at delta = %v in rounds of %d clients: %w", m.config.Epsilon, m.config.Delta, s.Batch, err)
		}
		cost, err := params.Epsilon(m.config.Delta, uses)
		if err != nil {
			return 0, 0, err
		}
		eps = math.Max(eps, cost)
		r, err := rounding(params, 0)
		if err != nil {
			return 0, 0, err
		}
		m.stages = append(m.stages, r)
	}
	return eps, m.config.Delta, nil
}

// rounding returns the mechanism of a stage: clients round, and release draws the noise of all of
// them at once. sigma is the σ of each client's noise.
func rounding(params vecsum.Params, sigma float64) (randomizer.Mechanism, error) {
	sum, err := mechanism.NewVectorSum(params, sigma)
	return mechanism.Rounding{VectorSum: sum}, err
}

// stream protects gradients by a pan-private aggregator, panMean, which takes them one after
// another.
type stream struct {
	config Config
	dim    int
	mu     float64
	plan   *optimize.Plan // after prepare
}

// panEpsilon bounds ε of one draw of discrete Gaussian noise with parameter
// variance on integer vectors that differ by shift in ℓ2 norm: the Rényi
// divergence of order λ is at most λ·shift²/(2·variance).
//
// Upper bound, proved. Source: Canonne, Kamath, Steinke 2020, Proposition 5,
// added over coordinates; converted by rdp.Epsilon.
func panEpsilon(shift, variance, delta float64) float64 {
	rho := shift * shift / (2 * variance) * (1 + 1e-14)
	eps, _ := rdp.Minimize(func(order float64) float64 { return order * rho }, delta)
	return eps
}

func newStream(c Config, dim int) (*stream, error) {
	inverse := monotone.Falling(func(x float64) float64 { return panEpsilon(1, x*x, c.Delta) }, c.Epsilon, 1e-4, 1e8, 1e-9)
	if math.IsInf(inverse, 1) {
		return nil, fmt.Errorf("solve: epsilon = %v at delta = %v: %w", c.Epsilon, c.Delta, dp.ErrNoBound)
	}
	return &stream{config: c, dim: dim, mu: 1 / (inverse * (1 + 1e-6))}, nil // a larger margin than the error of Minimize's search
}

func (m *stream) noise() optimize.Noise {
	return optimize.GaussianNoise{Lipschitz: m.config.Clip, Mu: m.mu}
}

// mean returns the accumulator of a batch. The noise is the noise for a batch of this size.
func (m *stream) mean(clients int64) (*panMean, error) {
	return newPanMean(panMeanConfig{Dim: m.dim, Batch: clients, Clip: m.config.Clip, Sigma: m.plan.Deviation(clients)})
}

// prepare charges one draw: convex.md, section 6. Each client is in one batch.
func (m *stream) prepare(p *optimize.Plan) (eps, delta float64, err error) {
	if p.Batches.Uses != 1 {
		return 0, 0, errors.New("solve: a pan-private stream sees a client once")
	}
	m.plan = p
	for _, s := range p.Stages {
		for _, clients := range []int64{s.Batch, s.Batch + 1} {
			mean, err := m.mean(clients)
			if err != nil {
				return 0, 0, err
			}
			shift, variance := mean.shift()
			eps = math.Max(eps, panEpsilon(float64(shift), float64(variance), m.config.Delta))
		}
	}
	return eps, m.config.Delta, nil
}

func (m *stream) open(src rng.Source, b batch) (sum, error) {
	mean, err := m.mean(b.clients)
	if err != nil {
		return nil, err
	}
	return mean, mean.begin(src)
}

func (m *stream) release(src rng.Source, _ batch, s sum, mean []float64) error {
	return s.(*panMean).end(src, mean)
}

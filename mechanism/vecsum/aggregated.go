package vecsum

import (
	"fmt"
	"math"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
)

// NoiseBy says who adds the noise of a vector sum.
type NoiseBy string

const (
	// ByClients: each client adds noise to its vector, so honest clients are needed in every
	// round. "" stands for it.
	ByClients NoiseBy = "clients"
	// ByAggregators: each aggregator adds the whole noise to its share of the sum before it shows
	// it, so one honest aggregator is enough, whoever the clients are.
	ByAggregators NoiseBy = "aggregators"
)

// Aggregated describes one round of a vector sum of which aggregators release no more than the sum with
// noise that is no part of the vectors. Clients round their vectors to integers; an aggregator adds
// discrete Gaussian noise to its share of the sum, or the share of the sum of noise vectors that clients
// sent apart (MinUsers). vecsum.md, sections 9 and 12, have the theorems.
type Aggregated struct {
	Users  int64   // the most clients of a round; required
	Dim    int     // d, the length of an input; required
	Radius float64 // the bound on ‖x‖₂ that clients clip to; required
	Steps  int64   // integer steps in Radius, of counts in a one; required
	// Bound is the largest ‖x̂‖₂ of a rounded input, in steps. Required, at least what all
	// rounded inputs meet: Steps + √d/2, of counts Steps·√Ones.
	Bound int64
	// Variance is the parameter σ² of each aggregator's discrete Gaussian noise on a coordinate,
	// or of each client's, in squared steps. Required.
	Variance uint64
	// Ones, if not 0, makes this a round of counts, with Radius √Ones: see Params.
	Ones int
	// Bits and Weight are for noise that is correlated over rounds. What is released of a round is then
	// the sum of this round's and earlier rounds' vectors with integer weights, and Variance is that
	// of its noise, in squares of a step of weight 1. 2^Bits is the weight of the round's own vectors, Weight
	// the sum of all weights. 0 and 0: a round's own sum is released.
	Bits   int
	Weight int64
	// MinUsers, if not 0, says that clients add the noise, each a vector of it apart from its own, and is the
	// fewest clients of a round that is released; rounds of fewer are void. It goes with
	// correlated noise only.
	MinUsers int64
	// Honest is the share of any MinUsers clients of a round whose noise is relied on; required with MinUsers.
	Honest float64
}

// aggregators is the number of aggregators, each of which adds noise.
const aggregators = 2

const (
	// fineSteps is the finest grid, of 15 fraction bits: rounding moves no coordinate by more
	// than Radius·2^−15.
	fineSteps = 1 << 15
	// leastSteps is the coarsest grid.
	leastSteps = 1 << 6
	// spread is the part r² of the noise's variance that makes the rest a Gaussian on the reals;
	// vecsum.md, section 9.
	spread = 25
	// mostDeviation bounds the noise's standard deviation in steps. The sampler takes parameters up
	// to 2^56.
	mostDeviation = 1 << 27
)

// MostEps is the largest ε for which the noise of aggregators is counted: what its rounding adds to
// δ grows with e^ε.
const MostEps = 400

// NewAggregated returns the round with the least noise that is worth sigma, in units of radius, and
// the finest grid.
func NewAggregated(users int64, dim int, radius, sigma float64) (Aggregated, error) {
	if err := dp.CheckSigma(sigma); err != nil {
		return Aggregated{}, err
	}
	if dim < 1 || dim > maxDim {
		return Aggregated{}, fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", dim)
	}
	return Aggregated{Users: users, Dim: dim, Radius: radius}.withNoise(sigma)
}

// NewAggregatedOnes is NewAggregated for counts, with sigma in units of half the largest distance of
// two inputs, √min(2·ones, dim).
func NewAggregatedOnes(users int64, dim, ones int, sigma float64) (Aggregated, error) {
	if err := dp.CheckSigma(sigma); err != nil {
		return Aggregated{}, err
	}
	if dim < 1 || dim > maxDim || ones < 1 || ones > dim {
		return Aggregated{}, fmt.Errorf("vecsum: ones = %d must lie between 1 and dim = %d, which is at most 2^24", ones, dim)
	}
	return Aggregated{Users: users, Dim: dim, Radius: onesRadius(ones), Ones: ones}.withNoise(sigma)
}

// NewCorrelated is NewAggregated for sums that a strategy's weights make of several rounds' sums. sigma is
// the noise of what is released over the weight of a round's own vectors.
func NewCorrelated(users int64, dim int, radius, sigma float64, strategy toeplitz.Strategy) (Aggregated, error) {
	if err := dp.CheckSigma(sigma); err != nil {
		return Aggregated{}, err
	}
	if dim < 1 || dim > maxDim {
		return Aggregated{}, fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", dim)
	}
	if err := strategy.Validate(); err != nil {
		return Aggregated{}, err
	}
	return Aggregated{Users: users, Dim: dim, Radius: radius}.Weighted(strategy).withNoise(sigma)
}

// Weighted returns p for sums that a valid strategy's weights make of several rounds' sums. Variance is
// then that of such a release.
func (p Aggregated) Weighted(strategy toeplitz.Strategy) Aggregated {
	p.Bits, p.Weight = strategy.Bits, 0
	for _, w := range strategy.Weights {
		p.Weight += w
	}
	return p
}

// withNoise sets steps, bound and noise.
func (p Aggregated) withNoise(sigma float64) (Aggregated, error) {
	for radius := int64(fineSteps); ; radius /= 2 {
		p.Steps, p.Bound = radius, radius+halfRoot(p.Dim)
		if p.Ones != 0 {
			// Proofs tell the least of a vector where the bound is a power of two.
			p.Steps, p.Bound = isqrt(radius*radius/int64(p.Ones)), radius
		}
		if s := sigma * p.half() * p.scale(); s <= mostDeviation*(1-0x1p-20) && p.Steps > 0 {
			// Rounded up by more than floating point may have lost.
			p.Variance = uint64(math.Ceil(s*s*(1+0x1p-40))) + spread + 1
			if p.ByClients() {
				p.Variance = p.each(p.Variance)
			}
			if !p.ByClients() || p.checkClients() == nil {
				break
			}
		}
		if radius == leastSteps {
			who := "aggregators"
			if p.ByClients() {
				who = "clients"
			}
			return Aggregated{}, fmt.Errorf("vecsum: sigma = %v is more noise than %s can draw in dimension %d: %w", sigma, who, p.Dim, dp.ErrNoBound)
		}
	}
	return p, p.validate()
}

// halfRoot returns √d/2, rounded up.
func halfRoot(d int) int64 {
	c := isqrt(int64(d)) / 2
	for 4*c*c < int64(d) {
		c++
	}
	return c
}

// validate returns an error that names the first value out of range.
func (p Aggregated) validate() error {
	switch {
	case p.Users < 1 || p.Users > maxUsers:
		return fmt.Errorf("vecsum: users = %d must lie between 1 and 2^40", p.Users)
	case p.Dim < 1 || p.Dim > maxDim:
		return fmt.Errorf("vecsum: dim = %d must lie between 1 and 2^24", p.Dim)
	case !(p.Radius >= 1e-30 && p.Radius <= 1e30):
		return fmt.Errorf("vecsum: radius = %v must lie between 1e-30 and 1e30", p.Radius)
	case p.Steps < 1 || p.Steps > 1<<20:
		return fmt.Errorf("vecsum: %d steps in the radius must lie between 1 and 2^20", p.Steps)
	case p.Ones < 0 || p.Ones > p.Dim || p.Ones > 0 && p.Radius != onesRadius(p.Ones):
		return fmt.Errorf("vecsum: ones = %d of radius %v must lie between 1 and dim = %d, with radius √ones", p.Ones, p.Radius, p.Dim)
	case p.Ones > 0 && (p.Bound > 1<<24 || float64(p.Bound) < float64(p.Steps)*p.Radius):
		return fmt.Errorf("vecsum: norm bound %d must lie between %v, which %d ones need, and 2^24", p.Bound, float64(p.Steps)*p.Radius, p.Ones)
	case p.Ones == 0 && p.Bound < p.Steps+halfRoot(p.Dim) || p.Bound > 1<<24:
		return fmt.Errorf("vecsum: norm bound %d must lie between %d, which rounded inputs need, and 2^24", p.Bound, p.Steps+halfRoot(p.Dim))
	case p.Variance <= spread || p.Variance > mostDeviation*mostDeviation:
		return fmt.Errorf("vecsum: noise variance %d must be above %d and at most 2^54", p.Variance, spread)
	case p.Bits < 0 || p.Bits > 16 || p.Weight < 0 || p.Weight > 1<<40 || (p.Bits > 0 || p.Weight > 0) && p.Weight < 1<<p.Bits:
		return fmt.Errorf("vecsum: weights of %d in all must be 0, or at least 2^%d and at most 2^40", p.Weight, p.Bits)
	case p.Ones > 0 && p.Weight > 0:
		return fmt.Errorf("vecsum: ones = %d, counts have no weights: one differs from none by more than half of what two differ", p.Ones)
	case p.MinUsers != 0 || p.Honest != 0:
		if err := p.checkClients(); err != nil {
			return err
		}
	}
	if p.most(p.Users) >= 1<<61 {
		return fmt.Errorf("vecsum: counts of %d users, with weights of %d, exceed 2^61", p.Users, max(1, p.Weight))
	}
	return nil
}

// Sigma returns the noise σ, in units of Radius (of counts: of half the largest distance of two
// inputs, √min(2·Ones, Dim)), such that a round of any clients is as private as
// the sum of vectors of norm 1 with N(0, σ²) added once: it has μ ≤ 2/σ. Bounds proved for such
// sums hold for so many rounds, but for tail, which all rounds together add to δ.
//
// Result: σ rounded down, tail rounded up; replace-one, for an observer that knows all but one
// client and one aggregator's noise. Needs: one honest aggregator, which shows one sum a round;
// ε of all rounds together at most MostEps. Source: vecsum.md, section 9, Theorem. With noise of clients
// (MinUsers) the observer may have all clients but ⌊Honest·MinUsers⌋ of each round that is released, which are needed, too: section 12. Of correlated noise
// it is the σ of one release over the weight of the round's own vectors, and what rounds cost together
// follows from the strategy: toeplitz.Strategy.Together.
func (p Aggregated) Sigma(rounds int64) (sigma, tail float64, err error) {
	if err := p.validate(); err != nil {
		return 0, 0, err
	}
	if rounds < 1 {
		return 0, 0, fmt.Errorf("vecsum: rounds = %d must be at least 1", rounds)
	}
	variance, lost := p.Variance, smoothing(spread, p.Dim)
	if p.ByClients() {
		variance, lost = p.honestNoise()
	}
	sigma = math.Sqrt(float64(variance-spread)) / (p.half() * p.scale()) * (1 - 0x1p-49)
	return sigma, lost * float64(rounds) * (1 + math.Exp(MostEps)) * (1 + 0x1p-40), nil
}

// scale returns the weight of a round's own vectors in what is released.
func (p Aggregated) scale() float64 { return math.Ldexp(1, p.Bits) }

// most bounds a coordinate of what is released of so many clients of each round, with probability 1 − e^−60.
func (p Aggregated) most(clients int64) float64 {
	return float64(clients)*float64(p.Bound)*float64(max(1, p.Weight)) + p.reach(clients)
}

// noise returns the parameter σ² of the noise in a release of so many clients' round: of both aggregators
// together, or of all clients.
func (p Aggregated) noise(clients int64) float64 {
	if p.ByClients() {
		return float64(clients) * float64(p.Variance)
	}
	return aggregators * float64(p.Variance)
}

// half returns half the largest distance of two rounded inputs, in steps; of counts to the rounding
// of a float64.
func (p Aggregated) half() float64 {
	if p.Ones != 0 {
		return float64(p.Steps) * math.Sqrt(float64(differing(p.Ones, p.Dim))) / 2
	}
	return float64(p.Bound)
}

// smoothing bounds the total variation between d discrete Gaussian variables and what a Gaussian on
// the reals becomes by a rounding of variance r²: d times Σ_j 2·e^(−2π²r²j²), j ≥ 1, rounded up.
func smoothing(r2 float64, d int) float64 {
	x := math.Exp(-2 * math.Pi * math.Pi * r2)
	return float64(d) * 2 * x / (1 - x) * (1 + 1e-9)
}

// Round overwrites counts with x, clipped and rounded at random to integers, each within one step
// and without bias; the squared norm of counts is at most Bound². An x that is not finite or
// of another length becomes zeros. It adds no noise.
func (p Aggregated) Round(src rng.Source, x []float32, counts []int32) {
	counts = counts[:p.Dim]
	if p.Ones != 0 {
		if len(x) != p.Dim || encodeOnes(x, p.Ones, p.Steps, counts) != nil {
			clear(counts)
		}
		return
	}
	var square float64
	for _, v := range x {
		square += float64(v) * float64(v)
	}
	if len(x) != p.Dim || !(square <= math.MaxFloat64) {
		clear(counts)
		return
	}
	scale := float64(p.Steps) / math.Max(p.Radius, math.Sqrt(square))
	words := make([]uint64, min(256, (p.Dim+1)/2))
	for range retries {
		if p.once(src, words, scale, x, counts) <= p.Bound*p.Bound {
			return
		}
	}
	// Towards 0 the norm only falls.
	for j, v := range x {
		counts[j] = int32(float64(v) * scale)
	}
}

// once rounds x times scale at random and returns the squared norm.
func (p Aggregated) once(src rng.Source, words []uint64, scale float64, x []float32, counts []int32) (norm int64) {
	least := float64(2 * p.Steps) // makes what is rounded positive
	for from := 0; from < len(x); from += 2 * len(words) {
		some := x[from:min(len(x), from+2*len(words))]
		src.Fill(words[:(len(some)+1)/2])
		for j, v := range some {
			k := roundAt(float64(v)*scale+least, words[j/2]>>(j&1*32)) - 2*p.Steps
			counts[from+j] = int32(k)
			norm += k * k
		}
	}
	return norm
}

// AddNoise adds the noise of all aggregators to the sum of so many clients' rounded inputs. It is
// to be called once a round. The noise of clients is one draw of their sum's law, but for less than
// the tail that Sigma returns.
func (p Aggregated) AddNoise(src rng.Source, sum []int64, clients int64) error {
	if err := p.check(sum, clients); err != nil {
		return err
	}
	parts := []uint64{p.Variance, p.Variance}
	if p.ByClients() {
		parts = p.together(clients)
	}
	work := make([]int64, len(sum))
	for _, variance := range parts {
		g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: variance, Den: 1})
		if err != nil {
			return fmt.Errorf("vecsum: %w", err)
		}
		tabled{g, nil}.add(src, sum, work)
	}
	clear(work) // noise must not stay in memory
	return nil
}

// reach bounds the noise of a coordinate of the sum, with probability 1 − e^−60.
func (p Aggregated) reach(clients int64) float64 {
	return math.Ceil(12*math.Sqrt(p.noise(clients)) + 64)
}

// CheckSum refuses sums that no honest clients have. It refuses honest ones with probability e^−60
// a count.
func (p Aggregated) CheckSum(sum []int64, clients int64) error {
	if err := p.check(sum, clients); err != nil {
		return err
	}
	if p.Weight > 0 {
		clients = p.Users // earlier rounds may have had more
	}
	most := p.most(clients)
	for j, c := range sum {
		if !(math.Abs(float64(c)) <= most) {
			return fmt.Errorf("vecsum: sum %d is %d, beyond %g", j, c, most)
		}
	}
	return nil
}

// check refuses sums of another shape, and of more clients than there are.
func (p Aggregated) check(sum []int64, clients int64) error {
	if err := p.validate(); err != nil {
		return err
	}
	if clients < 1 || clients > p.Users {
		return fmt.Errorf("vecsum: %d clients must lie between 1 and users = %d", clients, p.Users)
	}
	if len(sum) != p.Dim {
		return fmt.Errorf("vecsum: %d sums for %d coordinates", len(sum), p.Dim)
	}
	return nil
}

// NoiseVariance bounds the variance of one coordinate of the estimate of the sum of n inputs, in
// squared units of the input: the noise of all aggregators or clients, and of rounding. Of correlated noise it is
// that of a sum over many rounds, a round.
func (p Aggregated) NoiseVariance(n int64) float64 {
	noise := p.noise(n)
	if p.Weight > 0 {
		noise /= float64(p.Weight) * float64(p.Weight)
	}
	if p.Ones == 0 {
		noise += float64(n) / 4
	}
	return p.Step() * p.Step() * noise
}

// Step returns the size of a step in the units of the inputs.
func (p Aggregated) Step() float64 {
	if p.Ones != 0 {
		return 1 / float64(p.Steps)
	}
	return p.Radius / float64(p.Steps)
}

// MeanBound returns a bound, in the units of the inputs, that the ℓ₂ norm of the mean of n
// honest clients exceeds with probability at most chance, whatever the inputs. The sum of
// discrete Gaussian variables is sub-Gaussian with the sum of their parameters. deviation is that of
// correlated noise once it is recovered (toeplitz.Strategy.Deviation), otherwise 1.
func (p Aggregated) MeanBound(n int64, chance, deviation float64) float64 {
	if n < 1 {
		return 0
	}
	length := math.Sqrt(p.noise(n)) * deviation / p.scale() * tail.Length(p.Dim, math.Log(1/chance))
	return p.Step() * (float64(p.Bound) + length/float64(n)) * (1 + 0x1p-40)
}

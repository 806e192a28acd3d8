package main

import (
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/gdp"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/run/setting"
)

// vecsumName is the value of --randomizer for vector sums.
const vecsumName = string(account.VectorSumClass)

// sumFlags describe a round of vector sums, with --randomizer vecsum.
type sumFlags struct {
	dim, bits, grid, nMin int64
	noise                 vecsum.NoiseKind
	variance, honest      float64
	by                    vecsum.NoiseBy
	every                 int64
	strategy              toeplitz.Kind
}

var sumFlagNames = []string{"dim", "noise", "noise-bits", "variance", "grid", "honest", "noise-by", "every", "strategy"}

// ofVectors are the flags for noise that is a part of clients' vectors.
var ofVectors = []string{"noise", "noise-bits", "variance", "grid"}

// ofClients are the flags for noise that clients add.
var ofClients = append([]string{"n-min", "honest"}, ofVectors...)

// aggregated says whether the flags describe a vector sum whose noise is no part of clients' vectors: the
// aggregators add it, or it is correlated over rounds.
func (p *protocolFlags) aggregated() bool {
	return p.class == vecsumName && (p.vecsum.by == vecsum.ByAggregators || p.vecsum.every != 0)
}

func (s *sumFlags) flags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "dim", Into: &s.dim, Help: "coordinates of a vector sum, or of a named randomizer's input"},
		{Name: "n-min", Into: &s.nMin, Help: "a round with fewer reports is void, and nothing is assumed of who is there (default: all come who are asked, but for --dropout; of a vector sum what surely comes)"},
	})
	s.noiseFlags(cmd)
	s.byFlag(cmd)
	bind(cmd, setting.Table{
		{Name: "every", Into: &s.every, Help: "with --sigma: each client takes part in at most one of so many consecutive rounds, by its own count, and the noise is correlated over rounds; clients send theirs apart"},
		{Name: "strategy", Into: &s.strategy, Values: toeplitz.Describe(), Help: "how the noise of --every is correlated: %s"},
	})
}

func (s *sumFlags) byFlag(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "noise-by", Into: &s.by, Default: string(vecsum.ByClients), Values: []string{string(vecsum.ByClients), string(vecsum.ByAggregators) + "\teach of two adds all of it, of --sigma"}, Help: "who adds a vector sum's noise: %s"},
	})
}

func (s *sumFlags) noiseFlags(cmd *cobra.Command) {
	bind(cmd, setting.Table{
		{Name: "noise", Into: &s.noise, Default: string(vecsum.Binomial), Values: words(vecsum.Binomial, vecsum.Skellam, vecsum.DiscreteGaussian), Help: "of a vector sum: %s"},
		{Name: "noise-bits", Into: &s.bits, Help: "of a vector sum: fair noise bits of each client on each coordinate"},
		{Name: "variance", Into: &s.variance, Help: "of a vector sum: variance of skellam or discrete-gaussian noise, in grid steps"},
		{Name: "grid", Into: &s.grid, Help: "of a vector sum: grid steps in each coordinate's range"},
		{Name: "honest", Into: &s.honest, Default: "1", Range: "(0, 1]", Help: "of a vector sum: share of a round's clients whose noise is relied on"},
	})
}

// single lists the flags for single reports.
var single = []string{"eps0", "cross-eps0", "sigma", "tv", "colluders", "k-hidden", "adaptive-within-round"}

// sum says whether the flags describe a vector sum, and refuses flags that then make no
// sense.
func (p *protocolFlags) sum(fs *pflag.FlagSet) (bool, error) {
	if p.class != vecsumName {
		for _, name := range sumFlagNames {
			if name == "dim" && p.dimNamed() {
				continue // a single report's randomizer has a dimension, too
			}
			if fs.Changed(name) && name == "dim" && !p.known() {
				return false, usage("unknown randomizer class %q", p.class)
			}
			if fs.Changed(name) && name == "dim" {
				return false, usage("--dim goes with --randomizer %s or a randomizer of riffle train, not %s", vecsumName, p.class)
			}
			if fs.Changed(name) {
				return false, usage("--%s goes with --randomizer %s, not %s", name, vecsumName, p.class)
			}
		}
		if p.asked.Trust.Is(dp.Accountable) && !p.asked.Trust.Is(dp.InEvents) {
			return false, usage("--trust %s goes with --randomizer %s, not %s", p.asked.Trust, vecsumName, p.class)
		}
		return false, nil
	}
	for _, name := range single {
		if p.aggregated() && (name == "sigma" || name == "colluders" && p.vecsum.by == vecsum.ByAggregators) {
			continue // the sum's noise has a sigma, and chance hides nobody among colluders
		}
		if fs.Changed(name) {
			return true, usage("--%s is of single reports and has no meaning with --randomizer %s", name, vecsumName)
		}
	}
	if fs.Changed("trust") && !p.asked.Trust.Is(dp.SumsOnly) {
		return true, usage("--trust %s contradicts --randomizer %s, whose trust is %s: only the sum is seen", p.asked.Trust, vecsumName, dp.AnyTrust(dp.SumsOnly))
	}
	if p.adjacency != dp.ReplaceOne {
		return true, usage("--adjacency %s is refused with --randomizer %s: bounds are for a client replaced", p.adjacency, vecsumName)
	}
	if fs.Changed("strategy") && !fs.Changed("every") {
		return true, usage("--strategy goes with --every, the number of rounds of which a client takes part in one at most")
	}
	if fs.Changed("every") && p.vecsum.every == 0 {
		return true, usage("--every 0 must be at least 2")
	}
	refused := ofClients
	switch {
	case !p.aggregated():
		refused = nil
	case p.vecsum.by == vecsum.ByClients:
		refused = ofVectors
	}
	for _, name := range refused {
		if fs.Changed(name) && p.vecsum.by == vecsum.ByClients {
			return true, usage("--%s is of noise that is a part of clients' vectors: with --every give --sigma and --dim", name)
		}
		if fs.Changed(name) {
			return true, usage("--%s is of noise that clients add: with --noise-by aggregators give --sigma and --dim", name)
		}
	}
	return true, p.vecsum.check(fs)
}

// check refuses flags that make no sense together.
func (s *sumFlags) check(fs *pflag.FlagSet) error {
	switch {
	case fs.Changed("noise-bits") && s.noise != vecsum.Binomial:
		return usage("--noise-bits goes with --noise binomial, not %s, which has a --variance", s.noise)
	case fs.Changed("variance") && s.noise == vecsum.Binomial:
		return usage("--variance goes with --noise skellam or discrete-gaussian; binomial has --noise-bits")
	case s.dim < 1 || s.dim > 1<<24:
		return usage("--dim %d must lie between 1 and 2^24 with --randomizer %s", s.dim, vecsumName)
	}
	return nil
}

// params returns the round's parameters, except those that follow from the clients.
func (s *sumFlags) params() vecsum.Params {
	if s.by == vecsum.ByAggregators {
		return vecsum.Params{Dim: int(s.dim)}
	}
	if s.every != 0 {
		return vecsum.Params{MinUsers: s.nMin, Honest: s.honest, Dim: int(s.dim)}
	}
	return vecsum.Params{MinUsers: s.nMin, Honest: s.honest, Dim: int(s.dim), Grid: s.grid,
		Noise: vecsum.Noise{Kind: s.noise, Bits: s.bits, Variance: s.variance}}
}

func describeNoise(n vecsum.Noise) string {
	if n.Kind == vecsum.Binomial {
		return fmt.Sprintf("%d fair noise bits", n.Bits)
	}
	return fmt.Sprintf("%s noise of variance %g", n.Kind, n.Variance)
}

func describeSum(q account.Query) string {
	p := q.Sum
	if q.NoiseBy == vecsum.ByAggregators {
		return fmt.Sprintf("sums of %d coordinates, each aggregator's noise worth sigma = %g clip norms, whoever the clients are", p.Dim, q.Sigma)
	}
	if q.Every != 0 {
		return fmt.Sprintf("sums of %d coordinates, the noise of %g of n-min = %d clients together worth sigma = %g clip norms", p.Dim, p.Honest, p.MinUsers, q.Sigma)
	}
	return fmt.Sprintf("sums of %d coordinates, %d grid steps, %s a client and coordinate, n-min = %d, honest = %g",
		p.Dim, p.Grid, describeNoise(p.Noise), p.MinUsers, p.Honest)
}

// designJSON is a planned round of vector sums.
type designJSON struct {
	Grid      int64            `json:"grid"`
	Norm      int64            `json:"norm"` // squared norm of a rounded vector, in half steps
	Noise     vecsum.NoiseKind `json:"noise"`
	NoiseBits int64            `json:"noise_bits,omitempty"`
	Variance  float64          `json:"variance,omitempty"`
	Mu        float64          `json:"mu"` // for one round of n-min clients
	// Modulus is log2 of the aggregators' modulus. MessageBytes is the size of a client's
	// message to the aggregator that does not get the seed.
	Modulus      int   `json:"modulus_bits"`
	MessageBytes int64 `json:"message_bytes"`
	// The next three fields concern one coordinate of the sum of n-min clients. Total is its
	// variance in this design, in squared clip norms. Gaussian is its variance under the
	// Gaussian mechanism with the same mu and all noise in one place. Ratio is Total over
	// Gaussian.
	Total    float64 `json:"sum_variance"`
	Gaussian float64 `json:"gaussian_variance"`
	Ratio    float64 `json:"variance_ratio"`
}

// planSum chooses the parameters of a round of vector sums that meet a target, and prints
// them.
func (p *protocolFlags) planSum(cmd *cobra.Command, fs *pflag.FlagSet, target float64, solve string, asJSON bool) error {
	for _, name := range []string{"grid", "noise-bits", "variance"} {
		if fs.Changed(name) {
			return usage("--%s contradicts --solve %s, which chooses it", name, solve)
		}
	}
	if solve == "noise-bits" && p.vecsum.noise != vecsum.Binomial {
		return usage("--solve noise-bits is for --noise binomial, not %s: use --solve mu", p.vecsum.noise)
	}
	if !fs.Changed("delta") {
		return usage("planning a vector sum needs --delta")
	}
	if !(target > 0 && target <= dp.MaxEps0) {
		return usage("--target-eps %v must be above 0 and at most %d", target, dp.MaxEps0)
	}
	q, err := p.query(fs)
	if err != nil {
		return err
	}
	// Any noise will do for checking the rest of the query.
	q.Sum.Grid, q.Sum.Noise = 2, vecsum.Noise{Kind: vecsum.Skellam, Variance: 1}
	if err := q.Validate(); err != nil {
		return usageError(err)
	}
	q.Sum.Noise.Kind = p.vecsum.noise
	q, r, err := account.Plan(cmd.Context(), target, q, "noise")
	if err != nil {
		if errors.Is(err, dp.ErrNoBound) {
			return usageError(err)
		}
		return err
	}
	if r.KnowsWho, err = account.AnswerKnowsWho(cmd.Context(), q); err != nil {
		return err
	}
	warnLargeEps(cmd.ErrOrStderr(), r.Upper.Eps)
	d, err := describeDesign(q.Sum, q)
	if err != nil {
		return err
	}
	if asJSON {
		solution := map[string]any{"mu": d.Mu, "design": d}
		if solve == "noise-bits" {
			solution = map[string]any{"noise-bits": d.NoiseBits, "design": d}
		}
		return printJSON(cmd.OutOrStdout(), map[string]any{"solution": solution, "check": documented{r.Document(), p.largestOf(r)}})
	}
	out := printer{w: cmd.OutOrStdout()}
	if solve == "noise-bits" {
		out.line("noise-bits = %d", d.NoiseBits)
	} else {
		out.line("mu = %.6g", d.Mu)
	}
	out.line("")
	out.row("grid", "%d steps", d.Grid)
	out.row("noise", "%s of each client on each coordinate", describeNoise(q.Sum.Noise))
	out.row("mu", "%.6g, one round of %d clients", d.Mu, q.Sum.MinUsers)
	out.row("modulus", "2^%d", d.Modulus)
	out.row("message", "%d bytes a client, and a seed for each further aggregator", d.MessageBytes)
	out.row("variance", "%.6g of a coordinate of their sum, in squared clip norms", d.Total)
	out.row("analytic Gaussian", "%.6g: this is %.4f times as much", d.Gaussian, d.Ratio)
	out.line("")
	if out.err != nil {
		return out.err
	}
	return printReply(cmd.OutOrStdout(), r, p.largestOf(r))
}

func describeDesign(p vecsum.Params, q account.Query) (designJSON, error) {
	rounds := q.Rounds
	if q.Participation == dp.Once {
		rounds = 1
	}
	c, err := p.Curve(q.Delta, rounds)
	if err != nil {
		return designJSON{}, err
	}
	d := designJSON{Grid: p.Grid, Norm: p.Norm, Noise: p.Noise.Kind, NoiseBits: p.Noise.Bits, Variance: p.Noise.Variance, Mu: c.Mu,
		Modulus: p.Modulus(), Total: p.Variance(p.MinUsers)}
	d.MessageBytes = (int64(p.Streams())*int64(d.Modulus) + 7) / 8
	// mu is now the μ that costs the same ε at the whole of δ.
	mu := c.Mu
	if p.MinUsers == p.Users && rounds >= 1 && (q.Participation == dp.All || q.Participation == dp.Once) && q.Dropout == 0 {
		eps, err := p.Epsilon(q.Delta, rounds)
		if err != nil {
			return designJSON{}, err
		}
		whole, err := gdp.Calibrate(dp.Guarantee{Eps: eps, Delta: q.Delta})
		if err != nil {
			return designJSON{}, err
		}
		mu = float64(whole) / math.Sqrt(float64(rounds))
	}
	d.Gaussian = 4 * p.Radius * p.Radius / (mu * mu)
	d.Ratio = d.Total / d.Gaussian
	return d, nil
}

package measure

import (
	"cmp"
	"context"
	"fmt"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/statistic"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/rng"
	"github.com/riffle-dp/riffle/mechanism/sample"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/mechanism"
)

// margin is by how much ε₀ of single messages stays below the most that the plan allows. It pays for
// what spread reports are charged beyond K-ary randomized response, see mechanism/randomizer/spread.md,
// and for rounding.
const margin = 1e-5

// single designs a round of single messages: randomized response with the largest ε₀ that the budget
// allows for the smallest round.
func (p *Plan) single(ctx context.Context) error {
	if _, err := p.Question.Single(cmp.Or(p.Question.Symbols(), 3), 1); err != nil {
		return inputError("trust %s: %v", p.Trust, err)
	}
	symbols, eps0, err := p.Question.Choose(p.MinReports, func(symbols int) (float64, error) {
		if p.Trust.Is(dp.Alone) {
			return p.Epsilon * (1 - margin), nil
		}
		q := p.query()
		if q.Class, q.Symbols = dp.KRR, symbols; p.Question.Symbols() == 2 {
			q.Class, q.Symbols = dp.BinaryRR, 0
		}
		found, _, err := account.Plan(ctx, p.Epsilon, q, "eps0")
		return found.Eps0 * (1 - margin), err
	})
	if err != nil {
		return p.unplanned(ctx, err)
	}
	c, err := p.Question.Single(symbols, eps0)
	if err != nil {
		return p.unplanned(ctx, err)
	}
	if p.Mechanism, err = randomizer.New(randomizer.KRR, c); err != nil {
		return p.unplanned(ctx, err)
	}
	if p.described, err = mechanism.Describe(randomizer.KRR, c, "norm"); err != nil {
		return err
	}
	p.messages, err = statistic.NewMessages(p.Question, p.Mechanism)
	return err
}

// curator designs a round whose sums a curator computes and adds noise to: as with noise by aggregators,
// of whom one is honest, but the noise is drawn once.
func (p *Plan) curator(ctx context.Context, asked int64) error {
	p.NoiseBy = vecsum.ByAggregators
	err := p.sum(ctx, asked)
	p.NoiseBy = ""
	return err
}

// curated is a sum to which a curator adds noise.
type curated struct{ *mechanism.AggregatedSum }

// AddNoise adds the noise of one honest aggregator.
func (m curated) AddNoise(src rng.Source, sum []int64, clients int64) error {
	if err := m.CheckSum(sum, clients); err != nil {
		return err
	}
	g, err := sample.NewDiscreteGaussian(sample.Ratio{Num: m.Variance, Den: 1})
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	noise := make([]int64, len(sum))
	g.Fill(src, noise)
	for j, z := range noise {
		sum[j] += z
	}
	clear(noise) // it must not stay in memory
	return nil
}

// byCurator says whether a curator sees the rows and adds the noise.
func byCurator(t dp.Trust) bool { return t.Is(dp.Protecting) && !t.Is(dp.Uncurated) }

// counted is the trust mode that events have. A curator's answer counts as a sum: nobody else sees more
// than sums with noise.
func (c Config) counted() dp.Trust {
	if byCurator(c.Trust) {
		return dp.Trust(dp.TrustNames(dp.SumsOnly | dp.InEvents)[0])
	}
	return c.Trust.Recorded()
}

// clip and norm are the ball that clients clip encoded rows to. Those of single messages are
// distributions.
func (p *Plan) clip() float64 {
	if p.messages != nil {
		return 1
	}
	return p.Question.Radius()
}

func (p *Plan) norm() float64 {
	if p.messages != nil {
		return 1
	}
	return 2
}

// encoder returns how rows become inputs of the mechanism.
func (p *Plan) encoder() (*statistic.Encoder, error) {
	if p.messages != nil {
		return p.messages.Encoder(), nil
	}
	return statistic.NewEncoder(p.Question)
}

// whoElse names who adds noise in modes of trust without a vector sum, for messages.
func whoElse(t dp.Trust) string {
	if byCurator(t) {
		return "the curator"
	}
	return "each client"
}

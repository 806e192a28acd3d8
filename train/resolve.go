package train

import (
	"context"
	"math"
	"strconv"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/optimize"
	"github.com/riffle-dp/riffle/randomizer"
)

// Defaults where neither the caller nor a budget says otherwise.
const (
	defaultEps0   = 3
	defaultRounds = 80
)

// tuned is a mechanism's clip and learning rate, chosen on a validation split
// (EXPERIMENTS.md), and the noise they were chosen at: the squared noise of a
// coordinate of the mean, in units of the squared clip.
type tuned struct{ clip, rate, noise float64 }

var (
	// PrivUnit, and no randomizer: ε₀ = 3, 60,000 reports a round.
	tunedEuclidean = tuned{clip: 0.2, rate: 10, noise: 0.743 / 60000}
	// R∞ with coordinate clipping: ε₀ = 3, 50,000 reports, 1,930 parameters.
	tunedInf = tuned{clip: 0.02, rate: 2, noise: 1.22 * 1930 / 50000}
)

func (c Config) tuned() tuned {
	if c.Randomizer == "rinf" && c.Trust != "none" {
		return tunedInf
	}
	return tunedEuclidean
}

// Check refuses values and combinations that make no sense, before anything
// is loaded. It names each flag involved.
func (c Config) Check() error {
	for _, f := range c.Fields() {
		text := f.Value.String()
		if text == "" {
			continue
		}
		if err := f.Value.Set(text); err != nil {
			return inputError("%s = %v", f.Name, err)
		}
	}
	switch p := dp.Participation(c.Participation); {
	case p == dp.Sampled && c.K == 0:
		return inputError("participation sampled needs k, the clients a round")
	case p != dp.Sampled && c.K != 0:
		return inputError("k = %d goes with participation sampled, not %s", c.K, p)
	case p == dp.CheckIn && c.Gamma == 0:
		return inputError("participation check-in needs gamma, each client's chance to take part")
	case p != dp.CheckIn && c.Gamma != 0:
		return inputError("gamma = %v goes with participation check-in, not %s", c.Gamma, p)
	case c.ClipMode == "coordinate" && c.Randomizer != "rinf":
		return inputError("clip-mode coordinate needs an l-infinity ball: randomizer rinf, not %s", c.Randomizer)
	case c.LR == theorem3 && c.Radius == 0:
		return inputError("lr theorem3 needs radius: its D is the diameter of the feasible set")
	case c.Trust == "none" && c.Epsilon != 0:
		return inputError("epsilon = %v is a budget, but trust none has no privacy to budget", c.Epsilon)
	case c.Trust == "none" && c.Eps0 != 0:
		return inputError("eps0 = %v has no meaning with trust none", c.Eps0)
	}
	return nil
}

// resolvePopulation fixes n and what depends on it.
func (c *Config) resolvePopulation(examples int) error {
	if c.Population == 0 {
		c.Population = int64(examples)
	}
	if c.K > c.Population {
		return inputError("k = %d must be at most n = %d", c.K, c.Population)
	}
	if c.NMin > c.Population {
		return inputError("n-min = %d must be at most n = %d", c.NMin, c.Population)
	}
	if dp.Participation(c.Participation) == dp.Sampled && c.NMin > c.K {
		return inputError("n-min = %d must be at most k = %d", c.NMin, c.K)
	}
	return nil
}

// query is the question "what does this run cost?", as planned.
func (c Config) query() account.Query {
	return account.Query{
		Trust: dp.Trust(c.Trust), Participation: dp.Participation(c.Participation), Class: dp.Generic,
		Eps0: c.Eps0, Population: c.Population, Reports: c.K, Rate: c.Gamma, Dropout: c.Dropout,
		Rounds: c.Rounds, Delta: c.Delta,
	}
}

// resolvePrivacy chooses ε₀ and the number of rounds: for a budget, the one
// that is open is solved for; if both are open, ε₀ at the default rounds.
func (c *Config) resolvePrivacy(ctx context.Context) error {
	if c.Trust != "none" && c.Epsilon != 0 && (c.Eps0 == 0 || c.Rounds == 0) {
		solve := "rounds"
		if c.Eps0 == 0 {
			solve = "eps0"
			if c.Rounds == 0 {
				c.Rounds = defaultRounds
			}
		}
		solved, _, err := account.Plan(ctx, c.Epsilon, c.query(), solve)
		if err != nil {
			return inputError("epsilon = %v cannot be planned for: %v", c.Epsilon, err)
		}
		c.Eps0, c.Rounds = solved.Eps0, solved.Rounds
	}
	if c.Eps0 == 0 && c.Trust != "none" {
		c.Eps0 = defaultEps0
	}
	if c.Rounds == 0 {
		c.Rounds = defaultRounds
	}
	return nil
}

// resolveLearning chooses the parameters that cost no privacy.
func (c *Config) resolveLearning() {
	if c.EvalEvery == 0 {
		c.EvalEvery = max(1, c.Rounds/40)
	}
	if c.Clip == 0 {
		c.Clip = c.tuned().clip
	}
}

// defaultRate is the learning rate for a mechanism: the tuned one for the
// noise it was tuned at, and a smaller one for more noise. The power was read
// off PrivUnit's best rates at ε₀ = 3 and ε₀ = 2; EXPERIMENTS.md.
func (c Config) defaultRate(m randomizer.Mechanism) string {
	t := c.tuned()
	noise := m.MSE() / (c.Clip * c.Clip * float64(m.Dim()) * c.ExpectedReports())
	rate := t.rate * t.clip / c.Clip * math.Min(1, math.Pow(noise/t.noise, -0.7))
	return strconv.FormatFloat(rate, 'g', 2, 64)
}

// ExpectedReports is γn, the mean number of reports a round.
func (c Config) ExpectedReports() float64 {
	rate := 1.0
	switch dp.Participation(c.Participation) {
	case dp.Sampled:
		rate = float64(c.K) / float64(c.Population)
	case dp.CheckIn:
		rate = c.Gamma
	}
	return rate * (1 - c.Dropout) * float64(c.Population)
}

// norm is the p of the ball that the randomizer takes.
func (c Config) norm() float64 {
	if c.Randomizer == "rinf" {
		return math.Inf(1)
	}
	return 2
}

// newMechanism returns the randomizer and what one report promises; the zero
// promise without privacy.
func (c Config) newMechanism(dim int) (randomizer.Mechanism, dp.Report, error) {
	if c.Trust == "none" {
		m, err := randomizer.NewPlain(randomizer.PlainConfig{Dim: dim, Radius: c.Clip})
		return m, dp.Report{}, err
	}
	var m randomizer.Randomizer
	var err error
	if c.Randomizer == "rinf" {
		m, err = randomizer.NewRInf(randomizer.RInfConfig{Dim: dim, Eps0: c.Eps0, Radius: c.Clip})
	} else {
		m, err = randomizer.NewPrivUnit(randomizer.PrivUnitConfig{Dim: dim, Eps0: c.Eps0, Radius: c.Clip})
	}
	if err != nil {
		return nil, dp.Report{}, err
	}
	return m, m.Event(), nil
}

func (c Config) newOptimizer(m randomizer.Mechanism) (optimize.Optimizer, error) {
	var schedule optimize.Schedule
	var err error
	if c.LR == theorem3 {
		schedule, err = optimize.NewTheorem3(optimize.Theorem3Config{
			Diameter: 2 * c.Radius, Lipschitz: c.Clip, Norm: c.norm(), Dim: m.Dim(), MSE: m.MSE(), Reports: c.ExpectedReports(),
		})
	} else {
		schedule, err = optimize.ParsePiecewise(c.LR)
	}
	if err != nil {
		return nil, inputError("%v", err)
	}
	var from int64
	if last := int64(math.Round(c.Average * float64(c.Rounds))); last > 0 {
		from = c.Rounds - last + 1
	}
	return optimize.NewCLDPSGD(optimize.CLDPSGDConfig{
		Dim: m.Dim(), Schedule: schedule, Momentum: c.Momentum, Radius: c.Radius, AverageFrom: from,
	})
}

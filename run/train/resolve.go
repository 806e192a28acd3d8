package train

import (
	"cmp"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/learn/model"
	"github.com/riffle-dp/riffle/learn/optimize"
	"github.com/riffle-dp/riffle/mechanism/randomizer"
	"github.com/riffle-dp/riffle/mechanism/toeplitz"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
	"github.com/riffle-dp/riffle/protocol/client"
	"github.com/riffle-dp/riffle/protocol/mechanism"
	"github.com/riffle-dp/riffle/run/setting"
)

// Defaults, if neither the caller nor a budget decides.
const (
	defaultEps0 = 2.5
	// stepEps0 is for stepunit, whose reports have about as much noise at it as those of privunit
	// at defaultEps0.
	stepEps0 = 2.8
	// defaultRounds is for single reports; a vector sum has less noise in each round.
	defaultRounds, defaultSumRounds = 160, 120
	// defaultEpsilon is the budget of vector sums, from which their noise follows.
	defaultEpsilon = 1
)

// miniBatch is the number of clients in a round of a network without privacy, where asking
// all clients gains nothing.
const miniBatch = 64

// fill chooses the settings that follow from the flags, and from which images Data has.
func (c *Config) fill() {
	if c.Range != "" && c.Scale == "" {
		c.Scale = centred
	}
	if c.Gradients != "" || c.Model == external {
		c.fillExternal()
	}
	if c.Model == "" {
		switch c.Model = linear; {
		case c.isCSV():
		case c.ImageSize == "":
			c.Model = imageModel(c.Data)
		case c.ImageColours == rgb:
			c.Model = softmax
		default:
			c.Model = shapeLinear
		}
	}
	if c.planned() {
		c.fillPlanned()
	}
	if c.Every != 0 {
		if c.Participation == "" {
			c.Participation = dp.CheckIn
		}
		if c.Trust.Is(dp.SumsOnly) && c.NoiseBy == "" {
			c.NoiseBy = vecsum.ByAggregators
		}
		if c.Gamma == 0 && c.Participation == dp.CheckIn {
			c.Gamma = 1 / float64(c.Every)
		}
		c.Strategy = cmp.Or(c.Strategy, toeplitz.Band)
	}
	if c.Participation == "" {
		c.Participation = dp.All
		if !c.Trust.Is(dp.Protecting) && c.network() {
			c.Participation = dp.Sampled
			if c.K == 0 {
				c.K = miniBatch
			}
			if c.Rounds == 0 {
				c.Rounds = 8000
			}
		}
	}
	switch {
	case c.Proofs != "" && c.NoiseBy == "":
		c.NoiseBy = vecsum.ByAggregators
	case c.Proofs == "" && c.NoiseBy == vecsum.ByClients && !c.apart():
		c.NoiseBy = ""
	}
	switch {
	case c.Trust.Is(dp.SumsOnly) && c.Noise == "" && !c.NoiseOfSum():
		_, noise := c.Trust.Defaults()
		c.Noise = vecsum.NoiseKind(noise)
	case c.Trust.Is(dp.LocallyPrivate) && c.Randomizer == "":
		if c.Randomizer = "privunit"; c.histograms() && c.Trust.Is(dp.Shuffled) && !c.planned() {
			c.Randomizer = "stepunit"
		}
	}
	if !c.Momentum.Given && c.Gradients == "" { // a program says later what it computes
		c.Momentum = setting.Optional{Value: usualMomentum, Given: true}
		if c.histograms() && c.LR == "" {
			c.Momentum.Value = c.tuned().momentum
		}
	}
	if c.Trust.Is(dp.SumsOnly) && c.Epsilon == 0 && c.Sigma == 0 {
		c.Epsilon = defaultEpsilon
	}
	if c.TestFraction == 0 && (c.isCSV() || c.ImageSize != "") {
		c.TestFraction = 0.2
	}
}

// Check refuses values and combinations that make no sense, before anything is loaded. Its
// errors name each flag involved.
func (c Config) Check() error {
	if err := c.Fields().Check(); err != nil {
		return inputError("%v", err)
	}
	if err := c.checkExternal(); err != nil {
		return err
	}
	if err := c.checkEvery(); err != nil {
		return err
	}
	switch p := c.Participation; {
	case p == dp.Sampled && c.K == 0:
		return inputError("participation sampled needs k, the clients a round")
	case p == dp.Once && c.K == 0 && !c.planned():
		return inputError("participation once needs k, the least clients of a block")
	case p != dp.Sampled && p != dp.Once && c.K != 0:
		return inputError("k = %d goes with participation sampled or once, not %s", c.K, p)
	case p == dp.CheckIn && c.Gamma == 0:
		return inputError("participation check-in needs gamma, each client's chance to take part")
	case p != dp.CheckIn && c.Gamma != 0:
		return inputError("gamma = %v goes with participation check-in, not %s", c.Gamma, p)
	case c.ClipMode == client.ClipCoordinate && !math.IsInf(c.kind().Norm, 1):
		return inputError("clip-mode coordinate needs an l-infinity ball: randomizer rinf or rr, not %s", c.Randomizer)
	case c.Trust.Is(dp.SumsOnly) && (c.Randomizer != "" || c.Eps0 != 0):
		return inputError("randomizer and eps0 are of single reports; trust %s has the noise of sums: epsilon or sigma, and noise", c.Trust)
	case c.Messages > 1 && !c.Trust.Is(dp.LocallyPrivate):
		return inputError("messages = %d are reports that are private by themselves: trust %s has one of each client", c.Messages, c.Trust)
	case !c.Trust.Is(dp.SumsOnly) && (c.Sigma != 0 || c.Noise != "" || c.Honest != 0 || c.Transport != ""):
		return inputError("sigma, noise, honest and transport go with trust %s, not %s", dp.AnyTrust(dp.SumsOnly), c.Trust)
	case c.Proofs != "" && !c.Trust.Is(dp.SumsOnly):
		return inputError("proofs go with trust %s, not %s", dp.AnyTrust(dp.SumsOnly), c.Trust)
	case !c.Trust.Is(dp.SumsOnly) && c.NoiseBy != "":
		return inputError("noise-by goes with trust %s, not %s", dp.AnyTrust(dp.SumsOnly), c.Trust)
	case c.Proofs != "" && c.NoiseBy == vecsum.ByClients && !c.apart():
		return inputError("proofs %s bound the norm of what a client sends, and a client's own noise is longer than its gradient: leave out noise-by clients", c.Proofs)
	case c.Proofs != "" && c.Honest != 0 && !c.apart():
		return inputError("honest = %v is of clients' noise: with proofs nobody relies on it; colluders of a coordinator's configuration are those who tell others what they know", c.Honest)
	case c.Proofs != "" && c.Epsilon > mechanism.MostEps:
		return inputError("epsilon = %v must be at most %d, up to which sums with proofs are counted", c.Epsilon, int(mechanism.MostEps))
	case c.NoiseOfSum() && c.Epsilon > vecsum.MostEps:
		return inputError("epsilon = %v must be at most %d, up to which noise that is no part of clients' vectors is counted", c.Epsilon, vecsum.MostEps)
	case c.apart() && c.Noise != "":
		return inputError("noise = %s is a part of clients' vectors: with every = %d they send discrete Gaussian noise apart", c.Noise, c.Every)
	case c.NoiseOfSum() && c.Noise != "":
		return inputError("noise = %s is of clients: with noise-by aggregators each aggregator adds discrete Gaussian noise", c.Noise)
	case c.apart() && c.Transport != "":
		return inputError("transport %s carries noise that is a part of clients' vectors: with every = %d a simulation draws the noise that they send apart", c.Transport, c.Every)
	case c.NoiseOfSum() && c.Transport != "":
		return inputError("transport %s carries clients' own noise: with noise-by aggregators a simulation draws the aggregators' noise", c.Transport)
	case c.NoiseOfSum() && c.planned():
		return inputError("noise-by aggregators does not go with optimizer %s, whose bound on the loss is for noise that each report brings along: aggregators add the same noise to a round of few as of many; use %s, adam, or riffle solve, whose rounds have a least number of clients", c.Optimizer, cldpSGD)
	case c.Transport == splitAndMix && c.Epsilon == 0:
		return inputError("transport split-and-mix needs epsilon, a budget: what it adds to delta grows with e^epsilon")
	case c.Noise == vecsum.DiscreteGaussian && c.Transport == "":
		return inputError("noise discrete-gaussian needs transport shares or split-and-mix: its sum has no law of its own to draw from")
	case c.Transport == singleBits && c.Noise != vecsum.Binomial:
		return inputError("transport bits carries binomial noise, not %s, which has no largest value", c.Noise)
	case c.Bits != 0 && !c.kind().Bits:
		return inputError("bits = %d goes with randomizer rinf or r1, not %s", c.Bits, c.Randomizer)
	case c.Encoding != "" && c.kind().Name != "" && !c.kind().Seeds, c.Encoding != "" && c.Trust.Is(dp.SumsOnly):
		return inputError("encoding %s goes with randomizer privunit or stepunit", c.Encoding)
	case c.Encoding != "" && !c.Trust.Is(dp.Protecting):
		return inputError("encoding %s has no meaning with trust none", c.Encoding)
	case c.Eps0 != 0 && c.Eps0 < randomizer.MinEps0:
		return inputError("eps0 = %v must lie between 2^-20 and %d", c.Eps0, dp.MaxEps0)
	case (c.Steps != 0 || c.Edges != "" && c.Encoding != randomizer.Seed) && !c.kind().Steps:
		return inputError("steps and edges go with randomizer stepunit (edges also with encoding seed)")
	case c.Loss != "" && c.Loss != crossEntropy && c.Model != linear:
		return inputError("loss %s goes with model linear, not %s", c.Loss, c.Model)
	case c.Lambda != 0 && (c.Model != linear || c.Loss == crossEntropy):
		return inputError("lambda = %v goes with model linear and a loss other than cross-entropy", c.Lambda)
	case c.Public != 0 && c.Model != pcaMLP:
		return inputError("public = %d goes with model pca-mlp, not %s", c.Public, c.Model)
	case c.Hidden != 0 && c.Model != pcaMLP:
		return inputError("hidden = %d goes with model pca-mlp, not %s", c.Hidden, c.Model)
	case c.isCSV() && c.Label == "":
		return inputError("data %s needs label, the column to predict", c.Data)
	case !c.isCSV() && c.tableOnly() != "":
		return inputError("%s goes with a CSV file, not with data %s", c.tableOnly(), c.Data)
	case c.Classes != "" && c.regression():
		return inputError("classes goes with classes, and loss %s predicts numbers", c.Loss)
	case !c.isCSV() && (c.Label != "" || c.Range != "" || c.TestFraction != 0 && c.ImageSize == ""):
		return inputError("label, range and test-fraction go with a CSV file (test-fraction with image-size too), and data is %s", c.Data)
	case c.isCSV() && c.ImageSize != "":
		return inputError("image-size goes with a folder of PNG and JPEG files, and data is %s", c.Data)
	case c.ImageColours != "" && c.ImageSize == "":
		return inputError("image-colours goes with image-size, the size of a folder's PNG and JPEG files")
	case c.Scale != "" && c.Range == "":
		return inputError("scale %s needs range, the public ranges of columns", c.Scale)
	case c.isCSV() && (c.histograms() || c.Model == cnn):
		return inputError("model %s takes images; data %s is a table: use linear, softmax or pca-mlp", c.Model, c.Data)
	case c.LR == theorem3 && c.Radius == 0:
		return inputError("lr theorem3 needs radius: its D is the diameter of the feasible set")
	case c.LR == theorem3 && c.Optimizer == adam:
		return inputError("lr theorem3 is of optimizer %s: the steps of adam have a length of their own", cldpSGD)
	case !c.Trust.Is(dp.Protecting) && c.Epsilon != 0:
		return inputError("epsilon = %v is a budget, but trust none has no privacy to budget", c.Epsilon)
	case !c.Trust.Is(dp.Protecting) && c.Eps0 != 0:
		return inputError("eps0 = %v has no meaning with trust none", c.Eps0)
	}
	if err := c.checkWeights(); err != nil {
		return err
	}
	if err := c.checkEvaluate(); err != nil {
		return err
	}
	if c.planned() {
		return c.checkPlanned()
	}
	return nil
}

// checkEvery checks what concerns noise that is correlated over rounds.
func (c Config) checkEvery() error {
	switch {
	case c.Every == 0 && c.Strategy != "":
		return inputError("strategy %s goes with every, the number of rounds of which a client takes part in one at most", c.Strategy)
	case c.Every == 0:
		return nil
	case !c.NoiseOfSum():
		return inputError("every = %d goes with trust %s: sums have the noise that is correlated over rounds", c.Every, dp.AnyTrust(dp.SumsOnly))
	case c.Participation != dp.CheckIn:
		return inputError("every = %d goes with participation %s, where clients decide by themselves, not %s", c.Every, dp.CheckIn, c.Participation)
	case c.Gamma != 1/float64(c.Every):
		return inputError("gamma = %v goes with coins: with every = %d clients count rounds, and 1 of %d comes in each", c.Gamma, c.Every, c.Every)
	case c.Rounds == 0 && c.Sigma != 0:
		return inputError("sigma = %v with every needs rounds, for which the noise is correlated", c.Sigma)
	case c.Rounds > toeplitz.MostWeights:
		return inputError("rounds = %d with every must be at most %d", c.Rounds, toeplitz.MostWeights)
	case c.Tokens && !c.apart():
		return inputError("tokens do not go with every and noise-by %s: how many clients a round has costs nothing there", vecsum.ByAggregators)
	case c.Evaluate != "":
		return inputError("evaluate %s measures each round by itself, and the noise of every = %d is small in sums over rounds only", c.Evaluate, c.Every)
	}
	return nil
}

// correlation returns how a run's noise is correlated over its rounds.
func (c PrivacyConfig) correlation() (toeplitz.Strategy, error) {
	return toeplitz.New(c.Strategy, c.Rounds, c.Every)
}

// resolveClients fixes n.
func (c *Config) resolveClients(examples int) error {
	m := max(1, c.PerClient)
	if m > int64(examples) {
		return inputError("examples-per-client = %d must be at most the %d examples there are", m, examples)
	}
	if c.Population == 0 {
		c.Population = int64(examples) / m
	}
	return nil
}

// resolvePopulation fixes n and the settings that depend on it.
func (c *Config) resolvePopulation(examples int) error {
	if err := c.resolveClients(examples); err != nil {
		return err
	}
	if c.K > c.Population {
		if c.Trust.Is(dp.Protecting) || c.K != miniBatch {
			return inputError("k = %d must be at most n = %d", c.K, c.Population)
		}
		c.K = c.Population
	}
	least, err := c.leastReports()
	if err != nil {
		return err
	}
	c.NMin = least
	if c.NMin > c.Population {
		return inputError("n-min = %d must be at most n = %d", c.NMin, c.Population)
	}
	if c.Participation == dp.Sampled && c.NMin > c.K {
		return inputError("n-min = %d must be at most k = %d", c.NMin, c.K)
	}
	return nil
}

// resolveLearning chooses the parameters that cost no privacy.
func (c *Config) resolveLearning(m *model.Model) {
	if c.EvalEvery == 0 {
		c.EvalEvery = max(1, c.Rounds/40)
	}
	if c.Clip == 0 {
		if c.Clip = c.tuned().clip; c.plainTable() {
			c.Clip = c.tableClip(m)
		}
	}
	c.resolveEvaluate(m)
}

// newCLDPSGD returns the optimiser for any model.
func (c Config) newCLDPSGD(m randomizer.Mechanism, dim int, start []float32) (*optimize.Optimizer, error) {
	var rates optimize.Schedule
	var err error
	if c.LR == theorem3 {
		rates, err = optimize.NewTheorem3(optimize.Theorem3Config{
			Diameter: 2 * c.Radius, Lipschitz: c.Clip, Norm: c.norm(), Dim: dim, MSE: c.clientMSE(m), Reports: c.expectedReports(),
		})
	} else {
		rates, err = optimize.ParseSchedule(c.LR)
	}
	if err != nil {
		return nil, inputError("%v", err)
	}
	var from int64
	if last := int64(math.Round(c.Average * float64(c.Rounds))); last > 0 {
		from = c.Rounds - last + 1
	}
	var wide []float64 // nil: zeros
	if slices.ContainsFunc(start, func(v float32) bool { return v != 0 }) {
		wide = make([]float64, len(start))
		for j, v := range start {
			wide[j] = float64(v)
		}
	}
	var second float64
	if c.Optimizer == adam {
		second = adamSecond
	}
	return optimize.NewCLDPSGD(optimize.CLDPSGDConfig{
		Dim: dim, Schedule: rates, Momentum: c.Momentum.Value, Second: second, Radius: c.Radius, AverageFrom: from, Start: wide,
	})
}

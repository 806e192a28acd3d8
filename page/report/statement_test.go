package report

import (
	"math"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp"
)

// The most powerful test between two laws that are exactly (ε, δ) apart must
// stay within detection. Two families, whose power has its own formula.
func TestDetectionCoversRealTests(t *testing.T) {
	tail := func(x float64) float64 { return math.Erfc(x/math.Sqrt2) / 2 }
	for _, eps := range []float64{0, 0.1, 0.5, 0.784, 1, 2, 5, 20} {
		// Binary randomized response: accept "1" with the chance that spends alpha.
		p, q := 1/(1+math.Exp(-eps)), 1/(1+math.Exp(eps))
		for _, alpha := range []float64{0.001, 0.05, 0.3, 0.7} {
			power := p * alpha / q
			if alpha > q {
				power = p + q*(alpha-q)/p
			}
			got := detection(eps, 0, alpha)
			if got < power-1e-12 {
				t.Errorf("ε = %v, α = %v: bound %v below binary response's power %v", eps, alpha, got, power)
			}
			if got > power+1e-12 { // the bound is attained, so it must not be loose either
				t.Errorf("ε = %v, α = %v: bound %v above the attained %v", eps, alpha, got, power)
			}
		}
		// Two Gaussians at distance mu, with their exact δ(ε).
		for _, mu := range []float64{0.2, 1, 3} {
			delta := tail(eps/mu-mu/2) - math.Exp(eps)*tail(eps/mu+mu/2)
			for x := -3.0; x < 4; x += 0.25 {
				alpha, power := tail(x), tail(x-mu)
				if got := detection(eps, delta, alpha); got < power-1e-12 {
					t.Errorf("ε = %v, μ = %v, α = %v: bound %v below power %v", eps, mu, alpha, got, power)
				}
			}
		}
	}
}

// The charged ε₀ is shown, beside the asked one if that differs.
func TestChargedAndAsked(t *testing.T) {
	for _, c := range []struct {
		eps0, asked float64
		messages    int64
		want        string
	}{
		{3.00000018, 3, 0, "3.0000002 (eps0 3, and what covers rounding)"},
		{3.00000018, 3, 2, "6.0000004: 2 messages of 3.0000002 (eps0 3, and what covers rounding)"},
		{3, 3, 0, "3"},
		{3.00000018, 0, 0, "3.0000002"},
	} {
		p := example().Privacy
		p.Eps0, p.Asked, p.Messages = c.eps0, c.asked, c.messages
		if got := promise(p); got.Value != c.want {
			t.Errorf("%+v: %q", c, got.Value)
		}
	}
}

func plainWords(p Privacy) string {
	s := newStatement(p)
	var b strings.Builder
	b.WriteString(s.Lead + "\n")
	for _, part := range s.Parts {
		b.WriteString(part.Heading + ": " + strings.Join(part.Text, " ") + "\n")
	}
	return strings.ReplaceAll(b.String()+s.Note, "\u00a0", " ")
}

func TestStatement(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(*Privacy)
		says, denies []string
	}{
		"shuffle": {func(*Privacy) {}, []string{
			"Proved: differential privacy with ε = 0.7842 and δ = 10⁻⁵ for each of 60,000 clients, over the whole run of 80 rounds.",
			"data is replaced by any other data (replace-one adjacency)", "The number of clients is public",
			"the shuffled reports of every round", "That is the coordinator itself",
			"at most e^ε = 2.2 times as likely in one case", "notices the difference at most 11 % of the time",
			"The shuffler is honest", "ε₀ = 3 per report, a factor of 20.1; over 80 reports of a client that adds up to 240,",
			"Every client reports exactly once in every round", "(privunit, ε₀ = 3)",
			"the shuffler sees who sends", "Whoever has the seed can take the noise away again"},
			[]string{"up to 80 reports", "no promise"}},
		"local": {func(p *Privacy) { p.Trust = dp.Local }, []string{"From everyone else: the coordinator", "the coordinator sees it"},
			[]string{"shuffler is honest", "the shuffler sees"}},
		"sampled": {func(p *Privacy) { p.Participation = dp.Sampled }, []string{"who was drawn stays secret", "up to 80 reports of a client"},
			[]string{"exactly once in every round"}},
		"check-in": {func(p *Privacy) { p.Participation = dp.CheckIn }, []string{"how it fell stays secret", "up to 80 reports"}, nil},
		"once":     {func(p *Privacy) { p.Participation = dp.Once }, []string{"in one round only"}, []string{"80 reports"}},
		"remove":   {func(p *Privacy) { p.Adjacency = dp.AddRemoveOne }, []string{"takes no part (add-or-remove-one"}, []string{"replace-one", "number of clients is public"}},
		"messages": {func(p *Privacy) { p.Messages = 8 }, []string{
			"each message's own noise: ε₀ = 3 for each of 8, together 24 per report, a factor of 2.65·10¹⁰; over 80 reports of a client that adds up to 1920,",
			"nobody can tell which 8 messages of a round come from one client", "each of its 8 messages of a round (privunit, ε₀ = 3)"}, []string{"per report, a factor of 20.1"}},
		"rounded": {func(p *Privacy) { p.Eps0, p.Asked = 3.00000018, 3 }, []string{
			"ε₀ = 3.0000002 per report, a factor of 20.1; over 80 reports of a client that adds up to 240.00002,", "(privunit, ε₀ = 3.0000002)"}, nil},
		"messages, sampled": {func(p *Privacy) { p.Messages, p.Participation = 2, dp.Sampled }, []string{"it may be known"},
			[]string{"stays secret", "exactly once in every round"}},
		"messages, once": {func(p *Privacy) { p.Messages, p.Participation = 2, dp.Once }, []string{"in one round only"}, []string{"it may be known"}},
		"numeric":        {func(p *Privacy) { p.Status = dp.Numeric }, []string{"Verified numerically, not proved"}, []string{"Proved:"}},
		"approximate": {func(p *Privacy) { p.Status = dp.Approximation }, []string{"An approximation, not a guarantee"},
			[]string{"Proved:"}},
		"assumes":     {func(p *Privacy) { p.Assumes = "all is well" }, []string{"On the way, all is well."}, nil},
		"deployed":    {func(p *Privacy) { p.Simulated = false }, nil, []string{"simulation", "seed"}},
		"large":       {func(p *Privacy) { p.Epsilon = 20 }, []string{"100 % of the time", "next to no promise"}, nil},
		"nothing yet": {func(p *Privacy) { p.Rounds, p.Epsilon = 0, 0 }, []string{"No round was released"}, []string{"Proved"}},
		"no bound":    {func(p *Privacy) { p.Epsilon = math.Inf(1) }, []string{"No finite ε is known", "nothing is promised"}, []string{"Proved:", "% of the time"}},
		"none": {func(p *Privacy) { *p = Privacy{Trust: dp.None, Population: 5, Epsilon: math.Inf(1), Simulated: true} },
			[]string{"This run gives no privacy"}, []string{"Proved", "ε", "they do not protect"}},
	} {
		p := example().Privacy
		c.change(&p)
		if err := p.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := plainWords(p)
		for _, s := range c.says {
			if !strings.Contains(got, s) {
				t.Errorf("%s: does not say %q:\n%s", name, s, got)
			}
		}
		for _, s := range append(c.denies, "NaN", "Inf", "%!") {
			if strings.Contains(got, s) {
				t.Errorf("%s: says %q:\n%s", name, s, got)
			}
		}
	}
}

// Noise of the aggregators is no client's, and needs one of them.
func TestStatementOfSumNoise(t *testing.T) {
	p := Privacy{Trust: dp.Distributed, Participation: dp.All, Adjacency: dp.ReplaceOne, Population: 50, Rounds: 2, ReportsPerClient: 2,
		Randomizer: "vector-sum-by-aggregators", Sigma: 7.5, SumNoise: true, Epsilon: 1, Delta: 1e-5, Method: "gauss-pld", Source: "theorem", Status: dp.Proved}
	text := strings.Join(assumptions(p), "\n") + summary(Run{Privacy: p}) + promise(p).Name
	for _, want := range []string{"One of the two aggregators is honest", "σ = 7.5 clip norms", "nothing else protects it", "clips and rounds", "each of two aggregators adds noise", "Noise of each aggregator"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	for _, not := range []string{"other clients of a round", "one client's noise", "randomizes", "each adding noise"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in %s", not, text)
		}
	}
}

// Noise that clients send needs a number of them, and no aggregator draws any.
func TestStatementOfClientsCorrelatedNoise(t *testing.T) {
	p := Privacy{Trust: dp.Distributed, Participation: dp.CheckIn, Adjacency: dp.ReplaceOne, Population: 50, Rounds: 20, Every: 10, Honest: 4,
		Randomizer: "vector-sum-by-clients", Sigma: 7.5, SumNoise: true, Epsilon: 1, Delta: 1e-5, Method: "gauss-pld", Source: "theorem", Status: dp.Proved}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(assumptions(p), "\n") + summary(Run{Privacy: p}) + promise(p).Name
	for _, want := range []string{"at least 4 clients send noise", "worth σ = 7.5 clip norms together", "none of fewer clients than the settings say", "shares of sums without noise",
		"Each client adds noise, which is correlated over rounds", "draws its noise, and shares both", "Noise of 4 clients in a release"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	for _, not := range []string{"coin", "stays secret", "adds its noise", "each aggregator"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in %s", not, text)
		}
	}
}

// Who counts its own rounds flips no coin, and keeps no secret of them.
func TestStatementOfCorrelatedNoise(t *testing.T) {
	p := Privacy{Trust: dp.Distributed, Participation: dp.CheckIn, Adjacency: dp.ReplaceOne, Population: 50, Rounds: 20, Every: 10,
		Randomizer: "vector-sum-by-aggregators", Sigma: 7.5, SumNoise: true, Epsilon: 1, Delta: 1e-5, Method: "gauss-pld", Source: "theorem", Status: dp.Proved}
	if err := p.check(); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(assumptions(p), "\n") + summary(Run{Privacy: p}) + promise(p).Name + takingPart(p)
	for _, want := range []string{"at most one of any 10 rounds", "who takes part may be known", "shares of sums without noise", "nothing else protects it", "correlated over rounds", "in a release", "in at most one of 10 rounds"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	for _, not := range []string{"coin", "stays secret", "than the settings say"} {
		if strings.Contains(text, not) {
			t.Errorf("%q is in %s", not, text)
		}
	}
	for _, wrong := range []func(p *Privacy){func(p *Privacy) { p.Every = 1 }, func(p *Privacy) { p.Participation = dp.All }, func(p *Privacy) { p.SumNoise = false },
		func(p *Privacy) { p.Honest = -1 }, func(p *Privacy) { p.Every, p.Honest = 0, 3 }} {
		q := p
		wrong(&q)
		if q.check() == nil {
			t.Errorf("%+v is accepted", q)
		}
	}
}

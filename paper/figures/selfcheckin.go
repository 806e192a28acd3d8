package figures

import (
	"context"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

const selfCheckIn = "Self Check-In"

// checkIn returns the question about coins of chance γ, at δ = 1/n.
func checkIn(eps0, rate float64, n, rounds int64) account.Query {
	q := account.Query{Participation: dp.CheckIn, Eps0: eps0, Population: n, Gamma: rate, Rounds: rounds}
	if n > 0 {
		q.Delta = 1 / float64(n)
	}
	return q
}

// distributed returns the question about Gaussian sums of clients who check in: Figure 2a.
func distributed(rounds int64) account.Query {
	return account.Query{Trust: dp.Distributed, Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 1, Population: 6e5, Gamma: 1e-3, Rounds: rounds, Delta: 1e-8}
}

func checkInFigures() []figure {
	curves := join([]bound{{"sci-thm2", "the paper, Theorem 2, repaired", false}, {"sci-thm1", "the paper, Theorem 1, repaired", false},
		{"sci-thm3", "the paper, Theorem 3, converted", false}, {"checkin-strong", "strong composition", false}}, ourBounds,
		[]bound{{best, "riffle, best", true}, {"checkin-kov", "optimal composition", true}, {"blanket-rdp", "riffle, Rényi", true}, {"clones-pld", "FMT pair, PLD", true},
			{"sci-thm1-printed", "Theorem 1 as printed", true}, {"sci-thm2-printed", "Theorem 2 as printed", true}})
	notes := []string{
		"Theorem 2 is drawn without its misprints and with inclusion k/n for γ: as printed it is unsound (column sci-thm2-printed).",
		"Theorem 3 bounds a divergence from below; converted to ε it bounds nothing: at T = 100 in Figure 1c it lies above riffle's proved ε.",
		"riffle's lower bound is that of 3-ary randomized response, and of binary randomized response where the ternary one has too many outcomes to sum, above some 1e4 reports a round: a kink.",
		"The paper's strong composition follows Girgis et al. (ISIT 2021), whose constants the text does not give; riffle takes the numerical clones bound at the window of k that holds with high probability, with the best split of δ, which is tighter.",
		bestNote, rangeNote}
	gauss := join([]bound{{"sci-thm4-eq10", "the paper, eq. 10 as printed", false}, {"sci-thm4-eq11", "the paper, eq. 11 as printed", false}, {"sci-thm4", "the paper, Theorem 4, repaired", false},
		{"gauss-strong", "strong composition", false}}, ourBounds, []bound{{best, "riffle, best", true}, {"gauss-rdp", "riffle, Rényi", true}})
	list := []struct {
		name, where, title string
		notes              []string
		sweep              sweep
	}{
		{"sci-1a", "Figure 1a", "Shuffled check-in: ε₀ = 1, γ = 0.001, T = 1e5, δ = 1/n", notes,
			sweep{checkIn(1, 1e-3, 0, 1e5), "n", clientsAxis, grid(1e5, 1e8, 13),
				func(q *account.Query, x float64) { q.Population, q.Delta = int64(x), 1/x }, curves}},
		{"sci-1b", "Figure 1b", "Shuffled check-in: ε₀ = 1, n = 1e7, T = 1e5, δ = 1/n", notes,
			sweep{checkIn(1, 0, 1e7, 1e5), "gamma", "chance γ of a client to take part in a round", gridOf(1e-4, 1e-1, 13),
				func(q *account.Query, x float64) { q.Gamma = x }, curves}},
		{"sci-1c", "Figure 1c", "Shuffled check-in: ε₀ = 1, n = 1e7, γ = 0.001, δ = 1/n",
			append([]string{"The printed caption has “n = 1” for both ε₀ and n; drawn are the values of Figures 1a and 1b."}, notes...),
			sweep{checkIn(1, 1e-3, 1e7, 0), "rounds", roundsAxis, grid(100, 1e6, 13), rounds, curves}},
		{"sci-2a", "Figure 2a", "Distributed check-in: σ = 1, n = 6e5, γ = 0.001, δ = 1e-8",
			[]string{"Equation 10 drops k = 0 and uses γ for every k; equation 11 as well: both are printed formulas, not guarantees. “Repaired” has k/n and k = 0.",
				"riffle's strong composition starts from the exact Gaussian curve and takes the best split of δ; the paper's, of which the split is not given, is looser.",
				"The printed equations start at .8, because the rare round of one report decides them at every order; riffle's privacy-loss distribution counts it as the rare event that it is.", bestNote, rangeNote},
			sweep{distributed(0), "rounds", roundsAxis, grid(1, 1e6, 13), rounds, gauss}},
	}
	var out []figure
	for _, l := range list {
		out = append(out, figure{Name: l.name, Paper: selfCheckIn, Where: l.where, Title: l.title,
			Caption: l.title + ". Replace-one, nats; every client flips a coin of chance γ in each of T rounds.", Notes: l.notes,
			draw: func(ctx context.Context, d *desk) (data, error) { return l.sweep.data(ctx, d) }})
	}
	return out
}

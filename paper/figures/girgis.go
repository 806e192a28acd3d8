package figures

import (
	"context"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
)

const girgis = "Girgis, Data, Diggavi 2021"

func rounds(q *account.Query, x float64)  { q.Rounds = int64(x) }
func clients(q *account.Query, x float64) { q.Population = int64(x) }

const (
	roundsAxis  = "rounds T"
	clientsAxis = "clients n"
)

// sampled returns the question about k of n clients a round, at δ = 1e-8.
func sampled(eps0 float64, n, k, rounds int64) account.Query {
	return account.Query{Participation: dp.Sampled, Eps0: eps0, Population: n, Reports: k, Rounds: rounds, Delta: 1e-8}
}

// Curves of Figures 2, 3 and 4; the last ones are in the CSV only.
var (
	girgisOwn = []bound{{"girgis-thm1", "the paper, Theorem 1", false}}
	girgisLow = []bound{{"girgis-thm2", "the paper, Theorem 2, converted", false}}
	girgisWBK = []bound{{"gddsk-wbk-plain", "CCS 2021 with WBK 2019, plain", false}, {"gddsk-wbk", "CCS 2021 with WBK 2019, whole", false}}
	girgisFMT = []bound{{"clones-closed-strong", "FMT closed form, strong comp.", false}, {"clones-numeric-strong", "FMT numerically, strong comp.", false}}
	ourBounds = []bound{{upper, "riffle, proved", false}, {lower, "riffle, lower bound", false}}
	alsoKnown = []bound{{best, "riffle, best", true}, {"blanket-rdp", "riffle, Rényi", true}, {"clones-pld", "FMT pair, PLD", true},
		{"clones-rdp", "FMT pair, Rényi", true}, {"clones-closed-kov", "FMT closed form, optimal comp.", true},
		{"clones-numeric-kov", "FMT numerically, optimal comp.", true}, {"balle-bennett", "BBGN 2019, Bennett", true}, {"fmt23", "FMT 2023", true}, {"efmrtt", "EFMRTT 2019", true}}
)

func join(lists ...[]bound) []bound {
	var out []bound
	for _, l := range lists {
		out = append(out, l...)
	}
	return out
}

// rangeNote says what the papers' texts leave open, as the texts that we have lack the
// pictures.
const rangeNote = "The text gives the parameters, not the ends of the axes: those are riffle's choice, about the quoted points."

const bestNote = "riffle's best bound equals its proved one: every bound in use has a proof. Both are in the CSV."

const girgisLowNote = "Theorem 2 bounds a Rényi divergence from below; converted to ε it bounds nothing (it may lie above a true ε). riffle's lower bound is what a concrete mechanism, 3-ary randomized response, provably costs."

func girgisFigures() []figure {
	closed := "The closed form of [FMT] holds for ε₀ ≤ log(k/(16 log(4/δ))) only. Where it does not, as at k = 1000 and ε₀ = 2, its curve is strong composition of rounds without any amplification by shuffling, which is what the paper compares with. In Figure 3a it falls silent between T = 1.6e4 and 2.5e4: the step. The same theorem evaluated numerically is the dashed green curve."
	plain := "“CCS 2021 with WBK 2019, plain” leaves 4(e^ε(2) − 1) out of the minimum in WBK's Theorem 9. Only so do the paper's factor of 2.5 and its order of the curves in Figure 2b come out; with the whole theorem the combination is about as good as Theorem 1 at ε₀ = 2 and behind it at ε₀ = 1. Orders up to 1,024 are tried, which bends its curve up where ε is smallest."
	both := []string{closed, plain, girgisLowNote, bestNote, rangeNote}
	one := []string{closed, bestNote, rangeNote}
	four := []string{"Conditions (8) and (9) of the paper fail at k = 1000, ε₀ = 3: the baseline counts no amplification by shuffling.",
		girgisLowNote, bestNote, rangeNote}
	two, three := join(girgisOwn, girgisLow, girgisWBK, girgisFMT, ourBounds, alsoKnown), join(girgisOwn, girgisFMT, ourBounds, alsoKnown)
	fourth := join(girgisOwn, girgisLow, girgisFMT, ourBounds, alsoKnown)
	overT := func(q account.Query, b []bound) sweep {
		return sweep{q, "rounds", roundsAxis, grid(100, 1e5, 16), rounds, b}
	}
	overN := func(q account.Query, from float64, b []bound) sweep {
		return sweep{q, "n", clientsAxis, grid(from, 1e8, 16), clients, b}
	}
	list := []struct {
		name, where, title string
		notes              []string
		sweep              sweep
	}{
		{"g21-2a", "Figure 2a", "ε₀ = 2, γ = 0.001, n = 1e6", both, overT(sampled(2, 1e6, 1e3, 0), two)},
		{"g21-2b", "Figure 2b", "ε₀ = 1, γ = 0.001, n = 1e7", both, overT(sampled(1, 1e7, 1e4, 0), two)},
		{"g21-2c", "Figure 2c", "ε₀ = 2, γn = 1000, T = 1e5", both, overN(sampled(2, 0, 1e3, 1e5), 1e5, two)},
		{"g21-3a", "Figure 3a (arXiv)", "ε₀ = 1, γ = 0.001, n = 1e6", one, overT(sampled(1, 1e6, 1e3, 0), three)},
		{"g21-3b", "Figure 3b (arXiv)", "ε₀ = 1, γ = 0.001, n = 1e7", one, overT(sampled(1, 1e7, 1e4, 0), three)},
		{"g21-3c", "Figure 3c (arXiv)", "ε₀ = 1, γn = 10000, T = 1e5", one, overN(sampled(1, 0, 1e4, 1e5), 1e5, three)},
		{"g21-4a", "Figure 4a (arXiv)", "ε₀ = 3, γ = 0.001, n = 1e6", four, overT(sampled(3, 1e6, 1e3, 0), fourth)},
		{"g21-4b", "Figure 4b (arXiv)", "ε₀ = 3, γ = 0.0001, n = 1e7", four, overT(sampled(3, 1e7, 1e3, 0), fourth)},
		{"g21-4c", "Figure 4c (arXiv)", "ε₀ = 3, γn = 1000, T = 1e5", four, overN(sampled(3, 0, 1e3, 1e5), 1e5, fourth)},
	}
	var out []figure
	for _, l := range list {
		out = append(out, figure{Name: l.name, Paper: girgis, Where: l.where, Title: "Composed subsampled shuffles: " + l.title,
			Caption: "Approximate DP of T rounds, k = γn of n clients a round, δ = 1e-8, replace-one, nats: " + l.title + ".",
			Notes:   l.notes,
			draw:    func(ctx context.Context, d *desk) (data, error) { return l.sweep.data(ctx, d) }})
	}
	return out
}

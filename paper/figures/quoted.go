package figures

import (
	"context"
	"math"

	"github.com/riffle-dp/riffle/account"
	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/dp/gdp"
)

// e1 and e2 return the questions about Girgis et al.'s experiments.
func e1(rounds int64) account.Query {
	return account.Query{Participation: dp.Sampled, Eps0: 1.5, Population: 6e4, Reports: 1e4, Rounds: rounds, Delta: 1e-5}
}

func e2(rounds int64) account.Query {
	return account.Query{Participation: dp.Sampled, Eps0: 2, Population: 6e4, Reports: 2e3, Rounds: rounds, Delta: 1e-5}
}

// e4 returns the question about Self Check-In's second experiment, with Gaussian reports that
// are (8, 1e-8)-LDP, as in experiment e4: the clip norm is 1, so replacing a vector moves a
// report by at most 2.
func e4(delta float64) (account.Query, error) {
	mu, err := gdp.Calibrate(dp.Guarantee{Eps: 8, Delta: 1e-8, Adjacency: dp.ReplaceOne})
	return account.Query{Class: dp.Gaussian, Participation: dp.CheckIn, Sigma: 2 / float64(mu), Population: 1e7, Gamma: 1e-4, Rounds: 2000, Delta: delta}, err
}

const (
	sameRound = "riffle's proved ε at the same round"
	overOurs  = "the same baseline over riffle's proved ε"
	reaching  = "The paper gives ε where the accuracy is reached, within 200 epochs; computed is its formula at the last round within that ε. "
	bestSeen  = "best recorded mean accuracy with riffle's proved ε within the stated ε, here and in e7"
	asRecords = "Accuracy as recorded; EXPERIMENTS.md has what the paper's settings give."
)

// claims lists the papers' statements about their figures.
func claims() []claim {
	var out []claim
	for _, list := range []struct {
		paper  string
		claims []claim
	}{{girgis, girgisClaims()}, {chenCaoGe, eabClaims()}, {selfCheckIn, checkInClaims()}} {
		for _, c := range list.claims {
			c.Paper = list.paper
			out = append(out, c)
		}
	}
	return out
}

func girgisClaims() []claim {
	a, b := sampled(2, 1e6, 1e3, 1e5), sampled(1, 1e7, 1e4, 1e5)
	return []claim{
		{ID: "g21-14x", Where: "§1, §4, Figure 2a", Stated: 14, Tolerance: .04,
			Quote:   "we save a factor of 14× compared to the bound on DP [24] with strong composition",
			Methods: "clones-closed-strong / girgis-thm1", Ours: overOurs, Unit: Ratio,
			Why:     "At k = 1000 and ε₀ = 2 the closed form of [24] is silent, so that this baseline counts no amplification by shuffling at all. The same theorem evaluated numerically (clones-numeric-strong) gives 2.522, a factor of 2.4.",
			compute: ratio(a, "clones-closed-strong", "girgis-thm1")},
		{ID: "g21-2.5x", Where: "§1, §4, Figure 2a (NeurIPS)", Stated: 2.5, Tolerance: .04,
			Quote:   "2.5× compared to the bound on the RDP given in [29] with subsampled RDP [43]",
			Methods: "gddsk-wbk-plain / girgis-thm1", Ours: overOurs, Unit: Ratio,
			Why:     "Comes out only if 4(e^ε(2) − 1) is left out of the minimum in [43], Theorem 9. With the whole theorem (gddsk-wbk, 1.024) the ratio is .984: here Theorem 1 is no better than what was known.",
			compute: ratio(a, "gddsk-wbk-plain", "girgis-thm1")},
		{ID: "g21-2b-order", Where: "§4, Figure 2b (NeurIPS)", Stated: 1, Below: true,
			Quote:   "[24] with strong composition behaves better than [29] with [43] at k = 1e4 (a ratio below 1; T = 1e5 here)",
			Methods: "clones-closed-strong / gddsk-wbk-plain", Ours: overOurs, Unit: Ratio,
			Why:     "So at every T drawn. With the whole Theorem 9 (gddsk-wbk) it is the other way round at T = 1e5: .351 against .5654.",
			compute: ratio(b, "clones-closed-strong", "gddsk-wbk-plain")},
		{ID: "g21-4-silent", Where: "§4, Figure 4 (arXiv)", Stated: 1, Tolerance: 1e-9,
			Quote:   "conditions (8)–(9) do not hold at n = 1e6, ε₀ = 3, k = 1000 (the baseline over strong composition without shuffling)",
			Methods: "clones-closed-strong / strong composition of sampled ε₀-LDP reports", Ours: overOurs, Unit: Ratio,
			Why:     "The baseline of Figure 4 is sampling and strong composition alone.",
			compute: withoutShuffling},
		{ID: "g21-1.4", Where: "§4, Figures 3 and 5a", Stated: 1.4, Tolerance: .005, Quote: "an accuracy of 80 % (±1.8) with a total privacy budget of ε = 1.4",
			Methods: "girgis-thm1", Ours: sameRound, Why: reaching + "That is round 213 of 1,200.", compute: within(e1, 1200, 1.4, "girgis-thm1")},
		{ID: "g21-2.91", Where: "§1, §4, §7, Figures 3 and 5a", Stated: 2.91, Tolerance: .005, Quote: "accuracy 90 % (±0.5) with total privacy budget ε = 2.91",
			Methods: "girgis-thm1", Ours: sameRound, Why: reaching + "That is round 1,067 of 1,200; the whole run costs 3.086.", compute: within(e1, 1200, 2.91, "girgis-thm1")},
		{ID: "g21-4.82", Where: "§1, §4, §7, Figures 3 and 5a", Stated: 4.82, Tolerance: .005, Quote: "[24] with strong composition achieves the same accuracy with ε = 4.82",
			Methods: "clones-numeric-strong at the round of 2.91", Ours: sameRound,
			Why:     "Not reproduced. Numerical clones, sampling and Theorem 3.4 of [34] with the best split of δ need 3.546 at that round, 3.809 at 1,200. The text does not give the split; equal shares for every round and for the composition need 4.589.",
			compute: within(e1, 1200, 2.91, "clones-numeric-strong")},
		{ID: "g21-3", Where: "§4, Figure 5b (arXiv)", Stated: 3, Tolerance: .005, Quote: "an accuracy of 81.15 % (±0.7) with a total privacy budget of ε = 3",
			Methods: "girgis-thm1", Ours: sameRound, Why: reaching + "That is round 1,515 of 6,000.", compute: within(e2, 6000, 3, "girgis-thm1")},
		{ID: "g21-5.8", Where: "§4, Figure 5b (arXiv)", Stated: 5.8, Tolerance: .005, Quote: "an accuracy of 89.7 % (±0.5) with total privacy budget of ε = 5.8",
			Methods: "girgis-thm1", Ours: sameRound, Why: reaching + "That is the whole run, 6,000 rounds.", compute: within(e2, 6000, 5.8, "girgis-thm1")},
		{ID: "g21-18.3", Where: "§4, Figure 5b (arXiv)", Stated: 18.3, Tolerance: .005, Quote: "[24] with strong composition achieves the same accuracy with ε = 18.3",
			Methods: "clones-numeric-strong at 6,000 rounds", Ours: sameRound,
			Why:     "Not reproduced: 8.132 with the best split of δ, 11.82 with equal shares. What makes 18.3 is not in the text.",
			compute: within(e2, 6000, 5.8, "clones-numeric-strong")},
		{ID: "g21-80", Where: "§4, Figures 3 and 5a", Stated: 80, Tolerance: .0225, Quote: "80 % (±1.8) with ε = 1.4", Methods: "experiment e1, ε by girgis-thm1", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recorded("e1", 1.4, byPaper)},
		{ID: "g21-70.7", Where: "§1, §4, Figures 3 and 5a", Stated: 70.7, Tolerance: .03, Quote: "[24] achieves only 70.7 % (±2.1) with the same budget of ε = 1.4", Methods: "experiment e1, ε by clones-numeric-strong", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recordedBy("e1", e1, 1200, "clones-numeric-strong", 1.4)},
		{ID: "g21-90", Where: "§4, Figures 3 and 5a", Stated: 90, Tolerance: .0056, Quote: "90 % (±0.5) with ε = 2.91", Methods: "experiment e1, ε by girgis-thm1", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recorded("e1", 2.91, byPaper)},
		{ID: "g21-81.15", Where: "§4, Figure 5b (arXiv)", Stated: 81.15, Tolerance: .0086, Quote: "81.15 % (±0.7) with ε = 3", Methods: "experiment e2, ε by girgis-thm1", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recorded("e2", 3, byPaper)},
		{ID: "g21-76.46", Where: "§4, Figure 5b (arXiv)", Stated: 76.46, Tolerance: .025, Quote: "[24] achieves only 76.46 % (±1.9) with the same budget of ε = 3", Methods: "experiment e2, ε by clones-numeric-strong", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recordedBy("e2", e2, 6000, "clones-numeric-strong", 3)},
		{ID: "g21-89.7", Where: "§4, Figure 5b (arXiv)", Stated: 89.7, Tolerance: .0056, Quote: "89.7 % (±0.5) with ε = 5.8", Methods: "experiment e2, ε by girgis-thm1", Ours: bestSeen, Unit: Accuracy,
			Why: asRecords, compute: recorded("e2", 5.8, byPaper)},
	}
}

// withoutShuffling returns figure 4a's baseline over strong composition of sampling alone, at
// T = 1e5.
func withoutShuffling(ctx context.Context, d *desk) (float64, float64, error) {
	q := sampled(3, 1e6, 1e3, 1e5)
	y, err := d.eps(ctx, q, "clones-closed-strong")
	if err != nil {
		return 0, 0, err
	}
	alone, err := literature.Strong{Eps0: q.Eps0, Delta: func(float64) float64 { return 1 }, Gamma: 1e-3, Rounds: q.Rounds}.Epsilon(q.Delta)
	if err != nil {
		return 0, 0, err
	}
	ours, err := d.eps(ctx, q, upper)
	return y / alone, y / ours, err
}

func eabClaims() []claim {
	return []claim{
		{ID: "eab-factor", Where: "§3.3", Stated: math.NaN(), Quote: "eq. (4) without its exponential term is worse than Corollary 2 by a factor of [lost in the text at hand]",
			Methods: "gddsk-simple / gdp-approx at ε₀ = 1, n = 1e6, λ = 10", Ours: "the same over riffle's proved divergence", Unit: Ratio,
			Why:     "About (e^ε₀+1)²·λ/(λ−1), 15.36 here.",
			compute: simpleOverLimit},
		{ID: "eab-96.41", Where: "§4, Figure 4", Stated: 96.41, Tolerance: .005, Quote: "our method achieves the closest accuracy (96.41 %)", Methods: "experiment e3, any finite ε", Ours: "the same, here and in e7: the paper's budget is lost",
			Unit: Accuracy, Why: asRecords + " The paper's ε₀, block size and budget are lost in the text at hand.", compute: recorded("e3", math.MaxFloat64, byRiffle)},
		{ID: "eab-98.18", Where: "§4, Figure 4", Stated: 98.18, Tolerance: .005, Quote: "98.18 % after approximately 50 epochs in the non-private scenario", Methods: "experiment e3 without privacy", Ours: "the same",
			Unit: Accuracy, Why: asRecords, compute: func(_ context.Context, d *desk) (float64, float64, error) {
				return d.accuracy("e3", unprotected, unprotected)
			}},
	}
}

func simpleOverLimit(context.Context, *desk) (float64, float64, error) {
	const eps0, n, order = 1, 1000000, 10
	var s shuffles
	var y [3]float64
	for i, method := range []string{"gddsk-simple", "gdp-approx", "blanket-rdp"} {
		var err error
		if y[i], err = s.at(method, eps0, n, order); err != nil {
			return 0, 0, err
		}
	}
	return y[0] / y[1], y[0] / y[2], nil
}

func checkInClaims() []claim {
	const noBound = "A lower bound on a divergence, converted, is no lower bound on ε. "
	return []claim{
		{ID: "sci-3x", Where: "§5.1, Figure 1", Stated: 3, Tolerance: .1, Quote: "our upper bound is approximately 3 times tighter than that of accounting using strong composition",
			Methods: "checkin-strong / sci-thm2 at n = 1e6, γ = .001, T = 1e5", Ours: overOurs, Unit: Ratio,
			Why:     "Over Figure 1a the ratio falls from 4.9 at n = 1e5 to 2.1 at 1e7: riffle's baseline is the numerical clones bound, tighter than the paper's.",
			compute: ratio(checkIn(1, 1e-3, 1e6, 1e5), "checkin-strong", "sci-thm2")},
		{ID: "sci-10x", Where: "§5.1, Figure 1", Stated: 10, Tolerance: .2, Quote: "our lower bound is 10 times tighter",
			Methods: "checkin-strong / sci-thm3 at n = 1e7, γ = .001, T = 1e5", Ours: overOurs, Unit: Ratio,
			Why:     noBound + "The ratio falls from 17 at n = 1e6 to 10.4 at 1e8.",
			compute: ratio(checkIn(1, 1e-3, 1e7, 1e5), "checkin-strong", "sci-thm3")},
		{ID: "sci-2a-first", Where: "§5.1, Figure 2a", Stated: 1, Below: true, Quote: "strong composition leads to tighter bounds initially (a ratio below 1; T = 1000 here)",
			Methods: "gauss-strong / sci-thm4-eq10", Ours: overOurs, Unit: Ratio,
			Why:     "Only because the printed formula never falls below .8, where the rare round of one report decides it; riffle's proved ε is below both at every T.",
			compute: ratio(distributed(1000), "gauss-strong", "sci-thm4-eq10")},
		{ID: "sci-2a-order", Where: "§5.1, Figure 2a", Stated: 10, Tolerance: .1, Quote: "as the number of composition increases, the RDP bounds can be an order of magnitude tighter",
			Methods: "gauss-strong / sci-thm4-eq10 at T = 1e7", Ours: overOurs, Unit: Ratio,
			Why:     "6.8 at T = 1e6 and 2.5 at 1e5: riffle's strong composition takes the best split of the exact Gaussian curve.",
			compute: ratio(distributed(1e7), "gauss-strong", "sci-thm4-eq10")},
		{ID: "sci-.67", Where: "§5.2", Stated: .67, Tolerance: .01, Quote: "we obtain the final ε as 0.67 with our approach (0.80 with the baseline)",
			Methods: dp.NoMethod, Ours: "proved ε of shuffled Gaussian reports that are (8, 1e-8)-LDP, at δ = 1e-5",
			Why: "riffle does not offer the paper's formula: (ε, δ)-DP with δ > 0 implies no Rényi divergence (its Lemma 3). The text gives neither δ nor δ₀; at these, sampling alone proves less than .67. For a report that is 8-LDP and no more is known, riffle proves 1.31.",
			compute: func(ctx context.Context, d *desk) (float64, float64, error) {
				q, err := e4(1e-5)
				if err != nil {
					return 0, 0, err
				}
				ours, err := d.eps(ctx, q, upper)
				return math.NaN(), ours, err
			}},
		{ID: "sci-90", Where: "§5.2", Stated: 90, Tolerance: .02, Quote: "around 90 % of test accuracy after running the training for 2,000 rounds", Methods: "experiment e4, ε by the paper's accounting", Ours: bestSeen,
			Unit: Accuracy, Why: asRecords + " The paper's ε is no bound.", compute: recorded("e4", .67, byPaper)},
	}
}

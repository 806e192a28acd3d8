package account

import (
	"fmt"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// Method is a row of Methods: a bound on what rounds cost, and how to compute it. The table of
// docs/BOUNDS.md is made of these rows.
type Method struct {
	ID     string
	Kind   dp.Kind
	Status dp.Status
	// Class is dp.Gaussian or VectorSumClass for bounds on sums and on Gaussian
	// reports, and "" for those on ε₀-LDP reports.
	Class     dp.Class
	Adjacency dp.Adjacency
	Needs     string // preconditions, for a reader
	Source    string // theorem and version
	Calls     string // the functions that compute it, separated by ", "
	Proofs    string // the notes that prove it, beyond those in Source
	Best      bool   // may be the tightest proved bound
	Colluders bool   // counts colluders among those who are drawn
	Adaptive  bool   // holds for reports that depend on earlier ones of their round
	Cross     bool   // holds for clients with different randomizers: Query.CrossEps0
	// OnlyDivergence says whether the method serves Divergence alone and is left out of a Reply.
	OnlyDivergence bool

	pair string // for a bound on one class: the name of the pair that it composes
	note string // a remark that goes with every answer
	// ask answers queries about single reports, and sum those about vector sums. If ask is nil,
	// the answer is converted from divergence.
	ask computation
	sum sumComputation
	// divergence is the Rényi divergence of one round, at the orders that are searched.
	divergence divergence
	orders     orders
}

// answer is a method's answer to a query.
type answer struct {
	eps, delta, order float64
	note              string
}

// computation answers a query about rounds of single reports.
type computation func(e *engine, q Query, parts []part) (answer, error)

const (
	blanketSource = "riffle blanket theorem (dp/amplify/blanket.md), r = 2/(e^eps0+1)"
	fmt22Source   = "Feldman, McMillan, Talwar 2022, Theorem 3.1, r = e^-eps0"
	gaussSource   = "SCI, proof of Theorem 4: N(mu, 1) against N(0, 1), mu = 2/(sigma sqrt k), sampled with inclusion k/n (dp/amplify/gaussian.md)"
	approxSource  = "each Gaussian report within a total variation of an eps0-LDP one (dp/amplify/approx.md), charged for every report; blanket theorem"
	basicSource   = "basic composition of pure guarantees, after subsampling"
	asPLD         = "; composed as privacy-loss distributions"
	asRDP         = "; Rényi divergence at real orders"
	kov           = "; sampling by Balle, Barthe, Gaboardi 2018, Theorem 9; composition by Kairouz, Oh, Viswanath 2015, Theorem "
	fmtClosed     = "Feldman, McMillan, Talwar 2022, Theorem 3.1 in closed form"
	fmtNumeric    = "Feldman, McMillan, Talwar 2022, Theorem 3.1 numerically"
	bbgn          = "Balle, Bell, Gascón, Nissim 2019, privacy blanket"
)

// Requirements of rows, in words.
const (
	needsReports = "ε₀-LDP reports, shuffled or local; all, k of n, check-in, disjoint batches; drop-outs independent of the data"
	needsFixed   = "shuffled, fixed k"
	needsCheckIn = "shuffled, check-in or drop-outs"
	needsEither  = "shuffled; a random k by its window that holds with high probability"
	needsAll     = "shuffled, no sampling"
	needsSums    = "sums of Gaussian reports"
	needsGauss   = "Gaussian reports, only their sum seen, or shuffled, counting sampling alone; all, k of n, check-in"
	needsTwoFold = "binomial noise p ≤ ½, α < 1, αmp ≥ 2g"
)

// Methods lists all bounds, in the order in which a Reply lists them.
func Methods() []Method {
	rows := []Method{
		{ID: "blanket-pld", Needs: needsReports, Source: blanketSource + asPLD, Best: true, Colluders: true, Cross: true, Adaptive: true,
			Calls: "amplify.Family.Round, amplify.Family.Arrival, amplify.Curve, pld.Compose", Proofs: "dp/amplify/hybrid.md dp/pld/compose.md", ask: pldMethod(blanket)},
		{ID: "blanket-rdp", Needs: needsReports, Source: blanketSource + asRDP, Best: true, Colluders: true, Cross: true, Adaptive: true,
			Calls: "amplify.Family.Round, amplify.Family.Arrival, rdp.Divergence, rdp.Minimize", ask: rdpMethod(blanket), divergence: pairDivergence(blanket)},
		{ID: "clones-pld", Needs: needsReports, Source: fmt22Source + asPLD, Colluders: true, Adaptive: true,
			Calls: "amplify.Clones, amplify.Family.Round, amplify.Family.Arrival", ask: pldMethod(fmt22)},
		{ID: "clones-rdp", Needs: needsReports, Source: fmt22Source + asRDP, Colluders: true, Adaptive: true,
			Calls: "amplify.Clones, rdp.Divergence", ask: rdpMethod(fmt22), divergence: pairDivergence(fmt22)},
	}
	for _, c := range classPairs {
		rows = append(rows, Method{ID: c.name + "-pld", Needs: c.needs, Source: c.source + asPLD, Calls: c.calls, Best: true, Colluders: true, Adaptive: c.adaptive, pair: c.name, ask: pldMethod(c)})
	}
	rows = append(rows, []Method{
		{ID: "lower-rr3", Kind: dp.Lower, Needs: "any ε₀-LDP report admitted; ε₀ taken as at most 12; up to about 1e6 reports", Colluders: true, Cross: true,
			Source: "3-ary randomized response, all others on the third symbol, composed optimistically",
			Calls:  "amplify.Response, pld.ComposeOutcomes", Proofs: "dp/amplify/concrete.md dp/pld/optimistic.md", ask: lowest(ternaryOf), divergence: ternaryDivergence},
		{ID: "lower-rr2", Kind: dp.Lower, Needs: "also class rr2; up to about 1e11 reports", Colluders: true, Cross: true,
			Source: "binary randomized response, all others alike (Girgis et al. 2021, Theorem 2), composed optimistically",
			Calls:  "amplify.Response, pld.ComposeOutcomes", Proofs: "dp/amplify/concrete.md dp/pld/optimistic.md", ask: lowest(binaryOf), divergence: girgis(literature.GirgisLower, 1e8)},
		{ID: "lower-krr", Kind: dp.Lower, Needs: "class krr:K, K ≥ 4, or cap", Colluders: true,
			Source: "k-ary randomized response, all others on a third symbol, composed optimistically",
			Calls:  "amplify.Response, pld.ComposeOutcomes", Proofs: "dp/amplify/concrete.md dp/pld/optimistic.md", ask: lowest(symbolsOnly)},
		{ID: "lower-apart", Kind: dp.Lower, Needs: "class cap or rising; up to about 1e9 reports", Colluders: true,
			Source: "reports of these steps, opposite inputs, all others' high densities far from theirs (dp/amplify/rising.md), composed optimistically",
			Calls:  "amplify.StepOutcomes, pld.ComposeOutcomes", Proofs: "dp/amplify/concrete.md dp/pld/optimistic.md", ask: lowest(stepsOf(true))},
		{ID: orthogonalMethod, Kind: dp.Lower, Needs: "class cap or rising; up to about 1e9 reports", Colluders: true,
			Source: "reports of these steps, opposite inputs, all others on one orthogonal input (dp/amplify/rising.md), composed optimistically",
			Calls:  "amplify.StepOutcomes, pld.ComposeOutcomes", Proofs: "dp/amplify/concrete.md dp/pld/optimistic.md", ask: lowest(stepsOf(false))},

		{ID: "clones-closed-strong", Needs: needsFixed + "; amplifies only where ε₀ ≤ log(k/(16 log(4/δ)))", Source: fmtClosed + kov + "3.4", Adaptive: true,
			Calls: "literature.ClonesClosed, literature.Strong", Proofs: "dp/amplify/literature/strong.md", ask: strong(closed(literature.ClonesClosed), false)},
		{ID: "clones-closed-kov", Needs: "as clones-closed-strong", Source: fmtClosed + kov + "3.3", Adaptive: true,
			Calls: "literature.ClonesClosed, literature.Strong", ask: strong(closed(literature.ClonesClosed), true)},
		{ID: "clones-numeric-strong", Needs: needsFixed, Source: fmtNumeric + kov + "3.4", Adaptive: true,
			Calls: "amplify.Curve, literature.Strong", ask: strong(clonesNumeric, false)},
		{ID: "clones-numeric-kov", Needs: needsFixed, Source: fmtNumeric + kov + "3.3", Adaptive: true,
			Calls: "amplify.Curve, literature.Strong", ask: strong(clonesNumeric, true)},
		{ID: "checkin-strong", Needs: needsCheckIn, Source: fmtNumeric + ", at the window of k that holds with high probability" + kov + "3.4",
			Calls: "amplify.Curve, literature.Strong", ask: checkInStrong(clonesNumeric, false)},
		{ID: "checkin-kov", Needs: needsCheckIn, Source: fmtNumeric + ", at the window of k that holds with high probability" + kov + "3.3",
			Calls: "amplify.Curve, literature.Strong", ask: checkInStrong(clonesNumeric, true)},
		{ID: "balle-hoeffding", Needs: needsEither, Source: bbgn + ", Hoeffding's inequality" + kov + "3.3",
			Calls: "literature.Blanketed.Delta", Proofs: "dp/amplify/literature/balle.md", ask: eitherStrong(balle(false), true)},
		{ID: "balle-bennett", Needs: needsEither, Source: bbgn + ", Bennett's inequality" + kov + "3.3",
			Calls: "literature.Blanketed.Delta", Proofs: "dp/amplify/literature/balle.md", ask: eitherStrong(balle(true), true)},
		{ID: "balle-blanket", Needs: needsEither + "; class rr2, or krr up to 256 reports", Source: bbgn + ", for randomized response by its sum" + kov + "3.3",
			Calls: "literature.Blanketed.ExactDelta", Proofs: "dp/amplify/literature/balle.md", ask: eitherStrong(balleExact, true)},
		{ID: "gddsk-wbk", Needs: needsFixed + ", integer orders up to 1024", Source: "Girgis, Data, Diggavi, Suresh, Kairouz 2021 (CCS), Theorem 1; sampling by Wang, Balle, Kasiviswanathan 2019, Theorem 9",
			Calls: "literature.ShuffleRenyi.Divergence", Proofs: "dp/amplify/literature/wbk.md", divergence: gddsk(false), orders: upTo1024},
		{ID: "gddsk-wbk-plain", Needs: "as gddsk-wbk; as the 2021 paper seems to have evaluated it", Source: "the same without 4(e^eps(2)-1), the first part of Theorem 9's minimum",
			Calls: "literature.ShuffleRenyi.Divergence", Proofs: "dp/amplify/literature/wbk.md", divergence: gddsk(true), orders: upTo1024},
		{ID: "gddsk-simple", Needs: needsAll + "; a divergence, in figures only", Source: "Girgis et al. 2021 (CCS), Theorem 2",
			Calls: "literature.ShuffleRenyi.SimpleDivergence", divergence: gddskSimple, OnlyDivergence: true},
		{ID: "eab-thm1", Needs: needsAll, Source: "EAB (Chen, Cao, Ge 2024), Theorem 1: the Rényi divergence of the clones pair",
			Calls: "literature.ShuffledMoment, rdp.Divergence", ask: eabTheorem1, divergence: eabDivergence},
		{ID: "gdp-approx", Kind: dp.Approximate, Needs: needsAll, Source: "EAB, Theorem 2, Gaussian limit; Dong, Roth, Su 2022", note: limitLaw,
			Calls: "literature.ShuffleGDP", ask: gdpApprox(false), divergence: gdpDivergence},
		{ID: "eab-thm3", Kind: dp.Approximate, Needs: needsAll, Source: "EAB, Theorem 3 and Corollary 2: shuffled Laplace DP-SGD, an epoch a round", note: limitLaw,
			Calls: "literature.ShuffleGDP", ask: gdpApprox(true)},
		{ID: "sci-thm1", Needs: needsCheckIn + ", integer orders", Source: "SCI (self check-in), Theorem 1 with inclusion k/n, at Girgis et al. 2021, Theorem 1",
			Calls: "literature.SCITheorem1", Proofs: "dp/amplify/literature/selfcheckin.md", divergence: sciTheorem1(false), orders: integers},
		{ID: "sci-thm1-printed", Kind: dp.Approximate, Needs: needsCheckIn, Source: "SCI, Theorem 1 with inclusion gamma as printed", note: "inclusion gamma in place of k/n: unsound",
			Calls: "literature.SCITheorem1", divergence: sciTheorem1(true), orders: integers},
		{ID: "sci-thm2", Needs: needsCheckIn + ", integer orders", Source: "SCI, Theorem 2, misprints and inclusion repaired (dp/amplify/literature/selfcheckin.md)",
			Calls: "literature.SCITheorem2", ask: sciTheorem2(false)},
		{ID: "sci-thm2-printed", Kind: dp.Approximate, Needs: needsCheckIn, Source: "SCI, Theorem 2 as printed", note: "misprinted: unsound",
			Calls: "literature.SCITheorem2", ask: sciTheorem2(true)},
		{ID: "sci-thm3", Kind: dp.Approximate, Needs: needsCheckIn, Source: "SCI, Theorem 3 and Lemma 2", note: "a lower bound on the divergence, not on epsilon after conversion",
			Calls: "literature.SCITheorem3", divergence: sciTheorem3, orders: integers},
		{ID: "efmrtt", Kind: dp.Approximate, Needs: needsFixed + ", ε₀ < ½, k ≥ 1000", Source: "Erlingsson et al. 2019, Corollary 9" + kov + "3.4", note: "constants as published, proof not checked",
			Calls: "literature.Erlingsson2019", ask: strong(erlingsson, false)},
		{ID: "efmrtt-rdp", Kind: dp.Approximate, Needs: needsAll, Source: "Erlingsson et al. 2019, Remark 1: Rényi divergence", note: "constants as quoted, proof not checked",
			Calls: "literature.ErlingssonRenyi", divergence: erlingssonRenyi},
		{ID: "fmt23", Kind: dp.Approximate, Needs: needsFixed, Source: "Feldman, McMillan, Talwar 2023, Theorem 3.2, proof withdrawn" + kov + "3.4", note: "its proof was withdrawn by an erratum; blanket-pld proves more",
			Calls: "literature.Feldman2023", ask: strong(closed(literature.Feldman2023), false)},

		{ID: "gauss-pld", Class: dp.Gaussian, Needs: needsGauss, Source: gaussSource + asPLD, Best: true, Colluders: true,
			Calls: "amplify.Gaussian, amplify.GaussianArrival, gdp.Mu", Proofs: "dp/gdp/gdp.md", ask: gaussianPLD},
		{ID: "gauss-rdp", Class: dp.Gaussian, Needs: needsGauss, Source: gaussSource + asRDP, Best: true, Colluders: true,
			Calls: "amplify.Gaussian, amplify.GaussianArrival, rdp.Divergence", ask: gaussianRDP},
		{ID: "lower-gauss", Kind: dp.Lower, Class: dp.Gaussian, Needs: needsSums, Colluders: true, Source: "the sum, all others on the neighbour's vector, composed optimistically",
			Calls: "amplify.GaussianOutcomes", Proofs: "dp/amplify/gaussian.md", ask: lowestGaussian},
		{ID: "shuffle-approx-ldp", Class: dp.Gaussian, Needs: "shuffled Gaussian reports", Source: approxSource, Best: true, Colluders: true,
			Calls: "amplify.GaussianAsLDP, amplify.GaussianEps0", ask: approxMethod},
		{ID: "gauss-strong", Class: dp.Gaussian, Needs: needsSums, Best: true,
			Source: "Gaussian and sampled (eps, delta) of a round, SCI section 5.1; strong composition of Kairouz, Oh, Viswanath 2015, Theorem 3.4",
			Calls:  "amplify.Curve, literature.Repeated", ask: strongMethod},
		{ID: "sci-thm4", Class: dp.Gaussian, Needs: needsSums + "; check-in, or fixed k", Source: "SCI, Theorem 4, equation 10 with inclusion k/n and k = 0: Wang, Balle, Kasiviswanathan 2019, Theorem 9",
			Calls: "literature.SCIEquation10, literature.WBKGaussian", divergence: sciMixture, orders: ofSums},
		{ID: removalMethod, Class: dp.Gaussian, Adjacency: dp.AddRemoveOne, Needs: needsSums + "; check-in", Best: true,
			Source: "one client more or less; riffle derivation (dp/amplify/removal.md) in place of SCI, Appendix B; Rényi divergence at real orders",
			Calls:  "amplify.Removal", ask: removeMethod},
		{ID: removalPLDMethod, Class: dp.Gaussian, Adjacency: dp.AddRemoveOne, Needs: needsSums + "; check-in", Best: true,
			Source: "one client more or less; riffle derivation (dp/amplify/removal.md), both orders composed as privacy losses",
			Calls:  "amplify.RemovalPairs, pld.Direct, pld.Compose", Proofs: "dp/amplify/removal.md dp/pld/compose.md", ask: removePLDMethod},
		{ID: "sci-thm4-eq10", Kind: dp.Approximate, Class: dp.Gaussian, Needs: needsSums + "; check-in; false, see below",
			Source: "SCI, Theorem 4, equation 10 as printed: inclusion gamma for every k, which is not proved",
			Calls:  "literature.SCIEquation10", divergence: sciPrinted(sciEquation10), orders: ofSums},
		{ID: "sci-thm4-eq11", Kind: dp.Approximate, Class: dp.Gaussian, Needs: needsSums + "; check-in",
			Source: "SCI, Theorem 4, equation 11 as printed: inclusion gamma for every k, which is not proved",
			Calls:  "literature.SCIEquation11", divergence: sciPrinted(literature.SCIEquation11), orders: ofSums},

		{ID: "girgis-thm1", Needs: needsFixed + ", integer orders", Source: "Girgis et al. 2021 (NeurIPS), Theorem 1 and Lemma 1",
			Calls: "literature.GirgisUpper", divergence: girgis(literature.GirgisUpper, 1<<52), orders: integers},
		{ID: "girgis-thm2", Kind: dp.Approximate, Needs: needsFixed + "; a lower bound on a divergence, not on ε after conversion", Source: "Girgis et al. 2021 (NeurIPS), Theorem 2 and Lemma 1",
			Calls: "literature.GirgisLower", divergence: girgis(literature.GirgisLower, 1e8), orders: integers},
		{ID: "basic", Needs: "nothing; δ = 0, sampling gives log(1 + γ(E−1))", Source: basicSource, Best: true, Colluders: true, Cross: true, Adaptive: true,
			Calls: "account.Answer", ask: basicMethod},

		{ID: vecsum.MethodGDP, Class: VectorSumClass, Needs: "log-concave integer noise, at least ⌊γ·n_min⌋ honest clients", Best: true,
			Source: "log-concave integer noise is Gaussian-private but for its tails (mechanism/vecsum/vecsum.md); mu adds in squares: Dong, Roth, Su 2022, Corollary 3.3",
			Calls:  "vecsum.Params.Curve", sum: sumGDP},
		{ID: "gauss-pld", Class: VectorSumClass, Best: true,
			Needs:  "any participation; cohorts of n_min at least; nobody who sees the sums learns who took part; γ < 1: chance counts among ⌊γn⌋ clients only, drop-outs of sampled and once not at all",
			Source: gaussSource + "; integer noise by the sigma it is worth (vecsum.Params.Sigma), its tails added to delta",
			Calls:  "account.Answer, vecsum.Params.Sigma, vecsum.Aggregated.Sigma", Proofs: "account/vecsum.md", sum: sumGaussian},
		{ID: vecsum.MethodLemma31, Class: VectorSumClass, Needs: needsTwoFold + "; one coordinate, all clients honest", Source: "CJMP, Lemma 3.1 through its Lemma A.1",
			Calls: "vecsum.CJMP", sum: paperSum(vecsum.MethodLemma31)},
		{ID: vecsum.MethodThm32, Class: VectorSumClass, Needs: needsTwoFold + "; all clients honest", Source: "CJMP, Theorem 3.2",
			Calls: "vecsum.CJMP", sum: paperSum(vecsum.MethodThm32)},
		{ID: vecsum.MethodA9, Class: VectorSumClass, Needs: needsTwoFold + "; γ ≥ 1/3", Source: "CJMP, Corollary A.9, computed from its proof",
			Calls: "vecsum.CJMP", sum: paperSum(vecsum.MethodA9)},
	}...)
	for i := range rows {
		m := &rows[i]
		if m.Kind == "" {
			m.Kind = dp.Upper
		}
		if m.Status = dp.Proved; m.Kind == dp.Approximate {
			m.Status = dp.Approximation
		}
		if m.Adjacency == "" {
			m.Adjacency = dp.ReplaceOne
		}
		m.Adaptive = m.Adaptive || m.Kind == dp.Lower
	}
	return rows
}

// mayBeBest says whether the method can be the tightest proved bound of a query.
func (m Method) mayBeBest(q Query, s shape) bool {
	q = q.withDefaults()
	if !m.Best || m.Adjacency != q.Adjacency || (m.Class == dp.Gaussian) != gaussian(q.Class) {
		return false
	}
	return m.pair == "" || m.pair == s.narrow().name && (m.Adaptive || !q.AdaptiveWithinRound)
}

// quick says whether a quick answer consists of the method: the pair of the reports' class in a
// rough form, and what takes no time.
func (m Method) quick(q Query, s shape) bool {
	if !m.mayBeBest(q, s) {
		return false
	}
	if m.Adjacency == dp.AddRemoveOne { // these have no rough form
		return true
	}
	c := s.narrow()
	if q.AdaptiveWithinRound && !c.adaptive {
		c = blanket
	}
	return m.ID == "basic" || m.ID == "gauss-pld" || m.ID == c.roughly().name+"-pld"
}

// roughly returns the method with a rough pair, if it composes one.
func (m Method) roughly() Method {
	if m.ID == "basic" || m.Adjacency == dp.AddRemoveOne {
		return m
	}
	c := blanket // also for Gaussian reports, whose shapes have pairs of their own
	for _, row := range classPairs {
		if m.ID == row.name+"-pld" {
			c = row
		}
	}
	m.ask, m.note = pldMethod(c.roughly()), "computed roughly"
	return m
}

// refusal returns why the method does not answer a query.
func (m Method) refusal(q Query, s shape) error {
	sums := m.Class == dp.Gaussian
	switch {
	case s.colluders > 0 && !m.Colluders:
		return refuse("stated without colluders among those who are drawn")
	case s.least > 0 && (!m.Colluders || m.Adjacency == dp.AddRemoveOne):
		return refuse("stated for rounds to which all come who are drawn, or whose coins say so, and n-min = %d assumes nothing of them", s.least)
	case m.Kind == dp.Lower && q.Trust.Is(dp.Alone) && (q.Dropout > 0 || q.Participation == dp.Sampled || q.Participation == dp.CheckIn):
		return refuse("a mechanism for a client who reports in every round, here it may not")
	case s.cross > 0 && !m.Cross:
		return refuse("stated for clients with the same randomizer")
	case s.cross > 0 && s.cross < s.eps0 && m.Kind == dp.Lower:
		return refuse("the mechanism's reports of two clients differ by eps0 = %v, above cross-eps0 = %v", s.eps0, s.cross)
	case q.AdaptiveWithinRound && !m.Adaptive:
		return refuse("not proved for reports that depend on earlier reports of their round")
	case m.hidesReports(q, s) && m.Kind == dp.Lower:
		return refuse("the mechanism shows how many reports there are, which is hidden here")
	case q.withDefaults().Adjacency == dp.AddRemoveOne && m.Adjacency != dp.AddRemoveOne:
		return refuse("for a client replaced, not removed")
	case q.withDefaults().Adjacency != dp.AddRemoveOne && m.Adjacency == dp.AddRemoveOne:
		return refuse("for a client removed, not replaced")
	case sums && q.Class == dp.GaussianSum && m.Kind == dp.Lower:
		return refuse("a mechanism with noise in every report")
	case sums && !gaussian(q.Class):
		return refuse("for reports of class %s", dp.Gaussian)
	case !sums && q.Class == dp.GaussianSum:
		return refuse("for eps0-LDP reports; these have no noise of their own")
	case !sums && q.Class == dp.Gaussian:
		return refuse("for eps0-LDP reports; a Gaussian report is eps0-LDP for no eps0, and (eps0, delta0) converts to no such bound")
	}
	return nil
}

// hidesReports says whether the number of a round's reports is random and hidden.
func (m Method) hidesReports(q Query, s shape) bool {
	return q.HiddenReports && s.gamma > 0 && s.gamma < 1
}

// answer computes the method for rounds that are all alike.
func (m Method) answer(e *engine, q Query, parts []part) (answer, error) {
	s := parts[0].shape
	if err := m.refusal(q, s); err != nil {
		return answer{}, err
	}
	ask := m.ask
	if ask == nil {
		ask = m.convert
	}
	if m.Kind == dp.Lower && s.least > 0 { // all may be there
		q.Least = 0
		all, times := q.shape()
		parts = []part{{all, times}}
	}
	out, err := ask(e, q, parts)
	if out.note == "" {
		out.note = m.note
	}
	if m.hidesReports(q, s) && m.Kind == dp.Upper {
		if out.note != "" {
			out.note += "; "
		}
		out.note += "the number of reports hidden: what holds for it public holds"
	}
	if s.cross > 0 && m.ID != "basic" && m.Kind == dp.Upper {
		if out.note != "" {
			out.note += "; "
		}
		out.note += fmt.Sprintf("across clients r = %.4g (dp/amplify/across.md)", amplify.BlanketAcross(s.eps0, s.cross))
	}
	return out, err
}

// basicMethod computes the method basic.
func basicMethod(_ *engine, q Query, parts []part) (answer, error) {
	eps := basic(parts)
	switch {
	case !q.AskDelta:
		return answer{eps: eps, delta: q.Delta, note: "holds with delta = 0"}, nil
	case eps <= q.Eps:
		return answer{eps: q.Eps}, nil
	}
	return answer{}, refuse("the pure guarantee is %.4g", eps)
}

// pldMethod composes a pair as privacy-loss distributions.
func pldMethod(c clones) computation {
	return func(e *engine, q Query, parts []part) (answer, error) {
		if q.AskDelta {
			delta, err := e.pldDelta(parts, c, q.Eps)
			return answer{eps: q.Eps, delta: delta}, err
		}
		eps, err := e.pldEps(parts, c, q.Delta)
		return answer{eps: eps, delta: q.Delta}, err
	}
}

// rdpMethod composes a pair by Rényi divergences.
func rdpMethod(c clones) computation {
	return func(e *engine, q Query, parts []part) (answer, error) {
		if q.AskDelta {
			delta, err := e.rdpDelta(parts, c, q.Eps)
			return answer{eps: q.Eps, delta: delta}, err
		}
		eps, order, err := e.rdpEps(parts, c, q.Delta)
		return answer{eps: eps, delta: q.Delta, order: order}, err
	}
}

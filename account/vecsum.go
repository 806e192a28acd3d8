package account

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/internal/tail"
	"github.com/riffle-dp/riffle/mechanism/vecsum"
)

// A question about vector sums has the class VectorSumClass and describes a round by its Sum.

// isSum says whether the question is about vector sums.
func (q Query) isSum() bool { return q.Class == VectorSumClass }

// Surely returns the number of reports, at least 1, that arrive from n clients in all but one
// round in a billion, if each reports with the given chance. No privacy rests on it.
func Surely(n int64, rate float64) int64 {
	mean := float64(n) * rate
	return int64(max(1, math.Floor(mean-6*math.Sqrt(mean*(1-rate)))))
}

// cohort returns the most clients that a round can have, and each one's chance to be among
// those who arrive.
func (q Query) cohort() (most int64, rate float64) {
	most, rate = q.Population, 1-q.Dropout
	switch q.Participation {
	case dp.Sampled, dp.Once:
		most = q.Reports
	case dp.CheckIn:
		rate *= q.Gamma
	}
	return most, rate
}

// withSumDefaults fills in the defaults of Sum; the rest of the query must be valid.
func (q Query) withSumDefaults() Query {
	most, rate := q.cohort()
	p := &q.Sum
	if p.Users == 0 {
		p.Users = most
	}
	if p.MinUsers == 0 {
		p.MinUsers = min(Surely(most, rate), most)
	}
	if p.Honest == 0 {
		p.Honest = 1
	}
	if p.Radius == 0 {
		p.Radius = 1
	}
	if p.Norm == 0 && p.Dim > 0 && p.Grid > 0 {
		p.Norm = vecsum.Norm(p.Dim, p.Grid, vecsum.NormBeta)
	}
	return q
}

// validateSum is Validate for a question about vector sums.
func (q Query) validateSum() error {
	a := q
	switch {
	case q.NoiseBy != "" && q.NoiseBy != vecsum.ByClients && q.NoiseBy != vecsum.ByAggregators:
		return fmt.Errorf("account: noise-by %q must be %s or %s", q.NoiseBy, vecsum.ByClients, vecsum.ByAggregators)
	case q.aggregated():
		return q.validateAggregated()
	case a.Eps0 != 0 || a.Sigma != 0 || a.Symbols != 0 || a.TV != 0:
		return fmt.Errorf("account: eps0 = %v, sigma = %v, symbols = %d, total variation %v are of single reports: a vector sum has its own noise",
			a.Eps0, a.Sigma, a.Symbols, a.TV)
	case a.Trust != "" && !a.Trust.Is(dp.SumsOnly):
		return fmt.Errorf("account: trust %s: of a vector sum only the sum is seen, trust %s", a.Trust, dp.AnyTrust(dp.SumsOnly))
	case a.Adjacency != "" && a.Adjacency != dp.ReplaceOne:
		return fmt.Errorf("account: adjacency %q: vector sums are counted for a client replaced", a.Adjacency)
	case a.Colluders != 0:
		return fmt.Errorf("account: colluders = %d: of a vector sum give the fraction honest, which adds noise", a.Colluders)
	case a.HiddenReports || a.AdaptiveWithinRound:
		return errors.New("account: a vector sum reveals its number of clients, and its clients do not see each other's reports")
	}
	if err := a.refuseLeast(); err != nil {
		return err
	}
	if err := a.single(dp.Gaussian, 1).Validate(); err != nil {
		return err
	}
	most, _ := q.cohort()
	p := q.withSumDefaults().Sum
	switch {
	case p.Users < most:
		return fmt.Errorf("account: users = %d are fewer than the %d that a round can have", p.Users, most)
	case p.MinUsers > most:
		return fmt.Errorf("account: n-min = %d must be at most the %d clients that a round can have", p.MinUsers, most)
	case p.MinUsers < 1:
		return fmt.Errorf("account: n-min = %d must be at least 1", p.MinUsers)
	case p.Honest > 0 && p.Honest*float64(p.MinUsers) < 1:
		return fmt.Errorf("account: honest = %v of n-min = %d leaves no client's noise", p.Honest, p.MinUsers)
	}
	return p.Validate()
}

// refuseLeast refuses n-min of single reports.
func (q Query) refuseLeast() error {
	if q.Least != 0 {
		return fmt.Errorf("account: n-min = %d of single reports: of a vector sum Sum says it", q.Least)
	}
	return nil
}

// single returns the question about reports of a class whose sum only is seen.
func (q Query) single(class dp.Class, sigma float64) Query {
	q.Trust, q.Class, q.Sigma, q.Sum, q.NoiseBy = dp.Distributed, class, sigma, vecsum.Params{}, ""
	return q
}

// times returns the number of rounds in which one client can take part.
func (q Query) times() int64 {
	if q.Participation == dp.Once {
		return 1
	}
	return q.Rounds // with Every, all: what a client adds to one is in later ones, too
}

// always says whether everyone who could be in a round is in it.
func (q Query) always() bool {
	return q.Dropout == 0 && (q.Participation == dp.All || q.Participation == dp.Once)
}

// counted says whether the number of honest clients in a round follows a known chance: their
// own coins, or drop-outs of all honest clients. Otherwise it is only known to be at least
// ⌊Honest·MinUsers⌋ (vecsum.md, "Honest").
func (q Query) counted() bool {
	switch q.Participation {
	case dp.CheckIn:
		return true
	case dp.All:
		return q.Dropout > 0
	}
	return q.Dropout > 0 && !(q.Sum.Honest > 0 && q.Sum.Honest < 1)
}

// sumComputation answers a query about vector sums.
type sumComputation func(ctx context.Context, q Query) (answer, error)

// answerSum is Answer for a valid query about vector sums (vecsum.md).
func answerSum(ctx context.Context, q Query, which string) (Reply, error) {
	if q = q.withClients(); !q.aggregated() {
		q = q.withSumDefaults()
	}
	q.Trust = dp.VectorSum
	r := Reply{Query: q}
	known := false
	for _, m := range Methods() {
		if m.sum == nil || which != "all" && which != m.ID && !((which == "best" || which == "quick") && m.Best) {
			continue
		}
		known = true
		if err := ctx.Err(); err != nil {
			return Reply{}, err
		}
		start := time.Now()
		got, err := m.sum(ctx, q)
		if err := r.list(m, got, start, err); err != nil {
			return Reply{}, err
		}
	}
	if !known {
		return Reply{}, fmt.Errorf("account: unknown method %q", which)
	}
	return r, nil
}

// alwaysNote returns the note that a bound is computed as if the client took part in every
// round; "" if the client does.
func (q Query) alwaysNote() string {
	if q.always() {
		return ""
	}
	return "as if the client took part in every round"
}

// sumGDP computes vecsum-gdp.
func sumGDP(_ context.Context, q Query) (answer, error) {
	if q.aggregated() {
		return answer{}, refuse("for noise that is a part of clients' vectors")
	}
	if q.AskDelta {
		delta, err := q.Sum.Delta(q.Eps, q.times())
		return answer{eps: q.Eps, delta: delta, note: q.alwaysNote()}, err
	}
	eps, err := q.Sum.Epsilon(q.Delta, q.times())
	return answer{eps: eps, delta: q.Delta, note: q.alwaysNote()}, err
}

// gaussian returns a question about sums of Gaussian reports. Its answer, with tail added to δ,
// holds for the query. tail is computed for the given delta.
func (q Query) gaussian(ctx context.Context, delta float64) (g Query, tail float64, err error) {
	if q.aggregated() {
		return q.sumOfAggregators()
	}
	p, crowded := q.Sum, 0.
	if q.counted() {
		p.Users, crowded = q.most(crowdShare * delta)
	} else {
		// Whoever arrives, there are at least MinUsers, whose noise is charged.
		p.Users = p.MinUsers
	}
	sigma, tail, err := p.Sigma(ctx, delta, q.times())
	if err != nil {
		return g, 0, err
	}
	tail += crowded
	if g, err = q.Gaussian(sigma); err != nil {
		return g, 0, err
	}
	g.Sigma = math.Min(g.Sigma, dp.MaxSigma)
	if err := dp.CheckSigma(g.Sigma); err != nil {
		return g, 0, fmt.Errorf("account: noise worth too little: %v: %w", err, dp.ErrNoBound)
	}
	return g, tail, nil
}

// crowdShare is the share of δ that pays for rounds of more clients than the noise is
// computed for. The noise is computed for each number from MinUsers on, in steps of a
// hundredth, which takes long where chance may bring many clients.
const crowdShare = 1e-6

// most returns the largest number of clients whose noise a counted query needs, and a
// probability, at most chance, that some round has more clients.
func (q Query) most(chance float64) (int64, float64) {
	most, rate := q.cohort()
	honest := 1.
	if q.Sum.Honest > 0 {
		honest = q.Sum.Honest
	}
	if q.Participation != dp.Sampled && honest < 1 {
		most = int64(honest * float64(most)) // the clients that amongHonest counts
	}
	_, hi := tail.Window(most, rate, 1-rate, 1, chance/float64(q.times()))
	if of := float64(hi) / honest; of < float64(q.Sum.Users) {
		return max(q.Sum.MinUsers, int64(of)), chance
	}
	return q.Sum.Users, 0
}

// Gaussian returns a question about sums of Gaussian reports whose answer holds for the
// query about vector sums, if vecsum.Params.Sigma of the round is sigma. The round has MinUsers clients if no
// known chance decides which honest clients come, otherwise MinUsers to Users. Of Sum it uses
// Users, MinUsers and Honest. The σ in the question is a multiple of sigma.
//
// An error wraps dp.ErrNoBound if more clients are asked than are certainly honest.
func (q Query) Gaussian(sigma float64) (Query, error) {
	g, p := q, q.Sum
	g = g.single(dp.Gaussian, sigma)
	if g.Participation == dp.Once {
		// It is public who is in which batch, and a client is in one batch.
		g.Participation, g.Population, g.Reports, g.Rounds = dp.All, g.Reports, 0, 1
	}
	if !q.counted() {
		most, _ := q.cohort()
		g.Dropout = 0
		g.Sigma *= math.Sqrt(float64(p.MinUsers)/float64(most)) * (1 - 0x1p-50)
	}
	if p.Honest > 0 && p.Honest < 1 {
		return amongHonest(g, p)
	}
	return g, nil
}

// amongHonest restricts a question to the honest clients, n' = ⌊γn⌋ of them, because only their
// choices follow the known chance: the others may come to any round or to none.
//
// Sampled: of a round's κ ≤ k reports, the κ' honest ones come from a uniform subset of the
// n', given their number. It is not known how many of the k the draw and the others leave,
// except that κ' ≥ ⌊γ·MinUsers⌋. Inclusion k/n' and the noise of MinUsers cover all cases.
// Self check-in, and drop-outs of all: κ' ~ Bin(n', rate) honest clients arrive. They are at
// least ⌊γκ⌋ of an opened round's κ, so their noise is that of ⌊κ'/γ⌋ ≥ (κ'/γ)(1 − γ/κ')
// clients, with κ' ≥ ⌊γ·MinUsers⌋.
func amongHonest(g Query, p vecsum.Params) (Query, error) {
	honest := int64(p.Honest * float64(g.Population))
	if p.Honest*float64(p.MinUsers) < 1 {
		return g, fmt.Errorf("account: honest = %v of n-min = %d leaves no client's noise", p.Honest, p.MinUsers)
	}
	switch {
	case g.Participation == dp.Sampled:
		if g.Reports > honest {
			return g, fmt.Errorf("k = %d of a round may all be honest clients, of whom only %d are sure: %w", g.Reports, honest, dp.ErrNoBound)
		}
		g.Population = honest
	case g.Participation == dp.CheckIn || g.Dropout > 0:
		least := math.Floor(p.Honest * float64(p.MinUsers))
		if p.Users < g.Population {
			return g, fmt.Errorf("at most %d of %d clients in a round, of whom chance may bring more: %w", p.Users, g.Population, dp.ErrNoBound)
		}
		g.Population = honest
		g.Sigma *= math.Sqrt(math.Max(0, 1/p.Honest-1/least)) * (1 - 0x1p-50)
	}
	return g, nil
}

// sumGaussian computes gauss-pld.
func sumGaussian(ctx context.Context, q Query) (answer, error) {
	if q.aggregated() && q.AskDelta && q.Eps > vecsum.MostEps {
		return answer{}, mostEps(q.Eps)
	}
	ask := func(g Query) (dp.Bound, error) {
		r, err := Answer(ctx, g, "gauss-pld")
		if err != nil {
			return dp.Bound{}, err
		}
		if l := r.Bounds[0]; !l.Applies {
			return dp.Bound{}, fmt.Errorf("%s: %w", l.Note, dp.ErrNoBound)
		}
		return r.Bounds[0].Bound, nil
	}
	worth := func(g Query) string {
		if q.Every != 0 {
			return fmt.Sprintf("%d rounds count as one of sigma = %.6g", q.Rounds, g.Sigma)
		}
		if q.aggregated() {
			return fmt.Sprintf("the aggregators' noise counts as sigma = %.6g of the sum, mu = 2/sigma whatever k", g.Sigma)
		}
		return fmt.Sprintf("sigma = %.6g a client", g.Sigma)
	}
	if !q.AskDelta {
		g, tail, err := q.gaussian(ctx, q.Delta)
		if err != nil {
			return answer{}, err
		}
		if g.Delta = (g.Delta - tail) * (1 - 0x1p-50); !(g.Delta > 0) {
			return answer{}, fmt.Errorf("account: tails of %v leave nothing of delta = %v: %w", tail, q.Delta, dp.ErrNoBound)
		}
		b, err := ask(g)
		if err == nil && q.aggregated() && !(b.Eps <= vecsum.MostEps) {
			return answer{}, mostEps(b.Eps)
		}
		return answer{eps: b.Eps, delta: q.Delta, note: worth(g)}, err
	}
	// Any window gives a bound, and the best window depends on the answer.
	guess := 1e-6
	if q.aggregated() {
		guess = 1e-12
	} else if d, err := q.Sum.Delta(q.Eps, q.times()); err == nil {
		guess = math.Max(1e-200, math.Min(d, .5))
	}
	out := answer{eps: q.Eps, delta: 1}
	for range 4 {
		g, tail, err := q.gaussian(ctx, guess)
		var b dp.Bound
		if err == nil {
			b, err = ask(g)
		}
		if err != nil {
			if out.delta < 1 && errors.Is(err, dp.ErrNoBound) {
				break
			}
			return answer{}, err
		}
		if d := (b.Delta + tail) * (1 + 0x1p-50); d < out.delta {
			out.delta, out.note = d, worth(g)
		}
		if b.Delta > guess/10 {
			break
		}
		guess = math.Max(b.Delta, 1e-200)
	}
	if !(out.delta < 1) {
		return answer{}, fmt.Errorf("account: no delta below 1 at eps = %v: %w", q.Eps, dp.ErrNoBound)
	}
	return out, nil
}

// paperSum computes one of CJMP's bounds. They hold for a single round.
func paperSum(method string) sumComputation {
	bound := func(p vecsum.Params, delta float64) (float64, error) {
		switch {
		case method == vecsum.MethodLemma31 && p.Dim != 1:
			return 0, refuse("stated for one coordinate, not dim = %d", p.Dim)
		case method != vecsum.MethodA9 && p.Honest < 1:
			return 0, refuse("stated for honest clients only, not honest = %v", p.Honest)
		}
		return vecsum.CJMP(method, p, delta)
	}
	return func(_ context.Context, q Query) (answer, error) {
		if q.aggregated() {
			return answer{}, refuse("for noise that is a part of clients' vectors")
		}
		if q.times() > 1 {
			return answer{}, fmt.Errorf("stated for one round, not %d: %w", q.times(), dp.ErrNoBound)
		}
		if !q.AskDelta {
			eps, err := bound(q.Sum, q.Delta)
			return answer{eps: eps, delta: q.Delta, note: q.alwaysNote()}, err
		}
		// ε rises as δ falls, but too large a δ is outside a lemma's conditions.
		good, reason := math.Inf(1), error(nil)
		meets := func(log float64) bool {
			e, err := bound(q.Sum, math.Exp(log))
			if err != nil && reason == nil {
				reason = err
			}
			return err == nil && e <= q.Eps
		}
		const step = .5
		bad := math.Inf(-1)
		for log := math.Log(.49); log > -650; log -= step {
			if meets(log) {
				good = log
			} else if !math.IsInf(good, 1) {
				bad = log
				break
			}
		}
		switch {
		case math.IsInf(good, 1) && reason != nil:
			return answer{}, reason
		case math.IsInf(good, 1):
			return answer{}, fmt.Errorf("no delta below 1/2 at eps = %v: %w", q.Eps, dp.ErrNoBound)
		}
		for !math.IsInf(bad, -1) && good-bad > 1e-6 {
			if mid := (good + bad) / 2; meets(mid) {
				good = mid
			} else {
				bad = mid
			}
		}
		return answer{eps: q.Eps, delta: math.Exp(good), note: q.alwaysNote()}, nil
	}
}

// planSum returns the round of least noise of a kind for which the tightest bound at q.Delta
// is at most target. It ignores Grid, Norm and Noise of q.Sum.
//
// The noise is within about a ten-thousandth of the smallest if every client is taken to be
// present. If chance decides, one per cent more covers cohorts of every size. An error wraps
// dp.ErrNoBound if nothing within the limits meets the target.
func planSum(ctx context.Context, target float64, q Query, kind vecsum.NoiseKind) (vecsum.Params, error) {
	q.Sum.Grid, q.Sum.Norm, q.Sum.Noise = 1, 0, vecsum.Noise{Kind: vecsum.Skellam, Variance: 1}
	if err := q.Validate(); err != nil {
		return vecsum.Params{}, err
	}
	if q.AskDelta || !(target > 0 && target <= dp.MaxEps0) {
		return vecsum.Params{}, fmt.Errorf("account: target epsilon = %v must be above 0 and at most %d, and delta given", target, dp.MaxEps0)
	}
	q = q.withSumDefaults()
	s := q.Sum
	t := vecsum.Target{Delta: q.Delta, Users: s.Users, MinUsers: s.MinUsers, Honest: s.Honest, Dim: s.Dim, Radius: s.Radius,
		Rounds: q.times(), Kind: kind, Split: s.Split}
	counted := q.counted()
	if !counted && q.Participation != dp.Sampled {
		t.Eps = target * (1 - 1e-8) // a larger margin than the error of the search for ε
		return vecsum.Tight(t)
	}
	// g has the sigma that sums of Gaussian reports need.
	g, err := q.Gaussian(1)
	if errors.Is(err, dp.ErrNoBound) { // random participation cannot lower the cost
		t.Eps = target * (1 - 1e-8)
		return vecsum.Tight(t)
	}
	if err != nil {
		return vecsum.Params{}, err
	}
	worth := g.Sigma
	g.Sigma, g.Delta = 0, dp.Counted(g.Delta, vecsum.TailShare)
	g, _, err = Plan(ctx, target*(1-1e-6), g, "sigma")
	if err != nil {
		return vecsum.Params{}, err
	}
	sigma := g.Sigma / worth * (1 + 0x1p-50)
	if !counted {
		t.Users = s.MinUsers
	}
	t.Sigma = sigma
	p, err := vecsum.Tight(t)
	p.Users = s.Users
	return p, err
}

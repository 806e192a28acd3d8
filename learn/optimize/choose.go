package optimize

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/learn/schedule"
)

// errNoPlan is returned where no batch gives a finite bound.
var errNoPlan = errors.New("no parameters give a finite bound: the noise or the distance is unbounded")

// candidates visits whole numbers from lo to hi, each about one twentieth above the one
// before, and hi itself.
func candidates(lo, hi int64, visit func(int64)) {
	for v := lo; ; v = max(v+1, int64(float64(v)*1.05)) {
		if v >= hi {
			visit(hi)
			return
		}
		visit(v)
	}
}

// least returns the argument with the smallest value, 0 if no value is finite. It tries the
// candidates from lo to hi, and then finer steps around the best of them. The bounds have one
// minimum if the noise shrinks steadily with the batch. If it does not, the result is still
// one of the values tried, and its bound holds.
func least(lo, hi int64, value func(int64) float64) (best int64) {
	low := math.Inf(1)
	try := func(v int64) {
		if f := value(v); f < low {
			best, low = v, f
		}
	}
	candidates(lo, hi, try)
	if best == 0 {
		return 0
	}
	from, to := max(lo, int64(float64(best)/1.05)), min(hi, int64(float64(best)*1.05)+1)
	for v, step := from, max(1, (to-from)/40); v <= to; v += step {
		try(v)
	}
	return best
}

// smallestBatch returns the smallest B with ⌊n/B⌋ ≤ T, the first whole number above n/(T + 1),
// where T is MaxRounds; 1 if MaxRounds is 0.
func (p Problem) smallestBatch(n int64) int64 {
	if p.MaxRounds == 0 {
		return 1
	}
	return n/(p.MaxRounds+1) + 1
}

// onePass chooses the batch size for n clients that report once, where stage
// gives the parameters and the bound for T rounds of at least B clients.
func (p Problem) onePass(n, batch int64, stage func(p Problem, rounds, batch int64) Stage) (schedule.Blocks, Stage, error) {
	at := func(p Problem, size int64) Stage {
		rounds := n / size
		s := stage(p, rounds, n/rounds) // n/rounds: the smallest batch that schedule.Blocks makes
		s.Rounds, s.Batch = rounds, n/rounds
		return s
	}
	if batch == 0 {
		if batch = least(p.smallestBatch(n), n, func(size int64) float64 { return at(p, size).Bound }); batch == 0 {
			return schedule.Blocks{}, Stage{}, errNoPlan
		}
	}
	if batch > n {
		return schedule.Blocks{}, Stage{}, fmt.Errorf("batch = %d above the %d clients", batch, n)
	}
	s := at(p.exact(), batch)
	if p.MaxRounds > 0 && s.Rounds > p.MaxRounds {
		return schedule.Blocks{}, Stage{}, fmt.Errorf("batch = %d takes %d rounds, above the limit %d", batch, s.Rounds, p.MaxRounds)
	}
	blocks, err := schedule.NewBlocks(n, batch)
	return blocks, s, err
}

// maker returns the stage of T rounds of at least B clients.
type maker func(p Problem, o Overrides, rounds, batch int64) (Stage, error)

// one returns a function that makes a single stage for given rounds.
func one(make maker) func(Problem, Overrides, given) ([]Stage, error) {
	return func(p Problem, o Overrides, r given) ([]Stage, error) {
		s, err := make(p, o, r.count, r.batch)
		s.Rounds, s.Batch = r.count, r.batch
		return []Stage{s}, err
	}
}

// disjoint plans one stage and chooses the size of its batches.
func disjoint(p Problem, o Overrides, make maker) (*Plan, error) {
	if _, err := make(p, o, 1, p.Clients); err != nil {
		return nil, err
	}
	blocks, s, err := p.onePass(p.Clients, o.Batch, func(p Problem, rounds, batch int64) Stage {
		s, _ := make(p, o, rounds, batch) // cannot fail: make's errors do not depend on rounds and batch, and it was called above
		return s
	})
	if err != nil {
		return nil, err
	}
	batches, err := schedule.NewBatches(1, blocks)
	return newPlan(batches, []Stage{s}), err
}

func planPSGD(p Problem, o Overrides) (*Plan, error)       { return disjoint(p, o, averagedStage) }
func planAGD(p Problem, o Overrides) (*Plan, error)        { return disjoint(p, o, smoothStage) }
func planSmoothed(p Problem, o Overrides) (*Plan, error)   { return disjoint(p, o, envelopeStage) }
func planPanPrivate(p Problem, o Overrides) (*Plan, error) { return disjoint(p, o, panStage) }

// averagedStage takes η = D/(L_G√T) with L_G² = L² + dσ².
func averagedStage(p Problem, o Overrides, rounds, batch int64) (Stage, error) {
	d, moment, step := p.distance(), p.Lipschitz*p.Lipschitz+p.variance(batch, 1), o.Step
	if step == 0 {
		step = d / math.Sqrt(moment*float64(rounds))
	}
	return Stage{Distance: d, Sigma: p.Noise.deviation(batch, 1), Step: step, Bound: averagedBound(rounds, d, step, moment)}, nil
}

func smoothStage(p Problem, o Overrides, rounds, batch int64) (Stage, error) {
	if p.Smoothness == 0 {
		return Stage{}, errors.New("needs the smoothness beta of the loss; agd-smooth does without")
	}
	return p.accelerated(rounds, batch, p.distance(), 1, false, o), nil
}

func envelopeStage(p Problem, o Overrides, rounds, batch int64) (Stage, error) {
	return p.accelerated(rounds, batch, p.distance(), 1, true, o), nil
}

func panStage(p Problem, o Overrides, rounds, batch int64) (Stage, error) {
	return p.accelerated(rounds, batch, p.distance(), 2, p.Smoothness == 0 || o.Smoothing > 0, o), nil
}

func fullStage(p Problem, o Overrides, rounds, batch int64) (Stage, error) {
	return p.full(rounds, batch, o), nil
}

// accelerated returns the stage of acsa at distance d; draws is the number of noise draws in
// a mean.
func (p Problem) accelerated(rounds, batch int64, d, draws float64, envelope bool, o Overrides) Stage {
	s := Stage{Distance: d, Sigma: math.Sqrt(draws) * p.Noise.deviation(batch, 1), Curvature: o.Curvature}
	variance := p.Lipschitz*p.Lipschitz/float64(batch) + draws*p.variance(batch, 1)
	beta, below := p.Smoothness, 0.0
	if envelope {
		if s.Smoothing = o.Smoothing; s.Smoothing == 0 {
			s.Smoothing = acsaSmoothing(rounds, d, p.Lipschitz)
		}
		beta, below = s.Smoothing+p.StrongConvexity, smoothingBound(p.Lipschitz, s.Smoothing)
	}
	if s.Curvature == 0 {
		s.Curvature = acsaCurvature(rounds, d, beta, variance)
	}
	s.Bound = acsaBound(rounds, d, s.Curvature, beta, variance) + below
	return s
}

// phaseCounts returns the smallest and the largest number of phases to try.
func phaseCounts(p Problem, o Overrides) (lo, hi int, err error) {
	switch {
	case p.StrongConvexity == 0:
		return 0, 0, errors.New("needs the strong convexity lambda of the loss")
	case o.Phases > 0:
		return o.Phases, o.Phases, nil
	case p.Clients > 4:
		return 1, int(math.Ceil(math.Log2(math.Log2(float64(p.Clients))))), nil
	}
	return 1, 1, nil
}

// planPhases divides the clients evenly over the phases. It chooses the number of phases with
// the least final bound.
func planPhases(p Problem, o Overrides) (*Plan, error) {
	lo, hi, err := phaseCounts(p, o)
	if err != nil {
		return nil, err
	}
	var best *Plan
	for k := lo; k <= hi; k++ {
		plan, err := p.phases(k, o)
		if err != nil {
			return nil, err
		}
		if best == nil || plan.Bound < best.Bound {
			best = plan
		}
	}
	return best, nil
}

// phaseStages divides given rounds evenly over the phases.
func phaseStages(p Problem, o Overrides, r given) ([]Stage, error) {
	lo, hi, err := phaseCounts(p, o)
	if err != nil {
		return nil, err
	}
	if int64(lo) > r.count {
		return nil, fmt.Errorf("%d phases in %d rounds", lo, r.count)
	}
	var best []Stage
	for k := int64(lo); k <= min(int64(hi), r.count); k++ {
		var stages []Stage
		d := p.distance()
		for i := range k {
			rounds := r.count / k
			if i < r.count%k {
				rounds++
			}
			s := p.accelerated(rounds, r.batch, d, 1, p.Smoothness == 0 || o.Smoothing > 0, o)
			s.Rounds, s.Batch = rounds, r.batch
			stages = append(stages, s)
			d = p.nextDistance(s)
		}
		if best == nil || stages[k-1].Bound < best[len(best)-1].Bound {
			best = stages
		}
	}
	return best, nil
}

// nextDistance bounds the distance after a stage.
func (p Problem) nextDistance(s Stage) float64 {
	return math.Min(p.anywhere(), math.Sqrt(2*s.Bound/p.StrongConvexity))
}

// phases plans k phases.
func (p Problem) phases(k int, o Overrides) (*Plan, error) {
	n := p.Clients / int64(k)
	if n < 1 {
		return nil, fmt.Errorf("%d phases of %d clients", k, p.Clients)
	}
	if p.MaxRounds > 0 {
		if p.MaxRounds /= int64(k); p.MaxRounds == 0 {
			return nil, fmt.Errorf("%d phases in fewer rounds", k)
		}
	}
	envelope := p.Smoothness == 0 || o.Smoothing > 0
	d := p.distance()
	var blocks []schedule.Blocks
	var stages []Stage
	for range k {
		b, s, err := p.onePass(n, o.Batch, func(p Problem, rounds, batch int64) Stage {
			return p.accelerated(rounds, batch, d, 1, envelope, o)
		})
		if err != nil {
			return nil, err
		}
		blocks, stages = append(blocks, b), append(stages, s)
		d = p.nextDistance(s)
	}
	batches, err := schedule.NewBatches(1, blocks...)
	return newPlan(batches, stages), err
}

// planGD chooses T and η by the better of the bounds with and without smoothness. With strong
// convexity it also chooses the number of groups, as planPhases does.
func planGD(p Problem, o Overrides) (*Plan, error) {
	if p.MaxRounds > 0 && o.Rounds > p.MaxRounds {
		return nil, fmt.Errorf("%d rounds above the limit %d", o.Rounds, p.MaxRounds)
	}
	lo, hi := 1, 1
	if p.StrongConvexity > 0 {
		lo, hi, _ = phaseCounts(p, o)
	} else if o.Phases > 1 {
		return nil, fmt.Errorf("%d groups need the strong convexity lambda of the loss", o.Phases)
	}
	var best *Plan
	for k := int64(lo); k <= int64(hi); k++ {
		plan, err := p.groups(k, o)
		if err != nil {
			if k > 1 && best != nil {
				break // too few rounds to divide
			}
			return nil, err
		}
		if best == nil || plan.Bound < best.Bound {
			best = plan
		}
	}
	return best, nil
}

// groups plans k groups of clients, each with the same number of rounds.
func (p Problem) groups(k int64, o Overrides) (*Plan, error) {
	n, most, rounds := p.Clients/k, p.Clients/k, o.Rounds/k
	if p.MaxRounds > 0 {
		most = min(most, p.MaxRounds/k)
	}
	if n < 1 || most < 1 || rounds < 1 && o.Rounds > 0 {
		return nil, fmt.Errorf("%d groups of %d clients in fewer rounds", k, p.Clients)
	}
	if rounds == 0 {
		rounds = fewest(most, func(t int64) float64 { return p.grouped(k, t, o)[k-1].Bound })
		if rounds == 0 {
			return nil, errNoPlan
		}
	}
	group, err := schedule.NewBlocks(n, n)
	if err != nil {
		return nil, err
	}
	batches, err := schedule.NewBatches(rounds, slices.Repeat([]schedule.Blocks{group}, int(k))...)
	return newPlan(batches, p.exact().grouped(k, rounds, o)), err
}

// grouped returns the stages of k groups with T rounds each.
func (p Problem) grouped(k, rounds int64, o Overrides) []Stage {
	var stages []Stage
	p.Clients /= k
	for range k {
		s := p.full(rounds, p.Clients, o)
		stages = append(stages, s)
		if p.StrongConvexity > 0 {
			p.Distance = p.nextDistance(s)
		}
	}
	return stages
}

// full returns the stage of T rounds that ask all clients; in each a random set of at least
// batch of them reports.
func (p Problem) full(rounds, batch int64, o Overrides) Stage {
	n, l, d := float64(p.Clients), p.Lipschitz, p.distance()
	t := float64(rounds)
	variance := p.variance(batch, rounds)
	if batch < p.Clients {
		variance += l * l / float64(batch)
	}
	reuse := 2 * l * l * float64(rounds-1) / n // (2/η)·reuseBound
	s := Stage{Rounds: rounds, Batch: batch, Distance: d, Sigma: p.Noise.deviation(batch, rounds), Bound: math.Inf(1)}
	consider := func(step, smoothing, beta float64, bound func(step float64) float64) {
		if o.Step > 0 {
			step = o.Step
		}
		total := bound(step) + reuseBound(rounds, p.Clients, step, l, beta)
		if s.Step == 0 || total < s.Bound {
			s.Step, s.Smoothing, s.Bound = step, smoothing, total
		}
	}
	lipschitz := func(step float64) float64 { return averagedBound(rounds, d, step, l*l+variance) }

	if p.Smoothness == 0 || o.Smoothing > 0 {
		// An envelope with β = 2/η adds L²/(2β) = ηL²/4 to the bound, as much as another L²/2
		// in the moment would add.
		step := d / math.Sqrt((1.5*l*l+variance+reuse)*t)
		smoothing := o.Smoothing
		if smoothing > 0 {
			step = math.Min(step, 2/(smoothing+p.StrongConvexity))
		} else {
			if o.Step > 0 {
				step = o.Step
			}
			// An envelope needs 2/η above λ. With a large ridge λ a smaller step makes room
			// for it.
			if p.StrongConvexity > 0 && o.Step == 0 {
				step = math.Min(step, 1/p.StrongConvexity)
			}
			if smoothing = 2/step - p.StrongConvexity; !(smoothing > 0) {
				s.Step = step // no envelope fits this step, so there is no bound
				return s
			}
		}
		consider(step, smoothing, smoothing+p.StrongConvexity, func(step float64) float64 {
			return lipschitz(step) + smoothingBound(l, smoothing)
		})
		return s
	}
	consider(math.Min(2/p.Smoothness, d/math.Sqrt((l*l+variance+reuse)*t)), 0, p.Smoothness, lipschitz)
	smooth := func(step float64) float64 {
		return averagedSmoothBound(rounds, d, step, variance, p.Smoothness, l)
	}
	step := golden(0, 1/p.Smoothness, func(step float64) float64 {
		return smooth(step) + reuseBound(rounds, p.Clients, step, l, p.Smoothness)
	})
	consider(step, 0, p.Smoothness, smooth)
	return s
}

// golden returns roughly the point of (lo, hi) at which a convex function is smallest, by
// golden section. It never returns lo or hi.
func golden(lo, hi float64, f func(float64) float64) float64 {
	const part = 0.6180339887498949
	for range 60 {
		a, b := hi-part*(hi-lo), lo+part*(hi-lo)
		if f(a) <= f(b) {
			hi = b
		} else {
			lo = a
		}
	}
	return lo + (hi-lo)/2
}

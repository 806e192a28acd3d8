package amplify

import (
	"math"

	"github.com/riffle-dp/riffle/internal/tail"
)

// The pair of m reports that hide each other is given by the law of U = (a − b)/m under
// (P+Q)/2. Here a of the m reports look like the victim's under P, and b like its report under
// Q. P and Q weigh U = u by 1 ± tu, t = (E−1)/(E+1). Both weights are linear in u, so moving
// mass outwards without moving its mean gives another pair that dominates. law.md has the
// argument.

// axis is a grid of u ≥ 0: uniform near 0, then geometric up to 1.
type axis struct {
	step    float64
	core    float64 // number of deviations that are covered outcome by outcome
	uniform int     // u[i] = i·step for i ≤ uniform
	u       []float64
}

const (
	// Splitting between nodes adds at most step²/4 to the variance 1/m of U,
	// step²/6 on average: 3e-5 of ε at 50 nodes a deviation, see grain.
	coreDeviations = 9  // for pairs whose single round has a closed form
	wideDeviations = 12 // for other pairs: down to δ = 1e-31
	nodeGrowth     = 1.05
)

// newAxis returns an axis for numbers of reports near m, covered outcome by outcome up to
// core deviations.
func newAxis(m, core float64, g grain) *axis {
	a := &axis{step: 1 / (g.nodes * math.Sqrt(m)), core: core, uniform: int(g.nodes * core)}
	if float64(a.uniform)*a.step >= 1 {
		a.uniform = int(math.Ceil(1 / a.step))
		a.step = 1 / float64(a.uniform)
	}
	for i := 0; i <= a.uniform; i++ {
		a.u = append(a.u, float64(i)*a.step)
	}
	for a.u[len(a.u)-1] < 1 {
		a.u = append(a.u, math.Min(1, a.u[len(a.u)-1]*nodeGrowth))
	}
	a.u[len(a.u)-1] = 1
	return a
}

// after returns the smallest node at or above u.
func (a *axis) after(u float64) int {
	i := min(a.uniform, int(u/a.step))
	for i < len(a.u)-1 && a.u[i] < u {
		i++
	}
	return i
}

// split adds mass at u in (0, 1] to the two nodes around it and keeps the mean. Mass on node
// 0 is not recorded: nodes i > 0 stand for u and −u each, and all remaining mass lies at 0.
func (a *axis) split(mass []float64, u, w float64) {
	i := a.after(u)
	share := 1.
	if i > 0 {
		share = (u - a.u[i-1]) / (a.u[i] - a.u[i-1])
		mass[i-1] += w * (1 - share)
	}
	mass[i] += w * share
}

// law returns the one-sided masses of U for m reports: those of the counts a > m/2, where a ~
// Bin(m, ½).
func (a *axis) law(m int64) []float64 { return a.scaled(m, 1, 0) }

// scaled returns the law of shrink·U, 0 < shrink ≤ 1. less is 1 − shrink, with its own digits.
func (a *axis) scaled(m int64, shrink, less float64) []float64 {
	mass := make([]float64, len(a.u))
	if m > 1<<26 {
		a.cells(mass, m, shrink)
		return mass
	}
	// It takes all outcomes up to the core, then one block per node.
	end := min(m, m/2+1+int64(a.core/2*math.Sqrt(float64(m))))
	scale := shrink / (float64(m) * a.step)
	tail.PMF(m, .5, .5, m/2+1, end, func(first int64, w float64) {
		x := float64(2*first-m) * scale
		if i := int(x); i < a.uniform {
			up := w * (x - float64(i))
			mass[i] += w - up
			mass[i+1] += up
			return
		}
		d := float64(2*first - m)
		if less == 0 {
			a.split(mass, d/float64(m), w)
			return
		}
		under := float64(2*(m-first)) + less*d
		a.splitAbove(mass, d/float64(m)*shrink, under/float64(m)*(1-roundingOfU), w)
	})
	for first := end + 1; first <= m; {
		// All mass from the count first on goes to the node after it. Counts further out are
		// added again at their own nodes.
		u := float64(2*first-m) / float64(m) * shrink
		i := min(len(a.u)-1, max(a.after(u)+1, a.after(math.Min(1, nodeGrowth*u))))
		w := tail.UpperTail(m, first, .5, .5)
		if w < 1e-300 {
			mass[a.after(shrink)] += 1e-300
			break
		}
		mass[i] += w
		if i == len(a.u)-1 || a.u[i] >= shrink {
			break
		}
		first = int64(math.Floor((a.u[i]/shrink+1)/2*float64(m))) + 1
	}
	return mass
}

// cells is law for cells between nodes that hold many outcomes. A cell's mass and mean are
// differences of closed forms,
//
//	Pr[A ≥ x] and E[(2A − m)/m; A ≥ x] = x·Pr[A = x]/m.
func (a *axis) cells(mass []float64, m int64, shrink float64) {
	M := float64(m)
	tailAt := func(x int64) (prob, mean float64) {
		if x > m {
			return 0, 0
		}
		return tail.Survival(m, x, .5, .5), math.Exp(tail.LogPMF(m, x, .5, .5)) * float64(x) / M * shrink
	}
	from := m/2 + 1
	prob, mean := tailAt(from)
	for i := 1; i < len(a.u) && from <= m; i++ {
		to := m + 1
		if a.u[i] < shrink {
			to = int64(math.Floor((a.u[i]/shrink+1)/2*M)) + 1
		}
		p1, e1 := tailAt(to)
		w := prob - p1
		if w > 0 {
			// The differences err by 1e-9 of a cell's width, so shift a little mass to the outer node.
			share := math.Min(1, math.Max(0, ((mean-e1)/w-a.u[i-1])/(a.u[i]-a.u[i-1])+1e-8))
			mass[i] += w * share
			mass[i-1] += w * (1 - share)
		}
		from, prob, mean = to, p1, e1
	}
	mass[a.after(shrink)] += 1e-300 // mass that underflowed
}

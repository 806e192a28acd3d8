package amplify

import (
	"fmt"
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// Attendance describes rounds of sampled clients, or of clients who check in, of whom nobody knows how
// many are there: before each draw somebody who sees all releases chooses who can report, upon nothing
// that depends on data or on a draw. A round of fewer than Least honest reports is void. Every round
// that is announced has the pair, the void ones too.
type Attendance struct {
	Population int64   // n, honest; not used with Gamma
	Sample     int64   // k of n are drawn; 0 with Gamma
	Gamma      float64 // each client reports with this chance, on its own coin; 0 with Sample
	Least      int64   // m, at least 1
}

func (a Attendance) check() error {
	switch {
	case a.Least < 1:
		return fmt.Errorf("amplify: n-min = %d must be at least 1", a.Least)
	case a.Gamma == 0 && (a.Population < 1 || a.Population > maxReports):
		return fmt.Errorf("amplify: n = %d must lie between 1 and 2^52", a.Population)
	case a.Gamma == 0 && (a.Sample < a.Least || a.Sample > a.Population):
		return fmt.Errorf("amplify: k = %d must lie between n-min = %d and n = %d", a.Sample, a.Least, a.Population)
	case a.Gamma != 0 && a.Sample != 0:
		return fmt.Errorf("amplify: gamma = %v and k = %d: give one", a.Gamma, a.Sample)
	case a.Gamma != 0 && !(a.Gamma > 0 && a.Gamma <= 1):
		return fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", a.Gamma)
	case a.Least > maxReports:
		return fmt.Errorf("amplify: n-min = %d must be at most 2^52", a.Least)
	}
	return nil
}

// chance returns the chance that a client who is there reports.
func (a Attendance) chance() float64 {
	if a.Gamma > 0 {
		return a.Gamma
	}
	return float64(a.Sample) / float64(a.Population)
}

// Attendance returns a pair that dominates such a round: at every ε the largest divergence over all
// numbers of clients who are there, of the mixture over the number r of reports of rounds with r of
// them. It holds for larger populations too, so a roster may grow. With Gamma no population is
// assumed.
//
// Result: upper bound, proved, replace-one. Source: Theorem (T), attendance.md. ε is up to some .5 %
// above the supremum.
func (f Family) Attendance(a Attendance) (dp.Pair, error) {
	if err := a.check(); err != nil {
		return dp.Pair{}, err
	}
	crowd, err := f.crowds(a.Least)
	if err != nil {
		return dp.Pair{}, err
	}
	return a.worst(f.rough, false, func(r int64) (dp.Pair, error) { return roundOf(crowd, r, 1), nil })
}

// GaussianAttendance is Family.Attendance for the sum of Gaussian reports. If apart, noise of sigma is
// added to the sum however many report; otherwise each report has such noise.
//
// Source: Theorem (T), attendance.md, with the pairs of Gaussian.
func GaussianAttendance(sigma float64, a Attendance, apart bool) (dp.Pair, error) {
	if err := a.check(); err != nil {
		return dp.Pair{}, err
	}
	return a.worst(false, apart, func(r int64) (dp.Pair, error) {
		return Gaussian(GaussianConfig{Sigma: sigma, Population: r, Reports: r, Apart: apart})
	})
}

// hidden is the curve of a round of which a client is surely a part: over is e^loss − 1 of its outcomes, rising, and
// mass and gain are the sums of Q and of Q·over from each outcome on.
type hidden struct {
	over, mass, gain []float64
}

func newHidden(p dp.Pair) hidden {
	atoms := slices.Clone(p.Atoms)
	slices.SortFunc(atoms, func(x, y dp.Atom) int {
		switch {
		case x.Loss < y.Loss:
			return -1
		case x.Loss > y.Loss:
			return 1
		}
		return 0
	})
	n := len(atoms)
	h := hidden{make([]float64, n), make([]float64, n+1), make([]float64, n+1)}
	for i := n - 1; i >= 0; i-- {
		h.over[i] = math.Expm1(atoms[i].Loss)
		h.mass[i] = h.mass[i+1] + atoms[i].Q
		h.gain[i] = h.gain[i+1] + atoms[i].Q*h.over[i]
	}
	return h
}

// raise raises to[j] to q·D(over[j]/q), the divergence at g = 1 + over[j] of a round of which the client
// is a part with chance q: Σ Q·(over_i − over[j]/q)₊ times q.
func (h hidden) raise(to, over []float64, q float64) {
	i := 0
	for j, y := range over {
		y /= q
		for i < len(h.over) && h.over[i] <= y {
			i++
		}
		if i == len(h.over) {
			return
		}
		gain, loss := h.gain[i], y*h.mass[i]
		// The slack covers the rounding of the difference and of the sums.
		if v := q * (gain - loss + 1e-13*(gain+loss)); v > to[j] {
			to[j] = v
		}
	}
}

// sizes returns the smallest number of reports of each block of them, rising from the least to most. A block counts as its smallest
// number, included as its largest. The largest divergence is of numbers of reports just above the least, so blocks
// are narrow there, and wider where more hide each other than matters.
func (a Attendance) sizes(most int64, rough bool) []int64 {
	least := float64(a.Least)
	narrow := .004
	if rough {
		narrow = .02
	}
	var out []int64
	for r := a.Least; r <= most; {
		out = append(out, r)
		x := float64(r)
		// Beyond eight deviations of the least number: a third of what hiding has gained since.
		gained := math.Log(x/least) - 8/math.Sqrt(least)
		if next := x * (1 + math.Max(narrow, math.Min(.5, gained/3))); next <= float64(most) {
			r = max(r+1, int64(next))
		} else {
			break
		}
	}
	return out
}

// attending computes curves of a range of numbers of clients who are there.
type attending struct {
	Attendance
	over  []float64 // e^ε − 1 of the nodes of ε
	first []int64   // the smallest number of each block of reports
	most  int64     // the largest number
	hides []hidden
	alike bool // all blocks hide alike: then larger ones, in which a client is likelier, cost more
	width func(mean, deviation, z float64) int64
}

// curve bounds, at the nodes, h_a of every number a of clients from first to last who are there: the number r of reports of
// last is stochastically the largest, a client's inclusion r/a is at most r/first, and the running maximum over r does not
// fall in r.
func (t attending) curve(first, last int64) []float64 {
	var spans []spanned
	if t.Gamma > 0 {
		spans = spansOf(last, t.Gamma, t.width)
	} else {
		spans = drawn(t.Population, t.Sample, last, t.width)
	}
	weights := make([]float64, len(t.first))
	top := -1
	for _, s := range spans {
		if s.Last < t.Least || s.Weight == 0 {
			continue // void
		}
		i, found := slices.BinarySearch(t.first, s.Last)
		if !found {
			i--
		}
		weights[i] += s.Weight
		top = max(top, i)
	}
	sum, most := make([]float64, len(t.over)), make([]float64, len(t.over))
	for i := 0; i <= top; i++ {
		end := t.most
		if i+1 < len(t.first) {
			end = t.first[i+1] - 1
		}
		w := weights[i]
		if w > 0 || !t.alike {
			t.hides[i].raise(most, t.over, math.Min(1, float64(end)/float64(first)))
		}
		if w > 0 {
			for j, v := range most {
				if v == 0 {
					break
				}
				sum[j] += w * v
			}
		}
	}
	return sum
}

// spansOf covers the number of n clients whose coin, of chance p, says yes.
func spansOf(n int64, p float64, width func(mean, deviation, z float64) int64) []spanned {
	if p == 1 {
		return []spanned{{n, n, 1}}
	}
	return spans(n, p, 1-p, width)
}

// drawn covers the number of those there, a of n, among k that are drawn.
func drawn(n, k, a int64, width func(mean, deviation, z float64) int64) []spanned {
	if a == n {
		return []spanned{{k, k, 1}}
	}
	return honestReports(n, k, n-a, width)
}

const (
	// nearest is the relative width of ranges of numbers of clients that are not divided further.
	nearest      = 1. / 1024
	nearestRough = 1. / 128
	// attendanceError is by what share of ε a wider range may be above what was found elsewhere; far out δ moves by
	// −2·log δ times as much.
	attendanceError = 1e-3
	// crowdedAt is the multiple of the least number of reports from which on more of them count as hiding no better.
	crowdedAt = 64
)

// worst returns the pair whose curve is the largest over all numbers of clients who are there. base returns the pair
// of a round of r reports of which a client's is surely one; alike says that it is the same for all r.
func (a Attendance) worst(rough, alike bool, base func(r int64) (dp.Pair, error)) (dp.Pair, error) {
	chance := a.chance()
	most, there := a.Sample, a.Population
	if a.Gamma > 0 {
		there, most = maxReports, maxReports
	}
	t := attending{Attendance: a, first: a.sizes(most, rough), most: most, alike: alike}
	t.width = blockWidth(arrivalError * 4)
	near, step := nearest, 3
	if rough {
		t.width, near, step = blockWidth(arrivalError*40), nearestRough, 6
	}
	var rest, top float64
	var losses []float64 // to which outcomes are moved
	var sure hidden      // a round of the least number of reports, the client's among them: no round costs more
	for i, r := range t.first {
		if i > 0 && (alike || r > crowdedAt*a.Least) { // counts as fewer
			t.hides = append(t.hides, t.hides[i-1])
			continue
		}
		p, err := base(r)
		if err != nil {
			return dp.Pair{}, err
		}
		h := newHidden(p)
		if n := len(h.over); n > 0 {
			top = math.Max(top, h.over[n-1])
			if losses == nil {
				sure = h
				losses = strided(h.over, step)
			}
			if end := losses[len(losses)-1]; n > 2*len(losses) && h.over[n-1] <= math.Expm1(end) {
				h = newHidden(dp.Pair{Atoms: merge(p.Atoms, losses)})
				top = math.Max(top, h.over[len(h.over)-1]) // a rounding above the largest loss
			}
		}
		rest = math.Max(rest, p.Dropped())
		t.hides = append(t.hides, h)
	}
	if !(top > 0 && top <= math.MaxFloat64) {
		return dp.Pair{}, fmt.Errorf("amplify: a round's largest loss is not a number: %v: %w", math.Log1p(top), dp.ErrNoBound)
	}
	t.over = nodesOf(sure.over, chance, top, step)

	worst := make([]float64, len(t.over)) // bounds all ranges so far
	known := make([]float64, len(t.over)) // what some range surely reaches, but for rounding
	settle := func(first, last int64) bool {
		curve := t.curve(first, last)
		narrow := float64(last-first) <= near*float64(first)
		if !narrow {
			for j, v := range curve {
				if v > 1e-40 && v > known[j]*(1+attendanceError*(1-2*math.Log(math.Max(1e-40, known[j])))) {
					return false
				}
			}
		}
		for j, v := range curve {
			worst[j] = math.Max(worst[j], v)
			if narrow {
				known[j] = math.Max(known[j], v)
			}
		}
		return true
	}
	var divide func(first, last int64)
	divide = func(first, last int64) {
		if settle(first, last) {
			return
		}
		mid := int64(math.Sqrt(float64(first) * float64(last)))
		mid = max(first, min(mid, last-1))
		divide(mid+1, last)
		divide(first, mid)
	}
	// The largest curve at most ε is that of about so many clients that the least number of reports is some
	// deviations below the mean: with these known, most other ranges need not be divided.
	for z := 0.; z <= 6; z++ {
		mean := float64(a.Least) + z*math.Sqrt(float64(a.Least))
		at := int64(math.Min(float64(there), math.Max(float64(a.Least), mean/chance)))
		settle(at, at)
	}
	for last := there; last >= a.Least; {
		first := max(a.Least, last/2)
		divide(first, last)
		last = first - 1
	}
	limit := make([]float64, len(t.over))
	sure.raise(limit, t.over, 1)
	for j := range worst {
		worst[j] = math.Min(worst[j], limit[j]) * (1 + 1e-9)
	}
	if !(worst[0] > 0) {
		return dp.Pair{}, fmt.Errorf("amplify: no number of clients from %d to %d loses anything: %w", a.Least, there, dp.ErrNoBound)
	}
	worst[len(worst)-1] = 0 // no loss is larger
	var pair dp.Pair
	for i, q := range hull(t.over, worst) {
		if q > 0 {
			pair.Atoms = append(pair.Atoms, dp.Atom{Q: q, Loss: math.Log1p(t.over[i])})
		}
	}
	if rest > 0 {
		pair.Remainders = []dp.Remainder{{Mass: rest * (1 + 1e-9), MaxLoss: math.Inf(1)}}
	}
	return pair, nil
}

// strided returns the losses of every step-th outcome, from 0 to the largest.
func strided(over []float64, step int) []float64 {
	losses := []float64{0}
	for i := step - 1; i < len(over)-1; i += step {
		losses = append(losses, math.Log1p(over[i]))
	}
	return append(losses, math.Log1p(over[len(over)-1])*(1+0x1p-50))
}

// nodesOf returns e^ε − 1 of nodes: the outcomes of a round, included with a chance, or every step-th if they are many, and
// from the largest on in ever larger steps up to top.
func nodesOf(over []float64, chance, top float64, step int) []float64 {
	nodes := []float64{0}
	last := func() float64 { return nodes[len(nodes)-1] }
	step = min(step, len(over)/100+1)
	for i := step - 1; i < len(over); i += step {
		if x := chance * over[i]; x > last() && x < top {
			nodes = append(nodes, x)
		}
	}
	if few := 64; len(nodes) < few { // outcomes that are included with other chances lie between these
		end := math.Max(last(), math.Max(chance*top, top*0x1p-1000))
		for i := 1; i <= few; i++ {
			nodes = append(nodes, math.Min(top, end*float64(i)/float64(few)))
		}
		slices.Sort(nodes)
		nodes = slices.Compact(nodes)
	}
	for last() < top {
		loss := math.Log1p(last())
		nodes = append(nodes, math.Min(top, math.Max(math.Expm1(loss*nodeGrowth), last()*(1+1e-9))))
	}
	return nodes
}

package amplify

import (
	"math"
	"slices"

	"github.com/riffle-dp/riffle/dp"
)

// Blocks says how finely a pair distinguishes numbers of clones and of reports. Only an
// independent check of the pair needs to know.
type Blocks struct {
	// Clones: numbers of reports that hide each other are rounded down to multiples of it, or
	// to a finer grid.
	Clones int64
	// Reports lists the smallest k ≥ 1 of each block of k, rising; nil if k is fixed.
	Reports []int64
	// Drawn lists the smallest number of each block of honest clients who are drawn, rising; nil
	// but for colluders among sampled clients of whom some drop out.
	Drawn []int64
}

// RoundBlocks returns the Blocks of Round, for families of clones only.
func (f Family) RoundBlocks(r FamilyRound) (Blocks, error) {
	if f.kind != clonesKind {
		return Blocks{}, errNoFamily
	}
	if err := r.config(f).validate(); err != nil {
		return Blocks{}, err
	}
	return Blocks{Clones: newBuilder(f.eps0, f.rate, r.Reports, coreDeviations, cloneError, fine).width}, nil
}

// ArrivalBlocks returns the Blocks of Arrival, for families of clones only.
func (f Family) ArrivalBlocks(a FamilyArrival) (Blocks, error) {
	if f.kind != clonesKind {
		return Blocks{}, errNoFamily
	}
	if err := a.check(f); err != nil {
		return Blocks{}, err
	}
	out := Blocks{Clones: newBuilder(f.eps0, f.rate, max(1, int64(a.mean())), wideDeviations, arrivalError/5, fine).width}
	for _, k := range a.spans(blockWidth(arrivalError)) {
		out.Reports = append(out.Reports, max(1, k.First))
	}
	slices.Sort(out.Reports)
	out.Reports = slices.Compact(out.Reports)
	return out, nil
}

// coarseBlock is the least relative width of the blocks of CoarseArrival.
const coarseBlock = 1. / 256

// CoarseArrival is Arrival with a few dozen blocks of k, for checks that take long for each.
// It returns the blocks as well. In the bulk their widths are powers of two. With these blocks
// ε is up to a percent larger.
func (f Family) CoarseArrival(a FamilyArrival) (dp.Pair, Blocks, error) {
	if err := a.check(f); err != nil {
		return dp.Pair{}, Blocks{}, err
	}
	crowd, err := f.crowds(max(1, int64(a.mean())))
	if err != nil {
		return dp.Pair{}, Blocks{}, err
	}
	honest := a.Population - a.Colluders
	most := min(a.Asked, honest)
	mean := math.Max(1, a.mean())
	// The deviation is at most this, with colluders too.
	share := a.mean() / float64(a.Asked)
	deviation := math.Sqrt(float64(a.Asked) * share * (1 - share))
	width := func(z float64) int64 {
		w := math.Max(mean*coarseBlock, deviation/8) * math.Exp(math.Min(z*z, 20)/6)
		if z*z > 20 {
			w = math.Max(w, math.Abs(z)*deviation/2) // far out, ever wider
		}
		return int64(1) << max(0, int(math.Log2(w)))
	}
	var starts []int64
	for k := int64(math.Ceil(mean)); k > 0; k -= width((mean - float64(k)) / math.Max(1, deviation)) {
		starts = append(starts, k)
	}
	starts = append(starts, 1)
	for k := int64(math.Ceil(mean)); k <= most; k += width((float64(k) - mean) / math.Max(1, deviation)) {
		starts = append(starts, k)
	}
	slices.Sort(starts)
	starts = slices.Compact(starts)
	// Spans lie in blocks. A few cross their ends, and count from block to block.
	var blocks []spanned
	for _, s := range a.spans(blockWidth(arrivalError)) {
		if s.Last > 0 {
			i, found := slices.BinarySearch(starts, max(1, s.First))
			if !found {
				i--
			}
			s.First = starts[i]
			if i, _ = slices.BinarySearch(starts, s.Last+1); i < len(starts) {
				s.Last = starts[i] - 1
			} else {
				s.Last = most
			}
		}
		if n := len(blocks); n > 0 && blocks[n-1].First == s.First && blocks[n-1].Last == s.Last {
			blocks[n-1].Weight += s.Weight
		} else {
			blocks = append(blocks, s)
		}
	}
	coarse := Blocks{Clones: 1, Reports: starts}
	if b, ok := crowd.(*builder); ok {
		coarse.Clones = b.width
	}
	if a.Colluders > 0 && a.Gamma < 1 {
		for _, h := range honestReports(a.Population, a.Asked, a.Colluders, blockWidth(arrivalError)) {
			coarse.Drawn = append(coarse.Drawn, h.First)
		}
		slices.Sort(coarse.Drawn)
	}
	return arrivalOf(crowd, blocks, honest, a.mean()), coarse, nil
}

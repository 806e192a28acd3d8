package amplify

import "slices"

// Blocks says how finely a pair tells numbers apart: what a check of the pair by
// other means needs to know, and nothing that a bound rests on.
type Blocks struct {
	// Clones: numbers of reports that hide each other are rounded down to
	// multiples of it, or to a finer grid.
	Clones int64
	// Reports lists the smallest k ≥ 1 of each block of k, rising; nil where k is
	// given.
	Reports []int64
}

// RoundBlocks returns those of Round; of clones only.
func (f Family) RoundBlocks(r FamilyRound) (Blocks, error) {
	if f.kind != clonesKind {
		return Blocks{}, errNoFamily
	}
	if err := r.config(f).Validate(); err != nil {
		return Blocks{}, err
	}
	return Blocks{Clones: newBuilder(f.eps0, f.rate, r.Reports, coreDeviations, cloneError).width}, nil
}

// ArrivalBlocks returns those of Arrival without colluders; of clones only.
func (f Family) ArrivalBlocks(a FamilyArrival) (Blocks, error) {
	if f.kind != clonesKind || a.Colluders != 0 {
		return Blocks{}, errNoFamily
	}
	if err := a.check(f); err != nil {
		return Blocks{}, err
	}
	out := Blocks{Clones: newBuilder(f.eps0, f.rate, max(1, int64(float64(a.Asked)*a.Gamma)), wideDeviations, arrivalError/5).width}
	for _, k := range Arrivals(a.Asked, a.Gamma) {
		out.Reports = append(out.Reports, max(1, k.First))
	}
	slices.Sort(out.Reports)
	out.Reports = slices.Compact(out.Reports)
	return out, nil
}

package amplify

import "slices"

// Blocks says how finely a pair distinguishes numbers of clones and of reports. Only an
// independent check of the pair needs to know.
type Blocks struct {
	// Clones: numbers of reports that hide each other are rounded down to multiples of it, or
	// to a finer grid.
	Clones int64
	// Reports lists the smallest k ≥ 1 of each block of k, rising; nil if k is fixed.
	Reports []int64
}

// RoundBlocks returns the Blocks of Round, for families of clones only.
func (f Family) RoundBlocks(r FamilyRound) (Blocks, error) {
	if f.kind != clonesKind {
		return Blocks{}, errNoFamily
	}
	if err := r.config(f).validate(); err != nil {
		return Blocks{}, err
	}
	return Blocks{Clones: newBuilder(f.eps0, f.rate, r.Reports, coreDeviations, cloneError).width}, nil
}

// ArrivalBlocks returns the Blocks of Arrival without colluders, for families of clones only.
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

package amplify

import (
	"fmt"
	"slices"
)

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

// Blocks returns those of Round.
func (c RoundConfig) Blocks() (Blocks, error) {
	if err := c.check(); err != nil {
		return Blocks{}, err
	}
	return Blocks{Clones: newBuilder(c.Eps0, c.Rate, c.Reports, coreDeviations, cloneError).width}, nil
}

// Blocks returns those of Arrival.
func (c ArrivalConfig) Blocks() (Blocks, error) {
	if err := (RoundConfig{Eps0: c.Eps0, Population: c.Population, Reports: c.Asked, Rate: c.Rate}).check(); err != nil {
		return Blocks{}, err
	}
	if !(c.Gamma > 0 && c.Gamma <= 1) {
		return Blocks{}, fmt.Errorf("amplify: gamma = %v must be above 0 and at most 1", c.Gamma)
	}
	out := Blocks{Clones: newBuilder(c.Eps0, c.Rate, max(1, int64(float64(c.Asked)*c.Gamma)), wideDeviations, arrivalError/5).width}
	for _, k := range arrivals(c.Asked, c.Gamma) {
		out.Reports = append(out.Reports, max(1, k.first))
	}
	slices.Sort(out.Reports)
	out.Reports = slices.Compact(out.Reports)
	return out, nil
}

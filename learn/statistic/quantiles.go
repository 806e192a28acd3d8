package statistic

import (
	"errors"
	"fmt"
	"math"
)

// quantiles asks for the values at public ranks. A row has a one at each level of a binary tree
// over the range: at the node that its value lies in. Level l has 2^l nodes, l = 1 … Levels. A
// row outside has none; with Everyone it counts as the middle of the range.
type quantiles struct{ Question }

const (
	maxLevels = 19
	maxRanks  = 1000
	leastRank = 1e-9 // and 1 less it is the largest
)

func (quantiles) uses() []string {
	return []string{"column", "where", "low", "high", "everyone", "ranks", "levels"}
}
func (q quantiles) dim() int  { return 2<<q.Levels - 2 }
func (q quantiles) ones() int { return q.Levels }

func (q quantiles) check() error {
	if err := q.checkRanged(); err != nil {
		return err
	}
	if q.Levels < 1 || q.Levels > maxLevels {
		return fmt.Errorf("statistic: levels = %d of the quantiles' tree must lie between 1 and %d", q.Levels, maxLevels)
	}
	if n := len(q.Ranks); n < 1 || n > maxRanks {
		return fmt.Errorf("statistic: %d ranks of quantiles must be between 1 and %d", n, maxRanks)
	}
	for i, p := range q.Ranks {
		switch {
		// The conditions are negated so that they refuse a NaN.
		case !(p > 0 && p < 1):
			return fmt.Errorf("statistic: rank %v must lie strictly between 0 and 1", p)
		case !(p >= leastRank && p <= 1-leastRank):
			return fmt.Errorf("statistic: rank %v must be at least %v away from 0 and 1", p, leastRank)
		case i > 0 && !(p > q.Ranks[i-1]):
			return fmt.Errorf("statistic: rank %v must be above the one before it, %v", p, q.Ranks[i-1])
		}
	}
	return nil
}

// leaves is the number of the tree's leaves.
func (q quantiles) leaves() int { return 1 << q.Levels }

func (q quantiles) coder() coder {
	return coder{places: func(row Row, ok bool, _ []float32, places []int) []int {
		v, ok := q.value(row, ok)
		if !ok && !q.Everyone {
			return places
		}
		if !ok {
			v = q.middle()
		}
		leaf := q.part(v, q.leaves())
		for l := 1; l <= q.Levels; l++ {
			places = append(places, 1<<l-2+leaf>>(q.Levels-l))
		}
		return places
	}}
}

func (q quantiles) answer(r Release) (Answer, error) {
	if !r.Law.independent() {
		return Answer{}, errors.New("statistic: sums of a tree need independent errors")
	}
	known := math.NaN()
	if q.Everyone {
		known = float64(r.Reports)
	}
	below := consistent(r.Sums, q.Levels, known, r.Law.variance(0))
	a, joint := Answer{}, q.joint(len(q.Ranks))
	if !q.Everyone {
		about := r
		about.Law = normalLaw{r.Law, below.variance(len(below.left)-1, 0)}
		inside := about.count(below.total(), joint)
		a.Count = &inside
	}
	below.finite = r.finite()
	below.edge = func(j int) float64 { return q.edge(j, q.leaves()) }
	for _, p := range q.Ranks {
		a.Quantiles = append(a.Quantiles, below.quantile(p, joint))
	}
	return a, nil
}

// normalLaw is the law of errors with the normal law of the given variance.
type normalLaw struct {
	Law
	square float64 // the variance
}

func (l normalLaw) variance(float64) float64 { return l.square }

func (l normalLaw) surely() Law { return l }

func (l normalLaw) interval(sum, chance float64) (low, high float64) {
	e := normalQuantile((1+chance)/2) * math.Sqrt(l.square)
	return sum - e, sum + e
}

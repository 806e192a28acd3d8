package statistic

import "math"

// quantiles answers from the estimated numbers of values in equal parts of the range.
func (s *Messages) quantiles(r Release) Answer {
	n := float64(r.Reports)
	b := &below{left: make([]float64, s.bins+1), finite: r.finite(), edge: func(j int) float64 { return s.q.edge(j, s.bins) }}
	for j, v := range r.Sums[:s.bins] {
		b.left[j+1] = b.left[j] + v
	}
	if s.q.Everyone {
		b.left[s.bins] = n
	}
	b.monotone = monotone(b.left)
	all := math.Max(0, math.Min(n, b.total()))
	// In variances estimates are kept within what is possible. The weights of left − rank·total are
	// 1 − rank below the edge and −rank above it. Where everyone is inside the total has no error.
	b.variance = func(j int, rank float64) float64 {
		if s.q.Everyone {
			if rank = 0; j == s.bins {
				return 0
			}
		}
		left := math.Min(all, b.monotone[j])
		part, bins := float64(j), float64(s.bins)
		both := (1-rank)*(1-rank)*left + rank*rank*(all-left)
		squares := (1-rank)*(1-rank)*part + rank*rank*(bins-part)
		sum, weights := left-rank*all, part-rank*bins
		return math.Max(0, s.covariance(n, both, both, sum, sum, weights, weights, squares))
	}
	joint := s.q.joint(len(s.q.Ranks))
	a := Answer{Count: s.inside(r, joint)}
	for _, rank := range s.q.Ranks {
		a.Quantiles = append(a.Quantiles, b.quantile(rank, joint))
	}
	return a
}

package account

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// Pairs of randomizers that have more known properties than ε₀.
var (
	krrPair = clones{name: "krr", source: "privacy blanket of k-ary randomized response, Balle et al. 2019 (dp/amplify/threepart.md)",
		family: func(s shape) (amplify.Family, error) {
			switch s.class {
			case dp.KRR:
				return amplify.KRR(s.eps0, s.symbols)
			case dp.BinaryRR:
				return amplify.KRR(s.eps0, 2)
			}
			return notOf(s, "krr or rr2")
		}}
	tvPair = clones{name: "tv", source: "three-part blanket of a known total variation (dp/amplify/threepart.md)",
		family: func(s shape) (amplify.Family, error) {
			if s.class != dp.Generic || s.tv == 0 {
				return amplify.Family{}, fmt.Errorf("needs a total-variation parameter: %w", dp.ErrNoBound)
			}
			return amplify.KnownTV(s.eps0, s.tv)
		}}
	binaryPair = clones{name: "rr2", source: "binary randomized response, worst inputs of the others (dp/amplify/binary.md)",
		family: func(s shape) (amplify.Family, error) {
			if s.class != dp.BinaryRR {
				return notOf(s, "rr2")
			}
			return amplify.RR2(s.eps0)
		}}
	laplacePair = clones{name: "laplace", source: "three-part blanket of Laplace noise, total variation 1 - e^(-eps0/2) (dp/amplify/threepart.md)",
		family: func(s shape) (amplify.Family, error) {
			if s.class != dp.LaplaceL1 {
				return notOf(s, "laplace")
			}
			return amplify.Laplace(s.eps0)
		}}
)

func notOf(s shape, class string) (amplify.Family, error) {
	return amplify.Family{}, fmt.Errorf("holds for class %s, the reports are of class %s: %w", class, s.class, dp.ErrNoBound)
}

// narrow returns the pair that uses every known property of a shape's reports.
func (s shape) narrow() clones {
	switch {
	case s.trust.Alone():
		return blanket // nothing hides a report
	case s.class == dp.KRR:
		return krrPair
	case s.class == dp.BinaryRR:
		return binaryPair
	case s.class == dp.LaplaceL1:
		return laplacePair
	case s.tv > 0:
		return tvPair
	}
	return blanket // the blanket refuses reports that are not ε₀-LDP
}

// pure says whether the reports are ε₀-LDP, so that any bound for such reports holds for
// them. A class added later is not, until it is listed here.
func (s shape) pure() bool {
	switch s.class {
	case "", dp.Generic, dp.BinaryRR, dp.KRR, dp.LaplaceL1:
		return true
	}
	return false
}

// narrowest gives each part the narrowest pair of its class. Any mixture of dominating pairs
// composes.
func (e *engine) narrowest(parts []part) clones {
	var used []clones
	for _, p := range parts {
		c := e.narrowOf(p.shape)
		if !slices.ContainsFunc(used, func(u clones) bool { return u.name == c.name }) {
			used = append(used, c)
		}
	}
	if len(used) == 1 {
		return used[0]
	}
	var names, sources []string
	for _, u := range used {
		names, sources = append(names, u.name), append(sources, u.source)
	}
	return clones{name: strings.Join(names, "+"), source: strings.Join(sources, "; "),
		family: func(s shape) (amplify.Family, error) { return e.narrowOf(s).of(s) }}
}

// narrowOf is narrow, or the blanket if narrow has no pair.
func (e *engine) narrowOf(s shape) clones {
	c := s.narrow()
	if c.name == blanket.name {
		return c
	}
	if _, err := e.pair(s, c); errors.Is(err, dp.ErrNoBound) {
		return blanket
	}
	return c
}

func pairMethods() []method {
	out := make([]method, 0, 4)
	for _, c := range []clones{krrPair, tvPair, binaryPair, laplacePair} {
		out = append(out, pldMethod(c))
	}
	return out
}

// pldMethod composes a pair as privacy-loss distributions.
func pldMethod(c clones) method {
	return method{c.name + "-pld", dp.Upper, dp.Proved, c.source + "; composed as privacy-loss distributions",
		func(e *engine, q Query, parts []part) (eps, delta, order float64, note string, err error) {
			if q.AskDelta {
				delta, err = e.pldDelta(parts, c, q.Eps)
				return q.Eps, delta, 0, "", err
			}
			eps, err = e.pldEps(parts, c, q.Delta)
			return eps, q.Delta, 0, "", err
		}}
}

// inBest says whether a method can give the tightest proved bound of a query.
func inBest(q Query, s shape, id string) bool {
	if q.Adjacency == dp.AddRemoveOne {
		return id == removalMethod
	}
	if q.Class == dp.Gaussian {
		return id == "gauss-pld" || id == "gauss-rdp" || id == "gauss-strong" || id == "shuffle-approx-ldp"
	}
	switch id {
	case "blanket-pld", "blanket-rdp", "basic":
		return true // also if a narrower pair has no answer
	}
	return !q.AdaptiveWithinRound && id == s.narrow().name+"-pld"
}

// countsColluders lists the methods that take colluders among the drawn clients into account:
// those that use a family's pair, and those that hold with or without colluders.
var countsColluders = []string{"blanket-pld", "blanket-rdp", "clones-pld", "clones-rdp", "krr-pld", "tv-pld", "rr2-pld", "laplace-pld",
	"basic", "lower-rr2", "lower-rr3", "lower-krr"}

// limits returns why a method does not answer a query, or a note about its answer.
func limits(q Query, s shape, m method) (refusal, note string) {
	adaptive := m.id == "basic" || m.kind == dp.Lower || strings.HasPrefix(m.id, "blanket-") || strings.HasPrefix(m.id, "clones-")
	random := s.rate > 0 && s.rate < 1
	switch {
	case s.colluders > 0 && !slices.Contains(countsColluders, m.id):
		return "stated without colluders among those who are drawn", ""
	case m.kind == dp.Lower && q.Trust.Alone() && (q.Dropout > 0 || q.Participation == dp.Sampled || q.Participation == dp.CheckIn):
		return "a mechanism for a client who reports in every round, here it may not", ""
	case q.AdaptiveWithinRound && !adaptive:
		return "not proved for reports that depend on earlier reports of their round", ""
	case q.HiddenReports && random && m.kind == dp.Lower:
		return "the mechanism shows how many reports there are, which is hidden here", ""
	case q.HiddenReports && random && m.kind == dp.Upper:
		return "", "the number of reports hidden: what holds for it public holds"
	case q.Colluders > 0 && s.colluders > 0 && m.kind == dp.Lower:
		return "", "without what colluders know"
	}
	return "", ""
}

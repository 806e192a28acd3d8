package account

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/dp/amplify"
)

// Class is a row of Classes: reports as queries name them, and as the command
// line and the page /plan describe them.
type Class struct {
	Class dp.Class `json:"class"`
	Help  string   `json:"-"` // what --help says of it; may be empty
	// The classes' texts on the page: a name, a hint, and the settings of their own.
	Label    string   `json:"label"`
	Hint     string   `json:"hint"`
	Settings []string `json:"settings"`
	// Pair says whether some bounds hold for this class only.
	Pair bool `json:"pair"`
}

// Classes lists what a query's reports can be known to be.
func Classes() []Class {
	out := []Class{
		{Class: dp.Generic, Help: "any eps0-LDP randomizer", Label: "Any ε₀-private randomizer", Settings: []string{"eps0"},
			Hint: "Bounds that hold whatever the randomizer is."},
		{Class: dp.BinaryRR, Help: "binary randomized response", Label: "Randomized response, one bit", Settings: []string{"eps0"},
			Hint: "The truth with chance e^ε₀/(e^ε₀+1), else the other bit."},
		{Class: dp.KRR, Label: "Randomized response, K answers", Settings: []string{"symbols", "eps0"},
			Hint: "The truth, or with its chance any other of the K answers."},
		{Class: dp.LaplaceL1, Help: "in the l1 ball", Label: "Laplace noise", Settings: []string{"eps0"},
			Hint: "Laplace noise on vectors of an ℓ₁ ball."},
		{Class: dp.Gaussian, Label: "Gaussian noise, only the sum is seen", Settings: []string{"sigma"},
			Hint: "Each report carries Gaussian noise; aggregation hides all but the sum."},
		{Class: VectorSumClass, Help: "integer noise, only the sum is seen", Label: "Vector sum with integer noise", Settings: []string{"dim", "grid", "bits"},
			Hint: "Rounded vectors and binomial noise; aggregators see only the sum."},
	}
	for i := range out {
		out[i].Pair = slices.ContainsFunc(classPairs, func(c clones) bool { return slices.Contains(c.classes, out[i].Class) })
	}
	return out
}

// Pairs that hold for any ε₀-LDP report.
var (
	blanket = clones{name: "blanket", source: blanketSource, rate: func(s shape) float64 {
		if s.cross > 0 {
			return amplify.BlanketAcross(s.eps0, s.cross)
		}
		return amplify.Blanket(s.eps0)
	}}
	fmt22 = clones{name: "clones", source: fmt22Source, rate: func(s shape) float64 { return amplify.Clones(s.eps0) }}
)

// classPairs lists the pairs that hold for one class each, in the order of Methods: narrow
// takes the last that covers a shape. A row called NAME makes the method NAME-pld.
var classPairs = []clones{
	{name: "krr", classes: []dp.Class{dp.KRR, dp.BinaryRR}, needs: "class krr:K or rr2, nothing else released",
		source: "privacy blanket of k-ary randomized response, Balle et al. 2019 (dp/amplify/threepart.md)", calls: "amplify.KRR", adaptive: true,
		family: func(s shape) (amplify.Family, error) { return amplify.KRR(s.eps0, max(2, s.symbols)) }},
	{name: "tv", needs: "`--tv a`: the randomizer's total-variation parameter, TV/(E−1), is at most a",
		source: "three-part blanket of a known total variation (dp/amplify/threepart.md)", calls: "amplify.KnownTV", adaptive: true,
		family: func(s shape) (amplify.Family, error) { return amplify.KnownTV(s.eps0, s.tv) }},
	{name: "rr2", classes: []dp.Class{dp.BinaryRR}, needs: "class rr2, nothing else released",
		source: "binary randomized response, worst inputs of the others (dp/amplify/binary.md)", calls: "amplify.RR2",
		family: func(s shape) (amplify.Family, error) { return amplify.RR2(s.eps0) }},
	{name: "laplace", classes: []dp.Class{dp.LaplaceL1}, needs: "class laplace: noise that is continuous or on a grid of steps up to C·2^−16, on an ℓ1 ball",
		source: "three-part blanket of Laplace noise, total variation 1 - e^(-eps0/2) (dp/amplify/threepart.md)", calls: "amplify.Laplace", adaptive: true,
		family: func(s shape) (amplify.Family, error) { return amplify.Laplace(s.eps0) }},
	{name: "cap", classes: []dp.Class{dp.Cap}, needs: "class cap: the laws of all inputs have a part of mass 1 − a(E−1) in common; `privunit` with `--dim`",
		source: "reports with two densities, such as PrivUnit's (dp/amplify/rising.md), Corollary 1", calls: "amplify.Cap", adaptive: true,
		family: func(s shape) (amplify.Family, error) { return amplify.Cap(s.eps0, s.tv) }},
	{name: "rising", classes: []dp.Class{dp.Rising}, needs: "class rising: a density that rises in steps with a score, shares above the edges within q(1 ± η); `stepunit` with `--dim`",
		source: "reports whose density rises with a score (dp/amplify/rising.md), Theorem 2", calls: "amplify.Rising", adaptive: true,
		family: func(s shape) (amplify.Family, error) {
			if least := math.Log1p(s.steps.Height * float64(s.steps.Count)); s.eps0 < least-1e-9 {
				return amplify.Family{}, fmt.Errorf("account: eps0 = %v of reports that are only %v-LDP", s.eps0, least)
			}
			return amplify.Rising(amplify.Steps{Height: s.steps.Height, Tails: s.steps.Each(), Eta: s.steps.Eta})
		}},
}

// clones names a proved dominating pair: that of clones at a rate or, if rate is nil, that of
// the family which family returns for a shape.
type clones struct {
	name, source string
	rate         func(s shape) float64
	family       func(s shape) (amplify.Family, error)
	// These describe a row of classPairs: the classes that it covers (none means any report
	// of a known total variation), its requirements in words, and the function that makes the
	// pair.
	classes      []dp.Class
	needs, calls string
	// adaptive says whether the pair holds for reports that depend on earlier ones of their
	// round, if each is of the class whatever came before.
	adaptive bool
	// rough says that coarser pairs are composed on a coarser grid.
	rough bool
}

// roughly returns c with coarser pairs. A family whose pairs do not get coarser gives way to the
// blanket.
func (c clones) roughly() clones {
	if slices.Contains(c.classes, dp.Cap) || slices.Contains(c.classes, dp.Rising) {
		c = blanket
	}
	c.rough = true
	return c
}

// key names the pair among those of a shape.
func (c clones) key() string {
	if c.rough {
		return c.name + ", rough"
	}
	return c.name
}

// covers says whether the row of a class is about a shape's reports.
func (c clones) covers(s shape) bool {
	return slices.Contains(c.classes, s.class) || c.classes == nil && s.tv > 0
}

// of returns the family whose pair a shape gets.
func (c clones) of(s shape) (amplify.Family, error) {
	f, err := c.fine(s)
	if c.rough && err == nil {
		f = f.Rough()
	}
	return f, err
}

// fine is of without regard to rough.
func (c clones) fine(s shape) (amplify.Family, error) {
	switch {
	case !s.pure():
		return notOf(s, string(dp.Generic))
	case c.rate != nil:
		return amplify.ClonesFamily(s.eps0, c.rate(s))
	case c.needs == "" || c.covers(s): // needs is empty for a mixture, which has a pair for each part
		return c.family(s)
	case c.classes == nil:
		return amplify.Family{}, refuse("needs a total-variation parameter")
	}
	names := make([]string, len(c.classes))
	for i, class := range c.classes {
		names[i] = string(class)
	}
	return notOf(s, strings.Join(names, " or "))
}

func notOf(s shape, class string) (amplify.Family, error) {
	return amplify.Family{}, refuse("holds for class %s, the reports are of class %s", class, s.class)
}

// narrow returns the pair that uses all that is known of a shape's reports: the last of
// classPairs that covers them, or the blanket if none does.
func (s shape) narrow() clones {
	out := blanket // the blanket refuses reports that are not ε₀-LDP
	for _, c := range classPairs {
		if c.covers(s) {
			out = c
		}
	}
	return out
}

// pure says whether the reports are ε₀-LDP. If so, what holds for any such report holds for
// them. Without a shuffler a shape has no class.
func (s shape) pure() bool { return s.class == "" || s.class.LDP() }

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

package experiment

import (
	"fmt"
	"strings"

	"github.com/riffle-dp/riffle/dp"
	"github.com/riffle-dp/riffle/run/solve"
)

// size writes the values by which convex settings of one name differ.
func size(c *solve.Config) string {
	return strings.NewReplacer("e+0", "e", "e+", "e").Replace(fmt.Sprintf("n-%g-dim-%d-eps-%g", float64(c.N), c.Dim, c.Epsilon))
}

// e5 varies one of n, ε and d at a time around n = 10⁵, ε = 1, d = 50.
func e5() Experiment {
	e := Experiment{
		Name: "e5", Title: "Stochastic convex optimisation: excess population loss of six optimisers",
		Source: "Cheu, Joseph, Mao, Peng 2022 (CJMP), Theorems 4.1 to 4.10: rates, no measurements",
		Notes: []string{
			"All parameters follow from public numbers by the optimisers' bounds; none is tuned. δ = 1e-6, radius 8, at most 20,000 different rows.",
			"The population is finite and, but at 0, locally strongly convex: slopes steeper than the theory's worst case say nothing against it.",
			"agd-phases and its rivals ridge-logistic: λ = .05, which makes the loss strongly convex.",
		},
	}
	add := func(optimizer string, trust dp.Trust, loss string, n int64, dim int, epsilon float64) {
		c := solve.Config{
			Synthetic: loss, Optimizer: optimizer, Trust: trust, N: n, Dim: dim, Rows: int(min(n, 20000)),
			Epsilon: epsilon, Delta: 1e-6, Radius: 8,
		}
		if kind, ok := strings.CutPrefix(loss, "ridge-"); ok {
			c.Synthetic, c.Lambda = kind, .05
		}
		e.Settings = append(e.Settings, Setting{
			Name: strings.Join([]string{optimizer, string(trust), loss}, "/"), Paper: trust == "vector-sum" || optimizer == "pan-private", Solve: &c,
		})
	}
	for _, s := range []struct {
		optimizer, loss string
		trusts          []dp.Trust
	}{
		{"psgd", "logistic", []dp.Trust{"vector-sum", "shuffle", "local", "central", "none"}},
		{"agd", "logistic", []dp.Trust{"vector-sum", "shuffle", "local", "central"}},
		{"gd", "logistic", []dp.Trust{"vector-sum", "central"}},
		{"pan-private", "logistic", []dp.Trust{"central"}},
		{"psgd", "hinge", []dp.Trust{"vector-sum", "local"}},
		{"agd-smooth", "hinge", []dp.Trust{"vector-sum", "local"}},
		{"psgd", "absolute", []dp.Trust{"vector-sum"}},
		{"agd-smooth", "absolute", []dp.Trust{"vector-sum"}},
		{"agd-phases", "ridge-logistic", []dp.Trust{"vector-sum"}},
		{"agd", "ridge-logistic", []dp.Trust{"vector-sum"}},
	} {
		for _, trust := range s.trusts {
			for _, n := range []int64{1e4, 1e5, 1e6} {
				if s.optimizer == "gd" && n > 1e5 {
					continue // takes too long: a hundred rounds, each with all clients
				}
				add(s.optimizer, trust, s.loss, n, 50, 1)
			}
		}
	}
	for _, optimizer := range []string{"psgd", "agd", "gd"} {
		for _, epsilon := range []float64{.1, .3, 3} {
			add(optimizer, "vector-sum", "logistic", 1e5, 50, epsilon)
		}
		for _, dim := range []int{10, 200} {
			add(optimizer, "vector-sum", "logistic", 1e5, dim, 1)
		}
	}
	return e
}

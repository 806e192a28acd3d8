package literature_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/riffle-dp/riffle/dp/amplify"
	"github.com/riffle-dp/riffle/dp/amplify/literature"
	"github.com/riffle-dp/riffle/internal/golden"
)

// Every bound of the papers against testdata/papers.py: on the side it is a
// bound of, and as close as its comment says.
func TestPapersGolden(t *testing.T) {
	seen := map[string]int{}
	for _, r := range golden.Rows(t, "papers.tsv", 700) {
		want, x := golden.Numbers(t, r[2:])[0], golden.Numbers(t, strings.Fields(r[1]))
		got, tol, side := paperValue(t, r[0], x)
		seen[r[0]]++
		// 1e-15 of an absolute value: a δ or a logarithm may be next to 0.
		under, over := want-got, got-want
		room := tol*math.Abs(want) + 1e-15
		if math.IsNaN(got) || over > room && side >= 0 || under > room && side <= 0 ||
			side > 0 && under > 1e-14*math.Abs(want)+1e-300 || side < 0 && over > 1e-14*math.Abs(want) {
			t.Errorf("%s %v = %.17g, want %.17g within %v, side %d", r[0], x, got, want, tol, side)
		}
	}
	for _, name := range []string{"kov-closed", "kov-exact", "fmt22", "fmt23", "ternary-same", "ternary-shuffle", "gddsk", "gddsk-simple", "wbk",
		"sci1", "sci1-printed", "sci2", "sci2-printed", "sci3", "eab1", "gdp-mu", "gdp-delta", "balle-exact", "balle-hoeffding", "balle-bennett"} {
		if seen[name] == 0 {
			t.Errorf("no golden value of %s", name)
		}
	}
}

// paperValue computes a row: the value, how close it should be, and whether it
// must lie above (1), below (−1) or on either side (0).
func paperValue(t *testing.T, name string, x []float64) (value, tol float64, side int) {
	t.Helper()
	must := func(v float64, err error) float64 {
		t.Helper()
		if err != nil {
			t.Fatalf("%s %v: %v", name, x, err)
		}
		return v
	}
	checkIn := func() literature.Round {
		return literature.Round{Eps0: x[0], Population: int64(x[1]), Gamma: x[2]}
	}
	orders := func(b func(int) (float64, error), err error) float64 {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return must(b(int(x[3])))
	}
	blanketed := func() *literature.Blanketed {
		b, err := literature.NewBlanketed(x[0], int64(x[1]), int(x[2]))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	repeated := literature.Repeated{Eps: x[0], Rounds: int64(x[1])}
	switch name {
	case "kov-closed":
		return repeated.Epsilon(x[2]), 1e-13, 1
	case "kov-exact":
		repeated.Exact = true
		d := repeated.Delta(x[2])
		return d, 1e-8 + 3e-11/d, 1
	case "fmt22", "fmt23": // a row is ε at δ; the function is δ at ε
		f := literature.ClonesClosed
		if name == "fmt23" {
			f = literature.Feldman2023
		}
		eps := goldenEps(t, name, x)
		if eps >= x[0] {
			return eps, 0, 0
		}
		if d := f(x[0], int64(x[1]), eps*(1+1e-13)); !(d >= x[2]*(1-1e-9) && d <= x[2]*(1+1e-6)) {
			t.Errorf("%s %v: delta %v at epsilon %v", name, x, d, eps)
		}
		return eps, 0, 0
	case "ternary-same":
		return must(literature.TernarySame(x[0], int64(x[1]), int(x[2]))), 1e-12, 0
	case "ternary-shuffle":
		return must(literature.TernaryShuffle(x[0], int64(x[1]), int(x[2]))), 1e-12, 0
	case "gddsk", "gddsk-simple", "wbk":
		s, err := literature.NewShuffleRenyi(x[0], int64(x[1]))
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case "gddsk":
			return must(s.Divergence(1, int(x[2]), false)), 2e-9, 1
		case "gddsk-simple":
			return s.SimpleDivergence(x[2]), 1e-11, 1
		}
		return must(s.Divergence(x[2], int(x[3]), false)), 1e-8, 1
	case "sci1":
		return orders(literature.SCITheorem1(checkIn(), false)), 1e-5, 1
	case "sci1-printed":
		return orders(literature.SCITheorem1(checkIn(), true)), 1e-6, 1
	case "sci2":
		return orders(literature.SCITheorem2(checkIn(), x[4], false)), 2e-9, 1
	case "sci2-printed":
		return orders(literature.SCITheorem2(checkIn(), x[4], true)), 1e-9, 0
	case "sci3":
		return must(literature.SCITheorem3(checkIn(), int(x[3]))), .02, -1
	case "eab1":
		m := must(literature.ShuffledMoment(x[0], int64(x[1]), amplify.Clones(x[0]), x[2]))
		return m / (x[2] - 1), 1e-8, 1
	case "gdp-mu":
		g, err := literature.ShuffleGDP(x[0], int64(x[1]), 1)
		return must(g.Mu, err), 1e-14, 0
	case "gdp-delta":
		g, err := literature.ShuffleGDP(x[0], int64(x[1]), 1)
		if err != nil {
			t.Fatal(err)
		}
		return g.Delta(x[2]), 1e-9, 0
	case "balle-exact":
		return must(blanketed().ExactDelta(x[3])), 1e-9, 1
	case "balle-hoeffding":
		return blanketed().Delta(x[3], false), 2e-9, 1
	case "balle-bennett":
		return blanketed().Delta(x[3], true), 2e-8, 1
	}
	t.Fatalf("unknown row %s", name)
	return
}

// goldenEps finds a row's own value again: what δ is asked at.
func goldenEps(t *testing.T, name string, x []float64) float64 {
	t.Helper()
	for _, r := range golden.Rows(t, "papers.tsv", 700) {
		if r[0] == name && slices.Equal(golden.Numbers(t, strings.Fields(r[1]))[:3], x[:3]) {
			return golden.Numbers(t, r[2:])[0]
		}
	}
	t.Fatalf("no row %s %v", name, x)
	return 0
}

func TestGoldenGirgis(t *testing.T) {
	for _, r := range golden.Rows(t, "girgis.tsv", 300) {
		v := golden.Numbers(t, r[1:])
		c := literature.Round{Reports: int64(v[0]), Population: int64(v[1]), Eps0: v[2]}
		order, want := int(v[3]), v[4]
		if r[0] == "upper" {
			got, err := literature.GirgisUpper(c, order)
			if err != nil {
				t.Fatal(err)
			}
			if !(got >= want-1e-15 && got <= want*(1+1e-8)+1e-15) {
				t.Errorf("%v: %.17g, want %.17g or 1e-8 above", r, got, want)
			}
			continue
		}
		got, err := literature.GirgisLower(c, order)
		if err != nil {
			t.Fatal(err)
		}
		// A lower bound may not exceed the divergence of the mechanism it names.
		if !(got <= want) || !(got >= want*(1-1e-8)-1e-15) {
			t.Errorf("%v: lower bound %.17g, true divergence %.17g (relative %.3g)", r, got, want, (got-want)/want)
		}
	}
}
